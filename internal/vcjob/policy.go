// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// happening is something that policies may be about, read from what is there now.
type happening struct {
	event  batch.Event
	task   int // position of the task; -1: it is about the whole Job
	index  int
	pod    *podView // nil: about no pod, or one that is gone
	name   string   // of the pod
	codes  []int32  // with which its containers have ended
	since  time.Time
	waited bool // only a policy with a timeout is about it
}

// applyPolicies gives the first order whose time has come, and notes when the others are due. What has happened first comes first.
//
// Differs: Volcano acts on changes that it has seen, and loses those that it has not; timers live in its memory. Here everything is
// read from the pods: so it is found again after a restart, and a delayed action is due when it would have been.
func (t *turn) applyPolicies(handle handler) bool {
	if !t.hasPolicies() {
		return false
	}
	for _, h := range t.happenings() {
		p, path := t.policyFor(&h)
		if p == nil {
			continue
		}
		if p.Timeout != nil && p.Timeout.Duration > 0 {
			due := h.since.Add(p.Timeout.Duration)
			if left := due.Sub(t.o.Now); left > 0 {
				t.wake(left)
				t.plan.Delayed = append(t.plan.Delayed, Delayed{Event: h.event, Action: p.Action, About: h.about(t), Delay: p.Timeout.Duration, Due: due})
				t.because("%s: %s waits until %s", h.describe(t), p.Action, due.UTC().Format(time.RFC3339))
				continue
			}
		}
		o := order{action: cmp.Or(p.Action, batch.SyncJobAction), cause: cause{reason: string(h.event), message: fmt.Sprintf("%s: %s says %s", h.describe(t), path, p.Action), task: h.task, pod: h.pod}}
		if h.pod != nil {
			o.cause.part = h.pod.pod.Labels[batch.PartitionKey]
		} else if h.task >= 0 && h.event == batch.PodEvictedEvent {
			o.cause.part = partitionOf(t.tasks[h.task].spec, h.index)
		}
		if handle(t, o) {
			t.plan.ActedOnGroup = h.event == batch.UnknownEvent
			return true
		}
		t.because("%s: %s has nothing to do", h.describe(t), p.Action)
	}
	return len(t.plan.Delete) > 0
}

func (t *turn) hasPolicies() bool {
	return len(t.spec.Policies) > 0 || slices.ContainsFunc(t.spec.Tasks, func(s batch.TaskSpec) bool { return len(s.Policies) > 0 })
}

// policyFor returns the first policy that is about h, and where it stands: those of the task come first.
func (t *turn) policyFor(h *happening) (*batch.LifecyclePolicy, string) {
	if h.task >= 0 {
		list := t.spec.Tasks[h.task].Policies
		if i := matching(list, h); i >= 0 {
			return &list[i], fmt.Sprintf("policies[%d] of task %s", i, t.spec.Tasks[h.task].Name)
		}
	}
	if i := matching(t.spec.Policies, h); i >= 0 {
		return &t.spec.Policies[i], fmt.Sprintf("policies[%d] of the Job", i)
	}
	return nil, ""
}

// matching returns the position of the first policy of a list that is about h; -1: there is none.
func matching(list []batch.LifecyclePolicy, h *happening) int {
	return slices.IndexFunc(list, func(p batch.LifecyclePolicy) bool {
		if h.waited && p.Timeout == nil {
			return false
		}
		if events := eventsOf(&p); slices.Contains(events, h.event) || slices.Contains(events, batch.AnyEvent) {
			return true
		}
		return p.ExitCode != nil && slices.Contains(h.codes, *p.ExitCode)
	})
}

// happenings returns what has happened, the earliest first. Pods of an earlier version have nothing to say any more.
func (t *turn) happenings() []happening {
	var all []happening
	for i := range t.tasks {
		all = append(all, t.ofPods(i)...)
		all = append(all, t.ofTask(i)...)
	}
	for _, g := range t.o.Gone {
		task := slices.IndexFunc(t.spec.Tasks, func(s batch.TaskSpec) bool { return s.Name == g.Task })
		if task < 0 || g.Index >= len(t.tasks[task].at) || g.Version < t.status.Version {
			continue // it was not needed any more
		}
		all = append(all, happening{
			event: batch.PodEvictedEvent, task: task, index: g.Index, name: PodName(t.job.Name, g.Task, g.Index), since: g.At,
		})
	}
	if since, ok := t.groupUnknown(); ok {
		all = append(all, happening{event: batch.UnknownEvent, task: -1, since: since})
	}
	slices.SortStableFunc(all, func(a, b happening) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.task, b.task), cmp.Compare(a.index, b.index))
	})
	return all
}

// ofPods returns what has happened to single pods of a task.
func (t *turn) ofPods(task int) []happening {
	var all []happening
	for _, p := range t.tasks[task].all {
		if p.marked || p.going || p.version < t.status.Version {
			continue // a pod that somebody is deleting is evicted when it is gone
		}
		h := happening{task: task, index: p.index, pod: p, name: p.pod.Name}
		switch p.pod.Status.Phase {
		case corev1.PodFailed:
			h.event, h.since, h.codes = batch.PodFailedEvent, podstate.FinishTime(p.pod), exitCodes(p.pod)
			all = append(all, h)
			if isDisrupted(p.pod) { // by the node, say: Volcano raises both, in this order
				h.event, h.codes = batch.PodEvictedEvent, nil
				all = append(all, h)
			}
		case corev1.PodPending:
			h.event, h.since, h.waited = batch.PodPendingEvent, p.pod.CreationTimestamp.Time, true
			all = append(all, h)
			if at, err := time.Parse(time.RFC3339, p.pod.Annotations[EvictedKey]); err == nil {
				h.event, h.since = batch.PodEvictedEvent, at
				all = append(all, h)
			}
		default: // nothing of note
		}
	}
	return all
}

// ofTask returns what has happened to a task as a whole.
func (t *turn) ofTask(task int) []happening {
	var last, worst *podView
	done, restarts := 0, 0
	for _, p := range t.tasks[task].all {
		if p.marked || p.going {
			continue
		}
		switch p.pod.Status.Phase {
		case corev1.PodSucceeded:
			done++
			if last == nil || podstate.FinishTime(p.pod).After(podstate.FinishTime(last.pod)) {
				last = p
			}
		case corev1.PodPending, corev1.PodRunning:
			n := podstate.Restarts(p.pod)
			restarts += n
			if n > 0 && p.version >= t.status.Version && (worst == nil || n > podstate.Restarts(worst.pod)) {
				worst = p
			}
		default: // counted elsewhere
		}
	}
	replicas := len(t.tasks[task].at)
	var all []happening
	if replicas > 0 && done >= replicas && last.version >= t.status.Version {
		all = append(all, happening{event: batch.TaskCompletedEvent, task: task, index: last.index, pod: last, name: last.pod.Name, since: podstate.FinishTime(last.pod)})
	}
	limit := t.spec.Tasks[task].MaxRetry
	if limit == 0 {
		limit = batch.DefaultMaxRetry
	}
	if replicas > 0 && limit > 0 && worst != nil && restarts >= int(limit) {
		all = append(all, happening{event: batch.TaskFailedEvent, task: task, index: worst.index, pod: worst, name: worst.pod.Name, since: lastRestart(worst.pod)})
	}
	return all
}

// lastRestart returns when a container of p was last started again, or p's creation where nothing tells.
func lastRestart(p *corev1.Pod) time.Time {
	latest := p.CreationTimestamp.Time
	for _, list := range [...][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if end := list[i].LastTerminationState.Terminated; end != nil && end.FinishedAt.After(latest) {
				latest = end.FinishedAt.Time
			}
		}
	}
	return latest
}

// exitCodes returns the codes other than 0 with which containers of p have ended, the main containers first.
//
// Differs: Volcano looks at the first main container alone.
func exitCodes(p *corev1.Pod) []int32 {
	var codes []int32
	for _, list := range [...][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if end := list[i].State.Terminated; end != nil && end.ExitCode != 0 {
				codes = append(codes, end.ExitCode)
			}
		}
	}
	return codes
}

// isDisrupted reports whether p was ended by its surroundings and not by itself.
func isDisrupted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// groupUnknown returns since when the PodGroup is Unknown, if that was not acted upon. After a restart of the controller the time
// is that of the scheduler's condition, and it must be later than the phase of the Job.
func (t *turn) groupUnknown() (time.Time, bool) {
	g := t.o.Group
	if g == nil || g.Status.Phase != scheduling.GroupUnknown || t.isStale(g) {
		return time.Time{}, false
	}
	if !t.o.GroupUnknownSince.IsZero() {
		return t.o.GroupUnknownSince, true
	}
	for i := len(g.Status.Conditions) - 1; i >= 0; i-- {
		c := &g.Status.Conditions[i]
		if c.Type == scheduling.GroupUnschedulable && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, c.LastTransitionTime.After(t.status.State.LastTransitionTime.Time)
		}
	}
	return time.Time{}, false
}

// about names the pod or task of h for people.
func (h *happening) about(t *turn) string {
	switch {
	case h.task < 0:
		return ""
	case h.event == batch.TaskCompletedEvent || h.event == batch.TaskFailedEvent:
		return t.spec.Tasks[h.task].Name
	}
	return h.name
}

// describe tells h for people.
func (h *happening) describe(t *turn) string {
	switch h.event {
	case batch.PodFailedEvent:
		if len(h.codes) > 0 {
			return fmt.Sprintf("pod %s has failed with exit code %d", h.name, h.codes[0])
		}
		return fmt.Sprintf("pod %s has failed", h.name)
	case batch.PodEvictedEvent:
		if h.pod != nil && !h.waited {
			return fmt.Sprintf("pod %s was evicted", h.name)
		}
		return fmt.Sprintf("pod %s was deleted", h.name)
	case batch.PodPendingEvent:
		return fmt.Sprintf("pod %s waits since %s", h.name, h.since.UTC().Format(time.RFC3339))
	case batch.TaskCompletedEvent:
		return fmt.Sprintf("all pods of task %s have succeeded", t.spec.Tasks[h.task].Name)
	case batch.TaskFailedEvent:
		return fmt.Sprintf("containers of task %s were restarted %d times or more", t.spec.Tasks[h.task].Name, t.spec.Tasks[h.task].MaxRetry)
	default:
		return "some pods run and others cannot be placed"
	}
}
