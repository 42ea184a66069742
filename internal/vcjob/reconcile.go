// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// queueCheck is how long a Job waits before it looks for its queue again.
const queueCheck = 5 * time.Second

func (t *turn) plugins() ([]plugin.Named, error) { return plugin.Of(t.job) }

// reconcile brings what belongs to the Job in line with its spec: first what pods need, then the PodGroup, then the pods.
func (t *turn) reconcile() {
	plugins, err := t.plugins()
	if err != nil {
		t.waits(ReasonPluginError, "%v", err)
		return
	}
	if t.track(plugins); t.plan.Now {
		t.because("what goes with the Job is noted before it is made")
		return
	}
	t.clearWait()
	t.tellRefusal()
	switch {
	case t.o.QueueMissing && t.o.Group == nil:
		t.waits("QueueNotFound", "queue %q does not exist", t.spec.Queue)
		t.wake(queueCheck)
		return
	case !t.o.Prepared && len(plugins)+len(t.spec.Volumes) > 0:
		t.plan.Prepare = true
		return
	case !t.reconcileGroup():
		return
	}
	t.deleteVictims()
	t.createMissing()
	t.tellUnplaced()
}

// tellRefusal says what could not be made.
func (t *turn) tellRefusal() {
	if t.o.Refusal != "" {
		t.waits(t.o.RefusedFor, "%s", t.o.Refusal)
	}
}

// reconcileGroup makes the PodGroup what it should be. It reports whether pods may be made.
func (t *turn) reconcileGroup() bool {
	g := t.o.Group
	switch {
	case g != nil && t.isStale(g):
		t.dropStaleGroup()
		return false
	case g != nil && g.DeletionTimestamp != nil:
		t.because("the old PodGroup is still being deleted")
		return false
	case g == nil:
		t.plan.Group = t.newGroup()
		return false
	}
	if next := t.updatedGroup(g); next != nil {
		t.plan.Group = next
		return admitted(next)
	}
	if admitted(g) {
		return true
	}
	switch c := newestCondition(g); {
	case t.o.QueueClosed:
		t.waitsForGroup("QueueClosed", fmt.Sprintf("queue %q is closed; no pod is made until it is opened", t.spec.Queue))
	case c != nil && c.Type != scheduling.GroupScheduled:
		t.tellOfGroup(c)
		t.waitsForGroup("PodGroupPending", c.Message)
	default:
		t.waitsForGroup("PodGroupPending", "the PodGroup is not admitted to the queue yet")
	}
	return false
}

func (t *turn) waitsForGroup(reason, text string) {
	if t.o.Refusal == "" {
		t.waits(reason, "%s", text)
	}
}

// tellOfGroup tells of what the scheduler has found out about the PodGroup.
func (t *turn) tellOfGroup(c *scheduling.PodGroupCondition) {
	t.event(corev1.EventTypeWarning, ReasonPodGroupPending, "PodGroup %s:%s %s, reason: %s", t.job.Namespace, t.job.Name, strings.ToLower(string(c.Type)), c.Message)
}

// tellUnplaced says why the pods of a Job that is Pending are not placed.
func (t *turn) tellUnplaced() {
	c := newestCondition(t.o.Group)
	if t.phase() == batch.Pending && t.status.Pending > 0 && c != nil && c.Type == scheduling.GroupUnschedulable {
		t.tellOfGroup(c)
		t.waitsForGroup("Unschedulable", c.Message)
	}
}

// newestCondition returns the last condition of g that holds; nil: none does.
func newestCondition(g *scheduling.PodGroup) *scheduling.PodGroupCondition {
	for i := len(g.Status.Conditions) - 1; i >= 0; i-- {
		if c := &g.Status.Conditions[i]; c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// admitted reports whether pods of g may be made.
func admitted(g *scheduling.PodGroup) bool { return gang.IsAdmitted(g) }

// isStale reports whether g was made for an earlier round of the Job. One that does not say so is not.
func (t *turn) isStale(g *scheduling.PodGroup) bool {
	round, err := strconv.ParseInt(g.Annotations[RoundKey], 10, 32)
	return err == nil && int32(round) < t.status.Version
}

// dropStaleGroup has the PodGroup of an earlier round deleted: a scheduler remembers things about it.
func (t *turn) dropStaleGroup() {
	if g := t.o.Group; g != nil && t.isStale(g) && g.DeletionTimestamp == nil {
		t.plan.DropGroup = g
	}
}

// createMissing has the pods made that are not there, those that the Job needs first.
func (t *turn) createMissing() {
	evicted := map[string]time.Time{}
	for _, g := range t.o.Gone {
		if !t.hasPolicies() {
			break // nobody asks for it
		}
		evicted[PodName(t.job.Name, g.Task, g.Index)] = g.At
	}
	var spare []Creation
	for i := range t.tasks {
		task := &t.tasks[i]
		missing, busy := 0, 0
		var first, more []Creation
		for index, p := range task.at {
			if p != nil {
				continue
			}
			missing++
			c := Creation{Task: i, Index: index, Name: PodName(t.job.Name, task.spec.Name, index)}
			if t.o.Taken[c.Name] {
				busy++
				t.waits("NameTaken", "the name of pod %s belongs to another pod", c.Name)
				t.wake(time.Second)
				continue
			}
			c.EvictedAt = evicted[c.Name]
			if index < int(taskMin(task.spec)) {
				first = append(first, c)
			} else {
				more = append(more, c)
			}
		}
		if missing == busy {
			continue
		}
		if on := t.notReady(task.spec); on != "" {
			t.because("task %s waits for %s", task.spec.Name, on)
			if t.o.Refusal == "" {
				t.waits("DependsOn", "task %s waits for task %s to be ready", task.spec.Name, on)
			}
			continue
		}
		t.plan.Create = append(t.plan.Create, first...)
		spare = append(spare, more...)
	}
	t.plan.Create = append(t.plan.Create, spare...)
	t.holdBack()
	t.placeTogether()
	if limit := t.o.Options.MaxPerStep; limit > 0 && len(t.plan.Create) > limit {
		t.plan.Create = t.plan.Create[:limit]
	}
}

// notReady returns which task must be ready before pods of this one are made; "": none.
func (t *turn) notReady(s *batch.TaskSpec) string {
	if s.DependsOn == nil || len(s.DependsOn.Name) == 0 {
		return ""
	}
	var waiting []string
	for _, name := range s.DependsOn.Name {
		if !t.isReady(name) {
			waiting = append(waiting, name)
		}
	}
	switch {
	case len(waiting) == 0,
		s.DependsOn.Iteration == batch.IterationAny && len(s.DependsOn.Name) > 1 && len(waiting) < len(s.DependsOn.Name):
		return ""
	case s.DependsOn.Iteration == batch.IterationAny && len(s.DependsOn.Name) > 1:
		return strings.Join(waiting, " or ")
	}
	return strings.Join(waiting, " and ")
}

// isReady reports whether as many pods of a task as the Job needs have succeeded, or run with all their containers ready.
func (t *turn) isReady(name string) bool {
	i := slices.IndexFunc(t.spec.Tasks, func(s batch.TaskSpec) bool { return s.Name == name })
	if i < 0 {
		return false // refused by admission
	}
	ready := int32(0)
	for _, p := range t.tasks[i].at {
		if p != nil && !p.going && !p.marked && (p.pod.Status.Phase == corev1.PodSucceeded || p.pod.Status.Phase == corev1.PodRunning && allReady(p.pod)) {
			ready++
		}
	}
	return ready >= taskMin(t.tasks[i].spec)
}

func allReady(p *corev1.Pod) bool {
	return !podstate.IsFinished(p) && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !c.Ready })
}
