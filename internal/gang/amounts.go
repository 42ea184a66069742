// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts are quantities by resource: thousandths of a CPU, and whole units of everything else. nil is nothing of anything.
type Amounts map[corev1.ResourceName]int64

// AmountsOf returns the quantities of list. What does not fit is cut to the largest that does.
func AmountsOf(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list))
	for name, q := range list {
		if isCPU(name) {
			a[name] = q.MilliValue()
		} else {
			a[name] = q.Value()
		}
	}
	return a
}

// List returns a as the API has it.
func (a Amounts) List() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a))
	for name, n := range a {
		list[name] = quantity(name, n)
	}
	return list
}

// isCPU reports whether a resource is counted in thousandths.
func isCPU(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceRequestsCPU || name == corev1.ResourceLimitsCPU
}

func quantity(name corev1.ResourceName, n int64) resource.Quantity {
	switch {
	case isCPU(name):
		return *resource.NewMilliQuantity(n, resource.DecimalSI)
	case isBytes(name):
		return *resource.NewQuantity(n, resource.BinarySI)
	}
	return *resource.NewQuantity(n, resource.DecimalSI)
}

func isBytes(name corev1.ResourceName) bool {
	return strings.HasSuffix(string(name), "memory") || strings.HasSuffix(string(name), "storage") || strings.Contains(string(name), corev1.ResourceHugePagesPrefix)
}

// add changes a by b, times times.
func (a Amounts) add(b Amounts, times int64) {
	for name, n := range b {
		a[name] = saturated(a[name], n*times)
	}
}

// saturated returns a + b, or the largest or smallest number where that does not fit.
func saturated(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// beyond returns by how much a is more than b, where it is; nil: nowhere.
func (a Amounts) beyond(b Amounts) Amounts {
	var more Amounts
	for name, n := range a {
		if d := n - b[name]; d > 0 {
			if more == nil {
				more = Amounts{}
			}
			more[name] = d
		}
	}
	return more
}

// names returns the resources of a in a fixed order: CPU, memory, then the others by name.
func (a Amounts) names() []corev1.ResourceName {
	rank := func(n corev1.ResourceName) string {
		if n == corev1.ResourceCPU {
			return "0"
		}
		if n == corev1.ResourceMemory {
			return "1"
		}
		return "2" + string(n)
	}
	return slices.SortedFunc(maps.Keys(a), func(x, y corev1.ResourceName) int { return strings.Compare(rank(x), rank(y)) })
}

// words returns an amount for people: "3 CPUs", "4Gi of memory", "2 nvidia.com/gpu".
func words(name corev1.ResourceName, n int64) string {
	switch {
	case name == corev1.ResourceCPU && n == 1000:
		return "1 CPU"
	case name == corev1.ResourceCPU:
		return number(name, n) + " CPUs"
	case name == corev1.ResourcePods && n == 1:
		return "1 pod"
	case name == corev1.ResourcePods:
		return number(name, n) + " pods"
	case isBytes(name):
		return number(name, n) + " of " + string(name)
	}
	return number(name, n) + " " + string(name)
}

// number returns an amount without its unit: "1.5" of CPU, "4Gi" of memory.
func number(name corev1.ResourceName, n int64) string {
	if isCPU(name) {
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	}
	q := quantity(name, n)
	return q.String()
}
