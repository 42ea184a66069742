// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// Exec is a further command for a container.
type Exec struct {
	Args []string
	Env  []string // added to the container's
	Dir  string   // "": the container's

	Stdin          io.Reader // nil: /dev/null
	Stdout, Stderr io.Writer // nil: /dev/null; Stderr is not used with TTY
	TTY            bool
	// Resize brings the sizes of the terminal, the first one as early as possible. nil: it has none.
	Resize <-chan WindowSize
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Rows, Columns uint16 }

// outputGrace is how long output is still awaited after the end of a command, when processes that it left behind keep its
// streams open.
const outputGrace = 500 * time.Millisecond

// execution is an Exec that has been started: our end of the socket to the process that minds it. When it is closed, that
// process kills the command.
type execution struct {
	conn *net.UnixConn
	once sync.Once
}

func (e *execution) kill() { e.once.Do(func() { discard(e.conn) }) }

// Exec runs another command in a container, with its namespaces, root, user, limits and environment, and returns the code with
// which it ended: 128 + n if signal n ended it. When ctx ends, or the container, or this process, the command is killed with
// all of its session. The errors are ErrNotFound, ErrNotRunning, a *StartError, and ctx's.
//
// Reading from e.Stdin goes on until it ends or fails, or for one more read if the command ends before; callers that care
// close it then.
func (r *Runtime) Exec(ctx context.Context, id string, e Exec) (code int, err error) {
	code, err = r.exec(ctx, id, e)
	if err != nil {
		return 0, fmt.Errorf("executing in container %q: %w", id, err)
	}
	return code, nil
}

func (r *Runtime) exec(ctx context.Context, id string, e Exec) (code int, err error) {
	c, err := r.lookup(id)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(e.validate(), ctx.Err()); err != nil {
		return 0, err
	}
	if isClosed(c.ended) || isClosed(c.done) {
		return 0, ErrNotRunning
	}
	s, err := openStreams(e)
	if err != nil {
		return 0, err
	}
	defer s.close()
	x, theirs, err := newExecution()
	if err != nil {
		return 0, err
	}
	defer x.kill()
	if err := r.register(c, x); err != nil {
		discard(theirs)
		return 0, err
	}
	defer r.unregister(c, x)
	stop := context.AfterFunc(ctx, x.kill)
	defer stop()

	p := r.execPlan(c, e)
	err = r.launchExec(c, p, s, theirs)
	discard(theirs)
	if err != nil {
		return 0, err
	}
	code, err = r.follow(x, p, e, c, s)
	if err == nil {
		return code, nil
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if isClosed(c.ended) || c.gone() {
		return 0, ErrNotRunning
	}
	return 0, err
}

func (e *Exec) validate() error {
	s := Spec{ID: "x", Args: e.Args, Env: e.Env, Dir: e.Dir}
	return s.validate()
}

// gone asks the kernel whether c's init has ended, which this process may not have been told yet.
func (c *container) gone() bool {
	return c.control(func(fd int) error { return unix.PidfdSendSignal(fd, 0, nil, 0) }) != nil
}

func newExecution() (*execution, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "exec"), os.NewFile(uintptr(fds[1]), "exec")
	defer discard(ours)
	conn, err := net.FileConn(ours)
	if err != nil {
		discard(theirs)
		return nil, nil, fmt.Errorf("making a socket: %w", err)
	}
	return &execution{conn: conn.(*net.UnixConn)}, theirs, nil
}

func (r *Runtime) register(c *container, x *execution) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case c.state != Running:
		return ErrNotRunning
	}
	c.execs[x] = true
	r.busy.Add(1)
	return nil
}

func (r *Runtime) unregister(c *container, x *execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(c.execs, x)
	r.busy.Done()
}

// execPlan returns what the fork for e has to do. Its descriptors: the socket, c's init, and
// those of an execStreams.
func (r *Runtime) execPlan(c *container, e Exec) *plan {
	p := newPlan()
	p.image.Header.Flags |= spawner.FlagExec
	init := spawner.RegFirstFD + 1
	stdio := [3]int{init + 1, init + 2, init + 3}
	p.signals()
	groups := p.joinFiles(c.rec.Cgroup)
	if c.rec.Isolation == Full {
		p.setup.Do("entering the container", unix.SYS_SETNS, regValue(init), spawner.N(c.rec.namespaces()))
	}
	if e.TTY {
		p.terminal(&c.rec.Spec)
		stdio = [3]int{spawner.RegSlave, spawner.RegSlave, spawner.RegSlave}
	} else {
		for i, used := range []bool{e.Stdin != nil, e.Stdout != nil, e.Stderr != nil} {
			if used { // otherwise it is /dev/null, which is everybody's
				p.own(&c.rec.Spec, stdio[i])
			}
		}
	}
	dir := e.Dir
	if dir == "" {
		dir = c.rec.Spec.Dir
	}
	r.commandSteps(p, &c.rec, groups, stdio, dir)
	closing := append(groups, init, stdio[0], stdio[1], stdio[2])
	p.close(closing)
	p.setArguments(e.Args, execEnv(c.rec.Spec.Env, e.Env))
	return p
}

// joinFiles adds the opening of the cgroups that a further command joins.
func (p *plan) joinFiles(g cgroup) (join []int) {
	for _, dir := range g.sortedDirs() {
		join = append(join, p.open("opening the cgroup", filepath.Join(dir, "cgroup.procs"), unix.O_WRONLY))
	}
	return join
}

func execEnv(container, further []string) []string {
	env := make([]string, 0, len(container)+len(further))
	return append(append(env, container...), further...)
}

func (r *Runtime) launchExec(c *container, p *plan, s *execStreams, socket *os.File) error {
	sp, err := r.client()
	if err != nil {
		return err
	}
	return c.control(func(init int) error {
		fds := []int{int(socket.Fd()), init}
		for _, f := range s.theirs {
			fds = append(fds, int(f.Fd()))
		}
		f, err := sp.fork(p.flags, p.encode(), fds...)
		if err != nil {
			return err
		}
		<-f.forked
		closeFD(f.pidfd)
		s.closeTheirs()
		return f.err
	})
}

// follow carries streams to and fro until the command has ended, and returns its code.
func (r *Runtime) follow(x *execution, p *plan, e Exec, c *container, s *execStreams) (int, error) {
	reply, master, err := receiveReply(x.conn)
	if err != nil {
		return 0, fmt.Errorf("waiting for the command to start: %w", err)
	}
	if reply.Kind == spawner.ReplyFailed {
		start := p.startError(reply, e.Args, execEnv(c.rec.Spec.Env, e.Env))
		if errors.Is(start, syscall.ESRCH) {
			return 0, ErrNotRunning
		}
		return 0, start
	}
	s.run(e, master)
	reply, fd, err := receiveReply(x.conn)
	closeFD(fd)
	s.finish()
	if err != nil {
		return 0, fmt.Errorf("waiting for the command to end: %w", err)
	}
	status := syscall.WaitStatus(reply.Status)
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// execStreams are the pipes, or the terminal, of an execution.
type execStreams struct {
	theirs  []*os.File // standard input, output and error, for the command
	stdin   *os.File   // our ends, nil if not wanted
	outputs []*output
	master  *os.File

	copies sync.WaitGroup // of output
	ended  chan struct{}
}

type output struct {
	from *os.File
	to   io.Writer
	cut  bool // the copy was interrupted, so that there may be more to read; written before the copies have ended
}

// drain copies what is there to be read, and waits for nothing.
func (o *output) drain() {
	_ = o.from.SetReadDeadline(time.Time{}) // the one that has passed
	conn, err := o.from.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, 32<<10)
	for {
		n := 0
		err := conn.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buffer) // -1 where there is nothing, or a terminal has hung up
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		if _, err := o.to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func openStreams(e Exec) (_ *execStreams, err error) {
	s := &execStreams{ended: make(chan struct{})}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s.theirs = []*os.File{null, null, null}
	if e.TTY {
		return s, nil
	}
	if e.Stdin != nil {
		reader, writer, err := pipe(false)
		if err != nil {
			return nil, err
		}
		s.theirs[0], s.stdin = reader, writer
	}
	for i, w := range []io.Writer{e.Stdout, e.Stderr} {
		if w == nil {
			continue
		}
		reader, writer, err := pipe(true)
		if err != nil {
			return nil, err
		}
		s.theirs[i+1] = writer
		s.outputs = append(s.outputs, &output{from: reader, to: w})
	}
	return s, nil
}

// pipe makes a pipe of which our end, the reader or the writer, is watched by the runtime's poller and the other one is an
// ordinary one. (os.Pipe would make both non-blocking, which most commands cannot stand.)
func pipe(ourReader bool) (reader, writer *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	ours := fds[1]
	if ourReader {
		ours = fds[0]
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		closeFD(fds[0])
		closeFD(fds[1])
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

func (s *execStreams) closeTheirs() {
	for _, f := range s.theirs {
		discard(f)
	}
	s.theirs = nil
}

func (s *execStreams) close() {
	s.closeTheirs()
	if s.stdin != nil {
		discard(s.stdin)
	}
	if s.master != nil {
		discard(s.master)
	}
	for _, o := range s.outputs {
		discard(o.from)
	}
}

// run begins to copy. master is the terminal, or negative.
func (s *execStreams) run(e Exec, master int) {
	if master >= 0 {
		_ = unix.SetNonblock(master, true)
		s.master = os.NewFile(uintptr(master), "terminal")
		w := e.Stdout
		if w == nil {
			w = io.Discard
		}
		s.outputs = append(s.outputs, &output{from: s.master, to: w})
	}
	for _, o := range s.outputs {
		s.copies.Go(func() {
			// A terminal ends with EIO. If the other side does not want any more, the command gets to know by SIGPIPE.
			_, err := io.Copy(o.to, o.from)
			o.cut = errors.Is(err, os.ErrDeadlineExceeded)
			if o.from != s.master && !o.cut {
				discard(o.from)
			}
		})
	}
	switch {
	case e.Stdin == nil:
	case s.master != nil:
		go func() {
			// There is no way to close one direction of a terminal, so that the end is announced as a person would do it.
			if _, err := io.Copy(s.master, e.Stdin); err == nil {
				_, _ = s.master.Write([]byte{4})
			}
		}()
	default:
		go func() {
			_, _ = io.Copy(s.stdin, e.Stdin)
			discard(s.stdin)
		}()
	}
	if e.Resize != nil && s.master != nil {
		go s.resize(e.Resize)
	}
}

func (s *execStreams) resize(sizes <-chan WindowSize) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if conn, err := s.master.SyscallConn(); err == nil {
				_ = conn.Control(func(fd uintptr) {
					_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
				})
			}
		case <-s.ended:
			return
		}
	}
}

// finish waits for the rest of the output.
func (s *execStreams) finish() {
	close(s.ended)
	done := make(chan struct{})
	go func() {
		s.copies.Wait()
		close(done)
	}()
	grace := time.NewTimer(outputGrace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	}
	// Copies that still wait for input are interrupted; one that waits for a writer of the caller's is waited for. On a busy machine
	// they may not have come to read what the command has written before its end, so that is looked for once more.
	for _, o := range s.outputs {
		if o.from.SetReadDeadline(time.Unix(1, 0)) != nil {
			discard(o.from)
		}
	}
	<-done
	for _, o := range s.outputs {
		if o.cut {
			o.drain()
		}
		discard(o.from)
	}
}
