// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// stopPoll is how often Stop looks whether the plane is gone.
const stopPoll = 50 * time.Millisecond

// ErrNotRunning is returned by Stop when no plane runs in the directory.
var ErrNotRunning = errors.New("no plane is running")

// Stop asks the plane in d to stop and waits until its process has ended, or ctx ends. It returns what the plane
// has noted at its end. The error is ErrNotRunning if there is nothing to stop.
func Stop(ctx context.Context, d Dir, timer clock.WithTicker) (State, error) {
	found, err := Inspect(d)
	if err != nil {
		return State{}, err
	}
	if !found.Running {
		return found.State, ErrNotRunning
	}
	if found.PID == 0 {
		return State{}, &Error{
			Doing: "stopping the plane in " + string(d),
			Err:   errors.New("its process cannot be seen from here; perhaps it runs in a container"),
			Try:   []string{"drover down where it was started"},
		}
	}
	// The handle stays with this process, whoever gets its number next.
	process, err := os.FindProcess(found.PID)
	if err != nil {
		return State{}, fmt.Errorf("finding process %d: %w", found.PID, err)
	}
	defer func() { _ = process.Release() }() // frees the handle, and cannot fail in a way that matters
	if held, pid, err := lockHolder(d.lock()); err != nil || !held || pid != found.PID {
		return found.State, errors.Join(ErrNotRunning, err) // it has just ended
	}
	switch err := process.Signal(syscall.SIGTERM); {
	case errors.Is(err, os.ErrProcessDone):
	case errors.Is(err, os.ErrPermission):
		return State{}, &Error{
			Doing: fmt.Sprintf("stopping process %d", found.PID), Err: errors.New("it belongs to another user"),
			Try: []string{"drover down as the user who started it"},
		}
	case err != nil:
		return State{}, fmt.Errorf("stopping process %d: %w", found.PID, err)
	}
	if err := waitGone(ctx, d, found.PID, timer); err != nil {
		return State{}, &Error{
			Doing: "stopping the plane in " + string(d), Err: fmt.Errorf("process %d still runs: %w", found.PID, err),
			Try: []string{
				"once more, with a longer --timeout",
				fmt.Sprintf("kill -9 %d   ends it at once; what it has stored stays, and the next start takes its pods on", found.PID),
			},
		}
	}
	last, err := readState(d)
	if last.PID == 0 { // an ephemeral plane that has ended well takes its directory with it
		last = found.State
		last.Phase = Stopped
	}
	return last, err
}

// WhileStopped calls f while no plane runs in d and none can start. It does nothing while one runs.
func WhileStopped(d Dir, f func() error) error {
	l, err := acquire(d.lock())
	if running := (*RunningError)(nil); errors.As(err, &running) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f(), l.release())
}

// waitGone waits until the lock of d is free and the process that had it has ended, which is a moment later.
func waitGone(ctx context.Context, d Dir, pid int, timer clock.WithTicker) error {
	ticks := timer.NewTicker(stopPoll)
	defer ticks.Stop()
	for {
		held, _, err := lockHolder(d.lock())
		if err != nil || !held && !alive(pid) {
			return err
		}
		select {
		case <-ticks.C():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
