// SPDX-License-Identifier: Apache-2.0

// Package crds holds the CustomResourceDefinitions of Volcano's kinds, as they are applied to a cluster. They are generated from
// internal/volcano by `make generate`.
package crds

import "embed"

// Files are the definitions, one in each file, named "<group>_<plural>.yaml".
//
//go:embed *.yaml
var Files embed.FS
