// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

func cpus(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

// below returns a queue of that name.
func below(parent, name string, changes ...func(*scheduling.Queue)) scheduling.Queue {
	q := scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{Parent: parent}}
	for _, change := range changes {
		change(&q)
	}
	return q
}

func capability(n string) func(*scheduling.Queue) {
	return func(q *scheduling.Queue) { q.Spec.Capability = cpus(n) }
}

func deserved(n string) func(*scheduling.Queue) {
	return func(q *scheduling.Queue) { q.Spec.Deserved = cpus(n) }
}

func guarantee(n string) func(*scheduling.Queue) {
	return func(q *scheduling.Queue) { q.Spec.Guarantee.Resource = cpus(n) }
}

func hierarchy(path, weights string) func(*scheduling.Queue) {
	return func(q *scheduling.Queue) {
		q.Annotations = map[string]string{scheduling.HierarchyKey: path, scheduling.WeightsKey: weights}
	}
}

func TestDefault(t *testing.T) {
	for name, tc := range map[string]struct{ given, want scheduling.Queue }{
		"weight and reclaimable": {below("", "q"), below("", "q", func(q *scheduling.Queue) { q.Spec.Weight, q.Spec.Reclaimable = 1, new(true) })},
		"what is given stays": {
			below("", "q", func(q *scheduling.Queue) { q.Spec.Weight, q.Spec.Reclaimable = 3, new(false) }),
			below("", "q", func(q *scheduling.Queue) { q.Spec.Weight, q.Spec.Reclaimable = 3, new(false) }),
		},
		"a hierarchy begins at root": {
			below("", "q", hierarchy("a/b", "2/3")),
			below("", "q", hierarchy("root/a/b", "1/2/3"), func(q *scheduling.Queue) { q.Spec.Weight, q.Spec.Reclaimable = 1, new(true) }),
		},
		"once": {
			below("", "q", hierarchy("root/a", "1/2")),
			below("", "q", hierarchy("root/a", "1/2"), func(q *scheduling.Queue) { q.Spec.Weight, q.Spec.Reclaimable = 1, new(true) }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			Default(&tc.given)
			if diff := cmp.Diff(tc.want, tc.given); diff != "" {
				t.Errorf("queue (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	deep := []scheduling.Queue{below("", "root"), below("root", "a"), below("a", "b"), below("b", "c"), below("c", "d")}
	busy := below("root", "busy", func(q *scheduling.Queue) {
		q.Status.Allocated = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}
	})
	for name, tc := range map[string]struct {
		q    scheduling.Queue
		old  *scheduling.Queue
		all  []scheduling.Queue
		want []string
	}{
		"a plain queue":                     {q: below("", "q")},
		"root need not be there":            {q: below("root", "q", capability("3"))},
		"amounts in their order":            {q: below("root", "q", guarantee("1"), deserved("2"), capability("3"))},
		"a guarantee without what it is of": {q: below("root", "q", guarantee("1")), want: []string{"queue `q`: the guarantee of cpu is 1, and it has no deserved of that"}},
		"more guaranteed than deserved":     {q: below("root", "q", guarantee("3"), deserved("2")), want: []string{"queue `q`: the guarantee of cpu is 3, which is more than its deserved of 2"}},
		"more deserved than may be used":    {q: below("root", "q", deserved("3"), capability("2")), want: []string{"queue `q`: the deserved of cpu is 3, which is more than its capability of 2"}},
		"more guaranteed than may be used": {q: below("root", "q", guarantee("3"), deserved("3"), capability("2")), want: []string{
			"queue `q`: the deserved of cpu is 3, which is more than its capability of 2", "queue `q`: the guarantee of cpu is 3, which is more than its capability of 2",
		}},
		"a hierarchy":                      {q: below("root", "q", hierarchy("root/a", "1/2.5")), all: []scheduling.Queue{below("root", "r", hierarchy("root/ab", "1/2"))}},
		"a hierarchy of another length":    {q: below("root", "q", hierarchy("root/a", "1/2/3")), want: []string{"volcano.sh/hierarchy root/a must have the same length with volcano.sh/hierarchy-weights 1/2/3"}},
		"weights that are no numbers":      {q: below("root", "q", hierarchy("root/a", "1/x")), want: []string{`volcano.sh/hierarchy-weights 1/x: "x" must be a positive number`}},
		"weights that are not positive":    {q: below("root", "q", hierarchy("root/a", "1/0")), want: []string{`volcano.sh/hierarchy-weights 1/0: "0" must be a positive number`}},
		"a hierarchy below that of others": {q: below("root", "q", hierarchy("root/a/b", "1/2/3")), all: []scheduling.Queue{below("root", "r", hierarchy("root/a", "1/2"))}, want: []string{"volcano.sh/hierarchy root/a/b is not allowed to be in the sub path of root/a of queue r, or the other way round"}},
		"its own parent":                   {q: below("q", "q"), want: []string{"queue `q` can not be its own parent"}},
		"a parent that is not there":       {q: below("p", "q"), want: []string{"parent queue `p` of queue `q` does not exist"}},
		"a ring": {
			q: below("b", "a"), old: new(below("root", "a")), all: []scheduling.Queue{below("root", "a"), below("a", "b")},
			want: []string{"queue `a` can not be below queue `b`, which is not below root"},
		},
		"the deepest that may be": {q: below("d", "q"), all: deep},
		"too deep":                {q: below("q", "r"), all: append(deep[:5:5], below("d", "q")), want: []string{"queue `r` can not be there: 6 queues would be one below the other, and 5 may be"}},
		"too deep for what is below it": {
			q: below("c", "q"), old: new(below("root", "q")), all: append(deep[:5:5], below("q", "r"), below("r", "s")),
			want: []string{"queue `q` can not be there: 6 queues would be one below the other, and 5 may be"},
		},
		"a parent whose pods run":               {q: below("busy", "q"), all: []scheduling.Queue{busy}, want: []string{"queue `busy` can not be the parent of queue `q` because it has 2 allocated pods"}},
		"a parent whose pods run, already":      {q: below("busy", "q", capability("1")), old: new(below("busy", "q")), all: []scheduling.Queue{busy, below("busy", "q")}},
		"a parent of others whose pods run":     {q: below("busy", "q"), all: []scheduling.Queue{busy, below("busy", "r")}},
		"more than what is above it may use":    {q: below("p", "q", capability("3")), all: []scheduling.Queue{below("a", "p"), below("root", "a", capability("2"))}, want: []string{"queue `q`: the capability of cpu is 3, which is more than the 2 of queue `a` above it"}},
		"the nearest that has a limit counts":   {q: below("p", "q", capability("3")), all: []scheduling.Queue{below("a", "p", capability("4")), below("root", "a", capability("2"))}},
		"more promised than there is, by one":   {q: below("p", "q", deserved("2")), all: []scheduling.Queue{below("root", "p", deserved("3")), below("p", "r", deserved("2"))}, want: []string{"the deserved of cpu of all queues below queue `p` is 4, which is more than its own of 3"}},
		"more promised than there is, from now": {q: below("root", "p", deserved("3")), old: new(below("root", "p", deserved("4"))), all: []scheduling.Queue{below("p", "q", deserved("2")), below("p", "r", deserved("2"))}, want: []string{"the deserved of cpu of all queues below queue `p` is 4, which is more than its own of 3"}},
		"what root has":                         {q: below("", "root", capability("3")), old: new(below("", "root")), want: []string{"capability, deserved and guarantee of queue `root` can not be changed"}},
		"how root is shared":                    {q: below("", "root", func(q *scheduling.Queue) { q.Spec.Weight = 2 }), old: new(below("", "root"))},
		"a change of something else":            {q: below("gone", "q", closedMark), old: new(below("gone", "q"))},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Validate(&tc.q, tc.old, tc.all)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func closedMark(q *scheduling.Queue) { closedByParent("true")(q) }

func TestValidateDelete(t *testing.T) {
	all := []scheduling.Queue{below("", "root"), below("root", "default"), below("root", "p"), below("p", "r"), below("p", "q")}
	for name, want := range map[string][]string{
		"q": nil, "root": {"`root` queue can not be deleted"}, "default": {"`default` queue can not be deleted"},
		"p": {"queue `p` can not be deleted because it has 2 child queues: q, r"},
	} {
		if diff := cmp.Diff(want, ValidateDelete(name, all)); diff != "" {
			t.Errorf("problems with %s (-want +got):\n%s", name, diff)
		}
	}
}
