// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
)

// order asks a phase for an action. The zero value asks for the ordinary work.
type order struct {
	action batch.Action
	cause  cause
}

// cause is what an order is about, and why it was given.
type cause struct {
	reason  string // in a word
	message string // for people
	task    int    // position of the task; -1: none
	pod     *podView
	part    string // partition of the pod; "": none
}

// handler does the work of one phase: what an action asks for, or with an empty order what is to be done anyway. It reports
// whether the order has had an effect.
type handler func(t *turn, o order) bool

// handlers are the phases. What is not among them is handled as Pending.
var handlers = map[batch.JobPhase]handler{
	batch.Pending:     pending,
	batch.Running:     running,
	batch.Restarting:  restarting,
	batch.Aborting:    aborting,
	batch.Aborted:     aborted,
	batch.Completing:  completing,
	batch.Terminating: terminating,
	batch.Completed:   ended,
	batch.Terminated:  ended,
	batch.Failed:      ended,
}

// Decide returns what to do next for o.Job: one step. Equal inputs give equal plans; when nothing is left to do now, the plan is
// empty but for a status that may wait, After, Because and Delayed.
func Decide(o Observed) Plan {
	t := newTurn(o)
	if o.Job.DeletionTimestamp != nil {
		t.because("the Job is being deleted")
		return Plan{Because: t.plan.Because}
	}
	if t.phase() == "" {
		if t.begin(); t.plan.Now {
			return t.finish()
		}
	}
	handle := handlers[t.phase()]
	if handle == nil {
		handle = pending
	}
	t.recount()
	if t.obeyCommand(handle) || goesOn(t.phase()) && t.applyPolicies(handle) {
		return t.finish()
	}
	handle(t, order{})
	return t.finish()
}

// begin makes a new Job Pending, from its creation on. The write of that may wait for more to tell, as the same follows from no status
// at all; but what is found again by the status is stored before it is made.
//
// Differs: Volcano writes it first of all.
func (t *turn) begin() {
	since := t.o.Now
	if made := t.job.CreationTimestamp.Time; !made.IsZero() && made.Before(since) {
		since = made
	}
	t.enter(batch.Pending, since)
	if plugins, err := t.plugins(); err == nil {
		t.track(plugins)
	}
}

// obeyCommand carries out the oldest Command. A Command that has nothing more to ask for is deleted, and until that is done the
// phase does not move on: so whoever takes over after a crash can tell from the phase whether a Command was obeyed.
//
// Differs: Volcano deletes the Command first, and loses it in a crash; and it takes Commands for an earlier Job of the same name.
func (t *turn) obeyCommand(handle handler) bool {
	commands := slices.Clone(t.o.Commands)
	slices.SortFunc(commands, func(a, b *bus.Command) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range commands {
		switch {
		case !aims(c, t.job):
			t.because("Command %s is for another Job of this name", c.Name)
		case len(t.plan.Commands) == 0 && handle(t, order{cmp.Or(batch.Action(c.Action), batch.SyncJobAction), cause{
			reason: ReasonCommandIssued, message: "Command " + c.Name + " asks for " + c.Action, task: -1,
		}}):
			return true
		case len(t.plan.Commands) > 0:
			return true // one after the other
		default:
			t.event(corev1.EventTypeNormal, ReasonCommandIssued, "Start to execute command %s, and clean it up to make sure executed not more than once.", c.Action)
		}
		t.plan.Commands = append(t.plan.Commands, c)
	}
	return len(t.plan.Commands) > 0
}

// aims reports whether c is for this very Job. A UID of zeros is none.
func aims(c *bus.Command, j *batch.Job) bool {
	uid := string(c.TargetObject.UID)
	return strings.Trim(uid, "0-") == "" || uid == string(j.UID)
}
