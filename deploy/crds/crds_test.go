// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// definition is what users see of a kind.
type definition struct {
	Kind, Group, Version, Plural, Scope string
	Short                               []string
	Status                              bool
	Columns                             []column
}

type column struct {
	Name, Path string
	Priority   int
}

func TestDefinitionsCarryTheNamesAndColumnsThatVolcanosUsersKnow(t *testing.T) {
	age := column{"AGE", ".metadata.creationTimestamp", 0}
	queue := column{"QUEUE", ".spec.queue", 1}
	want := map[string]definition{
		"batch.volcano.sh_jobs.yaml": {
			"Job", "batch.volcano.sh", "v1alpha1", "jobs", "Namespaced",
			[]string{"vcjob", "vj"},
			true,
			[]column{{"STATUS", ".status.state.phase", 0}, {"minAvailable", ".status.minAvailable", 0}, {"RUNNINGS", ".status.running", 0}, age, queue},
		},
		"batch.volcano.sh_cronjobs.yaml": {
			"CronJob", "batch.volcano.sh", "v1alpha1", "cronjobs", "Namespaced", []string{"cronvcjob", "cronvj"}, true, nil,
		},
		"bus.volcano.sh_commands.yaml": {"Command", "bus.volcano.sh", "v1alpha1", "commands", "Namespaced", nil, false, nil},
		"scheduling.volcano.sh_podgroups.yaml": {
			"PodGroup", "scheduling.volcano.sh", "v1beta1", "podgroups", "Namespaced",
			[]string{"pg", "podgroup-v1beta1"},
			false,
			[]column{{"STATUS", ".status.phase", 0}, {"minMember", ".spec.minMember", 0}, {"RUNNINGS", ".status.running", 0}, age, queue},
		},
		"scheduling.volcano.sh_queues.yaml": {
			"Queue", "scheduling.volcano.sh", "v1beta1", "queues", "Cluster", []string{"q", "queue-v1beta1"}, true, []column{{"PARENT", ".spec.parent", 0}},
		},
		"flow.volcano.sh_jobflows.yaml": {
			"JobFlow", "flow.volcano.sh", "v1alpha1", "jobflows", "Namespaced",
			[]string{"jf"},
			true,
			[]column{{"Status", ".status.state.phase", 0}, {"Age", ".metadata.creationTimestamp", 0}},
		},
		"flow.volcano.sh_jobtemplates.yaml": {"JobTemplate", "flow.volcano.sh", "v1alpha1", "jobtemplates", "Namespaced", []string{"jt"}, true, nil},
	}
	got := map[string]definition{}
	files, err := Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got[f.Name()] = read(t, f.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

func read(t *testing.T, file string) definition {
	t.Helper()
	text, err := Files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Group, Scope string
			Names        struct {
				Kind, Plural string
				ShortNames   []string
			}
			Versions []struct {
				Name         string
				Subresources struct {
					Status json.RawMessage
				}
				AdditionalPrinterColumns []struct {
					Name, JSONPath string
					Priority       int
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	if n := len(crd.Spec.Versions); n != 1 {
		t.Fatalf("%s has %d versions, want 1", file, n)
	}
	v := crd.Spec.Versions[0]
	d := definition{
		Kind: crd.Spec.Names.Kind, Group: crd.Spec.Group, Version: v.Name, Plural: crd.Spec.Names.Plural, Scope: crd.Spec.Scope,
		Short: crd.Spec.Names.ShortNames, Status: v.Subresources.Status != nil,
	}
	for _, c := range v.AdditionalPrinterColumns {
		d.Columns = append(d.Columns, column{c.Name, c.JSONPath, c.Priority})
	}
	return d
}
