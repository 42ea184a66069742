// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/volcano/flow"
)

// JobFlow is the name of the kind JobFlow of Volcano.
const JobFlow = "jobflow"

func jobFlowKind() *Kind {
	return &Kind{
		Name:             JobFlow,
		Plural:           "jobflows",
		Aliases:          []string{"jf"},
		GroupVersionKind: flow.GroupVersion.WithKind("JobFlow"),
		Summarize:        func(o runtime.Object) Summary { return SummarizeJobFlow(o.(*flow.JobFlow)) },
		Columns:          []string{"PHASE", "DONE", "RUNNING", "FAILED", "DURATION"},
		Cells:            func(o runtime.Object, now time.Time) []string { return jobFlowCells(o.(*flow.JobFlow), now) },
		Open:             func(client kubernetes.Interface, namespace string) Client { return JobFlows(client, namespace) },
	}
}

// JobFlows returns the client of JobFlows. Where the cluster does not have the kind, there are none.
func JobFlows(client kubernetes.Interface, namespace string) Client {
	return openVolcano(client, flow.GroupVersion, "jobflows", namespace, func() *flow.JobFlow { return &flow.JobFlow{} }, func() *flow.JobFlowList { return &flow.JobFlowList{} })
}

// JobTemplates returns the client of JobTemplates.
func JobTemplates(client kubernetes.Interface, namespace string) Client {
	return openVolcano(client, flow.GroupVersion, "jobtemplates", namespace, func() *flow.JobTemplate { return &flow.JobTemplate{} }, func() *flow.JobTemplateList { return &flow.JobTemplateList{} })
}

// SummarizeJobFlow sums a JobFlow up.
func SummarizeJobFlow(f *flow.JobFlow) Summary {
	names := map[string]bool{}
	for i := range f.Spec.Flows {
		names[f.Spec.Flows[i].Name] = true
	}
	s := Summary{
		Status: string(f.Status.State.Phase), Done: fmt.Sprintf("%d/%d", len(f.Status.CompletedJobs), len(names)),
		Active: len(f.Status.RunningJobs) + len(f.Status.PendingJobs), Started: f.CreationTimestamp.Time,
	}
	for _, j := range f.Status.JobStatusList {
		s.Retries += int(j.RestartCount)
	}
	switch f.Status.State.Phase {
	case flow.Succeed:
		s.Outcome, s.Ended = Succeeded, lastEnd(f)
	case flow.Failed:
		s.Outcome, s.Ended = Failed, lastEnd(f)
	case "":
		s.Status = "Pending"
	case flow.Pending, flow.Running, flow.Terminating:
	}
	if f.DeletionTimestamp != nil {
		s.Status = "Terminating"
	}
	return s
}

// lastEnd returns when the last Job of a flow ended.
func lastEnd(f *flow.JobFlow) time.Time {
	var last time.Time
	for _, j := range f.Status.JobStatusList {
		if j.EndTimestamp.After(last) {
			last = j.EndTimestamp.Time
		}
	}
	return last
}

func jobFlowCells(f *flow.JobFlow, now time.Time) []string {
	s := SummarizeJobFlow(f)
	ran := ""
	if d, started := s.Duration(now); started {
		ran = duration.HumanDuration(d)
	}
	return []string{s.Status, s.Done, strconv.Itoa(len(f.Status.RunningJobs)), strconv.Itoa(len(f.Status.FailedJobs) + len(f.Status.TerminatedJobs)), ran}
}
