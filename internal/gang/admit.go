// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Queue is what counts of a queue.
type Queue struct {
	Name, Parent string // Parent "": none above it
	Closed       bool
	Priority     int32
	// Strict lets no PodGroup pass one that came before it, whatever it needs.
	Strict bool
	// Capability limits what the PodGroups of the queue, and of those below it, may have at once. What it does not name is not limited.
	Capability Amounts
}

// Share is what a PodGroup may use: so many pods, and what they request.
type Share struct {
	Pods    int32
	Amounts Amounts
}

// Group is what counts of a PodGroup. One that has ended is not among them.
type Group struct {
	Key      string // "namespace/name"
	Name     string // for people: whose it is; "" means Key
	Queue    string
	Priority int32
	Created  time.Time
	Min      Share // what must be had at once
	Full     Share // what all its pods want; at least Min
	Admitted bool
	Granted  Share // what an admitted one may use
}

// Verdict is what becomes of one PodGroup. Exactly one of its fields beside Key is set.
type Verdict struct {
	Key string
	// Grant is what it may use from now on.
	Grant *Share
	// Waits says what an unadmitted one waits for.
	Waits string
}

// Admit returns what changes, and what is to be told of those that wait, in the order in which PodGroups come. Equal inputs give
// equal verdicts, and what it grants is never beyond the capability of any queue: where more is in use already, nothing is added
// until it is not.
//
// Admitted PodGroups get what they lack of Full last, after everything that waits for its Min; and less as soon as they want less.
func Admit(queues []Queue, groups []Group) []Verdict {
	a := admission{queues: make(map[string]*room, len(queues))}
	for _, q := range queues {
		a.queues[q.Name] = &room{Queue: q, used: Amounts{}, held: Amounts{}}
	}
	order := slices.Clone(groups)
	slices.SortFunc(order, a.compare)
	grants := make([]*Share, len(order))
	waits := make([]string, len(order))

	for i := range order {
		g := &order[i]
		if !g.Admitted {
			continue
		}
		if g.Granted.Pods > g.Full.Pods && g.Full.Amounts.beyond(g.Granted.Amounts) == nil {
			g.Granted, grants[i] = g.Full, &g.Full
		}
		a.use(g, g.Granted.Amounts)
	}
	for i := range order {
		switch g := &order[i]; {
		case !g.Admitted:
			if waits[i] = a.admit(g); waits[i] == "" {
				grants[i] = &g.Granted
			}
		case g.Granted.Pods < g.Min.Pods || g.Min.Amounts.beyond(g.Granted.Amounts) != nil:
			if a.grow(g, g.Min) {
				grants[i] = &g.Granted
			} else {
				a.hold(g.Queue, g.Min.Amounts.beyond(g.Granted.Amounts))
			}
		}
	}
	for i := range order {
		if g := &order[i]; waits[i] == "" && g.Granted.Pods < g.Full.Pods && a.grow(g, g.Full) {
			grants[i] = &g.Granted
		}
	}

	var verdicts []Verdict
	for i := range order {
		switch {
		case grants[i] != nil:
			verdicts = append(verdicts, Verdict{Key: order[i].Key, Grant: grants[i]})
		case waits[i] != "":
			verdicts = append(verdicts, Verdict{Key: order[i].Key, Waits: waits[i]})
		}
	}
	return verdicts
}

// admission is one pass over all queues.
type admission struct{ queues map[string]*room }

// room is what is left of a queue.
type room struct {
	Queue
	used Amounts // by admitted PodGroups of the queue and of those below it
	held Amounts // for those that wait and came before
	// first is the key of the first PodGroup of this very queue that waits; "": none does.
	first string
	users []*Group // that have some of used
}

// compare orders PodGroups: which comes first.
func (a *admission) compare(x, y Group) int {
	return cmp.Or(
		cmp.Compare(a.queuePriority(y.Queue), a.queuePriority(x.Queue)), cmp.Compare(y.Priority, x.Priority),
		x.Created.Compare(y.Created), cmp.Compare(x.Key, y.Key),
	)
}

func (a *admission) queuePriority(name string) int32 {
	if q := a.queues[name]; q != nil {
		return q.Priority
	}
	return 0
}

// chain calls f for a queue and those above it, until f returns false. Queues that are above themselves end it.
func (a *admission) chain(name string, f func(r *room) bool) {
	for range len(a.queues) {
		r := a.queues[name]
		if r == nil || !f(r) || r.Parent == "" || r.Parent == name {
			return
		}
		name = r.Parent
	}
}

// use notes that g has amounts more.
func (a *admission) use(g *Group, amounts Amounts) {
	a.chain(g.Queue, func(r *room) bool {
		r.used.add(amounts, 1)
		if n := len(r.users); n == 0 || r.users[n-1] != g {
			r.users = append(r.users, g)
		}
		return true
	})
}

func (a *admission) hold(queue string, amounts Amounts) {
	a.chain(queue, func(r *room) bool { r.held.add(amounts, 1); return true })
}

// admit gives g its Min, or says what it waits for.
func (a *admission) admit(g *Group) (waits string) {
	own := a.queues[g.Queue]
	if own == nil {
		return fmt.Sprintf("queue %q does not exist", g.Queue)
	}
	a.chain(g.Queue, func(r *room) bool {
		if r.Closed {
			waits = closedText(g.Queue, r.Name)
		}
		return waits == ""
	})
	if waits == "" {
		a.chain(g.Queue, func(r *room) bool {
			if name, n, ok := r.tooMuch(g.Min.Amounts); ok {
				waits = fmt.Sprintf("needs %s at once, and queue %q may never have more than %s: raise its capability or ask for less", words(name, n), r.Name, words(name, r.Capability[name]))
			}
			return waits == ""
		})
	}
	if waits != "" {
		return waits // it can hold nobody up
	}
	if own.Strict && own.first != "" {
		waits = a.behind(own)
	} else {
		a.chain(g.Queue, func(r *room) bool {
			waits = a.lacking(own, r, g)
			return waits == ""
		})
	}
	if waits == "" {
		g.Admitted, g.Granted = true, g.Min
		a.use(g, g.Min.Amounts)
		return ""
	}
	if own.first == "" {
		own.first = g.Key
	}
	a.hold(g.Queue, g.Min.Amounts)
	return waits
}

// behind is told of those that are not the first to wait in their queue. It does not say how many are before them: the text of
// ten thousand would change with every PodGroup that is admitted.
func (a *admission) behind(own *room) string {
	return fmt.Sprintf("waits in queue %q behind others that came earlier or have a higher priority", own.Name)
}

func closedText(queue, closed string) string {
	if queue == closed {
		return fmt.Sprintf("queue %q is closed, and takes nothing until it is opened", queue)
	}
	return fmt.Sprintf("queue %q is below queue %q, which is closed, and takes nothing until that is opened", queue, closed)
}

// lacking returns what g lacks in r; "": nothing.
func (a *admission) lacking(own, r *room, g *Group) string {
	for _, name := range r.Capability.names() {
		need, limit := g.Min.Amounts[name], r.Capability[name]
		if need <= 0 || saturated(saturated(r.used[name], r.held[name]), need) <= limit {
			continue
		}
		switch {
		case own.first != "":
			return a.behind(own)
		case saturated(r.used[name], need) <= limit:
			return fmt.Sprintf("needs %s at once, and what is left of queue %q is held for others that came earlier or have a higher priority", words(name, need), r.Name)
		}
		return fmt.Sprintf("needs %s at once, and queue %q has %s of %s left", words(name, need), r.Name, number(name, max(0, limit-r.used[name])), number(name, limit)) + r.holders(name)
	}
	return ""
}

// holders says who has the most of a resource: "; waiting for a/x, a/y and 3 others". "": nobody has any.
func (r *room) holders(name corev1.ResourceName) string {
	var who []*Group
	for _, g := range r.users {
		if g.Granted.Amounts[name] > 0 && !slices.Contains(who, g) {
			who = append(who, g)
		}
	}
	slices.SortStableFunc(who, func(x, y *Group) int { return cmp.Compare(y.Granted.Amounts[name], x.Granted.Amounts[name]) })
	keys := make([]string, len(who))
	for i, g := range who {
		keys[i] = cmp.Or(g.Name, g.Key)
	}
	return waitingFor(keys)
}

// waitingFor names the first of those that are waited for.
func waitingFor(keys []string) string {
	switch n := len(keys); n {
	case 0:
		return ""
	case 1:
		return "; waiting for " + keys[0]
	case 2:
		return "; waiting for " + keys[0] + " and " + keys[1]
	case 3:
		return "; waiting for " + keys[0] + ", " + keys[1] + " and another"
	default:
		return fmt.Sprintf("; waiting for %s, %s and %d others", keys[0], keys[1], n-2)
	}
}

// tooMuch returns the first resource of which r could never have as much.
func (r *room) tooMuch(need Amounts) (name corev1.ResourceName, n int64, found bool) {
	for _, name := range r.Capability.names() {
		if n := need[name]; n > r.Capability[name] {
			return name, n, true
		}
	}
	return "", 0, false
}

// grow gives g all of want, if there is room for it beside what is held for others. It reports whether it has.
func (a *admission) grow(g *Group, want Share) bool {
	more := want.Amounts.beyond(g.Granted.Amounts)
	fits := true
	a.chain(g.Queue, func(r *room) bool {
		for name, limit := range r.Capability {
			if n := more[name]; n > 0 && saturated(saturated(r.used[name], r.held[name]), n) > limit {
				fits = false
			}
		}
		return fits
	})
	if !fits {
		return false
	}
	all := Amounts{}
	all.add(g.Granted.Amounts, 1)
	all.add(more, 1)
	g.Granted = Share{Pods: max(want.Pods, g.Granted.Pods), Amounts: all}
	a.use(g, more)
	return true
}

// IsLimited reports whether a queue or one above it has a capability, or does not take PodGroups now: PodGroups of others need nobody's leave.
func IsLimited(queue string, find func(name string) (Queue, bool)) bool {
	for range maxDepth {
		q, ok := find(queue)
		if !ok || q.Closed || len(q.Capability) > 0 {
			return true
		}
		if q.Parent == "" || q.Parent == queue {
			return false
		}
		queue = q.Parent
	}
	return true
}

// maxDepth bounds how many queues stand above each other, should they form a ring.
const maxDepth = 64
