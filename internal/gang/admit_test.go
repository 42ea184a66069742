// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// group returns a PodGroup of queue "q" that came that many seconds after the first.
func group(key string, second int, cpus int64, changes ...func(*Group)) Group {
	g := Group{Key: key, Queue: "q", Created: begin.Add(time.Duration(second) * time.Second), Min: Share{1, cpu(cpus)}}
	g.Full = g.Min
	for _, change := range changes {
		change(&g)
	}
	return g
}

func cpu(n int64) Amounts { return Amounts{corev1.ResourceCPU: 1000 * n} }

func admitted(g *Group) { g.Admitted, g.Granted = true, g.Min }

func priority(n int32) func(*Group) { return func(g *Group) { g.Priority = n } }

func in(queue string) func(*Group) { return func(g *Group) { g.Queue = queue } }

func full(pods int32, cpus int64) func(*Group) {
	return func(g *Group) { g.Full = Share{pods, cpu(cpus)} }
}

func TestAdmit(t *testing.T) {
	ten := Queue{Name: "q", Capability: cpu(10)}
	grant := func(key string, pods int32, cpus int64) Verdict {
		return Verdict{Key: key, Grant: &Share{pods, cpu(cpus)}}
	}
	wait := func(key, text string) Verdict { return Verdict{Key: key, Waits: text} }
	behind := `waits in queue "q" behind others that came earlier or have a higher priority`
	for name, tc := range map[string]struct {
		queues []Queue
		groups []Group
		want   []Verdict
	}{
		"the eldest come first, until the queue is full": {
			[]Queue{ten},
			[]Group{group("c", 3, 4), group("a", 1, 4), group("b", 2, 4)},
			[]Verdict{grant("a", 1, 4), grant("b", 1, 4), wait("c", `needs 4 CPUs at once, and queue "q" has 2 of 10 left; waiting for a and b`)},
		},
		"a higher priority comes before age": {
			[]Queue{ten},
			[]Group{group("a", 1, 8), group("b", 2, 8, priority(5))},
			[]Verdict{grant("b", 1, 8), wait("a", `needs 8 CPUs at once, and queue "q" has 2 of 10 left; waiting for b`)},
		},
		"a small one does not pass a large one that it would keep waiting": {
			[]Queue{ten},
			[]Group{group("runs", 0, 5, admitted), group("large", 1, 8), group("small", 2, 1, priority(0))},
			[]Verdict{wait("large", `needs 8 CPUs at once, and queue "q" has 5 of 10 left; waiting for runs`), wait("small", behind)},
		},
		"a small one passes where it keeps nobody waiting": {
			[]Queue{{Name: "q", Capability: Amounts{corev1.ResourceCPU: 10_000, "gpu": 2}}},
			[]Group{
				group("runs", 0, 0, admitted, func(g *Group) { g.Granted.Amounts = Amounts{"gpu": 2} }),
				group("large", 1, 4, func(g *Group) { g.Min.Amounts["gpu"] = 1 }), group("small", 2, 6), group("smaller", 3, 1),
			},
			[]Verdict{
				wait("large", `needs 1 gpu at once, and queue "q" has 0 of 2 left; waiting for runs`), grant("small", 1, 6),
				wait("smaller", behind),
			},
		},
		"in a queue that is strict nothing passes": {
			[]Queue{{Name: "q", Strict: true, Capability: Amounts{"gpu": 1}}},
			[]Group{
				group("runs", 0, 0, admitted, func(g *Group) { g.Granted.Amounts = Amounts{"gpu": 1} }),
				group("large", 1, 0, func(g *Group) { g.Min.Amounts = Amounts{"gpu": 1} }), group("small", 2, 6),
			},
			[]Verdict{wait("large", `needs 1 gpu at once, and queue "q" has 0 of 1 left; waiting for runs`), wait("small", behind)},
		},
		"what can never fit holds nobody up": {
			[]Queue{ten},
			[]Group{group("huge", 1, 11), group("small", 2, 1)},
			[]Verdict{wait("huge", `needs 11 CPUs at once, and queue "q" may never have more than 10 CPUs: raise its capability or ask for less`), grant("small", 1, 1)},
		},
		"nothing is limited that a capability does not name": {
			[]Queue{{Name: "q", Capability: Amounts{"gpu": 1}}},
			[]Group{group("a", 1, 1000)},
			[]Verdict{grant("a", 1, 1000)},
		},
		"the queue above limits those below it together, the one of higher priority first": {
			[]Queue{{Name: "top", Capability: cpu(10)}, {Name: "q", Parent: "top"}, {Name: "r", Parent: "top", Priority: 1}},
			[]Group{group("a", 1, 6), group("b", 2, 6, in("r"))},
			[]Verdict{grant("b", 1, 6), wait("a", `needs 6 CPUs at once, and queue "top" has 4 of 10 left; waiting for b`)},
		},
		"a closed queue admits nothing": {
			[]Queue{{Name: "q", Closed: true}},
			[]Group{group("a", 1, 1), group("b", 2, 1, in("r"))},
			[]Verdict{wait("a", `queue "q" is closed, and takes nothing until it is opened`), wait("b", `queue "r" does not exist`)},
		},
		"pods beyond the minimum come after everybody's minimum": {
			[]Queue{ten},
			[]Group{group("a", 1, 2, full(9, 9)), group("b", 2, 2, full(3, 6)), group("c", 3, 2)},
			[]Verdict{grant("a", 1, 2), grant("b", 3, 6), grant("c", 1, 2)},
		},
		"what is held for others is not given to pods beyond the minimum": {
			[]Queue{ten},
			[]Group{group("a", 1, 5, admitted, full(6, 6)), group("b", 2, 6)},
			[]Verdict{wait("b", `needs 6 CPUs at once, and queue "q" has 5 of 10 left; waiting for a`)},
		},
		"one that has grown since it was admitted gets the rest when there is room": {
			[]Queue{ten},
			[]Group{
				group("a", 1, 5, admitted, func(g *Group) { g.Min, g.Full = Share{7, cpu(7)}, Share{7, cpu(7)} }),
				group("b", 2, 2, admitted, func(g *Group) { g.Granted = Share{4, cpu(4)} }),
			},
			[]Verdict{grant("a", 7, 7), grant("b", 1, 2)},
		},
		"a queue above itself ends in itself": {
			[]Queue{{Name: "q", Parent: "r", Capability: cpu(10)}, {Name: "r", Parent: "q"}},
			[]Group{group("a", 1, 2)},
			[]Verdict{grant("a", 1, 2)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Admit(tc.queues, tc.groups)); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// history is a random life of some queues.
type history struct {
	t      *testing.T
	rng    *rand.Rand
	queues []Queue
	groups []Group
	made   int
	ahead  map[string][]string // by key of a PodGroup that waits: those that it may have to wait for
}

func TestAdmissionOverRandomHistories(t *testing.T) {
	for seed := range uint64(40) {
		h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 6)), ahead: map[string][]string{}}
		h.queues = []Queue{
			{Name: "root"},
			{Name: "top", Parent: "root", Capability: h.amounts(30)},
			{Name: "a", Parent: "top", Capability: h.amounts(20), Strict: h.rng.IntN(2) == 0},
			{Name: "b", Parent: "top", Priority: int32(h.rng.IntN(2))},
			{Name: "c", Parent: "root", Capability: h.amounts(20)},
		}
		for step := range 120 {
			h.step(step)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

// amounts returns up to most of some resources.
func (h *history) amounts(most int64) Amounts {
	a := Amounts{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "gpu"} {
		if h.rng.IntN(3) > 0 {
			a[name] = 1 + h.rng.Int64N(most)
		}
	}
	return a
}

func (h *history) step(step int) {
	for range h.rng.IntN(3) {
		h.made++
		g := Group{
			Key: fmt.Sprintf("g%d", h.made), Queue: []string{"a", "b", "c"}[h.rng.IntN(3)], Priority: int32(h.rng.IntN(2)),
			Created: begin.Add(time.Duration(step) * time.Second), Min: Share{Pods: 1 + h.rng.Int32N(3), Amounts: h.amounts(14)},
		}
		g.Full = g.Min
		if h.rng.IntN(3) == 0 {
			more := Amounts{}
			more.add(g.Min.Amounts, 2)
			g.Full = Share{Pods: 2 * g.Min.Pods, Amounts: more}
		}
		h.groups = append(h.groups, g)
	}
	h.groups = slices.DeleteFunc(h.groups, func(g Group) bool { return g.Admitted && h.rng.IntN(6) == 0 })
	h.rng.Shuffle(len(h.groups), func(i, j int) { h.groups[i], h.groups[j] = h.groups[j], h.groups[i] })
	for i := range h.queues {
		if name := h.queues[i].Name; name != "root" && h.rng.IntN(40) == 0 {
			h.queues[i].Closed = !h.queues[i].Closed
		}
	}
	before := h.usage()
	verdicts := Admit(h.queues, h.groups)
	h.apply(verdicts)
	h.checkCapability(before)
	h.checkStarvation()
	if again := slices.DeleteFunc(Admit(h.queues, h.groups), func(v Verdict) bool { return v.Grant == nil }); len(again) > 0 {
		h.t.Errorf("what was decided does not settle: %v is granted in a second pass", again)
	}
}

func (h *history) apply(verdicts []Verdict) {
	for _, v := range verdicts {
		i := slices.IndexFunc(h.groups, func(g Group) bool { return g.Key == v.Key })
		if v.Grant != nil {
			h.groups[i].Admitted, h.groups[i].Granted = true, *v.Grant
		}
	}
	for _, g := range h.groups {
		if !g.Admitted && !slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Key == g.Key && v.Waits != "" }) {
			h.t.Errorf("%s waits and is told nothing", g.Key)
		}
	}
}

// usage returns what the PodGroups of each queue and of those below it may use.
func (h *history) usage() map[string]Amounts {
	used := map[string]Amounts{}
	for _, q := range h.queues {
		used[q.Name] = Amounts{}
	}
	for _, g := range h.groups {
		if g.Admitted {
			for _, name := range h.above(g.Queue) {
				used[name].add(g.Granted.Amounts, 1)
			}
		}
	}
	return used
}

func (h *history) queue(name string) Queue {
	return h.queues[slices.IndexFunc(h.queues, func(q Queue) bool { return q.Name == name })]
}

func (h *history) above(name string) []string {
	var names []string
	for name != "" {
		names = append(names, name)
		name = h.queue(name).Parent
	}
	return names
}

func (h *history) checkCapability(before map[string]Amounts) {
	for name, used := range h.usage() {
		for r, limit := range h.queue(name).Capability {
			if used[r] > limit && used[r] > before[name][r] {
				h.t.Errorf("queue %s has %d of %s and may have %d", name, used[r], r, limit)
			}
		}
	}
}

// checkStarvation holds that a PodGroup which waits is admitted as soon as all are gone that were there before it: admitted, or
// waiting before it in the order. Only those of a higher priority that come later may add to them.
func (h *history) checkStarvation() {
	a := admission{queues: map[string]*room{}}
	for _, q := range h.queues {
		a.queues[q.Name] = &room{Queue: q}
	}
	for _, g := range h.groups {
		if g.Admitted {
			delete(h.ahead, g.Key)
			continue
		}
		blocked := false // by a closed queue, or because it never fits
		for _, name := range h.above(g.Queue) {
			blocked = blocked || h.queue(name).Closed || g.Min.Amounts.limitedTo(h.queue(name).Capability).beyond(h.queue(name).Capability) != nil
		}
		if blocked {
			delete(h.ahead, g.Key) // counts from the moment that it is free
			continue
		}
		if h.ahead[g.Key] == nil {
			h.ahead[g.Key] = []string{}
			for _, other := range h.groups {
				if other.Admitted || a.compare(other, g) < 0 {
					h.ahead[g.Key] = append(h.ahead[g.Key], other.Key)
				}
			}
		}
		left := 0
		for _, other := range h.groups {
			if slices.Contains(h.ahead[g.Key], other.Key) || other.Key != g.Key && a.compare(other, g) < 0 {
				left++
			}
		}
		if left == 0 {
			h.t.Errorf("%s of queue %s waits, and everything that was before it has ended", g.Key, g.Queue)
		}
	}
}

// limitedTo returns what a has of the resources of limits.
func (a Amounts) limitedTo(limits Amounts) Amounts {
	some := Amounts{}
	for name := range limits {
		some[name] = a[name]
	}
	return some
}

// BenchmarkAdmitWhileTenThousandWait is one pass over a full queue.
func BenchmarkAdmitWhileTenThousandWait(b *testing.B) {
	queues := []Queue{{Name: "root"}, {Name: "q", Parent: "root", Capability: Amounts{corev1.ResourceCPU: 100_000, corev1.ResourceMemory: 1 << 40}}}
	groups := make([]Group, 10_000)
	for i := range groups {
		groups[i] = group(fmt.Sprint("g", i), i, 4)
		if i < 25 {
			admitted(&groups[i])
		}
	}
	for b.Loop() {
		if n := len(Admit(queues, groups)); n != 9975 {
			b.Fatalf("%d verdicts", n)
		}
	}
}
