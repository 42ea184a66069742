// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/cli/explain"
	"github.com/drover-dev/drover/internal/cli/tree"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/jobflow"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func pod(task string, index int, phase corev1.PodPhase, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: vcjob.PodName("j", task, index), CreationTimestamp: metav1.NewTime(now.Add(-20 * time.Second)),
			Labels: map[string]string{batch.TaskKey: task, batch.IndexKey: strconv.Itoa(index)}, Annotations: map[string]string{batch.VersionKey: "1"},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	if change != nil {
		change(p)
	}
	return p
}

func observed() vcjob.Observed {
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Minute))}}
	j.Spec.Tasks = []batch.TaskSpec{
		{Name: "master", Replicas: 1},
		{Name: "worker", Replicas: 2, DependsOn: &batch.DependsOn{Name: []string{"master"}}, PartitionPolicy: &batch.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 1}},
	}
	j.Spec.Policies = []batch.LifecyclePolicy{{Event: "PodPending", Action: "RestartJob", Timeout: &metav1.Duration{Duration: time.Minute}}}
	vcjob.Default(j, "")
	first, then := metav1.NewTime(now.Add(-2*time.Minute)), metav1.NewTime(now.Add(-time.Minute))
	j.Status = batch.JobStatus{
		State:   batch.JobState{Phase: batch.Running, Reason: "EnoughPods", Message: "2 of the 2 pods that must be there are there", LastTransitionTime: then},
		Pending: 1, Running: 2, Version: 1, RetryCount: 1, MinAvailable: 3,
		TaskStatusCount: map[string]batch.TaskState{"master": {Phase: map[corev1.PodPhase]int32{"Running": 1}}, "worker": {Phase: map[corev1.PodPhase]int32{"Running": 1, "Pending": 1}}},
		Conditions:      []batch.JobCondition{{Status: batch.Pending, LastTransitionTime: &first}, {Status: batch.Running, LastTransitionTime: &then}},
	}
	j.Spec.MinAvailable = 2
	return vcjob.Observed{
		Job: j, Prepared: true, Now: now, Options: vcjob.DefaultOptions(),
		Group: &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "j-u"}, Spec: scheduling.PodGroupSpec{MinMember: 2, MinTaskMember: map[string]int32{"master": 1, "worker": 2}}, Status: scheduling.PodGroupStatus{Phase: scheduling.GroupRunning}},
		Pods: []*corev1.Pod{
			pod("worker", 1, corev1.PodPending, func(p *corev1.Pod) {
				p.Labels[batch.PartitionKey] = "1"
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient cpu."}}
			}),
			pod("worker", 0, corev1.PodRunning, func(p *corev1.Pod) {
				p.Labels[batch.PartitionKey] = "0"
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 2, Ready: true}}
			}),
			pod("master", 0, corev1.PodRunning, nil),
		},
	}
}

func TestTreeShowsTasksPartitionsAndPods(t *testing.T) {
	want := `vcjob/j  Running  restarted 1 of 3 times
├─ podgroup j-u  Running, needs 2 pods at once
├─ task master  1/1
│  └─ j-master-0  Running  attempt 2
└─ task worker  1/2  after master
   ├─ partition 0
   │  └─ j-worker-0  Running  attempt 2  containers restarted 2 times
   └─ partition 1
      └─ j-worker-1  Pending  attempt 2
`
	if diff := cmp.Diff(want, tree.Text(observed())); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func TestExplainSaysWhatIsWaitedForAndWhatIsDue(t *testing.T) {
	o := observed()
	o.Group.Spec.MinResources = nil
	got := explain.Text(o)
	want := `j is Running since 2026-03-01T11:59:00Z (60s)
  because   2 of the 2 pods that must be there are there
  pods      1 pending, 2 running
  restarts  1 of the 3 with which it fails
  phases    Pending 11:58:00, Running 11:59:00
  podgroup  j-u: Running, needs 2 pods at once
  waiting   pod j-worker-1: 0/1 nodes are available: 1 Insufficient cpu.
  due       RestartJob on PodPending of j-worker-1 at 2026-03-01T12:00:40Z
  now       pod j-worker-1 waits since 2026-03-01T11:59:40Z: RestartJob waits until 2026-03-01T12:00:40Z
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanation (-want +got):\n%s", diff)
	}
}

func TestListsOfVolcanoJobsShowTheirTasks(t *testing.T) {
	k := workload.Lookup("vcjobs")
	want := []string{"Running", "2", "master 1/1 worker 1/2", "1", "default", "2m"}
	if diff := cmp.Diff(want, k.Cells(observed().Job, now)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

func TestTreeShowsTheJobsOfAFlowAndWhatTheyWaitFor(t *testing.T) {
	f := &flow.JobFlow{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: "flow"},
		Spec: flow.JobFlowSpec{Flows: []flow.Flow{
			{Name: "b", DependsOn: &flow.DependsOn{Targets: []string{"a"}}}, {Name: "a"}, {Name: "c", DependsOn: &flow.DependsOn{Targets: []string{"b"}}},
		}},
		Status: flow.JobFlowStatus{State: flow.State{Phase: flow.Running}, CompletedJobs: []string{"f-a"}},
	}
	job := func(name string, phase batch.JobPhase) *batch.Job {
		return &batch.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{jobflow.ControllerRef(f)}},
			Spec:       batch.JobSpec{Tasks: []batch.TaskSpec{{Name: "t", Replicas: 2}}},
			Status: batch.JobStatus{
				State:           batch.JobState{Phase: phase},
				TaskStatusCount: map[string]batch.TaskState{"t": {Phase: map[corev1.PodPhase]int32{corev1.PodRunning: 1}}},
			},
		}
	}
	o := jobflow.Observed{Flow: f, Jobs: map[string]*batch.Job{"f-a": job("f-a", batch.Completed), "f-b": job("f-b", batch.Running)}}
	want := `jobflow/f  Running  1/3 jobs completed
├─ a  job f-a  Completed
│  └─ task t  1/2
├─ b  job f-b  Running  after a
│  └─ task t  1/2
└─ c  after b  waits for f-b to complete
`
	if diff := cmp.Diff(want, tree.FlowText(o)); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}
