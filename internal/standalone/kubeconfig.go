// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/drover-dev/drover/internal/atomicfile"
	"github.com/drover-dev/drover/internal/standalone/pki"
)

// writeKubeconfig writes the administrator's kubeconfig. It holds the certificates themselves, so that a copy of the file
// works elsewhere.
func writeKubeconfig(d Dir, server string) error {
	config := clientcmdapi.NewConfig()
	var err error
	read := func(path string) []byte {
		data, readErr := os.ReadFile(path)
		if readErr != nil && err == nil {
			err = readErr
		}
		return data
	}
	const name = "drover"
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: server, CertificateAuthorityData: read(pki.CAPath(d.PKI())),
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: read(pki.Admin.CertPath(d.PKI())), ClientKeyData: read(pki.Admin.KeyPath(d.PKI())),
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return atomicfile.Write(d.Kubeconfig(), data, 0o600)
}
