// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/job"
)

// Keys of the orphan queue name one pod, "pod/<namespace>/<name>", or all pods of a Job that has ended or is gone,
// "job/<namespace>/<UID>".

func onePod(p metav1.Object) string { return "pod/" + keyOf(p) }
func ofJob(j *batchv1.Job) string   { return "job/" + j.Namespace + "/" + string(j.UID) }
func splitOrphanKey(key string) (kind, namespace, value string) {
	kind, rest, _ := strings.Cut(key, "/")
	namespace, value, _ = strings.Cut(rest, "/")
	return kind, namespace, value
}

// syncOrphans lets go of pods that carry the tracking finalizer for nobody.
func (c *JobController) syncOrphans(ctx context.Context, key string) error {
	kind, namespace, value := splitOrphanKey(key)
	if kind == "pod" {
		o, exists, err := c.pods.GetByKey(namespace + "/" + value)
		if err != nil || !exists {
			return err
		}
		return c.freeOrphan(ctx, o.(*corev1.Pod))
	}
	pods, err := c.pods.ByIndex(podsOfJob, value)
	if err != nil {
		return fmt.Errorf("reading the pods of a former Job from the cache: %w", err)
	}
	errs := make([]error, len(pods))
	c.gate.each(len(pods), func(i int) {
		p := pods[i].(*corev1.Pod)
		if errs[i] = c.freeOrphan(ctx, p); errs[i] != nil {
			c.orphans.AddRateLimited(onePod(p))
		}
	})
	return nil // each pod that is left has a key of its own now
}

// freeOrphan takes the tracking finalizer off p unless a Job will still count it.
func (c *JobController) freeOrphan(ctx context.Context, p *corev1.Pod) error {
	if !job.IsTracked(p) || c.freed.has(p.UID) {
		return nil
	}
	owner := c.controllingJob(p)
	elsewhere := owner == nil && c.cfg.OnlyMarked || owner != nil && c.elsewhere(owner)
	if !job.IsOrphan(p, owner, elsewhere) {
		return nil
	}
	if owner == nil {
		if c.willBeAdopted(p) {
			return nil
		}
		if gone, err := c.isReallyGone(ctx, p); err != nil || !gone {
			return err
		}
	}
	err := c.api.Untrack(ctx, p.Namespace, job.PodKey{Name: p.Name, UID: p.UID}, p.ResourceVersion)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the tracking finalizer off orphan pod %s: %w", keyOf(p), err)
	}
	return nil
}

// willBeAdopted reports whether a Job that goes on selects the ownerless pod p, and will count it.
//
// Differs: upstream takes the finalizer off all the same, and puts it back when it adopts the pod; a pod that ends in between
// is lost.
func (c *JobController) willBeAdopted(p *corev1.Pod) bool {
	return metav1.GetControllerOfNoCopy(p) == nil && slices.ContainsFunc(c.claimants(p), func(j *batchv1.Job) bool {
		return job.Finished(j) == nil && j.DeletionTimestamp == nil && !c.elsewhere(j)
	})
}

// errStillThere says that the cache does not know a Job which exists.
var errStillThere = errors.New("its Job exists and is not in the cache yet")

// isReallyGone reports whether the Job that p's controller reference means is gone, also according to the API server: a Job
// that the cache does not know yet would miss the pod in its count.
//
// Differs: upstream believes its cache.
func (c *JobController) isReallyGone(ctx context.Context, p *corev1.Pod) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || c.states.hasEnded(ref.UID) {
		return true, nil
	}
	j, err := c.api.Job(ctx, p.Namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && j.UID != ref.UID:
		c.states.end(types.UID(ref.UID))
		return true, nil
	case err != nil:
		return false, fmt.Errorf("making sure that the Job of orphan pod %s is gone: %w", keyOf(p), err)
	}
	return false, fmt.Errorf("letting go of pod %s: %w", keyOf(p), errStillThere)
}

// freedPods are pods that have lost their tracking finalizer with the end of their Job, while the cache still shows it: the watch of
// Jobs may be ahead of that of pods. The zero value holds none. It is safe for concurrent use.
type freedPods struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

func (f *freedPods) note(id types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uids == nil {
		f.uids = map[types.UID]bool{}
	}
	f.uids[id] = true
}

func (f *freedPods) has(id types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uids[id]
}

func (f *freedPods) forget(id types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.uids, id)
}

// noteFreed has a pod that was let go not looked at again until the cache knows.
func (c *JobController) noteFreed(namespace string, pod job.PodKey) {
	c.freed.note(pod.UID)
	o, exists, err := c.pods.GetByKey(namespace + "/" + pod.Name)
	if err != nil || !exists || o.(*corev1.Pod).UID != pod.UID || !job.IsTracked(o.(*corev1.Pod)) {
		c.freed.forget(pod.UID) // the watch was faster than the answer
	}
}
