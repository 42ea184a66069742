// SPDX-License-Identifier: Apache-2.0

package target

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// discoveryAge is how long a cluster's list of kinds is believed, as in kubectl. A kind that is missing from it is
// asked for anew in any case.
const discoveryAge = 6 * time.Hour

// Getter gives kubectl's machinery the cluster.
type Getter struct {
	Cluster *Cluster
	Warn    func(string) // told about ambiguous resource names; may be nil

	discovery discovery.CachedDiscoveryInterface
	mapper    meta.RESTMapper
}

var _ genericclioptions.RESTClientGetter = (*Getter)(nil)

// ToRESTConfig returns a copy of the cluster's client configuration.
func (g *Getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.Cluster.Config), nil }

// ToRawKubeConfigLoader returns what the configuration was made from.
func (g *Getter) ToRawKubeConfigLoader() clientcmd.ClientConfig { return g.Cluster.Loader }

// ToDiscoveryClient returns the one discovery client, which remembers answers on disk.
func (g *Getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	if g.discovery != nil {
		return g.discovery, nil
	}
	dir := g.Cluster.CacheDir()
	client, err := disk.NewCachedDiscoveryClientForConfig(g.Cluster.Config,
		filepath.Join(dir, "discovery"), filepath.Join(dir, "http"), discoveryAge)
	if err != nil {
		return nil, fmt.Errorf("preparing to ask which kinds there are: %w", err)
	}
	g.discovery = client
	return client, nil
}

// ToRESTMapper returns the one mapper from kinds and short names to resources.
func (g *Getter) ToRESTMapper() (meta.RESTMapper, error) {
	if g.mapper != nil {
		return g.mapper, nil
	}
	client, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	warn := g.Warn
	if warn == nil {
		warn = func(string) {}
	}
	g.mapper = restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, warn)
	return g.mapper, nil
}

// CacheDir returns where answers of the cluster may be remembered. A plane has its own place: planes come and go on the
// same ports, so that a cache by address would show one the kinds of another.
func (c *Cluster) CacheDir() string {
	if c.DataDir != "" {
		return PlaneCacheDir(c.DataDir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir() // the cache copes with files that it cannot write
	}
	return filepath.Join(dir, "drover", url.PathEscape(c.Config.Host))
}

// PlaneCacheDir returns where clients remember answers of the plane with that data directory.
func PlaneCacheDir(dataDir string) string { return filepath.Join(dataDir, "run", "cache") }
