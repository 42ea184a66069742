// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/drover-dev/drover/internal/node/podlife"
)

// refuseLocked says why the node cannot take a pod on, in kubelet's words; nil when it can. The scheduler sees to it that pods fit, so
// this is for pods that somebody has bound here by hand. A pod that was started before is never refused.
func (n *Node) refuseLocked(pod *corev1.Pod) *podlife.Stop {
	if pod.Status.StartTime != nil || pod.DeletionTimestamp != nil {
		return nil
	}
	refuse := func(reason, message string) *podlife.Stop {
		n.events.pod(pod, corev1.EventTypeWarning, reason, message)
		return &podlife.Stop{Reason: reason, Message: "Pod was rejected: " + message, Rejected: true}
	}
	if os := pod.Spec.OS; os != nil && os.Name != corev1.Linux {
		return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	}
	if n.node != nil {
		if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.node); err != nil || !fits {
			return refuse("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
		}
	}
	used, count := n.usedLocked()
	if count >= n.cfg.MaxPods {
		return refuse("OutOfpods", fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", count, n.cfg.MaxPods))
	}
	wanted, total := demandOf(pod), demand(n.allocatable)
	for i, name := range demandNames {
		if want := wanted[i]; want > 0 && want > total[i]-used[i] {
			return refuse("OutOf"+string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, want, used[i], total[i]))
		}
	}
	return nil
}

// demandNames are the resources that are counted, in the order of a demands.
var demandNames = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// demands are amounts of the counted resources: thousandths of a core, bytes, bytes.
type demands [len(demandNames)]int64

func demandOf(pod *corev1.Pod) demands {
	return demand(resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}))
}

func demand(list corev1.ResourceList) (d demands) {
	for i, name := range demandNames {
		q := list[name]
		if name == corev1.ResourceCPU {
			d[i] = q.MilliValue()
		} else {
			d[i] = q.Value()
		}
	}
	return d
}

// usedLocked returns what the pods here ask for together, and how many they are. A pod counts until its final status is on its way: from
// then on the scheduler may give its place to another.
func (n *Node) usedLocked() (used demands, count int) {
	for _, w := range n.workers {
		if w.freed.Load() {
			continue
		}
		count++
		for i, amount := range w.demands {
			used[i] += amount
		}
	}
	return used, count
}
