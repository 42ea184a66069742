// SPDX-License-Identifier: Apache-2.0

package cronjob

import "time"

// History returns the ledger as it would be if it were brought up to date now, oldest first. It needs nothing but what the API
// server holds, so that it serves commands too: what the controller has not stored yet is told from the CronJob and its Jobs, and
// due times of a suspension that is not over are counted up to now.
func History(o Observed) []Tick {
	o.Memory = Memory{}
	d := begin(o)
	d.o.Memory.rules = d.r // who looks now is no controller that was away
	d.reap()
	switch {
	case d.r.schedule == nil || o.CronJob.Deleting:
	case o.CronJob.Spec.Suspend && !d.ledger.Suspended.IsZero():
		d.bookTo(d.now)
	default:
		d.book()
		for i := range d.ledger.Ticks {
			if t := &d.ledger.Ticks[i]; t.Outcome == Waiting && t.Through.Before(d.deadline()) {
				t.Outcome = MissedDeadline // as its controller is about to find, or has found
			}
		}
	}
	d.ledger.trim(max(o.Options.LedgerSize, minLedger))
	return d.ledger.Ticks
}

// String returns the outcome in the words of a table.
func (t Tick) String() string {
	switch t.Outcome {
	case Started:
		switch t.Result {
		case Replaced:
			return "replaced"
		case Gone:
			return "started, then deleted"
		default: // the Job tells itself how it ended
		}
		return "started"
	case Waiting:
		if t.Detail != "" {
			return "waiting: still active"
		}
		return "waiting"
	case SkippedActive:
		return "skipped: still active"
	case SkippedSuspended:
		return "skipped: suspended"
	case SkippedEdited:
		return "skipped: edited"
	case SkippedMinute:
		return "skipped: same minute"
	case SkippedLimit:
		return "skipped: queue full"
	case SkippedElsewhere:
		return "skipped: done elsewhere"
	case MissedAway:
		return "missed: controller away"
	case MissedDeadline:
		return "missed: deadline"
	case MissedLate:
		return "missed: next was due"
	case FailedStart:
		return "failed to create"
	}
	return "unknown"
}

// Job returns the name of the Job that was started, "" if there was none.
func (t Tick) Job(cronJob string) string {
	if t.Outcome != Started {
		return ""
	}
	return JobName(cronJob, t.Due)
}

// Why returns a sentence on the outcome, "" where it says everything itself.
func (t Tick) Why() string {
	switch t.Outcome {
	case Started:
		switch t.Result {
		case Complete, Running:
		case Replaced:
			return "made room for the next run"
		case Gone:
			return "the Job was deleted while it ran"
		default:
			return "the Job ended as " + string(t.Result)
		}
		if t.Late >= notablyLate {
			return "caught up late"
		}
		return ""
	case Waiting, SkippedActive:
		if t.Detail != "" {
			return t.Detail + " was still active"
		}
		return "waits for its turn"
	case SkippedSuspended:
		return "the CronJob was suspended"
	case SkippedEdited:
		return "the schedule was edited or resumed before the start"
	case SkippedMinute:
		return "Jobs are named by the minute, and this minute has one"
	case SkippedLimit:
		return "more due times waited than may"
	case SkippedElsewhere:
		return "lastScheduleTime was already past it"
	case MissedAway:
		return "no controller was there to see it"
	case MissedDeadline:
		if t.Detail != "" {
			return "startingDeadlineSeconds was over: " + t.Detail
		}
		return "startingDeadlineSeconds was over"
	case MissedLate:
		return "the next due time came before this one could be started"
	case FailedStart:
		return t.Detail
	}
	return ""
}

// notablyLate is how late a start must be to be called so.
const notablyLate = time.Minute
