// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
)

// transcript runs a command line as main does and returns what it prints and its exit code. No plane is running.
func transcript(ctx context.Context, deps Deps, args ...string) string {
	var out, err clitest.Buffer
	code := Main(ctx, args, command.Streams{In: strings.NewReader(""), Out: &out, ErrOut: &err}, deps)
	return fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", &out, &err, code)
}

// up stands for a command of the plane.
func up(f *command.Factory) *cobra.Command {
	return &cobra.Command{Use: "up", Short: "Start a plane on this machine", RunE: func(cmd *cobra.Command, _ []string) error {
		<-cmd.Context().Done()
		return cmd.Context().Err()
	}}
}

func TestCommandLines(t *testing.T) {
	deps := Deps{Version: "v1.2.3", Plane: []func(*command.Factory) *cobra.Command{up}}
	cases := map[string]string{
		"help":                           "--help",
		"help-of-a-command":              "help wait",
		"help-on-exit-codes":             "help exit-codes",
		"version":                        "--version",
		"no-command":                     "",
		"mistyped-command":               "lss",
		"mistyped-command-with-flags":    "-n team lgos render --follow",
		"unknown-command":                "frobnicate",
		"unknown-flag":                   "ls --frobnicate",
		"unknown-flag-of-the-root":       "--frobnicate",
		"no-plane":                       "ls",
		"no-plane-for-delete":            "delete x",
		"no-plane-for-apply":             "apply -f -",
		"dry-run-needs-no-plane":         "run x --dry-run=client -o name -- true",
		"contradicting-flags":            "--data-dir /d --context c ls",
		"kubectl-needs-no-plane":         "--data-dir /nonexistent kubectl create namespace x --dry-run=client -o name",
		"kubectl-with-a-flag-too-few":    "--frobnicate kubectl get pods",
		"kubectl-is-completed-by-itself": "__complete kubectl get --outp",
		"commands-are-completed":         "__complete l",
	}
	for name, line := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DROVER_DATA_DIR", "/nonexistent")
			t.Setenv("KUBECONFIG", "")
			t.Setenv("KUBECACHEDIR", "")
			t.Setenv("HOME", t.TempDir())
			clitest.Golden(t, name, transcript(t.Context(), deps, strings.Fields(line)...))
		})
	}
}

func TestMainIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	want := "-- standard output --\n-- standard error --\n-- exit code 130 --\n"
	if got := transcript(ctx, Deps{Plane: []func(*command.Factory) *cobra.Command{up}}, "up"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestFlagsOfLibrariesAreNoFlagsOfCommands(t *testing.T) {
	own := pflag.CommandLine
	t.Cleanup(func() { pflag.CommandLine = own })
	foreign := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	foreign.Int("version", 0, "a foreign flag")
	foreign.Int("v", 0, "another foreign flag")
	pflag.CommandLine = foreign

	deps := Deps{Version: "v1.2.3", Plane: []func(*command.Factory) *cobra.Command{func(*command.Factory) *cobra.Command {
		return &cobra.Command{Use: "up", Run: func(*cobra.Command, []string) {
			if pflag.CommandLine != foreign {
				t.Error("a command that runs does not find the flags of libraries")
			}
		}}
	}}}
	if got := transcript(t.Context(), deps, "--version"); !strings.Contains(got, "drover v1.2.3\n") {
		t.Errorf("drover --version: %s", got)
	}
	for _, line := range []string{"ls --help", "kubectl options"} {
		if got := transcript(t.Context(), deps, strings.Fields(line)...); strings.Contains(got, "foreign flag") {
			t.Errorf("drover %s: %s", line, got)
		}
	}
	if got := transcript(t.Context(), deps, "up"); !strings.Contains(got, "exit code 0") {
		t.Errorf("drover up: %s", got)
	}
	if pflag.CommandLine != foreign {
		t.Error("the flags of libraries are gone")
	}
}

// TestEveryCommandExplainsItself keeps the help texts whole.
func TestEveryCommandExplainsItself(t *testing.T) {
	root := NewRoot(clitest.New().Factory, Deps{})
	for _, cmd := range root.Commands() {
		if cmd.Short == "" || cmd.Long == "" {
			t.Errorf("%s has no short or long help", cmd.Name())
		}
		if cmd.Runnable() && cmd.Name() != "kubectl" {
			if cmd.GroupID == "" {
				t.Errorf("%s stands in no group of the help", cmd.Name())
			}
			if !strings.Contains(cmd.Long, "Exit codes:") || cmd.Example == "" {
				t.Errorf("the help of %s lacks exit codes or examples", cmd.Name())
			}
		}
	}
}

func TestNoCommandChangesTheEnvironmentBeforeItRuns(t *testing.T) {
	t.Setenv("KUBECONFIG", "mine")
	NewRoot(clitest.New().Factory, Deps{})
	if got := os.Getenv("KUBECONFIG"); got != "mine" {
		t.Errorf("KUBECONFIG=%s, want mine", got)
	}
}
