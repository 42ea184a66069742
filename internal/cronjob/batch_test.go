// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheJobOfADueTime(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	cron := newCronJob(hourly, func(c *batchv1.CronJob) {
		c.Labels, c.Annotations = map[string]string{"of": "cronjob"}, map[string]string{"of": "cronjob"}
		c.Spec.JobTemplate = batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Name: "ignored", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"ignored"},
			},
			Spec: batchv1.JobSpec{Parallelism: ptr(int32(2)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: "Never"}}},
		}
	})
	before := cron.DeepCopy()
	due := at("2016-05-19 11:00:00").In(tokyo)
	owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "CronJob", Name: "cj", UID: uid, Controller: ptr(true)}
	blocking := owner
	blocking.BlockOwnerDeletion = ptr(true)
	for name, tc := range map[string]struct {
		start Start
		want  *batchv1.Job
	}{
		"scheduled": {
			Start{Name: "cj-24394260", Due: due},
			&batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Name: "cj-24394260", Namespace: "default", CreationTimestamp: metav1.NewTime(due), Labels: map[string]string{"a": "b"},
					Annotations:     map[string]string{"c": "d", "batch.kubernetes.io/cronjob-scheduled-timestamp": "2016-05-19T20:00:00+09:00"},
					OwnerReferences: []metav1.OwnerReference{blocking},
				},
				Spec: cron.Spec.JobTemplate.Spec,
			},
		},
		"by hand": {
			Start{Name: "m1"},
			&batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Name: "m1", Namespace: "default", Labels: map[string]string{"a": "b"},
					Annotations:     map[string]string{"c": "d", "cronjob.kubernetes.io/instantiate": "manual"},
					OwnerReferences: []metav1.OwnerReference{owner},
				},
				Spec: cron.Spec.JobTemplate.Spec,
			},
		},
		"by hand, under the concurrency policy": {
			Start{Name: "m1", RespectConcurrency: true},
			&batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Name: "m1", Namespace: "default", Labels: map[string]string{"a": "b"},
					Annotations:     map[string]string{"c": "d", "cronjob.kubernetes.io/instantiate": "manual", "drover.dev/respect-concurrency": "true"},
					OwnerReferences: []metav1.OwnerReference{owner},
				},
				Spec: cron.Spec.JobTemplate.Spec,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := JobFor(cron, tc.start)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Job (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, JobFor(cron, tc.start)); diff != "" {
				t.Errorf("the second is another:\n%s", diff)
			}
			if diff := cmp.Diff(before, cron); diff != "" {
				t.Errorf("the CronJob was changed:\n%s", diff)
			}
		})
	}
}

func TestAJobIsSeenAsWhatItIs(t *testing.T) {
	cron := newCronJob(hourly)
	born, died := metav1.NewTime(at("2016-05-19 11:00:00")), metav1.NewTime(at("2016-05-19 11:05:00"))
	j := JobFor(cron, Start{Name: "cj-24394260", Due: born.UTC()}).DeepCopy()
	j.UID, j.ResourceVersion, j.CreationTimestamp = "u", "7", born
	base := Child{Name: "cj-24394260", ResourceVersion: "7", UID: "u", Controller: uid, Created: born.Time, Due: born.UTC()}
	for name, tc := range map[string]struct {
		change func(*batchv1.Job)
		want   func(*Child)
	}{
		"new":     {func(*batchv1.Job) {}, func(*Child) {}},
		"started": {func(j *batchv1.Job) { j.Status.StartTime = &born }, func(c *Child) { c.Started = born.Time }},
		"complete": {func(j *batchv1.Job) {
			j.Status.CompletionTime = &died
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuccessCriteriaMet, Status: "True"}, {Type: batchv1.JobComplete, Status: "True"}}
		}, func(c *Child) { c.Result, c.Ended = Complete, died.Time }},
		"failed": {func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: "True"}, {Type: batchv1.JobFailed, Status: "True", LastTransitionTime: died}}
		}, func(c *Child) { c.Result, c.Ended = Failed, died.Time }},
		"about to fail": {func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: "True"}, {Type: batchv1.JobFailed, Status: "False"}}
		}, func(*Child) {}},
		"going":              {func(j *batchv1.Job) { j.DeletionTimestamp = &died }, func(c *Child) { c.Deleting = true }},
		"without owner":      {func(j *batchv1.Job) { j.OwnerReferences = nil }, func(c *Child) { c.Controller = "" }},
		"without a due time": {func(j *batchv1.Job) { j.Annotations = nil }, func(c *Child) { c.Due = time.Time{} }},
		"with a due time that is none": {func(j *batchv1.Job) {
			j.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: "noon"}
		}, func(c *Child) { c.Due = time.Time{} }},
	} {
		t.Run(name, func(t *testing.T) {
			job, want := j.DeepCopy(), base
			tc.change(job)
			tc.want(&want)
			if diff := cmp.Diff(want, ChildFromBatch(job)); diff != "" {
				t.Errorf("child (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAStatusGoesThereAndBack(t *testing.T) {
	cron := newCronJob(hourly, last("2016-05-19 10:00:00"), listing(job("2016-05-19 10:00:00")))
	if diff := cmp.Diff(cron.Status, FromBatch(cron).Status.ToBatch()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(batchv1.CronJobStatus{}, Status{}.ToBatch()); diff != "" {
		t.Errorf("empty status (-want +got):\n%s", diff)
	}
}

func TestAnEndlessDeadlineIsNone(t *testing.T) {
	c := FromBatch(newCronJob(hourly, deadline(1<<62)))
	if *c.Spec.StartingDeadline != maxDeadline {
		t.Errorf("got %v", *c.Spec.StartingDeadline)
	}
}

// Other kinds of CronJobs are to come: only one file may know batch/v1.
func TestTheCoreKnowsNoKindOfJob(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") || f.Name() == "batch.go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if strings.Contains(i.Path.Value, "/batch/") {
				t.Errorf("%s imports %s", f.Name(), i.Path.Value)
			}
		}
	}
}
