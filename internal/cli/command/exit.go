// SPDX-License-Identifier: Apache-2.0

// Package command holds what every command of the drover binary shares: the Factory with its streams, clock and clients,
// the exit codes, and errors that say what to try next. It knows no particular command and never ends the process.
// Start reading at Factory.
package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ExitCode is the status with which a command ends the process. Scripts rely on the values; they never change meaning.
type ExitCode int

// The exit codes of every command but kubectl, whose own are passed on.
const (
	ExitOK          ExitCode = 0   // done; what was awaited succeeded
	ExitFailed      ExitCode = 1   // the command could not do its work, or what was awaited failed
	ExitStopped     ExitCode = 2   // what was awaited is suspended or cancelled and will not go on by itself
	ExitDeleted     ExitCode = 3   // what was awaited was deleted, or is not there
	ExitUsage       ExitCode = 64  // the command line is wrong; nothing was done
	ExitUnreachable ExitCode = 69  // no plane is running there, or the cluster does not answer
	ExitTimeout     ExitCode = 124 // --timeout passed first
	ExitInterrupted ExitCode = 130 // interrupted by Ctrl-C or SIGTERM
)

// exitMeanings is in the order in which help shows the codes.
var exitMeanings = []struct {
	code    ExitCode
	meaning string
}{
	{ExitOK, "done; what was awaited succeeded"},
	{ExitFailed, "the command could not do its work, or what was awaited failed"},
	{ExitStopped, "what was awaited is suspended or cancelled"},
	{ExitDeleted, "what was awaited was deleted, or is not there"},
	{ExitUsage, "the command line is wrong; nothing was done"},
	{ExitUnreachable, "no plane is running there, or the cluster does not answer"},
	{ExitTimeout, "the timeout passed first"},
	{ExitInterrupted, "interrupted by Ctrl-C or SIGTERM"},
}

// ExitCodesHelp returns a paragraph for help texts that explains the given codes, or all of them if none is given.
func ExitCodesHelp(codes ...ExitCode) string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, m := range exitMeanings {
		if len(codes) == 0 || slices.Contains(codes, m.code) {
			fmt.Fprintf(&b, "  %3d  %s\n", int(m.code), m.meaning)
		}
	}
	return b.String()
}

// Error is an error for a person. It reads "<Doing>: <Err>", and Try lines tell how to get further.
type Error struct {
	Doing string   // what was asked: "deleting job \"pi\" in namespace \"default\""
	Err   error    // what went wrong
	Meant []string // names that may have been meant instead; may be empty
	Try   []string // what to try next, one suggestion a line; may be empty
	Code  ExitCode // 0: what Err says, else ExitFailed
}

// Error returns what was asked and what went wrong, without the suggestions.
func (e *Error) Error() string {
	if e.Doing == "" {
		return e.Err.Error()
	}
	return e.Doing + ": " + e.Err.Error()
}

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns what to exit with; 0 if the error leaves that to its cause. Errors of packages that do not know this
// one may have the same method.
func (e *Error) ExitCode() int { return int(e.Code) }

// Advice returns what to try next. Errors of packages that do not know this one may have the same method.
func (e *Error) Advice() []string { return e.Try }

// Exit ends the command with Code and without a further message: everything there is to say has been printed.
type Exit struct{ Code ExitCode }

// Error implements error for logs and tests; people never see it.
func (e *Exit) Error() string { return fmt.Sprintf("exit code %d", int(e.Code)) }

// ExitCode returns what to exit with.
func (e *Exit) ExitCode() int { return int(e.Code) }

// Silent reports that nothing is to be printed. Errors of packages that do not know this one may have the same method.
func (e *Exit) Silent() bool { return true }

// ExitWith returns nil for ExitOK and an *Exit otherwise.
func ExitWith(code ExitCode) error {
	if code == ExitOK {
		return nil
	}
	return &Exit{Code: code}
}

// Usagef returns an error that says how the command line is wrong. The command has done nothing yet.
func Usagef(format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Code: ExitUsage}
}

// CodeOf returns the exit code that err stands for: ExitOK for nil, the one that the error carries (see ExitCode of
// Error), ExitInterrupted for a cancelled context, ExitFailed for anything else.
func CodeOf(err error) ExitCode {
	if err == nil {
		return ExitOK
	}
	coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err)
	switch {
	case ok && coded.ExitCode() != int(ExitOK):
		return ExitCode(coded.ExitCode())
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	default:
		return ExitFailed
	}
}
