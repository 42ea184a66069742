// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what is applied to a cluster to run Drover in it: manifests for kustomize, a Helm chart, and definitions of kinds.
package deploy

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed base/rbac.yaml overlays/replace/rbac.yaml overlays/volcano/rbac.yaml
var files embed.FS

// ClusterRoles returns the cluster roles that the manifests give the controllers, all of them together.
func ClusterRoles() ([]rbacv1.ClusterRole, error) {
	var roles []rbacv1.ClusterRole
	for _, name := range []string{"base/rbac.yaml", "overlays/replace/rbac.yaml", "overlays/volcano/rbac.yaml"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
		for {
			var role rbacv1.ClusterRole
			err := decoder.Decode(&role)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
			if role.Kind == "ClusterRole" {
				roles = append(roles, role)
			}
		}
	}
	return roles, nil
}
