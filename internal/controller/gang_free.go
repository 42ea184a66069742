// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/podstate"
)

// cluster is what is free and who has the rest, at one time.
type cluster struct {
	at      time.Time
	nodes   []gang.Node
	holders []gang.Holder
}

// clusterAge is how old the picture of the cluster may be that PodGroups are told of.
const clusterAge = time.Second

// shortage says why pods that need so much at once cannot be placed.
func (c *cluster) shortage(need gang.Amounts, scheduler string) string {
	return gang.Shortage(need, c.nodes, c.holders, scheduler)
}

// cluster returns a picture of the cluster. It looks at all nodes and pods, so that one serves many PodGroups.
func (c *GangController) cluster() *cluster {
	c.freeMu.Lock()
	defer c.freeMu.Unlock()
	now := c.clock.Now()
	if c.free != nil && now.Sub(c.free.at) < clusterAge {
		return c.free
	}
	used, held := map[string]corev1.ResourceList{}, map[string]corev1.ResourceList{}
	count := func(m map[string]corev1.ResourceList, key string, more corev1.ResourceList) {
		sum := m[key]
		if sum == nil {
			sum = corev1.ResourceList{}
			m[key] = sum
		}
		for name, q := range more {
			all := sum[name]
			all.Add(q)
			sum[name] = all
		}
	}
	for _, o := range c.pods.List() {
		p := o.(*corev1.Pod)
		if p.Spec.NodeName == "" || p.Spec.Resources == nil || podstate.IsFinished(p) {
			continue
		}
		count(used, p.Spec.NodeName, p.Spec.Resources.Requests)
		name := p.Name
		if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
			name = ref.Name
		}
		count(held, p.Namespace+"/"+name, p.Spec.Resources.Requests)
	}
	free := &cluster{at: now}
	for _, o := range c.nodes.List() {
		node := o.(*corev1.Node)
		if node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }) {
			continue
		}
		left := corev1.ResourceList{}
		for name, q := range node.Status.Allocatable {
			rest := q.DeepCopy()
			rest.Sub(used[node.Name][name])
			left[name] = rest
		}
		free.nodes = append(free.nodes, gang.Node{Name: node.Name, Free: gang.AmountsOf(left)})
	}
	for name, has := range held {
		free.holders = append(free.holders, gang.Holder{Name: name, Has: gang.AmountsOf(has)})
	}
	c.free = free
	return free
}

// slimNode keeps of a node what it offers and whether it takes pods.
func slimNode(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations, node.Labels = nil, nil, nil
		node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints}
		node.Status = corev1.NodeStatus{Allocatable: node.Status.Allocatable}
	}
	return obj, nil
}
