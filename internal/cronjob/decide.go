// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/schedule"
)

// Plan is what to do for a CronJob. Its lists are in the order in which the controller must act: Check, Replace, Start, Tidy.
// Events are told in any case, whatever comes of the rest.
type Plan struct {
	// Check are active Jobs that the cache does not show: ask the API server for each.
	Check []corev1.ObjectReference
	// Replace are Jobs to delete before the first start. If one cannot be deleted, nothing is started.
	Replace []Deletion
	// Start are Jobs to create, one after the other. The first that does not work ends the row.
	Start []Start
	// Tidy are finished Jobs to delete, beyond those that are kept. It can wait until others have started theirs.
	Tidy   []Deletion
	Events []Event
	// Wake is when to decide again, if nothing happens before; zero: only when something happens.
	Wake time.Time
	// AfterStore asks for another decision as soon as what Memory.Record returns is stored.
	AfterStore bool

	Because []string // one line a choice

	next   Memory // what to remember, as far as it does not depend on how the actions go
	ledger Ledger // likewise
}

// Deletion asks for a Job to be deleted with background propagation, on condition that it still has that UID.
type Deletion struct {
	Name string
	UID  types.UID

	due, created time.Time // of the Job; zero: unknown
}

// Start asks for a Job.
type Start struct {
	Name string
	// Due is the due time, in the zone in which the Job tells it; zero: the Job is started by hand.
	Due time.Time
	// RespectConcurrency marks a Job started by hand as one that concurrency policies regard.
	RespectConcurrency bool
}

// manyMissed is how many missed times are worth a warning when exceeded.
//
// Source: Kubernetes v1.37 CronJob controller.
const manyMissed = 100

// Decide returns what to do next for o.CronJob. Equal observations give equal plans; deciding again on the world and with the
// memory that a plan has produced gives an empty plan, until plan.Wake.
func Decide(o Observed) Plan {
	d := begin(o)
	d.noticeEdit()
	d.tidy()
	d.reap()
	if d.mayStart() {
		d.book()
		d.start()
		d.wakeAtNext()
	}
	return d.result()
}

// decision is a Plan in the making.
type decision struct {
	o Observed
	r *Rules
	m Memory // of the next decision

	now    time.Time // in terms of due times: o.Now less the place in the spread window
	status Status    // as it will be
	ledger Ledger
	booked time.Time // ledger.Until as it was before this decision
	held   bool      // the schedule was edited just now

	sum    schedule.Run // see passed
	summed bool

	children map[types.UID]*Child
	sorted   []*Child // by due time, creation and name
	plan     Plan
}

func begin(o Observed) *decision {
	d := &decision{o: o, r: o.Rules, m: o.Memory, now: o.Now.Add(-o.Rules.offset)}
	d.m.rules = o.Rules
	d.m.rush = false
	d.m.pending = o.Memory.pending.beyond(o.CronJob.Status)
	d.status = d.m.pending.Apply(o.CronJob.Status)
	d.sortChildren()
	d.readLedger()
	d.m.witness = later(d.m.witness, o.CronJob.Status.LastSchedule)
	d.booked = d.ledger.Until
	return d
}

// sortChildren puts the children in order, without those that we have deleted and that the cache still shows.
func (d *decision) sortChildren() {
	d.children = make(map[types.UID]*Child, len(d.o.Children))
	d.sorted = make([]*Child, 0, len(d.o.Children))
	var gone map[types.UID]struct{}
	for i := range d.o.Children {
		c := &d.o.Children[i]
		if _, deleted := d.m.gone[c.UID]; deleted {
			if gone == nil {
				gone = make(map[types.UID]struct{}, len(d.m.gone))
			}
			gone[c.UID] = struct{}{}
			continue
		}
		d.children[c.UID] = c
		d.sorted = append(d.sorted, c)
	}
	d.m.gone = gone
	slices.SortFunc(d.sorted, func(a, b *Child) int {
		return cmp.Or(a.Due.Compare(b.Due), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// anchor returns the instant from which due times are counted.
//
// Source: Kubernetes v1.37 CronJob controller, without the cut at startingDeadlineSeconds.
// Differs: upstream counts from now less startingDeadlineSeconds if that is later. "@every" then never comes due when the
// deadline is shorter than the period, and MissSchedule is never told.
func (d *decision) anchor() time.Time {
	if !d.status.LastSchedule.IsZero() {
		return d.status.LastSchedule
	}
	return d.o.CronJob.Created
}

// passed sums up the due times since the last start. It must not be asked for before the children are reaped.
func (d *decision) passed() schedule.Run {
	if !d.summed {
		d.sum, d.summed = d.r.schedule.Between(d.anchor(), d.now), true
	}
	return d.sum
}

func (d *decision) because(format string, args ...any) {
	d.plan.Because = append(d.plan.Because, fmt.Sprintf(format, args...))
}

func (d *decision) tell(t Topic, args ...any) {
	d.plan.Events = d.o.Options.Wording.add(d.plan.Events, t, args...)
}

// told returns an instant in the words of Because: in UTC.
func told(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// wake asks for another decision at the latest at that instant.
func (d *decision) wake(at time.Time) {
	if d.plan.Wake.IsZero() || at.Before(d.plan.Wake) {
		d.plan.Wake = at
	}
}

// mayStart reports whether Jobs may be started at all, and says why not.
func (d *decision) mayStart() bool {
	c, r := d.o.CronJob, d.r
	if c.Deleting {
		d.because("the CronJob is being deleted")
		return false
	}
	before := d.o.Memory.rules
	news := before == nil || !before.saysTheSame(r)
	if news {
		for _, err := range r.badNotes {
			d.tell(BadAnnotation, err)
		}
	}
	if r.zoneErr != nil {
		if news {
			d.tell(UnknownTimeZone, *c.Spec.TimeZone, r.zoneErr)
		}
		d.because("the time zone is unknown")
		return false
	}
	if c.Spec.Suspend {
		d.suspend()
		d.because("the CronJob is suspended")
		return false
	}
	if r.unsupported && news {
		d.tell(UnsupportedSchedule, c.Spec.Schedule)
	}
	if r.parseErr != nil {
		if before != nil && before.key != r.key {
			d.tell(UnparseableEdit, c.Spec.Schedule)
		} else if news {
			d.tell(UnparseableSchedule, c.Spec.Schedule, r.parseErr)
		}
		d.because("the schedule cannot be read")
		return false
	}
	if r.schedule.Next(d.anchor()).IsZero() {
		if news {
			d.tell(InvalidSchedule, c.Spec.Schedule, errNoDueTime)
		}
		d.because("the schedule has no due time")
		return false
	}
	return true
}

// saysTheSame reports whether what is wrong with two sets of rules, if anything, is the same, so that it need not be told again.
//
// Differs: upstream tells it at every sync.
func (r *Rules) saysTheSame(other *Rules) bool {
	return r.key == other.key && slices.EqualFunc(r.badNotes, other.badNotes, func(a, b error) bool { return a.Error() == b.Error() })
}

// wakeAtNext asks for a decision at the next due time.
//
// Differs: upstream waits another 100 ms, as a guard against clocks that differ; here a due time that has not come yet is simply
// waited for again.
func (d *decision) wakeAtNext() {
	from := d.anchor()
	if run := d.passed(); run.Count > 0 {
		from = run.Last
	}
	next := d.r.schedule.Next(from)
	if next.IsZero() { // such as 29 February, around the year 2100
		next = d.now.AddDate(1, 0, 0)
	}
	d.wake(next.Add(d.r.offset))
}

// result closes the decision.
func (d *decision) result() Plan {
	d.plan.next, d.plan.ledger = d.m, d.ledger
	return d.plan
}
