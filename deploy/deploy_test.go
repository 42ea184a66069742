// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rulesOf returns the text of the rules of the first role in a manifest.
func rulesOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\nrules:\n")
	rules, _, end := strings.Cut(rest, "---\n")
	if !ok || !end {
		t.Fatalf("%s has no role with rules", name)
	}
	return rules
}

func TestTheChartGivesTheRightsOfTheManifests(t *testing.T) {
	chart, err := os.ReadFile("chart/drover/templates/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"base/rbac.yaml", "overlays/replace/rbac.yaml", "overlays/volcano/rbac.yaml"} {
		if !strings.Contains(string(chart), rulesOf(t, name)) {
			t.Errorf("the rules of %s are not those in the chart: copy them", name)
		}
	}
}

func TestTheChartBringsEveryKind(t *testing.T) {
	kinds, err := filepath.Glob("crds/*.yaml")
	if err != nil || len(kinds) == 0 {
		t.Fatalf("finding the kinds: %d, %v", len(kinds), err)
	}
	kustomization, err := os.ReadFile("crds/kustomization.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range kinds {
		name := filepath.Base(file)
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("chart/drover/crds", name)); err != nil || string(got) != string(want) {
			t.Errorf("the chart lacks %s (%v)", name, err)
		}
		if !strings.Contains(string(kustomization), "- "+name+"\n") {
			t.Errorf("the kustomization lacks %s", name)
		}
	}
}

func TestClusterRolesGiveNoRightToEverything(t *testing.T) {
	roles, err := ClusterRoles()
	if err != nil || len(roles) != 3 {
		t.Fatalf("%d roles, %v", len(roles), err)
	}
	for _, role := range roles {
		for _, rule := range role.Rules {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
				for _, word := range list {
					if word == "*" {
						t.Errorf("%s has a rule for everything: %v", role.Name, rule)
					}
				}
			}
		}
	}
}
