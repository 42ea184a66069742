// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"time"
)

// start decides which due times are started now.
func (d *decision) start() {
	due := d.candidates()
	if len(due) == 0 {
		return
	}
	if d.now.Before(d.ledger.Until) {
		d.because("the clock is behind: everything until %s is done", told(d.ledger.Until))
		d.wake(d.ledger.Until.Add(d.r.offset))
		return
	}
	if due[0].Equal(d.m.failedDue) && d.o.Now.Before(d.m.retryAt) {
		d.because("the start for %s did not work: it is tried again at %s", told(due[0]), told(d.m.retryAt))
		d.wake(d.m.retryAt)
		return
	}
	if d.r.concurrency != Allow && !due[0].Equal(d.m.failedDue) && d.o.Now.Before(d.m.unsure) {
		// Nobody knows whether the Job for the due time before runs.
		//
		// Differs: upstream may start a second one under Forbid.
		d.because("the outcome of the start for %s is not known yet", told(d.m.failedDue))
		d.wake(d.m.unsure)
		return
	}
	places := d.places()
	if places <= 0 {
		d.block(due[0])
		return
	}
	if d.r.concurrency == Replace && !d.replace() {
		return
	}
	n := min(places, len(due), d.o.Options.MaxStarts)
	for _, at := range due[:n] {
		d.plan.Start = append(d.plan.Start, Start{Name: JobName(d.o.CronJob.Name, at), Due: at.In(d.r.zone)})
		d.because("%s is due", told(at))
	}
	if n < places && n < len(due) {
		d.wake(d.o.Now) // for the others
	}
}

// places returns how many Jobs the concurrency policy lets start now.
func (d *decision) places() int {
	active := len(d.status.Active)
	switch d.r.concurrency {
	case Forbid:
		return 1 - active
	case Enqueue:
		return d.r.maxActive - active
	default: // Allow, and Replace, which makes room
	}
	return d.r.limit
}

// replace plans to delete every active Job. It returns false if one of them must be stored first.
//
// Differs: upstream reads each Job first, and reports FailedGet when it is gone already; here a Job that is gone is replaced.
func (d *decision) replace() bool {
	for _, ref := range d.status.Active {
		del := Deletion{Name: ref.Name, UID: ref.UID}
		if c := d.children[ref.UID]; c != nil {
			del.due, del.created = c.Due, c.Created
			if d.isUnstored(c) {
				d.because("%s is to be replaced once the status says that it was started", c.Name)
				d.m.rush, d.plan.AfterStore, d.plan.Replace = true, true, nil
				return false
			}
		}
		d.plan.Replace = append(d.plan.Replace, del)
	}
	for _, del := range d.plan.Replace {
		d.tell(ReplacedJob, del.Name)
	}
	if n := len(d.plan.Replace); n > 0 {
		d.because("%d Jobs are replaced", n)
	}
	return true
}

// block notes that active Jobs are in the way of a due time.
func (d *decision) block(due time.Time) {
	name := "a Job"
	if len(d.status.Active) > 0 {
		name = d.status.Active[0].Name
	}
	d.because("%s is due, and %s is still active", told(due), name)
	if d.r.queues() {
		if d.r.concurrency == Forbid && d.ledger.Until.After(d.booked) {
			d.tell(AlreadyActive)
		}
		return
	}
	entry := d.ledger.find(due)
	if entry == nil || !entry.blocked() {
		d.tell(AlreadyActive)
	}
	outcome := Waiting
	if d.r.catchUp == CatchUpNone {
		outcome = SkippedActive
	}
	d.ledger.set(d.r.schedule, Tick{Due: due, Outcome: outcome, Detail: name})
}

// blocked reports whether it is noted that active Jobs are in the way.
func (t *Tick) blocked() bool { return t.Outcome == Waiting && t.Detail != "" }

// candidates returns the due times that may be started, in order; of a long queue a little more than one plan can start.
func (d *decision) candidates() []time.Time {
	switch {
	case d.r.queues():
		d.boundQueue()
		if d.held {
			return nil
		}
		return d.queue()
	case d.held:
		d.because("the schedule was edited just now: due times of before wait for another reason to look")
		return nil
	}
	if due := d.latest(); !due.IsZero() {
		return []time.Time{due}
	}
	return nil
}

// latest returns the most recent due time if it may be started, else the zero time.
func (d *decision) latest() time.Time {
	s := d.r.schedule
	run := d.passed()
	due := run.Last
	if run.Count == 0 {
		if d.anchor().After(d.now) {
			d.because("the last start, or the creation, lies in the future: %s", told(d.anchor()))
		}
		return time.Time{}
	}
	entry, isNew := d.ledger.find(due), due.After(d.booked)
	switch {
	case entry != nil && entry.Outcome == Started:
		return time.Time{}
	case !due.After(d.ledger.Origin) && !s.Next(due).After(d.ledger.Origin):
		return time.Time{} // with a spread: another one takes its place before long
	case d.sharesMinute(due):
		if entry != nil {
			d.ledger.set(s, Tick{Due: due, Outcome: SkippedMinute})
		}
		return time.Time{}
	case d.isPast(due):
		d.because("%s was due before the schedule was edited or resumed", told(due))
		return time.Time{}
	case d.r.catchUp == CatchUpNone && !d.onTime(due, entry):
		d.because("%s was missed, and is not caught up", told(due))
		return time.Time{}
	}
	if isNew && d.manyMissed(run.Count) {
		d.tell(TooManyMissedTimes)
	}
	if d.tooLate(due) {
		d.because("%s is too late by now", told(due))
		d.miss(due, entry, isNew)
		return time.Time{}
	}
	return due
}

// sharesMinute reports whether the due time lies in the minute of the last start, so that its Job's name is taken.
//
// Differs: upstream tries to create the Job again, and with luck moves lastScheduleTime on.
func (d *decision) sharesMinute(due time.Time) bool {
	last := d.status.LastSchedule
	return !last.IsZero() && minute(due) == minute(last)
}

// onTime reports whether the due time was watched when it came, and nothing but our own trouble has kept it from being started.
func (d *decision) onTime(due time.Time, entry *Tick) bool {
	if entry == nil {
		return false
	}
	switch entry.Outcome {
	case Waiting, FailedStart:
		return true
	case MissedAway:
		return !due.Before(d.awake().Add(-d.o.Options.Grace))
	default:
		return false
	}
}

// manyMissed reports whether so many due times have passed, within startingDeadlineSeconds, that it is worth a warning.
//
// Differs: upstream estimates their number from the first two, which is wrong for irregular schedules.
func (d *decision) manyMissed(count int) bool {
	if deadline := d.o.CronJob.Spec.StartingDeadline; deadline != nil {
		count -= d.r.schedule.Between(d.anchor(), d.now.Add(-*deadline)).Count
	}
	return count > manyMissed
}

// tooLate reports whether startingDeadlineSeconds is over for the due time. Lateness counts in whole seconds.
//
// Differs: upstream compares fractions, so that with a deadline of 0 nothing is ever started.
func (d *decision) tooLate(due time.Time) bool {
	return due.Before(d.deadline())
}

// deadline returns the instant before which due times are too late; the zero time when there is no such limit.
func (d *decision) deadline() time.Time {
	limit := d.o.CronJob.Spec.StartingDeadline
	if limit == nil {
		return time.Time{}
	}
	return d.now.Truncate(time.Second).Add(-*limit)
}

// miss gives up a due time whose deadline is over, and says so once.
//
// Differs: upstream has the event, and its search never finds a due time that would cause it.
func (d *decision) miss(due time.Time, entry *Tick, isNew bool) {
	outcome := MissedDeadline
	switch {
	case entry == nil:
		return // due before the schedule was edited
	case entry.blocked():
		entry.Outcome = SkippedActive // AlreadyActive has told it
		return
	case entry.Outcome == MissedAway:
		outcome = MissedAway
		if !isNew {
			return
		}
	case entry.Outcome != Waiting && entry.Outcome != FailedStart:
		return
	}
	d.tell(MissSchedule, due.UTC().Format(time.RFC1123Z))
	d.ledger.set(d.r.schedule, Tick{Due: due, Outcome: outcome, Detail: entry.Detail})
}

// queue returns the due times that wait to be started, in order: at most one more than one plan can start.
func (d *decision) queue() []time.Time {
	var due []time.Time
	enough := d.o.Options.MaxStarts + 1
	for _, t := range d.ledger.Ticks {
		if !d.waits(&t) {
			continue
		}
		at := t.Due
		for range min(t.Count, enough-len(due)) {
			due = append(due, at)
			at = d.r.schedule.Next(at)
		}
	}
	if len(due) > 0 && d.sharesMinute(due[0]) {
		d.ledger.set(d.r.schedule, Tick{Due: due[0], Outcome: SkippedMinute})
		due = due[1:]
	}
	return due
}

// waits reports whether an entry is part of the queue: what waits for its turn, and what could not be started yet.
func (d *decision) waits(t *Tick) bool {
	return t.Outcome == Waiting || t.Outcome == FailedStart && t.Due.After(d.status.LastSchedule) && t.Due.After(d.ledger.Origin)
}

// boundQueue gives up what has waited for too long, and the oldest of what is too much.
func (d *decision) boundQueue() {
	l, s := &d.ledger, d.r.schedule
	deadline := d.deadline()
	var missed time.Time
	for i := 0; i < len(l.Ticks); i++ {
		if !d.waits(&l.Ticks[i]) || !l.Ticks[i].Due.Before(deadline) {
			continue
		}
		l.cut(s, i, deadline.Add(-1))
		l.Ticks[i].Outcome = MissedDeadline
		missed = l.Ticks[i].Through
	}
	if !missed.IsZero() {
		d.because("%s and what waited before it is too late by now", told(missed))
		d.tell(MissSchedule, missed.UTC().Format(time.RFC1123Z))
	}

	excess := -d.r.limit
	for i := range l.Ticks {
		if d.waits(&l.Ticks[i]) {
			excess += l.Ticks[i].Count
		}
	}
	if excess > 0 {
		d.because("%d due times are more than may wait", excess)
	}
	for i := 0; i < len(l.Ticks) && excess > 0; i++ {
		if !d.waits(&l.Ticks[i]) {
			continue
		}
		if keep := l.Ticks[i].Count - excess; keep > 0 {
			l.cut(s, i, s.Tail(l.Ticks[i].Due, l.Ticks[i].Through, keep)[0].Add(-1))
		}
		excess -= l.Ticks[i].Count
		l.Ticks[i].Outcome = SkippedLimit
	}
}
