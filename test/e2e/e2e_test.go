// SPDX-License-Identifier: Apache-2.0

// Package e2e drives the built binary as a user does. Each *.txtar file is a script: the commands, and the files that
// they need, among them what they are to print. All scripts share one plane; each has a namespace of its own. `make
// build` must have left bin/drover.
//
// Besides what package testscript brings, a script may say:
//
//	drover ARGS...          run drover in the namespace of the script
//	exits CODE ARGS...      the same, and drover exits with CODE
//	until PATTERN ARGS...   the same, again and again until what it prints matches PATTERN, for a minute at most
//	expand FILE...          replace $WORK in files by the directory of the script
package e2e

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

const (
	startLimit = 90 * time.Second // machines that run tests are busy
	stopLimit  = 15 * time.Second // what drover promises, and a little for the test
	untilLimit = time.Minute
	untilPause = 200 * time.Millisecond
)

func TestScripts(t *testing.T) {
	binary, err := filepath.Abs("../../bin/drover")
	if err != nil {
		t.Fatalf("finding the binary: %v", err)
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is missing: run make build", binary)
	}
	dir := startPlane(t, binary)
	// The scripts run in parallel, and end before this subtest does. The plane stops after it.
	t.Run("script", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir: ".",
			Setup: func(env *testscript.Env) error {
				namespace := "e2e-" + strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
				env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
				env.Setenv("DROVER_DATA_DIR", dir)
				env.Setenv("NAMESPACE", namespace)
				return exec.Command(binary, "--data-dir", dir, "kubectl", "create", "namespace", namespace).Run()
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"drover": drover, "exits": exits, "until": until, "expand": expand,
			},
		})
	})
}

// startPlane starts a plane that stops when the test ends, and returns its data directory.
func startPlane(t *testing.T, binary string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plane")
	var output bytes.Buffer
	cmd := exec.Command(binary, "up", "--ephemeral", "--data-dir", dir, "--port", "0")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // even if the test is cut off
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting a plane: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	limit := time.After(startLimit)
	for ready := false; !ready; {
		select {
		case err := <-ended:
			t.Fatalf("the plane ended instead of becoming ready: %v\n%s", err, &output)
		case <-limit:
			_ = cmd.Process.Kill() // it has failed the test already
			<-ended
			t.Fatalf("the plane is not ready after %s\n%s", startLimit, &output)
		case <-time.After(untilPause):
			_, err := os.Stat(filepath.Join(dir, "kubeconfig"))
			ready = err == nil
		}
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stopping the plane: %v", err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the plane has not stopped well: %v\n%s", err, &output)
			}
		case <-time.After(stopLimit):
			_ = cmd.Process.Kill() // it has failed the test already
			<-ended
			t.Errorf("the plane has not stopped within %s\n%s", stopLimit, &output)
		}
	})
	return dir
}

// inNamespace returns the arguments of drover for the namespace of the script.
func inNamespace(ts *testscript.TestScript, args []string) []string {
	return append([]string{"--namespace", ts.Getenv("NAMESPACE")}, args...)
}

func drover(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec("drover", inNamespace(ts, args)...)
	if neg != (err != nil) {
		ts.Fatalf("drover %q: %v", args, err)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("drover", inNamespace(ts, args[1:])...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("drover %q: exit code %d, want %d", args[1:], got, want)
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN ARGS...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), untilLimit)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, "drover", inNamespace(ts, args[1:])...)
		cmd.Path = filepath.Join(strings.SplitN(ts.Getenv("PATH"), string(os.PathListSeparator), 2)[0], "drover")
		cmd.Dir = ts.Getenv("WORK")
		cmd.Env = append(os.Environ(), "DROVER_DATA_DIR="+ts.Getenv("DROVER_DATA_DIR"))
		cmd.Err = nil // it is not in the PATH of the test itself
		output, err := cmd.Output()
		if err == nil && pattern.Match(output) {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("drover %q still does not print %s after %s, but (%v):\n%s", args[1:], args[0], untilLimit, err, output)
		case <-time.After(untilPause):
		}
	}
}

func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: expand FILE...")
	}
	for _, file := range args {
		text := strings.ReplaceAll(ts.ReadFile(file), "$WORK", ts.Getenv("WORK"))
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o644))
	}
}
