// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/node/hostfiles"
	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/process"
)

// saw hands a new version of a pod to its worker, and makes one for a pod that is not finished.
func (n *Node) saw(ctx context.Context, obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || ctx.Err() != nil {
		return
	}
	defer n.survive(pod)
	w, finished := n.dispatch(ctx, pod)
	switch {
	case w != nil:
		w.saw(pod, false)
	case finished:
		n.tasks.Go(func() {
			n.completeDeletion(ctx, pod)
			n.repeatDeletion(ctx, pod)
			n.mu.Lock()
			delete(n.deleting, pod.UID)
			n.mu.Unlock()
		})
	}
}

// dispatch returns the worker that a version of a pod is for. Without one, finished says that its object waits to be deleted.
func (n *Node) dispatch(ctx context.Context, pod *corev1.Pod) (w *worker, finished bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.workers[pod.UID]; w != nil {
		return w, false
	}
	if version, ok := n.finished[pod.UID]; ok {
		if compareVersions(pod.ResourceVersion, version) < 0 {
			// It is what the pod was before its worker wrote its end. Taking it on would run it again.
			return nil, false
		}
		delete(n.finished, pod.UID)
	}
	if !podlife.IsTerminal(pod.Status.Phase) {
		n.takeOnLocked(ctx, pod)
		return nil, false
	}
	if pod.DeletionTimestamp == nil || n.deleting[pod.UID] {
		return nil, false
	}
	n.deleting[pod.UID] = true
	return nil, true
}

// survive keeps a pod that nobody has thought of from taking the node down.
func (n *Node) survive(pod *corev1.Pod) {
	if p := recover(); p != nil {
		n.log.Error("Handling a pod failed", "pod", podKey(pod), "err", p, "stack", string(debug.Stack()))
	}
}

// lost tells a pod's worker that its object is gone.
func (n *Node) lost(ctx context.Context, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || ctx.Err() != nil {
		return
	}
	defer n.survive(pod)
	n.mu.Lock()
	w := n.workers[pod.UID]
	delete(n.finished, pod.UID)
	n.mu.Unlock()
	if w != nil {
		w.saw(pod, true)
		return
	}
	n.removeLogs(pod)
}

// takeOnLocked makes a worker for a pod and lets it run.
func (n *Node) takeOnLocked(ctx context.Context, pod *corev1.Pod) {
	w := n.newWorker(pod)
	found := n.found[pod.UID]
	delete(n.found, pod.UID)
	n.recoverContainers(w, found)
	if host, domain := hostfiles.Name(pod, n.cfg.ClusterDomain); domain != "" && n.features.Isolation == process.Full {
		n.neighbours.join(pod.UID, host, domain, len(found) > 0)
	}
	if len(w.containers) == 0 {
		w.stop = n.refuseLocked(pod)
	}
	n.workers[pod.UID] = w
	n.tasks.Go(func() {
		w.run(ctx)
		n.afterWorker(ctx, w)
	})
}

// afterWorker lets go of a worker that is done, and looks after what the informer has told of its pod meanwhile.
func (n *Node) afterWorker(ctx context.Context, w *worker) {
	w.mu.Lock()
	pod, removed := w.pod, w.removed
	w.mu.Unlock()
	if _, domain := hostfiles.Name(pod, n.cfg.ClusterDomain); domain != "" {
		n.neighbours.leave(w.uid, domain)
	}
	n.mu.Lock()
	delete(n.workers, w.uid)
	if !removed {
		n.finished[w.uid] = pod.ResourceVersion
	}
	n.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	obj, exists, err := n.informer.GetStore().GetByKey(podKey(pod))
	switch {
	case err != nil:
	case !exists || obj.(*corev1.Pod).UID != w.uid:
		n.mu.Lock()
		delete(n.finished, w.uid)
		n.mu.Unlock()
		n.removeLogs(pod)
	default:
		n.saw(ctx, obj)
	}
}
