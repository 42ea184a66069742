// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// Stdin returns a writer to the standard input of a container whose Spec has Stdin. Closing it leaves the container's input
// open for the next one; see CloseStdin. Writing blocks while the container does not read, until the writer is closed.
func (r *Runtime) Stdin(id string) (io.WriteCloser, error) {
	c, err := r.lookup(id)
	if err != nil {
		return nil, fmt.Errorf("opening the standard input of container %q: %w", id, err)
	}
	if !c.rec.Spec.Stdin {
		return nil, fmt.Errorf("opening the standard input of container %q: %w", id, unsupportedf("it has none"))
	}
	if isClosed(c.done) {
		return nil, fmt.Errorf("opening the standard input of container %q: %w", id, ErrNotRunning)
	}
	// Without a reader the opening fails instead of blocking.
	f, err := os.OpenFile(filepath.Join(c.dir, stdinFile), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		err = ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("opening the standard input of container %q: %w", id, err)
	}
	return f, nil
}

// CloseStdin ends a container's standard input, after what has been written to it. With a terminal, it gets the character that
// means the end of a file.
func (r *Runtime) CloseStdin(id string) error {
	if err := r.tell(id, spawner.ControlCloseStdin, 0); err != nil {
		return fmt.Errorf("closing the standard input of container %q: %w", id, err)
	}
	return nil
}

// Resize sets the size of the terminal of a container whose Spec has TTY.
func (r *Runtime) Resize(id string, size WindowSize) error {
	if err := r.tell(id, spawner.ControlWindow, uint32(size.Rows)<<16|uint32(size.Columns)); err != nil {
		return fmt.Errorf("resizing the terminal of container %q: %w", id, err)
	}
	return nil
}

// queuedSignal is the kernel's siginfo for a signal with a value.
type queuedSignal struct {
	signo, errno, code, _ int32
	pid, uid              int32
	value                 uint64
	_                     [96]byte
}

// tell asks a container's init for something; see the constants of package spawner.
func (r *Runtime) tell(id string, operation uint64, arg uint32) error {
	c, err := r.lookup(id)
	if err != nil {
		return err
	}
	if isClosed(c.done) {
		return ErrNotRunning
	}
	info := queuedSignal{
		signo: spawner.ControlSignal, code: -1, pid: int32(os.Getpid()), uid: int32(r.uid),
		value: operation<<56 | uint64(arg),
	}
	err = c.control(func(fd int) error {
		return unix.PidfdSendSignal(fd, spawner.ControlSignal, (*unix.Siginfo)(unsafe.Pointer(&info)), 0)
	})
	if errors.Is(err, unix.ESRCH) {
		return ErrNotRunning
	}
	return err
}
