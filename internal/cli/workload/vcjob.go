// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// VCJob is the name of the kind Job of Volcano.
const VCJob = "vcjob"

func vcJobKind() *Kind {
	return &Kind{
		Name:             VCJob,
		Plural:           "vcjobs",
		Aliases:          []string{"vj", "job.batch.volcano.sh", "jobs.batch.volcano.sh"},
		GroupVersionKind: batch.GroupVersion.WithKind("Job"),
		Summarize:        func(o runtime.Object) Summary { return SummarizeVCJob(o.(*batch.Job)) },
		Columns:          []string{"PHASE", "MIN", "TASKS", "RETRY", "QUEUE", "DURATION"},
		Cells:            func(o runtime.Object, now time.Time) []string { return vcJobCells(o.(*batch.Job), now) },
		PodSelector: func(o runtime.Object) string {
			return batch.JobNameKey + "=" + o.(*batch.Job).Name
		},
		ManyPods: func(o runtime.Object) bool {
			n := int32(0)
			for _, t := range o.(*batch.Job).Spec.Tasks {
				n += t.Replicas
			}
			return n > 1
		},
		Command: func(ctx context.Context, client kubernetes.Interface, o runtime.Object, action string) error {
			return commandVCJob(ctx, client, o.(*batch.Job), action)
		},
		Open: func(client kubernetes.Interface, namespace string) Client { return VCJobs(client, namespace) },
	}
}

// SummarizeVCJob sums a Job of Volcano up.
func SummarizeVCJob(j *batch.Job) Summary {
	s := Summary{
		Status: string(j.Status.State.Phase), Retries: int(j.Status.RetryCount), Active: int(j.Status.Pending + j.Status.Running),
		Started: j.CreationTimestamp.Time,
	}
	wanted := int32(0)
	var containers []corev1.Container
	for i := range j.Spec.Tasks {
		wanted += j.Spec.Tasks[i].Replicas
		containers = append(containers, j.Spec.Tasks[i].Template.Spec.Containers...)
	}
	s.Done, s.Images = fmt.Sprintf("%d/%d", j.Status.Succeeded, wanted), images(containers)
	at := j.Status.State.LastTransitionTime.Time
	switch j.Status.State.Phase {
	case batch.Completed:
		s.Outcome, s.Ended = Succeeded, at
	case batch.Failed, batch.Terminated:
		s.Outcome, s.Ended = Failed, at
		s.Status, s.Message = withReason(s.Status, j.Status.State.Reason), j.Status.State.Message
	case batch.Aborted:
		s.Outcome, s.Ended = Stopped, at
	case "":
		s.Status = "Pending"
	default:
		s.Message = j.Status.State.Message
	}
	if j.DeletionTimestamp != nil {
		s.Status = "Terminating"
	}
	return s
}

// vcJobCells are the columns of a list of Volcano's Jobs alone. TASKS counts pods that run or have succeeded.
func vcJobCells(j *batch.Job, now time.Time) []string {
	var tasks []string
	for _, t := range j.Spec.Tasks {
		count := j.Status.TaskStatusCount[t.Name].Phase
		tasks = append(tasks, fmt.Sprintf("%s %d/%d", t.Name, count[corev1.PodRunning]+count[corev1.PodSucceeded], t.Replicas))
	}
	s := SummarizeVCJob(j)
	ran := ""
	if d, started := s.Duration(now); started {
		ran = duration.HumanDuration(d)
	}
	phase := string(j.Status.State.Phase)
	if j.DeletionTimestamp != nil {
		phase = "Deleting"
	}
	return []string{phase, strconv.Itoa(int(j.Spec.MinAvailable)), strings.Join(tasks, " "), strconv.Itoa(s.Retries), j.Spec.Queue, ran}
}

// commandVCJob issues a Command, as Volcano's own tools do.
func commandVCJob(ctx context.Context, client kubernetes.Interface, j *batch.Job, action string) error {
	ref := vcjob.ControllerRef(j)
	c := &bus.Command{
		TypeMeta: metav1.TypeMeta{APIVersion: bus.GroupVersion.String(), Kind: "Command"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, GenerateName: j.Name + "-" + strings.ToLower(action) + "-", OwnerReferences: []metav1.OwnerReference{ref},
		},
		Action: action, TargetObject: &ref,
	}
	return CreateVolcano(ctx, client, bus.GroupVersion, "commands", j.Namespace, c)
}

// VCJobs returns the client of Volcano's Jobs. Where the cluster does not have the kind, there are none.
func VCJobs(client kubernetes.Interface, namespace string) Client {
	return openVolcano(client, batch.GroupVersion, "jobs", namespace, func() *batch.Job { return &batch.Job{} }, func() *batch.JobList { return &batch.JobList{} })
}

// PodGroups returns the client of Volcano's PodGroups, and VCCommands that of its Commands.
func PodGroups(client kubernetes.Interface, namespace string) *gentype.ClientWithList[*scheduling.PodGroup, *scheduling.PodGroupList] {
	return vcClient(client, scheduling.GroupVersion, "podgroups", namespace, func() *scheduling.PodGroup { return &scheduling.PodGroup{} }, func() *scheduling.PodGroupList { return &scheduling.PodGroupList{} })
}

// VCCommands returns the client of Volcano's Commands.
func VCCommands(client kubernetes.Interface, namespace string) *gentype.ClientWithList[*bus.Command, *bus.CommandList] {
	return vcClient(client, bus.GroupVersion, "commands", namespace, func() *bus.Command { return &bus.Command{} }, func() *bus.CommandList { return &bus.CommandList{} })
}
