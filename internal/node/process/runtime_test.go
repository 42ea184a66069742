// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestExit(t *testing.T) {
	cases := map[string]struct {
		script string
		want   Exit
	}{
		"success is code 0":                   {"exit 0", Exit{}},
		"a code is passed on":                 {"exit 3", Exit{Code: 3}},
		"the highest code is passed on":       {"exit 255", Exit{Code: 255}},
		"a signal is told apart from a code":  {"exit 143", Exit{Code: 143}},
		"a signal is told":                    {"kill -TERM $$", Exit{Code: 143, Signal: 15}},
		"SIGKILL is no lack of memory":        {"kill -KILL $$", Exit{Code: 137, Signal: 9}},
		"a child's code is not the command's": {"sh -c 'exit 7'; exit 4", Exit{Code: 4}},
		"orphans do not matter":               {"(sleep 0.01; exit 9) & exit 5", Exit{Code: 5}},
	}
	eachIsolation(t, func(w *world) {
		t := w.t
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				before := time.Now()
				id := fmt.Sprintf("c%d", before.UnixNano())
				st := w.run(w.shell(id, tc.script))
				if st.State != Exited {
					t.Fatalf("state %q (%s), want %q", st.State, st.Reason, Exited)
				}
				got := *st.Exit
				got.FinishedAt = time.Time{}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("exit (-want +got):\n%s", diff)
				}
				if at := []time.Time{before, st.StartedAt, st.Exit.FinishedAt, time.Now()}; !ascending(at) {
					t.Errorf("times before start, of the start, of the end, and now are %v", at)
				}
				if st.PID != 0 {
					t.Errorf("process %d of an ended container", st.PID)
				}
			})
		}
	})
}

func ascending(times []time.Time) bool {
	for i := 1; i < len(times); i++ {
		// The kernel's clocks may be one tick apart.
		if times[i].Before(times[i-1].Add(-10 * time.Millisecond)) {
			return false
		}
	}
	return true
}

func TestStatusOfARunningContainerNamesItsInit(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		s := w.shell("a", "sleep 1000", func(s *Spec) { s.Labels = map[string]string{"pod": "p"} })
		st := w.start(s)
		if st.State != Running || !pidAlive(st.PID) || st.Exit != nil {
			t.Errorf("status %+v", st)
		}
		if diff := cmp.Diff(s, st.Spec); diff != "" {
			t.Errorf("spec (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]Status{st}, w.List()); diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
	})
}

func TestListIsInTheOrderOfStarts(t *testing.T) {
	w := newWorld(t, Config{Isolation: None})
	var want []string
	for _, id := range []string{"c", "a", "b"} {
		w.run(w.shell(id, "true"))
		want = append(want, id)
	}
	check := func() {
		t.Helper()
		var got []string
		for _, st := range w.List() {
			got = append(got, st.Spec.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
	}
	check()
	w.restart()
	check()
}

func TestOneIDIsStartedOnce(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.run(w.shell("a", "exit 3"))
		again := func(when string) {
			t.Helper()
			if _, err := w.Start(context.Background(), w.shell("a", "exit 4")); !errors.Is(err, ErrExists) {
				t.Errorf("starting again %s: %v, want ErrExists", when, err)
			}
			if st, _ := w.Status("a"); st.Exit == nil || st.Exit.Code != 3 {
				t.Errorf("status after starting again %s: %+v", when, st)
			}
		}
		again("after the end")
		w.restart()
		again("after a restart")
	})
}

func TestManyStartsOfOneIDMakeOneContainer(t *testing.T) {
	w := newWorld(t, Config{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	started := 0
	for range 20 {
		wg.Go(func() {
			_, err := w.Start(context.Background(), w.shell("a", "echo ran"))
			switch {
			case err == nil:
				mu.Lock()
				started++
				mu.Unlock()
			case !errors.Is(err, ErrExists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.await("a")
	if out, _ := w.streams("a"); started != 1 || out != "ran\n" {
		t.Errorf("%d starts worked and the output is %q", started, out)
	}
}

func TestUnknownContainers(t *testing.T) {
	w := newWorld(t, Config{Isolation: None})
	if st, ok := w.Status("x"); ok {
		t.Errorf("status %+v", st)
	}
	if err := w.Signal("x", unix.SIGTERM); !errors.Is(err, ErrNotFound) {
		t.Errorf("signal: %v", err)
	}
	if _, err := w.Exec(context.Background(), "x", Exec{Args: []string{"true"}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("exec: %v", err)
	}
	if _, err := w.Stats("x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("stats: %v", err)
	}
	if err := w.Remove(context.Background(), "x"); err != nil {
		t.Errorf("remove: %v", err)
	}
	select {
	case <-w.Done("x"):
	default:
		t.Error("waiting for a container that does not exist would not end")
	}
}

func TestCommandsThatCannotRun(t *testing.T) {
	dir := tempDir(t)
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file("plain", "#!/bin/sh\n", 0o644)
	noInterpreter := file("script", "#!/no/such/interpreter\n", 0o755)
	garbage := file("garbage", "\x00\x01\x02", 0o755)
	cases := map[string]struct {
		command string
		want    error
		code    int
		text    string
	}{
		"a name that is not in PATH":            {"no-such-command", ErrCommandNotFound, 127, `executing "no-such-command": no such file in PATH`},
		"a path that does not exist":            {"/no/such/command", ErrCommandNotFound, 127, `executing "/no/such/command": no such file`},
		"a path below a file":                   {"/etc/passwd/x", ErrCommandNotFound, 127, `executing "/etc/passwd/x": no such file`},
		"a file without permission":             {plain, ErrCommandNotExecutable, 126, `permission denied`},
		"a directory":                           {"/etc", ErrCommandNotExecutable, 126, `permission denied`},
		"a script whose interpreter is missing": {noInterpreter, ErrCommandNotFound, 127, "is there, but the interpreter"},
		"a file that is no program":             {garbage, ErrCommandNotExecutable, 126, "neither a program for this machine nor a script"},
	}
	eachIsolation(t, func(w *world) {
		t := w.t
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				_, err := w.Start(context.Background(), Spec{ID: "a", Args: []string{tc.command}, Env: []string{testPath}, LogPath: w.log("a")})
				var start *StartError
				if !errors.Is(err, tc.want) || !errors.As(err, &start) || !strings.Contains(err.Error(), tc.text) {
					t.Fatalf("error %v, want one that is %q and says %q", err, tc.want, tc.text)
				}
				if start.ExitCode() != tc.code {
					t.Errorf("code %d, want %d", start.ExitCode(), tc.code)
				}
				if list := w.List(); len(list) > 0 {
					t.Errorf("containers %+v", list)
				}
			})
		}
		// What did not run leaves its ID free.
		w.run(w.shell("a", "true"))
	})
}

func TestWorkingDirectory(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		in := func(dir string) func(*Spec) { return func(s *Spec) { s.Dir = dir } }
		if got := w.output("root", "pwd"); got != "/\n" {
			t.Errorf("without one: %q", got)
		}
		if got := w.output("etc", "pwd", in("/etc")); got != "/etc\n" {
			t.Errorf("in /etc: %q", got)
		}
		missing := filepath.Join(w.dir, "not", "there")
		if w.isolation == Full {
			if got := w.output("missing", "pwd", in(missing)); got != missing+"\n" {
				t.Errorf("in a directory that is made: %q", got)
			}
		} else if _, err := w.Start(context.Background(), w.shell("missing", "pwd", in(missing))); !errors.Is(err, unix.ENOENT) {
			t.Errorf("in a missing directory: %v", err)
		}
		if fileExists(missing) {
			t.Error("the directory was made on the host")
		}
	})
}

func TestEnvironmentIsExactlyTheSpecs(t *testing.T) {
	if os.Getenv(leakEnv) == "" {
		t.Fatalf("%s is not set here: nothing could leak", leakEnv)
	}
	eachIsolation(t, func(w *world) {
		t := w.t
		s := Spec{ID: "a", Args: []string{"/usr/bin/env"}, Env: []string{"A=1", "EMPTY=", "B=with spaces = and\ttabs"}, LogPath: w.log("a")}
		w.run(s)
		got, _ := w.streams("a")
		if want := strings.Join(s.Env, "\n") + "\n"; got != want {
			t.Errorf("environment %q, want %q", got, want)
		}
	})
}

func TestLargeArgumentsAndEnvironment(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		env := []string{testPath}
		for i := range 12 {
			env = append(env, fmt.Sprintf("V%d=%s", i, strings.Repeat("x", 100_000)))
		}
		got := w.output("a", "echo ${#V0} ${#V11}", func(s *Spec) { s.Env = env })
		if got != "100000 100000\n" {
			t.Errorf("lengths %q", got)
		}
		s := w.shell("b", "true")
		s.Args = append(s.Args, strings.Repeat("x", 200_000))
		if _, err := w.Start(context.Background(), s); !errors.Is(err, unix.E2BIG) || !errors.Is(err, ErrCommandNotExecutable) {
			t.Errorf("an argument of 200,000 bytes: %v", err)
		}
		s.Env = append(s.Env, "V="+strings.Repeat("x", 5<<20))
		if _, err := w.Start(context.Background(), s); err == nil {
			t.Error("an environment of 5 MiB is no error")
		}
	})
}

func TestDescriptorsAndSignalStateOfACommand(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		got := w.output("a", "ls -l /proc/self/fd | grep -v /proc | wc -l; grep -E 'SigBlk|SigIgn' /proc/self/status; umask; cat /proc/self/oom_score_adj")
		want := "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0022\n0\n"
		if got != want { // the first line of ls, and three descriptors
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestInvalidSpecsStartNothing(t *testing.T) {
	cases := map[string]func(*Spec){
		"no id":                        func(s *Spec) { s.ID = "" },
		"an id that is a path":         func(s *Spec) { s.ID = "a/b" },
		"an id that leaves the folder": func(s *Spec) { s.ID = ".." },
		"no command":                   func(s *Spec) { s.Args = nil },
		"a zero byte in an argument":   func(s *Spec) { s.Args = []string{"a\x00b"} },
		"an environment without a =":   func(s *Spec) { s.Env = []string{"A"} },
		"a relative working directory": func(s *Spec) { s.Dir = "x" },
		"a relative log":               func(s *Spec) { s.LogPath = "x" },
		"a relative mount target":      func(s *Spec) { s.Mounts = []Mount{{Source: "/etc", Target: "x"}} },
		"a mount over the root":        func(s *Spec) { s.Mounts = []Mount{{Source: "/etc", Target: "/x/.."}} },
		"an unknown capability":        func(s *Spec) { s.AddCapabilities = []string{"FLY"} },
		"a negative user":              func(s *Spec) { s.UID = ptr(int64(-1)) },
		"a user that is no number":     func(s *Spec) { s.UID = ptr(int64(1) << 32) },
		"a negative limit":             func(s *Spec) { s.Limits.MemoryBytes = -1 },
		"a long host name":             func(s *Spec) { s.Hostname = strings.Repeat("x", 65) },
		"too many log files":           func(s *Spec) { s.LogMaxFiles = 101 },
	}
	w := newWorld(t, Config{Isolation: None})
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := w.Start(context.Background(), w.shell("a", "true", edit)); !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
		})
	}
	if list := w.List(); len(list) > 0 {
		t.Errorf("containers %+v", list)
	}
}

func TestWithoutIsolationWhatNeedsItIsRefused(t *testing.T) {
	w := newWorld(t, Config{Isolation: None})
	cases := map[string]func(*Spec){
		"a mount somewhere else": func(s *Spec) { s.Mounts = []Mount{{Source: w.dir, Target: "/data"}} },
		"a read-only mount":      func(s *Spec) { s.Mounts = []Mount{{Source: w.dir, Target: w.dir, ReadOnly: true}} },
		"a root":                 func(s *Spec) { s.Root = w.dir },
		"a read-only root":       func(s *Spec) { s.ReadOnlyRoot = true },
	}
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := w.Start(context.Background(), w.shell("a", "true", edit))
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "isolation is turned off") {
				t.Errorf("error %v, want ErrUnsupported with the reason", err)
			}
		})
	}
	w.output("a", "true", func(s *Spec) { s.Mounts = []Mount{{Source: w.dir, Target: w.dir}} })
}

func TestSignals(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		t.Run("a command without handlers ends by SIGTERM", func(t *testing.T) {
			s := w.shell("term", "")
			s.Args = []string{"sleep", "1000"}
			w.start(s)
			if err := w.Signal("term", unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if st := w.await("term"); st.Exit.Signal != 15 || st.Exit.Code != 143 {
				t.Errorf("exit %+v", st.Exit)
			}
		})
		t.Run("a handler runs", func(t *testing.T) {
			w.start(w.shell("trap", "trap 'echo caught; exit 6' USR1; echo ready; while :; do sleep 0.01; done"))
			w.awaitLog("trap", "ready")
			if err := w.Signal("trap", unix.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			if st := w.await("trap"); st.Exit.Code != 6 {
				t.Errorf("exit %+v", st.Exit)
			}
			w.awaitLog("trap", "caught")
		})
		t.Run("SIGKILL ends the whole container and is recorded", func(t *testing.T) {
			w.start(w.shell("kill", "trap '' TERM; sleep 1000 & sleep 1001 & echo ready; wait"))
			w.awaitLog("kill", "ready")
			if err := w.Signal("kill", unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if st := w.await("kill"); st.State != Exited || st.Exit.Code != 137 || st.Exit.Signal != 9 || st.Exit.OOMKilled {
				t.Errorf("status %+v, exit %+v", st, st.Exit)
			}
		})
		t.Run("a stopped command goes on after SIGCONT", func(t *testing.T) {
			w.start(w.shell("stop", "echo ready; sleep 0.05; echo end"))
			w.awaitLog("stop", "ready")
			for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
				if err := w.Signal("stop", sig); err != nil {
					t.Fatal(err)
				}
			}
			if st := w.await("stop"); st.Exit.Code != 0 {
				t.Errorf("exit %+v", st.Exit)
			}
		})
		t.Run("after the end it is an error", func(t *testing.T) {
			if err := w.Signal("kill", unix.SIGTERM); !errors.Is(err, ErrNotRunning) {
				t.Errorf("error %v, want ErrNotRunning", err)
			}
		})
	})
}

func TestAllProcessesEndWithTheCommand(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		// Every way of getting out of a process tree. The directory in the arguments is for checkNothingLeft.
		script := fmt.Sprintf("f=%s/never; (sleep 1000; echo $f) & setsid sh -c \"sleep 1000; echo $f\" & "+
			"(setsid sh -c \"(sleep 1000; echo $f) & sleep 1000; echo $f\" &) ; sleep 0.1; exit 3", w.dir)
		st := w.run(w.shell("a", script))
		if st.Exit == nil || st.Exit.Code != 3 {
			t.Errorf("status %+v", st)
		}
		if left := processesOf(w.dir + "/never"); len(left) > 0 {
			t.Errorf("processes are left: %q", left)
		}
	})
}

func TestRemove(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "trap '' TERM; sleep 1000"))
		for range 2 {
			if err := w.Remove(context.Background(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if st, ok := w.Status("a"); ok {
			t.Errorf("status after removal: %+v", st)
		}
		if !fileExists(w.log("a")) {
			t.Error("the log has gone")
		}
		w.output("a", "true") // the ID is free again
	})
}

func TestRemoveTakesAwayWhatAContainerWrote(t *testing.T) {
	needsFull(t)
	w := newWorld(t, Config{})
	w.output("a", "mkdir -p /var/tmp/d/e && echo x > /var/tmp/d/e/f && chmod 0 /var/tmp/d/e /var/tmp/d && rm -rf /etc/hostname && mkdir /etc/hostname || true")
	if err := w.Remove(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	// The rest is checked by the world.
}

func TestRemoveOfAContainerWhoseInitDoesNotAnswer(t *testing.T) {
	for _, isolation := range isolations(t) {
		t.Run(string(isolation), func(t *testing.T) {
			w := newWorld(t, Config{Isolation: isolation, KillGrace: 50 * time.Millisecond})
			st := w.start(w.shell("a", "sleep 1000"))
			if err := unix.Kill(st.PID, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := w.Remove(context.Background(), "a"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestConcurrentRemovals(t *testing.T) {
	eachIsolation(t, func(w *world) {
		w.start(w.shell("a", "sleep 1000"))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := w.Remove(context.Background(), "a"); err != nil {
					w.t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestStartWithACanceledContext(t *testing.T) {
	w := newWorld(t, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.Start(ctx, w.shell("a", "true")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(w.List()) > 0 {
		t.Error("it was started")
	}
}

func TestStartsWhoseContextEndsAreStartedOrNot(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		for i := range 40 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*500*time.Microsecond)
			id := fmt.Sprintf("c%d", i)
			_, err := w.Start(ctx, w.shell(id, "echo ran; exit 3"))
			cancel()
			st, known := w.Status(id)
			out := ""
			if known {
				st = w.await(id)
				out, _ = w.streams(id)
			} else if fileExists(w.log(id)) {
				out, _ = w.streams(id)
			}
			switch {
			case err != nil && (known || out != "" || !errors.Is(err, context.DeadlineExceeded)):
				t.Errorf("Start failed with %v, and the container is known: %v, its output: %q", err, known, out)
			case err == nil && !known:
				t.Error("Start worked and the container is not known")
			case err == nil && st.State == Exited && (out != "ran\n" || st.Exit.Code != 3):
				t.Errorf("output %q, exit %+v", out, st.Exit)
			}
		}
	})
}

func TestSecondRuntimeOnADirectory(t *testing.T) {
	w := newWorld(t, Config{})
	cfg := w.cfg
	cfg.LockTimeout = 50 * time.Millisecond
	if _, err := New(cfg); !errors.Is(err, ErrInUse) {
		t.Errorf("error %v, want ErrInUse", err)
	}
	w.output("a", "true")
}

func TestClosedRuntime(t *testing.T) {
	w := newWorld(t, Config{})
	w.start(w.shell("a", "sleep 1000"))
	w.close()
	w.close()
	if _, err := w.Start(context.Background(), w.shell("b", "true")); !errors.Is(err, ErrClosed) {
		t.Errorf("start: %v", err)
	}
	if err := w.Remove(context.Background(), "a"); !errors.Is(err, ErrClosed) {
		t.Errorf("remove: %v", err)
	}
	if _, err := w.Exec(context.Background(), "a", Exec{Args: []string{"true"}}); !errors.Is(err, ErrClosed) {
		t.Errorf("exec: %v", err)
	}
	w.open()
}

func TestConfigValidate(t *testing.T) {
	cases := map[string]Config{
		"no directory":                 {},
		"a relative directory":         {Dir: "x"},
		"a relative scratch directory": {Dir: "/x", ScratchDir: "y"},
		"hiding the root":              {Dir: "/x", Hide: []string{"/"}},
		"an unknown isolation":         {Dir: "/x", Isolation: "half"},
	}
	for name, cfg := range cases {
		t.Run(name, func(t *testing.T) {
			if r, err := New(cfg); err == nil {
				r.Close()
				t.Error("no error")
			}
		})
	}
}

func TestBurst(t *testing.T) {
	n := 500
	if testing.Short() {
		n = 50
	}
	eachIsolation(t, func(w *world) {
		t := w.t
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				id := "c" + strconv.Itoa(i)
				s := w.shell(id, "")
				s.Args = []string{"sh", "-c", "exit " + strconv.Itoa(i%200)}
				if _, err := w.Start(context.Background(), s); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range n {
			id := "c" + strconv.Itoa(i)
			if st := w.await(id); st.State != Exited || st.Exit.Code != i%200 {
				t.Errorf("container %s: %+v %+v", id, st.State, st.Exit)
			}
		}
	})
}
