// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

var volcanoT0 = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

func volcanoCron(options ...func(*batch.CronJob)) *batch.CronJob {
	c := &batch.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "cron", CreationTimestamp: metav1.NewTime(volcanoT0)},
		Spec: batch.CronJobSpec{
			Schedule: "*/5 * * * *", ConcurrencyPolicy: batch.ForbidConcurrent, StartingDeadlineSeconds: ptr(int64(60)), Suspend: ptr(true),
			JobTemplate: batch.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"}},
				Spec:       batch.JobSpec{MinAvailable: 2},
			},
			SuccessfulJobsHistoryLimit: ptr(int32(5)), FailedJobsHistoryLimit: ptr(int32(3)),
		},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

func TestCronJobsOfVolcanoAreReadLikeAllOthers(t *testing.T) {
	c := volcanoCron(func(c *batch.CronJob) {
		c.Status = batch.CronJobStatus{Active: []corev1.ObjectReference{{Name: "c-1"}}, LastScheduleTime: &metav1.Time{Time: volcanoT0}}
	})
	want := &CronJob{
		Namespace: "ns", Name: "c", UID: "cron", Created: volcanoT0,
		Spec: Spec{
			Schedule: "*/5 * * * *", StartingDeadline: ptr(time.Minute), Concurrency: Forbid, Suspend: true,
			SuccessfulLimit: ptr(int32(5)), FailedLimit: ptr(int32(3)),
		},
		Status: Status{Active: []corev1.ObjectReference{{Name: "c-1"}}, LastSchedule: volcanoT0},
	}
	got := FromVolcano(c)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(c.Status, got.Status.ToVolcano()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestJobsOfVolcanoSayHowTheyEnded(t *testing.T) {
	c := volcanoCron()
	due := time.Date(2026, 3, 2, 10, 5, 0, 0, time.FixedZone("X", 3600))
	cases := map[batch.JobPhase]Child{
		"":               {Result: Running},
		batch.Running:    {Result: Running},
		batch.Aborted:    {Result: Running},
		batch.Completed:  {Result: Complete, Ended: volcanoT0.Add(time.Hour)},
		batch.Failed:     {Result: Failed, Ended: volcanoT0.Add(time.Hour)},
		batch.Terminated: {Result: Failed, Ended: volcanoT0.Add(time.Hour)},
	}
	for phase, want := range cases {
		t.Run(string(phase), func(t *testing.T) {
			j := VolcanoJobFor(c, Start{Name: JobName("c", due), Due: due})
			j.UID, j.CreationTimestamp = "job", metav1.NewTime(volcanoT0)
			j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: metav1.NewTime(volcanoT0.Add(time.Hour))}
			want.Name, want.UID, want.Controller, want.Created, want.Started, want.Due = j.Name, "job", "cron", volcanoT0, volcanoT0, due.UTC()
			if diff := cmp.Diff(want, ChildFromVolcano(j)); diff != "" {
				t.Errorf("child (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobsOfVolcanoAreMadeFromTheTemplate(t *testing.T) {
	due := time.Date(2026, 3, 2, 10, 5, 0, 0, time.FixedZone("X", 3600))
	job := func(annotations map[string]string) *batch.Job {
		annotations["a"] = "2"
		return &batch.Job{
			TypeMeta: metav1.TypeMeta{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "c-29539265", Labels: map[string]string{"l": "1"}, Annotations: annotations,
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "batch.volcano.sh/v1alpha1", Kind: "CronJob", Name: "c", UID: "cron", Controller: ptr(true), BlockOwnerDeletion: ptr(true),
				}},
			},
			Spec: batch.JobSpec{MinAvailable: 2},
		}
	}
	cases := map[string]struct {
		start Start
		want  *batch.Job
	}{
		"one that is due tells for when":      {Start{Due: due}, job(map[string]string{"volcano.sh/cronjob-scheduled-timestamp": "2026-03-02T10:05:00+01:00"})},
		"one by hand tells that":              {Start{}, job(map[string]string{"cronjob.kubernetes.io/instantiate": "manual"})},
		"one by hand may regard the policies": {Start{RespectConcurrency: true}, job(map[string]string{"cronjob.kubernetes.io/instantiate": "manual", "drover.dev/respect-concurrency": "true"})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.start.Name = JobName("c", due)
			tc.want.Name = tc.start.Name
			if diff := cmp.Diff(tc.want, VolcanoJobFor(volcanoCron(), tc.start)); diff != "" {
				t.Errorf("job (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventsOfVolcanosCronJobsHaveItsReasons(t *testing.T) {
	w := VolcanoWording()
	want := map[Topic]string{
		UnexpectedJob: "OrphanedJob", SawCompletedJob: "SawCompletedJob", MissingJob: "StaleReference", UnknownTimeZone: "InvalidTimeZone",
		UnsupportedSchedule: "UnsupportedSchedule", UnparseableSchedule: "UnParseableCronJobSchedule", UnparseableEdit: "UnParseableCronJobSchedule",
		InvalidSchedule: "InvalidSchedule", TooManyMissedTimes: "TooManyMissedTimes", MissSchedule: "MissSchedule", AlreadyActive: "ForbidConcurrent",
		FailedDelete: "FailedDelete", Deleted: "SuccessfulDelete", FailedCreate: "FailedCreate", Created: "SuccessfulCreate",
		BadAnnotation: "InvalidAnnotation", ReplacedJob: "ReplaceConcurrent", ForeignJob: "ForeignJob",
	}
	for topic := range topics {
		if got := w.Events[topic].Reason; got != want[topic] {
			t.Errorf("topic %d has the reason %q, want %q", topic, got, want[topic])
		}
	}
	batchWords := BatchWording()
	if got := batchWords.add(nil, ReplacedJob, "c-1"); got != nil {
		t.Errorf("batch/v1 tells of replaced Jobs: %v", got)
	}
}

func TestReplacingTellsOfTheJobsThatMakeRoom(t *testing.T) {
	c := volcanoCron(func(c *batch.CronJob) {
		c.Spec.ConcurrencyPolicy, c.Spec.Suspend = batch.ReplaceConcurrent, nil
		c.Spec.StartingDeadlineSeconds = nil
		c.Status = batch.CronJobStatus{
			Active: []corev1.ObjectReference{{Name: "c-29539260", UID: "job"}}, LastScheduleTime: &metav1.Time{Time: volcanoT0},
		}
	})
	j := VolcanoJobFor(c, Start{Name: "c-29539260", Due: volcanoT0})
	j.UID, j.CreationTimestamp, j.Status.State.Phase = "job", metav1.NewTime(volcanoT0), batch.Running
	facts := FromVolcano(c)
	plan := Decide(Observed{
		CronJob: facts, Rules: Read(facts, time.LoadLocation, time.UTC), Children: []Child{ChildFromVolcano(j)},
		Now: volcanoT0.Add(5 * time.Minute), Awake: volcanoT0, Options: VolcanoOptions(),
	})
	if len(plan.Replace) != 1 || len(plan.Start) != 1 {
		t.Fatalf("%d Jobs are replaced and %d started", len(plan.Replace), len(plan.Start))
	}
	want := []Event{{"Normal", "ReplaceConcurrent", "Deleting active job c-29539260 because concurrencyPolicy is Replace"}}
	if diff := cmp.Diff(want, plan.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestValidateVolcano(t *testing.T) {
	zone := func(name string) func(*batch.CronJob) { return func(c *batch.CronJob) { c.Spec.TimeZone = &name } }
	every := func(text string) func(*batch.CronJob) { return func(c *batch.CronJob) { c.Spec.Schedule = text } }
	cases := map[string]struct {
		c    *batch.CronJob
		want string // is contained in what is wrong; "": nothing is
	}{
		"five fields":                   {volcanoCron(), ""},
		"macros":                        {volcanoCron(every("@every 90m")), ""},
		"a zone":                        {volcanoCron(zone("Europe/Berlin")), ""},
		"no schedule":                   {volcanoCron(every("")), "spec.schedule: it is required"},
		"a schedule that is none":       {volcanoCron(every("* * * *")), `spec.schedule: invalid schedule "* * * *"`},
		"a zone in the schedule":        {volcanoCron(every("TZ=UTC * * * * *")), "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"},
		"an empty zone":                 {volcanoCron(zone("")), "timeZone must be nil or non-empty string"},
		"the local zone":                {volcanoCron(zone("LOCAL")), "timeZone must be an explicit time zone"},
		"a zone that does not exist":    {volcanoCron(zone("Nowhere/Land")), `spec.timeZone: "Nowhere/Land"`},
		"a zone outside the database":   {volcanoCron(zone("../etc/passwd")), "unknown time zone"},
		"a part of a zone that is long": {volcanoCron(zone("Abcdefghijklmno/X")), "unknown time zone"},
		"a name too long for its Jobs":  {volcanoCron(func(c *batch.CronJob) { c.Name = strings.Repeat("x", 53) }), "must be no more than 52 characters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(ValidateVolcano(tc.c, time.LoadLocation), "; ")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("problems %q, want %q", got, tc.want)
			}
		})
	}
}
