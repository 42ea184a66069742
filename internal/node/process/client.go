// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// errSpawnerGone tells that the spawner ended before a request was settled. Whatever it had forked has either ended, too, or
// has written its record.
var errSpawnerGone = errors.New("the spawner process has ended")

// helloTimeout is how long a spawner may take to begin; an overloaded machine needs some of it.
const helloTimeout = 30 * time.Second

// client is a spawner process and the requests that are on their way to it. It is safe for concurrent use.
type client struct {
	conn *net.UnixConn
	cmd  *exec.Cmd     // starts the spawner and ends with it
	pid  int           // the spawner's
	gone chan struct{} // closed once no more replies can come

	sendMu sync.Mutex

	mu      sync.Mutex
	lastID  uint64
	pending map[uint64]*forking
	closed  bool // no more requests
}

// forking is a request whose outcome is open.
type forking struct {
	forked  chan struct{} // closed when pidfd or err is known
	settled chan struct{} // closed when reply is known, unless elsewhere

	elsewhere bool // the fork replies to a socket of its own
	// Written by the client's reader before the channel that stands above is closed.
	pid   int
	pidfd int // owned by whoever receives from forked; -1: none
	err   error
	reply spawner.Reply // of a fork whose end may be seen before its reply: read it with the client's outcome
}

// startClient starts a spawner, which keeps lock open for as long as it or a fork that has no record yet lives.
func startClient(lock *os.File) (_ *client, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket for the spawner: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "spawner"), os.NewFile(uintptr(fds[1]), "spawner")
	defer discard(theirs)
	conn, err := net.FileConn(ours)
	discard(ours)
	if err != nil {
		return nil, fmt.Errorf("making a socket for the spawner: %w", err)
	}
	c := &client{
		conn:    conn.(*net.UnixConn),
		gone:    make(chan struct{}),
		pending: map[uint64]*forking{},
		// The variables after the first keep the spawner's Go runtime small and its memory where it is.
		cmd: &exec.Cmd{
			Path:        "/proc/self/exe",
			Args:        []string{spawner.Name},
			Env:         []string{spawner.Env + "=" + spawner.Version, "GOGC=off", "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0"},
			ExtraFiles:  []*os.File{theirs, lock},
			SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		},
	}
	if err := c.cmd.Start(); err != nil {
		discard(conn)
		return nil, fmt.Errorf("starting the spawner: %w", err)
	}
	discard(theirs)
	if err := c.awaitHello(); err != nil {
		discard(conn)
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		return nil, err
	}
	go c.readReplies()
	return c, nil
}

func (c *client) awaitHello() error {
	timer := time.AfterFunc(helloTimeout, func() { discard(c.conn) })
	defer timer.Stop()
	r, _, err := c.receive()
	if err != nil {
		return fmt.Errorf("waiting for the spawner: %w", err)
	}
	if r.Kind != spawner.ReplyHello {
		return fmt.Errorf("waiting for the spawner: it said %d instead of hello", r.Kind)
	}
	c.pid = int(r.PID)
	return nil
}

// fork sends a request for a fork that carries out image, with the given descriptors beside it. They may be closed when it
// returns.
func (c *client) fork(cloneFlags uint64, image []byte, fds ...int) (*forking, error) {
	if len(image) > spawner.MaxImage {
		return nil, fmt.Errorf("handing over %d bytes of arguments and environment: more than %d", len(image), spawner.MaxImage)
	}
	memory, err := unix.MemfdCreate("drover-request", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file for a request: %w", err)
	}
	defer closeFD(memory)
	for rest := image; len(rest) > 0; {
		n, err := unix.Write(memory, rest)
		if err != nil {
			return nil, fmt.Errorf("writing a request: %w", err)
		}
		rest = rest[n:]
	}
	// Forks that get descriptors are those for an Exec; the first one is the socket that they reply to.
	f := &forking{forked: make(chan struct{}), settled: make(chan struct{}), pidfd: -1, elsewhere: len(fds) > 0}
	request := spawner.Request{CloneFlags: cloneFlags, Size: uint64(len(image))}
	if err := c.send(f, request, append([]int{memory}, fds...)); err != nil {
		return nil, err
	}
	return f, nil
}

// flush returns once all replies that the spawner's forks had sent before have been handed out.
func (c *client) flush() {
	f := &forking{forked: make(chan struct{}), settled: make(chan struct{}), pidfd: -1}
	switch err := c.send(f, spawner.Request{}, nil); {
	case err == nil:
		<-f.settled
	case errors.Is(err, unix.EPIPE):
		// Nobody holds the other end any more, but what was sent from there may still be unread.
		<-c.gone
	}
}

// outcome returns what f's reply says, the zero Reply if there is none yet.
func (c *client) outcome(f *forking) spawner.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.reply
}

func (c *client) send(f *forking, request spawner.Request, fds []int) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errSpawnerGone
	}
	c.lastID++
	request.ID = c.lastID
	c.pending[request.ID] = f
	c.mu.Unlock()

	message := unsafe.Slice((*byte)(unsafe.Pointer(&request)), unsafe.Sizeof(request))
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.sendMu.Lock()
	_, _, err := c.conn.WriteMsgUnix(message, rights, nil)
	c.sendMu.Unlock()
	if err != nil {
		c.forget(request.ID)
		return fmt.Errorf("%w: %w", errSpawnerGone, err)
	}
	return nil
}

func (c *client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// receive returns the next reply and the descriptor that came with it, or -1.
func (c *client) receive() (r spawner.Reply, fd int, err error) {
	return receiveReply(c.conn)
}

func receiveReply(conn *net.UnixConn) (r spawner.Reply, fd int, err error) {
	message := unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))
	var control [64]byte
	n, nControl, _, _, err := conn.ReadMsgUnix(message, control[:])
	if err != nil {
		return r, -1, err
	}
	fd = oneDescriptor(control[:nControl])
	if n != len(message) {
		closeFD(fd)
		return r, -1, fmt.Errorf("reading a reply: %d bytes instead of %d", n, len(message))
	}
	return r, fd, nil
}

// oneDescriptor returns the descriptor in a control message, or -1. ReadMsgUnix has made it close-on-exec.
func oneDescriptor(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return -1
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return -1
	}
	return fds[0]
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// discard closes what nothing can be lost with any more.
func discard(c io.Closer) { _ = c.Close() }

// readReplies hands out replies until none can come any more: the spawner and all forks that have not yet reported are gone.
func (c *client) readReplies() {
	defer close(c.gone)
	for {
		r, fd, err := c.receive()
		if err != nil {
			c.abandon()
			return
		}
		c.deliver(r, fd)
	}
}

func (c *client) deliver(r spawner.Reply, fd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.pending[r.ID]
	if f == nil {
		closeFD(fd)
		return
	}
	switch r.Kind {
	case spawner.ReplyForked:
		f.pid, f.pidfd = int(r.PID), fd
		if r.Errno != 0 {
			f.err = fmt.Errorf("forking: %w", syscall.Errno(r.Errno))
		}
		close(f.forked)
	default:
		closeFD(fd)
		f.reply = r
		close(f.settled)
	}
	if isClosed(f.forked) && (isClosed(f.settled) || f.elsewhere) || f.err != nil || r.Kind == spawner.ReplyPong {
		delete(c.pending, r.ID)
	}
}

// abandon settles what can no longer get an answer.
func (c *client) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, f := range c.pending {
		delete(c.pending, id)
		if !isClosed(f.forked) {
			f.err = errSpawnerGone
			close(f.forked)
		}
		if !isClosed(f.settled) {
			close(f.settled)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// alive tells whether the spawner still takes requests.
func (c *client) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

// closeTimeout is how long close waits for a fork that hangs in a system call and cannot be killed.
const closeTimeout = 5 * time.Second

// close ends the spawner and waits for it. Requests that are under way are settled first.
func (c *client) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// The spawner reads the end of its input after the requests that it was sent; its forks can still send their replies.
	_ = c.conn.CloseWrite()
	timer := time.AfterFunc(closeTimeout, func() { discard(c.conn) })
	<-c.gone
	timer.Stop()
	discard(c.conn)
	_ = c.cmd.Wait()
}
