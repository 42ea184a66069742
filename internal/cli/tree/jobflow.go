// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/jobflow"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// observeFlow reads what the API server holds of one JobFlow. It puts no questions to pods.
func observeFlow(ctx context.Context, client kubernetes.Interface, namespace, name string, now time.Time) (jobflow.Observed, error) {
	object, err := workload.JobFlows(client, namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return jobflow.Observed{}, err
	}
	o := jobflow.Observed{Flow: object.(*flow.JobFlow), Templates: map[string]*flow.JobTemplate{}, Jobs: map[string]*batch.Job{}, Now: now}
	templates, err := workload.JobTemplates(client, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("listing its JobTemplates: %w", err)
	}
	for i := range templates.(*flow.JobTemplateList).Items {
		t := &templates.(*flow.JobTemplateList).Items[i]
		o.Templates[t.Name] = t
	}
	jobs, err := workload.VCJobs(client, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("listing its Jobs: %w", err)
	}
	for i := range jobs.(*batch.JobList).Items {
		j := &jobs.(*batch.JobList).Items[i]
		o.Jobs[j.Name] = j
	}
	return o, nil
}

// FlowText returns the tree of a JobFlow.
func FlowText(o jobflow.Observed) string {
	plan := jobflow.Decide(o)
	summary := workload.SummarizeJobFlow(o.Flow)
	root := &node{text: fmt.Sprintf("jobflow/%s  %s  %s jobs completed", o.Flow.Name, summary.Status, summary.Done)}
	for _, e := range inOrder(plan.Entries) {
		line := e.Name
		switch j := o.Jobs[e.Job]; {
		case e.Made && e.Phase == "":
			line += "  job " + e.Job + "  new"
		case e.Made && j == nil:
			line += "  job " + e.Job + "  " + string(e.Phase) + ", deleted since"
		case e.Made:
			line += "  job " + e.Job + "  " + string(e.Phase)
		}
		if len(e.After) > 0 {
			line += "  after " + strings.Join(e.After, ", ")
		}
		if e.Waits != "" {
			line += "  " + e.Waits
		}
		under := root.add("%s", line)
		if j := o.Jobs[e.Job]; e.Made && j != nil {
			addTasks(under, j)
		}
	}
	for _, event := range plan.Events {
		if event.Reason == jobflow.ReasonInvalidFlow {
			root.add("cannot run: %s", event.Message)
		}
	}
	var b strings.Builder
	b.WriteString(root.text + "\n")
	root.write(&b, "")
	return b.String()
}

func addTasks(under *node, j *batch.Job) {
	if m := j.Status.State.Message; m != "" {
		under.add("%s", m)
	}
	for _, t := range j.Spec.Tasks {
		count := j.Status.TaskStatusCount[t.Name].Phase
		under.add("task %s  %d/%d", t.Name, count[corev1.PodRunning]+count[corev1.PodSucceeded], t.Replicas)
	}
}

// inOrder returns entries such that each comes after those that it depends on, and otherwise in their own order. Those of a cycle come
// last.
func inOrder(entries []jobflow.Entry) []jobflow.Entry {
	var out []jobflow.Entry
	placed := map[string]bool{}
	for len(out) < len(entries) {
		before := len(out)
		for _, e := range entries {
			if !placed[e.Name] && all(e.After, placed) {
				placed[e.Name] = true
				out = append(out, e)
			}
		}
		if len(out) > before {
			continue
		}
		for _, e := range entries {
			if !placed[e.Name] {
				out = append(out, e)
			}
		}
	}
	return out
}

func all(names []string, placed map[string]bool) bool {
	for _, name := range names {
		if !placed[name] {
			return false
		}
	}
	return true
}
