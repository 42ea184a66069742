// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/workload"
)

func TestSummarizeJob(t *testing.T) {
	started := Epoch.Add(time.Second)
	withStatus := func(change func(*batchv1.JobStatus)) JobOption {
		return func(j *batchv1.Job) { change(&j.Status) }
	}
	cases := map[string]struct {
		job  *batchv1.Job
		want workload.Summary
	}{
		"a Job that no controller has seen is pending": {
			job:  Job("x"),
			want: workload.Summary{Status: "Pending", Done: "0/1"},
		},
		"a Job with pods is running": {
			job:  Job("x", Wanting(5, 2), Running(2, 3, 1)),
			want: workload.Summary{Status: "Running", Done: "3/5", Retries: 1, Active: 2, Started: started},
		},
		"a Job between two pods is retrying": {
			job:  Job("x", Running(0, 0, 2)),
			want: workload.Summary{Status: "Retrying", Done: "0/1", Retries: 2, Started: started},
		},
		"a complete Job has ended at its completion time": {
			job: Job("x", Wanting(5, 5), Complete(time.Minute)),
			want: workload.Summary{
				Status: "Complete", Outcome: workload.Succeeded, Done: "5/5",
				Started: started, Ended: Epoch.Add(time.Minute),
			},
		},
		"success by policy is worth telling": {
			job: Job("x", Wanting(5, 5), Indexed(), Running(0, 2, 0),
				Condition(batchv1.JobComplete, batchv1.JobReasonSuccessPolicy, "Matched rules at index 0", time.Minute)),
			want: workload.Summary{
				Status: "Complete: SuccessPolicy", Outcome: workload.Succeeded, Done: "2/5",
				Started: started, Ended: Epoch.Add(time.Minute),
			},
		},
		"a failed Job has ended too, and has not retried the last failure": {
			job: Job("x", Failed(time.Minute)),
			want: workload.Summary{
				Status: "Failed: BackoffLimitExceeded", Message: "Job has reached the specified backoff limit",
				Outcome: workload.Failed, Done: "0/1", Retries: 6, Started: started, Ended: Epoch.Add(time.Minute),
			},
		},
		"a Job whose fate is sealed is failing, but has not failed": {
			job: Job("x", Running(1, 0, 7),
				Condition(batchv1.JobFailureTarget, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", 0)),
			want: workload.Summary{
				Status: "Failing: BackoffLimitExceeded", Message: "Job has reached the specified backoff limit",
				Done: "0/1", Retries: 6, Active: 1, Started: started,
			},
		},
		"a sealed fate outweighs a suspension": {
			job: Job("x", Suspended(), Running(1, 0, 7), Condition(batchv1.JobFailureTarget, "DeadlineExceeded", "", 0)),
			want: workload.Summary{
				Status: "Failing: DeadlineExceeded", Done: "0/1", Retries: 6, Active: 1, Started: started,
			},
		},
		"a Job that waits for its last pods to end is completing": {
			job:  Job("x", Running(0, 1, 0), Condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "", 0)),
			want: workload.Summary{Status: "Completing", Done: "1/1", Started: started},
		},
		"a suspended Job has stopped": {
			job:  Job("x", Suspended()),
			want: workload.Summary{Status: "Suspended", Outcome: workload.Stopped, Done: "0/1"},
		},
		"a resumed Job goes on, whatever its condition still says": {
			job:  Job("x", Running(1, 0, 0), Condition(batchv1.JobSuspended, "JobSuspended", "Job suspended", 0)),
			want: workload.Summary{Status: "Running", Done: "0/1", Active: 1, Started: started},
		},
		"a condition that is false says nothing": {
			job: Job("x", Running(1, 0, 0), withStatus(func(s *batchv1.JobStatus) {
				s.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionFalse}}
			})),
			want: workload.Summary{Status: "Running", Done: "0/1", Active: 1, Started: started},
		},
		"a Job that is being deleted is terminating": {
			job: Job("x", Running(1, 0, 0), func(j *batchv1.Job) {
				now := metav1.NewTime(Epoch)
				j.DeletionTimestamp = &now
			}),
			want: workload.Summary{Status: "Terminating", Done: "0/1", Active: 1, Started: started},
		},
		"a work queue needs one success of as many pods as its parallelism": {
			job:  Job("x", Wanting(0, 3), func(j *batchv1.Job) { j.Spec.Completions = nil }, Running(2, 1, 0)),
			want: workload.Summary{Status: "Running", Done: "1/1 of 3", Active: 2, Started: started},
		},
		"a work queue of one pod": {
			job:  Job("x", func(j *batchv1.Job) { j.Spec.Completions = nil }),
			want: workload.Summary{Status: "Pending", Done: "0/1"},
		},
		"with a limit per index, the last failure of a failed index was not retried": {
			job: Job("x", Wanting(9, 9), Indexed(), Running(1, 3, 7), func(j *batchv1.Job) {
				limit, indexes := int32(1), "1,4-5"
				j.Spec.BackoffLimitPerIndex, j.Status.FailedIndexes = &limit, &indexes
			}),
			want: workload.Summary{Status: "Running", Done: "3/9", Retries: 4, Active: 1, Started: started},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Images = "busybox"
			if diff := cmp.Diff(tc.want, workload.SummarizeJob(tc.job)); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDuration(t *testing.T) {
	now := Epoch.Add(time.Hour)
	cases := map[string]struct {
		job     *batchv1.Job
		want    time.Duration
		started bool
	}{
		"none before the start":           {Job("x"), 0, false},
		"grows while the Job runs":        {Job("x", Running(1, 0, 0)), time.Hour - time.Second, true},
		"stands still once it has ended":  {Job("x", Complete(time.Minute)), 59 * time.Second, true},
		"stands still once it has failed": {Job("x", Failed(2*time.Minute)), 119 * time.Second, true},
		"is not negative if clocks differ": {Job("x", Running(1, 0, 0), func(j *batchv1.Job) {
			later := metav1.NewTime(now.Add(time.Second))
			j.Status.StartTime = &later
		}), 0, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, started := workload.SummarizeJob(tc.job).Duration(now)
			if got != tc.want || started != tc.started {
				t.Errorf("duration %v, %t; want %v, %t", got, started, tc.want, tc.started)
			}
		})
	}
}

func TestJobKind(t *testing.T) {
	kind := workload.Lookup("job")
	many := map[string]struct {
		job  *batchv1.Job
		want bool
	}{
		"one completion":   {Job("x"), false},
		"many completions": {Job("x", Wanting(2, 1)), true},
		"a work queue":     {Job("x", Wanting(1, 2)), true},
	}
	for name, tc := range many {
		t.Run("pods of "+name, func(t *testing.T) {
			if got := kind.ManyPods(tc.job); got != tc.want {
				t.Errorf("ManyPods: %t, want %t", got, tc.want)
			}
		})
	}
	if got, want := kind.PodSelector(Job("x")), "batch.kubernetes.io/controller-uid=uid-x"; got != want {
		t.Errorf("pod selector %q, want %q", got, want)
	}
	if got, want := string(kind.SuspendPatch(true)), `{"spec":{"suspend":true}}`; got != want {
		t.Errorf("suspend patch %s, want %s", got, want)
	}
}

func TestPodTrouble(t *testing.T) {
	waiting := func(reason, message string) PodOption {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
			}}
		}
	}
	cases := map[string]struct {
		option PodOption
		want   string
	}{
		"a new pod is on its way": {func(*corev1.Pod) {}, ""},
		"an unschedulable pod has the scheduler's reason": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available",
			}}
		}, "Unschedulable: 0/1 nodes are available"},
		"a container that is being made is no trouble": {waiting("ContainerCreating", ""), ""},
		"an image that cannot be had is":               {waiting("ErrImagePull", "no such image\nin detail"), "ErrImagePull: no such image"},
		"a reason without words stands alone":          {waiting("CrashLoopBackOff", ""), "CrashLoopBackOff"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := workload.PodTrouble(Pod(Job("x"), "x-1", tc.option)); got != tc.want {
				t.Errorf("trouble %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPodIndex(t *testing.T) {
	if i, ok := workload.PodIndex(Pod(Job("x"), "x-1", Index(7))); i != 7 || !ok {
		t.Errorf("index %d, %t; want 7, true", i, ok)
	}
	if i, ok := workload.PodIndex(Pod(Job("x"), "x-1")); ok {
		t.Errorf("a pod without an index has index %d", i)
	}
}
