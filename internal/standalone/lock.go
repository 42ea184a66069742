// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lock holds a data directory for one process. The kernel lets go of it when the process ends, however it ends. It belongs
// to an open file and not to a process (an open file description lock), so that asking who holds it does not take it, and
// closing another descriptor of the file does not release it.
type lock struct{ file *os.File }

func wholeFile(kind int16) *unix.Flock_t { return &unix.Flock_t{Type: kind, Whence: unix.SEEK_SET} }

// acquire takes the lock of path, a file that it makes if it is missing. The error is a *RunningError, without Dir, if
// another process has it.
func acquire(path string) (*lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, wholeFile(unix.F_WRLCK))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		pid := holder(file)
		_ = file.Close() // only read
		return nil, &RunningError{PID: pid}
	}
	if err == nil {
		err = writeHolder(file)
	}
	if err != nil {
		_ = file.Close() // the error above is the one that counts
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return &lock{file}, nil
}

func (l *lock) release() error { return l.file.Close() }

// writeHolder stores who has the lock: the process, and when it started, because numbers of processes are used again.
func writeHolder(file *os.File) error {
	started, err := processStart(os.Getpid())
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(fmt.Appendf(nil, "%d %d\n", os.Getpid(), started), 0)
	return err
}

// holder returns the process that has written itself into a lock which is held, or 0 if there is no telling: it has not
// written yet, or runs where this process cannot see it.
func holder(file *os.File) int {
	data := make([]byte, 64)
	n, _ := file.ReadAt(data, 0) // always ends with io.EOF; what cannot be read does not parse
	var pid int
	var started uint64
	if _, err := fmt.Sscanf(string(data[:n]), "%d %d\n", &pid, &started); err != nil {
		return 0
	}
	if now, err := processStart(pid); err != nil || now != started {
		return 0
	}
	return pid
}

// lockHolder reports whether somebody holds the lock of path, and the process if it can be told. It does not touch the
// lock.
func lockHolder(path string) (held bool, pid int, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	defer func() { _ = file.Close() }() // only read
	asked := wholeFile(unix.F_RDLCK)
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, asked); err != nil {
		return false, 0, fmt.Errorf("asking for the lock of %s: %w", path, err)
	}
	if asked.Type == unix.F_UNLCK {
		return false, 0, nil
	}
	return true, holder(file), nil
}

// processStart returns when a process started, in clock ticks since the machine has.
func processStart(pid int) (uint64, error) {
	fields, err := processStat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[19], 10, 64) // field 22 in all
}

// alive reports whether a process runs. One that has ended and waits for its parent to notice does not.
func alive(pid int) bool {
	fields, err := processStat(pid)
	return err == nil && fields[0] != "Z" && fields[0] != "X"
}

// processStat returns what the kernel says of a process, from field 3, its state, to field 22 at least.
func processStat(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// Field 2 is the name in parentheses, which may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields)+2)
	}
	return fields, nil
}
