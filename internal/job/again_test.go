// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func endedJob(how batchv1.JobConditionType, options ...jobOption) *batchv1.Job {
	return newJob(append(options, func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: how, Status: corev1.ConditionTrue})
	})...)
}

func indexedWith(n int32, completed, failed string) jobOption {
	return func(j *batchv1.Job) {
		mode := batchv1.IndexedCompletion
		j.Spec.CompletionMode, j.Spec.Completions = &mode, &n
		j.Status.CompletedIndexes = completed
		if failed != "" {
			j.Status.FailedIndexes = &failed
		}
	}
}

func TestRetryDoesWhatIsLeft(t *testing.T) {
	cases := map[string]struct {
		old         *batchv1.Job
		text        string
		completions int32 // of the new Job; 0: none
		done        *batchv1.JobStatus
		err         error
	}{
		"a single pod":                        {old: endedJob(batchv1.JobFailed, completions(1)), text: "1 of 1 completions", completions: 1},
		"some of many":                        {old: endedJob(batchv1.JobFailed, completions(5), func(j *batchv1.Job) { j.Status.Succeeded = 3 }), text: "2 of 5 completions", completions: 2},
		"a work queue":                        {old: endedJob(batchv1.JobFailed), text: "the work queue again"},
		"indexes":                             {old: endedJob(batchv1.JobFailed, indexedWith(6, "0,2-3", "1")), text: "indexes 1,4,5", completions: 6, done: &batchv1.JobStatus{CompletedIndexes: "0,2,3", Succeeded: 3}},
		"one index":                           {old: endedJob(batchv1.JobFailed, indexedWith(3, "0,2", "1")), text: "index 1", completions: 3, done: &batchv1.JobStatus{CompletedIndexes: "0,2", Succeeded: 2}},
		"indexes of which none is done":       {old: endedJob(batchv1.JobFailed, indexedWith(2, "", "")), text: "indexes 0,1", completions: 2},
		"a success that left some failed":     {old: endedJob(batchv1.JobComplete, indexedWith(2, "0", "1")), text: "index 1", completions: 2, done: &batchv1.JobStatus{CompletedIndexes: "0", Succeeded: 1}},
		"a success":                           {old: endedJob(batchv1.JobComplete, completions(1)), err: ErrNothingFailed},
		"a failure all of whose work is done": {old: endedJob(batchv1.JobFailed, indexedWith(2, "0,1", "")), err: ErrNothingFailed},
		"what goes on":                        {old: newJob(), err: ErrGoesOn},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := Retry(c.old, "new")
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if r.Text != c.text {
				t.Errorf("does %q, want %q", r.Text, c.text)
			}
			got := int32(0)
			if r.Job.Spec.Completions != nil {
				got = *r.Job.Spec.Completions
			}
			if got != c.completions {
				t.Errorf("completions %d, want %d", got, c.completions)
			}
			if diff := cmp.Diff(c.done, r.Done); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
			if held := IsSuspended(r.Job); held != (c.done != nil) {
				t.Errorf("held back: %v", held)
			}
			if r.Job.Annotations[RetryOfAnnotation] != "j" {
				t.Errorf("annotations %v", r.Job.Annotations)
			}
		})
	}
}

func TestRerunKeepsWhatTheUserWroteAndNothingElse(t *testing.T) {
	old := endedJob(batchv1.JobComplete, suspended, func(j *batchv1.Job) {
		j.Labels = map[string]string{"team": "a", batchv1.JobNameLabel: "j", "controller-uid": "x"}
		j.Annotations = map[string]string{"note": "mine", corev1.LastAppliedConfigAnnotation: "{}", RetryOfAnnotation: "older"}
		j.OwnerReferences = []metav1.OwnerReference{{Name: "nightly"}}
		j.Spec.Template.Labels["app"] = "x"
	})
	before := old.DeepCopy()
	j := Rerun(old, "new")
	if diff := cmp.Diff(before, old); diff != "" {
		t.Errorf("the old Job has changed (-before +after):\n%s", diff)
	}
	want := metav1.ObjectMeta{
		Name: "new", Namespace: "ns", Labels: map[string]string{"team": "a"},
		Annotations: map[string]string{"note": "mine", RerunOfAnnotation: "j"},
	}
	if diff := cmp.Diff(want, j.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if j.Spec.Selector != nil || j.Spec.Suspend != nil {
		t.Errorf("selector %v, suspend %v", j.Spec.Selector, j.Spec.Suspend)
	}
	if diff := cmp.Diff(map[string]string{"app": "x"}, j.Spec.Template.Labels); diff != "" {
		t.Errorf("labels of pods (-want +got):\n%s", diff)
	}
}

func TestRerunKeepsASelectorOfTheUsersOwn(t *testing.T) {
	old := newJob(func(j *batchv1.Job) {
		j.Spec.ManualSelector = new(true)
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
		j.Spec.Template.Labels = map[string]string{"app": "x"}
	})
	if j := Rerun(old, "new"); j.Spec.Selector == nil || j.Spec.ManualSelector == nil {
		t.Error("the selector is gone")
	}
}

func TestNamesOfJobsThatAreDoneAgain(t *testing.T) {
	long := strings.Repeat("x", 63)
	cases := map[string]struct {
		name string
		n    int
		want string
	}{
		"the first":                {"train", 1, "train-retry-1"},
		"the first is taken":       {"train", 2, "train-retry-2"},
		"a retry of a retry":       {"train-retry-3", 1, "train-retry-4"},
		"a name that ends alike":   {"train-retry-soon", 1, "train-retry-soon-retry-1"},
		"a name that is only that": {"-retry-1", 1, "-retry-1-retry-1"},
		"a name without room":      {long, 1, long[:55] + "-retry-1"},
		"a dash where it is cut":   {long[:54] + "-tail-of-it", 1, long[:54] + "-retry-1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := NameAgain(c.name, "retry", c.n); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
