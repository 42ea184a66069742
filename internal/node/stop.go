// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/job"
	"github.com/drover-dev/drover/internal/node/logs"
	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/process"
	"github.com/drover-dev/drover/internal/node/retain"
)

const (
	// minimumGrace is what every container gets between the request to end and the end, however short its grace period.
	minimumGrace = 2 * time.Second
	// killAgain is how often a container that does not die is killed again.
	killAgain = 10 * time.Second
)

// finish ends all containers of the pod that run: main containers at once, sidecars when their turn comes.
func (w *worker) finish(ctx context.Context) {
	defer func() {
		w.mu.Lock()
		w.finishing = false
		w.mu.Unlock()
	}()
	w.mu.Lock()
	turns := podlife.Turns(&w.pod.Spec)
	running := map[string]context.Context{}
	for name, c := range w.containers {
		if runs(c) {
			running[name] = c.ended
			c.Stopping = true
		}
	}
	w.mu.Unlock()
	began := w.n.clock.Now()
	var all sync.WaitGroup
	for name, ended := range running {
		var before []context.Context
		for _, other := range turns[name] {
			if e := running[other]; e != nil {
				before = append(before, e)
			}
		}
		all.Go(func() {
			w.end(ctx, ending{name: name, ended: ended, before: before, deadline: func() time.Time { return w.deadline(began, nil) }})
		})
	}
	all.Wait()
}

// stopOne ends one container while the pod goes on.
func (w *worker) stopOne(ctx context.Context, kill podlife.Kill) {
	w.mu.Lock()
	c := w.containers[kill.Name]
	ended := c.ended
	w.mu.Unlock()
	began := w.n.clock.Now()
	w.end(ctx, ending{
		name: kill.Name, ended: ended, message: kill.Message,
		deadline: func() time.Time { return w.deadline(began, kill.Probe) },
	})
}

// ending is how one container is ended.
type ending struct {
	name     string
	ended    context.Context   // done when it has ended
	before   []context.Context // what must have ended before it is asked to
	message  string            // text of the event; "": it is a matter of routine
	deadline func() time.Time  // when it is killed; may come nearer while it is waited for
}

// end runs the preStop hook of a container, asks it to end, and kills it when its time is over. It returns when the container has
// ended, or ctx.
func (w *worker) end(ctx context.Context, e ending) {
	w.mu.Lock()
	pod := w.pod
	id := ""
	if latest := w.containers[e.name].Latest(); latest != nil {
		id = strings.TrimPrefix(latest.ID, idPrefix)
	}
	w.mu.Unlock()
	spec := findContainer(&pod.Spec, e.name)
	if id == "" || spec == nil || e.ended == nil || e.ended.Err() != nil {
		return
	}
	if e.message == "" {
		w.ordinary(pod, e.name, "Killing", "Stopping container "+e.name)
	} else {
		w.n.events.container(pod, e.name, corev1.EventTypeNormal, "Killing", e.message)
	}
	if spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && w.n.clock.Now().Before(e.deadline()) {
		w.preStop(ctx, e, pod, spec, id)
	}
	for _, other := range e.before {
		w.await(ctx, other, e.deadline)
	}
	if ctx.Err() != nil || e.ended.Err() != nil {
		return
	}
	w.signal(pod, id, stopSignal(spec))
	least := w.n.clock.Now().Add(minimumGrace)
	killAt := func() time.Time {
		if d := e.deadline(); d.After(least) {
			return d
		}
		return least
	}
	for !w.await(ctx, e.ended, killAt) && ctx.Err() == nil {
		w.signal(pod, id, syscall.SIGKILL)
		again := w.n.clock.Now().Add(killAgain)
		killAt = func() time.Time { return again }
	}
}

func (w *worker) signal(pod *corev1.Pod, id string, sig syscall.Signal) {
	err := w.n.rt.Signal(id, sig)
	if err != nil && !errors.Is(err, process.ErrNotFound) && !errors.Is(err, process.ErrNotRunning) {
		w.n.log.Warn("Sending a signal did not work", "pod", podKey(pod), "id", id, "signal", sig, "err", err)
	}
}

// preStop runs the hook of a container that is to end, as long as there is time.
func (w *worker) preStop(ctx context.Context, e ending, pod *corev1.Pod, spec *corev1.Container, id string) {
	hookCtx, cancel := context.WithCancel(e.ended)
	defer cancel()
	returned, done := context.WithCancel(ctx)
	var err error
	var hook sync.WaitGroup
	hook.Go(func() {
		defer done()
		err = w.n.prober.Run(hookCtx, w.n.target(pod, spec, id, w.n.clock.Now()), spec.Lifecycle.PreStop)
	})
	inTime := w.await(ctx, returned, e.deadline)
	cancel()
	hook.Wait()
	if err != nil && inTime && ctx.Err() == nil && e.ended.Err() == nil {
		w.n.log.Info("A preStop hook failed", "pod", podKey(pod), "container", spec.Name, "err", err)
		w.n.events.container(pod, spec.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

// await waits until what is over, and reports false when the deadline or the end of ctx came first. The deadline is asked for again when
// the pod's deletion changes.
func (w *worker) await(ctx context.Context, what context.Context, deadline func() time.Time) bool {
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		timer := w.n.clock.NewTimer(max(0, deadline().Sub(w.n.clock.Now())))
		select {
		case <-what.Done():
			timer.Stop()
			return ctx.Err() == nil
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
			return false
		case <-changed:
			timer.Stop()
		}
	}
}

// deadline returns when a container that was asked to end at began is killed.
func (w *worker) deadline(began time.Time, probe *corev1.Probe) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	seconds := func(s int64) time.Duration { return time.Duration(s) * time.Second }
	pod := w.pod
	switch {
	case w.grace != nil:
		return began.Add(*w.grace)
	case pod.DeletionGracePeriodSeconds != nil:
		grace := seconds(*pod.DeletionGracePeriodSeconds)
		if pod.DeletionTimestamp != nil && pod.DeletionTimestamp.Add(-grace).Before(w.n.began) {
			// It was asked to end before this process was there; its time went on.
			return pod.DeletionTimestamp.Time
		}
		return began.Add(grace)
	case w.removed:
		return began
	case probe != nil && probe.TerminationGracePeriodSeconds != nil:
		return began.Add(seconds(*probe.TerminationGracePeriodSeconds))
	}
	return began.Add(graceOf(pod))
}

// stopSignal is the signal that asks a container to end.
func stopSignal(c *corev1.Container) syscall.Signal {
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		if sig := unix.SignalNum(string(*c.Lifecycle.StopSignal)); sig != 0 {
			return sig
		}
	}
	return syscall.SIGTERM
}

// conclude takes away what is left of a pod that has ended, and then its object if its deletion has been waiting for that. The
// logs stay as long as the object does.
func (w *worker) conclude(ctx context.Context) {
	w.mu.Lock()
	pod, removed := w.pod, w.removed
	if removed { // nobody was told how it ended
		facts := w.factsLocked(w.n.clock.Now())
		pod = pod.DeepCopy()
		pod.Status = podlife.Status(facts, podlife.Decide(facts))
	}
	var ids []string
	for _, c := range w.containers {
		for _, a := range c.Attempts {
			ids = append(ids, strings.TrimPrefix(a.ID, idPrefix))
		}
	}
	w.mu.Unlock()
	for _, id := range ids {
		if err := w.n.rt.Remove(ctx, id); err != nil && !errors.Is(err, process.ErrNotFound) {
			w.n.log.Warn("Removing a container did not work", "pod", podKey(pod), "id", id, "err", err)
		}
	}
	if err := w.n.volumes.CleanupPod(pod); err != nil {
		w.n.log.Warn("Removing the files of a pod did not work", "pod", podKey(pod), "err", err)
	}
	switch {
	case removed:
		w.n.removeLogs(pod)
	case pod.DeletionTimestamp != nil:
		w.n.completeDeletion(ctx, pod)
	}
}

// completeDeletion takes the object of a finished pod away if that waits for the node.
func (n *Node) completeDeletion(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return // it goes by itself, once its finalizers have gone
	}
	var tries retry
	for {
		err := n.deletePod(ctx, pod)
		if err == nil || ctx.Err() != nil {
			return
		}
		tries.after(n.clock.Now(), n.cfg.RetryBackOff)
		n.log.Warn("Deleting a finished pod did not work", "pod", podKey(pod), "err", err, "again", tries.last)
		timer := n.clock.NewTimer(tries.last)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// deletionLost is how long a pod may be there that nothing keeps any more. The API server notes that, and then deletes it.
const deletionLost = 5 * time.Second

// repeatDeletion takes the object of a finished pod away that the API server has noted to be deleted for good and has not deleted,
// because it was killed in between. Where finalizers keep it, the API server deletes it with the last of them.
func (n *Node) repeatDeletion(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 0 || len(pod.Finalizers) > 0 {
		return
	}
	timer := n.clock.NewTimer(deletionLost)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C():
	}
	obj, exists, err := n.informer.GetStore().GetByKey(podKey(pod))
	if err != nil || !exists || obj.(*corev1.Pod).UID != pod.UID {
		return
	}
	n.log.Info("Deleting a pod once more, as nothing keeps it", "pod", podKey(pod))
	if err := n.deletePod(ctx, pod); err != nil && ctx.Err() == nil {
		n.log.Warn("Deleting a finished pod did not work", "pod", podKey(pod), "err", err)
	}
}

// removeLogs deletes the logs of a pod whose object is gone, unless its Job wants them kept.
func (n *Node) removeLogs(pod *corev1.Pod) {
	if pod.Annotations[job.RetainFailedLogsAnnotation] == "true" && retain.HasFailed(pod) {
		if err := n.retained.Keep(pod, logs.PodDir(n.logDir, pod), n.clock.Now()); err != nil {
			n.log.Warn("Keeping the logs of a failed pod did not work", "pod", podKey(pod), "err", err)
		}
	}
	if err := os.RemoveAll(logs.PodDir(n.logDir, pod)); err != nil {
		n.log.Warn("Removing the logs of a pod did not work", "pod", podKey(pod), "err", err)
	}
}
