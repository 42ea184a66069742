// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/queue"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// The handlers do no work: they wake the worker of a Job, and note what the caches do not hold: pods that are gone, and when a
// PodGroup has become Unknown.

func (c *VCJobController) jobAdded(j *batch.Job) {
	c.queue.Add(keyOf(j))
	c.expire(j)
}

func (c *VCJobController) jobUpdated(before, after *batch.Job) {
	if sameVersion(before, after) {
		return
	}
	c.expire(after)
	state := c.states.get(after.UID)
	ended := vcjob.IsFinal(after.Status.State.Phase) && !vcjob.IsFinal(before.Status.State.Phase) // its memory can go
	if ended && state != nil && state.isOver(after.ResourceVersion) {
		c.states.drop(after.UID)
		return
	}
	if state == nil || ended || !state.wrote(after.ResourceVersion) {
		c.queue.Add(keyOf(after))
	}
}

func (c *VCJobController) jobDeleted(j *batch.Job) {
	c.states.drop(j.UID)
	dropJobMetrics(j)
	c.queue.Add(keyOf(j)) // Commands for it are left
}

// ownerOf returns the key and the UID of the Job that p belongs to; "": p is no pod of such a Job.
func ownerOf(p *corev1.Pod) (key string, id uid) {
	ref := metav1.GetControllerOfNoCopy(p)
	if !vcjob.IsOwner(ref) {
		return "", ""
	}
	return p.Namespace + "/" + ref.Name, ref.UID
}

func (c *VCJobController) podAdded(p *corev1.Pod) {
	key, id := ownerOf(p)
	if key == "" {
		return
	}
	if state := c.states.get(id); state != nil && state.expected(p.UID) && p.DeletionTimestamp == nil && !podstate.IsFinished(p) {
		return
	}
	c.wake(key, id)
}

func (c *VCJobController) podUpdated(before, after *corev1.Pod) {
	key, id := ownerOf(after)
	if key == "" || sameVersion(before, after) {
		return
	}
	if before.Status.Phase != after.Status.Phase || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		podstate.Restarts(before) != podstate.Restarts(after) || podstate.IsReady(before) != podstate.IsReady(after) ||
		len(before.Annotations) != len(after.Annotations) {
		c.wake(key, id)
	}
}

func (c *VCJobController) podDeleted(p *corev1.Pod) {
	if _, exists, err := c.jobs.GetByKey(p.Namespace + "/" + p.Labels[batch.JobNameKey]); err == nil && exists {
		c.queue.Add(p.Namespace + "/" + p.Labels[batch.JobNameKey]) // a later Job of the name may wait for this one to go
	}
	key, id := ownerOf(p)
	if key == "" {
		return
	}
	state := c.states.get(id)
	if state == nil {
		return
	}
	doomed := state.wasDoomed(p.UID)
	if g, ok := vcjob.GoneFrom(p, c.clock.Now()); ok && !doomed {
		state.noteGone(g)
	}
	c.wake(key, id)
}

// wake has a Job looked at: at once, unless it is wide and was looked at a moment ago.
func (c *VCJobController) wake(key string, id uid) {
	if state := c.states.get(id); state != nil {
		state.mu.Lock()
		wide, since := state.pods > c.cfg.WideJob, c.clock.Since(state.lastSync)
		state.mu.Unlock()
		if wide && since < c.cfg.WidePeriod {
			c.queue.AddAfter(key, c.cfg.WidePeriod-since)
			return
		}
	}
	c.queue.Add(key)
}

// groupJob returns the key and UID of the Job of a PodGroup.
func groupJob(g *scheduling.PodGroup) (key string, id uid) {
	ref := metav1.GetControllerOfNoCopy(g)
	if !vcjob.IsOwner(ref) {
		return "", ""
	}
	return g.Namespace + "/" + ref.Name, ref.UID
}

// groupDeleted wakes the Job of a PodGroup, unless nothing was left to do for it.
func (c *VCJobController) groupDeleted(g *scheduling.PodGroup) {
	key, id := groupJob(g)
	if key == "" {
		return
	}
	if j, err := c.cachedJob(key); err == nil && j != nil && j.UID == id && vcjob.IsFinal(j.Status.State.Phase) && c.states.get(id) == nil {
		return
	}
	c.queue.Add(key)
}

func (c *VCJobController) groupChanged(g *scheduling.PodGroup) {
	if key, id := groupJob(g); key != "" {
		if state := c.states.get(id); state == nil || !state.madeGroup(g.ResourceVersion) {
			c.queue.Add(key)
		}
	}
}

func (c *VCJobController) groupUpdated(before, after *scheduling.PodGroup) {
	key, id := groupJob(after)
	if key == "" || sameVersion(before, after) {
		return
	}
	if before.Status.Phase != after.Status.Phase {
		if state := c.states.get(id); state != nil {
			state.mu.Lock()
			state.unknownSince = time.Time{}
			if after.Status.Phase == scheduling.GroupUnknown {
				state.unknownSince = c.clock.Now()
			}
			state.mu.Unlock()
		}
		c.queue.Add(key)
		return
	}
	if !sameConditions(before.Status.Conditions, after.Status.Conditions) || before.Annotations[gang.GrantedKey] != after.Annotations[gang.GrantedKey] || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || before.Generation != after.Generation {
		c.queue.Add(key)
	}
}

// sameConditions reports whether two lists of conditions say the same.
func sameConditions(a, b []scheduling.PodGroupCondition) bool {
	return slices.EqualFunc(a, b, func(a, b scheduling.PodGroupCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
	})
}

func (c *VCJobController) commandAdded(cmd *bus.Command) {
	if key := commandTarget(cmd); key != "" {
		c.queue.Add(key)
	}
}

// queueChanged wakes the Jobs that wait for a queue, and those that may wait for it from now on.
func (c *VCJobController) queueChanged(q *scheduling.Queue) {
	for _, o := range c.jobs.List() {
		if j := o.(*batch.Job); j.Spec.Queue == q.Name && (j.Status.State.Reason == "QueueNotFound" || j.Status.State.Phase == batch.Pending && j.Status.Pending == 0) {
			c.queue.Add(keyOf(j))
		}
	}
}

// queueUpdated does so when a queue opens or closes.
func (c *VCJobController) queueUpdated(before, after *scheduling.Queue) {
	if queue.TakesJobs(before) != queue.TakesJobs(after) {
		c.queueChanged(after)
	}
}
