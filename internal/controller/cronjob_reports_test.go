// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// What users have reported of upstream's controller, as far as it takes more than one decision; more is told in package cronjob.

// eventsOf returns the events of that reason, as they were told.
func (w *cronWorld) eventsOf(reason string) []string {
	var found []string
	for _, e := range w.events {
		if strings.Contains(e, " "+reason+": ") {
			found = append(found, e)
		}
	}
	return found
}

// stopped lets time pass while no controller runs.
func (w *cronWorld) stopped(d time.Duration, meanwhile func()) {
	w.settle()
	if meanwhile != nil {
		meanwhile()
	}
	w.setTime(w.clock.Now().Add(d))
	w.start()
	w.settle()
}

// k#42649
func TestAScheduleThatMissedHundredsOfTimesGoesOn(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.setTime(worldBegin.Add(30 * time.Second))
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *"))
	w.settle()
	w.stopped(0, func() {
		w.cluster.EditCronJobStatus("default", "c", func(s *batchv1.CronJobStatus) {
			s.LastScheduleTime = ptr.To(metav1.NewTime(worldBegin.Add(-3 * time.Hour)))
		})
	})
	same(t, "Jobs", []string{jobAt("c", "12:00:00")}, w.jobs())
	same(t, "warnings", 1, len(w.eventsOf("TooManyMissedTimes")))
	w.pass(3 * time.Minute)
	same(t, "Jobs later", []string{jobAt("c", "12:00:00"), jobAt("c", "12:01:00"), jobAt("c", "12:02:00"), jobAt("c", "12:03:00")}, w.jobs())
	w.checkInvariants()
}

// k#58748
func TestAJobThatNeverStartsMakesNoPileUnderForbid(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *", withPolicy(batchv1.ForbidConcurrent)))
	w.pass(4*time.Minute + 10*time.Second)
	same(t, "Jobs", []string{jobAt("c", "12:01:00")}, w.jobs())
	same(t, "events, one for each skipped time", 3, len(w.eventsOf("JobAlreadyActive")))
	w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.JobTemplate.Labels = map[string]string{"fixed": "yes"} })
	w.pass(time.Second)
	same(t, "labels of the old Job", 0, len(w.cluster.FindJob("default", jobAt("c", "12:01:00")).Labels))
	w.cluster.Remove("default", jobAt("c", "12:01:00"))
	w.pass(time.Second)
	same(t, "Jobs when it is deleted", []string{jobAt("c", "12:04:00")}, w.jobs())
	same(t, "labels of the new Job", map[string]string{"fixed": "yes"}, w.cluster.FindJob("default", jobAt("c", "12:04:00")).Labels)
	w.pass(time.Minute)
	same(t, "Jobs later", []string{jobAt("c", "12:04:00")}, w.jobs())
	w.checkInvariants()
}

// k#101148
func TestARunThatCameTooLateIsTold(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "*/2 * * * *", withDeadline(20)))
	w.pass(100 * time.Second)
	w.stopped(time.Minute, nil)
	same(t, "Jobs", nil, w.jobs())
	same(t, "warnings", []string{"c Warning MissSchedule: Missed scheduled time to start a job: " +
		worldBegin.Add(2*time.Minute).Format(time.RFC1123Z)}, w.eventsOf("MissSchedule"))
	same(t, "history, before the controller has stored it", []string{"12:02:00 missed: deadline"}, w.history("c"))
	w.pass(2 * time.Minute)
	same(t, "Jobs later", []string{jobAt("c", "12:04:00")}, w.jobs())
	same(t, "history", []string{"12:02:00 missed: controller away", "12:04:00 started"}, w.history("c"))
	w.checkInvariants()
}

// k#45825, k#110919
func TestAScheduleThatWasSuspendedForLongGoesOn(t *testing.T) {
	cases := map[string]struct {
		options []func(*batchv1.CronJob)
		want    []string // when it is resumed
	}{
		"at once for the newest time":         {nil, []string{"16:00:00"}},
		"at the next time with a deadline":    {[]func(*batchv1.CronJob){withDeadline(10)}, nil},
		"at the next time if that is desired": {[]func(*batchv1.CronJob){withNote("drover.dev/on-edit", "future-only")}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newCronWorld(t, CronJobConfig{})
			w.cluster.SubmitCronJob(aCronJob("c", "* * * * *", tc.options...))
			w.settle()
			w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) })
			w.pass(4*time.Hour + 30*time.Second)
			same(t, "Jobs while it is suspended", nil, w.jobs())
			w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(false) })
			w.pass(time.Second)
			var want []string
			for _, clock := range tc.want {
				want = append(want, jobAt("c", clock))
			}
			same(t, "Jobs when it is resumed", want, w.jobs())
			w.pass(time.Minute)
			same(t, "Jobs a minute later", append(want, jobAt("c", "16:01:00")), w.jobs())
			w.checkInvariants()
		})
	}
}

// k#121594
func TestChangesOfTheClocks(t *testing.T) {
	cases := map[string]struct {
		schedule string
		begin    string
		rule     string
		want     []string // UTC
	}{
		"a repeated time runs twice, as upstream": {"0 2 * * *", "2023-10-28T12:00:00Z", "", []string{"10-29T00:00", "10-29T01:00"}},
		"or once":                            {"0 2 * * *", "2023-10-28T12:00:00Z", "once", []string{"10-29T00:00"}},
		"a removed time does not run":        {"30 2 * * *", "2024-03-30T12:00:00Z", "", nil},
		"or runs when the clock has jumped":  {"30 2 * * *", "2024-03-30T12:00:00Z", "once", []string{"03-31T01:00"}},
		"every hour is every hour in spring": {"0 1,2,3,4 * * *", "2024-03-30T12:00:00Z", "", []string{"03-31T00:00", "03-31T01:00", "03-31T02:00"}},
		"and follows elapsed time in autumn": {"0 0-4 * * *", "2023-10-28T18:30:00Z", "", []string{"10-28T22:00", "10-28T23:00", "10-29T00:00", "10-29T01:00", "10-29T02:00", "10-29T03:00"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			begin, err := time.Parse(time.RFC3339, tc.begin)
			must(t, err)
			w := newCronWorld(t, CronJobConfig{})
			w.setTime(begin)
			w.start()
			cron := aCronJob("c", tc.schedule)
			cron.Spec.TimeZone = ptr.To("Europe/Berlin")
			if tc.rule != "" {
				withNote("drover.dev/dst", tc.rule)(cron)
			}
			w.cluster.SubmitCronJob(cron)
			w.pass(18*time.Hour - 1)
			var got []string
			for _, j := range w.cluster.Jobs() {
				due, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
				must(t, err)
				got = append(got, due.UTC().Format("01-02T15:04"))
			}
			same(t, "starts", tc.want, got)
			w.checkInvariants()
		})
	}
}
