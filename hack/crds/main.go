// SPDX-License-Identifier: Apache-2.0

// Command crds writes the deep copies of the API types in internal/volcano and the CustomResourceDefinitions in deploy/crds. It is
// run by `make generate` and takes no arguments.
//
// The definitions are those of controller-gen with four changes: descriptions within pod templates and claims are left out, as they
// are nine tenths of the text and known from elsewhere; pod templates are spelt out for Jobs only, because an API server takes a
// second for each time that it reads them, and what other kinds hold is checked when it becomes a Job; patches
// of Jobs need not be whole, and nothing is filled in in them; and Helm is told to keep a
// definition when a chart goes, because all objects of the kind would go with it.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const (
	types  = "./internal/volcano/..."
	output = "deploy/crds"
	header = "# SPDX-License-Identifier: Apache-2.0\n# Generated from internal/volcano by `make generate`.\n"
)

func main() {
	if err := run(); err != nil {
		log.Fatalf("generating the API of Volcano: %v", err)
	}
}

func run() error {
	if err := os.Chdir("../.."); err != nil { // go generate runs in the folder of the directive
		return err
	}
	raw, err := os.MkdirTemp("", "crds-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(raw) }() // a temporary directory
	licence := filepath.Join(raw, "licence.txt")
	if err := os.WriteFile(licence, []byte("// SPDX-License-Identifier: Apache-2.0\n"), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"object:headerFile=" + licence, "paths=" + types},
		{"crd:generateEmbeddedObjectMeta=true", "paths=" + types, "output:crd:dir=" + raw},
	} {
		gen := exec.Command("go", append([]string{"run", "-modfile=hack/tools/go.mod", "sigs.k8s.io/controller-tools/cmd/controller-gen"}, args...)...)
		gen.Stdout, gen.Stderr = os.Stdout, os.Stderr
		if err := gen.Run(); err != nil {
			return fmt.Errorf("running controller-gen %s: %w", args[0], err)
		}
	}
	files, err := filepath.Glob(filepath.Join(raw, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := rewrite(file, filepath.Join(output, filepath.Base(file))); err != nil {
			return fmt.Errorf("rewriting %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

func rewrite(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return err
	}
	crd["metadata"].(map[string]any)["annotations"] = map[string]any{"helm.sh/resource-policy": "keep"}
	shorten(crd, false)
	if filepath.Base(to) != "batch.volcano.sh_jobs.yaml" {
		loosen(crd)
	}
	loosenPatches(crd, false)
	text, err = yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(to, append([]byte(header), text...), 0o644)
}

// loosen has the pod templates in a schema taken as they are.
func loosen(node any) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			if schema, ok := value.(map[string]any); ok && key == "template" && schema["type"] == "object" {
				n[key] = map[string]any{"type": "object", "description": schema["description"], "x-kubernetes-preserve-unknown-fields": true}
				continue
			}
			loosen(value)
		}
	case []any:
		for _, value := range n {
			loosen(value)
		}
	}
}

// loosenPatches takes defaults, required fields and rules out of the schemas within the field patch: what is no whole object keeps to
// none of them.
func loosenPatches(node any, within bool) {
	switch n := node.(type) {
	case map[string]any:
		if within && n["type"] != nil {
			for _, key := range []string{"default", "required", "minItems", "x-kubernetes-validations"} {
				delete(n, key)
			}
		}
		for key, value := range n {
			loosenPatches(value, within || key == "patch")
		}
	case []any:
		for _, value := range n {
			loosenPatches(value, within)
		}
	}
}

// foreign are the fields whose types are those of Kubernetes.
var foreign = map[string]bool{"template": true, "volumeClaim": true}

// shorten takes the descriptions out of the schemas within fields of foreign types.
func shorten(node any, within bool) {
	switch n := node.(type) {
	case map[string]any:
		if text, ok := n["description"].(string); ok && within && text != "" {
			delete(n, "description")
		}
		for key, value := range n {
			shorten(value, within || foreign[key])
		}
	case []any:
		for _, value := range n {
			shorten(value, within)
		}
	}
}
