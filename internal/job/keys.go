// SPDX-License-Identifier: Apache-2.0

package job

import (
	"math"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/indexset"
)

// ManagerName is the value of spec.managedBy that means the built-in controller, whose place this one takes.
const ManagerName = "kubernetes.io/job-controller"

// envCompletionIndex tells a container of an Indexed Job which index it works on.
const envCompletionIndex = "JOB_COMPLETION_INDEX"

// PodKey names one pod for ever: a pod of the same name with another UID is another pod.
type PodKey struct {
	Name string
	UID  types.UID
}

// noIndex stands for a pod that has no completion index, or one that its Job does not have.
const noIndex = -1

// IsTracked reports whether p carries the finalizer that keeps it until it is counted.
func IsTracked(p *corev1.Pod) bool {
	for _, f := range p.Finalizers {
		if f == batchv1.JobTrackingFinalizer {
			return true
		}
	}
	return false
}

// IsIndexed reports whether every pod of j works on an index of its own.
func IsIndexed(j *batchv1.Job) bool {
	return j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion
}

// IsSuspended reports whether j must have no pods for now.
func IsSuspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

// Finished returns the condition that ended j, or nil while it goes on.
func Finished(j *batchv1.Job) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// trueCondition returns the condition of that type whose status is True, or nil.
func trueCondition(s *batchv1.JobStatus, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// completionIndex returns the index in p's annotation if it lies below completions, else noIndex.
func completionIndex(p *corev1.Pod, completions int) int {
	text, ok := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	if !ok {
		return noIndex
	}
	i, err := strconv.Atoi(text)
	if err != nil || i < 0 || i >= completions {
		return noIndex
	}
	return i
}

// countAnnotation returns the number kept in an annotation of p; one that is missing, no number, negative or beyond 32 bits
// reads as 0.
func countAnnotation(p *corev1.Pod, key string) int32 {
	n, err := strconv.ParseInt(p.Annotations[key], 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return int32(n)
}

// CountIndexes returns how many indexes a text such as status.failedIndexes lists; none where it is nil.
func CountIndexes(text *string) int {
	if text == nil {
		return 0
	}
	s := indexset.Parse(*text, math.MaxInt)
	return s.Len()
}
