// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/drover-dev/drover/internal/backoff"
	"github.com/drover-dev/drover/internal/indexset"
	"github.com/drover-dev/drover/internal/podstate"
)

// Ledger is what is known of the pods of one Job. It follows them one by one: what the watch tells through Observe and Gone,
// what our own writes have done through Observe, MarkDeleting and MarkUntracked, at once and without waiting for the watch.
// It therefore never forgets a write of ours, and an old version of a pod never replaces a newer one.
//
// A Ledger belongs to one goroutine at a time.
type Ledger struct {
	shape   shape
	entries map[types.UID]*entry
	names   map[string]types.UID

	active      []*entry // in no order
	ready       int
	terminating int
	restarts    int // of containers in active and terminating pods

	over       map[types.UID]*entry // tracked and over: to be counted
	failJob    map[types.UID]*entry // failed in a way that must fail the Job
	claims     map[types.UID]*entry // to be adopted or let go
	unseen     map[types.UID]*entry // known from our own create only; the watch has not told of them yet
	activeAt   map[int]int          // Indexed: how many active pods an index has
	activeSet  indexset.Set         // Indexed: the indexes in activeAt
	endingAt   map[int]int          // Indexed: how many terminating pods an index has
	endingSet  indexset.Set
	unnumbered int // Indexed: active pods without a valid index
	doubled    int // Indexed: active pods beyond the first of their index

	completed     indexset.Set // as the stored status says
	completedText string
	failedIndexes indexset.Set
	failedText    string

	record  backoff.Record
	toFold  []*entry // over, and not yet in record
	started time.Time
	next    map[int]int // per index (noIndex: not Indexed) a sequence number below which every name is known
	taken   map[string]bool
}

// shape is what of a Job's metadata and spec decides how its pods are read. When it changes, all of them are read again.
type shape struct {
	uid             types.UID
	namespace, name string
	selector        selectorFunc
	selectorText    string
	selectsByHand   bool // the selector does not follow from the UID
	indexed         bool
	completions     int
	waitForFailed   bool // podReplacementPolicy Failed: a pod that is going counts as failed only once it has ended
	failurePolicy   *batchv1.PodFailurePolicy
	perIndexLimit   *int32
	deleting        bool
}

// entry is one pod in the ledger.
type entry struct {
	pod       *corev1.Pod // shared with the informer: read only
	deleting  bool        // we have deleted it; the watch may not know yet
	untracked bool        // we have taken its finalizer off
	unseen    bool
	folded    bool
	slot      int // position in Ledger.active, or -1

	state    state
	ready    bool
	tracked  bool
	failed   bool // over, and not a success
	index    int
	restarts int
	ruling   ruling
	claim    claim
}

type state int8

const (
	stateActive state = iota
	stateTerminating
	stateFinished
)

// claim says whether the pod and the Job belong together.
type claim int8

const (
	claimed   claim = iota
	toAdopt         // nobody's, and the selector matches
	toRelease       // ours, and the selector does not match any more
	unrelated
)

// NewLedger returns a ledger for j that knows no pods yet. j needs a valid selector.
func NewLedger(j *batchv1.Job) (*Ledger, error) {
	l := &Ledger{
		entries: map[types.UID]*entry{}, names: map[string]types.UID{},
		over: map[types.UID]*entry{}, failJob: map[types.UID]*entry{}, claims: map[types.UID]*entry{}, unseen: map[types.UID]*entry{},
		activeAt: map[int]int{}, endingAt: map[int]int{}, next: map[int]int{}, taken: map[string]bool{},
	}
	return l, l.Follow(j)
}

// Follow tells the ledger of a new version of the Job. It costs something only when a part that decides how pods are read
// has changed. It fails when the selector is invalid, and then leaves the ledger as it was.
func (l *Ledger) Follow(j *batchv1.Job) error {
	sh, err := shapeOf(j, l.shape)
	if err != nil {
		return err
	}
	changed := !sh.equal(l.shape)
	completions := sh.completions
	if changed || l.completedText != j.Status.CompletedIndexes {
		l.completedText = j.Status.CompletedIndexes
		l.completed = indexset.Set{}
		if sh.indexed {
			l.completed = indexset.Parse(l.completedText, completions)
		}
	}
	failedText := ""
	if j.Status.FailedIndexes != nil {
		failedText = *j.Status.FailedIndexes
	}
	if changed || l.failedText != failedText {
		l.failedText = failedText
		l.failedIndexes = indexset.Set{}
		if sh.indexed && sh.perIndexLimit != nil {
			l.failedIndexes = indexset.Parse(failedText, completions)
		}
	}
	l.shape = sh
	if changed {
		for _, e := range l.entries {
			l.unlist(e)
			l.list(e)
		}
	}
	return nil
}

func shapeOf(j *batchv1.Job, before shape) (shape, error) {
	sh := shape{
		uid: j.UID, namespace: j.Namespace, name: j.Name,
		indexed:       IsIndexed(j),
		waitForFailed: j.Spec.PodReplacementPolicy != nil && *j.Spec.PodReplacementPolicy == batchv1.Failed,
		failurePolicy: j.Spec.PodFailurePolicy,
		perIndexLimit: j.Spec.BackoffLimitPerIndex,
		deleting:      j.DeletionTimestamp != nil,
	}
	if sh.indexed && j.Spec.Completions != nil {
		sh.completions = int(*j.Spec.Completions)
	}
	var err error
	sh.selector, sh.selectorText, err = selectorOf(j, before)
	sh.selectsByHand = !HasGeneratedSelector(j)
	return sh, err
}

func (s shape) equal(o shape) bool {
	s.selector, o.selector = nil, nil
	return reflect.DeepEqual(s, o)
}

// Observe tells the ledger of a version of a pod, from the watch or from the answer to a write. A version older than the one
// that is known is passed over. It reports whether a decision could come out differently now.
func (l *Ledger) Observe(p *corev1.Pod) bool {
	e := l.entries[p.UID]
	if e == nil {
		e = &entry{pod: p, slot: -1}
		l.entries[p.UID] = e
		l.names[p.Name] = p.UID
		l.list(e)
		l.passKnownNames(e.index)
		return true
	}
	if e.unseen {
		e.unseen = false
		delete(l.unseen, p.UID)
	}
	if older(p, e.pod) {
		return false
	}
	before := *e
	l.unlist(e)
	e.pod = p
	l.list(e)
	return e.state != before.state || e.ready != before.ready || e.tracked != before.tracked || e.failed != before.failed ||
		e.index != before.index || e.restarts != before.restarts || e.claim != before.claim || e.ruling != before.ruling
}

// Created is Observe for the answer to a create of our own: the pod counts from now on, although the watch has not told of it.
func (l *Ledger) Created(p *corev1.Pod) {
	if l.entries[p.UID] != nil {
		return // the watch was faster
	}
	l.Observe(p)
	e := l.entries[p.UID]
	e.unseen = true
	l.unseen[p.UID] = e
}

// older reports whether a is certainly an earlier version than b.
func older(a, b *corev1.Pod) bool {
	c, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && c < 0
}

// Gone tells the ledger that a pod is no more. It reports whether the pod was known.
func (l *Ledger) Gone(uid types.UID) bool {
	e := l.entries[uid]
	if e == nil {
		return false
	}
	l.unlist(e)
	delete(l.entries, uid)
	delete(l.unseen, uid)
	if l.names[e.pod.Name] == uid {
		delete(l.names, e.pod.Name)
	}
	return true
}

// MarkDeleting notes that the API server has taken our request to delete a pod.
func (l *Ledger) MarkDeleting(uid types.UID) {
	l.mark(uid, func(e *entry) { e.deleting = true })
}

// MarkUntracked notes that the API server has taken the tracking finalizer off a pod at our request.
func (l *Ledger) MarkUntracked(uid types.UID) {
	l.mark(uid, func(e *entry) { e.untracked = true })
}

func (l *Ledger) mark(uid types.UID, set func(*entry)) {
	if e := l.entries[uid]; e != nil {
		l.unlist(e)
		set(e)
		l.list(e)
	}
}

// MarkTaken notes that a name in the Job's namespace belongs to somebody else's pod.
func (l *Ledger) MarkTaken(name string) { l.taken[name] = true }

// Unseen returns the pods that are known from our own creates only, with the version that the create returned. Once the watch
// has passed that version without telling of such a pod, it is gone.
func (l *Ledger) Unseen() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, e := range l.unseen {
		pods = append(pods, e.pod)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// Len returns how many pods belong to the Job, whatever has become of them.
func (l *Ledger) Len() int { return len(l.entries) - len(l.claims) }

// Tracked returns the pods that still carry the tracking finalizer as far as is known, in the order of their names.
func (l *Ledger) Tracked() []PodKey {
	var keys []PodKey
	for uid, e := range l.entries {
		if e.tracked {
			keys = append(keys, PodKey{e.pod.Name, uid})
		}
	}
	slices.SortFunc(keys, func(a, b PodKey) int { return cmp.Compare(a.Name, b.Name) })
	return keys
}

// Begin notes that the Job is at work at now. The first instant after a Restart counts.
func (l *Ledger) Begin(now time.Time) {
	if l.started.IsZero() {
		l.started = now
	}
}

// Pause forgets the instant noted by Begin: the Job is suspended.
func (l *Ledger) Pause() { l.started = time.Time{} }

// Fold adds the pods that have ended since the last call to the record of consecutive failures. Those seen in one call are
// judged together.
//
// Differs: upstream keeps the record in memory only. Here the first call after a restart judges all ended pods that are still
// there, so that a Job in back-off stays in it.
func (l *Ledger) Fold() {
	if len(l.toFold) == 0 {
		return
	}
	var successes, failures []time.Time
	for _, e := range l.toFold {
		if e.folded {
			continue
		}
		e.folded = true
		if e.failed {
			failures = append(failures, podstate.FinishTime(e.pod))
		} else {
			successes = append(successes, podstate.FinishTime(e.pod))
		}
	}
	l.toFold = nil
	l.record = l.record.After(successes, failures)
}

// Failures returns the record of consecutive failures.
func (l *Ledger) Failures() backoff.Record { return l.record }

// list reads e anew and adds it to every sum and list it belongs to.
func (l *Ledger) list(e *entry) {
	l.read(e)
	uid := e.pod.UID
	switch e.claim {
	case claimed:
	case toAdopt, toRelease:
		l.claims[uid] = e
		return
	case unrelated:
		return
	}
	switch e.state {
	case stateActive:
		e.slot = len(l.active)
		l.active = append(l.active, e)
		l.restarts += e.restarts
		if e.ready {
			l.ready++
		}
		if l.shape.indexed {
			l.listActiveIndex(e.index)
		}
	case stateTerminating:
		l.terminating++
		l.restarts += e.restarts
		if l.shape.indexed && e.index != noIndex {
			if l.endingAt[e.index]++; l.endingAt[e.index] == 1 {
				l.endingSet.Add(e.index)
			}
		}
	case stateFinished: // counted below
	}
	isOver := e.state == stateFinished || e.failed
	if isOver && e.tracked {
		l.over[uid] = e
	}
	if e.failed && e.ruling.failsJob() {
		l.failJob[uid] = e
	}
	if isOver && !e.folded && l.foldable(e) {
		l.toFold = append(l.toFold, e)
	}
}

// foldable reports whether e's end says something about the Job's own luck: a pod that was taken out of the count before it
// was deleted says nothing.
func (l *Ledger) foldable(e *entry) bool {
	if l.shape.indexed && e.index == noIndex {
		return false
	}
	return e.tracked || (e.state == stateFinished && e.pod.DeletionTimestamp == nil && !e.deleting && !e.untracked)
}

func (l *Ledger) listActiveIndex(index int) {
	if index == noIndex {
		l.unnumbered++
		return
	}
	if l.activeAt[index]++; l.activeAt[index] == 1 {
		l.activeSet.Add(index)
	} else {
		l.doubled++
	}
}

// unlist takes e out of every sum and list that list has put it into.
func (l *Ledger) unlist(e *entry) {
	uid := e.pod.UID
	if e.claim != claimed {
		delete(l.claims, uid)
		return
	}
	switch e.state {
	case stateActive:
		last := len(l.active) - 1
		l.active[e.slot] = l.active[last]
		l.active[e.slot].slot = e.slot
		l.active[last] = nil
		l.active = l.active[:last]
		e.slot = -1
		l.restarts -= e.restarts
		if e.ready {
			l.ready--
		}
		if l.shape.indexed {
			l.unlistActiveIndex(e.index)
		}
	case stateTerminating:
		l.terminating--
		l.restarts -= e.restarts
		if l.shape.indexed && e.index != noIndex {
			if l.endingAt[e.index]--; l.endingAt[e.index] == 0 {
				delete(l.endingAt, e.index)
				l.endingSet.Remove(e.index)
			}
		}
	case stateFinished:
	}
	delete(l.over, uid)
	delete(l.failJob, uid)
}

func (l *Ledger) unlistActiveIndex(index int) {
	if index == noIndex {
		l.unnumbered--
		return
	}
	if l.activeAt[index]--; l.activeAt[index] == 0 {
		delete(l.activeAt, index)
		l.activeSet.Remove(index)
	} else {
		l.doubled--
	}
}

// read derives what the ledger needs to know of e from its pod and from what we did to it.
func (l *Ledger) read(e *entry) {
	p := e.pod
	going := p.DeletionTimestamp != nil || e.deleting
	switch {
	case podstate.IsFinished(p):
		e.state = stateFinished
	case going:
		e.state = stateTerminating
	default:
		e.state = stateActive
	}
	e.ready = e.state == stateActive && podstate.IsReady(p)
	e.tracked = !e.untracked && IsTracked(p)
	e.failed = p.Status.Phase == corev1.PodFailed ||
		!l.shape.waitForFailed && going && p.Status.Phase != corev1.PodSucceeded
	e.index = noIndex
	if l.shape.indexed {
		e.index = completionIndex(p, l.shape.completions)
	}
	e.restarts = 0
	if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending {
		e.restarts = podstate.Restarts(p)
	}
	e.ruling = ruling{}
	if e.failed {
		e.ruling = judge(l.shape.failurePolicy, p)
	}
	e.claim = l.shape.claimOn(p)
}

// passKnownNames moves the sequence number of an index past the names that are known.
func (l *Ledger) passKnownNames(index int) {
	prefix := generateName(l.shape.name, index)
	n := l.next[index]
	for l.knows(podName(prefix, l.shape.uid, index, n)) {
		n++
	}
	l.next[index] = n
}

func (l *Ledger) knows(name string) bool {
	_, ok := l.names[name]
	return ok || l.taken[name]
}

// freshNames returns n names for new pods of an index: the first of the sequence that nothing is known of. So a creation whose
// answer was lost is asked for again under its old name.
func (l *Ledger) freshNames(index, n int) []string {
	prefix := generateName(l.shape.name, index)
	names := make([]string, 0, n)
	for sequence := l.next[index]; len(names) < n; sequence++ {
		if name := podName(prefix, l.shape.uid, index, sequence); !l.knows(name) {
			names = append(names, name)
		}
	}
	return names
}

// sortedByIndex returns entries ordered by index, then creation, then name.
func sortedByIndex(entries map[types.UID]*entry) []*entry {
	sorted := make([]*entry, 0, len(entries))
	for _, e := range entries {
		sorted = append(sorted, e)
	}
	slices.SortFunc(sorted, compareByIndex)
	return sorted
}

func compareByIndex(a, b *entry) int {
	return cmp.Or(
		cmp.Compare(a.index, b.index),
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
		cmp.Compare(a.pod.Name, b.pod.Name),
	)
}
