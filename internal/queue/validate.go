// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// maxDepth is how many queues may be one below the other, root not counted.
const maxDepth = 5

// Default fills in what a new queue leaves out.
//
// Source: Volcano's webhook for new queues, as specified in section 1.9.5 of its behaviour.
func Default(q *scheduling.Queue) {
	if q.Spec.Weight == 0 {
		q.Spec.Weight = 1
	}
	if q.Spec.Reclaimable == nil {
		q.Spec.Reclaimable = new(true)
	}
	path, weights := q.Annotations[scheduling.HierarchyKey], q.Annotations[scheduling.WeightsKey]
	if first, _, _ := strings.Cut(path, "/"); path != "" && weights != "" && first != batch.RootQueue {
		q.Annotations[scheduling.HierarchyKey], q.Annotations[scheduling.WeightsKey] = batch.RootQueue+"/"+path, "1/"+weights
	}
}

// Validate returns everything that is wrong with a queue, new or changed; nil: nothing. old is what it was; nil: it is new. all are
// the queues that there are; whether q is among them does not matter.
//
// Source: Volcano's webhook for queues, as specified in section 1.9.5 of its behaviour.
// Differs: what a change does not touch is not checked again, and neither is the state, which only its controller writes: otherwise a
// queue that is Closing could not be changed.
func Validate(q, old *scheduling.Queue, all []scheduling.Queue) []string {
	isNew := old == nil
	amounts := isNew || !equality.Semantic.DeepEqual(amountsOf(q), amountsOf(old))
	moved := isNew || parentOf(q) != parentOf(old)
	v := &validator{queue: q, byName: map[string]*scheduling.Queue{}, below: map[string][]*scheduling.Queue{}}
	for i := range all {
		if all[i].Name != q.Name {
			v.know(&all[i])
		}
	}
	v.know(q)
	if amounts {
		v.amounts()
	}
	if isNew || hierarchyOf(q) != hierarchyOf(old) {
		v.hierarchy()
	}
	switch {
	case q.Name != batch.RootQueue && (amounts || moved):
		v.place(moved)
	case q.Name == batch.RootQueue && amounts && !isNew:
		v.add("capability, deserved and guarantee of queue `%s` can not be changed", batch.RootQueue)
	}
	if amounts {
		v.sums(q)
	}
	return v.problems
}

// ValidateDelete returns what keeps a queue from being deleted; nil: nothing.
func ValidateDelete(name string, all []scheduling.Queue) []string {
	if name == batch.RootQueue || name == batch.DefaultQueue {
		return []string{fmt.Sprintf("`%s` queue can not be deleted", name)}
	}
	var below []string
	for i := range all {
		if all[i].Name != name && all[i].Spec.Parent == name {
			below = append(below, all[i].Name)
		}
	}
	if len(below) == 0 {
		return nil
	}
	slices.Sort(below)
	return []string{fmt.Sprintf("queue `%s` can not be deleted because it has %d child queues: %s", name, len(below), strings.Join(below, ", "))}
}

// validator looks at one queue among all.
type validator struct {
	queue    *scheduling.Queue
	byName   map[string]*scheduling.Queue   // queue among them
	below    map[string][]*scheduling.Queue // by the name of the queue above
	problems []string
}

func (v *validator) add(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

func (v *validator) know(q *scheduling.Queue) {
	v.byName[q.Name] = q
	if q.Name != batch.RootQueue {
		v.below[parentOf(q)] = append(v.below[parentOf(q)], q)
	}
}

func parentOf(q *scheduling.Queue) string { return cmp.Or(q.Spec.Parent, batch.RootQueue) }

// amountsOf returns what q may use, should have, and has for certain.
func amountsOf(q *scheduling.Queue) []corev1.ResourceList {
	return []corev1.ResourceList{q.Spec.Capability, q.Spec.Deserved, q.Spec.Guarantee.Resource}
}

// amounts checks that what is guaranteed is deserved, and what is deserved may be used.
func (v *validator) amounts() {
	s := &v.queue.Spec
	v.within("guarantee", s.Guarantee.Resource, "deserved", s.Deserved, true)
	v.within("deserved", s.Deserved, "capability", s.Capability, false)
	v.within("guarantee", s.Guarantee.Resource, "capability", s.Capability, false)
}

// within checks that a is no more than b of any resource. needed says that b must name what a does.
func (v *validator) within(nameA string, a corev1.ResourceList, nameB string, b corev1.ResourceList, needed bool) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		have := a[name]
		limit, named := b[name]
		switch {
		case !named && needed:
			v.add("queue `%s`: the %s of %s is %s, and it has no %s of that", v.queue.Name, nameA, name, have.String(), nameB)
		case named && have.Cmp(limit) > 0:
			v.add("queue `%s`: the %s of %s is %s, which is more than its %s of %s", v.queue.Name, nameA, name, have.String(), nameB, limit.String())
		}
	}
}

// hierarchyOf returns the place of q, and the weights on the way there, as annotations have them.
func hierarchyOf(q *scheduling.Queue) [2]string {
	return [2]string{q.Annotations[scheduling.HierarchyKey], q.Annotations[scheduling.WeightsKey]}
}

func (v *validator) hierarchy() {
	both := hierarchyOf(v.queue)
	path, weights := both[0], both[1]
	if path == "" && weights == "" {
		return
	}
	names, numbers := strings.Split(path, "/"), strings.Split(weights, "/")
	if len(names) != len(numbers) {
		v.add("%s %s must have the same length with %s %s", scheduling.HierarchyKey, path, scheduling.WeightsKey, weights)
	}
	for _, text := range numbers {
		if n, err := strconv.ParseFloat(text, 64); err != nil || n <= 0 || math.IsNaN(n) {
			v.add("%s %s: %q must be a positive number", scheduling.WeightsKey, weights, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.byName)) {
		other := hierarchyOf(v.byName[name])[0]
		if name == v.queue.Name || other == "" || path == "" {
			continue
		}
		if strings.HasPrefix(path, other+"/") || strings.HasPrefix(other, path+"/") {
			v.add("%s %s is not allowed to be in the sub path of %s of queue %s, or the other way round", scheduling.HierarchyKey, path, other, name)
		}
	}
}

// place checks whether q may be where it is. moved says that it was not there before.
func (v *validator) place(moved bool) {
	name := parentOf(v.queue)
	parent := v.byName[name]
	switch {
	case name == v.queue.Name:
		v.add("queue `%s` can not be its own parent", name)
		return
	case parent == nil && name != batch.RootQueue:
		v.add("parent queue `%s` of queue `%s` does not exist", name, v.queue.Name)
		return
	}
	above, ok := v.ancestors()
	if !ok {
		v.add("queue `%s` can not be below queue `%s`, which is not below root", v.queue.Name, name)
		return
	}
	if depth := len(above) + v.height(v.queue.Name); depth > maxDepth {
		v.add("queue `%s` can not be there: %d queues would be one below the other, and %d may be", v.queue.Name, depth, maxDepth)
	}
	if parent == nil {
		return
	}
	if moved && name != batch.RootQueue && len(v.below[name]) == 1 {
		if pods := parent.Status.Allocated[corev1.ResourcePods]; pods.Sign() > 0 {
			v.add("queue `%s` can not be the parent of queue `%s` because it has %s allocated pods", name, v.queue.Name, pods.String())
		}
	}
	for _, what := range slices.Sorted(maps.Keys(v.queue.Spec.Capability)) {
		have := v.queue.Spec.Capability[what]
		i := slices.IndexFunc(above, func(a *scheduling.Queue) bool { _, named := a.Spec.Capability[what]; return named })
		if i < 0 {
			continue
		}
		if limit := above[i].Spec.Capability[what]; have.Cmp(limit) > 0 {
			v.add("queue `%s`: the capability of %s is %s, which is more than the %s of queue `%s` above it", v.queue.Name, what, have.String(), limit.String(), above[i].Name)
		}
	}
	v.sums(parent)
}

// ancestors returns the queues above, the nearest first and root last; false: they form a ring.
func (v *validator) ancestors() (list []*scheduling.Queue, ok bool) {
	seen := map[string]bool{v.queue.Name: true}
	for name := parentOf(v.queue); name != batch.RootQueue; {
		q := v.byName[name]
		if q == nil || seen[name] {
			return nil, false
		}
		seen[name] = true
		list = append(list, q)
		name = parentOf(q)
	}
	root := v.byName[batch.RootQueue]
	if root == nil {
		root = &scheduling.Queue{}
	}
	return append(list, root), true
}

// height returns how many queues are one below the other below a queue.
func (v *validator) height(name string) int {
	most := 0
	for _, q := range v.below[name] {
		if q.Name != name {
			most = max(most, 1+v.height(q.Name))
		}
	}
	return most
}

// sums checks that the queues below one are promised no more than that one is.
func (v *validator) sums(parent *scheduling.Queue) {
	for _, promise := range []struct {
		name string
		of   func(q *scheduling.Queue) corev1.ResourceList
	}{
		{"guarantee", func(q *scheduling.Queue) corev1.ResourceList { return q.Spec.Guarantee.Resource }},
		{"deserved", func(q *scheduling.Queue) corev1.ResourceList { return q.Spec.Deserved }},
	} {
		for _, name := range slices.Sorted(maps.Keys(promise.of(parent))) {
			limit, sum := promise.of(parent)[name], resource.Quantity{}
			for _, q := range v.below[parent.Name] {
				sum.Add(promise.of(q)[name])
			}
			if sum.Cmp(limit) > 0 {
				v.add("the %s of %s of all queues below queue `%s` is %s, which is more than its own of %s", promise.name, name, parent.Name, sum.String(), limit.String())
			}
		}
	}
}
