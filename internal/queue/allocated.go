// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/podstate"
)

// Holds reports whether a pod has what it requests: it was given a node, and has neither ended nor is it to be deleted.
func Holds(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !podstate.IsFinished(p)
}

// Allocated returns what those of pods have that Holds says so of, and how many they are, as "pods". What a pod requests in sum is in
// its Spec.Resources. Nothing is an empty list, not nil.
func Allocated(pods []*corev1.Pod) corev1.ResourceList {
	sum, n := corev1.ResourceList{}, int64(0)
	for _, p := range pods {
		if !Holds(p) {
			continue
		}
		n++
		if p.Spec.Resources != nil {
			gang.AddTimes(sum, p.Spec.Resources.Requests, 1)
		}
	}
	maps.DeleteFunc(sum, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	if n > 0 {
		sum[corev1.ResourcePods] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return sum
}

// Below returns the names of a queue and of all those below it, each once, in order. parents says of each queue which one is above it.
func Below(name string, parents map[string]string) []string {
	children := map[string][]string{}
	for child, parent := range parents {
		children[parent] = append(children[parent], child)
	}
	seen := map[string]bool{name: true}
	for next := []string{name}; len(next) > 0; next = next[1:] {
		for _, child := range children[next[0]] {
			if !seen[child] { // queues that are above themselves are counted once
				seen[child] = true
				next = append(next, child)
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// sameAmounts reports whether two lists have as much of everything.
func sameAmounts(a, b corev1.ResourceList) bool {
	return maps.Equal(gang.AmountsOf(a), gang.AmountsOf(b))
}
