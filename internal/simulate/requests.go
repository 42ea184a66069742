// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// The requests of a Job controller. Each checks what a controller may do, and answers like the API server.

// GetJob returns the stored Job.
func (c *Cluster) GetJob(namespace, name string) (*batchv1.Job, error) {
	lost, err := c.request("GET job")
	if err != nil {
		return nil, err
	}
	j := c.jobs[namespace+"/"+name]
	if j == nil {
		return nil, apierrors.NewNotFound(jobResource, name)
	}
	return j.DeepCopy(), lost()
}

// PutStatus stores the status of next.
func (c *Cluster) PutStatus(next *batchv1.Job) (resourceVersion string, err error) {
	lost, err := c.request("PUT status")
	if err != nil {
		return "", err
	}
	stored := c.jobs[key(next)]
	switch {
	case stored == nil || stored.UID != next.UID:
		return "", apierrors.NewNotFound(jobResource, next.Name)
	case stored.ResourceVersion != next.ResourceVersion:
		return "", apierrors.NewConflict(jobResource, next.Name, fmt.Errorf("version %s is stored", stored.ResourceVersion))
	}
	j := stored.DeepCopy()
	j.Status = *next.Status.DeepCopy()
	if problems := invalidStatus(j, &stored.Status); len(problems) > 0 {
		c.violate("status of %s was refused: %s", key(j), strings.Join(problems, "; "))
		return "", apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), j.Name, nil)
	}
	c.auditStatus(stored, j)
	c.storeJob(j)
	return j.ResourceVersion, lost()
}

// DeleteJobForeground marks a Job for deletion after its pods.
func (c *Cluster) DeleteJobForeground(namespace, name string, uid types.UID) error {
	lost, err := c.request("DELETE job")
	if err != nil {
		return err
	}
	j := c.jobs[namespace+"/"+name]
	if j == nil {
		return apierrors.NewNotFound(jobResource, name)
	}
	if j.UID != uid {
		return apierrors.NewConflict(jobResource, name, fmt.Errorf("UID is %s", j.UID))
	}
	c.markForDeletion(j)
	return lost()
}

// GetPod returns the stored pod.
func (c *Cluster) GetPod(namespace, name string) (*corev1.Pod, error) {
	lost, err := c.request("GET pod")
	if err != nil {
		return nil, err
	}
	p := c.pods[namespace+"/"+name]
	if p == nil {
		return nil, apierrors.NewNotFound(podResource, name)
	}
	return p.DeepCopy(), lost()
}

// PostPod stores a new pod.
func (c *Cluster) PostPod(p *corev1.Pod) (*corev1.Pod, error) {
	lost, err := c.request("POST pod")
	if err != nil {
		return nil, err
	}
	if c.PodWebhookDown {
		return nil, apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.com": failed to call webhook: Post "https://pods.example.svc:443/": connection refused`))
	}
	if c.pods[key(p)] != nil {
		return nil, apierrors.NewAlreadyExists(podResource, p.Name)
	}
	if c.Quota > 0 && c.unfinishedPods() >= c.Quota {
		return nil, apierrors.NewForbidden(podResource, p.Name, fmt.Errorf("exceeded quota: q, requested: pods=1, used: pods=%d, limited: pods=%d", c.Quota, c.Quota))
	}
	p = p.DeepCopy()
	p.UID = c.nextUID("pod")
	p.CreationTimestamp = metav1.NewTime(c.Now.Truncate(time.Second))
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	c.auditCreation(p)
	c.storePod(p)
	return p.DeepCopy(), lost()
}

func (c *Cluster) unfinishedPods() int {
	n := 0
	for _, p := range c.pods {
		if !finished(p) {
			n++
		}
	}
	return n
}

// DeletePod asks for a pod to be deleted with its grace period. A pod that has no node, or has ended, goes at once.
func (c *Cluster) DeletePod(namespace, name string, uid types.UID) error {
	lost, err := c.request("DELETE pod")
	if err != nil {
		return err
	}
	p, err := c.podWithUID(namespace, name, uid)
	if err != nil {
		return err
	}
	c.markPod(p, 30)
	return lost()
}

// markPod sets the deletion timestamp of p.
func (c *Cluster) markPod(p *corev1.Pod, grace int64) {
	if p.DeletionTimestamp != nil {
		return
	}
	p = p.DeepCopy()
	if p.Spec.NodeName == "" || finished(p) {
		grace = 0
	} else {
		c.running[p.UID] = true
	}
	p.DeletionTimestamp = ptr.To(metav1.NewTime(c.Now.Add(time.Duration(grace) * time.Second).Truncate(time.Second)))
	p.DeletionGracePeriodSeconds = &grace
	c.storePod(p)
}

func (c *Cluster) podWithUID(namespace, name string, uid types.UID) (*corev1.Pod, error) {
	p := c.pods[namespace+"/"+name]
	if p == nil {
		return nil, apierrors.NewNotFound(podResource, name)
	}
	if p.UID != uid {
		return nil, apierrors.NewConflict(podResource, name, fmt.Errorf("UID is %s", p.UID))
	}
	return p, nil
}

// UntrackPod takes the tracking finalizer off a pod, which must have that version where one is given.
func (c *Cluster) UntrackPod(namespace, name string, uid types.UID, resourceVersion string) error {
	lost, err := c.request("PATCH pod")
	if err != nil {
		return err
	}
	p, err := c.podWithUID(namespace, name, uid)
	if err != nil {
		return err
	}
	if resourceVersion != "" && p.ResourceVersion != resourceVersion {
		return apierrors.NewConflict(podResource, name, fmt.Errorf("version %s is stored", p.ResourceVersion))
	}
	if slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
		c.auditUntracking(p)
		p = p.DeepCopy()
		p.Finalizers = without(p.Finalizers, batchv1.JobTrackingFinalizer)
		c.storePod(p)
	}
	return lost()
}

// AdoptPod makes j the controller of an ownerless pod of that version, and adds the tracking finalizer if so asked.
func (c *Cluster) AdoptPod(j *batchv1.Job, name string, uid types.UID, resourceVersion string, track bool) (*corev1.Pod, error) {
	lost, err := c.request("PATCH pod")
	if err != nil {
		return nil, err
	}
	p, err := c.podWithUID(j.Namespace, name, uid)
	if err != nil {
		return nil, err
	}
	if p.ResourceVersion != resourceVersion {
		return nil, apierrors.NewConflict(podResource, name, fmt.Errorf("version %s is stored", p.ResourceVersion))
	}
	if ref := metav1.GetControllerOf(p); ref != nil && ref.UID != j.UID {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), name, nil)
	}
	p = p.DeepCopy()
	p.OwnerReferences = slices.DeleteFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == j.UID })
	p.OwnerReferences = append(p.OwnerReferences, *metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job")))
	if track {
		p.Finalizers = append(without(p.Finalizers, batchv1.JobTrackingFinalizer), batchv1.JobTrackingFinalizer)
	}
	c.storePod(p)
	return p.DeepCopy(), lost()
}

// ReleasePod takes j's owner reference and the tracking finalizer off a pod.
func (c *Cluster) ReleasePod(j *batchv1.Job, name string, uid types.UID) (*corev1.Pod, error) {
	lost, err := c.request("PATCH pod")
	if err != nil {
		return nil, err
	}
	p, err := c.podWithUID(j.Namespace, name, uid)
	if err != nil {
		return nil, err
	}
	p = p.DeepCopy()
	p.OwnerReferences = slices.DeleteFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == j.UID })
	p.Finalizers = without(p.Finalizers, batchv1.JobTrackingFinalizer)
	c.storePod(p)
	return p.DeepCopy(), lost()
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return x == s })
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
