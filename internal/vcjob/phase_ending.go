// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// aborting waits until all pods have ended.
//
//	| action        | effect                         |
//	| ResumeJob     | → Restarting, counts as retry  |
//	| anything else | none beside the ordinary work  |
func aborting(t *turn, o order) bool {
	if o.action != "" {
		return t.resume(o)
	}
	return t.endInto(batch.Aborted)
}

// aborted rests until it is resumed. Its actions are those of aborting.
func aborted(t *turn, o order) bool {
	if o.action != "" {
		return t.resume(o)
	}
	t.rest()
	return true
}

// completing waits until all pods have ended. No action has an effect.
func completing(t *turn, o order) bool { return o.action == "" && t.endInto(batch.Completed) }

// terminating waits until all pods have ended. No action has an effect.
func terminating(t *turn, o order) bool { return o.action == "" && t.endInto(batch.Terminated) }

// ended clears up what is left of a Job. No action has an effect.
func ended(t *turn, o order) bool {
	if o.action != "" {
		return false
	}
	t.plan.Over = t.rest()
	t.plan.DropLater = !t.o.Options.Own || t.o.QueueFree // otherwise its room in the queue may be another's
	return true
}

// resume lets the Job go on. Pods that have ended are reused.
func (t *turn) resume(o order) bool {
	if o.action != batch.ResumeJobAction {
		return false
	}
	t.executing(o)
	t.status.Version++
	t.status.RetryCount++
	t.to(batch.Restarting, o.cause.reason, "%s", t.retryText(o))
	return true
}

// endInto has the pods that have not ended deleted, and goes on to phase when none is left.
func (t *turn) endInto(phase batch.JobPhase) bool {
	t.rest()
	if alive := t.status.Terminating + t.status.Pending + t.status.Running; alive > 0 {
		t.because("%d pods are still ending", alive)
		return true
	}
	if !t.plan.DropObjects { // one write tells that they are gone as well
		t.to(phase, t.status.State.Reason, "%s", t.status.State.Message)
	}
	return true
}

// rest clears away pods that have not ended, the PodGroup and the objects of plugins. It reports whether nothing is left of them.
func (t *turn) rest() bool {
	left := t.deleteVictims()
	if g := t.o.Group; g != nil {
		left = true
		if g.DeletionTimestamp == nil {
			t.plan.DropGroup = g
		}
	}
	left = !t.dropObjects() || left
	return !left && t.status.Terminating == 0
}
