// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestRunningContainersAreFoundAgain(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		s := w.shell("a", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done", func(s *Spec) { s.Labels = map[string]string{"k": "v"} })
		before := w.start(s)
		w.awaitLog("a", "ready")
		w.restart()
		after, _ := w.Status("a")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("status (-before +after):\n%s", diff)
		}
		if err := w.Signal("a", unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if st := w.await("a"); st.State != Exited || st.Exit.Code != 7 {
			t.Errorf("status %+v, exit %+v", st, st.Exit)
		}
	})
}

func TestContainersThatEndedMeanwhileHaveTheirTrueExit(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("code", "sleep 0.1; echo end; exit 5"))
		w.start(w.shell("signal", "sleep 0.1; kill -USR1 $$"))
		w.close()
		eventually(t, "the end of both", func() bool { return len(processesOf(w.cfg.Dir)) == 0 }, func() string { return "" })
		w.open()
		for id, want := range map[string]Exit{"code": {Code: 5}, "signal": {Code: 138, Signal: 10}} {
			st := w.await(id)
			if st.State != Exited || st.Exit.Code != want.Code || st.Exit.Signal != want.Signal {
				t.Errorf("container %s: %+v, exit %+v", id, st, st.Exit)
			}
		}
		if out, _ := w.streams("code"); out != "end\n" {
			t.Errorf("output %q", out)
		}
	})
}

func TestContainersWhoseInitWasKilledAreLost(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		script := fmt.Sprintf("f=%s/never; (sleep 1000; echo $f) & setsid sh -c \"sleep 1000; echo $f\" & echo ready; wait", w.dir)
		watched := w.start(w.shell("watched", script))
		unwatched := w.start(w.shell("unwatched", script))
		w.awaitLog("watched", "ready")
		w.awaitLog("unwatched", "ready")
		check := func(id string) {
			t.Helper()
			st := w.await(id)
			if st.State != Lost || st.Exit != nil || st.Reason == "" || st.PID != 0 {
				t.Errorf("container %s: %+v, exit %+v", id, st, st.Exit)
			}
		}
		kill(t, watched.PID)
		check("watched")
		w.close()
		kill(t, unwatched.PID)
		eventually(t, "the end of the init", func() bool { return !pidAlive(unwatched.PID) }, func() string { return "" })
		w.open()
		check("watched")
		check("unwatched")
		if w.isolation == Full || w.cgroups.version > 0 {
			eventually(t, "the end of all processes", func() bool { return len(processesOf(w.dir+"/never")) == 0 },
				func() string { return fmt.Sprintf("left are %q", processesOf(w.dir+"/never")) })
			return
		}
		// Without namespaces and cgroups, a process that has begun a session of its own cannot be told from others.
		for _, p := range processesOf(w.dir + "/never") {
			pid, _, _ := strings.Cut(p, ":")
			n, _ := strconv.Atoi(pid)
			kill(t, n)
		}
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestAfterARestartOfTheMachine changes the stored boot id, because the machine cannot be restarted here.
func TestAfterARestartOfTheMachine(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.run(w.shell("ended", "exit 3"))
		running := w.start(w.shell("running", "sleep 1000"))
		w.close()
		kill(t, running.PID)
		eventually(t, "the end of the init", func() bool { return !pidAlive(running.PID) }, func() string { return "" })
		for _, id := range []string{"ended", "running", "early"} {
			path := filepath.Join(w.cfg.Dir, containersDir, id, recordFile)
			if id == "early" { // its journal was in memory only
				first, _, _ := strings.Cut(readFile(t, filepath.Join(w.cfg.Dir, containersDir, "running", recordFile)), "\n")
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, strings.ReplaceAll(first, `"id":"running"`, `"id":"early"`)+"\n")
				continue
			}
			writeFile(t, path, strings.ReplaceAll(readFile(t, path), w.bootID, "00000000-0000-0000-0000-000000000000"))
		}
		w.open()
		if st := w.await("ended"); st.State != Exited || st.Exit.Code != 3 {
			t.Errorf("ended: %+v, exit %+v", st, st.Exit)
		}
		for _, id := range []string{"running", "early"} {
			if st := w.await(id); st.State != Lost || !strings.Contains(st.Reason, "machine was restarted") {
				t.Errorf("%s: %+v", id, st)
			}
		}
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatNeverRanIsClearedAway(t *testing.T) {
	w := newWorld(t, Config{})
	w.output("keep", "true")
	rec := record{Spec: w.shell("unborn", "true"), BootID: w.bootID, Isolation: w.isolation}
	rec.Cgroup = w.cgroups.wanted("unborn", Limits{MemoryBytes: 1 << 30}, false, false)
	w.close()
	folder := func(id, text string) {
		dir := filepath.Join(w.cfg.Dir, containersDir, id)
		if err := os.MkdirAll(filepath.Join(dir, upperDir, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			writeFile(t, filepath.Join(dir, recordFile), text)
		}
	}
	b, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	folder("empty", "")
	folder("torn", string(b[:len(b)/2]))
	folder("unborn", string(b)+"\n")
	for _, dir := range rec.Cgroup.Dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	if list := w.List(); len(list) != 1 || list[0].Spec.ID != "keep" {
		t.Errorf("containers %+v", list)
	}
	for _, dir := range rec.Cgroup.Dirs {
		if fileExists(dir) {
			t.Errorf("cgroup %s is left", dir)
		}
	}
	w.output("unborn", "true")
}

func TestParseJournal(t *testing.T) {
	at := time.Unix(0, 1234567890123456789).UTC()
	cases := map[string]struct {
		text string
		want journal
	}{
		"nothing":                    {"", journal{}},
		"a command that runs":        {"run 42 1234567890123456789\n", journal{ran: true, pid: 42, ranAt: at}},
		"a line that is not whole":   {"run 42 1234567890123456789", journal{}},
		"a command and its end":      {"run 42 1234567890123456789\nmain 43\nexit 3 0 0 0 1234567890123456789\n", journal{ran: true, pid: 42, ranAt: at, main: 43, exit: &Exit{Code: 3, FinishedAt: at}}},
		"an end by a signal":         {"run 42 1234567890123456789\nexit 137 9 2 17 1234567890123456789\n", journal{ran: true, pid: 42, ranAt: at, exit: &Exit{Code: 137, Signal: 9, OOMKilled: true, LogLost: 17, FinishedAt: at}}},
		"an end that is not whole":   {"run 42 1234567890123456789\nexit 3 0 0 0 12345678901234", journal{ran: true, pid: 42, ranAt: at}},
		"lines of a later version":   {"run 42 1234567890123456789\nfuture 1 2\nexit x\n", journal{ran: true, pid: 42, ranAt: at}},
		"a command that did not run": {"run 42 1234567890123456789\nfail 3 0 2\n", journal{pid: 42, ranAt: at}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := parseJournal(tc.text)
			got.failed = nil
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(journal{})); diff != "" {
				t.Errorf("journal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpawnerThatIsKilledIsReplaced(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("before", "sleep 0.3; exit 3"))
		kill(t, w.spawner.pid)
		eventually(t, "the notice that the spawner is gone", func() bool { return !w.spawner.alive() }, func() string { return "" })
		w.output("after", "true")
		if st := w.await("before"); st.State != Exited || st.Exit.Code != 3 {
			t.Errorf("status %+v, exit %+v", st, st.Exit)
		}
	})
}

func TestStartsDuringWhichTheSpawnerIsKilledAreStartedOrNot(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.output("warm", "true")
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 30 {
			id := fmt.Sprintf("c%d", i)
			pid := w.spawner.pid
			var wg sync.WaitGroup
			wg.Go(func() {
				<-time.After(time.Duration(random.IntN(6000)) * time.Microsecond)
				_ = unix.Kill(pid, unix.SIGKILL)
			})
			_, err := w.Start(context.Background(), w.shell(id, "echo ran; exit 3"))
			wg.Wait()
			st, known := w.Status(id)
			if known {
				st = w.await(id)
			}
			out := ""
			if fileExists(w.log(id)) {
				out, _ = w.streams(id)
			}
			switch {
			case err != nil && (known || out != ""):
				t.Errorf("Start failed with %v, and the container is known: %v, its output: %q", err, known, out)
			case err == nil && (st.State != Exited || st.Exit.Code != 3 || out != "ran\n"):
				t.Errorf("status %+v, exit %+v, output %q", st, st.Exit, out)
			}
			eventually(t, "a spawner that answers", func() bool {
				_, err := w.client()
				return err == nil && w.spawner.pid != pid
			}, func() string { return "" })
		}
	})
}

// TestCrash kills a process that holds a Runtime, at random moments while it starts, watches and removes containers, and checks
// what the next one finds.
func TestCrash(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	eachIsolation(t, func(w *world) {
		t := w.t
		w.close()
		started := filepath.Join(w.dir, "started")
		if err := os.Mkdir(started, 0o777); err != nil {
			t.Fatal(err)
		}
		seed := time.Now().UnixNano()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(uint64(seed), 0))
		for round := range rounds {
			killedHelper(t, w, started, round, random.IntN(12), time.Duration(random.IntN(30_000))*time.Microsecond)
		}
		w.open()
		states := map[State]int{}
		for _, st := range w.List() {
			st = w.await(st.Spec.ID)
			states[st.State]++
			if st.State != Exited || strconv.Itoa(st.Exit.Code) != st.Spec.Labels["code"] {
				t.Errorf("container %s: %s (%s) %+v, want code %s", st.Spec.ID, st.State, st.Reason, st.Exit, st.Spec.Labels["code"])
			}
			if lines := strings.Count(readIfThere(filepath.Join(started, st.Spec.ID)), "\n"); lines != 1 {
				t.Errorf("container %s ran %d times", st.Spec.ID, lines)
			}
		}
		runs, _ := os.ReadDir(started)
		t.Logf("%d containers ran; of those not removed, %v", len(runs), states)
		if len(runs) < rounds {
			t.Errorf("%d containers in %d rounds: little has been tested", len(runs), rounds)
		}
		for _, f := range runs {
			// One that was removed may have been killed before it had written its line.
			if lines := strings.Count(readIfThere(filepath.Join(started, f.Name())), "\n"); lines > 1 {
				t.Errorf("container %s ran %d times", f.Name(), lines)
			}
		}
	})
}

func readIfThere(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// killedHelper runs crashHelper and kills it some time after it has started a number of containers.
func killedHelper(t *testing.T, w *world, started string, round, starts int, after time.Duration) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", w.cfg.Dir, w.dir, started, strconv.Itoa(round), string(w.cfg.Isolation))
	cmd.Env = append(os.Environ(), helperEnv+"=crash")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1+starts)); err != nil {
		t.Errorf("the helper did not begin: %v", err)
	}
	<-time.After(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// crashHelper starts, watches and removes containers until it is killed. It writes a byte when it begins and one for each start.
// Each container writes a line to a file of its own.
func crashHelper() {
	dir, files, started, round, isolation := os.Args[1], os.Args[2], os.Args[3], os.Args[4], Isolation(os.Args[5])
	r, err := New(Config{Dir: dir, Isolation: isolation, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, st := range r.List() {
		// The test looks at half of them; the others are removed while the next ones start.
		if len(st.Spec.ID)%2 == 0 {
			go r.Remove(context.Background(), st.Spec.ID)
		}
	}
	fmt.Fprint(os.Stdout, ".")
	for worker := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("r%s-w%d-%d", round, worker, i)
				code := rand.IntN(100)
				script := fmt.Sprintf("echo %s >> %s/%s; sleep 0.0%d; exit %d", id, started, id, rand.IntN(10), code)
				_, err := r.Start(context.Background(), Spec{
					ID: id, Args: []string{"sh", "-c", script}, Env: []string{testPath},
					Labels:  map[string]string{"code": strconv.Itoa(code)},
					Mounts:  []Mount{{Source: started, Target: started}},
					Limits:  Limits{PIDs: 100},
					LogPath: filepath.Join(files, "logs", id),
				})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					continue
				}
				fmt.Fprint(os.Stdout, ".")
				if i%3 == 0 {
					go func() {
						<-r.Done(id)
						if err := r.Remove(context.Background(), id); err != nil && !errors.Is(err, ErrClosed) {
							fmt.Fprintln(os.Stderr, err)
						}
					}()
				}
			}
		}()
	}
	select {}
}
