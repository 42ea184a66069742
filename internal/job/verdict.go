// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// verdict says how a Job ends.
type verdict struct {
	outcome batchv1.JobConditionType // JobComplete or JobFailed
	reason  string
	message string
}

// interim returns the type of the condition that announces the verdict while pods are still ending.
func (v *verdict) interim() batchv1.JobConditionType {
	if v.outcome == batchv1.JobComplete {
		return batchv1.JobSuccessCriteriaMet
	}
	return batchv1.JobFailureTarget
}

// announcedEarly reports whether the verdict is stored before the remaining pods are deleted. The pods that a success cuts
// short do not count as failed, and nothing but the stored condition tells so after a crash.
//
// Differs: upstream deletes first, and a crash in between can turn the success into a failure.
func (v *verdict) announcedEarly() bool { return v.outcome == batchv1.JobComplete }

func failure(reason, message string) *verdict {
	return &verdict{batchv1.JobFailed, reason, message}
}

// rules are tried in order; the first opinion is the verdict. What was announced before stands, and failure comes before
// success when both become true at once.
var rules = [...]func(o Observed, t *tally) *verdict{
	announcedSuccess,
	announcedFailure,
	failedByPolicy,
	pastBackoffLimit,
	pastDeadline,
	tooManyFailedIndexes,
	noIndexLeft,
	successPolicyMet,
	completionsReached,
}

// rule returns how the Job ends, or nil while it goes on.
func rule(o Observed, t *tally) *verdict {
	for _, r := range rules {
		if v := r(o, t); v != nil {
			return v
		}
	}
	return nil
}

func announcedSuccess(o Observed, _ *tally) *verdict {
	if c := trueCondition(&o.Job.Status, batchv1.JobSuccessCriteriaMet); c != nil {
		return &verdict{batchv1.JobComplete, c.Reason, c.Message}
	}
	return nil
}

func announcedFailure(o Observed, _ *tally) *verdict {
	if c := trueCondition(&o.Job.Status, batchv1.JobFailureTarget); c != nil {
		return failure(c.Reason, c.Message)
	}
	return nil
}

func failedByPolicy(o Observed, _ *tally) *verdict {
	var first *entry
	for _, e := range o.Pods.failJob {
		if first == nil || compareByIndex(e, first) < 0 {
			first = e
		}
	}
	if first == nil {
		return nil
	}
	return failure(batchv1.JobReasonPodFailurePolicy, first.ruling.message)
}

func pastBackoffLimit(o Observed, t *tally) *verdict {
	limit := backoffLimit(o.Job)
	exceeded := t.failed > limit
	if o.Job.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		restarts := o.Pods.restarts
		exceeded = exceeded || restarts > 0 && restarts >= limit
	}
	if !exceeded {
		return nil
	}
	return failure(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
}

func backoffLimit(j *batchv1.Job) int {
	switch {
	case j.Spec.BackoffLimit != nil:
		return int(*j.Spec.BackoffLimit)
	case j.Spec.BackoffLimitPerIndex != nil:
		return math.MaxInt32
	}
	return 6
}

func pastDeadline(o Observed, _ *tally) *verdict {
	left, limited := deadlineIn(o)
	if !limited || left > 0 {
		return nil
	}
	return failure(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
}

// deadlineIn returns how long the Job may still be active; limited is false where it may be so for ever.
func deadlineIn(o Observed) (left time.Duration, limited bool) {
	start := o.startTime()
	if o.Job.Spec.ActiveDeadlineSeconds == nil || IsSuspended(o.Job) || start == nil {
		return 0, false
	}
	return start.Add(seconds(*o.Job.Spec.ActiveDeadlineSeconds)).Sub(o.Now), true
}

// seconds returns n seconds as a duration, or the longest duration if that is too many.
func seconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

func tooManyFailedIndexes(o Observed, t *tally) *verdict {
	limit := o.Job.Spec.MaxFailedIndexes
	if o.Job.Spec.BackoffLimitPerIndex == nil || limit == nil || t.failedIndexes.Len() <= int(*limit) {
		return nil
	}
	return failure(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
}

func noIndexLeft(o Observed, t *tally) *verdict {
	if t.failedIndexes.Len() == 0 || t.failedIndexes.Len()+t.succeededIndexes.Len() < o.Pods.shape.completions {
		return nil
	}
	return failure(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
}

func successPolicyMet(o Observed, t *tally) *verdict {
	n := successRule(o.Job.Spec.SuccessPolicy, &t.succeededIndexes)
	if n < 0 {
		return nil
	}
	return &verdict{batchv1.JobComplete, batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", n)}
}

func completionsReached(o Observed, t *tally) *verdict {
	if len(o.Pods.active) > 0 {
		return nil
	}
	if want := o.Job.Spec.Completions; want == nil && t.succeeded == 0 || want != nil && t.succeeded < int(*want) {
		return nil
	}
	return &verdict{batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"}
}
