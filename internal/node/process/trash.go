// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// trash is where the folders of removed containers wait to be deleted. To delete them takes a file system as long as to make those of
// the next container, and some are slow to make files while many have just been deleted (ext4 without a journal passes over every
// inode that was freed within five seconds). So it is done when no container has been started for a moment, or has waited for long.
type trash struct {
	dir string
	log *slog.Logger

	mu      sync.Mutex
	seen    uint64 // names that were given
	waiting []rubbish
	started time.Time // when a container was started last
	closed  bool
	changed chan struct{} // holds one: there is something to look at
	ended   chan struct{} // closed when the worker has ended
}

// rubbish is one folder that is to be deleted.
type rubbish struct {
	path  string
	since time.Time
}

const (
	trashDir = "trash"
	// quietStart is for how long no container has been started when there is time to delete.
	quietStart = time.Second
	// longestWait is how long a folder waits at most.
	longestWait = 15 * time.Second
)

// newTrash returns the trash in dir, and begins to delete what is in there. Nobody else uses dir.
func newTrash(dir string, log *slog.Logger) (*trash, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the trash: %w", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("looking into the trash: %w", err)
	}
	t := &trash{dir: dir, log: log, changed: make(chan struct{}, 1), ended: make(chan struct{})}
	for _, e := range left {
		t.waiting = append(t.waiting, rubbish{path: filepath.Join(dir, e.Name())})
	}
	go t.run()
	t.look()
	return t, nil
}

// put takes the folder at path, which is gone when put returns. A crash leaves it either there or here.
func (t *trash) put(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.seen++
	at := filepath.Join(t.dir, strconv.FormatInt(now.UnixNano(), 36)+"."+strconv.FormatUint(t.seen, 36))
	if err := os.Rename(path, at); errors.Is(err, os.ErrNotExist) {
		return nil // it is gone already
	} else if err != nil {
		return fmt.Errorf("putting it away: %w", err)
	}
	if t.closed {
		return removeFolder(at)
	}
	t.waiting = append(t.waiting, rubbish{at, now})
	if len(t.waiting) == 1 {
		t.look()
	}
	return nil
}

// giveWay notes that a container is being started.
func (t *trash) giveWay() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = time.Now()
}

// close deletes all that is left.
func (t *trash) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.look()
	<-t.ended
}

func (t *trash) look() {
	select {
	case t.changed <- struct{}{}:
	default: // it will be looked at
	}
}

func (t *trash) run() {
	defer close(t.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, wait, closed := t.next(time.Now())
		switch {
		case next != "":
			if err := removeFolder(next); err != nil {
				t.log.Error("Cannot delete what a container has left", "path", next, "err", err)
			}
			continue
		case closed:
			return
		case wait > 0:
			timer.Reset(wait)
		}
		select {
		case <-t.changed:
		case <-timer.C:
		}
	}
}

// next takes out what is to be deleted now; "": nothing. Then wait is when there may be something, or 0.
func (t *trash) next(now time.Time) (path string, wait time.Duration, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		return "", 0, t.closed
	}
	first := t.waiting[0]
	due := first.since.Add(longestWait)
	if quiet := t.started.Add(quietStart); quiet.Before(due) {
		due = quiet
	}
	if wait := due.Sub(now); wait > 0 && !t.closed {
		return "", wait, false
	}
	t.waiting[0] = rubbish{}
	t.waiting = t.waiting[1:]
	return first.path, 0, t.closed
}
