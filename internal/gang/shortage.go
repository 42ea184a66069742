// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Node is what is free on a node that takes pods.
type Node struct {
	Name string
	Free Amounts
}

// Holder is somebody whose pods have their places.
type Holder struct {
	Name string // for people: "namespace/name"
	Has  Amounts
}

// Shortage says why pods that need so much at once cannot be placed: "needs 3 CPUs at once, the node has 2 free; waiting for
// default/a". The nodes' sum need not be short: then each may have too little, and scheduler, which is what the scheduler says
// itself, tells more. holders are those to wait for.
func Shortage(need Amounts, nodes []Node, holders []Holder, scheduler string) string {
	total := Amounts{}
	for _, n := range nodes {
		total.add(n.Free, 1)
	}
	known := sets.New[corev1.ResourceName](corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage)
	var parts []string
	var short []corev1.ResourceName
	for _, name := range need.names() {
		_, offered := total[name]
		if need[name] <= total[name] || !offered && !known.Has(name) && !strings.Contains(string(name), "/") || isQuota(name) {
			continue
		}
		short = append(short, name)
		parts = append(parts, fmt.Sprintf("needs %s at once, %s", words(name, need[name]), has(nodes, name)))
	}
	if len(parts) == 0 {
		return scheduler
	}
	text := strings.Join(parts, "; ")
	var who []Holder
	for _, h := range holders {
		if h.Has[short[0]] > 0 {
			who = append(who, h)
		}
	}
	slices.SortStableFunc(who, func(x, y Holder) int {
		if d := y.Has[short[0]] - x.Has[short[0]]; d != 0 {
			return int(d / max(d, -d))
		}
		return strings.Compare(x.Name, y.Name)
	})
	names := make([]string, len(who))
	for i := range who {
		names[i] = who[i].Name
	}
	text += waitingFor(names)
	if scheduler != "" {
		text += " (the scheduler says: " + scheduler + ")"
	}
	return text
}

// isQuota reports whether a resource is one of quotas, which nodes do not have.
func isQuota(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) || strings.HasPrefix(string(name), "limits.") || strings.HasPrefix(string(name), "count/")
}

// has says what is free of a resource.
func has(nodes []Node, name corev1.ResourceName) string {
	sum, most := int64(0), int64(0)
	for _, n := range nodes {
		free := max(0, n.Free[name])
		sum, most = saturated(sum, free), max(most, free)
	}
	switch len(nodes) {
	case 0:
		return "and no node takes pods"
	case 1:
		return "the node has " + number(name, sum) + " free"
	}
	return fmt.Sprintf("the %d nodes have %s free, one of them at most %s", len(nodes), number(name, sum), number(name, most))
}
