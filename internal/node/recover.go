// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/node/logs"
	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/process"
)

// findContainers notes what the runtime has of an earlier run, for the workers of the pods it belongs to.
func (n *Node) findContainers() {
	found := map[types.UID][]process.Status{}
	for _, status := range n.rt.List() {
		id, err := identify(status.Spec.Labels)
		if err != nil {
			n.log.Warn("The runtime has a container that is not a pod's", "id", status.Spec.ID, "err", err)
			continue
		}
		found[id.uid] = append(found[id.uid], status)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = found
}

// recoverContainers tells a new worker what is known of its pod's containers from an earlier run of the node.
func (n *Node) recoverContainers(w *worker, found []process.Status) {
	now := n.clock.Now()
	attempts := map[string][]podlife.Attempt{}
	images := map[string]string{}
	users := map[string]*corev1.ContainerUser{}
	for _, status := range found {
		id, err := identify(status.Spec.Labels)
		spec := findContainer(&w.pod.Spec, id.container)
		if err != nil || spec == nil {
			continue
		}
		attempts[id.container] = append(attempts[id.container], n.attempt(w.pod, spec, id, status))
		images[id.container], users[id.container] = id.image, userOf(status.Spec)
	}
	told := map[string]*corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses, w.pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			told[list[i].Name] = &list[i]
		}
	}
	for _, spec := range containersOf(&w.pod.Spec) {
		known := podlife.Recover(told[spec.Name], attempts[spec.Name], now, n.cfg.BackOff)
		if len(known.Attempts) == 0 {
			continue
		}
		if image := images[spec.Name]; image != "" {
			known.ImageID, known.User = image, users[spec.Name]
		}
		w.containers[spec.Name] = &container{Container: known}
	}
}

// clearOrphans ends and removes what an earlier run has left of pods that are finished or gone.
func (n *Node) clearOrphans(ctx context.Context) {
	n.mu.Lock()
	left := n.found
	n.found = nil
	n.mu.Unlock()
	var pods sync.WaitGroup
	for uid, statuses := range left {
		pods.Go(func() { n.clearPod(ctx, uid, statuses) })
	}
	pods.Wait()
	n.sweepFiles(ctx)
}

// clearPod ends the containers of a pod that has no worker, and removes them.
func (n *Node) clearPod(ctx context.Context, uid types.UID, statuses []process.Status) {
	if gone, err := n.confirmGone(ctx, uid, statuses); err != nil || !gone {
		if err != nil && ctx.Err() == nil {
			n.log.Warn("Containers of an unknown pod are left alone", "uid", uid, "err", err)
		}
		return
	}
	var all sync.WaitGroup
	for _, status := range statuses {
		all.Go(func() {
			id := status.Spec.ID
			if status.State == process.Running {
				n.log.Info("Ending a container whose pod is gone", "id", id)
				n.endOrphan(ctx, status)
			}
			if ctx.Err() != nil {
				return
			}
			if err := n.rt.Remove(ctx, id); err != nil && !errors.Is(err, process.ErrNotFound) {
				n.log.Warn("Removing a container did not work", "id", id, "err", err)
			}
		})
	}
	all.Wait()
	if ctx.Err() == nil {
		if err := n.volumes.Cleanup(uid); err != nil {
			n.log.Warn("Removing the files of a pod did not work", "uid", uid, "err", err)
		}
	}
}

// confirmGone asks the API server itself whether the pod of these containers is finished or gone. The informer's word would do but for a
// cache that is behind.
func (n *Node) confirmGone(ctx context.Context, uid types.UID, statuses []process.Status) (bool, error) {
	id, err := identify(statuses[0].Spec.Labels)
	if err != nil {
		return false, err
	}
	pod, err := n.client.CoreV1().Pods(id.namespace).Get(ctx, id.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("asking for pod %s/%s: %w", id.namespace, id.name, err)
	}
	return pod.UID != uid || podlife.IsTerminal(pod.Status.Phase) || pod.Spec.NodeName != n.cfg.Name, nil
}

// endOrphan ends a container by the grace period that its pod had.
func (n *Node) endOrphan(ctx context.Context, status process.Status) {
	id := status.Spec.ID
	grace := minimumGrace
	if labels, err := identify(status.Spec.Labels); err == nil {
		grace = max(grace, labels.grace)
	}
	sig := syscall.SIGTERM
	for {
		if err := n.rt.Signal(id, sig); err != nil && !errors.Is(err, process.ErrNotRunning) {
			n.log.Warn("Sending a signal did not work", "id", id, "err", err)
		}
		timer := n.clock.NewTimer(grace)
		select {
		case <-n.rt.Done(id):
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			sig, grace = syscall.SIGKILL, killAgain
		}
	}
}

// sweepFiles removes directories of pods that have no worker, and logs of pods that have no object any more.
func (n *Node) sweepFiles(ctx context.Context) {
	uids, err := n.volumes.Pods()
	if err != nil {
		n.log.Warn("Looking for directories of pods did not work", "err", err)
	}
	for _, uid := range uids {
		if ctx.Err() != nil {
			return
		}
		if n.hasWorker(uid) || n.hasContainers(uid) {
			continue
		}
		if err := n.volumes.Cleanup(uid); err != nil {
			n.log.Warn("Removing the files of a pod did not work", "uid", uid, "err", err)
		}
	}
	n.sweepLogs()
}

func (n *Node) sweepLogs() {
	known := map[string]bool{}
	for _, obj := range n.informer.GetStore().List() {
		pod := obj.(*corev1.Pod)
		known[logs.PodDirName(pod.Namespace, pod.Name, string(pod.UID))] = true
	}
	entries, err := os.ReadDir(n.logDir)
	if err != nil {
		n.log.Warn("Looking for logs did not work", "err", err)
		return
	}
	for _, e := range entries {
		uid, ours := logs.UID(e.Name())
		if !ours || known[e.Name()] || n.hasWorker(types.UID(uid)) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(n.logDir, e.Name())); err != nil {
			n.log.Warn("Removing the logs of a pod did not work", "err", err)
		}
	}
}

func (n *Node) hasWorker(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.workers[uid] != nil
}

func (n *Node) hasContainers(uid types.UID) bool {
	for _, status := range n.rt.List() {
		if status.Spec.Labels[labelUID] == string(uid) {
			return true
		}
	}
	return false
}

// sweepEvery is how often files that nobody owns are looked for.
const sweepEvery = 5 * time.Minute
