// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// detachedEnv tells the process that it is the one in the background.
	detachedEnv = "DROVER_DETACHED"
	// readyFD is where it says that it is ready: the first descriptor after the standard ones.
	readyFD   = 3
	readyWord = "ready"
	// drain is how long the last lines of a plane that is ready may take.
	drain = time.Second
)

// FailedError says that the process in the background has ended instead of becoming ready. It has said why itself.
type FailedError struct{ Code int }

// Error names the exit code.
func (e *FailedError) Error() string {
	return fmt.Sprintf("the plane did not become ready (exit code %d)", e.Code)
}

// ExitCode returns what to exit with.
func (e *FailedError) ExitCode() int { return e.Code }

// Silent reports that there is nothing left to say.
func (e *FailedError) Silent() bool { return true }

// detach starts this command line once more, in a session of its own, and shows what that process says until it is ready.
// A signal for this process stops that one.
func detach(ctx context.Context, show io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program itself: %w", err)
	}
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer func() { _ = readyRead.Close() }() // only read
	sayRead, sayWrite, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("making a pipe: %w", err), readyWrite.Close())
	}
	defer func() { _ = sayRead.Close() }() // only read

	child := exec.Command(self, os.Args[1:]...)
	child.Env = append(os.Environ(), detachedEnv+"=1")
	child.Stdout, child.Stderr = sayWrite, sayWrite
	child.ExtraFiles = []*os.File{readyWrite} // readyFD
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()
	// The child has its own copies; these would keep the pipes open after its end.
	err = errors.Join(err, readyWrite.Close(), sayWrite.Close())
	if err != nil {
		return fmt.Errorf("starting a plane in the background: %w", err)
	}

	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = io.Copy(show, sayRead) // ends when the child lets go of the pipe, or this function returns
	}()
	stopChild := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) })
	defer stopChild()

	word, err := io.ReadAll(readyRead)
	if err != nil {
		return fmt.Errorf("waiting for the plane in the background: %w", err)
	}
	if string(word) == readyWord {
		select {
		case <-said:
		case <-time.After(drain):
		}
		return child.Process.Release()
	}
	err = child.Wait()
	<-said
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return &FailedError{Code: max(exit.ExitCode(), 1)}
	}
	return &FailedError{Code: 1}
}
