// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperEnv makes the test binary do something else than run tests; see TestMain.
const helperEnv = "DROVER_PROCESS_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "crash":
		crashHelper()
	case "memory":
		memoryHelper()
	default:
		os.Setenv(leakEnv, "1")
		os.Exit(m.Run())
	}
}

// leakEnv is a variable of the tests' environment, for TestEnvironmentIsExactlyTheSpecs.
const leakEnv = "DROVER_TEST_LEAK"

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// isolations returns the kinds of isolation that a test should cover: all that can be had here.
func isolations(t *testing.T) []Isolation {
	t.Helper()
	if fullIsPossible() {
		return []Isolation{Full, None}
	}
	if os.Geteuid() == 0 {
		t.Error("isolation is not possible as root")
	}
	t.Log("isolation is not possible for this user")
	return []Isolation{None}
}

var fullIsPossible = sync.OnceValue(func() bool {
	dir, err := os.MkdirTemp("", "drover")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	r, err := New(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return false
	}
	defer r.Close()
	return r.Features().Isolated.Available
})

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, which runs it, too")
	}
}

func needsFull(t *testing.T) {
	t.Helper()
	if !fullIsPossible() {
		t.Skip("needs an isolated container, which root has")
	}
}

// eachIsolation runs f for each kind of isolation with a fresh Runtime. They run in parallel, with each other and with other
// tests: most of the time they wait for processes.
func eachIsolation(t *testing.T, f func(w *world)) {
	t.Helper()
	t.Parallel()
	for _, isolation := range isolations(t) {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			f(newWorld(t, Config{Isolation: isolation}))
		})
	}
}

// world is a Runtime in a directory of its own, with some ways to use it.
type world struct {
	*Runtime
	t   *testing.T
	cfg Config
	dir string // for files of the test; Config.Dir is in it
}

// newWorld returns a Runtime that must leave nothing behind when the test ends.
func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	dir := tempDir(t)
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(dir, "state")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	w := &world{t: t, cfg: cfg, dir: dir}
	w.open()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, s := range w.List() {
			if err := w.Remove(ctx, s.Spec.ID); err != nil {
				t.Error(err)
			}
		}
		parents := w.cgroups.distinctParents()
		if w.cgroups.systemd != "" {
			parents = append(parents, w.cgroups.systemd)
		}
		w.close()
		checkNothingLeft(t, cfg.Dir, parents)
	})
	return w
}

// tempDir is t.TempDir, without what a test's name may put into the path.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "drover") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (w *world) open() {
	w.t.Helper()
	r, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Runtime = r
}

func (w *world) close() {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Error(err)
	}
}

// restart does what a restart of the program does.
func (w *world) restart() {
	w.t.Helper()
	w.close()
	w.open()
}

const testPath = "PATH=/usr/local/bin:/usr/bin:/bin"

// shell returns the Spec of a container that runs a script.
func (w *world) shell(id, script string, edits ...func(*Spec)) Spec {
	s := Spec{ID: id, Args: []string{"sh", "-c", script}, Env: []string{testPath}, LogPath: w.log(id)}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

func (w *world) log(id string) string { return filepath.Join(w.dir, "logs", id+".log") }

func (w *world) start(s Spec) Status {
	w.t.Helper()
	st, err := w.Start(context.Background(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// await waits for a container's end.
func (w *world) await(id string) Status {
	w.t.Helper()
	select {
	case <-w.Done(id):
	case <-time.After(patience):
		w.t.Fatalf("container %q still runs; its log:\n%s", id, w.rawLog(id))
	}
	st, ok := w.Status(id)
	if !ok {
		w.t.Fatalf("container %q is not known", id)
	}
	return st
}

// run starts a container and waits for its end.
func (w *world) run(s Spec) Status {
	w.t.Helper()
	w.start(s)
	return w.await(s.ID)
}

// output runs a script that must succeed and returns its standard output.
func (w *world) output(id, script string, edits ...func(*Spec)) string {
	w.t.Helper()
	st := w.run(w.shell(id, script, edits...))
	out, errOut := w.streams(id)
	if st.State != Exited || st.Exit.Code != 0 {
		w.t.Fatalf("container %q: %s %+v, standard output:\n%s\nstandard error:\n%s", id, st.State, st.Exit, out, errOut)
	}
	return out
}

func (w *world) rawLog(id string) string {
	b, err := os.ReadFile(w.log(id))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// parseLine reads a record in the format of the container runtime interface.
func parseLine(line string) (stream, tag, text string, err error) {
	stamp, rest, _ := strings.Cut(line, " ")
	stream, rest, _ = strings.Cut(rest, " ")
	tag, text, found := strings.Cut(rest, " ")
	if _, err := time.Parse("2006-01-02T15:04:05.000000000Z", stamp); err != nil {
		return "", "", "", err
	}
	if !found || stream != "stdout" && stream != "stderr" || tag != "F" && tag != "P" {
		return "", "", "", errors.New("it is no record")
	}
	return stream, tag, text, nil
}

// streams returns what the log says that a container has written.
func (w *world) streams(id string) (stdout, stderr string) {
	w.t.Helper()
	return parseLog(w.t, w.rawLog(id))
}

func parseLog(t *testing.T, text string) (stdout, stderr string) {
	t.Helper()
	var streams [2]strings.Builder
	for line := range strings.Lines(text) {
		stream, tag, text, err := parseLine(strings.TrimSuffix(line, "\n"))
		if err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line in a log: %q: %v", line, err)
		}
		b := &streams[0]
		if stream == "stderr" {
			b = &streams[1]
		}
		b.WriteString(text)
		if tag == "F" {
			b.WriteByte('\n')
		}
	}
	return streams[0].String(), streams[1].String()
}

// eventually waits until f is true. state is for the failure's text.
func eventually(t *testing.T, what string, f func() bool, state func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %s; %s", what, patience, state())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// awaitLog waits until a container has written text.
func (w *world) awaitLog(id, text string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%q in the log of %q", text, id), func() bool {
		raw := w.rawLog(id)
		whole := raw[:strings.LastIndexByte(raw, '\n')+1]
		stdout, stderr := parseLog(w.t, whole) // a line may have come in pieces
		return strings.Contains(raw, text) || strings.Contains(stdout, text) || strings.Contains(stderr, text)
	}, func() string { return "the log is\n" + w.rawLog(id) })
}

// checkNothingLeft fails the test if anything of a closed Runtime on dir is left: processes, mounts, cgroups, files.
func checkNothingLeft(t *testing.T, dir string, cgroupParents []string) {
	t.Helper()
	eventually(t, "the end of all processes", func() bool { return len(processesOf(dir)) == 0 },
		func() string { return fmt.Sprintf("left are %q", processesOf(dir)) })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	for _, parent := range cgroupParents {
		if fileExists(parent) {
			t.Errorf("cgroup %s is left", parent)
		}
	}
	var files []string
	_ = filepath.WalkDir(filepath.Join(dir, containersDir), func(path string, _ fs.DirEntry, _ error) error {
		files = append(files, path)
		return nil
	})
	if len(files) != 1 {
		t.Errorf("files are left: %q", files)
	}
}

// processesOf returns processes that have a file below dir open, or its name among their arguments; not this one.
func processesOf(dir string) (found []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if st, ok := readProcStat(pid); !ok || st.state == "Z" || st.state == "X" {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.Contains(string(cmdline), dir) && !strings.Contains(string(cmdline), "-test.") {
			found = append(found, fmt.Sprintf("%d: %q", pid, cmdline))
			continue
		}
		fds, _ := os.ReadDir(filepath.Join("/proc", e.Name(), "fd"))
		for _, fd := range fds {
			if link, _ := os.Readlink(filepath.Join("/proc", e.Name(), "fd", fd.Name())); isBelow(link, dir) {
				found = append(found, fmt.Sprintf("%d: %q has %s", pid, cmdline, link))
			}
		}
	}
	return found
}

func pidAlive(pid int) bool {
	st, ok := readProcStat(pid)
	return ok && st.state != "Z" && st.state != "X" && unix.Kill(pid, 0) != unix.ESRCH
}

func ptr[T any](v T) *T { return &v }
