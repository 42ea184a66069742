// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/schedule"
)

// readLedger takes the ledger from memory, or from the CronJob the first time, or begins a new one.
func (d *decision) readLedger() {
	c := d.o.CronJob
	stored := c.Annotations[LedgerAnnotation]
	ledger, err := DecodeLedger(d.m.ledger, c.UID)
	if stored != "" && stored != d.m.stored && stored != d.m.ledger {
		// Written by another process, or put back by somebody.
		if other, otherErr := DecodeLedger(stored, c.UID); otherErr == nil {
			if err == nil {
				ledger.merge(other)
			} else {
				ledger, err = other, nil
				d.m.witness = other.lastStart()
			}
		}
	}
	d.m.stored = stored
	d.m.urgent = d.m.urgent && stored != d.m.ledger
	if err == nil {
		d.ledger = ledger
		return
	}
	d.ledger = Ledger{Until: d.anchor(), Key: d.r.key}
	if d.r.futureOnly {
		d.ledger.Generation = c.Generation
		if c.Generation > 1 {
			d.ledger.Floor = d.o.Now // it may have been edited unseen
		}
	}
	for _, child := range d.sorted { // the Jobs of before are a beginning
		if child.scheduledBy(c.Name) && !child.Due.After(d.ledger.Until) {
			d.ledger.set(d.r.schedule, d.startOf(child))
		}
	}
}

// startOf returns the entry for a Job that exists.
func (d *decision) startOf(c *Child) Tick {
	t := Tick{Due: c.Due, Outcome: Started, Late: max(0, c.Created.Sub(c.Due.Add(d.r.offset))), Result: c.Result}
	if c.finished() {
		t.Took = c.took()
	}
	return t
}

// noticeEdit finds out whether the schedule has changed since the decision before, or since the ledger was written.
func (d *decision) noticeEdit() {
	c, r, l, before := d.o.CronJob, d.r, &d.ledger, d.o.Memory.rules
	floor := l.Floor
	if c.Deleting {
		return
	}
	switch {
	case before != nil && before.key != r.key:
		// What came due under the old schedule and was not started is lost, as it is upstream. What the new one would have
		// been due before never was.
		if before.schedule != nil {
			outcome := SkippedEdited
			if !l.Suspended.IsZero() {
				outcome = SkippedSuspended
			}
			l.add(before.schedule.Between(d.lastLink(before.schedule), d.o.Now), outcome, "")
			d.makeRoom(before)
		}
		d.dropQueue()
		l.Until = later(l.Until, d.o.Now.Truncate(time.Second))
		l.Origin = l.Until
		l.Floor = d.o.Now
		d.held = true
		d.m.urgent = true
	case before == nil && l.Key != r.key:
		// Edited unseen: when, nobody knows.
		d.dropQueue()
		l.Origin = l.Until
		l.Floor = d.o.Now
	case before == nil && r.futureOnly && l.Generation != c.Generation:
		l.Floor = d.o.Now // suspended and resumed, perhaps
	}
	if !r.futureOnly {
		l.Floor = time.Time{}
	}
	d.m.urgent = d.m.urgent || r.futureOnly && (!l.Floor.Equal(floor) || l.Generation != c.Generation)
	l.Edge = l.Edge || l.Key != r.key
	l.Key, l.Generation = r.key, 0
	if r.futureOnly {
		l.Generation = c.Generation
	}
}

// makeRoom divides the entries of the old schedule where the newest due time of the new one lies, the only one of before the edit
// that may still be started.
func (d *decision) makeRoom(before *Rules) {
	if d.r.schedule == nil {
		return
	}
	l := &d.ledger
	due := d.r.schedule.Between(d.anchor(), d.o.Now).Last
	for _, last := range [...]time.Time{due.Add(-1), due} {
		if i, ok := l.at(due); ok && l.Ticks[i].Due.After(l.Origin) {
			l.cut(before.schedule, i, last)
		}
		if i := slices.IndexFunc(l.Ticks, func(t Tick) bool { return t.Due.After(last) }); i >= 0 {
			l.Ticks[i].Edge = true // or they would be joined again
		}
	}
}

// dropQueue gives up what was waiting to be started.
func (d *decision) dropQueue() {
	for i := range d.ledger.Ticks {
		switch t := &d.ledger.Ticks[i]; {
		case t.blocked():
			t.Outcome = SkippedActive
		case t.Outcome == Waiting:
			t.Outcome = SkippedEdited
		}
	}
}

// suspend notes that the CronJob is suspended, so that later it is known which due times fell into that time.
func (d *decision) suspend() {
	if d.ledger.Suspended.IsZero() {
		if d.r.schedule != nil {
			d.book()
		}
		d.ledger.Suspended = d.o.Now
	}
}

// book enters every due time that has passed since the ledger was last brought up to date.
func (d *decision) book() {
	d.bookTo(d.now)
	if !d.o.CronJob.Spec.Suspend && !d.ledger.Suspended.IsZero() {
		d.ledger.Suspended = time.Time{}
		if d.r.futureOnly {
			d.ledger.Floor = d.o.Now
			d.m.urgent = true
		}
	}
	d.settleWaiting()
}

// bookTo enters the due times after ledger.Until up to that instant. At first each is entered as what it is if it is not started
// any more; candidates then look for those that still may be.
func (d *decision) bookTo(until time.Time) {
	s, l := d.r.schedule, &d.ledger
	if s == nil || !until.After(l.Until) {
		return
	}
	from := d.lastLink(s)
	for _, cut := range d.cuts(from, until) {
		run := s.Between(from, cut)
		if run.Count == 0 {
			continue
		}
		outcome, detail := d.classify(run.Last)
		l.add(run, outcome, detail)
		from = run.Last
		l.Until = run.Last
	}
}

// lastLink returns from where the chain of due times after ledger.Until goes on.
func (d *decision) lastLink(s *schedule.Schedule) time.Time {
	if s.Every() == 0 {
		return d.ledger.Until
	}
	// The phase follows from the anchor.
	from := d.anchor()
	if run := s.Between(from, d.ledger.Until); run.Count > 0 {
		from = run.Last
	}
	return from
}

// bookStart enters a Job that exists, after everything before it.
func (d *decision) bookStart(c *Child) {
	t := d.startOf(c)
	t.Edge = d.ledger.Edge
	d.ledger.Edge = false
	d.ledger.set(d.r.schedule, t)
	d.ledger.Until = later(d.ledger.Until, c.Due)
}

// cuts returns the instants at which due times begin to fare differently, in order, each being the last of its part, and until.
func (d *decision) cuts(from, until time.Time) []time.Time {
	cuts := []time.Time{d.status.LastSchedule, d.resumed(), d.awake().Add(-1), until}
	if d.r.futureOnly {
		cuts = append(cuts, d.ledger.Floor)
	}
	for _, c := range d.blockers() {
		cuts = append(cuts, c.Created.Add(-1), c.Ended.Add(-1))
	}
	cuts = slices.DeleteFunc(cuts, func(t time.Time) bool { return !t.After(from) || t.After(until) })
	slices.SortFunc(cuts, time.Time.Compare)
	return cuts
}

// awake returns since when due times are watched, in terms of due times. It is never in the future, even if the clock was set
// back since.
func (d *decision) awake() time.Time { return earlier(d.o.Awake.Add(-d.r.offset), d.now) }

// resumed returns the last instant at which the CronJob was still suspended, in terms of due times; zero: it was not. Where
// nobody saw it resumed, it is taken to have lasted until somebody looked.
func (d *decision) resumed() time.Time {
	switch {
	case d.ledger.Suspended.IsZero():
		return time.Time{}
	case d.o.Memory.rules == nil && !d.o.CronJob.Spec.Suspend:
		return d.awake()
	}
	return d.now
}

// classify returns what became of a due time that has passed.
func (d *decision) classify(due time.Time) (outcome Outcome, detail string) {
	switch {
	case !due.After(d.status.LastSchedule):
		return SkippedElsewhere, ""
	case !due.After(d.resumed()):
		return d.queued(due, SkippedSuspended), ""
	case d.isPast(due):
		return SkippedEdited, ""
	case !due.Before(d.awake()):
		if d.r.queues() {
			return Waiting, ""
		}
		return MissedLate, "" // the newest is picked out by settleWaiting
	}
	for _, c := range d.blockers() {
		if !due.Before(c.Created) && (c.Ended.IsZero() || due.Before(c.Ended)) {
			return d.queued(due, SkippedActive), c.Name
		}
	}
	return d.queued(due, MissedAway), ""
}

// queued returns Waiting for a missed due time that is to be caught up in its turn, and else the outcome it has.
func (d *decision) queued(due time.Time, missed Outcome) Outcome {
	if d.r.catchesUpAll() && !d.isPast(due) {
		return Waiting
	}
	return missed
}

// isPast reports whether a due time must not be started because it lies before the last edit.
func (d *decision) isPast(due time.Time) bool { return d.r.futureOnly && !due.After(d.ledger.Floor) }

// blockers returns the Jobs under which Forbid lets no other start.
func (d *decision) blockers() []*Child {
	if d.r.concurrency != Forbid || d.r.queues() {
		return nil
	}
	var jobs []*Child
	for _, c := range d.sorted {
		if lists(d.status.Active, c.UID) || c.scheduledBy(d.o.CronJob.Name) && c.finished() && !c.Ended.IsZero() {
			jobs = append(jobs, c)
		}
	}
	return jobs
}

// settleWaiting gives the entries that have been waiting the outcome they have if they wait no longer, and lets the newest wait.
func (d *decision) settleWaiting() {
	l, s := &d.ledger, d.r.schedule
	if newest := l.find(l.Until); newest != nil && l.Until.After(d.booked) {
		missed := newest.Outcome == MissedAway || newest.Outcome == SkippedSuspended || newest.Outcome == SkippedActive
		switch {
		case newest.Outcome == MissedLate,
			d.r.concurrency == Enqueue && d.r.catchUp == CatchUpLatest && missed && !d.isPast(l.Until):
			l.set(s, Tick{Due: l.Until, Outcome: Waiting})
		}
	}
	newest := d.passed().Last // not booked if it was due before an edit
	for i := range l.Ticks {
		t := &l.Ticks[i]
		if t.Outcome != Waiting {
			continue
		}
		switch {
		case !t.Through.After(d.status.LastSchedule) && t.Detail != "":
			t.Outcome = SkippedActive
		case !t.Through.After(d.status.LastSchedule):
			t.Outcome = SkippedElsewhere
		case d.r.queues(), t.Through.Equal(l.Until), t.Through.Equal(newest):
		case t.Detail != "":
			t.Outcome = SkippedActive
		default:
			t.Outcome = MissedLate
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
