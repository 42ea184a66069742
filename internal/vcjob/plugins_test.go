// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestPluginsMakeOfAJobWhatItsGoldenFileSays compares everything that comes of the Jobs in testdata/plugins: the objects beside the
// pods, and the pods.
func TestPluginsMakeOfAJobWhatItsGoldenFileSays(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "plugins", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".golden.yaml") {
			continue
		}
		name := strings.TrimSuffix(file, ".yaml")
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			j := &batch.Job{}
			if err := yaml.UnmarshalStrict(text, j); err != nil {
				t.Fatal(err)
			}
			Default(j, "")
			if problems := Validate(j, Surroundings{Queue: &scheduling.Queue{}}); len(problems) > 0 {
				t.Fatalf("it is refused: %q", problems)
			}
			got := rendered(t, j)
			golden := name + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("objects and pods (-%s +made), rewrite with -update:\n%s", golden, diff)
			}
		})
	}
}

// rendered returns all that belongs to j in YAML. Keys that are to be made are the words PRIVATE and PUBLIC.
func rendered(t *testing.T, j *batch.Job) []byte {
	t.Helper()
	var b bytes.Buffer
	add := func(title string, o any) {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "--- # %s\n%s", title, text)
	}
	objects, err := Objects(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		title := fmt.Sprintf("%s of %s", strings.TrimPrefix(fmt.Sprintf("%T", o.Object), "*v1."), o.Plugin)
		if o.Keep {
			title += ", left as it is when it is there"
		}
		if secret, ok := o.Object.(*corev1.Secret); ok {
			if o.NeedsKeys {
				plugin.Keys{Private: []byte("PRIVATE"), Public: []byte("PUBLIC")}.Into(secret)
			}
			secret.StringData = map[string]string{}
			for key, value := range secret.Data {
				secret.StringData[key] = string(value)
			}
			secret.Data = nil
		}
		withoutOwner(t, j, o.Object.(metav1.Object))
		add(title, o.Object)
	}
	checkEditsSettle(t, j)
	builder, err := NewBuilder(j, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range j.Spec.Tasks {
		for index := range int(j.Spec.Tasks[i].Replicas) {
			name := PodName(j.Name, j.Spec.Tasks[i].Name, index)
			p, err := builder.Pod(Creation{Task: i, Index: index, Name: name})
			if err != nil {
				t.Fatal(err)
			}
			add("Pod "+name, map[string]any{"hccl/rankIndex": p.Annotations["hccl/rankIndex"], "spec": p.Spec})
		}
	}
	return b.Bytes()
}

// withoutOwner checks that o belongs to j, and takes that away, as it is the same everywhere.
func withoutOwner(t *testing.T, j *batch.Job, o metav1.Object) {
	t.Helper()
	if !metav1.IsControlledBy(o, j) {
		t.Errorf("%s does not belong to the Job: %v", o.GetName(), o.GetOwnerReferences())
	}
	o.SetOwnerReferences(nil)
}

// checkEditsSettle checks that no plugin changes a second time what it has changed.
func checkEditsSettle(t *testing.T, j *batch.Job) {
	t.Helper()
	plugins, err := plugin.Of(j)
	if err != nil {
		t.Fatal(err)
	}
	for i := range j.Spec.Tasks {
		p := plugin.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: j.Spec.Tasks[i].Template.Spec}, Task: i}
		p.Pod = p.DeepCopy()
		for _, each := range plugins {
			var once *corev1.Pod
			for range 2 {
				once = p.DeepCopy()
				if err := each.Edit(p); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(once, p.Pod); diff != "" {
				t.Errorf("plugin %s changes a pod of task %s again (-once +twice):\n%s", each.Name, j.Spec.Tasks[i].Name, diff)
			}
		}
	}
}
