// SPDX-License-Identifier: Apache-2.0

// Package e2e drives the built binary as a user does. Each *.txtar file is a script: the commands, and the files that
// they need, among them what they are to print. All scripts share one plane; each has a namespace of its own. `make
// build` must have left bin/drover. CHECKLIST.md says which of them prove what Volcano's own suites expect.
//
// Besides what package testscript brings, a script may say:
//
//	drover ARGS...          run drover in the namespace of the script
//	exits CODE ARGS...      the same, and drover exits with CODE
//	until PATTERN ARGS...   the same, again and again until what it prints matches PATTERN, for a minute and a half at most
//	expand FILE...          replace $WORK in files by the directory of the script
package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

const (
	untilLimit = 90 * time.Second // machines that run tests are busy, and some wait for the turn of a minute
	untilPause = 200 * time.Millisecond
)

func TestScripts(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	binary := plane.Binary(t)
	// The scripts run in parallel, and end before this subtest does. The plane stops after it.
	t.Run("script", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir: ".",
			Setup: func(env *testscript.Env) error {
				namespace := "e2e-" + strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
				env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
				env.Setenv("DROVER_DATA_DIR", p.Dir)
				env.Setenv("NAMESPACE", namespace)
				return exec.Command(binary, "--data-dir", p.Dir, "kubectl", "create", "namespace", namespace).Run()
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"drover": drover, "exits": exits, "until": until, "expand": expand,
			},
		})
	})
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
