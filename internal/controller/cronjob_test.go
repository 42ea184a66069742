// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/simulate"
)

func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// name returns the name of the Job for a time of worldBegin's day.
func jobAt(cron, clock string) string {
	t, err := time.Parse(time.DateTime, worldBegin.Format(time.DateOnly)+" "+clock)
	if err != nil {
		panic(err)
	}
	return cronjob.JobName(cron, t)
}

func TestADueTimeFiresFromMemoryAndItsStatusFollowsInOneWrite(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *"))
	w.pass(59 * time.Second)
	same(t, "requests before it is due", "", w.took())
	w.pass(time.Second)
	same(t, "requests when it is due", "POST job", w.took())
	w.cluster.EndJob("default", jobAt("c", "12:01:00"), batchv1.JobComplete)
	w.pass(10 * time.Second)
	same(t, "requests afterwards", "PUT cronjob status", w.took())
	same(t, "events", []string{
		"c Normal SuccessfulCreate: Created job " + jobAt("c", "12:01:00"),
		"c Normal SawCompletedJob: Saw completed job: " + jobAt("c", "12:01:00") + ", condition: Complete",
	}, w.told())
	cron := w.cluster.FindCronJob("default", "c")
	at := func(clock string) *metav1.Time {
		t, _ := time.Parse(time.DateTime, worldBegin.Format(time.DateOnly)+" "+clock)
		return ptr.To(metav1.NewTime(t))
	}
	same(t, "status", batchv1.CronJobStatus{LastScheduleTime: at("12:01:00"), LastSuccessfulTime: at("12:01:00")}, cron.Status)
	w.checkInvariants()
}

func TestALongJobIsListedAsActiveUntilItEnds(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *"))
	w.pass(time.Hour + 2*time.Second)
	same(t, "requests", "POST job, PUT cronjob status", w.took())
	name := jobAt("c", "13:00:00")
	j := w.cluster.FindJob("default", name)
	same(t, "active", []corev1.ObjectReference{{
		APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: name, UID: j.UID, ResourceVersion: j.ResourceVersion,
	}}, w.cluster.FindCronJob("default", "c").Status.Active)
	w.cluster.EndJob("default", name, batchv1.JobFailed)
	w.pass(2 * time.Second)
	same(t, "requests when it has ended", "PUT cronjob status", w.took())
	same(t, "active when it has ended", 0, len(w.cluster.FindCronJob("default", "c").Status.Active))
	w.checkInvariants()
}

func TestAtAMinutesEdgeStartsGoBeforeAllElse(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	for i := range 5 {
		w.cluster.SubmitCronJob(aCronJob(fmt.Sprintf("c%d", i), "* * * * *", withLimits(0, 0)))
	}
	w.pass(time.Minute)
	w.pass(30 * time.Second)
	for i := range 5 {
		w.cluster.EndJob("default", jobAt(fmt.Sprintf("c%d", i), "12:01:00"), batchv1.JobComplete)
	}
	w.took()
	w.setTime(worldBegin.Add(2 * time.Minute)) // the ends are seen at the very moment of the next starts
	w.settle()
	same(t, "requests", "POST job, POST job, POST job, POST job, POST job, ", w.took()[:5*len("POST job, ")])
	w.checkInvariants()
}

func TestOfThoseDueAtOnceTheMostUrgentGoFirst(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("a", "* * * * *"))
	w.cluster.SubmitCronJob(aCronJob("b", "* * * * *", withDeadline(30)))
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *", withDeadline(5)))
	w.pass(time.Minute)
	same(t, "events", []string{
		"c Normal SuccessfulCreate: Created job " + jobAt("c", "12:01:00"),
		"b Normal SuccessfulCreate: Created job " + jobAt("b", "12:01:00"),
		"a Normal SuccessfulCreate: Created job " + jobAt("a", "12:01:00"),
	}, w.told())
}

func TestManyStartsMakeTheirStatusesWait(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	for i := range 500 {
		w.cluster.SubmitCronJob(aCronJob(fmt.Sprintf("c%03d", i), "* * * * *"))
	}
	w.pass(time.Minute + 4*time.Second)
	requests := w.cluster.Requests()
	if requests["PUT cronjob status"] > 400 {
		t.Errorf("%d statuses were written within four seconds of 500 starts", requests["PUT cronjob status"])
	}
	for i := range 500 {
		w.cluster.EndJob("default", jobAt(fmt.Sprintf("c%03d", i), "12:01:00"), batchv1.JobComplete)
	}
	w.pass(30 * time.Second)
	for _, cron := range w.cluster.CronJobs() {
		if cron.Status.LastScheduleTime == nil || len(cron.Status.Active) > 0 || cron.Status.LastSuccessfulTime == nil {
			t.Fatalf("status of %s: %+v", cron.Name, cron.Status)
		}
	}
}

func TestAnEditAndAStatusWriteAtOnceAreBothKept(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *"))
	w.pass(time.Minute)
	w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.Schedule = "*/5 * * * *" })
	w.setTime(w.clock.Now().Add(3 * time.Second))
	w.work(1) // the watch has not told of the edit yet
	same(t, "requests", "POST job, PUT cronjob status, GET cronjob, PUT cronjob status", w.took())
	w.settle()
	cron := w.cluster.FindCronJob("default", "c")
	if cron.Spec.Schedule != "*/5 * * * *" || cron.Status.LastScheduleTime == nil || len(cron.Status.Active) != 1 {
		t.Errorf("schedule %q, status %+v", cron.Spec.Schedule, cron.Status)
	}
	w.pass(10 * time.Minute)
	same(t, "Jobs", []string{jobAt("c", "12:01:00"), jobAt("c", "12:05:00"), jobAt("c", "12:10:00")}, w.jobs())
	w.checkInvariants()
}

// k#65457, k#63371: an edit starts nothing by itself; the next thing that happens does, as upstream.
func TestAnEditToAPastTimeWaitsForSomethingToHappen(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 0 1 1 *"))
	w.pass(3 * time.Hour)
	w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.Schedule = "0 14 * * *" })
	w.pass(time.Hour)
	same(t, "Jobs after the edit", nil, w.jobs())
	w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](5) })
	w.pass(time.Second)
	same(t, "Jobs after another edit", []string{jobAt("c", "14:00:00")}, w.jobs())
	w.checkInvariants()
}

func TestAnEditIsDecidedOnOnceThoughTheCacheShowsItBeforeTheWatchTells(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 0 1 1 *"))
	w.pass(3 * time.Hour)
	w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.Schedule = "0 14 * * *" })
	before, _, _ := w.cronCache.GetByKey("default/c")
	after := w.cluster.FindCronJob("default", "c")
	must(t, w.cronCache.Update(after))
	w.c.queue.Look("default/c") // for another reason, between the cache and its handler
	w.work(1)
	w.c.cronUpdated(before.(*batchv1.CronJob), after)
	w.seenCrons = w.cluster.Version()
	w.settle()
	same(t, "Jobs", nil, w.jobs())
}

func TestAStartWhoseAnswerIsLostIsNotMadeAgain(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *", withPolicy(batchv1.ForbidConcurrent)))
	w.pass(59 * time.Minute)
	lose := true
	w.cluster.Fault = func(request string) simulate.Fault {
		w.requests = append(w.requests, request)
		if lose && request == "POST job" {
			lose = false
			return simulate.Lose
		}
		return simulate.None
	}
	w.pass(2 * time.Minute)
	same(t, "Jobs", []string{jobAt("c", "13:00:00")}, w.jobs())
	same(t, "active", 1, len(w.cluster.FindCronJob("default", "c").Status.Active))
	w.checkInvariants()
}

func TestANameThatAStrangerHasCostsOneStart(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *"))
	w.cluster.Submit(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobAt("c", "13:00:00"), Namespace: "default"}})
	w.pass(2*time.Hour + time.Minute)
	same(t, "Jobs", []string{jobAt("c", "13:00:00"), jobAt("c", "14:00:00")}, w.jobs())
	same(t, "history", []string{"13:00:00 failed to create", "14:00:00 started"}, w.history("c"))
	w.checkInvariants()
}

func TestOldJobsMakeRoomInAQuota(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *", withLimits(1, 1)))
	w.cluster.JobQuota = 1
	w.pass(time.Minute + 10*time.Second)
	w.cluster.EndJob("default", jobAt("c", "12:01:00"), batchv1.JobComplete)
	w.pass(40 * time.Second)
	w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](0) })
	w.setTime(worldBegin.Add(2 * time.Minute))
	w.pass(time.Second)
	same(t, "Jobs", []string{jobAt("c", "12:02:00")}, w.jobs())
	w.checkInvariants()
}

func TestWhatWasMissedWhileTheMachineSleptIsTold(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "*/10 * * * *"))
	w.cluster.SubmitCronJob(aCronJob("d", "*/10 * * * *", withDeadline(20)))
	w.pass(15 * time.Minute)
	w.sleep(time.Hour)
	w.pass(6 * time.Minute)
	same(t, "history", []string{
		"12:10:00 started", "12:20:00-13:00:00 (5) missed: controller away", "13:10:00 started", "13:20:00 started",
	}, w.history("c"))
	same(t, "history with a deadline", []string{
		"12:10:00 started", "12:20:00-13:10:00 (6) missed: controller away", "13:20:00 started",
	}, w.history("d"))
	var missed []string
	for _, e := range w.told() {
		if len(e) > 10 && e[:10] == "d Warning " {
			missed = append(missed, e)
		}
	}
	same(t, "warnings", []string{"d Warning MissSchedule: Missed scheduled time to start a job: " +
		worldBegin.Add(70*time.Minute).Format(time.RFC1123Z)}, missed)
	w.checkInvariants()
}

func TestAClockThatIsSetBackStartsNothingTwice(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "*/10 * * * *", withLimits(0, 0)))
	w.pass(25 * time.Minute)
	for _, name := range w.jobs() {
		w.cluster.EndJob("default", name, batchv1.JobComplete)
	}
	w.pass(time.Minute)
	w.setTime(w.clock.Now().Add(-20 * time.Minute))
	w.settle()
	w.pass(35 * time.Minute)
	same(t, "Jobs", []string{jobAt("c", "12:30:00"), jobAt("c", "12:40:00")}, w.jobs())
	w.checkInvariants()
}

func TestACronJobThatIsMadeAgainUnderItsNameBeginsAnew(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *"))
	w.pass(time.Minute + 5*time.Second)
	w.cluster.RemoveCronJob("default", "c")
	w.cluster.SubmitCronJob(aCronJob("c", "*/2 * * * *"))
	w.pass(3 * time.Minute)
	same(t, "Jobs", []string{jobAt("c", "12:02:00"), jobAt("c", "12:04:00")}, w.jobs())
	w.cluster.RemoveCronJob("default", "c")
	w.pass(time.Hour)
	same(t, "states that are left", 0, len(w.c.states.keys()))
	w.checkInvariants()
}

func TestARestartGoesOnWhereTheOldProcessWas(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *", withPolicy(batchv1.ForbidConcurrent)))
	w.pass(time.Minute)
	w.start() // the status knows nothing of the start yet
	w.pass(10 * time.Second)
	same(t, "active", 1, len(w.cluster.FindCronJob("default", "c").Status.Active))
	w.pass(2 * time.Minute)
	same(t, "Jobs", []string{jobAt("c", "12:01:00")}, w.jobs())
	w.cluster.EndJob("default", jobAt("c", "12:01:00"), batchv1.JobComplete)
	w.pass(5 * time.Second)
	same(t, "Jobs when it has ended", []string{jobAt("c", "12:01:00"), jobAt("c", "12:03:00")}, w.jobs())
	same(t, "history", []string{"12:01:00 started", "12:02:00 skipped: still active", "12:03:00 started"}, w.history("c"))
	w.checkInvariants()
}

func TestWhatIsNotStoredYetIsStoredAtTheEnd(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "* * * * *"))
	w.cluster.SubmitCronJob(aCronJob("idle", "0 0 1 1 *"))
	w.pass(time.Minute)
	w.took()
	w.c.storeAll(t.Context())
	same(t, "requests", "PUT cronjob status", w.took())
	same(t, "active", 1, len(w.cluster.FindCronJob("default", "c").Status.Active))
}

func TestAJobStartedByHandIsReportedAndCountsAsHistory(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	cron := w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *", withLimits(1, 1)))
	w.pass(time.Second)
	for _, name := range []string{"one", "two"} {
		w.cluster.Submit(cronjob.JobFor(cron, cronjob.Start{Name: name}))
		w.pass(time.Second)
		w.cluster.EndJob("default", name, batchv1.JobComplete)
		w.pass(2 * time.Second)
	}
	same(t, "events", []string{
		"c Warning UnexpectedJob: Saw a job that the controller did not create or forgot: one",
		"c Warning UnexpectedJob: Saw a job that the controller did not create or forgot: two",
		"c Normal SuccessfulDelete: Deleted job one",
	}, w.told())
	same(t, "Jobs", []string{"two"}, w.jobs())
	w.checkInvariants()
}

func TestAWriteThatDoesNotWorkIsTriedAgain(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *"))
	failures := 3
	w.cluster.Fault = func(request string) simulate.Fault {
		if request == "PUT cronjob status" && failures > 0 {
			failures--
			return simulate.Unreachable
		}
		return simulate.None
	}
	w.pass(time.Hour + 20*time.Second)
	same(t, "active", 1, len(w.cluster.FindCronJob("default", "c").Status.Active))
	w.checkInvariants()
}

func TestAnOldJobThatCouldNotBeDeletedDoesNotStayForEver(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *", withLimits(0, 0)))
	w.pass(time.Hour + 2*time.Second)
	w.cluster.EditCronJob("default", "c", func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) })
	w.pass(2 * time.Second)
	failures := 3
	w.cluster.Fault = func(request string) simulate.Fault {
		w.requests = append(w.requests, request)
		if request == "DELETE job" && failures > 0 {
			failures--
			return simulate.Refuse
		}
		return simulate.None
	}
	w.cluster.EndJob("default", jobAt("c", "13:00:00"), batchv1.JobFailed)
	w.took()
	w.pass(3 * time.Second)
	same(t, "requests while it cannot be deleted", "DELETE job, DELETE job, PUT cronjob status, DELETE job", w.took())
	w.pass(time.Second)
	same(t, "requests when it can", "DELETE job", w.took())
	same(t, "Jobs", nil, w.jobs())
	w.checkInvariants()
}

func TestAJobThatEndsWhileTheWatchIsBrokenOffIsSeenToHaveEnded(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *", withLimits(0, 0)))
	w.pass(time.Hour - time.Second)
	w.setTime(worldBegin.Add(time.Hour))
	w.work(1)
	w.cluster.EndJob("default", jobAt("c", "13:00:00"), batchv1.JobFailed)
	w.relist()
	w.pass(2 * time.Second)
	same(t, "active", 0, len(w.cluster.FindCronJob("default", "c").Status.Active))
	same(t, "Jobs", nil, w.jobs())
	w.checkInvariants()
}

func TestAJobThatIsDeletedWhileTheWatchIsBrokenOffIsSeenToBeGone(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *"))
	w.pass(time.Hour - time.Second)
	w.setTime(worldBegin.Add(time.Hour))
	w.work(1)
	w.cluster.Remove("default", jobAt("c", "13:00:00"))
	w.relist()
	w.pass(10 * time.Second)
	same(t, "active", 0, len(w.cluster.FindCronJob("default", "c").Status.Active))
	same(t, "events", []string{
		"c Normal SuccessfulCreate: Created job " + jobAt("c", "13:00:00"),
		"c Normal MissingJob: Active job went missing: " + jobAt("c", "13:00:00"),
	}, w.told())
	w.checkInvariants()
}

func TestAnEditThatOnlyAConflictTellsOfIsFollowed(t *testing.T) {
	w := newCronWorld(t, CronJobConfig{})
	w.cluster.SubmitCronJob(aCronJob("c", "0 * * * *", withLimits(1, 1)))
	w.pass(time.Hour + 2*time.Second)
	w.cluster.EndJob("default", jobAt("c", "13:00:00"), batchv1.JobFailed)
	w.tellJobs(1)
	w.work(1) // decides that the status is to be stored
	w.cluster.EditCronJob("default", "c", withLimits(0, 0))
	w.setTime(w.clock.Now().Add(2 * time.Second))
	w.work(1) // meets a conflict, reads what is stored, and stores the status
	w.relist()
	w.settle()
	same(t, "Jobs", nil, w.jobs())
	w.checkInvariants()
}

func TestJumpsOfTheClock(t *testing.T) {
	at := func(d time.Duration) time.Time { return worldBegin.Add(d) }
	real := time.Now()
	cases := map[string]struct {
		before, after time.Time
		want          jump
	}{
		"time passes":                          {at(0), at(time.Second), noJump},
		"a busy process looks late":            {at(0), at(4 * time.Second), noJump},
		"a process that was stopped":           {at(0), at(time.Minute), forward},
		"a clock that is set back":             {at(0), at(-time.Minute), back},
		"a real clock":                         {real, real.Add(time.Second), noJump},
		"a process with a monotonic clock":     {real, real.Add(time.Minute), forward},
		"no time at all between two looks":     {real, real, noJump},
		"an instant without monotonic reading": {real.Round(0), real.Round(0).Add(-time.Hour), back},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := jumpBetween(tc.before, tc.after); got != tc.want {
				t.Errorf("jump %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTheQueueGivesTurnsByUrgency(t *testing.T) {
	c := clocktesting.NewFakeClock(worldBegin)
	q := newCronQueue("test", c, nil)
	defer q.ShutDown()
	at := func(d time.Duration) time.Time { return worldBegin.Add(d) }
	q.LookAt("late", at(2*time.Second), noHurry)
	q.LookAt("early", at(time.Second), noHurry)
	q.LookAt("urgent", at(time.Second), time.Second)
	q.LookAt("never", at(time.Second), 0)
	q.LookAt("never", time.Time{}, 0)
	q.StoreAt("stored", at(2*time.Second))
	q.StoreAt("stored", at(3*time.Second)) // later than what was asked for: it does not count
	q.Tidy("tidied")
	q.Look("looked")
	q.Look("early") // is moved up when its time comes
	q.Store("late")
	c.SetTime(at(2 * time.Second))
	if _, next := q.Advance(c.Now()); !next.IsZero() {
		t.Errorf("next alarm at %v, want none", next)
	}
	var got []string
	for q.Len() > 0 {
		key, _ := q.Get()
		got = append(got, fmt.Sprintf("%s %+v", key, q.Take(key)))
		q.Done(key)
	}
	same(t, "turns", []string{
		"urgent {Look:true Store:false Due:true Version:}",
		"early {Look:true Store:false Due:true Version:}",
		"late {Look:true Store:true Due:true Version:}",
		"looked {Look:true Store:false Due:false Version:}",
		"stored {Look:false Store:true Due:false Version:}",
		"tidied {Look:true Store:false Due:false Version:}",
	}, got)
}

func TestOfTwoVersionsToLookAtTheLaterCounts(t *testing.T) {
	q := newCronQueue("", clocktesting.NewFakeClock(worldBegin), nil)
	defer q.ShutDown()
	q.LookIfNewer("default/c", "12")
	q.LookIfNewer("default/c", "9")
	same(t, "what is to be done", cronAsk{Version: "12"}, q.Take("default/c"))
}

func TestNoKeyWaitsForEver(t *testing.T) {
	c := clocktesting.NewFakeClock(worldBegin)
	q := newCronQueue("test", c, nil)
	defer q.ShutDown()
	q.Store("patient")
	for i := range 100 {
		c.SetTime(worldBegin.Add(time.Duration(i) * time.Second))
		q.LookAt(fmt.Sprint("busy", i), c.Now(), 0)
		q.Advance(c.Now())
		key, _ := q.Get()
		q.Take(key)
		q.Done(key)
		if key == "patient" {
			if waited := c.Now().Sub(worldBegin); waited > maxPatience+2*time.Second {
				t.Errorf("it waited %v", waited)
			}
			return
		}
	}
	t.Error("it never had a turn")
}

func TestOthersGiveWayToStartsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPrecedence(clock.RealClock{})
		passed := func() time.Duration {
			begin := time.Now()
			p.GiveWay(t.Context())
			return time.Since(begin)
		}
		same(t, "nothing to start: waited", 0, passed())
		p.add(2)
		time.AfterFunc(time.Second, func() { p.add(-1) })
		time.AfterFunc(2*time.Second, func() { p.add(-1) })
		same(t, "two starts: waited", 2*time.Second, passed())
		p.add(1)
		same(t, "a start without end: waited", maxPrecedence, passed())
		same(t, "a start without end, the second time: waited", 0, passed())
		p.add(-1)
		p.add(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		p.GiveWay(ctx)
		same(t, "a process that ends: waited", time.Second, time.Since(begin))
	})
}

// The loop itself, with its timers, on a clock that jumps from event to event.
func TestTheControllerStartsOnTheSecondAndEndsWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := simulate.New(time.Now())
		api := &liveCronAPI{cluster: cluster}
		c := newCronJobController(CronJobConfig{Workers: 3}, api, noEvents{}, clock.RealClock{}, slog.New(slog.DiscardHandler))
		crons, jobs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cronIndexers)
		c.crons, c.jobs = crons, jobs
		for i := range 20 {
			cron := cluster.SubmitCronJob(aCronJob(fmt.Sprintf("c%d", i), []string{"* * * * *", "*/5 * * * *", "@every 90s"}[i%3]))
			must(t, crons.Add(cron))
			c.cronAdded(cron)
		}
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(10*time.Minute + time.Second/2) // of the bubble's clock
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, late := range api.late {
			if late > time.Millisecond {
				t.Errorf("a start was %v late", late)
			}
		}
		if want := 7*10 + 7*2 + 6*6; len(api.late) != want {
			t.Errorf("%d starts in %v, want %d", len(api.late), time.Since(begin), want)
		}
		if v := cluster.Violations(); len(v) > 0 {
			t.Errorf("violated: %v", v)
		}
		for _, cron := range cluster.CronJobs() {
			if cron.Status.LastScheduleTime == nil || time.Since(cron.Status.LastScheduleTime.Time) > 5*time.Minute {
				t.Errorf("status of %s: %v", cron.Name, cron.Status.LastScheduleTime)
			}
		}
	})
}

type noEvents struct{}

func (noEvents) Event(runtime.Object, string, string, string) {}

// liveCronAPI is a simulated cluster for several goroutines, on the clock of the process. Its watch tells of nothing.
type liveCronAPI struct {
	mu      sync.Mutex
	cluster *simulate.Cluster
	late    []time.Duration // of each start
}

func (a *liveCronAPI) CronJob(_ context.Context, namespace, name string) (*batchv1.CronJob, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cluster.GetCronJob(namespace, name)
}

func (a *liveCronAPI) StoreCronStatus(_ context.Context, _, c *batchv1.CronJob) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cluster.PutCronJobStatus(c)
}

func (a *liveCronAPI) Job(_ context.Context, namespace, name string) (*batchv1.Job, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cluster.GetJob(namespace, name)
}

func (a *liveCronAPI) CreateJob(_ context.Context, j *batchv1.Job) (*batchv1.Job, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cluster.Now = time.Now()
	due, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil {
		return nil, err
	}
	a.late = append(a.late, time.Since(due))
	return a.cluster.PostJob(j)
}

func (a *liveCronAPI) DeleteJobWithPods(_ context.Context, namespace, name string, uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cluster.DeleteJobBackground(namespace, name, uid)
}
