// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
)

// started returns the due times for which Jobs were created, in order.
func (w *world) started() []string {
	var due []string
	for _, j := range w.created {
		due = append(due, short(ChildFromBatch(j).Due))
	}
	return due
}

// told returns how often an event was told.
func (w *world) told(reason string) int {
	n := 0
	for _, line := range w.log {
		if strings.Contains(line, " "+reason+": ") {
			n++
		}
	}
	return n
}

func (w *world) mustHaveStarted(due ...string) {
	w.t.Helper()
	if diff := cmp.Diff(due, w.started()); diff != "" {
		w.t.Errorf("due times started (-want +got):\n%s\n%s", diff, strings.Join(w.log, "\n"))
	}
}

func (w *world) mustHaveTold(reason string, times int) {
	w.t.Helper()
	if n := w.told(reason); n != times {
		w.t.Errorf("%s was told %d times, not %d:\n%s", reason, n, times, strings.Join(w.log, "\n"))
	}
}

func (w *world) mustTell(history ...string) {
	w.t.Helper()
	w.log = nil
	w.tellHistory()
	var got []string
	for _, line := range w.log[1:] {
		got = append(got, strings.TrimSpace(line))
	}
	if diff := cmp.Diff(history, got); diff != "" {
		w.t.Errorf("history (-want +got):\n%s", diff)
	}
}

// BL-17.
func TestAScheduleThatMissedMoreThanAHundredStartsGoesOn(t *testing.T) {
	w := newWorld(t, at("2024-05-16 09:00:30"), newCronJob("* * * * *"))
	w.cron.Status.LastScheduleTime = nil
	w.now = at("2024-05-16 13:00:30")
	lastScheduled(at("2024-05-16 10:00:00"))(w.cron) // three hours ago, while the controller was off
	w.start()
	w.mustHaveStarted("05-16 13:00:00")
	w.mustHaveTold("TooManyMissedTimes", 1)
	w.forward(2 * time.Minute)
	w.mustHaveStarted("05-16 13:00:00", "05-16 13:01:00", "05-16 13:02:00")
	w.mustHaveTold("TooManyMissedTimes", 1)
}

// BL-17, where the controller has kept a ledger before.
func TestAStatusThatWasSetBackStartsOnlyTheNewestDueTime(t *testing.T) {
	w := newWorld(t, at("2024-05-16 12:50:30"), newCronJob("* * * * *"))
	w.start()
	w.forward(5 * time.Minute)
	w.kill()
	before := len(w.created)
	w.edit("sets lastScheduleTime back", lastScheduled(at("2024-05-16 10:00:00")))
	w.forward(5 * time.Minute)
	w.start()
	if got := w.started()[before:]; !cmp.Equal(got, []string{"05-16 13:00:00"}) {
		t.Errorf("started %v", got)
	}
	w.mustHaveTold("TooManyMissedTimes", 1)
}

// BL-19.
func TestAnEditedScheduleFiresThePast(t *testing.T) {
	setUp := func(t *testing.T, options ...option) *world {
		w := newWorld(t, at("2024-05-16 09:30:00"), newCronJob("0 0 1 1 *", options...))
		lastScheduled(at("2024-05-16 09:30:00"))(w.cron)
		w.now = at("2024-05-16 12:30:00")
		w.start()
		w.forward(time.Minute)
		w.edit("edits the schedule to an hour ago", scheduled("30 11 * * *"))
		w.forward(time.Minute)
		w.mustHaveStarted()
		w.edit("edits something else", history(5, 5))
		w.forward(time.Minute)
		return w
	}
	t.Run("at the next reason to look, as upstream does", func(t *testing.T) {
		w := setUp(t)
		w.mustHaveStarted("05-16 11:30:00")
		w.mustTell("05-16 11:30:00; started; cj-28597650; late 1h2m0s; took 10s; caught up late")
	})
	t.Run("not under future-only", func(t *testing.T) {
		w := setUp(t, annotated(AnnotationOnEdit, "future-only"))
		w.kill()
		w.start() // what was edited is remembered
		w.until(at("2024-05-17 11:30:00"))
		w.mustHaveStarted("05-17 11:30:00")
	})
	t.Run("not past the deadline", func(t *testing.T) {
		w := setUp(t, deadline(60))
		w.mustHaveStarted()
		w.mustHaveTold("MissSchedule", 0)
	})
}

// BL-21.
func TestAJobThatNeverGetsReadyMakesNoPile(t *testing.T) {
	w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("* * * * *", policy(batchv1.ForbidConcurrent)))
	w.run = func(*batchv1.Job) (time.Duration, batchv1.JobConditionType) { return 0, "" }
	w.start()
	w.until(at("2024-05-16 10:04:30"))
	w.mustHaveStarted("05-16 10:01:00")
	w.mustHaveTold("JobAlreadyActive", 3)
	w.edit("mends the template", func(c *batchv1.CronJob) { c.Spec.JobTemplate.Labels = map[string]string{"mended": "yes"} })
	w.mustHaveTold("JobAlreadyActive", 3)
	stuck := w.created[0]
	if len(w.jobs[stuck.Name].Labels) > 0 {
		t.Error("the edit of the template has touched the Job that exists")
	}
	w.remove(stuck.Name)
	w.mustHaveStarted("05-16 10:01:00", "05-16 10:04:00")
	if w.created[1].Labels["mended"] != "yes" {
		t.Error("the next Job does not come from the mended template")
	}
	w.forward(2 * time.Second)
	w.mustTell(
		"05-16 10:01:00; started, then deleted; cj-28597561; late 0s; took 0s; the Job was deleted while it ran",
		"05-16 10:02:00 … 05-16 10:03:00 (2 times); skipped: still active; cj-28597561 was still active",
		"05-16 10:04:00; started; cj-28597564; late 30s; took 0s",
	)
}

// BL-23.
func TestBackupAndRestoreCollideWhenTheClocksChange(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule, zone, dst, from string
		days                      int
		want                      []string
	}{
		"two in autumn, as upstream does": {
			"0 2 * * *", "Europe/Berlin", "", "2023-10-28 12:00:00", 2,
			[]string{"10-29 00:00:00", "10-29 01:00:00", "10-30 01:00:00"},
		},
		"one in autumn": {
			"0 2 * * *", "Europe/Berlin", "once", "2023-10-28 12:00:00", 2,
			[]string{"10-29 00:00:00", "10-30 01:00:00"},
		},
		"none in spring, as upstream does": {
			"30 2 * * *", "Europe/Berlin", "", "2024-03-30 12:00:00", 2,
			[]string{"04-01 00:30:00"},
		},
		"one in spring, when the clocks have jumped": {
			"30 2 * * *", "Europe/Berlin", "once", "2024-03-30 12:00:00", 2,
			[]string{"03-31 01:00:00", "04-01 00:30:00"},
		},
		"a midnight that does not come, as upstream does": {
			"0 0 * * *", "America/Sao_Paulo", "", "2018-11-03 12:00:00", 2,
			[]string{"11-05 02:00:00"},
		},
		"a midnight that does not come": {
			"0 0 * * *", "America/Sao_Paulo", "once", "2018-11-03 12:00:00", 2,
			[]string{"11-04 03:00:00", "11-05 02:00:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := []option{inZone(tc.zone)}
			if tc.dst != "" {
				options = append(options, annotated(AnnotationDST, tc.dst))
			}
			w := newWorld(t, at(tc.from), newCronJob(tc.schedule, options...))
			w.start()
			w.forward(time.Duration(tc.days) * 24 * time.Hour)
			w.mustHaveStarted(tc.want...)
		})
	}
	for _, from := range []string{"2023-10-28 12:30:00", "2024-03-30 12:30:00"} {
		w := newWorld(t, at(from), newCronJob("0 * * * *", inZone("Europe/Berlin"), annotated(AnnotationDST, "once")))
		w.start()
		w.forward(24 * time.Hour)
		if n := len(w.created); n != 24 {
			t.Errorf("hourly from %s: %d runs in 24 hours", from, n)
		}
	}
}

// BL-25.
func TestAMissedRunIsSeen(t *testing.T) {
	w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/2 * * * *", deadline(20)))
	w.start()
	w.until(at("2024-05-16 10:03:30"))
	w.kill()
	w.forward(time.Minute)
	w.start()
	w.forward(time.Minute)
	w.mustHaveStarted("05-16 10:02:00")
	w.mustHaveTold("MissSchedule", 1)
	w.kill()
	w.start() // it is not told again
	w.until(at("2024-05-16 10:07:00"))
	w.mustHaveStarted("05-16 10:02:00", "05-16 10:06:00")
	w.mustHaveTold("MissSchedule", 1)
	w.mustTell(
		"05-16 10:02:00; started; cj-28597562; late 0s; took 10s",
		"05-16 10:04:00; missed: controller away; no controller was there to see it",
		"05-16 10:06:00; started; cj-28597566; late 0s; took 10s",
	)
}

// BL-27.
func TestAResumedScheduleRunsAgain(t *testing.T) {
	setUp := func(t *testing.T, options ...option) *world {
		w := newWorld(t, at("2024-05-16 09:00:30"), newCronJob("*/1 * * * *", options...))
		w.start()
		w.edit("suspends", suspended(true))
		w.edit("sets lastScheduleTime back", lastScheduled(at("2024-05-16 09:00:00")))
		w.until(at("2024-05-16 13:00:30"))
		w.mustHaveStarted()
		w.edit("resumes", suspended(false))
		return w
	}
	t.Run("once for the newest missed minute, as upstream does", func(t *testing.T) {
		w := setUp(t)
		w.mustHaveStarted("05-16 13:00:00")
		w.mustHaveTold("TooManyMissedTimes", 1)
		w.forward(time.Minute)
		w.mustHaveStarted("05-16 13:00:00", "05-16 13:01:00")
	})
	t.Run("at the next minute, with a deadline", func(t *testing.T) {
		w := setUp(t, deadline(10))
		w.mustHaveStarted()
		w.forward(time.Minute)
		w.mustHaveStarted("05-16 13:01:00")
		w.mustHaveTold("MissSchedule", 0)
		w.mustTell(
			"05-16 09:01:00 … 05-16 13:00:00 (240 times); skipped: suspended; the CronJob was suspended",
			"05-16 13:01:00; started; cj-28597741; late 0s; took 10s",
		)
	})
	t.Run("at the next minute, under future-only", func(t *testing.T) {
		w := setUp(t, annotated(AnnotationOnEdit, "future-only"))
		w.mustHaveStarted()
		w.forward(time.Minute)
		w.mustHaveStarted("05-16 13:01:00")
	})
}

// The API server lets no such edit pass; an object of old times may hold one.
func TestAnEditThatCannotBeReadIsToldInItsOwnWords(t *testing.T) {
	w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("* * * * *"))
	w.start()
	w.forward(time.Minute)
	w.edit("edits the schedule", scheduled("* * * *"))
	w.forward(5 * time.Minute)
	w.mustHaveStarted("05-16 10:01:00")
	w.mustHaveTold("UnParseableCronJobSchedule", 1)
	w.mustHaveTold("UnparseableSchedule", 0)
	w.edit("mends it", scheduled("* * * * *"))
	w.forward(time.Minute)
	w.mustHaveStarted("05-16 10:01:00", "05-16 10:07:00")
}

// A laptop without a battery for its clock starts in the past, and is set right later.
func TestAClockThatIsSetForwardMissesWhatLiesBetween(t *testing.T) {
	w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *"))
	w.start()
	w.forward(15 * time.Minute)
	w.sleep(3 * time.Hour)
	w.forward(10 * time.Minute)
	w.mustHaveStarted("05-16 10:10:00", "05-16 13:10:00", "05-16 13:20:00")
	w.mustTell(
		"05-16 10:10:00; started; cj-28597570; late 0s; took 10s",
		"05-16 10:20:00 … 05-16 13:00:00 (17 times); missed: controller away; no controller was there to see it",
		"05-16 13:10:00; started; cj-28597750; late 5m30s; took 10s; caught up late",
		"05-16 13:20:00; started; cj-28597760; late 0s; took 10s",
	)
}

func TestAClockThatIsSetBackStartsNothingTwice(t *testing.T) {
	w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", history(0, 0)))
	w.start()
	w.forward(25 * time.Minute)
	w.now = w.now.Add(-20 * time.Minute)
	w.sync()
	w.forward(time.Minute)
	w.kill()
	w.start()
	w.forward(30 * time.Minute)
	w.mustHaveStarted("05-16 10:10:00", "05-16 10:20:00", "05-16 10:30:00")
}
