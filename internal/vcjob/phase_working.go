// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// pending waits until as many pods run, or have ended, as the Job needs.
//
//	| action                                | effect                          |
//	| RestartJob                            | all pods go, → Restarting       |
//	| RestartTask, RestartPod, …Partition   | some pods go, → Restarting      |
//	| AbortJob, CompleteJob, TerminateJob   | → Aborting, Completing, …       |
//	| anything else                         | none beside the ordinary work   |
func pending(t *turn, o order) bool {
	if o.action != "" {
		return t.interrupt(o)
	}
	if t.takeUpRestart() {
		return true
	}
	s := t.status
	if there := s.Running + s.Succeeded + s.Failed; t.spec.MinAvailable <= there {
		if v := t.verdict(); v.phase != "" && v.phase != batch.Pending {
			if t.clearAway(v) {
				t.to(batch.Running, "", "") // which lasts no time
				t.to(v.phase, v.reason, "%s", v.message)
			}
			return true
		}
		t.to(batch.Running, "EnoughPods", "%d of the %d pods that must be there are there", there, t.spec.MinAvailable)
		return true
	}
	t.reconcile()
	return true
}

// running watches over the pods until the Job has ended. Its actions are those of pending.
func running(t *turn, o order) bool {
	if o.action != "" {
		return t.interrupt(o)
	}
	if t.takeUpRestart() {
		return true
	}
	switch v := t.verdict(); {
	case v.phase == "":
		t.reconcile()
	case t.clearAway(v):
		t.to(v.phase, v.reason, "%s", v.message)
	}
	return true
}

// clearAway has the objects of the plugins deleted before a Job ends by itself, as no pod uses them any more: so its end is told
// in one write. It reports whether that is done.
func (t *turn) clearAway(v verdict) bool {
	if v.phase == batch.Pending || t.status.Running+t.status.Pending+t.status.Terminating > 0 {
		return true // pods that are still there go first
	}
	return t.dropObjects()
}

// verdict is the phase that follows from the pods, if any.
type verdict struct {
	phase           batch.JobPhase
	reason, message string
}

// verdict applies the rules of a running Job to the numbers of its pods; the first that holds decides.
//
// Source: Volcano, as specified in section 2.3 of its behaviour.
func (t *turn) verdict() verdict {
	s, all := t.status, total(t.spec)
	needed := t.spec.MinSuccess
	switch {
	case all == 0:
		return verdict{}
	case needed != nil && s.Succeeded >= *needed:
		return verdict{batch.Completed, "MinSuccess", fmt.Sprintf("%d pods have succeeded, %d are enough", s.Succeeded, *needed)}
	case s.Succeeded+s.Failed == all:
		return t.finalVerdict()
	case s.Pending > all-t.spec.MinAvailable:
		return verdict{batch.Pending, "", fmt.Sprintf("%d pods wait, %d of %d must be there", s.Pending, t.spec.MinAvailable, all)}
	}
	return verdict{}
}

// finalVerdict decides when all pods have ended.
func (t *turn) finalVerdict() verdict {
	s := t.status
	if t.spec.MinAvailable >= sumOfMinima(t.spec) {
		for i := range t.spec.Tasks {
			task := &t.spec.Tasks[i]
			_, counted := s.TaskStatusCount[task.Name]
			if n := t.succeeded(task.Name); counted && task.MinAvailable != nil && n < *task.MinAvailable {
				return verdict{batch.Failed, "TaskMinAvailable", fmt.Sprintf("%d pods of task %s have succeeded, %d must", n, task.Name, *task.MinAvailable)}
			}
		}
	}
	switch needed := t.spec.MinSuccess; {
	case needed != nil && s.Succeeded < *needed:
		return verdict{batch.Failed, "MinSuccess", fmt.Sprintf("all pods have ended and %d have succeeded, %d must", s.Succeeded, *needed)}
	case s.Succeeded >= t.spec.MinAvailable:
		return verdict{batch.Completed, "AllPodsEnded", fmt.Sprintf("%d pods have succeeded and %d have failed, %d must succeed", s.Succeeded, s.Failed, t.spec.MinAvailable)}
	}
	return verdict{batch.Failed, "MinAvailable", fmt.Sprintf("all pods have ended and %d have succeeded, %d must", s.Succeeded, t.spec.MinAvailable)}
}

// interrupt carries an action out in a phase in which the Job goes on. It reports whether that changes anything.
func (t *turn) interrupt(o order) bool {
	switch o.action {
	case batch.RestartJobAction:
		t.executing(o)
		t.status.Version++
		t.status.RetryCount++
		t.to(batch.Restarting, o.cause.reason, "%s", t.retryText(o))
	case batch.RestartTaskAction, batch.RestartPodAction, batch.RestartPartitionAction:
		victims, exists := t.targets(o)
		if !exists {
			return false
		}
		t.executing(o)
		t.status.RetryCount++
		t.markAll(victims, fmt.Sprintf("%d/%s", t.status.RetryCount, scopeOf(o.action)))
		t.to(batch.Restarting, o.cause.reason, "%s", t.retryText(o))
	case batch.AbortJobAction:
		t.stop(batch.Aborting, o)
	case batch.CompleteJobAction:
		t.stop(batch.Completing, o)
	case batch.TerminateJobAction:
		t.stop(batch.Terminating, o)
	default:
		return false
	}
	return true
}

func (t *turn) executing(o order) {
	t.event(corev1.EventTypeNormal, ReasonExecuteAction, "Start to execute action %s (%s)", o.action, o.cause.message)
}

func (t *turn) retryText(o order) string {
	return fmt.Sprintf("%s (retry %d of %d)", o.cause.message, t.status.RetryCount, t.maxRetry())
}

// stop ends all pods that have not ended.
func (t *turn) stop(phase batch.JobPhase, o order) {
	t.executing(o)
	t.status.Version++
	t.to(phase, o.cause.reason, "%s", o.cause.message)
}

// The targets of restarts, as RestartKey names them.
const (
	scopePod       = "pod"
	scopeTask      = "task"
	scopePartition = "partition"
)

func scopeOf(a batch.Action) string {
	switch a {
	case batch.RestartTaskAction:
		return scopeTask
	case batch.RestartPartitionAction:
		return scopePartition
	default:
		return scopePod
	}
}

// targets returns the pods that a restart of less than the Job is about, that which has caused it last. exists is false where there
// is nothing that could be restarted: no such partition.
func (t *turn) targets(o order) (victims []*podView, exists bool) {
	c := o.cause
	if c.task < 0 {
		return nil, o.action != batch.RestartPartitionAction
	}
	task := &t.tasks[c.task]
	var within func(p *podView) bool
	switch o.action {
	case batch.RestartTaskAction:
		within = func(*podView) bool { return true }
	case batch.RestartPodAction:
		within = func(p *podView) bool { return p == c.pod }
	default:
		if task.spec.PartitionPolicy == nil || c.part == "" {
			return nil, false
		}
		within = func(p *podView) bool { return p.pod.Labels[batch.PartitionKey] == c.part }
	}
	for _, p := range task.all {
		if within(p) && p != c.pod && !p.marked {
			victims = append(victims, p)
		}
	}
	if c.pod != nil && within(c.pod) && !c.pod.marked {
		victims = append(victims, c.pod)
	}
	return victims, true
}

// markAll has pods marked before the status tells of it.
func (t *turn) markAll(victims []*podView, restart string) {
	for _, p := range victims {
		t.plan.Mark = append(t.plan.Mark, Mark{Pod: p.key(), Restart: restart})
		p.marked = true
	}
}

// takeUpRestart goes on with a restart of some pods that was interrupted after the first mark and before the status told of it.
func (t *turn) takeUpRestart() bool {
	found := ""
	t.eachPod(func(p *podView) {
		if restart := p.pod.Annotations[RestartKey]; found == "" && p.marked && retryOf(restart) == t.status.RetryCount+1 {
			found = restart
			_, scope, _ := strings.Cut(restart, "/")
			o := order{cause: cause{task: p.task, pod: p, part: p.pod.Labels[batch.PartitionKey]}}
			switch scope {
			case scopeTask:
				o.action = batch.RestartTaskAction
			case scopePartition:
				o.action = batch.RestartPartitionAction
			default:
				o.action = batch.RestartPodAction
			}
			rest, _ := t.targets(o)
			t.markAll(rest, restart)
		}
	})
	if found == "" {
		return false
	}
	t.status.RetryCount++
	t.to(batch.Restarting, "Interrupted", "a restart that was interrupted goes on (retry %d of %d)", t.status.RetryCount, t.maxRetry())
	return true
}

// retryOf returns the retry count in the value of RestartKey; -1: there is none.
func retryOf(restart string) int32 {
	text, _, _ := strings.Cut(restart, "/")
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// restarting waits until the pods of the old round are gone, then lets the new one begin.
//
//	| action                                | effect                                             |
//	| RestartTask, RestartPod, …Partition   | these pods go as well                              |
//	| RestartJob                            | all others go as well; it counts as the same retry |
//	| AbortJob, CompleteJob, TerminateJob   | → Aborting, Completing, Terminating                |
//	| anything else                         | none beside the ordinary work                      |
//
// Differs: in Volcano everything but the first row ends all pods once more, and Aborting, Completing and Terminating are lost.
func restarting(t *turn, o order) bool {
	switch o.action {
	case "":
	case batch.RestartTaskAction, batch.RestartPodAction, batch.RestartPartitionAction:
		victims, _ := t.targets(o)
		for _, p := range victims {
			if !p.going && !t.isVictim(p) {
				t.plan.Delete = append(t.plan.Delete, Deletion{Pod: p.key()})
				p.marked = true
			}
		}
		return false // others may follow
	case batch.RestartJobAction:
		return t.restartRest(o)
	case batch.AbortJobAction, batch.CompleteJobAction, batch.TerminateJobAction:
		return t.interrupt(o)
	default:
		return false
	}
	t.dropStaleGroup()
	if t.deleteVictims() {
		return true
	}
	s, all := t.status, total(t.spec)
	switch {
	case s.RetryCount >= t.maxRetry():
		t.event(corev1.EventTypeWarning, ReasonExecuteAction, "Job failed: %d of %d retries are used up", s.RetryCount, t.maxRetry())
		t.to(batch.Failed, "MaxRetry", "the retries are used up: %s", s.State.Message)
	case all-s.Terminating >= t.spec.MinAvailable && t.plan.DropGroup == nil:
		t.to(batch.Pending, "", "")
		if plugins, err := t.plugins(); err == nil {
			t.track(plugins)
		}
	default:
		t.because("%d pods are still ending", s.Terminating)
	}
	return true
}

// restartRest has those pods end that a restart of the whole Job would end and the present one does not.
func (t *turn) restartRest(o order) bool {
	var rest []*podView
	t.eachPod(func(p *podView) {
		if !p.going && !t.isVictim(p) {
			rest = append(rest, p)
		}
	})
	if len(rest) == 0 {
		return false
	}
	t.executing(o)
	t.markAll(rest, fmt.Sprintf("%d/%s", t.status.RetryCount, scopePod))
	t.status.Version++
	t.to(batch.Restarting, o.cause.reason, "%s", t.retryText(o))
	return true
}

// deleteVictims has the pods deleted that are to go. It reports whether there are any that nobody has asked to go yet.
func (t *turn) deleteVictims() bool {
	t.eachPod(func(p *podView) {
		if t.isVictim(p) && !p.going && !slices.ContainsFunc(t.plan.Delete, func(d Deletion) bool { return d.Pod.UID == p.pod.UID }) {
			t.plan.Delete = append(t.plan.Delete, Deletion{Pod: p.key(), Marked: p.marked})
		}
	})
	return len(t.plan.Delete) > 0
}
