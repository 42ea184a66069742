// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	statusLag = 2 * time.Second        // how far the news that a container has ended may be behind the end of its log
	openPause = 500 * time.Millisecond // before a log is opened again that could not be opened or broke off
	openTries = 5                      // how often in vain, once the run has ended
	endGrace  = 10 * time.Second       // for how long a log may go on that ought to have ended, as its node may be lost
)

// position is how far a container is.
type position struct {
	run    int32 // the latest that has begun, counted from 0 as restarts are; -1 for none
	ended  bool  // that run has ended
	failed bool  // it has ended, and not well
	final  bool  // there will be no other
	lost   bool  // it runs by its status, but nothing runs any more
}

// positionOf reads a container's position from the state of its pod. final means that the pod will start nothing more,
// whatever its state says.
func positionOf(pod *corev1.Pod, container string, final bool) position {
	phase := pod.Status.Phase
	at := position{run: -1, final: final || phase == corev1.PodSucceeded || phase == corev1.PodFailed}
	status := containerStatus(pod, container)
	if status == nil {
		return at
	}
	end := status.State.Terminated
	if status.State.Waiting != nil {
		end = status.LastTerminationState.Terminated
	}
	if end == nil && status.State.Running == nil {
		return at
	}
	at.run = status.RestartCount
	at.ended = end != nil || at.final
	at.lost = end == nil && at.final
	at.failed = end != nil && end.ExitCode != 0 || phase == corev1.PodFailed
	return at
}

// tail follows one container through its runs.
type tail struct {
	*follower
	source
	live *followed

	// The last line shown, and how many of that time: after a break the log is read again from there. Lines of later
	// runs are later, so this also keeps a run from being shown twice that was taken for the one before.
	lastAt time.Time
	sameAt int
}

// run shows one run after the other until there will be no more. It returns nil when ctx ends.
func (t *tail) run(ctx context.Context) error {
	next := int32(-1) // the run to be shown next
	for {
		at, changed := t.live.container(t.container)
		if next < 0 && at.run >= 0 {
			next = at.run
			if t.All || t.Failed {
				next = max(0, at.run-1)
			}
		}
		if at.run >= 0 && next < at.run-1 {
			next = at.run - 1 // of earlier runs there is no log
		}
		switch {
		case at.run < 0 || next > at.run:
			if at.final {
				return nil
			}
		case t.Failed && next == at.run && !at.failed:
			if at.ended {
				next++
				continue
			}
		default:
			if err := t.show(ctx, next, next < at.run); err != nil || ctx.Err() != nil {
				return err
			}
			next++
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// show shows one run to its end. previous means that a later one has begun.
func (t *tail) show(ctx context.Context, run int32, previous bool) error {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return nil
	}
	opts := t.podLogOptions(source{container: t.container, previous: previous})
	opts.Timestamps, opts.Follow = true, !previous
	for tries := 0; ; {
		shown, err := t.read(ctx, opts)
		if ctx.Err() != nil {
			return nil
		}
		if shown {
			tries = 0
		}
		ended := previous || t.hasEnded(ctx, run, err)
		switch {
		case errors.Is(err, errOutput), apierrors.IsForbidden(err):
			return err
		case err == nil && ended, errors.Is(err, errLost):
			return nil
		case apierrors.IsNotFound(err):
			return nil // the pod has been deleted, and its log with it
		case err != nil && ended:
			if tries++; tries == openTries {
				return err
			}
		}
		// Read again from the last line shown. The API server knows whole seconds, the rest is skipped when read.
		if !t.lastAt.IsZero() {
			opts.TailLines, opts.SinceSeconds = nil, nil
			opts.SinceTime = &metav1.Time{Time: t.lastAt}
		}
		if err != nil {
			t.sleep(ctx, openPause)
		}
	}
}

// hasEnded reports whether the run has ended. When its log has come to an end, it gives the news a while to arrive.
func (t *tail) hasEnded(ctx context.Context, run int32, err error) bool {
	timer := t.Factory.Clock.NewTimer(statusLag)
	defer timer.Stop()
	for {
		at, changed := t.live.container(t.container)
		if at.run > run || at.ended || at.final {
			return true
		}
		if err != nil {
			return false
		}
		select {
		case <-changed:
		case <-timer.C():
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (t *tail) sleep(ctx context.Context, d time.Duration) {
	timer := t.Factory.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// errLost says that a log goes on that ought to have ended.
var errLost = errors.New("the log goes on after the end")

// untilLost returns a context that ends with errLost when the log has had time enough to end.
func (t *tail) untilLost(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			at, changed := t.live.container(t.container)
			if at.lost {
				t.sleep(ctx, endGrace)
				cancel(errLost)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		wg.Wait()
	}
}

// read shows the log from where it was left, and reports whether there was anything new. The error is errLost if the
// log was left because it does not end.
func (t *tail) read(ctx context.Context, opts *corev1.PodLogOptions) (shown bool, err error) {
	ctx, stop := t.untilLost(ctx)
	defer stop()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errLost) {
			err = errLost
		}
	}()
	log, err := t.open(ctx, t.namespace, t.pod.Name, opts)
	if err != nil {
		return false, err
	}
	defer func() { _ = log.Close() }() // only read
	head := t.out.head(t.source)
	skip := t.sameAt
	begins := true // at the beginning of a line, not of a further piece of a long one
	skipping := false
	err = lines(log, func(line []byte, more bool) error {
		if begins {
			at, rest, stamped := splitTime(line)
			skipping = stamped && !t.lastAt.IsZero() && (at.Before(t.lastAt) || at.Equal(t.lastAt) && skip > 0)
			if stamped && at.Equal(t.lastAt) {
				skip--
			}
			if !skipping && stamped {
				if !at.Equal(t.lastAt) {
					t.lastAt, t.sameAt = at, 0
				}
				t.sameAt++
			}
			if stamped && !t.Timestamps {
				line = rest
			}
		}
		begins = bytes.HasSuffix(line, []byte{'\n'})
		if skipping {
			return nil
		}
		shown = true
		return t.out.line(head, line, more)
	})
	return shown, err
}

// splitTime splits a line of a log with timestamps into the time and the rest.
func splitTime(line []byte) (at time.Time, rest []byte, ok bool) {
	stamp, rest, found := bytes.Cut(line, []byte{' '})
	if !found {
		return time.Time{}, line, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	return at, rest, err == nil
}
