// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrNotFound tells that no container has this ID.
	ErrNotFound = errors.New("no such container")
	// ErrExists tells that a container with this ID was started before and has not been removed.
	ErrExists = errors.New("container exists already")
	// ErrNotRunning tells that the container has ended.
	ErrNotRunning = errors.New("container is not running")
	// ErrInUse tells that another Runtime holds the directory.
	ErrInUse = errors.New("directory is in use by another runtime")
	// ErrClosed tells that the Runtime has been closed.
	ErrClosed = errors.New("runtime is closed")
	// ErrInvalid tells that a Spec makes no sense; trying again is of no use.
	ErrInvalid = errors.New("invalid container")
	// ErrUnsupported tells that this machine, or this user, cannot do what a Spec asks for; trying again is of no use.
	ErrUnsupported = errors.New("not possible here")
	// ErrCommandNotFound tells that there is no file to execute; a shell would end with 127.
	ErrCommandNotFound = errors.New("command not found")
	// ErrCommandNotExecutable tells that the file may not or cannot be executed; a shell would end with 126.
	ErrCommandNotExecutable = errors.New("command cannot be executed")
)

// StartError tells why a command did not run. The command has had no effect whatsoever. Use errors.Is to tell the cases
// apart: ErrCommandNotFound, ErrCommandNotExecutable, a syscall.Errno.
type StartError struct {
	Step  string // what was being done, like "mounting /proc"
	Errno syscall.Errno

	kind error // ErrCommandNotFound, ErrCommandNotExecutable or nil
	text string
}

func (e *StartError) Error() string {
	if e.text != "" {
		return fmt.Sprintf("%s: %s", e.Step, e.text)
	}
	return fmt.Sprintf("%s: %v", e.Step, e.Errno)
}

func (e *StartError) Unwrap() []error {
	if e.kind != nil {
		return []error{e.kind, e.Errno}
	}
	return []error{e.Errno}
}

// ExitCode is what a shell would give as the code of a command that could not be run for this reason: 127, 126 or, for all
// else, 128, which is what container runtimes use.
func (e *StartError) ExitCode() int {
	switch {
	case errors.Is(e.kind, ErrCommandNotFound):
		return 127
	case errors.Is(e.kind, ErrCommandNotExecutable):
		return 126
	default:
		return 128
	}
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func unsupportedf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
}
