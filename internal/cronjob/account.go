// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outcomes are how the actions of a Plan went. Their lists follow those of the plan and may be shorter: what is missing was not
// tried.
type Outcomes struct {
	Check   []CheckOutcome
	Replace []error // nil: deleted
	Start   []StartOutcome
	Tidy    []error // nil: deleted
	At      time.Time
}

// CheckOutcome is the answer to the question for an active Job.
type CheckOutcome struct {
	// Err is nil if the Job exists under the UID asked for. Another UID counts as not found.
	Err error
}

// StartOutcome is the answer to the creation of a Job.
type StartOutcome struct {
	Err error
	// Job is the Job that was created; after "already exists" the one that has the name, from the cache or the API server, or nil
	// if it could not be read.
	Job *Child
	At  time.Time // when the answer came, by the controller's clock
}

// Accounting is what follows from a Plan and its outcomes.
type Accounting struct {
	Memory Memory          // for the next decision, and for Record
	Events []Event         // of the actions
	Skew   []time.Duration // from due time to creation, one for each Job created: observe SkewMetric
	Wake   time.Time       // when to decide again, in place of the plan's

	Because []string
}

// Account returns what a plan has come to. It must be called for every plan, also for one without actions.
func Account(o Observed, p Plan, out Outcomes) Accounting {
	a := account{o: o, p: p, m: p.next, ledger: p.ledger.clone(), at: out.At}
	a.out.Wake = p.Wake
	if a.at.IsZero() {
		a.at = o.Now
	}
	a.checked(out.Check)
	a.tidied(out.Tidy)
	if a.replaced(out.Replace) {
		a.started(out)
	}
	a.ledger.trim(max(o.Options.LedgerSize, minLedger))
	a.m.ledger = a.ledger.Encode(o.CronJob.UID)
	a.m.bare = a.ledger.bare(o.CronJob)
	if a.m.ledger == a.m.stored {
		a.m.ledger = a.m.stored // one text instead of two equal ones
	}
	a.out.Memory = a.m
	return a.out
}

// minLedger is how many entries decisions need at least.
const minLedger = 10

// account is an Accounting in the making.
type account struct {
	o      Observed
	p      Plan
	m      Memory
	ledger Ledger
	at     time.Time
	out    Accounting
}

func (a *account) tell(t Topic, args ...any) {
	a.out.Events = a.o.Options.Wording.add(a.out.Events, t, args...)
}

func (a *account) wake(at time.Time) {
	if a.out.Wake.IsZero() || at.Before(a.out.Wake) {
		a.out.Wake = at
	}
}

func (a *account) checked(answers []CheckOutcome) {
	for i, ref := range a.p.Check {
		if i >= len(answers) {
			a.wake(a.at.Add(a.o.Options.CacheLag))
			return
		}
		if err := answers[i].Err; apierrors.IsNotFound(err) {
			a.m.pending.remove(ref.UID)
			a.tell(MissingJob, ref.Name)
			a.ledger.noteGone(a.o.CronJob.Name, ref.Name)
			a.wake(a.at)
			continue
		}
		a.m.unseen = append(slices.Clip(a.m.unseen), sighting{ref.UID, a.at})
		a.wake(a.at.Add(a.o.Options.CacheLag))
	}
}

// tidied accounts for deletions of finished Jobs. One that did not work is tried again by and by, even if nothing else happens to
// the CronJob: it may be suspended, or be due once a year.
func (a *account) tidied(results []error) {
	for i, del := range a.p.Tidy {
		if i >= len(results) {
			a.wake(a.at)
			return
		}
		if a.deleted(del, results[i]) {
			continue
		}
		r := a.m.kept[del.UID]
		r.at = a.at.Add(backOff(a.o.Options.RetryBase, r.failures, a.o.Options.RetryMax))
		r.failures++
		a.m.kept = put(a.m.kept, del.UID, r)
		a.wake(r.at)
	}
}

// backOff returns how long to wait after a failure that had so many before it, in a row: base, doubled for each of them, at most
// bound.
func backOff(base time.Duration, before int, bound time.Duration) time.Duration {
	if before >= 30 {
		return bound
	}
	return min(base<<before, bound)
}

// deleted accounts for one deletion and reports whether the Job is gone.
//
// Differs: upstream reports a Job that is gone already as FailedDelete.
func (a *account) deleted(del Deletion, err error) bool {
	switch {
	case err == nil:
		a.tell(Deleted, del.Name)
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err): // a conflict: another Job of that name
		a.tell(FailedDelete, err)
		return false
	}
	a.m.pending.remove(del.UID)
	a.m.gone = with(a.m.gone, del.UID)
	return true
}

// replaced accounts for the Jobs that make room and reports whether the starts may go on.
func (a *account) replaced(results []error) bool {
	for i, del := range a.p.Replace {
		if i >= len(results) || !a.deleted(del, results[i]) {
			var err error
			if i < len(results) {
				err = results[i]
			}
			a.failed(a.p.Start[0].Due, "could not delete "+del.Name, err)
			return false
		}
		if t := a.ledger.find(del.due); t != nil && t.Outcome == Started && t.Result == Running {
			t.Result, t.Took = Replaced, max(0, a.at.Sub(del.created)).Truncate(time.Second)
		}
	}
	return true
}

// started accounts for the creations.
func (a *account) started(out Outcomes) {
	for i, s := range a.p.Start {
		if i >= len(out.Start) {
			a.wake(a.at)
			return
		}
		if !a.start(s, out.Start[i], out.Tidy) {
			return
		}
	}
}

// start accounts for one creation and reports whether the next may follow.
func (a *account) start(s Start, r StartOutcome, tidied []error) bool {
	switch {
	case r.Err == nil:
		a.tell(Created, s.Name)
		if !s.Due.IsZero() {
			a.out.Skew = append(a.out.Skew, r.Job.Created.Sub(s.Due))
		}
		a.took(s, r.Job, r.At)
		return true
	case apierrors.IsAlreadyExists(r.Err):
		return a.exists(s, r)
	case apierrors.HasStatusCause(r.Err, corev1.NamespaceTerminatingCause):
		a.failed(s.Due, "the namespace is being deleted", r.Err)
		return false
	case isQuota(r.Err) && slices.Contains(tidied, nil):
		// Old Jobs were in the way, and are gone by now.
		//
		// Differs: upstream deletes them before it starts anything.
		a.note(s.Due, r.Err.Error())
		a.wake(a.at)
		return false
	}
	a.tell(FailedCreate, r.Err)
	a.failed(s.Due, r.Err.Error(), r.Err)
	if !isRefusal(r.Err) {
		a.m.unsure = a.at.Add(a.o.Options.CacheLag)
	}
	return false
}

// Codes of HTTP.
const (
	codeForbidden      = 403
	codeRequestTimeout = 408
)

// isRefusal reports whether the API server has certainly not carried out the request that it answered with err.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != codeRequestTimeout
}

// isQuota reports whether the API server refused an object for the number of those that exist.
func isQuota(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == codeForbidden
}

// exists accounts for a Job whose name is taken: by itself, if an earlier answer was lost, or by a stranger.
//
// Differs: upstream decides nothing more for this CronJob then, until something happens to it.
func (a *account) exists(s Start, r StartOutcome) bool {
	switch {
	case r.Job == nil:
		a.failed(s.Due, r.Err.Error(), nil)
		return false
	case r.Job.Controller != a.o.CronJob.UID:
		a.tell(ForeignJob, r.Err)
		a.failed(s.Due, s.Name+" exists and belongs to another owner", r.Err)
		return false
	}
	if due := r.Job.Due; !due.IsZero() && !due.Equal(s.Due) { // it was started for another due time of the same minute
		a.ledger.set(a.o.Rules.schedule, Tick{Due: s.Due.UTC(), Outcome: SkippedMinute})
		s.Due = due
	}
	a.took(s, r.Job, r.Job.Created)
	return true
}

// took accounts for a Job that has been started for a due time.
func (a *account) took(s Start, job *Child, at time.Time) {
	if !job.finished() {
		if !s.Due.IsZero() || s.RespectConcurrency {
			a.m.pending.add(reference(a.o, job))
			a.m.unseen = append(slices.Clip(a.m.unseen), sighting{job.UID, a.at})
		}
	}
	if s.Due.IsZero() {
		return
	}
	a.m.pending.LastSchedule = later(a.m.pending.LastSchedule, s.Due.UTC())
	a.m.failedDue, a.m.failures, a.m.retryAt = time.Time{}, 0, time.Time{}
	a.ledger.set(a.o.Rules.schedule, Tick{
		Due: s.Due.UTC(), Outcome: Started, Late: max(0, at.Sub(s.Due.Add(a.o.Rules.offset))).Truncate(time.Millisecond),
		Result: job.Result, Took: job.took(),
	})
}

// note records why a due time is not started yet.
func (a *account) note(due time.Time, why string) {
	// Without the Job's name, the same trouble makes one entry however long it lasts.
	name := a.o.CronJob.Name
	why = strings.ReplaceAll(why, JobName(name, due), name+"-…")
	a.ledger.set(a.o.Rules.schedule, Tick{Due: due.UTC(), Outcome: FailedStart, Detail: why})
}

// failed plans another try. Failures in a row, over several due times too, make the wait longer; but every due time is tried
// once.
//
// Differs: upstream's wait grows to 17 minutes and can step over due times.
func (a *account) failed(due time.Time, why string, err error) {
	if due.IsZero() {
		return
	}
	a.note(due, why)
	bound := a.o.Options.RetryOutage
	if isRefusal(err) {
		bound = a.o.Options.RetryMax
	}
	a.m.failedDue, a.m.retryAt = due.UTC(), a.at.Add(backOff(a.o.Options.RetryBase, a.m.failures, bound))
	a.m.failures++
	a.wake(a.m.retryAt)
}
