// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/target"
)

// theirs is an error of a package that does not know this one.
type theirs struct{ silent bool }

func (theirs) Error() string    { return "their trouble" }
func (theirs) ExitCode() int    { return 7 }
func (t theirs) Silent() bool   { return t.silent }
func (theirs) Advice() []string { return []string{"their advice"} }

func refused() error {
	return &url.Error{Op: "Get", URL: "https://127.0.0.1:1/api", Err: &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}}
}

func TestPrint(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	cases := map[string]struct {
		err    error
		target target.Target
		want   string
		code   command.ExitCode
	}{
		"nothing is wrong": {nil, target.Target{}, "", command.ExitOK},
		"any error": {
			errors.New("oops"),
			target.Target{},
			"Error: oops\n", command.ExitFailed,
		},
		"an error that says what was asked, meant and to be tried": {
			&command.Error{
				Doing: "waiting for pj", Err: errors.New("not found"), Meant: []string{"pi", "po"},
				Try: []string{"drover ls"}, Code: command.ExitDeleted,
			},
			target.Target{},
			"Error: waiting for pj: not found\nDid you mean pi or po?\nTry: drover ls\n", command.ExitDeleted,
		},
		"a wrapped error keeps its code and advice": {
			fmt.Errorf("today: %w", &command.Error{Err: errors.New("oops"), Try: []string{"this"}, Code: command.ExitStopped}),
			target.Target{},
			"Error: today: oops\nTry: this\n", command.ExitStopped,
		},
		"an error without a code of its own has its cause's": {
			&command.Error{Doing: "today", Err: context.Canceled},
			target.Target{},
			"", command.ExitInterrupted,
		},
		"everything has been said": {
			command.ExitWith(command.ExitTimeout),
			target.Target{},
			"", command.ExitTimeout,
		},
		"an interrupt needs no words": {
			fmt.Errorf("waiting: %w", context.Canceled),
			target.Target{},
			"", command.ExitInterrupted,
		},
		"an error of a package that does not know this one": {
			theirs{},
			target.Target{},
			"Error: their trouble\nTry: their advice\n", 7,
		},
		"one that has said everything": {
			theirs{silent: true},
			target.Target{},
			"", 7,
		},
		"no plane": {
			&target.NoPlaneError{DataDir: "/d", Err: fs.ErrNotExist},
			target.Target{},
			"Error: no plane is running with data directory /d\nTry: drover up   starts a plane there\nTry: --kubeconfig FILE or --context NAME   for another cluster\n",
			command.ExitUnreachable,
		},
		"no plane in a directory that was named": {
			fmt.Errorf("listing jobs: %w", &target.NoPlaneError{DataDir: "/d", Err: fs.ErrNotExist}),
			target.Target{DataDir: "/d"},
			"Error: listing jobs: no plane is running with data directory /d\nTry: drover up --data-dir /d   starts a plane there\nTry: --kubeconfig FILE or --context NAME   for another cluster\n",
			command.ExitUnreachable,
		},
		"somebody else's plane": {
			&target.NoPlaneError{DataDir: "/d", Err: fs.ErrPermission},
			target.Target{},
			"Error: the plane with data directory /d belongs to another user\nTry: the same command as the user who started the plane, or your own plane: drover up --data-dir DIR\n",
			command.ExitUnreachable,
		},
		"a plane that has stopped": {
			&command.Error{Doing: "listing jobs", Err: refused()},
			target.Target{},
			"Error: listing jobs: nobody listens on 127.0.0.1:1\nTry: drover up   starts a plane there\nTry: --kubeconfig FILE or --context NAME   for another cluster\n",
			command.ExitUnreachable,
		},
		"another cluster that does not answer": {
			refused(),
			target.Target{Kubeconfig: "k"},
			"Error: nobody listens on 127.0.0.1:1\nTry: drover kubectl --kubeconfig FILE cluster-info, or another --kubeconfig or --context\n",
			command.ExitUnreachable,
		},
		"a stranger at the plane's address": {
			&url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: x509.UnknownAuthorityError{}},
			target.Target{Kubeconfig: "k"},
			"Error: the server is not the one that the kubeconfig is for: x509: certificate signed by unknown authority\nTry: drover kubectl --kubeconfig FILE cluster-info, or another --kubeconfig or --context\n",
			command.ExitUnreachable,
		},
		"a host that does not exist": {
			&url.Error{Op: "Get", URL: "https://nowhere", Err: &net.DNSError{Err: "no such host", Name: "nowhere"}},
			target.Target{Kubeconfig: "k"},
			"Error: there is no host \"nowhere\"\nTry: drover kubectl --kubeconfig FILE cluster-info, or another --kubeconfig or --context\n",
			command.ExitUnreachable,
		},
		"something that is not allowed": {
			fmt.Errorf("listing jobs: %w", apierrors.NewForbidden(jobs, "", errors.New("not yours"))),
			target.Target{},
			"Error: listing jobs: jobs.batch is forbidden: not yours\nTry: drover kubectl auth can-i --list   shows what you may do in the namespace\n",
			command.ExitFailed,
		},
		"flags that contradict each other": {
			target.ErrTwoTargets,
			target.Target{DataDir: "/d", Context: "c"},
			"Error: " + target.ErrTwoTargets.Error() + "\n", command.ExitUsage,
		},
		"a wrong command line": {
			command.Usagef("which %s?", "one"),
			target.Target{},
			"Error: which one?\n", command.ExitUsage,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bench := clitest.New()
			bench.Target = &tc.target
			err := command.Classify(tc.err)
			command.Print(bench.Factory, err)
			if got := bench.Err.String(); got != tc.want {
				t.Errorf("printed\n%swant\n%s", got, tc.want)
			}
			if got := command.CodeOf(err); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
		})
	}
}

func TestExitCodesHelp(t *testing.T) {
	want := "Exit codes:\n    0  done; what was awaited succeeded\n  124  the timeout passed first\n"
	if got := command.ExitCodesHelp(command.ExitTimeout, command.ExitOK); got != want {
		t.Errorf("help\n%swant\n%s", got, want)
	}
	all := command.ExitCodesHelp()
	for _, code := range []command.ExitCode{
		command.ExitOK, command.ExitFailed, command.ExitStopped, command.ExitDeleted,
		command.ExitUsage, command.ExitUnreachable, command.ExitTimeout, command.ExitInterrupted,
	} {
		if !strings.Contains(all, fmt.Sprintf("%3d  ", code)) {
			t.Errorf("the help does not explain exit code %d:\n%s", code, all)
		}
	}
}
