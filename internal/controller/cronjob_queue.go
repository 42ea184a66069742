// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/heap"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// cronQueue hands out CronJobs by key: those whose time has come first, in the order of their times, then those that something
// has happened to, then those whose status is to be stored, and last those with something to tidy up. A key is given to one
// worker at a time. It is safe for concurrent use.
//
//	Look, Store, Tidy ─────────────────────────────┐
//	LookAt, StoreAt → alarms, by time → Advance(t) ┴→ order → Get → Take → … → Done
type cronQueue struct {
	workqueue.TypedInterface[string]

	order      *byUrgency
	precedence *Precedence // is told of each turn with Due when it is asked for; who takes it tells when it is over
	// Kick tells that the first alarm may now come earlier than before.
	Kick chan struct{}

	mu      sync.Mutex
	looks   alarms
	stores  alarms
	pending map[string]cronAsk
}

// cronAsk is what is to be done for a CronJob at its next turn.
type cronAsk struct {
	Look    bool   // decide what it needs next
	Store   bool   // store what is not stored yet
	Due     bool   // a time that it waited for has come
	Version string // decide if nobody has decided on this version of it, or a later one; "": no such wish
}

// urgency says who comes first.
type urgency int

// The urgencies, the most urgent first.
const (
	starting urgency = iota // its time has come
	looking
	storing
	tidying
	urgencies
)

// newCronQueue returns a queue whose metrics carry that name. p may be nil.
func newCronQueue(name string, c clock.WithTicker, p *Precedence) *cronQueue {
	order := &byUrgency{clock: c, want: map[string]place{}, in: map[string]place{}}
	return &cronQueue{
		TypedInterface: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, Clock: c, Queue: order}),
		order:          order,
		precedence:     p,
		Kick:           make(chan struct{}, 1),
		looks:          alarms{at: map[string]*alarm{}},
		stores:         alarms{at: map[string]*alarm{}},
		pending:        map[string]cronAsk{},
	}
}

// Look has a CronJob looked at as soon as no other must start.
func (q *cronQueue) Look(key string) { q.ask(key, cronAsk{Look: true}, place{urgency: looking}) }

// LookIfNewer has a CronJob looked at unless that was done for this version of it, or a later one, when its turn comes.
func (q *cronQueue) LookIfNewer(key, version string) {
	q.ask(key, cronAsk{Version: version}, place{urgency: looking})
}

// Tidy has a CronJob looked at when nothing else is to be done.
func (q *cronQueue) Tidy(key string) { q.ask(key, cronAsk{Look: true}, place{urgency: tidying}) }

// Store has a CronJob's status stored when none is to be looked at.
func (q *cronQueue) Store(key string) { q.ask(key, cronAsk{Store: true}, place{urgency: storing}) }

func (q *cronQueue) ask(key string, what cronAsk, where place) {
	q.mu.Lock()
	asked := q.pending[key]
	if what.Due && !asked.Due {
		q.precedence.add(1)
	}
	what.Look, what.Store, what.Due = asked.Look || what.Look, asked.Store || what.Store, asked.Due || what.Due
	if what.Version == "" || asked.Version != "" && isNewer(asked.Version, what.Version) {
		what.Version = asked.Version
	}
	q.pending[key] = what
	q.mu.Unlock()
	q.order.wish(key, where)
	q.Add(key)
}

// LookAt has a CronJob looked at when that time comes, before all others but those of an earlier time, or of the same time and
// a lower rank. It takes the place of what LookAt was told before; the zero time stands for never.
func (q *cronQueue) LookAt(key string, at time.Time, rank time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.looks.set(key, at, rank) {
		q.kickLocked()
	}
}

// StoreAt has a CronJob's status stored at that time at the latest. Of several times the earliest counts.
func (q *cronQueue) StoreAt(key string, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.stores.at[key]; a != nil && !at.Before(a.time) {
		return
	}
	if q.stores.set(key, at, 0) {
		q.kickLocked()
	}
}

func (q *cronQueue) kickLocked() {
	select {
	case q.Kick <- struct{}{}:
	default:
	}
}

// Advance hands out what the time has come for, and returns how many are to be looked at therefore, and when the time comes for
// the next; the zero time: never.
func (q *cronQueue) Advance(now time.Time) (due int, next time.Time) {
	q.mu.Lock()
	var looks []alarm
	for a := q.looks.first(); a != nil && !a.time.After(now); a = q.looks.first() {
		looks = append(looks, *a)
		q.looks.drop(a.key)
	}
	var stores []string
	for a := q.stores.first(); a != nil && !a.time.After(now); a = q.stores.first() {
		stores = append(stores, a.key)
		q.stores.drop(a.key)
	}
	for _, a := range []*alarm{q.looks.first(), q.stores.first()} {
		if a != nil && (next.IsZero() || a.time.Before(next)) {
			next = a.time
		}
	}
	q.mu.Unlock()
	for _, a := range looks {
		q.ask(a.key, cronAsk{Look: true, Due: true}, place{urgency: starting, time: a.time, rank: a.rank})
	}
	for _, key := range stores {
		q.Store(key)
	}
	return len(looks), next
}

// Take returns what is to be done for the key that Get has returned.
func (q *cronQueue) Take(key string) cronAsk {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.pending[key]
	delete(q.pending, key)
	if asked.Store {
		q.stores.drop(key)
	}
	return asked
}

// Forget drops what is planned for a CronJob that is no more.
func (q *cronQueue) Forget(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks.drop(key)
	q.stores.drop(key)
}

// alarms are instants by key, at most one each, as a heap.
type alarms struct {
	at   map[string]*alarm
	heap alarmHeap
}

type alarm struct {
	key   string
	time  time.Time
	rank  time.Duration
	index int
}

// set sets the alarm of key, or takes it away where at is zero, and reports whether the first alarm has changed.
func (a *alarms) set(key string, at time.Time, rank time.Duration) bool {
	if at.IsZero() {
		a.drop(key)
		return false
	}
	if old := a.at[key]; old != nil {
		old.time, old.rank = at, rank
		heap.Fix(&a.heap, old.index)
	} else {
		old = &alarm{key: key, time: at, rank: rank}
		a.at[key] = old
		heap.Push(&a.heap, old)
	}
	return a.heap[0].key == key
}

func (a *alarms) drop(key string) {
	if old := a.at[key]; old != nil {
		heap.Remove(&a.heap, old.index)
		delete(a.at, key)
	}
}

func (a *alarms) first() *alarm {
	if len(a.heap) == 0 {
		return nil
	}
	return a.heap[0]
}

// alarmHeap implements heap.Interface.
type alarmHeap []*alarm

func (h alarmHeap) Len() int { return len(h) }

func (h alarmHeap) Less(i, j int) bool {
	if !h[i].time.Equal(h[j].time) {
		return h[i].time.Before(h[j].time)
	}
	if h[i].rank != h[j].rank {
		return h[i].rank < h[j].rank
	}
	return h[i].key < h[j].key
}

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return a
}

// place is where a key stands in the order.
type place struct {
	urgency urgency
	time    time.Time     // starting: what it waited for; else since when it has been here
	rank    time.Duration // starting: who comes first of those of one time
	serial  uint64        // one for each time that a key takes a place
}

// before reports whether p is more urgent than o.
func (p place) before(o place) bool {
	if p.urgency != o.urgency {
		return p.urgency < o.urgency
	}
	return p.urgency == starting && p.time.Before(o.time)
}

// maxPatience bounds how long others may keep a key from its turn.
const maxPatience = 20 * time.Second

// byUrgency is the order of a cronQueue. The work queue calls Touch, Push, Len and Pop under a lock of its own.
type byUrgency struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	want   map[string]place // asked for, and not in the order yet
	in     map[string]place // in the order
	serial uint64
	due    dueHeap
	rows   [urgencies][]turn // by urgency; starting is in due instead. Keys that have moved on leave their turn behind
}

type turn struct {
	key    string
	serial uint64
}

// wish notes where a key is to stand once it is pushed, or touched.
func (b *byUrgency) wish(key string, p place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.want[key]; !ok || p.before(old) {
		b.want[key] = p
	}
}

// Touch moves a key that is in the order already to a more urgent place if that was wished for.
func (b *byUrgency) Touch(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.want[key]
	if !ok {
		return
	}
	delete(b.want, key)
	if old, ok := b.in[key]; ok && p.before(old) {
		b.enter(key, p)
	}
}

// Push adds a key that is not in the order.
func (b *byUrgency) Push(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.want[key]
	if !ok {
		p = place{urgency: looking}
	}
	delete(b.want, key)
	b.enter(key, p)
}

func (b *byUrgency) enter(key string, p place) {
	b.serial++
	p.serial = b.serial
	if p.urgency == starting {
		heap.Push(&b.due, dueTurn{key, p})
	} else {
		p.time = b.clock.Now()
		b.rows[p.urgency] = append(b.rows[p.urgency], turn{key, p.serial})
	}
	b.in[key] = p
}

// Len returns how many keys wait.
func (b *byUrgency) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.in)
}

// Pop returns the next key; Len must be positive.
func (b *byUrgency) Pop() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	for u := looking; u < urgencies; u++ {
		if key, since, ok := b.head(u); ok && now.Sub(since) > maxPatience {
			return b.leave(u, key)
		}
	}
	for len(b.due) > 0 {
		first := heap.Pop(&b.due).(dueTurn)
		if b.in[first.key].serial == first.serial {
			delete(b.in, first.key)
			return first.key
		}
	}
	for u := looking; u < urgencies; u++ {
		if key, _, ok := b.head(u); ok {
			return b.leave(u, key)
		}
	}
	panic("a queue was asked for a key and has none")
}

// head returns who stands first in a row, and drops what has moved on before it.
func (b *byUrgency) head(u urgency) (key string, since time.Time, ok bool) {
	row := b.rows[u]
	for len(row) > 0 {
		if p := b.in[row[0].key]; p.serial == row[0].serial {
			b.rows[u] = row
			return row[0].key, p.time, true
		}
		row[0] = turn{}
		row = row[1:]
	}
	b.rows[u] = nil
	return "", time.Time{}, false
}

func (b *byUrgency) leave(u urgency, key string) string {
	b.rows[u][0] = turn{}
	b.rows[u] = b.rows[u][1:]
	delete(b.in, key)
	return key
}

// dueTurn is a turn of a key whose time has come.
type dueTurn struct {
	key string
	place
}

// dueHeap implements heap.Interface.
type dueHeap []dueTurn

func (h dueHeap) Len() int { return len(h) }

func (h dueHeap) Less(i, j int) bool {
	if !h[i].time.Equal(h[j].time) {
		return h[i].time.Before(h[j].time)
	}
	if h[i].rank != h[j].rank {
		return h[i].rank < h[j].rank
	}
	return h[i].serial < h[j].serial
}

func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueTurn)) }

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = dueTurn{}
	*h = (*h)[:last]
	return t
}
