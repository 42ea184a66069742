// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/simulate"
)

// TestCronJobsKeepTheirPromisesWhateverHappens lets users, Jobs, slow watches, failing requests, crashes, sleep and set clocks do
// their worst to random CronJobs, and then lets the world come to rest. It fails with the seed, which -seed runs again.
func TestCronJobsKeepTheirPromisesWhateverHappens(t *testing.T) {
	seeds := *seedsFlag
	first := uint64(1)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	steps, turns, crashes, starts := 0, 0, 0, 0
	for seed := first; seed < first+seeds; seed++ {
		s := newCronStorm(t, seed)
		s.run(*stepsFlag / 2)
		steps += *stepsFlag / 2
		turns += s.w.turns
		crashes += s.w.crashes
		starts += s.w.cluster.Started()
		s.w.c.queue.ShutDown()
		if t.Failed() {
			t.Fatalf("seed %d: run it again with -run %s -seed %d", seed, t.Name(), seed)
		}
	}
	t.Logf("%d seeds, %d steps, %d turns, %d crashes in the middle of one, %d due times started", seeds, steps, turns, crashes, starts)
}

// cronStorm is one random history.
type cronStorm struct {
	t   *testing.T
	w   *cronWorld
	rng *rand.Rand

	faults float64         // probability that a request meets a fault
	edited map[string]bool // CronJobs whose due times do not all follow from the schedule they have now
	born   map[string]time.Time
}

var stormSchedules = []string{"* * * * *", "*/5 * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "@every 90s", "@every 7m", "@every 61m", "0 0 1 * *"}

func newCronStorm(t *testing.T, seed uint64) *cronStorm {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 43))
	s := &cronStorm{t: t, rng: rng, w: newCronWorld(t, CronJobConfig{}), edited: map[string]bool{}, born: map[string]time.Time{}}
	s.faults = []float64{0, 0.02, 0.15}[rng.IntN(3)]
	s.w.cluster.Fault = s.fault
	for i := range 1 + rng.IntN(3) {
		s.submit(fmt.Sprintf("c%d", i))
	}
	return s
}

func (s *cronStorm) fault(request string) simulate.Fault {
	f := simulate.None
	if s.rng.Float64() < s.faults {
		f = []simulate.Fault{simulate.Refuse, simulate.Lose, simulate.Unreachable, simulate.CrashBefore, simulate.CrashAfter}[s.rng.IntN(5)]
	}
	s.tell("  %s fault=%d", request, f)
	return f
}

func (s *cronStorm) tell(format string, args ...any) {
	if *seedFlag != 0 {
		s.t.Logf("%s "+format, append([]any{s.w.clock.Now().Format(time.TimeOnly)}, args...)...)
	}
}

func (s *cronStorm) submit(name string) {
	r := s.rng
	cron := aCronJob(name, stormSchedules[r.IntN(len(stormSchedules))], withLimits(int32(r.IntN(3)), int32(r.IntN(3))),
		withPolicy([]batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}[r.IntN(3)]))
	if r.IntN(4) == 0 {
		cron.Spec.StartingDeadlineSeconds = ptr.To(int64(r.IntN(200)))
	}
	for _, note := range [][2]string{
		{cronjob.AnnotationCatchUp, "all"},
		{cronjob.AnnotationCatchUp, "none"},
		{cronjob.AnnotationSpread, "40s"},
		{cronjob.AnnotationOnEdit, "future-only"},
		{cronjob.AnnotationConcurrency, "Enqueue"},
	} {
		if r.IntN(6) == 0 {
			metav1.SetMetaDataAnnotation(&cron.ObjectMeta, note[0], note[1])
		}
	}
	stored := s.w.cluster.SubmitCronJob(cron)
	delete(s.edited, name)
	s.born[name] = stored.CreationTimestamp.Time
	s.tell("submit %s %q %s %v", name, cron.Spec.Schedule, cron.Spec.ConcurrencyPolicy, cron.Annotations)
}

func (s *cronStorm) run(steps int) {
	for range steps {
		s.step()
		if s.t.Failed() {
			return
		}
	}
	s.rest()
}

func (s *cronStorm) step() {
	r, w := s.rng, s.w
	switch n := r.IntN(100); {
	case n < 25:
		w.tellCrons(1 + r.IntN(3))
	case n < 50:
		w.tellJobs(1 + r.IntN(3))
	case n < 70:
		w.work(1 + r.IntN(4))
	case n < 90:
		s.advance(time.Duration(r.Int64N(int64([]time.Duration{time.Second, time.Minute, 10 * time.Minute}[r.IntN(3)]))))
	case n < 94:
		s.endJob()
	case n < 97:
		s.edit()
	case n < 98:
		s.tell("restart")
		w.start()
	default:
		s.rare()
	}
	if v := w.cluster.Violations(); len(v) > 0 {
		s.t.Errorf("violated: %v", v)
	}
}

// advance moves the clock to where something is due, or by d, whichever comes first.
func (s *cronStorm) advance(d time.Duration) {
	w := s.w
	end := w.clock.Now().Add(d)
	if next := w.c.advance(w.clock.Now()); !next.IsZero() && next.Before(end) {
		end = next
	}
	w.setTime(end)
	w.alive = end
}

func (s *cronStorm) endJob() {
	var running []*batchv1.Job
	for _, j := range s.w.cluster.Jobs() {
		if len(j.Status.Conditions) == 0 {
			running = append(running, j)
		}
	}
	if len(running) == 0 {
		return
	}
	j := running[s.rng.IntN(len(running))]
	how := batchv1.JobComplete
	if s.rng.IntN(3) == 0 {
		how = batchv1.JobFailed
	}
	s.tell("%s ends: %s", j.Name, how)
	s.w.cluster.EndJob(j.Namespace, j.Name, how)
}

func (s *cronStorm) anyName() string { return fmt.Sprintf("c%d", s.rng.IntN(3)) }

func (s *cronStorm) edit() {
	r, name := s.rng, s.anyName()
	s.tell("edit %s", name)
	s.w.cluster.EditCronJob("default", name, func(c *batchv1.CronJob) {
		switch r.IntN(6) {
		case 0:
			c.Spec.Schedule = stormSchedules[r.IntN(len(stormSchedules))]
			s.edited[name] = true
		case 1:
			c.Spec.Suspend = ptr.To(!*c.Spec.Suspend)
		case 2:
			c.Spec.ConcurrencyPolicy = []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}[r.IntN(3)]
		case 3:
			c.Spec.SuccessfulJobsHistoryLimit = ptr.To(int32(r.IntN(4)))
		case 4:
			c.Spec.TimeZone = ptr.To([]string{"Europe/Berlin", "Asia/Kathmandu"}[r.IntN(2)])
			s.edited[name] = true
		case 5:
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, "note", fmt.Sprint(r.IntN(10)))
		}
	})
}

// rare is what happens once in a while.
func (s *cronStorm) rare() {
	r, w, name := s.rng, s.w, s.anyName()
	switch r.IntN(6) {
	case 0:
		s.tell("sleep")
		before := w.clock.Now()
		w.setTime(before.Add(time.Duration(r.Int64N(int64(3 * time.Hour)))))
		w.c.noticeJump(before, w.clock.Now())
		w.alive = w.clock.Now()
	case 1:
		s.tell("clock set back")
		w.setTime(w.clock.Now().Add(-time.Duration(r.Int64N(int64(10 * time.Minute)))))
		s.w.cluster.Now = w.clock.Now()
		for k := range s.born {
			s.edited[k] = true // creation may lie in the future now
		}
	case 2:
		s.remove(name)
		if r.IntN(2) == 0 {
			s.submit(name)
		}
	case 3:
		if cron := w.cluster.FindCronJob("default", name); cron != nil {
			s.tell("a Job of %s by hand", name)
			if w.cluster.FindJob("default", "by-hand-"+name) == nil {
				w.cluster.Submit(cronjob.JobFor(cron, cronjob.Start{Name: "by-hand-" + name}))
			}
		}
	case 4:
		s.deleteJob()
	case 5:
		s.tell("the watches break off")
		for range 1 + r.IntN(3) {
			w.work(1)
			s.endJob()
			s.edit()
			s.deleteJob()
		}
		w.relist()
	}
}

// remove removes a CronJob with its Jobs. Where there is one of which no status tells yet, the CronJob is seen to be gone before its Jobs
// are: a process that has begun since could not know that the due time was started.
func (s *cronStorm) remove(name string) {
	s.tell("remove %s", name)
	cron := s.w.cluster.FindCronJob("default", name)
	if cron == nil {
		return
	}
	blind := slices.ContainsFunc(s.w.cluster.Jobs(), func(j *batchv1.Job) bool {
		due := cronjob.ChildFromBatch(j).Due
		return metav1.IsControlledBy(j, cron) && !due.IsZero() && !isStored(cron, due)
	})
	s.w.cluster.RemoveCronJob("default", name)
	if blind {
		s.w.tellCrons(math.MaxInt)
	}
}

// isStored reports whether the status tells that a due time is done.
func isStored(cron *batchv1.CronJob, due time.Time) bool {
	return cron.Status.LastScheduleTime != nil && !due.After(cron.Status.LastScheduleTime.Time)
}

// deleteJob deletes a Job as a user does. One of which no status tells yet is left alone: nobody could know then that its due
// time was started.
func (s *cronStorm) deleteJob() {
	for _, j := range s.w.cluster.Jobs() {
		ref := metav1.GetControllerOf(j)
		cron := s.w.cluster.FindCronJob("default", ref.Name)
		due := cronjob.ChildFromBatch(j).Due
		if cron == nil || due.IsZero() || !isStored(cron, due) || s.rng.IntN(2) == 0 {
			continue
		}
		s.tell("user deletes %s", j.Name)
		s.w.cluster.Remove(j.Namespace, j.Name)
		return
	}
}

// rest lets the world come to rest, and checks what must hold then.
func (s *cronStorm) rest() {
	s.faults = 0
	s.tell("rest")
	w := s.w
	w.pass(6 * time.Minute) // longer than anything waits that did not work
	s.checkAll("at once")
	w.pass(2 * time.Hour)
	for range 3 {
		for _, j := range w.cluster.Jobs() {
			w.cluster.EndJob(j.Namespace, j.Name, []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}[s.rng.IntN(2)])
		}
		w.pass(3 * time.Minute)
	}
	s.checkAll("in the end")
}

func (s *cronStorm) checkAll(when string) {
	s.tell("checked %s", when)
	s.w.checkInvariants()
	for _, cron := range s.w.cluster.CronJobs() {
		s.checkAtRest(cron)
	}
}

func (s *cronStorm) checkAtRest(cron *batchv1.CronJob) {
	w, t := s.w, s.t
	key := keyOf(cron)
	children := map[string]*batchv1.Job{}
	classes := map[batchv1.JobConditionType]int{}
	for _, j := range w.cluster.Jobs() {
		if metav1.IsControlledBy(j, cron) {
			children[j.Name] = j
			for _, c := range j.Status.Conditions {
				classes[c.Type]++
			}
		}
	}
	record := w.c.states.get(key).memory.Record(cronjob.FromBatch(cron), cronjob.DefaultOptions())
	if record.Urgency != cronjob.Nothing && w.c.queue.stores.at[key] == nil {
		t.Errorf("%s has something to store (urgency %d) and does not mean to", key, record.Urgency)
	}
	for _, ref := range record.Status.Active {
		if j := children[ref.Name]; j == nil || j.UID != ref.UID {
			t.Errorf("%s lists %s, which does not exist", key, ref.Name)
		} else if len(j.Status.Conditions) > 0 {
			t.Errorf("%s lists %s, which has ended", key, ref.Name)
		}
	}
	if n, limit := classes[batchv1.JobComplete], int(*cron.Spec.SuccessfulJobsHistoryLimit); n > limit {
		t.Errorf("%s keeps %d successful Jobs of %d", key, n, limit)
	}
	if n, limit := classes[batchv1.JobFailed], int(*cron.Spec.FailedJobsHistoryLimit); n > limit {
		t.Errorf("%s keeps %d failed Jobs of %d", key, n, limit)
	}
	if w.c.queue.looks.at[key] == nil && !*cron.Spec.Suspend {
		t.Errorf("%s waits for nothing: it would never start again", key)
	}
	s.checkNothingLost(cron)
}

// checkNothingLost compares the record with the due times that there were.
func (s *cronStorm) checkNothingLost(cron *batchv1.CronJob) {
	o := s.w.observed(cron.Name)
	o.Options.LedgerSize = 1 << 20
	history := cronjob.History(o)
	total := 0
	for _, tick := range history {
		total += tick.Count
		if tick.Outcome == cronjob.Waiting && o.CronJob.Spec.Concurrency == cronjob.Allow && !o.CronJob.Spec.Suspend &&
			cron.Annotations[cronjob.AnnotationConcurrency] == "" && tick.Through.Add(o.Rules.Offset()).Before(o.Now) {
			s.t.Errorf("%s has been waiting for %v", cron.Name, tick.Due)
		}
	}
	if s.edited[cron.Name] || len(history) >= cronjob.DefaultOptions().LedgerSize || o.Rules.Schedule() == nil || o.Rules.Schedule().Every() > 0 {
		return // too old to be remembered in full, or not to be told from the schedule alone
	}
	want := o.Rules.Schedule().Between(s.born[cron.Name], o.Now.Add(-o.Rules.Offset())).Count
	if total != want {
		s.t.Errorf("%s (%s): the record tells of %d due times, there were %d since %v:\n%v", cron.Name, cron.Spec.Schedule, total, want,
			s.born[cron.Name], s.w.history(cron.Name))
	}
}
