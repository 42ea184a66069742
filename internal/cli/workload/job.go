// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// Job is the name of the kind for Jobs of Kubernetes.
const Job = "job"

func jobKind() *Kind {
	return &Kind{
		Name:             Job,
		Plural:           "jobs",
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"),
		Summarize:        func(o runtime.Object) Summary { return SummarizeJob(o.(*batchv1.Job)) },
		PodSelector: func(o runtime.Object) string {
			return metav1.FormatLabelSelector(o.(*batchv1.Job).Spec.Selector)
		},
		ManyPods: func(o runtime.Object) bool {
			spec := o.(*batchv1.Job).Spec
			several := func(n *int32) bool { return n != nil && *n > 1 }
			return several(spec.Completions) || several(spec.Parallelism)
		},
		SuspendPatch: func(suspend bool) []byte {
			return fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)
		},
		Open: func(client kubernetes.Interface, namespace string) Client {
			return Adapt(client.BatchV1().Jobs(namespace))
		},
	}
}

// SummarizeJob sums a Job up.
func SummarizeJob(job *batchv1.Job) Summary {
	s := Summary{
		Done:    jobDone(job),
		Retries: jobRetries(job),
		Active:  int(job.Status.Active),
		Images:  images(job.Spec.Template.Spec.Containers),
	}
	if job.Status.StartTime != nil {
		s.Started = job.Status.StartTime.Time
	}
	complete, failed := jobCondition(job, batchv1.JobComplete), jobCondition(job, batchv1.JobFailed)
	switch {
	case complete != nil:
		s.Outcome, s.Ended = Succeeded, complete.LastTransitionTime.Time
		if job.Status.CompletionTime != nil {
			s.Ended = job.Status.CompletionTime.Time
		}
		s.Status = "Complete"
		if complete.Reason == batchv1.JobReasonSuccessPolicy {
			s.Status = withReason("Complete", complete.Reason)
		}
	case failed != nil:
		s.Outcome, s.Ended = Failed, failed.LastTransitionTime.Time
		s.Status, s.Message = withReason("Failed", failed.Reason), failed.Message
	default:
		s.Status, s.Message, s.Outcome = unfinishedJobStatus(job)
	}
	if job.DeletionTimestamp != nil {
		s.Status = "Terminating"
	}
	return s
}

// unfinishedJobStatus says in a word what a Job without a terminal condition is doing, and whether it has stopped. A Job
// whose fate is sealed goes on to it even if it is suspended meanwhile.
func unfinishedJobStatus(job *batchv1.Job) (status, message string, outcome Outcome) {
	if c := jobCondition(job, batchv1.JobFailureTarget); c != nil {
		return withReason("Failing", c.Reason), c.Message, Unfinished
	}
	switch {
	case jobCondition(job, batchv1.JobSuccessCriteriaMet) != nil:
		return "Completing", "", Unfinished
	case job.Spec.Suspend != nil && *job.Spec.Suspend: // what the user asked for; the condition follows it
		return "Suspended", "", Stopped
	case job.Status.StartTime == nil:
		return "Pending", "", Unfinished
	case job.Status.Active == 0 && job.Status.Failed > 0: // the next pod waits for the back-off
		return "Retrying", "", Unfinished
	default:
		return "Running", "", Unfinished
	}
}

func images(containers []corev1.Container) string {
	names := make([]string, len(containers))
	for i, c := range containers {
		names[i] = c.Image
	}
	return strings.Join(names, ",")
}

func withReason(status, reason string) string {
	if reason == "" {
		return status
	}
	return status + ": " + reason
}

func jobCondition(job *batchv1.Job, conditionType batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == conditionType && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// jobDone returns "succeeded/wanted". A work queue, which ends when its pods find it empty, needs one success and has
// as many pods as its parallelism: "2/1 of 3", as kubectl shows it.
func jobDone(job *batchv1.Job) string {
	if job.Spec.Completions != nil {
		return fmt.Sprintf("%d/%d", job.Status.Succeeded, *job.Spec.Completions)
	}
	if p := job.Spec.Parallelism; p != nil && *p > 1 {
		return fmt.Sprintf("%d/1 of %d", job.Status.Succeeded, *p)
	}
	return fmt.Sprintf("%d/1", job.Status.Succeeded)
}

// jobRetries returns how many failed pods were allowed another try: the failures up to the limit of the Job, or all but
// the last of each index that failed for good.
func jobRetries(job *batchv1.Job) int {
	failed := int(job.Status.Failed)
	if job.Spec.BackoffLimitPerIndex != nil {
		if job.Status.FailedIndexes != nil {
			failed -= countIndexes(*job.Status.FailedIndexes)
		}
		return max(0, failed)
	}
	if limit := job.Spec.BackoffLimit; limit != nil {
		return min(failed, int(*limit))
	}
	return failed
}

// countIndexes counts the numbers in a list of intervals like "1,3-5,7". Fragments that cannot be read count nothing.
func countIndexes(intervals string) int {
	n := 0
	for part := range strings.SplitSeq(intervals, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA == nil && errB == nil && b >= a {
			n += b - a + 1
		}
	}
	return n
}
