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
)

// pruneTimeout is how long New tries to get rid of cgroups that nobody knows.
const pruneTimeout = 10 * time.Second

// recover finds the containers of an earlier Runtime. Nobody else changes anything in the directory meanwhile, except for
// the inits of running containers.
func (r *Runtime) recover() error {
	entries, err := os.ReadDir(filepath.Join(r.dir, containersDir))
	if err != nil {
		return fmt.Errorf("looking for containers: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), pruneTimeout)
	defer cancel()
	for _, e := range entries {
		if err := r.recoverOne(ctx, e.Name()); err != nil {
			return fmt.Errorf("finding container %q again: %w", e.Name(), err)
		}
	}
	return r.prune(ctx)
}

func (r *Runtime) recoverOne(ctx context.Context, id string) error {
	dir := filepath.Join(r.dir, containersDir, id)
	rec, j, err := readRecord(dir)
	if errors.Is(err, errNoRecord) {
		r.log.Info("Removing what is left of a container that never ran", "container", id)
		return removeTree(dir)
	}
	if err != nil {
		return err
	}
	c := r.newContainer(*rec)
	if rec.BootID != r.bootID {
		r.recoverFromEarlierBoot(c, j)
		return nil
	}
	if !j.ran {
		r.log.Info("Removing a container that never ran", "container", id)
		return r.clear(ctx, c)
	}
	if err := r.find(c, j); err != nil {
		return err
	}
	c.startedAt = j.ranAt
	r.mu.Lock()
	r.containers[id] = c
	r.mu.Unlock()
	r.running(c, j.ranAt)
	return nil
}

// recoverFromEarlierBoot takes in a container from before the machine was restarted. Nothing of it runs. What its journal says
// is true, but what it does not say may have been lost, so it may have run even if that is not recorded.
func (r *Runtime) recoverFromEarlierBoot(c *container, j journal) {
	close(c.ended)
	c.startedAt = j.ranAt
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[c.rec.Spec.ID] = c
	c.end(j.exit, "the machine was restarted while it ran")
}

// find gets hold of the init of a container whose command has run. If the init is not alive any more, c.ended gets closed.
func (r *Runtime) find(c *container, j journal) error {
	alive, err := initLives(c.dir)
	if err != nil {
		return err
	}
	if !alive {
		close(c.ended)
		return nil
	}
	pidfd, err := unix.PidfdOpen(j.pid, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("getting hold of process %d: %w", j.pid, err)
	}
	// The number was the init's as long as the init held its lock. If it still does, the descriptor is the init's for good.
	if alive, lockErr := initLives(c.dir); err != nil || lockErr != nil || !alive {
		closeFD(pidfd)
		close(c.ended)
		return lockErr
	}
	r.watch(c, j.pid, pidfd)
	return nil
}

// prune removes what belongs to no container.
func (r *Runtime) prune(ctx context.Context) error {
	var errs []error
	entries, err := os.ReadDir(r.scratch) // the containers' own folders if there is no other place
	if err != nil {
		return fmt.Errorf("looking for scratch files: %w", err)
	}
	for _, e := range entries {
		if r.containers[e.Name()] == nil {
			errs = append(errs, removeTree(filepath.Join(r.scratch, e.Name())))
		}
	}
	known := map[string]bool{}
	for _, c := range r.containers {
		for _, dir := range c.rec.Cgroup.Dirs {
			known[dir] = true
		}
	}
	if err := errors.Join(append(errs, r.cgroups.prune(ctx, known))...); err != nil {
		return fmt.Errorf("removing what an earlier process left: %w", err)
	}
	return nil
}
