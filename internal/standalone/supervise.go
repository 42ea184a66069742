// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// lookEvery is how often a running plane looks after its disk and, once in renewEvery, after its certificates.
	lookEvery  = 30 * time.Second
	renewEvery = 24 * time.Hour
	// lowSpace is when a person is told that the disk is nearly full.
	lowSpace = 64 << 20
)

// running is a part that has been started.
type running struct {
	name string
	part Part
	stop context.CancelFunc
	done chan struct{}
	err  error // why it has ended; valid once done is closed
}

// launch starts part. ended gets it when it ends.
func launch(ctx context.Context, name string, part Part, ended chan<- *running) *running {
	// The end of ctx must not stop all parts at once: supervise stops them in order.
	partCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{name: name, part: part, stop: stop, done: make(chan struct{})}
	go func() {
		r.err = part.Run(partCtx)
		close(r.done)
		ended <- r
	}()
	return r
}

// failure says which part has ended although nobody had asked it to.
func (r *running) failure() error {
	if r.err == nil {
		return fmt.Errorf("the %s has stopped by itself", r.name)
	}
	return fmt.Errorf("the %s has failed: %w", r.name, r.err)
}

// end stops a part, unless it has ended before: why it did is known then.
func (r *running) end(within time.Duration) error {
	select {
	case <-r.done:
		return nil
	default:
	}
	r.stop()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-r.done:
	case <-limit.C:
		return fmt.Errorf("the %s has not stopped in time", r.name)
	}
	if r.err != nil {
		return fmt.Errorf("stopping the %s: %w", r.name, r.err)
	}
	return nil
}

// supervise starts the parts, waits for the end of ctx or of a part, and stops them.
func (r *run) supervise(ctx context.Context, parts Parts) error {
	ended := make(chan *running, len(parts.Clients)+1)
	var started []*running
	err := r.start(ctx, parts, ended, &started)
	if err == nil {
		err = r.watch(ctx, ended)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil // asked to stop, perhaps before everything was up
	}
	if len(started) == 0 {
		// A control plane that has run closes it, if it can: one that has failed may serve on until the process ends, and would
		// end that itself if its listener were taken away.
		_ = r.env.Listener.Close()
		r.state.Phase = Stopped
		return err
	}
	r.progress.Stopping()
	if !r.config.Ephemeral {
		r.state.Phase = Stopping
		r.noteState()
	}
	stopErr := r.stop(started)
	if stopErr == nil {
		r.state.Phase = Stopped
	}
	for _, p := range started {
		if survivor, ok := p.part.(Survivor); ok {
			r.state.Survivors += survivor.Survivors()
		}
	}
	r.progress.Stopped(r.state.Survivors)
	return errors.Join(err, stopErr)
}

// start starts the parts in order and returns when all are ready.
func (r *run) start(ctx context.Context, parts Parts, ended chan *running, started *[]*running) error {
	plane, err := parts.ControlPlane(ctx, &r.env)
	if err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	*started = append(*started, launch(ctx, "control plane", plane, ended))
	// Everything else is a client of the control plane from the first moment.
	if err := waitReady(ctx, (*started)[0:], ended); err != nil {
		return err
	}
	r.env.ClientConfig = plane.ClientConfig
	for _, builder := range parts.Clients {
		part, err := builder.Build(ctx, &r.env)
		if err != nil {
			return fmt.Errorf("building the %s: %w", builder.Name, err)
		}
		*started = append(*started, launch(ctx, builder.Name, part, ended))
	}
	if err := waitReady(ctx, (*started)[1:], ended); err != nil {
		return err
	}
	return r.announce()
}

// waitReady waits until all of parts are ready.
func waitReady(ctx context.Context, parts []*running, ended <-chan *running) error {
	for _, p := range parts {
		select {
		case <-p.part.Ready():
		case broken := <-ended:
			return broken.failure()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// watch waits for the end of ctx or of a part, and looks after disk and certificates meanwhile.
func (r *run) watch(ctx context.Context, ended <-chan *running) error {
	ticks := r.config.Clock.NewTicker(lookEvery)
	defer ticks.Stop()
	renewed, low := r.config.Clock.Now(), false
	for {
		select {
		case <-ctx.Done():
			return nil
		case broken := <-ended:
			return broken.failure()
		case <-ticks.C():
		}
		low = r.lookAtDisk(low)
		if r.config.Clock.Since(renewed) >= renewEvery {
			renewed = r.config.Clock.Now()
			r.renewWhileRunning()
		}
	}
}

// lookAtDisk warns once when the disk is nearly full. It returns whether it is; was is what it returned the last time.
func (r *run) lookAtDisk(was bool) bool {
	free, err := freeBytes(r.config.Dir)
	if err != nil {
		r.env.Log.Warn("Cannot tell how full the disk is", "err", err)
		return was
	}
	low := free < lowSpace
	if low && !was {
		text := fmt.Sprintf("the disk of %s is nearly full: %d MiB are left. When it is full, nothing can be stored and the plane ends", r.config.Dir, free>>20)
		r.progress.Warn(text)
		r.env.Log.Warn("Disk is nearly full", "free", free)
	}
	return low
}

// renewWhileRunning keeps a plane going that runs for longer than its certificates. The API server notices new files by
// itself; clients within the process use none.
func (r *run) renewWhileRunning() {
	err := r.renewKeys()
	if err == nil {
		err = writeKubeconfig(r.config.Dir, r.env.Server)
	}
	if err != nil {
		r.progress.Warn(fmt.Sprintf("the certificates could not be renewed: %v", err))
		r.env.Log.Error("Cannot renew certificates", "err", err)
	}
}

// stop stops the parts in reverse order. What takes too long is left behind and reported; the process is about to end.
func (r *run) stop(started []*running) error {
	end := time.Now().Add(r.config.StopTimeout)
	planeTime := min(planeShare, r.config.StopTimeout/2)
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		// Each part gets the same share of the time that is left, and the control plane what is kept for it: one that hangs
		// must not take the others' chance.
		share := time.Until(end)
		if i > 0 {
			share = (share - planeTime) / time.Duration(i)
		}
		begin := r.config.Clock.Now()
		err := started[i].end(share)
		took := r.config.Clock.Since(begin)
		if err != nil {
			errs = append(errs, err)
			r.env.Log.Error("Part has not stopped well", "part", started[i].name, "took", took, "err", err)
			continue
		}
		r.env.Log.Info("Part has stopped", "part", started[i].name, "took", took)
	}
	return errors.Join(errs...)
}

// serialProgress passes on one call at a time.
type serialProgress struct {
	mu sync.Mutex
	Progress
}

// Opened implements Progress.
func (p *serialProgress) Opened(d Dir) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Progress.Opened(d)
}

// Step implements Progress.
func (p *serialProgress) Step(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Progress.Step(text)
}

// Warn implements Progress.
func (p *serialProgress) Warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Progress.Warn(text)
}

// Ready implements Progress.
func (p *serialProgress) Ready(r Running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Progress.Ready(r)
}

// Stopping implements Progress.
func (p *serialProgress) Stopping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Progress.Stopping()
}

// Stopped implements Progress.
func (p *serialProgress) Stopped(survivors int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Progress.Stopped(survivors)
}
