// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/drover-dev/drover/internal/node/podlife"
)

// writing is where a worker stands with its pod's status. There is one write at a time, and always of the newest status.
type writing struct {
	underWay bool
	dirty    time.Time // since when the API server's status is not ours; zero: it is
	tries    retry

	// What the API server took last, and the version that it made of it. It may not keep every field as it was sent.
	sent        *corev1.PodStatus
	sentVersion string
}

// settled reports whether the API server has this status, or has made of it what it makes of it.
func (w *worker) settled(status *corev1.PodStatus) bool {
	if equality.Semantic.DeepEqual(&w.pod.Status, status) {
		return true
	}
	return w.status.sent != nil && w.pod.ResourceVersion == w.status.sentVersion && equality.Semantic.DeepEqual(w.status.sent, status)
}

// writeLocked sees to it that status is written: a final one at once, another after a short while in which it may change again.
// So a pod whose container ends at once costs one write.
func (w *worker) writeLocked(ctx context.Context, status corev1.PodStatus, at *earliest) {
	if w.settled(&status) {
		w.status.dirty = time.Time{}
		return
	}
	now := w.n.clock.Now()
	if w.status.dirty.IsZero() {
		w.status.dirty = now
	}
	since := w.status.dirty
	if w.pod.Status.Phase == corev1.PodPending && status.Phase == corev1.PodRunning {
		since = begun(&status, since) // how long it took to get there says nothing of how long it runs
	}
	due := since.Add(w.statusDelay(&status))
	if w.status.tries.next.After(due) {
		due = w.status.tries.next
	}
	switch {
	case w.status.underWay:
		return // its end wakes the worker
	case due.After(now):
		at.add(due)
		return
	}
	w.status.underWay = true
	if podlife.IsTerminal(status.Phase) {
		w.freed.Store(true)
	}
	pod := w.pod.DeepCopy()
	pod.Status = status
	w.goBusy(func() { w.write(ctx, pod) })
}

// begun returns when the newest container of a pod began to run, since if none has after that.
func begun(status *corev1.PodStatus, since time.Time) time.Time {
	for i := range status.ContainerStatuses {
		if r := status.ContainerStatuses[i].State.Running; r != nil && r.StartedAt.After(since) {
			since = r.StartedAt.Time
		}
	}
	return since
}

// statusDelay returns how long a status may wait for the next one. The longer delays keep a burst of pods from being a burst of news
// that nobody reads: in the time it takes to start many, most have ended.
func (w *worker) statusDelay(status *corev1.PodStatus) time.Duration {
	delay := w.n.cfg.StatusDelay
	switch {
	case podlife.IsTerminal(status.Phase):
		return 0
	case w.pod.Status.Phase == corev1.PodPending && status.Phase == corev1.PodPending && podlife.Quiet(status):
		return 50 * delay
	case w.n.crowded():
		return 10 * delay
	}
	return delay
}

// write sends one status. It is a full update that fails when somebody else has changed the pod meanwhile, because that is what
// costs the API server least; the worker then decides again on the newer version.
func (w *worker) write(ctx context.Context, pod *corev1.Pod) {
	api := w.n.client.CoreV1().Pods(pod.Namespace)
	answer, err := api.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	taken := err == nil
	if apierrors.IsConflict(err) {
		answer, err = api.Get(ctx, pod.Name, metav1.GetOptions{})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.underWay = false
	switch {
	case err == nil && answer.UID == w.uid:
		w.status.tries = retry{}
		if taken {
			w.status.sent, w.status.sentVersion = &pod.Status, answer.ResourceVersion
		}
		if newer(answer, w.pod) {
			answer.ManagedFields = nil
			w.pod = answer
		}
	case err == nil, apierrors.IsNotFound(err):
		w.removed = true
	case ctx.Err() != nil:
	default:
		w.status.tries.after(w.n.clock.Now(), w.n.cfg.RetryBackOff)
		w.n.log.Warn("Writing the status of a pod did not work", "pod", podKey(pod), "err", err, "again", w.status.tries.last)
	}
}

// compareVersions orders two resource versions as cmp.Compare does; what is not a number goes first.
func compareVersions(a, b string) int {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return 0
	}
	return order
}

// deletePod takes a finished pod's object away, which its deletion has been waiting for.
func (n *Node) deletePod(ctx context.Context, pod *corev1.Pod) error {
	zero := int64(0)
	err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero,
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one has its name
	}
	if err != nil {
		return fmt.Errorf("deleting pod %s: %w", podKey(pod), err)
	}
	return nil
}
