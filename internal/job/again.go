// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/indexset"
)

// Annotations of a Job that was made from another.
const (
	RetryOfAnnotation = "drover.dev/retry-of" // the name of the Job whose failures it makes up for
	RerunOfAnnotation = "drover.dev/rerun-of" // the name of the Job that it does again
)

// Reasons why there is nothing to retry.
var (
	ErrGoesOn        = errors.New("it has not ended yet")
	ErrNothingFailed = errors.New("nothing of it has failed")
)

// Remainder is what is left to do of a Job that has ended.
type Remainder struct {
	Job *batchv1.Job // to be created
	// Done is what the status of Job must say before it starts, so that only the rest is done; nil if nothing. Job is suspended then.
	Done *batchv1.JobStatus
	Text string // what it will do, for people
}

// Rerun returns a Job named name that does all of old's work again.
func Rerun(old *batchv1.Job, name string) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: old.Namespace, Labels: maps.Clone(old.Labels), Annotations: maps.Clone(old.Annotations),
		},
		Spec: *old.Spec.DeepCopy(),
	}
	j.Spec.Suspend = nil
	for _, key := range []string{corev1.LastAppliedConfigAnnotation, batchv1.CronJobScheduledTimestampAnnotation, "batch.kubernetes.io/job-tracking", RetryOfAnnotation, RerunOfAnnotation} {
		delete(j.Annotations, key)
	}
	if HasGeneratedSelector(old) {
		j.Spec.Selector, j.Spec.ManualSelector = nil, nil
	}
	for _, labels := range []map[string]string{j.Labels, j.Spec.Template.Labels} {
		for _, key := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name"} {
			delete(labels, key)
		}
	}
	j.Annotations = with(j.Annotations, RerunOfAnnotation, old.Name)
	return j
}

// Retry returns what is left to do of old, as a Job named name. An Indexed Job keeps its index numbers, and does those that have not
// succeeded; of other Jobs as many completions as are missing are made up for. It fails with ErrGoesOn or ErrNothingFailed.
func Retry(old *batchv1.Job, name string) (*Remainder, error) {
	end := Finished(old)
	if end == nil {
		return nil, ErrGoesOn
	}
	if end.Type == batchv1.JobComplete && (old.Status.FailedIndexes == nil || *old.Status.FailedIndexes == "") {
		return nil, ErrNothingFailed
	}
	j := Rerun(old, name)
	delete(j.Annotations, RerunOfAnnotation)
	j.Annotations = with(j.Annotations, RetryOfAnnotation, old.Name)
	if !IsIndexed(old) {
		if old.Spec.Completions == nil {
			return &Remainder{Job: j, Text: "the work queue again"}, nil
		}
		left := max(1, *old.Spec.Completions-old.Status.Succeeded)
		j.Spec.Completions = &left
		return &Remainder{Job: j, Text: fmt.Sprintf("%d of %d completions", left, *old.Spec.Completions)}, nil
	}
	completions := 0
	if old.Spec.Completions != nil {
		completions = int(*old.Spec.Completions)
	}
	done := indexset.Parse(old.Status.CompletedIndexes, completions)
	var left indexset.Set
	for i := range done.Missing(completions) {
		left.Add(i)
	}
	if left.Len() == 0 {
		return nil, ErrNothingFailed
	}
	r := &Remainder{Job: j, Text: "indexes " + left.String()}
	if left.Len() == 1 {
		r.Text = "index " + left.String()
	}
	if done.Len() > 0 {
		suspended := true
		j.Spec.Suspend = &suspended
		r.Done = &batchv1.JobStatus{CompletedIndexes: done.String(), Succeeded: int32(done.Len())}
	}
	return r, nil
}

// NameAgain returns the name of the nth Job that is made from one called name: "train" becomes "train-retry-1" where what is "retry",
// and that in turn "train-retry-2".
func NameAgain(name, what string, n int) string {
	if at := strings.LastIndex(name, "-"+what+"-"); at > 0 {
		if before, err := strconv.Atoi(name[at+len(what)+2:]); err == nil && before > 0 {
			name, n = name[:at], n+before
		}
	}
	suffix := "-" + what + "-" + strconv.Itoa(n)
	return strings.TrimRight(cut(name, maxJobName-len(suffix)), "-.") + suffix
}

// maxJobName is how long the name of a Job may be so that its pods can have a host name.
const maxJobName = 63
