// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lockedBuffer is a buffer that can be looked at while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// execute runs a script in a container.
func (w *world) execute(id, script string, edits ...func(*Exec)) (code int, stdout, stderr string) {
	w.t.Helper()
	var out, errOut lockedBuffer
	e := Exec{Args: []string{"sh", "-c", script}, Stdout: &out, Stderr: &errOut}
	for _, edit := range edits {
		edit(&e)
	}
	code, err := w.Exec(context.Background(), id, e)
	if err != nil {
		w.t.Fatal(err)
	}
	return code, out.String(), errOut.String()
}

func TestExec(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "sleep 1000", func(s *Spec) {
			s.Hostname, s.Dir = "exec-host", "/usr"
			s.Env = append(s.Env, "FROM=container", "BOTH=container")
		}))
		check := func(t *testing.T, when string) {
			t.Helper()
			code, out, errOut := w.execute("a", "echo out; echo err >&2; exit 42")
			if code != 42 || out != "out\n" || errOut != "err\n" {
				t.Errorf("%s: code %d, output %q and %q", when, code, out, errOut)
			}
			if _, out, _ = w.execute("a", "pwd; echo $FROM $BOTH $EXEC", func(e *Exec) { e.Env = []string{"BOTH=exec", "EXEC=exec"} }); out != "/usr\ncontainer exec exec\n" {
				t.Errorf("%s: directory and environment %q", when, out)
			}
			if _, out, _ = w.execute("a", "pwd", func(e *Exec) { e.Dir = "/etc" }); out != "/etc\n" {
				t.Errorf("%s: directory %q", when, out)
			}
			if w.isolation == Full {
				_, out, _ = w.execute("a", "uname -n; cat /proc/1/comm; ls /proc | grep -c '^[0-9]*$'; for n in mnt pid uts ipc user; do readlink /proc/self/ns/$n; done")
				_, init, _ := w.execute("a", "for n in mnt pid uts ipc user; do readlink /proc/1/ns/$n; done")
				if !strings.HasPrefix(out, "exec-host\ndrover-init\n") || !strings.HasSuffix(out, init) {
					t.Errorf("%s: in namespaces %q, init's are %q", when, out, init)
				}
			}
		}
		check(t, "at first")
		w.restart()
		check(t, "after a restart")
		if st, _ := w.Status("a"); st.State != Running {
			t.Errorf("status %+v", st)
		}
	})
}

func TestExecEnds(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "sleep 1000"))
		t.Run("with a signal's code", func(t *testing.T) {
			if code, _, _ := w.execute("a", "kill -TERM $$"); code != 143 {
				t.Errorf("code %d", code)
			}
		})
		t.Run("with its context", func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			var out lockedBuffer
			go func() {
				eventually(t, "the command", func() bool { return strings.Contains(out.String(), "ready") }, out.String)
				cancel()
			}()
			script := fmt.Sprintf("trap '' TERM; f=%s/never; (sleep 1000; echo $f) & echo ready; sleep 1001", w.dir)
			if _, err := w.Exec(ctx, "a", Exec{Args: []string{"sh", "-c", script}, Stdout: &out}); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			eventually(t, "the end of its processes", func() bool { return len(processesOf(w.dir+"/never")) == 0 },
				func() string { return fmt.Sprintf("left are %q", processesOf(w.dir+"/never")) })
		})
		t.Run("even if something keeps its output open", func(t *testing.T) {
			begin := time.Now()
			code, out, _ := w.execute("a", "sleep 1000 & echo out; exit 3")
			if code != 3 || out != "out\n" || time.Since(begin) > patience {
				t.Errorf("code %d, output %q after %s", code, out, time.Since(begin))
			}
		})
		t.Run("with its container", func(t *testing.T) {
			w.start(w.shell("b", "sleep 1000"))
			var out lockedBuffer
			go func() {
				eventually(t, "the command", func() bool { return strings.Contains(out.String(), "ready") }, out.String)
				_ = w.Signal("b", unix.SIGKILL)
			}()
			code, err := w.Exec(context.Background(), "b", Exec{Args: []string{"sh", "-c", "echo ready; sleep 1000"}, Env: []string{"X=1"}, Stdout: &out})
			if err == nil && code != 137 || err != nil && !errors.Is(err, ErrNotRunning) {
				t.Errorf("code %d, error %v", code, err)
			}
			w.await("b")
			if _, err := w.Exec(context.Background(), "b", Exec{Args: []string{"true"}}); !errors.Is(err, ErrNotRunning) {
				t.Errorf("in an ended container: %v, want ErrNotRunning", err)
			}
		})
		t.Run("before it begins if there is no such command", func(t *testing.T) {
			_, err := w.Exec(context.Background(), "a", Exec{Args: []string{"no-such-command"}})
			var start *StartError
			if !errors.Is(err, ErrCommandNotFound) || !errors.As(err, &start) || start.ExitCode() != 127 {
				t.Errorf("error %v", err)
			}
			if _, err = w.Exec(context.Background(), "a", Exec{Args: []string{"/etc/passwd"}}); !errors.Is(err, ErrCommandNotExecutable) {
				t.Errorf("error %v", err)
			}
			if _, err = w.Exec(context.Background(), "a", Exec{}); !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v", err)
			}
		})
		t.Run("with the runtime", func(t *testing.T) {
			var out lockedBuffer
			done := make(chan error)
			go func() {
				_, err := w.Exec(context.Background(), "a", Exec{Args: []string{"sh", "-c", "echo ready; sleep 1000; : " + w.dir + "/exec"}, Stdout: &out})
				done <- err
			}()
			eventually(t, "the command", func() bool { return strings.Contains(out.String(), "ready") }, out.String)
			w.close()
			if err := <-done; err == nil {
				t.Error("no error")
			}
			eventually(t, "the end of its processes", func() bool { return len(processesOf(w.dir+"/exec")) == 0 }, func() string { return "" })
			w.open()
		})
	})
}

func TestExecStreams(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "sleep 1000"))
		big := strings.Repeat("0123456789abcdef", 1<<16)
		code, out, _ := w.execute("a", "cat", func(e *Exec) { e.Stdin = strings.NewReader(big) })
		if code != 0 || out != big {
			t.Errorf("code %d, %d bytes of output for %d of input", code, len(out), len(big))
		}
		if _, out, _ = w.execute("a", "cat; ls -l /proc/self/fd | grep -v /proc | wc -l"); out != "4\n" { // the first line of ls, and three
			t.Errorf("without input, descriptors: %q", out)
		}
		if code, _, _ = w.execute("a", "echo x; echo y >&2", func(e *Exec) { e.Stdout, e.Stderr = nil, nil }); code != 0 {
			t.Errorf("without output: code %d", code)
		}
		// A command that does not read its input.
		if code, _, _ = w.execute("a", "exit 5", func(e *Exec) { e.Stdin = strings.NewReader(big) }); code != 5 {
			t.Errorf("code %d", code)
		}
	})
}

func TestExecOnATerminal(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "sleep 1000"))
		sizes := make(chan WindowSize, 1)
		sizes <- WindowSize{Rows: 33, Columns: 77}
		input, typed := io.Pipe()
		defer typed.Close()
		var out lockedBuffer
		done := make(chan error)
		go func() {
			code, err := w.Exec(context.Background(), "a", Exec{
				Args: []string{"sh", "-c", "test -t 0 && test -t 1 && test -t 2 && tty; read line; echo got $line; " +
					"sized() { until [ \"$(stty size)\" = \"$1\" ]; do sleep 0.01; done; echo size $1; }; sized '33 77'; read line; sized '44 88'; exit 9"},
				TTY: true, Stdin: input, Stdout: &out, Resize: sizes,
			})
			if err == nil && code != 9 {
				err = fmt.Errorf("code %d", code)
			}
			done <- err
		}()
		await := func(text string) {
			t.Helper()
			eventually(t, fmt.Sprintf("%q on the terminal", text), func() bool { return strings.Contains(out.String(), text) },
				func() string { return fmt.Sprintf("it shows %q", out.String()) })
		}
		await("/dev/pts/")
		fmt.Fprintln(typed, "hello")
		await("got hello")
		await("size 33 77")
		sizes <- WindowSize{Rows: 44, Columns: 88}
		fmt.Fprintln(typed, "again")
		await("size 44 88")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestOutputThatNobodyHadTimeToReadIsNotLost(t *testing.T) {
	reader, writer, err := pipe(true)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close() // as somebody who is left behind keeps it open
	if _, err := writer.WriteString("the last words"); err != nil {
		t.Fatal(err)
	}
	if err := reader.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	o := &output{from: reader, to: &got}
	if _, err := io.Copy(o.to, o.from); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the copy ended with %v", err)
	}
	o.drain()
	if got.String() != "the last words" {
		t.Errorf("read %q", got.String())
	}
}

func TestManyExecs(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "sleep 1000"))
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if code, out, _ := w.execute("a", fmt.Sprintf("echo %d; exit %d", i, i)); code != i || out != fmt.Sprintln(i) {
					t.Errorf("code %d, output %q, want %d", code, out, i)
				}
			})
		}
		wg.Wait()
	})
}

func TestExecRunsAsTheContainersUser(t *testing.T) {
	needsRoot(t)
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "sleep 1000", func(s *Spec) {
			s.UID, s.GID, s.Groups, s.NoNewPrivs = ptr(int64(1234)), ptr(int64(2345)), []int64{3456}, true
			s.Limits = Limits{PIDs: 50}
		}))
		_, out, _ := w.execute("a", "id -u; id -g; id -G; grep -E 'NoNewPrivs|CapBnd' /proc/self/status; echo x > /dev/stdout")
		if out != "1234\n2345\n2345 3456\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\nx\n" {
			t.Errorf("output %q", out)
		}
		_, out, _ = w.execute("a", "cat /proc/self/cgroup")
		var st unix.Stat_t
		if err := unix.Stat("/dev/null", &st); err != nil || st.Uid != 0 {
			t.Errorf("/dev/null belongs to user %d, %v", st.Uid, err)
		}
		if w.cgroups.version > 0 && !strings.Contains(out, "/"+w.cgroupParent()+"/a") {
			t.Errorf("cgroups %q", out)
		}
	})
}

func TestStandardInputOfAContainer(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "while read line; do echo got $line; done; echo end; exit 4", func(s *Spec) { s.Stdin = true }))
		for _, line := range []string{"one", "two"} {
			in, err := w.Stdin("a")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(in, line)
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			w.awaitLog("a", "got "+line)
			w.restart()
		}
		if err := w.CloseStdin("a"); err != nil {
			t.Fatal(err)
		}
		if st := w.await("a"); st.Exit == nil || st.Exit.Code != 4 {
			t.Errorf("status %+v", st)
		}
		if _, err := w.Stdin("a"); !errors.Is(err, ErrNotRunning) {
			t.Errorf("after the end: %v", err)
		}
		w.run(w.shell("none", "cat; echo end"))
		if out, _ := w.streams("none"); out != "end\n" {
			t.Errorf("without standard input: %q", out)
		}
		if _, err := w.Stdin("none"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("without standard input: %v", err)
		}
	})
}

func TestContainerOnATerminal(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "test -t 0 && test -t 1 && test -t 2 && echo terminal; read line; stty size; cat; exit 4", func(s *Spec) { s.Stdin, s.TTY = true, true }))
		w.awaitLog("a", "terminal")
		if err := w.Resize("a", WindowSize{Rows: 33, Columns: 77}); err != nil {
			t.Fatal(err)
		}
		in, err := w.Stdin("a")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		fmt.Fprintln(in, "x")
		w.awaitLog("a", "33 77")
		fmt.Fprintln(in, "to cat")
		w.awaitLog("a", "to cat")
		if err := w.CloseStdin("a"); err != nil {
			t.Fatal(err)
		}
		if st := w.await("a"); st.Exit.Code != 4 {
			t.Errorf("exit %+v", st.Exit)
		}
		if out, _ := w.streams("a"); !strings.HasPrefix(out, "terminal\r\nx\r\n33 77\r\n") {
			t.Errorf("output %q", out)
		}
	})
}

func TestTerminalWithoutInput(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "test -t 1 && echo terminal; exit 3", func(s *Spec) { s.TTY = true }))
		if st := w.await("a"); st.Exit.Code != 3 {
			t.Errorf("exit %+v", st.Exit)
		}
		w.awaitLog("a", "terminal\r")
	})
}

func TestExecIsKilledWhenItsClientCrashes(t *testing.T) {
	// The socket of the execution is closed by the kernel when this process is killed; closing it is the same.
	eachIsolation(t, func(w *world) {
		t := w.t
		w.start(w.shell("a", "sleep 1000"))
		var out lockedBuffer
		done := make(chan struct{})
		go func() {
			_, _ = w.Exec(context.Background(), "a", Exec{Args: []string{"sh", "-c", "echo ready; sleep 1000; : " + w.dir + "/exec"}, Stdout: &out})
			close(done)
		}()
		eventually(t, "the command", func() bool { return strings.Contains(out.String(), "ready") }, out.String)
		w.mu.Lock()
		for x := range w.containers["a"].execs {
			x.kill()
		}
		w.mu.Unlock()
		<-done
		eventually(t, "the end of its processes", func() bool { return len(processesOf(w.dir+"/exec")) == 0 }, func() string { return "" })
	})
}

func TestExecErrorsAreOfTheContainer(t *testing.T) {
	needsFull(t)
	w := newWorld(t, Config{Isolation: Full})
	w.start(w.shell("a", "sleep 1000"))
	if _, err := w.Exec(context.Background(), "a", Exec{Args: []string{"true"}, Dir: "/no/such/directory"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
