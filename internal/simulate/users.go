// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// What users, nodes and the garbage collector do. None of it meets a fault.

// Submit stores a new Job with the defaults of the API server, and returns it.
func (c *Cluster) Submit(j *batchv1.Job) *batchv1.Job {
	j = j.DeepCopy()
	j.UID = c.nextUID("job")
	j.Generation = 1
	j.CreationTimestamp = metav1.NewTime(c.Now.Truncate(time.Second))
	if j.Spec.Completions == nil && j.Spec.Parallelism == nil {
		j.Spec.Completions = ptr.To[int32](1)
	}
	setDefault(&j.Spec.Parallelism, 1)
	setDefault(&j.Spec.BackoffLimit, 6)
	setDefault(&j.Spec.Suspend, false)
	setDefault(&j.Spec.CompletionMode, batchv1.NonIndexedCompletion)
	replacement := batchv1.TerminatingOrFailed
	if j.Spec.PodFailurePolicy != nil {
		replacement = batchv1.Failed
	}
	setDefault(&j.Spec.PodReplacementPolicy, replacement)
	labels := map[string]string{batchv1.ControllerUidLabel: string(j.UID), batchv1.JobNameLabel: j.Name}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: string(j.UID)}}
	}
	for k, v := range j.Spec.Template.Labels {
		labels[k] = v
	}
	j.Spec.Template.Labels = labels
	if j.Spec.Template.Spec.RestartPolicy == "" {
		j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	c.ledger.submitted(j)
	c.storeJob(j)
	return j.DeepCopy()
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Edit changes the spec or metadata of a Job as a user may. It does nothing when the Job is gone.
func (c *Cluster) Edit(namespace, name string, change func(*batchv1.Job)) {
	stored := c.jobs[namespace+"/"+name]
	if stored == nil {
		return
	}
	j := stored.DeepCopy()
	change(j)
	j.Status = stored.Status
	j.Generation++
	c.ledger.edited(j)
	c.storeJob(j)
}

// Remove deletes a Job in the background: the garbage collector deletes its pods afterwards.
func (c *Cluster) Remove(namespace, name string) {
	if j := c.jobs[namespace+"/"+name]; j != nil {
		c.removeJob(j)
	}
}

// RemoveForeground deletes a Job after its pods.
func (c *Cluster) RemoveForeground(namespace, name string) {
	if j := c.jobs[namespace+"/"+name]; j != nil {
		c.markForDeletion(j)
	}
}

func (c *Cluster) markForDeletion(j *batchv1.Job) {
	if j.DeletionTimestamp != nil {
		return
	}
	j = j.DeepCopy()
	j.DeletionTimestamp = ptr.To(metav1.NewTime(c.Now.Truncate(time.Second)))
	j.DeletionGracePeriodSeconds = ptr.To[int64](0)
	j.Generation++
	c.storeJob(j)
}

// CollectGarbage deletes the pods whose Job is gone or being deleted, and the Jobs that wait for no pod any more.
func (c *Cluster) CollectGarbage() {
	left := map[string]int{}
	for _, k := range sortedKeys(c.pods) {
		p := c.pods[k]
		ref := metav1.GetControllerOf(p)
		if ref == nil {
			continue
		}
		j := c.jobs[p.Namespace+"/"+ref.Name]
		if j == nil || j.UID != ref.UID || j.DeletionTimestamp != nil {
			c.markPod(p, 30)
		}
		if c.pods[k] != nil && j != nil {
			left[key(j)]++
		}
	}
	for _, k := range sortedKeys(c.jobs) {
		if j := c.jobs[k]; j.DeletionTimestamp != nil && left[k] == 0 {
			c.removeJob(j)
		}
	}
}

// EvictPod deletes a pod as a user or a drain does, with a grace period in seconds.
func (c *Cluster) EvictPod(p *corev1.Pod, grace int64) {
	if stored := c.pods[key(p)]; stored != nil && stored.UID == p.UID {
		c.markPod(stored, grace)
	}
}

// EditPod changes a pod's metadata as a user may.
func (c *Cluster) EditPod(p *corev1.Pod, change func(*corev1.Pod)) {
	if stored := c.pods[key(p)]; stored != nil && stored.UID == p.UID {
		next := stored.DeepCopy()
		change(next)
		c.storePod(next)
	}
}

// Bind gives a pending pod a node.
func (c *Cluster) Bind(p *corev1.Pod) {
	c.setPod(p, func(p *corev1.Pod) { p.Spec.NodeName = "node" })
}

// Start has a pod's containers running.
func (c *Cluster) Start(p *corev1.Pod, ready bool) {
	c.setPod(p, func(p *corev1.Pod) {
		p.Spec.NodeName = "node"
		p.Status.Phase = corev1.PodRunning
		setReady(p, ready, c.Now)
	})
}

// Finish ends a pod's containers with an exit code. A pod that is being deleted is then let go by its node.
func (c *Cluster) Finish(p *corev1.Pod, exitCode int32) {
	c.setPod(p, func(p *corev1.Pod) {
		p.Spec.NodeName = "node"
		p.Status.Phase = corev1.PodSucceeded
		if exitCode != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		setReady(p, false, c.Now)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, FinishedAt: metav1.NewTime(c.Now.Truncate(time.Second))}},
		}}
		delete(c.running, p.UID)
	})
}

// Restart restarts the container of a running pod in place.
func (c *Cluster) Restart(p *corev1.Pod) {
	c.setPod(p, func(p *corev1.Pod) {
		if len(p.Status.ContainerStatuses) == 0 {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
		}
		p.Status.ContainerStatuses[0].RestartCount++
	})
}

// setPod changes a pod that has not ended.
func (c *Cluster) setPod(p *corev1.Pod, change func(*corev1.Pod)) {
	stored := c.pods[key(p)]
	if stored == nil || stored.UID != p.UID || finished(stored) {
		return
	}
	next := stored.DeepCopy()
	change(next)
	c.storePod(next)
}

func setReady(p *corev1.Pod, ready bool, now time.Time) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}}
}
