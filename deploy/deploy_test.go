// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// manifests are those with roles.
var manifests = []string{"base/rbac.yaml", "overlays/replace/rbac.yaml", "overlays/volcano/rbac.yaml"}

// granted is what a service account may do: rules by "name" of the role for the whole cluster, or "name in namespace".
type granted map[string][]rbacv1.PolicyRule

// grantedBy returns what the roles of a text grant. Each must be bound to the service account of the name.
func grantedBy(t *testing.T, text, account string) granted {
	t.Helper()
	rules, bound := granted{}, map[string]bool{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), len(text))
	for {
		var o struct { // a role or a binding
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Rules             []rbacv1.PolicyRule `json:"rules"`
			RoleRef           rbacv1.RoleRef      `json:"roleRef"`
			Subjects          []rbacv1.Subject    `json:"subjects"`
		}
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("reading roles: %v\n%s", err, text)
		}
		key := o.Name
		if o.Namespace != "" {
			key += " in " + o.Namespace
		}
		switch kind := o.Kind; kind {
		case "Role", "ClusterRole":
			if (kind == "Role") != (o.Namespace != "") {
				t.Errorf("%s %s is in namespace %q", kind, o.Name, o.Namespace)
			}
			if rules[key] != nil {
				t.Errorf("%s is there twice", key)
			}
			rules[key] = o.Rules
		case "RoleBinding", "ClusterRoleBinding":
			if o.RoleRef.Kind+"Binding" != kind || o.RoleRef.Name != o.Name || len(o.Subjects) != 1 || o.Subjects[0].Kind != "ServiceAccount" || o.Subjects[0].Name != account {
				t.Errorf("%s %s binds %v to %v", kind, key, o.RoleRef, o.Subjects)
			}
			bound[key] = true
		}
	}
	for key := range rules {
		if !bound[key] {
			t.Errorf("%s is bound to nobody", key)
		}
	}
	return rules
}

// rulesOfManifests returns the rules of all roles of the manifests by name.
func rulesOfManifests(t *testing.T) granted {
	t.Helper()
	all := granted{}
	for _, name := range manifests {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// As kustomize does it, for what has a namespace.
		placed := strings.NewReplacer("kind: Role\nmetadata:\n", "kind: Role\nmetadata:\n  namespace: drover-system\n", "kind: RoleBinding\nmetadata:\n", "kind: RoleBinding\nmetadata:\n  namespace: drover-system\n").Replace(string(text))
		for key, rules := range grantedBy(t, placed, "drover-controller") {
			all[strings.TrimSuffix(key, " in drover-system")] = rules
		}
	}
	return all
}

// rendered returns a template of the chart as helm renders it for the release drover in the namespace drover-system. It knows what of
// helm's functions the chart uses.
func rendered(t *testing.T, name string, set map[string]any) string {
	t.Helper()
	text, err := os.ReadFile("chart/drover/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := sigsyaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	maps.Copy(values, set)
	chart := template.New("chart")
	indented := func(n int, s string) string { return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n)) }
	chart.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := chart.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"nindent": func(n int, s string) string { return indented(n, "\n"+s) },
		"toYaml": func(v any) (string, error) {
			b, err := sigsyaml.Marshal(v)
			return strings.TrimSuffix(string(b), "\n"), err
		},
		"has":    func(x any, list []any) bool { return slices.Contains(list, x) },
		"list":   func(all ...any) []any { return all },
		"append": func(list []any, x any) []any { return append(slices.Clone(list), x) },
		"dict": func(pairs ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i < len(pairs); i += 2 {
				m[pairs[i].(string)] = pairs[i+1]
			}
			return m
		},
		"join": func(by string, list []any) string {
			texts := make([]string, len(list))
			for i, x := range list {
				texts[i] = fmt.Sprint(x)
			}
			return strings.Join(texts, by)
		},
		"ternary": func(yes, no string, which bool) string { return map[bool]string{true: yes, false: no}[which] },
		"default": func(instead, s string) string {
			if s == "" {
				return instead
			}
			return s
		},
		"quote":      strconv.Quote,
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	})
	for _, file := range []string{"_helpers.tpl", "_rules.tpl", name} {
		source, err := os.ReadFile(filepath.Join("chart/drover/templates", file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chart.New(file).Parse(string(source)); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	err = chart.ExecuteTemplate(&b, name, map[string]any{
		"Values": values, "Chart": map[string]any{"Name": "drover", "Version": "1", "AppVersion": "1"},
		"Release": map[string]any{"Name": "drover", "Namespace": "drover-system", "Service": "Helm"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheChartGivesTheRightsOfTheManifests(t *testing.T) {
	manifests := rulesOfManifests(t)
	every := []any{"job", "cronjob", "vcjob", "queue", "podgroup", "jobflow", "cronvcjob"}
	own := []string{"drover-controller-lease in drover-system", "drover-controller-webhook in drover-system"}
	cases := map[string]struct {
		set  map[string]any
		want []string // roles
	}{
		"Jobs everywhere": {nil, []string{"drover-controller", own[0]}},
		"everything everywhere": {map[string]any{"controllers": every}, []string{
			"drover-controller", "drover-controller-cronjobs", "drover-controller-volcano", "drover-controller-queues", own[0], own[1],
		}},
		"Jobs in two namespaces, with no right beside them": {map[string]any{"namespaces": []any{"a", "b"}}, []string{
			"drover-controller in a", "drover-controller in b", own[0],
		}},
		"everything in one namespace, and beside it what has none": {map[string]any{"controllers": every, "namespaces": []any{"a"}}, []string{
			"drover-controller in a", "drover-controller-cronjobs in a", "drover-controller-volcano in a", "drover-controller-queues", own[0], own[1],
		}},
		"no webhooks": {map[string]any{"controllers": every, "namespaces": []any{"a"}, "volcano": map[string]any{"webhooks": false}}, []string{
			"drover-controller in a", "drover-controller-cronjobs in a", "drover-controller-volcano in a", "drover-controller-queues", own[0],
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := granted{}
			for _, key := range tc.want {
				role, _, _ := strings.Cut(key, " in ")
				want[key] = manifests[role]
				if len(manifests[role]) == 0 {
					t.Errorf("the manifests have no role %s", role)
				}
			}
			if diff := cmp.Diff(want, grantedBy(t, rendered(t, "rbac.yaml", tc.set), "drover-controller")); diff != "" {
				t.Errorf("rights (-of the manifests +of the chart):\n%s", diff)
			}
		})
	}
}

func TestTheChartTellsDroverWhereToWork(t *testing.T) {
	const flag = "        - --namespaces="
	if text := rendered(t, "deployment.yaml", nil); strings.Contains(text, flag) {
		t.Errorf("without namespaces:\n%s", text)
	}
	if text := rendered(t, "deployment.yaml", map[string]any{"namespaces": []any{"a", "b"}}); !strings.Contains(text, "\n"+flag+"a,b\n") {
		t.Errorf("with the namespaces a and b:\n%s", text)
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
	if err != nil || len(roles) != 4 {
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
