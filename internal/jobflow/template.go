// SPDX-License-Identifier: Apache-2.0

package jobflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// jobFor returns the Job of an entry.
//
// Differs: Volcano sets labels that are too long to be labels, and cannot make the Job then; here the annotations tell it alone.
func jobFor(f *flow.JobFlow, entry *flow.Flow, template *flow.JobTemplate) (*batch.Job, error) {
	spec, err := patched(template.Spec, entry.Patch)
	if err != nil {
		return nil, fmt.Errorf("applying the patch of entry %q to jobtemplate %q: %w", entry.Name, template.Name, err)
	}
	origin := map[string]string{
		batch.TemplateOfKey: template.Namespace + "." + template.Name,
		batch.FlowOfKey:     f.Namespace + "." + f.Name,
	}
	labels := map[string]string{}
	for key, value := range origin {
		if len(validation.IsValidLabelValue(value)) == 0 {
			labels[key] = value
		}
	}
	return &batch.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: JobName(f.Name, entry.Name), Labels: labels, Annotations: origin,
			OwnerReferences: []metav1.OwnerReference{ControllerRef(f)},
		},
		Spec: spec,
	}, nil
}

// patched returns a spec with a patch applied: what the patch names takes the place of what the spec has. Tasks, containers, their
// environment and the like are matched by name, volumes by their mount path, plugins and other maps by key; all other lists are
// replaced as a whole.
//
// The patch comes as a Go value, so that what is zero, false or empty in it was not given. Neither was what the definition of the kind
// fills in: the queue "default" and maxRetry 3.
func patched(spec batch.JobSpec, patch *flow.Patch) (batch.JobSpec, error) {
	spec = *spec.DeepCopy()
	if patch == nil || equality.Semantic.DeepEqual(patch.JobSpec, batch.JobSpec{}) {
		return spec, nil
	}
	for i := range spec.Tasks { // as they will be called
		if t := &spec.Tasks[i]; t.Name == "" {
			t.Name = batch.DefaultTaskName + strconv.Itoa(i)
		}
	}
	change := *patch.JobSpec.DeepCopy()
	if change.Queue == batch.DefaultQueue {
		change.Queue = ""
	}
	if change.MaxRetry == batch.DefaultMaxRetry {
		change.MaxRetry = 0
	}
	before, err := json.Marshal(spec)
	if err != nil {
		return spec, err
	}
	diff, err := withoutNulls(change)
	if err != nil {
		return spec, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, diff, batch.JobSpec{})
	if err != nil {
		return spec, err
	}
	var out batch.JobSpec
	if err := json.Unmarshal(after, &out); err != nil {
		return spec, err
	}
	return out, nil
}

// withoutNulls returns o as JSON without fields that are null: in a patch these would delete what they name.
func withoutNulls(o any) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	prune(tree)
	return json.Marshal(tree)
}

func prune(node any) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			if value == nil {
				delete(n, key)
				continue
			}
			prune(value)
		}
	case []any:
		for _, value := range n {
			prune(value)
		}
	}
}

// TemplateOf returns "<namespace>.<name>" of the JobTemplate that a Job was made from; "": none.
func TemplateOf(j *batch.Job) string {
	if v := j.Annotations[batch.TemplateOfKey]; v != "" {
		return v
	}
	return j.Labels[batch.TemplateOfKey]
}

// TemplateStatus returns the status of a template from which these Jobs were made, in any order; nil: it says so already.
func TemplateStatus(t *flow.JobTemplate, jobs []*batch.Job) *flow.JobTemplateStatus {
	var names []string
	for _, j := range jobs {
		if j.Namespace == t.Namespace {
			names = append(names, j.Name)
		}
	}
	slices.Sort(names)
	if slices.Equal(names, t.Status.JobDependsOnList) {
		return nil
	}
	return &flow.JobTemplateStatus{JobDependsOnList: names}
}
