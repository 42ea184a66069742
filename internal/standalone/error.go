// SPDX-License-Identifier: Apache-2.0

package standalone

import "fmt"

// Error is what a person can do something about. It reads "<Doing>: <Err>".
type Error struct {
	Doing string   // what was asked: "starting a plane in /var/lib/drover"
	Err   error    // what went wrong
	Try   []string // what to try next, one suggestion a line
}

// Error returns what was asked and what went wrong.
func (e *Error) Error() string { return e.Doing + ": " + e.Err.Error() }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// Advice returns what to try next.
func (e *Error) Advice() []string { return e.Try }

// RunningError says that a plane runs already on a data directory.
type RunningError struct {
	Dir string
	PID int // 0 if it cannot be told
}

// Error names the directory and the process.
func (e *RunningError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another process has a plane running in %s", e.Dir)
	}
	return fmt.Sprintf("process %d has a plane running in %s", e.PID, e.Dir)
}

// Advice returns what to try next.
func (e *RunningError) Advice() []string {
	return []string{"drover status   tells how that one fares", "drover down   stops it", "another --data-dir for a second plane"}
}
