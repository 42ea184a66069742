// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Remove takes away everything that a container has left, except for its log. One that is still running is killed first. It is
// no error if there is none. When it returns an error it can be called again; until then the container is listed.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	if err := r.begin(); err != nil {
		return fmt.Errorf("removing container %q: %w", id, err)
	}
	defer r.busy.Done()
	c, err := r.lookup(id)
	if err != nil {
		return nil
	}
	if err := r.killAndWait(ctx, c); err != nil {
		return fmt.Errorf("removing container %q: %w", id, err)
	}
	select {
	case c.removal <- struct{}{}:
		defer func() { <-c.removal }()
	case <-ctx.Done():
		return fmt.Errorf("removing container %q: %w", id, ctx.Err())
	}
	if known, err := r.lookup(id); err != nil || known != c {
		return nil // somebody else has removed it meanwhile
	}
	if err := r.clear(ctx, c); err != nil {
		return fmt.Errorf("removing container %q: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, id)
	return nil
}

// killAndWait returns when c has ended.
func (r *Runtime) killAndWait(ctx context.Context, c *container) error {
	if isClosed(c.done) {
		return nil
	}
	_ = r.Signal(c.rec.Spec.ID, unix.SIGKILL)
	grace := time.NewTimer(cmp.Or(r.cfg.KillGrace, defaultKillGrace))
	defer grace.Stop()
	for {
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-grace.C:
			c.signal(unix.SIGKILL)
		}
	}
}

// clear removes the files and cgroups of a container that has no process any more. When it is interrupted, what is left is taken
// for a container that never ran, and removed, too.
func (r *Runtime) clear(ctx context.Context, c *container) error {
	if c.pidfd != nil {
		<-c.ended
		discard(c.pidfd)
	}
	if err := c.rec.Cgroup.remove(ctx); err != nil {
		return err
	}
	if c.scratch != c.dir { // another file system, perhaps
		if err := removeFolder(c.scratch); err != nil {
			return fmt.Errorf("removing its files: %w", err)
		}
	}
	if err := r.trash.put(c.dir); err != nil {
		return fmt.Errorf("removing its files: %w", err)
	}
	return nil
}

// removeFiles removes c's folders.
func (c *container) removeFiles() error {
	err := removeFolder(c.scratch)
	if c.scratch != c.dir {
		err = errors.Join(err, removeFolder(c.dir))
	}
	return err
}

// removeFolder removes the folder of a container, by the shortest way if the container has not written to its root.
func removeFolder(dir string) error {
	if unix.Rmdir(filepath.Join(dir, upperDir)) == nil {
		// What an overlay puts there, inside out.
		made := filepath.Join(dir, workDir, "work", "incompat", "volatile")
		_ = unix.Unlink(filepath.Join(made, "dirty"))
		for made != dir && unix.Rmdir(made) == nil {
			made = filepath.Dir(made)
		}
	}
	_ = unix.Unlink(filepath.Join(dir, recordFile))
	return removeDir(dir)
}

// removeDir removes dir, which is probably empty. It may be gone already.
func removeDir(dir string) error {
	if err := unix.Rmdir(dir); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return removeTree(dir)
}

// removeTree removes dir with everything in it. Directories that their owner may not read, like those of an overlay, are
// made readable.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
