// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// What a Runtime keeps on disk for each container, in a folder of its own:
//
//	record       a line of JSON that says what it is, written before anything else, and then the journal: lines that say what
//	             became of it, appended by its init, which holds a lock on the file for as long as it lives
//	stdin        a named pipe, for a Spec with Stdin
//	upper, work  what it has written to its root, unless Config.ScratchDir takes that
//
// As long as there is no line "run", the command has not run, and once the init is gone it never will.

const (
	recordFile = "record"
	stdinFile  = "stdin"
)

// record is the first line of a container's file.
type record struct {
	Spec Spec `json:"spec"`
	// BootID tells one run of the machine from another. A journal of an earlier one may have lost its end.
	BootID string `json:"bootID"`
	// Isolation and UserNamespace are how the container was started.
	Isolation     Isolation `json:"isolation"`
	UserNamespace bool      `json:"userNamespace,omitempty"`
	Cgroup        cgroup    `json:"cgroup"`
}

// pidNamespace tells whether the container has one of its own: then nothing of it outlives its init.
func (r *record) pidNamespace() bool { return r.Isolation == Full && !r.Spec.HostPID }

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// writeRecord stores rec in the folder dir. A torn one has no line end and so counts as none.
func writeRecord(dir string, rec *record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("storing container %q: %w", rec.Spec.ID, err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("storing container %q: %w", rec.Spec.ID, err)
	}
	return nil
}

// errNoRecord tells that a folder holds no complete record.
var errNoRecord = errors.New("no record")

// readRecord reads what writeRecord has written, and the journal that comes after it.
func readRecord(dir string) (*record, journal, error) {
	first, rest, err := readRecordFile(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, journal{}, errNoRecord
	}
	if err != nil {
		return nil, journal{}, fmt.Errorf("reading a record: %w", err)
	}
	var rec record
	if json.Unmarshal(first, &rec) != nil {
		return nil, journal{}, errNoRecord
	}
	return &rec, parseJournal(rest), nil
}

// readJournal reads the journal in the folder dir.
func readJournal(dir string) (journal, error) {
	_, rest, err := readRecordFile(dir)
	if err != nil {
		return journal{}, fmt.Errorf("reading what became of a container: %w", err)
	}
	return parseJournal(rest), nil
}

func readRecordFile(dir string) (first []byte, rest string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, "", err
	}
	first, after, ok := bytes.Cut(b, []byte{'\n'})
	if !ok {
		return nil, "", nil
	}
	return first, string(after), nil
}

// journal is what a container's init has written down.
type journal struct {
	ran    bool // the command may have run
	pid    int  // the init's
	ranAt  time.Time
	main   int // the command's process, where it shares the PID namespace of this process
	failed *spawner.Reply
	exit   *Exit
}

// parseJournal reads the lines of a journal. A line without its end was not written completely and says nothing; so do
// lines that are not understood.
func parseJournal(text string) (j journal) {
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			return j
		}
		text = rest
		word, tail, _ := strings.Cut(line, " ")
		numbers, ok := parseNumbers(tail)
		switch {
		case !ok:
		case word == "run" && len(numbers) == 2:
			j.ran, j.pid, j.ranAt = true, int(numbers[0]), time.Unix(0, numbers[1]).UTC()
		case word == "main" && len(numbers) == 1:
			j.main = int(numbers[0])
		case word == "fail" && len(numbers) == 3:
			j.ran = false
			j.failed = &spawner.Reply{Phase: int32(numbers[0]), Step: int32(numbers[1]), Errno: int32(numbers[2])}
		case word == "exit" && len(numbers) == 5:
			j.exit = &Exit{
				Code: int(numbers[0]), Signal: int(numbers[1]), OOMKilled: numbers[2] > 0, LogLost: numbers[3],
				FinishedAt: time.Unix(0, numbers[4]).UTC(),
			}
		}
	}
}

func parseNumbers(text string) ([]int64, bool) {
	fields := strings.Fields(text)
	numbers := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, false
		}
		numbers[i] = n
	}
	return numbers, true
}

// initLives tells whether the init that writes the journal in dir is alive: whether somebody holds its lock.
func initLives(dir string) (bool, error) {
	fd, err := unix.Open(filepath.Join(dir, recordFile), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("looking for the init of a container: %w", err)
	}
	defer closeFD(fd)
	switch err := flock(fd, unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("looking for the init of a container: %w", err)
	}
	return false, nil
}

// Alive reports whether a container runs that a Runtime on dir has started, without being that Runtime.
func Alive(dir string) (bool, error) {
	entries, err := os.ReadDir(filepath.Join(dir, containersDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for containers: %w", err)
	}
	for _, e := range entries {
		alive, err := initLives(filepath.Join(dir, containersDir, e.Name()))
		if alive || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return alive, err
		}
	}
	return false, nil
}

func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
