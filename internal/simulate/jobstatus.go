// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/indexset"
)

// invalidStatus returns why the API server refuses the status of j in the place of old, by the numbers of the rules in the
// specification of the Job API (section 1.5).
func invalidStatus(j *batchv1.Job, old *batchv1.JobStatus) []string {
	var problems []string
	s := &j.Status
	broken := func(rule int, applies bool, format string, args ...any) {
		if applies {
			problems = append(problems, fmt.Sprintf("rule %d: %s", rule, fmt.Sprintf(format, args...)))
		}
	}
	is := func(s *batchv1.JobStatus, kind batchv1.JobConditionType) bool {
		return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
	}
	complete, failed := is(s, batchv1.JobComplete), is(s, batchv1.JobFailed)
	target, success := is(s, batchv1.JobFailureTarget), is(s, batchv1.JobSuccessCriteriaMet)
	changed := func(kind batchv1.JobConditionType) bool { return is(s, kind) != is(old, kind) }
	finishedNow := complete || failed
	finishedChanged := finishedNow != (is(old, batchv1.JobComplete) || is(old, batchv1.JobFailed))
	indexed := *j.Spec.CompletionMode == batchv1.IndexedCompletion
	suspend := ptr.Deref(j.Spec.Suspend, false)
	uncounted := uncountedOf(s)

	broken(1, s.Active < 0 || s.Succeeded < 0 || s.Failed < 0 || ptr.Deref(s.Ready, 0) < 0 || ptr.Deref(s.Terminating, 0) < 0, "a negative counter")
	all := slices.Concat(uncounted.Succeeded, uncounted.Failed)
	unique := map[types.UID]bool{}
	for _, uid := range all {
		broken(2, uid == "" || unique[uid], "uncounted UID %q is empty or there twice", uid)
		unique[uid] = true
	}
	broken(3, complete && failed, "Complete and Failed")
	broken(4, complete && target, "Complete and FailureTarget")
	broken(5, success && (failed || target), "SuccessCriteriaMet and Failed or FailureTarget")
	broken(6, (s.CompletionTime != nil) != complete, "completionTime without Complete or the other way round")
	broken(7, s.CompletionTime != nil && s.StartTime != nil && s.CompletionTime.Before(s.StartTime), "completionTime before startTime")
	broken(8, failed && !target, "Failed without FailureTarget")
	broken(9, complete && !success, "Complete without SuccessCriteriaMet")
	broken(10, finishedNow && s.Active > 0, "finished with active pods")
	neverStarts := suspend && ptr.Deref(j.Spec.Completions, -1) == 0
	broken(11, finishedNow && (finishedChanged || !s.StartTime.Equal(old.StartTime)) && s.StartTime == nil && !neverStarts, "finished without startTime")
	broken(12, finishedNow && len(all) > 0, "finished with uncounted pods")
	broken(13, finishedNow && ptr.Deref(s.Terminating, 0) > 0, "finished with terminating pods")
	completions := int(ptr.Deref(j.Spec.Completions, 0))
	broken(14, s.CompletedIndexes != old.CompletedIndexes && !canonical(s.CompletedIndexes, completions, indexed), "completedIndexes %q", s.CompletedIndexes)
	broken(15, ptr.Deref(s.FailedIndexes, "") != ptr.Deref(old.FailedIndexes, "") && !canonical(ptr.Deref(s.FailedIndexes, ""), completions, j.Spec.BackoffLimitPerIndex != nil), "failedIndexes %v", s.FailedIndexes)
	done, lost := indexset.Parse(s.CompletedIndexes, 1<<30), indexset.Parse(ptr.Deref(s.FailedIndexes, ""), 1<<30)
	broken(16, done.Intersects(&lost), "an index both completed and failed: %q, %q", s.CompletedIndexes, ptr.Deref(s.FailedIndexes, ""))
	broken(17, ptr.Deref(s.Ready, 0) > s.Active, "cannot set more ready pods than active: %d > %d", ptr.Deref(s.Ready, 0), s.Active)
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		broken(18, is(old, kind) && !is(s, kind), "%s was taken back", kind)
	}
	broken(19, is(old, batchv1.JobComplete) && changed(batchv1.JobSuccessCriteriaMet), "SuccessCriteriaMet after Complete")
	broken(20, s.Failed < old.Failed, "failed went down from %d to %d", old.Failed, s.Failed)
	elastic := indexed && ptr.Equal(j.Spec.Completions, j.Spec.Parallelism)
	broken(21, s.Succeeded < old.Succeeded && !elastic, "succeeded went down from %d to %d", old.Succeeded, s.Succeeded)
	broken(22, old.CompletionTime != nil && !old.CompletionTime.Equal(s.CompletionTime), "completionTime changed")
	resumed := is(old, batchv1.JobSuspended) && !is(s, batchv1.JobSuspended)
	broken(23, old.StartTime != nil && !old.StartTime.Equal(s.StartTime) && !suspend && !resumed, "startTime changed")
	return problems
}

func uncountedOf(s *batchv1.JobStatus) batchv1.UncountedTerminatedPods {
	if s.UncountedTerminatedPods == nil {
		return batchv1.UncountedTerminatedPods{}
	}
	return *s.UncountedTerminatedPods
}

// canonical reports whether text is as Kubernetes writes a set of indexes.
func canonical(text string, completions int, allowed bool) bool {
	s, ok := indexset.ParseStrict(text)
	if !ok || s.String() != text || text != "" && !allowed {
		return false
	}
	clipped := s.Clone()
	clipped.Clip(completions)
	return clipped.Equal(&s)
}
