// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/standalone"
)

// quiet is how long a start may take over one step before the person is told that it is still at work.
const quiet = 2 * time.Second

// terminal tells a person, or the log of a detached plane, how a plane fares.
type terminal struct {
	o       *Options
	started time.Time
	ready   *os.File // tells the process that waits for a detached plane; nil otherwise

	mu   sync.Mutex
	out  io.Writer // for the result
	err  io.Writer // for everything else
	dir  standalone.Dir
	own  *os.File // what was standard error before it went to a file; nil: it still is
	last time.Time
	stop func() // ends the "still starting" lines
}

func newTerminal(o *Options, ready *os.File) (*terminal, error) {
	now := time.Now()
	t := &terminal{o: o, started: now, last: now, out: o.Streams.Out, err: o.Streams.ErrOut, ready: ready}
	if o.Streams.ErrOut == io.Writer(os.Stderr) {
		fd, err := unix.FcntlInt(os.Stderr.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("keeping standard error: %w", err)
		}
		t.own = os.NewFile(uintptr(fd), "stderr")
		t.err = t.own
	}
	done := make(chan struct{})
	var waiter sync.WaitGroup
	waiter.Go(func() { t.remind(done) })
	t.stop = sync.OnceFunc(func() { close(done); waiter.Wait() })
	return t, nil
}

// close gives standard error back.
func (t *terminal) close() {
	t.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.own != nil {
		_ = unix.Dup2(int(t.own.Fd()), 2) // it worked the other way round
		_ = t.own.Close()
	}
	if t.ready != nil {
		_ = t.ready.Close()
	}
}

func (t *terminal) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.printLocked(format, args...)
}

// printLocked prints to standard error. Whoever has closed that does not want to read it.
func (t *terminal) printLocked(format string, args ...any) {
	t.last = time.Now()
	_, _ = fmt.Fprintf(t.err, format, args...)
}

// remind says now and then that the start goes on.
func (t *terminal) remind(done <-chan struct{}) {
	ticks := time.NewTicker(quiet / 2)
	defer ticks.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticks.C:
		}
		t.mu.Lock()
		if time.Since(t.last) >= quiet {
			t.printLocked("%s  still starting\n", t.elapsed())
		}
		t.mu.Unlock()
	}
}

func (t *terminal) elapsed() string { return fmt.Sprintf("%6.1fs", time.Since(t.started).Seconds()) }

// Opened leads what libraries print past the log into a file of the data directory: a terminal that shows how a plane fares
// is no place for it. A crash is still shown on the terminal.
func (t *terminal) Opened(d standalone.Dir) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dir = d
	if t.own == nil {
		return
	}
	file, err := os.OpenFile(d.StderrLog(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err == nil {
		err = unix.Dup2(int(file.Fd()), 2)
		_ = file.Close() // the copy stays open
	}
	if err == nil {
		err = debug.SetCrashOutput(t.own, debug.CrashOptions{})
	}
	if err != nil {
		t.printLocked("Warning: log lines may appear here: %v\n", err)
	}
}

// Step implements standalone.Progress.
func (t *terminal) Step(text string) { t.printf("%s  %s\n", t.elapsed(), text) }

// Warn implements standalone.Progress.
func (t *terminal) Warn(text string) { t.printf("Warning: %s\n", text) }

// Ready implements standalone.Progress.
func (t *terminal) Ready(r standalone.Running) {
	t.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprint(t.out, t.readyText(r)) // whoever has closed standard output does not want to read it
	if t.ready != nil {
		t.letGoLocked(r.Dir)
	}
}

func (t *terminal) readyText(r standalone.Running) string {
	drover := func(args string) string {
		verb, rest, _ := strings.Cut(args, " ")
		if t.o.DefaultDir {
			return "drover " + args
		}
		return fmt.Sprintf("drover --data-dir %s %s %s", r.Dir, verb, rest)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nReady after %.1fs: Kubernetes answers on %s.\n\n", time.Since(t.started).Seconds(), r.Server)
	fmt.Fprintf(&b, "  kubeconfig  %s\n  log         %s\n", r.Kubeconfig, r.Log)
	if r.Ephemeral {
		fmt.Fprintf(&b, "  ephemeral   %s is removed when the plane stops\n", r.Dir)
	}
	where := "in another terminal"
	if t.ready != nil {
		where = "now"
	}
	fmt.Fprintf(&b, "\nTry %s:\n", where)
	fmt.Fprintf(&b, "  %s\n  %s\n", drover("run hello --wait --logs -- echo hello"), drover("kubectl get nodes"))
	fmt.Fprintf(&b, "  export KUBECONFIG=%s\n", r.Kubeconfig)
	stop := "Ctrl-C stops it."
	if t.ready != nil {
		stop = strings.TrimSpace(drover("down ")) + " stops it."
	}
	fmt.Fprintf(&b, "\n%s\n", stop)
	return b.String()
}

// letGoLocked makes a detached plane independent of the process that has started it, and tells that one.
func (t *terminal) letGoLocked(d standalone.Dir) {
	file, err := os.OpenFile(d.UpLog(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		err = unix.Dup2(int(file.Fd()), 1)
	}
	if err == nil && t.own != nil {
		err = unix.Dup3(int(file.Fd()), int(t.own.Fd()), unix.O_CLOEXEC)
	}
	if err != nil {
		t.printLocked("Warning: what the plane has to say later is lost: %v\n", err)
	} else {
		_ = file.Close() // the copies stay open
	}
	_, _ = t.ready.WriteString(readyWord) // nobody waits any more, then
	_ = t.ready.Close()
	t.ready = nil
}

// Stopping implements standalone.Progress.
func (t *terminal) Stopping() {
	t.stop()
	t.printf("\nStopping (a second Ctrl-C ends it at once)\n")
}

// Stopped implements standalone.Progress.
func (t *terminal) Stopped(survivors int) {
	switch survivors {
	case 0:
		t.printf("Stopped\n")
	case 1:
		t.printf("Stopped. 1 pod goes on running; the next \"drover up\" takes it on\n")
	default:
		t.printf("Stopped. %d pods go on running; the next \"drover up\" takes them on\n", survivors)
	}
}
