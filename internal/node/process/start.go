// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// Start starts a container and returns once its command runs, or has run already. On any error, the command has not run and
// nothing is left of the container. An error that is ErrInvalid, ErrUnsupported or a *StartError comes from the Spec;
// ErrExists tells that the ID is taken, by a container of any state. Limits that the machine cannot enforce are not; see
// Features.Unenforced.
//
// When ctx ends early the container is killed. If its command had begun by then, Start succeeds nevertheless.
func (r *Runtime) Start(ctx context.Context, s Spec) (Status, error) {
	if err := errors.Join(s.validate(), ctx.Err()); err != nil {
		return Status{}, fmt.Errorf("starting container %q: %w", s.ID, err)
	}
	if err := r.begin(); err != nil {
		return Status{}, fmt.Errorf("starting container %q: %w", s.ID, err)
	}
	defer r.busy.Done()
	if err := r.supports(&s); err != nil {
		return Status{}, fmt.Errorf("starting container %q: %w", s.ID, err)
	}
	for attempt := 1; ; attempt++ {
		st, again, err := r.tryStart(ctx, s)
		if err == nil {
			return st, nil
		}
		if !again || attempt == startAttempts || ctx.Err() != nil {
			return Status{}, fmt.Errorf("starting container %q: %w", s.ID, err)
		}
	}
}

// startAttempts is how often a start is begun while others mount and unmount.
const startAttempts = 10

// tryStart does what Start does once. again tells that it has failed in a world that is another one by now, and that nothing is left.
func (r *Runtime) tryStart(ctx context.Context, s Spec) (st Status, again bool, err error) {
	c := r.newContainer(record{Spec: s, BootID: r.bootID, Isolation: r.isolation, UserNamespace: r.userNamespace})
	c.rec.Cgroup = r.cgroups.wanted(s.ID, s.Limits, !c.rec.pidNamespace(), r.cfg.Accounting)
	r.mu.Lock()
	if r.containers[s.ID] != nil {
		r.mu.Unlock()
		return Status{}, false, ErrExists
	}
	r.containers[s.ID] = c
	r.mu.Unlock()

	if err := r.start(ctx, c); err != nil {
		again = r.outdated(c, err)
		if left := r.clear(context.WithoutCancel(ctx), c); left != nil {
			again, err = false, errors.Join(err, left)
		}
		r.mu.Lock()
		delete(r.containers, s.ID)
		r.mu.Unlock()
		return Status{}, again, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.status(), false, nil
}

// outdated tells whether c's start may have failed with err because something was mounted or unmounted after c's layers were chosen.
func (r *Runtime) outdated(c *container, err error) bool {
	if e, ok := errors.AsType[*StartError](err); !ok || e.kind != nil || c.rec.Isolation != Full {
		return false
	}
	_, reading := r.hostLayers(c.rec.UserNamespace)
	return c.layersOf != reading
}

func (r *Runtime) newContainer(rec record) *container {
	return &container{
		rec:     rec,
		dir:     filepath.Join(r.dir, containersDir, rec.Spec.ID),
		scratch: filepath.Join(r.scratch, rec.Spec.ID),
		done:    make(chan struct{}),
		ended:   make(chan struct{}),
		removal: make(chan struct{}, 1),
		execs:   map[*execution]bool{},
	}
}

// start has c made and waits until that is known to have worked. If it returns an error, c's command has not run and no
// process of c is left.
func (r *Runtime) start(ctx context.Context, c *container) error {
	s := &c.rec.Spec
	r.trash.giveWay()
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := writeRecord(c.dir, &c.rec); err != nil {
		return err
	}
	if s.LogPath != "" {
		if err := os.MkdirAll(filepath.Dir(s.LogPath), 0o755); err != nil {
			return fmt.Errorf("making the log's directory: %w", err)
		}
	}
	if s.Stdin {
		if err := unix.Mkfifo(filepath.Join(c.dir, stdinFile), 0o600); err != nil {
			return fmt.Errorf("making a pipe for standard input: %w", err)
		}
		if s.UID != nil && r.privileged {
			_ = os.Chown(filepath.Join(c.dir, stdinFile), int(*s.UID), -1)
		}
	}
	if err := c.rec.Cgroup.create(s.Limits); err != nil {
		return err
	}
	p, err := r.containerPlan(c)
	if err != nil {
		return err
	}
	return r.launch(ctx, c, p)
}

// launch sends the request for c's fork and follows it until it is settled: until c's journal can be relied on.
func (r *Runtime) launch(ctx context.Context, c *container, p *plan) error {
	sp, err := r.client()
	if err != nil {
		return err
	}
	f, err := sp.fork(p.flags, p.encode())
	if err != nil {
		return err
	}
	<-f.forked
	if f.pidfd >= 0 {
		r.watch(c, f.pid, f.pidfd)
	}
	switch {
	case f.err == nil:
		r.awaitSettled(ctx, c, sp, f)
	case errors.Is(f.err, errSpawnerGone):
		// It may have forked without telling. All such forks are settled by now.
	default:
		return f.err
	}
	outcome := sp.outcome(f)
	switch {
	case outcome.Kind == spawner.ReplyFailed:
		if c.pidfd != nil {
			<-c.ended
		}
		return p.startError(outcome, c.rec.Spec.Args, c.rec.Spec.Env)
	case outcome.Kind == spawner.ReplyReady && c.pidfd != nil:
		r.running(c, time.Unix(0, outcome.TimeNS).UTC())
		return nil
	default:
		return r.settleByJournal(ctx, c, p)
	}
}

// awaitSettled waits for the outcome of f, or for the end of its process, after which the outcome says nothing unless
// it is there.
func (r *Runtime) awaitSettled(ctx context.Context, c *container, sp *client, f *forking) {
	select {
	case <-f.settled:
		return
	case <-ctx.Done():
		r.log.Warn("Killing a container whose start has taken too long", "container", c.rec.Spec.ID)
		c.signal(unix.SIGKILL)
		<-c.ended
	case <-c.ended:
	}
	// Whatever the fork has said was said before it ended.
	sp.flush()
}

// settleByJournal finds out what became of a fork that did not say so.
func (r *Runtime) settleByJournal(ctx context.Context, c *container, p *plan) error {
	j, err := readJournal(c.dir)
	if err != nil {
		return err
	}
	switch {
	case j.failed != nil:
		return p.startError(*j.failed, c.rec.Spec.Args, c.rec.Spec.Env)
	case !j.ran:
		if err := ctx.Err(); err != nil {
			return err
		}
		return errors.New("its init has been killed")
	}
	if c.pidfd == nil {
		if err := r.find(c, j); err != nil {
			return err
		}
	}
	r.running(c, j.ranAt)
	return nil
}
