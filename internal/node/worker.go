// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/volume"
)

// worker looks after one pod from the moment it is seen here until its final status is written or its object is gone.
//
// One goroutine, run, takes all decisions. Everything that can take time happens in goroutines beside it, which note their outcome
// under mu and wake it: preparing (volumes), starting (one container at a time), stopping, writing (one status at a time), and one
// watcher for each container that runs.
type worker struct {
	n    *Node
	uid  types.UID
	key  string // namespace/name
	seen time.Time
	wake chan struct{} // has room for one; more would say nothing more
	done chan struct{} // closed when run has returned
	busy sync.WaitGroup

	demands demands     // what the pod asks of the node
	freed   atomic.Bool // its place can be taken

	mu         sync.Mutex
	pod        *corev1.Pod // the newest version seen, from the informer or as the answer to a write
	removed    bool        // its object is gone
	containers map[string]*container
	volumes    *volume.Set // nil before they are there
	stop       *podlife.Stop
	abandon    context.CancelFunc // ends preparing and starting; set while run runs
	grace      *time.Duration     // what stop leaves to containers; nil: what the pod says
	changed    chan struct{}      // closed and replaced when the pod's deletion grace may have changed

	preparing    bool
	prepareTries retry
	mountEvent   retry // how often trouble with volumes is told
	live         liveVolumes
	starting     string // the container on its way; ""
	finishing    bool
	status       writing
	told         map[string]int32 // what was said, and is not said again
	routine      routine
}

// container is what a worker knows of a container.
type container struct {
	podlife.Container
	ended  context.Context    // of the newest attempt: done when it has ended
	end    context.CancelFunc // what ends it
	tries  retry
	failed string // the image that is not in the table; ""
}

// retry counts attempts at something that does not work, and says when to try again.
type retry struct {
	last time.Duration
	next time.Time
}

func (r *retry) after(now time.Time, b podlife.BackOff) {
	if r.last == 0 {
		r.last = b.Base
	} else {
		r.last = min(2*r.last, b.Max)
	}
	r.next = now.Add(r.last)
}

func (n *Node) newWorker(pod *corev1.Pod) *worker {
	return &worker{
		n:          n,
		uid:        pod.UID,
		key:        podKey(pod),
		seen:       n.clock.Now(),
		wake:       make(chan struct{}, 1),
		done:       make(chan struct{}),
		pod:        pod,
		demands:    demandOf(pod),
		containers: map[string]*container{},
		changed:    make(chan struct{}),
		told:       map[string]int32{},
	}
}

// poke makes the worker look again.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// saw hands a version of the pod to the worker. removed says that it was the last one.
func (w *worker) saw(pod *corev1.Pod, removed bool) {
	w.mu.Lock()
	before := w.pod
	if newer(pod, w.pod) {
		w.pod = pod
	}
	w.removed = w.removed || removed
	if removed || !equality.Semantic.DeepEqual(before.DeletionGracePeriodSeconds, w.pod.DeletionGracePeriodSeconds) {
		close(w.changed)
		w.changed = make(chan struct{})
	}
	if downwardChanged(before, w.pod) {
		w.live.stale = true
	}
	w.mu.Unlock()
	w.poke()
}

// run decides again and again until the pod is finished or ctx ends. Then it leaves the containers as they are.
func (w *worker) run(ctx context.Context) {
	defer close(w.done)
	defer w.busy.Wait()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.live.end()
	}()
	opCtx, abandon := context.WithCancel(ctx)
	defer abandon()
	w.mu.Lock()
	w.abandon = abandon
	w.watchAllLocked(ctx)
	w.mu.Unlock()
	for {
		at, done := w.carefulStep(ctx, opCtx)
		if done {
			return
		}
		var timer <-chan time.Time
		var stop func() bool
		if !at.IsZero() {
			t := w.n.clock.NewTimer(max(0, at.Sub(w.n.clock.Now())))
			timer, stop = t.C(), t.Stop
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-timer:
		}
		if stop != nil {
			stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// carefulStep is step for a node that no pod may bring down.
func (w *worker) carefulStep(ctx, opCtx context.Context) (at time.Time, done bool) {
	defer func() {
		if p := recover(); p != nil {
			w.n.log.Error("Deciding about a pod failed", "pod", w.key, "err", p, "stack", string(debug.Stack()))
			at, done = w.n.clock.Now().Add(time.Minute), false
		}
	}()
	return w.step(ctx, opCtx)
}

// step decides once and sets in motion what follows. It returns when to decide again if nothing happens before, zero for never, and
// whether the worker is done. It does no I/O. opCtx is for what ends when the pod is to end.
func (w *worker) step(ctx, opCtx context.Context) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.n.clock.Now()
	var at earliest

	w.decideStop(now, &at)
	facts := w.factsLocked(now)
	plan := podlife.Decide(facts)
	at.add(plan.At)
	w.actLocked(ctx, opCtx, facts, plan, &at)

	if w.settleLocked(ctx, facts, plan, &at) {
		return time.Time{}, true
	}
	return at.t, false
}

// earliest is the first of some instants.
type earliest struct{ t time.Time }

func (e *earliest) add(t time.Time) {
	if !t.IsZero() && (e.t.IsZero() || t.Before(e.t)) {
		e.t = t
	}
}

// decideStop notes whether something from outside ends the pod.
func (w *worker) decideStop(now time.Time, at *earliest) {
	switch {
	case w.stop != nil && w.stop.Reason != "":
		return
	case w.removed || w.pod.DeletionTimestamp != nil:
		w.stop = &podlife.Stop{}
		return
	}
	if seconds := w.pod.Spec.ActiveDeadlineSeconds; seconds != nil {
		start := w.seen
		if w.pod.Status.StartTime != nil {
			start = w.pod.Status.StartTime.Time
		}
		deadline := start.Add(time.Duration(*seconds) * time.Second)
		if now.Before(deadline) {
			at.add(deadline)
			return
		}
		w.stop = &podlife.Stop{
			Reason:  "DeadlineExceeded",
			Message: "Pod was active on the node longer than the specified deadline",
		}
		w.n.events.pod(w.pod, corev1.EventTypeNormal, w.stop.Reason, w.stop.Message)
	}
}

// evict ends the pod at once, with phase Failed.
func (w *worker) evict(reason, message string) {
	w.mu.Lock()
	if w.stop == nil {
		second := time.Second
		w.stop, w.grace = &podlife.Stop{Reason: reason, Message: message}, &second
		w.n.events.pod(w.pod, corev1.EventTypeWarning, reason, message)
	}
	w.mu.Unlock()
	w.poke()
}

func (w *worker) factsLocked(now time.Time) podlife.Facts {
	known := make(map[string]podlife.Container, len(w.containers))
	anyStarted := false
	for name, c := range w.containers {
		known[name] = c.Container
		anyStarted = anyStarted || len(c.Attempts) > 0
	}
	return podlife.Facts{
		Pod:        w.pod,
		Containers: known,
		Stop:       w.stop,
		Now:        now,
		Seen:       w.seen,
		BackOff:    w.n.cfg.BackOff,
		Prepared:   w.volumes != nil || anyStarted,
		HostIPs:    w.n.cfg.IPs,
	}
}

// actLocked sets in motion what the plan says.
func (w *worker) actLocked(ctx, opCtx context.Context, facts podlife.Facts, plan podlife.Plan, at *earliest) {
	now := facts.Now
	if plan.Finish {
		w.abandon()
		if podlife.AnyRunning(facts.Containers) && !w.finishing {
			w.finishing = true
			w.goBusy(func() { w.finish(ctx) })
		}
		return
	}
	for _, kill := range plan.Stop {
		c := w.containers[kill.Name]
		c.Stopping = true
		w.goBusy(func() { w.stopOne(ctx, kill) })
	}
	for name := range plan.Waiting {
		w.tellBackOff(name)
	}
	switch {
	case w.volumes == nil && !w.preparing:
		if at.add(w.prepareTries.next); now.Before(w.prepareTries.next) {
			break
		}
		w.preparing = true
		w.goBusy(func() { w.prepare(opCtx) })
	case w.volumes != nil && w.starting == "" && len(plan.Start) > 0:
		name, epoch := plan.Start[0], plan.Epoch
		w.starting = name
		w.goBusy(func() { w.start(ctx, opCtx, name, epoch) })
	}
	w.refreshLocked(opCtx, now, at)
}

// goBusy runs f beside the worker, which waits for it before it ends.
func (w *worker) goBusy(f func()) {
	w.busy.Go(func() {
		defer w.poke()
		defer func() {
			if p := recover(); p != nil {
				w.n.log.Error("Looking after a pod failed", "pod", w.key, "err", p, "stack", string(debug.Stack()))
			}
		}()
		f()
	})
}

// tellBackOff sends one event for each time that a container has to wait.
func (w *worker) tellBackOff(name string) {
	count := w.containers[name].RestartCount()
	if w.told["back-off "+name] == count {
		return
	}
	w.told["back-off "+name] = count
	w.n.events.container(w.pod, name, corev1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, podlife.Describe(w.pod)))
}

// settleLocked sees to the status, and once nothing runs any more to the end of the pod. It reports whether the worker is done.
func (w *worker) settleLocked(ctx context.Context, facts podlife.Facts, plan podlife.Plan, at *earliest) bool {
	idle := !w.preparing && w.starting == "" && !podlife.AnyRunning(facts.Containers)
	facts.Ended = plan.Finish && idle && !w.finishing
	status := podlife.Status(facts, plan)
	w.tellRoutineLocked(facts.Now, status.Phase == corev1.PodFailed, at)
	if !w.removed {
		w.writeLocked(ctx, status, at)
	}
	if facts.Ended && w.removed {
		w.freed.Store(true)
	}
	if !facts.Ended || w.status.underWay {
		return false
	}
	if !w.removed && (!podlife.IsTerminal(w.pod.Status.Phase) || !w.status.dirty.IsZero()) {
		return false // its end is not known to the API server yet
	}
	w.goBusy(func() { w.conclude(ctx) })
	return true
}

// newer reports whether a is a later version of an object than b.
func newer(a, b *corev1.Pod) bool {
	return a.UID == b.UID && compareVersions(a.ResourceVersion, b.ResourceVersion) >= 0
}
