// SPDX-License-Identifier: Apache-2.0

package controller

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/job"
	"github.com/drover-dev/drover/internal/podstate"
)

// The handlers do no work: they note what has happened where the worker will look, and wake it if it could matter. A change
// that only moves numbers wakes it lazily; one that no decision depends on does not wake it.

func (c *JobController) jobAdded(j *batchv1.Job) {
	if c.elsewhere(j) {
		if j.Spec.ManagedBy != nil {
			jobsByExternalController.WithLabelValues(*j.Spec.ManagedBy).Inc()
		}
	} else if job.Finished(j) == nil {
		c.queue.Add(keyOf(j))
	} else {
		c.freeFinished(j)
	}
	c.expire(j)
}

func (c *JobController) jobUpdated(before, after *batchv1.Job) {
	if sameVersion(before, after) {
		return
	}
	c.expire(after)
	if before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && !c.elsewhere(after) {
		c.freeOwnerless(after)
	}
	switch {
	case c.elsewhere(after):
	case job.Finished(after) != nil:
		if job.Finished(before) == nil {
			c.freeFinished(after)
		}
	case before.Generation == after.Generation && c.isOurs(after):
		// Our own status coming back.
	default:
		c.queue.Add(keyOf(after))
	}
}

func (c *JobController) jobDeleted(j *batchv1.Job) {
	c.states.end(j.UID)
	if !c.elsewhere(j) {
		c.orphans.Add(ofJob(j))
		c.freeOwnerless(j)
	}
}

// freeOwnerless has the ownerless pods that j would have adopted looked at again, now that it will not: when they lost their
// owner, the cache may not yet have known what has become of j.
func (c *JobController) freeOwnerless(j *batchv1.Job) {
	pods, err := c.podsFor(j)
	if err != nil {
		return
	}
	for _, p := range pods {
		if metav1.GetControllerOfNoCopy(p) == nil && job.IsTracked(p) {
			c.orphans.Add(onePod(p))
		}
	}
}

// isOurs reports whether this version of a Job is one that we have written.
func (c *JobController) isOurs(j *batchv1.Job) bool {
	state := c.states.get(j.UID)
	return state != nil && state.wrote(j.ResourceVersion)
}

// freeFinished has what is left of a finished Job looked after: its memory goes, and pods that still carry the tracking
// finalizer lose it.
func (c *JobController) freeFinished(j *batchv1.Job) {
	c.freeOwnerless(j)
	if c.isClosing(j) {
		return // the worker that has written its end is at it
	}
	c.states.drop(j.UID)
	tracked, err := c.pods.ByIndex(podsOfJob, string(j.UID))
	if err != nil {
		return
	}
	for _, o := range tracked {
		if job.IsTracked(o.(*corev1.Pod)) {
			c.orphans.Add(ofJob(j))
			return
		}
	}
}

func (c *JobController) isClosing(j *batchv1.Job) bool {
	state := c.states.get(j.UID)
	return state != nil && state.isClosing()
}

// elsewhere reports whether another controller looks after j.
func (c *JobController) elsewhere(j *batchv1.Job) bool {
	return job.ManagedElsewhere(j, c.cfg.ManagerName, c.cfg.OnlyMarked)
}

func (c *JobController) podAdded(p *corev1.Pod) {
	countTracked(nil, p)
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil {
		c.ownerlessChanged(p)
		return
	}
	if ref.Kind != "Job" {
		return
	}
	c.noteFor(ref, podChange{pod: p})
	wake := lazily
	switch state := c.states.get(ref.UID); {
	case p.DeletionTimestamp != nil || podstate.IsFinished(p):
		wake = promptly
	case state != nil && state.expected(p.UID):
		wake = never
	}
	c.wake(p, wake)
}

func (c *JobController) podUpdated(before, after *corev1.Pod) {
	if sameVersion(before, after) {
		return
	}
	countTracked(before, after)
	if !job.IsTracked(after) {
		c.freed.forget(after.UID)
	}
	oldRef, ref := metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after)
	if oldRef != nil && (ref == nil || oldRef.UID != ref.UID) {
		c.noteFor(oldRef, podChange{pod: after})
		c.wake(before, promptly)
	}
	if ref == nil {
		if oldRef == nil {
			for _, j := range c.claimants(before) { // whose selector may not match any more
				c.noteJob(j, podChange{pod: after})
			}
		}
		c.ownerlessChanged(after)
		return
	}
	if ref.Kind != "Job" {
		return
	}
	c.noteFor(ref, podChange{pod: after})
	if oldRef == nil || oldRef.UID != ref.UID {
		c.wake(after, promptly)
		return
	}
	c.wake(after, relevance(before, after))
}

func (c *JobController) podDeleted(p *corev1.Pod) {
	countTracked(p, nil)
	c.freed.forget(p.UID)
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil {
		for _, j := range c.claimants(p) {
			c.noteJob(j, podChange{pod: p, gone: true})
		}
		return
	}
	if ref.Kind != "Job" {
		return
	}
	c.noteFor(ref, podChange{pod: p, gone: true})
	wake := promptly
	if podstate.IsFinished(p) && !job.IsTracked(p) {
		wake = lazily // it was counted before it went
	}
	c.wake(p, wake)
}

func (c *JobController) ownerlessChanged(p *corev1.Pod) {
	if job.IsTracked(p) {
		c.orphans.Add(onePod(p))
	}
	for _, j := range c.claimants(p) {
		c.noteJob(j, podChange{pod: p})
	}
}

func (c *JobController) noteFor(ref *metav1.OwnerReference, change podChange) {
	if state := c.states.get(ref.UID); state != nil {
		state.note(change)
	}
}

func (c *JobController) noteJob(j *batchv1.Job, change podChange) {
	if state := c.states.get(j.UID); state != nil {
		state.note(change)
	}
	c.queue.Add(keyOf(j))
}

// wakeup says how soon a Job must be looked at.
type wakeup int

const (
	never wakeup = iota
	lazily
	promptly
)

// relevance says how soon the Job of a pod must be looked at after this change of the pod.
func relevance(before, after *corev1.Pod) wakeup {
	switch {
	case before.Status.Phase != after.Status.Phase && podstate.IsFinished(after),
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil),
		!sameLabels(before, after),
		!job.IsTracked(before) && job.IsTracked(after),
		podstate.Restarts(before) != podstate.Restarts(after):
		return promptly
	case podstate.IsReady(before) != podstate.IsReady(after),
		job.IsTracked(before) && !job.IsTracked(after):
		return lazily
	}
	return never
}

func sameLabels(a, b *corev1.Pod) bool {
	if len(a.Labels) != len(b.Labels) {
		return false
	}
	for k, v := range a.Labels {
		if w, ok := b.Labels[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// wake has the Job that controls p looked at. Where there is none that goes on, p itself may need to be let go.
func (c *JobController) wake(p *corev1.Pod, when wakeup) {
	j := c.controllingJob(p)
	if j == nil || job.Finished(j) != nil {
		if job.IsTracked(p) && (j == nil || !c.elsewhere(j) && !c.isClosing(j)) {
			c.orphans.Add(onePod(p))
		}
		return
	}
	if c.elsewhere(j) {
		return
	}
	switch when {
	case never:
	case promptly:
		c.queue.Add(keyOf(j))
	case lazily:
		c.queue.AddLazily(keyOf(j), c.gaugeDelay())
	}
}

// countTracked keeps the metric of pods that have ended and still carry the tracking finalizer.
func countTracked(before, after *corev1.Pod) {
	was := before != nil && podstate.IsFinished(before) && job.IsTracked(before)
	is := after != nil && podstate.IsFinished(after) && job.IsTracked(after)
	switch {
	case is && !was:
		terminatedPodsTracked.WithLabelValues("add").Inc()
	case was && !is:
		terminatedPodsTracked.WithLabelValues("delete").Inc()
	}
}
