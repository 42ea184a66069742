// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"

	"github.com/drover-dev/drover/internal/node/logs"
	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/volume"
)

// keepHouse measures from time to time what the machine has left and what pods use of it.
func (n *Node) keepHouse(ctx context.Context) {
	ticker := n.clock.NewTicker(n.cfg.Housekeeping)
	defer ticker.Stop()
	reported, swept := n.clock.Now(), n.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := n.clock.Now()
		always := now.Sub(reported) >= n.cfg.StatusReport
		if err := n.reportStatus(ctx, always); err != nil && ctx.Err() == nil {
			n.log.Warn("Reporting the node's status did not work", "err", err)
		} else if always {
			reported = now
		}
		n.checkStorage(ctx)
		if now.Sub(swept) >= sweepEvery {
			n.sweepFiles(ctx)
			swept = now
		}
	}
}

// checkStorage evicts pods that use more disk than they may.
func (n *Node) checkStorage(ctx context.Context) {
	n.mu.Lock()
	var list []*worker
	for _, w := range n.workers {
		list = append(list, w)
	}
	n.mu.Unlock()
	for _, w := range list {
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		pod, ready := w.pod, w.volumes != nil && w.stop == nil
		w.mu.Unlock()
		if !ready || !limitsStorage(&pod.Spec) {
			continue
		}
		message, err := n.overuse(pod)
		if err != nil {
			n.log.Warn("Measuring the disk use of a pod did not work", "pod", podKey(pod), "err", err)
		}
		if message != "" {
			w.evict("Evicted", message)
		}
	}
}

// overuse says in kubelet's words how a pod uses more disk than it may; "" when it does not.
func (n *Node) overuse(pod *corev1.Pod) (string, error) {
	usage, err := n.volumes.Usage(pod)
	if err != nil {
		return "", err
	}
	var onDisk int64
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil {
			continue
		}
		if v.EmptyDir.Medium != corev1.StorageMediumMemory {
			onDisk += usage[v.Name]
		}
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() > 0 && usage[v.Name] > limit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String()), nil
		}
	}
	limits := resourcehelpers.PodLimits(pod, resourcehelpers.PodResourcesOptions{})
	limit := limits.StorageEphemeral()
	if limit.IsZero() || !everyMainLimits(&pod.Spec) {
		return "", nil
	}
	logged, err := volume.DiskUsage(logs.PodDir(n.logDir, pod))
	if err != nil {
		return "", err
	}
	if onDisk+logged > limit.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String()), nil
	}
	return "", nil
}

// limitsStorage reports whether there is anything to measure.
func limitsStorage(spec *corev1.PodSpec) bool {
	for i := range spec.Volumes {
		if e := spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil {
			return true
		}
	}
	return everyMainLimits(spec)
}

// everyMainLimits reports whether all containers have a limit of disk, so that the pod has one.
func everyMainLimits(spec *corev1.PodSpec) bool {
	for i := range spec.Containers {
		if spec.Containers[i].Resources.Limits.StorageEphemeral().IsZero() {
			return false
		}
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; podlife.IsSidecar(c) && c.Resources.Limits.StorageEphemeral().IsZero() {
			return false
		}
	}
	return true
}
