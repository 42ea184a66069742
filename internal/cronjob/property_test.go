// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/schedule"
)

// TestWhateverHappensNoDueTimeIsStartedTwiceOrLost lives through random years. DROVER_ROUNDS says how many, DROVER_SEED which.
func TestWhateverHappensNoDueTimeIsStartedTwiceOrLost(t *testing.T) {
	n, first := 120, uint64(time.Now().UnixNano())
	if text := os.Getenv("DROVER_ROUNDS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	if text := os.Getenv("DROVER_SEED"); text != "" {
		first, _ = strconv.ParseUint(text, 10, 64)
		n = 1
	}
	for seed := first; seed < first+uint64(n); seed++ {
		live(t, seed)
		if t.Failed() {
			t.Fatalf("run again with DROVER_SEED=%d", seed)
		}
	}
}

func FuzzLives(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		live(t, seed)
		if t.Failed() {
			t.Fatalf("run again with DROVER_SEED=%d", seed)
		}
	})
}

var liveZones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe", "Asia/Beirut", "America/Sao_Paulo",
	"Africa/Casablanca", "America/St_Johns", "America/Havana", "Asia/Kathmandu", "Pacific/Chatham", "America/Santiago",
	"Europe/Dublin", "Antarctica/Troll", "Asia/Gaza", "America/Nuuk", "Africa/Cairo",
}

var liveSchedules = []string{
	"* * * * *", "*/5 * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 2 * * *", "15 1,2,3 * * *", "0 0 * * *", "30 6-16/4 * * 1-5",
	"30 10,11,12 * * 1-5", "0 0 1 * *", "0 0 13 * 5", "@every 90m", "@every 25h", "@every 61s", "@every 10s", "0 0 29 2 *", "59 23 31 12 *",
	"*/20 1-3 * * 0", "@hourly", "@every 7m30s",
}

// life is a world in which everything is recorded that the invariants need.
type life struct {
	*world
	r     *rand.Rand
	eras  []era
	names map[string]bool
	last  time.Time     // the due time of the newest Job
	back  time.Duration // by how much the clock was set back in all
	rough bool          // the ledger cannot be exact
	lost  bool          // something failed in the sync that goes on
}

// era is a time in which one schedule was in force.
type era struct {
	schedule *schedule.Schedule
	from     time.Time // where its chain of due times begins
	edited   time.Time // due times up to here are not its
	until    time.Time
	past     []time.Time // the newest of those, which may be started all the same
}

func live(t *testing.T, seed uint64) {
	t.Helper()
	r := seededFrom(seed)
	z, err := time.LoadLocation(liveZones[r.IntN(len(liveZones))])
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2010+r.IntN(25), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(2)*r.IntN(1e9), time.UTC)
	if _, change := start.In(z).ZoneBounds(); !change.IsZero() && r.IntN(2) == 0 {
		start = change.Add(-time.Duration(r.Int64N(2 * 86400 * 1e9)))
	}
	c := newCronJob(pick(r, liveSchedules), randomOptions(r, z.String())...)
	l := &life{world: newWorld(t, start, c), r: r, names: map[string]bool{}}
	l.quiet = os.Getenv("DROVER_SEED") == ""
	l.ledgerSize = 1 << 20 // nothing is forgotten
	l.lag = time.Duration(r.IntN(3)*r.IntN(2000)) * time.Millisecond
	l.onCreate = l.checkCreation
	l.onSync = l.checkSync
	faulty := r.IntN(3) == 0
	l.fault = func(string) (error, bool) {
		if !faulty || r.IntN(5) > 0 {
			return nil, true
		}
		l.lost = true
		switch r.IntN(3) {
		case 0:
			return errors.New("connection reset by peer"), true // the answer is lost
		case 1:
			return errors.New("connection refused"), false
		}
		return apierrors.NewForbidden(resource, "x", errors.New("exceeded quota")), false
	}
	mean := time.Duration(1+r.IntN(3)*r.IntN(3000)) * time.Second
	l.run = func(*batchv1.Job) (time.Duration, batchv1.JobConditionType) {
		how := batchv1.JobComplete
		if r.IntN(4) == 0 {
			how = batchv1.JobFailed
		}
		return time.Duration(r.Int64N(2*int64(mean))) + 1, how
	}
	defer func() {
		if t.Failed() && !l.quiet {
			t.Log("\n" + strings.Join(l.log, "\n"))
		}
	}()
	l.beginEra(l.cron.CreationTimestamp.Time)
	l.start()
	horizon := l.horizon()
	for range 3 + r.IntN(25) {
		l.forward(time.Duration(r.Int64N(int64(horizon) / 10)))
		l.somethingHappens(horizon)
		if t.Failed() {
			return
		}
	}
	l.checkEnd()
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func randomOptions(r *rand.Rand, zone string) []option {
	options := []option{
		policy(pick(r, []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent})),
		history(int32(r.IntN(4)), int32(r.IntN(3))),
		func(c *batchv1.CronJob) {
			c.Annotations, c.Spec.StartingDeadlineSeconds, c.Spec.TimeZone = ledgerOf(c), nil, nil
		},
	}
	if r.IntN(3) > 0 {
		options = append(options, inZone(zone))
	}
	if r.IntN(3) == 0 {
		options = append(options, deadline(r.Int64N(2)*r.Int64N(5000)))
	}
	for _, a := range []struct {
		key    string
		values []string
	}{
		{AnnotationDST, []string{"once", "skip", "both"}},
		{AnnotationCatchUp, []string{"none", "all", "latest"}},
		{AnnotationCatchUpLimit, []string{"1", "7", "1000"}},
		{AnnotationSpread, []string{"1m", "1h", "90s"}},
		{AnnotationOnEdit, []string{"future-only"}},
		{AnnotationConcurrency, []string{"Enqueue"}},
		{AnnotationMaxActive, []string{"1", "3"}},
	} {
		if value := pick(r, a.values); r.IntN(4) == 0 {
			options = append(options, annotated(a.key, value))
		}
	}
	return options
}

func ledgerOf(c *batchv1.CronJob) map[string]string {
	if text, ok := c.Annotations[LedgerAnnotation]; ok {
		return map[string]string{LedgerAnnotation: text}
	}
	return nil
}

// horizon returns a time in which a few hundred due times pass.
func (l *life) horizon() time.Duration {
	s := Read(FromBatch(l.cron), time.LoadLocation, time.UTC).Schedule()
	d := time.Hour
	for d < 4*366*24*time.Hour && s.Between(l.now, l.now.Add(d)).Count < 60 {
		d *= 2
	}
	return d
}

func (l *life) beginEra(from time.Time) {
	rules := Read(FromBatch(l.cron), time.LoadLocation, time.UTC)
	l.eras = append(l.eras, era{schedule: rules.Schedule(), from: from, edited: from})
}

// editSchedule edits the CronJob and notes from when on which schedule is in force. An edit that would make far more due times
// than the rest of the life has is left out.
func (l *life) editSchedule(horizon time.Duration, options ...option) {
	if l.ctl == nil {
		return // edits that nobody sees leave it open when they were made
	}
	next := l.cron.DeepCopy()
	for _, o := range options {
		o(next)
	}
	if s := Read(FromBatch(next), time.LoadLocation, time.UTC).Schedule(); s.Between(l.now, l.now.Add(horizon)).Count > 500 {
		return
	}
	before := Read(FromBatch(l.cron), time.LoadLocation, time.UTC)
	d := begin(l.observe())
	anchor, booked := d.anchor(), d.ledger.Until // the clock may have been set back since
	l.edit("edits to "+next.Spec.Schedule, options...)
	after := Read(FromBatch(l.cron), time.LoadLocation, time.UTC)
	if before.key == after.key {
		return
	}
	e := &l.eras[len(l.eras)-1]
	e.until = later(l.now, booked)
	edited := l.now.Truncate(time.Second)
	for at := booked; !at.IsZero() && !at.After(e.until); at = e.schedule.Next(at) {
		edited = later(edited, at)
	}
	from := edited
	if after.schedule.Every() > 0 {
		from = begin(l.observe()).anchor() // what the controller takes for the last due time that was started
	}
	// The ledger can only divide entries of the schedule before. Where an edit makes a due time of still earlier schedules
	// startable, or due times overlap because the clock is behind, it tells roughly what it told exactly.
	l.rough = l.rough || l.back > 0
	past := []time.Time{after.schedule.Between(anchor, l.now).Last, after.schedule.Between(anchor, edited).Last}
	for _, at := range past {
		l.rough = l.rough || len(l.eras) > 1 && !at.After(e.edited)
	}
	l.eras = append(l.eras, era{schedule: after.schedule, from: from, edited: edited, past: past})
	// A process that ends before it has stored the edit leaves nobody who knows when it was.
	for range 60 {
		if ledger, err := DecodeLedger(l.cron.Annotations[LedgerAnnotation], l.cron.UID); err == nil && ledger.Key == after.key {
			return
		}
		l.forward(time.Second)
	}
	l.t.Errorf("%v: an edit is not stored", l.now)
}

func (l *life) somethingHappens(horizon time.Duration) {
	r := l.r
	pause := time.Duration(r.Int64N(int64(horizon)/20 + 1))
	switch r.IntN(12) {
	case 0, 1:
		l.kill()
		l.forward(pause)
		l.start()
	case 2: // the process ends somewhere between its writes
		if l.ctl != nil {
			l.act(Decide(l.observe()))
			l.kill()
			l.forward(time.Duration(r.Int64N(2) * int64(pause)))
			l.start()
		}
	case 3:
		l.edit("suspends", suspended(true))
		l.forward(pause)
		if r.IntN(3) > 0 {
			l.edit("resumes", suspended(false))
		}
	case 4:
		l.edit("resumes", suspended(false))
	case 5:
		l.editSchedule(horizon, scheduled(pick(r, liveSchedules)))
	case 6:
		zone := pick(r, liveZones)
		l.editSchedule(horizon, randomOptions(r, zone)...)
	case 7: // the machine sleeps
		if l.ctl != nil {
			l.sleep(pause)
		}
	case 8: // the clock is set back
		l.forward(l.lag) // watch events are not told in another order
		back := time.Duration(r.Int64N(int64(3 * time.Hour)))
		l.back += back
		l.now = l.now.Add(-back)
		l.tell("the clock was set back")
		l.sync()
	case 9:
		if names := sortedNames(l.jobs); len(names) > 0 {
			l.remove(pick(r, names))
		}
	case 10:
		if l.ctl != nil {
			l.createJob(Start{Name: TriggerName(l.cron.Name, l.now)})
		}
	case 11:
		if l.ctl != nil {
			o := l.observe()
			if p, err := Trigger(o, true); err == nil {
				l.act(p)
			}
		}
	}
}

func sortedNames(jobs map[string]*batchv1.Job) []string {
	var names []string
	for name := range jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkCreation looks at every Job as it is created.
func (l *life) checkCreation(j *batchv1.Job) {
	child := ChildFromBatch(j)
	if l.names[j.Name] {
		l.t.Errorf("%v: %s is created a second time", l.now, j.Name)
	}
	l.names[j.Name] = true
	if child.Due.IsZero() {
		return
	}
	if !child.Due.After(l.last) {
		l.t.Errorf("%v: %s for %v is created after one for %v", l.now, j.Name, child.Due, l.last)
	}
	l.last = child.Due
	rules := l.ctl.rules
	spec := FromBatch(l.ctl.cron).Spec
	if spec.Suspend || l.ctl.cron.DeletionTimestamp != nil {
		l.t.Errorf("%v: %s is created although the CronJob is suspended or going", l.now, j.Name)
	}
	shifted := l.now.Add(-rules.Offset())
	if child.Due.After(shifted) {
		l.t.Errorf("%v: %s is created before it is due: %v, offset %v", l.now, j.Name, child.Due, rules.Offset())
	}
	if spec.StartingDeadline != nil && child.Due.Add(*spec.StartingDeadline).Before(shifted.Truncate(time.Second)) {
		l.t.Errorf("%v: %s is created after its deadline: %v + %v", l.now, j.Name, child.Due, *spec.StartingDeadline)
	}
	active := 0
	for _, other := range l.jobs {
		c := ChildFromBatch(other)
		known := c.Triggered && l.now.Sub(c.Created) > l.lag+time.Second // the cache shows what others start, in time
		if other.Name != j.Name && (!c.Due.IsZero() || known) && !c.finished() {
			active++
		}
	}
	limit := map[Concurrency]int{Allow: 1 << 30, Forbid: 0, Replace: 0, Enqueue: rules.maxActive - 1}[rules.concurrency]
	if active > limit {
		l.t.Errorf("%v: %s is created beside %d active Jobs under %s", l.now, j.Name, active, rules.concurrency)
	}
}

// checkSync looks at every decision.
func (l *life) checkSync(o Observed, p Plan, a Accounting) {
	failed := l.lost
	l.lost = false
	c := o.CronJob
	if c.Spec.Suspend || c.Deleting || o.Rules.schedule == nil {
		return
	}
	if a.Wake.IsZero() {
		l.t.Errorf("%v: nothing will wake this CronJob; %v", l.now, p.Because)
	}
	edited := o.Memory.rules != nil && o.Memory.rules.key != o.Rules.key // holds past due times back until the next decision
	if failed || edited || len(p.Check) > 0 || l.lag > 0 || l.ctl == nil || l.ctl.cron.ResourceVersion != l.cron.ResourceVersion {
		return
	}
	// Deciding again on the world that the plan has produced gives an empty plan.
	again := o
	again.Memory = a.Memory
	again.Children = nil
	for _, j := range l.jobs {
		again.Children = append(again.Children, ChildFromBatch(j))
		planned := slices.ContainsFunc(p.Start, func(s Start) bool { return s.Name == j.Name })
		seen := slices.ContainsFunc(o.Children, func(c Child) bool { return c.UID == j.UID })
		if !planned && !seen {
			return // the cache will tell before long
		}
	}
	for _, c := range o.Children {
		planned := slices.ContainsFunc(slices.Concat(p.Tidy, p.Replace), func(d Deletion) bool { return d.UID == c.UID })
		if j := l.jobs[c.Name]; (j == nil || j.UID != c.UID || ChildFromBatch(j) != c) && !planned {
			return // likewise
		}
	}
	moreToStart := len(p.Start) == o.Options.MaxStarts
	q := Decide(again)
	if len(q.Check)+len(q.Replace)+len(q.Tidy)+len(q.Events) > 0 || len(q.Start) > 0 && !moreToStart {
		l.t.Errorf("%v: decided again, the plan is not empty: %v\nafter %v", l.now, q.Because, p.Because)
	}
}

// checkEnd lets everything come to rest and compares the ledger with what has come due.
func (l *life) checkEnd() {
	l.fault = nil
	if l.ctl == nil {
		l.start()
	}
	l.edit("resumes", suspended(false))
	l.forward(l.back + 2*time.Minute)
	t := l.t
	ledger, err := DecodeLedger(l.ctl.memory.ledger, l.cron.UID)
	if err != nil {
		t.Fatal(err)
	}
	shifted := l.now.Add(-l.ctl.rules.Offset())
	l.eras[len(l.eras)-1].until = later(shifted, ledger.Until)

	var due []time.Time
	for _, e := range l.eras {
		at := e.from
		for at = e.schedule.Next(at); !at.IsZero() && !at.After(e.until); at = e.schedule.Next(at) {
			if at.After(e.edited) {
				due = append(due, at.UTC())
			}
		}
	}
	for i, tick := range ledger.Ticks {
		if i > 0 && !ledger.Ticks[i-1].Through.Before(tick.Due) {
			t.Errorf("ledger out of order: %v", ledger.Ticks[i-1:i+1])
		}
		if tick.Outcome == Started && !l.names[tick.Job(l.cron.Name)] {
			t.Errorf("%v is entered as started, and no Job was", tick.Due)
		}
	}
	for _, j := range l.created {
		c := ChildFromBatch(j)
		if c.Due.IsZero() {
			continue
		}
		if !ledger.started(c.Due) {
			t.Errorf("%s was created, and the ledger does not know: %+v", j.Name, ledger.find(c.Due))
		}
	}
	for _, at := range due {
		if ledger.find(at) == nil && !l.rough {
			t.Errorf("due %v, and the ledger does not know", at)
		}
	}
	var odd []string
	surplus := 0
	for _, tick := range ledger.Ticks {
		n := 0
		for _, at := range due {
			if !at.Before(tick.Due) && !at.After(tick.Through) {
				n++
			}
		}
		for _, e := range l.eras {
			for _, at := range e.past {
				if _, isDue := slices.BinarySearchFunc(due, at, time.Time.Compare); !isDue && !at.Before(tick.Due) && !at.After(tick.Through) {
					n = max(n, min(n+1, tick.Count))
				}
			}
		}
		if n != tick.Count {
			odd = append(odd, fmt.Sprintf("%d due times in entry %s", n, row(l.cron.Name, tick)))
		}
		surplus += tick.Count - n
	}
	if surplus != 0 && !l.rough {
		t.Errorf("the ledger counts %d due times too many:\n%s", surplus, strings.Join(odd, "\n"))
	}
	l.edit("suspends", suspended(true))
	l.forward(5 * time.Hour) // the longest Job takes less
	var done, dead int
	for _, j := range l.jobs {
		switch ChildFromBatch(j).Result {
		case Complete:
			done++
		case Failed:
			dead++
		default: // it runs
		}
	}
	if limit := int(*l.cron.Spec.SuccessfulJobsHistoryLimit); done > limit {
		t.Errorf("%d successful Jobs are kept, not %d", done, limit)
	}
	if limit := int(*l.cron.Spec.FailedJobsHistoryLimit); dead > limit {
		t.Errorf("%d failed Jobs are kept, not %d", dead, limit)
	}
	for _, ref := range l.cron.Status.Active {
		t.Errorf("%s is listed as active at the end", ref.Name)
	}
	if t.Failed() {
		for _, tick := range ledger.Ticks {
			t.Log(row(l.cron.Name, tick))
		}
	}
	_ = metav1.Time{}
}
