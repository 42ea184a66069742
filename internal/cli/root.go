// SPDX-License-Identifier: Apache-2.0

// Package cli puts the commands of the drover binary together and runs one of them. Each command is a package of its
// own below this one; command holds what they share. Nothing here imports the embedded control plane: commands that
// need it are handed in by main. Start reading at Main.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/drover-dev/drover/internal/cli/again"
	"github.com/drover-dev/drover/internal/cli/apply"
	"github.com/drover-dev/drover/internal/cli/cancel"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/cron"
	deletecmd "github.com/drover-dev/drover/internal/cli/delete"
	"github.com/drover-dev/drover/internal/cli/explain"
	"github.com/drover-dev/drover/internal/cli/history"
	"github.com/drover-dev/drover/internal/cli/kubectl"
	"github.com/drover-dev/drover/internal/cli/logs"
	"github.com/drover-dev/drover/internal/cli/ls"
	"github.com/drover-dev/drover/internal/cli/next"
	"github.com/drover-dev/drover/internal/cli/run"
	_ "github.com/drover-dev/drover/internal/cli/startup" // makes the process start quickly
	"github.com/drover-dev/drover/internal/cli/suggest"
	"github.com/drover-dev/drover/internal/cli/suspend"
	"github.com/drover-dev/drover/internal/cli/target"
	"github.com/drover-dev/drover/internal/cli/tree"
	"github.com/drover-dev/drover/internal/cli/trigger"
	"github.com/drover-dev/drover/internal/cli/vcctl"
	"github.com/drover-dev/drover/internal/cli/wait"
)

// Name is the name of the binary, as users call it.
const Name = "drover"

// The groups of commands in the help text.
const (
	plane = "plane" // run and inspect the standalone plane
	work  = "work"  // everything about work
	other = "other"
)

// Deps are what main hands in.
type Deps struct {
	Version string // shown by --version; "" for a development build
	// Plane makes the commands that run and inspect the standalone plane. They are heavy, so main decides.
	Plane []func(*command.Factory) *cobra.Command
}

// MainAs is Main for a program that was called by that name: it is one of Volcano's tools if it is called like one.
func MainAs(ctx context.Context, program string, args []string, streams command.Streams, deps Deps) command.ExitCode {
	root := vcctl.NewCommand(program, &vcctl.Env{Streams: streams, Now: time.Now, Getenv: os.Getenv, Version: deps.Version, Config: vcctl.Config})
	if root == nil {
		return Main(ctx, args, streams, deps)
	}
	root.PersistentPreRun = func(*cobra.Command, []string) { quiet() }
	root.SetArgs(append([]string{}, args...))
	if err := withoutForeignFlags(root, func() error { return root.ExecuteContext(ctx) }); err != nil {
		_, _ = fmt.Fprintln(streams.ErrOut, err) // there is nobody left to tell
		return command.ExitFailed
	}
	return command.ExitOK
}

// Main runs the command that args, without the name of the program, ask for, and returns the code with which to exit.
// It returns early when ctx ends.
func Main(ctx context.Context, args []string, streams command.Streams, deps Deps) command.ExitCode {
	f := command.NewFactory(streams, &target.Target{})
	f.Version = deps.Version
	root := NewRoot(f, deps)
	err := withoutForeignFlags(root, func() error { return execute(ctx, f, root, args) })
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return command.ExitInterrupted
	}
	err = command.Classify(err)
	command.Print(f, err)
	return command.CodeOf(err)
}

// withoutForeignFlags lets root be used by do while pflag.CommandLine is empty. Libraries of the control plane put flags
// there for their own binaries, and cobra adds what it finds there to every command. When a command begins to run, they
// are back, as these libraries look them up.
func withoutForeignFlags(root *cobra.Command, do func() error) error {
	foreign := pflag.CommandLine
	restore := func() { pflag.CommandLine = foreign }
	defer restore()
	pflag.CommandLine = pflag.NewFlagSet(Name, pflag.ContinueOnError)
	before := root.PersistentPreRun
	root.PersistentPreRun = func(cmd *cobra.Command, args []string) {
		restore()
		before(cmd, args)
	}
	return do()
}

func execute(ctx context.Context, f *command.Factory, root *cobra.Command, args []string) error {
	if handled, err := completeKubectl(ctx, f, args); handled {
		return err
	}
	args, err := splitKubectl(root, args)
	if err != nil {
		return err
	}
	if err := unknownCommand(root, args); err != nil {
		return err
	}
	root.SetArgs(append([]string{}, args...)) // cobra takes nil for the arguments of the process
	return root.ExecuteContext(ctx)
}

// NewRoot returns the drover command with all its commands.
func NewRoot(f *command.Factory, deps Deps) *cobra.Command {
	root := &cobra.Command{
		Use:   Name,
		Short: "Run batch work on Kubernetes, or on this machine alone",
		Long: `Drover runs batch work: Jobs and CronJobs, as Kubernetes knows them, on a cluster or on this machine alone.

"drover up" starts a standalone plane here, with the real Kubernetes API. All other commands talk to it, unless
--kubeconfig or --context names another cluster.`,
		Version:       version(deps.Version),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if cmd.GroupID == work {
				quiet()
			}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(f.Streams.In)
	root.SetOut(f.Streams.Out)
	root.SetErr(f.Streams.ErrOut)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &command.Error{Err: err, Try: []string{cmd.CommandPath() + " --help"}, Code: command.ExitUsage}
	})
	f.Target.AddFlags(root.PersistentFlags())

	group := func(id, title string, commands ...*cobra.Command) {
		if len(commands) == 0 {
			return
		}
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, cmd := range commands {
			cmd.GroupID = id
		}
		root.AddCommand(commands...)
	}
	var planes []*cobra.Command
	for _, make := range deps.Plane {
		planes = append(planes, make(f))
	}
	group(plane, "The standalone plane:", planes...)
	group(work, "Work:",
		run.NewCommand(f, run.Run),
		apply.NewCommand(f, apply.Run),
		ls.NewCommand(f, ls.Run),
		logs.NewCommand(f, logs.Run),
		wait.NewCommand(f, wait.Run),
		suspend.NewCommand(f, suspend.Run),
		suspend.NewResumeCommand(f, suspend.Run),
		again.NewRetry(f, again.Run),
		again.NewRerun(f, again.Run),
		cancel.NewCommand(f, cancel.Run),
		deletecmd.NewCommand(f, deletecmd.Run),
		tree.NewCommand(f, tree.Run),
		explain.NewCommand(f, explain.Run),
		next.NewCommand(f, next.Run),
		history.NewCommand(f, history.Run),
		trigger.NewCommand(f, trigger.Run),
		cron.NewCommand(f, cron.RunLint),
	)
	group(other, "Other:", kubectl.NewCommand(f, kubectl.Run), newVersion(f))
	root.SetHelpCommandGroupID(other)
	root.SetCompletionCommandGroupID(other)
	root.AddCommand(&cobra.Command{
		Use:   "exit-codes",
		Short: "Exit codes of the commands",
		Long:  command.ExitCodesHelp() + "\nkubectl's own are passed on.",
	})
	return root
}

func newVersion(f *command.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of this binary. "drover kubectl version" prints that of the cluster.

` + command.ExitCodesHelp(command.ExitOK, command.ExitUsage),
		Example: "  drover version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(f.Streams.Out, version(f.Version))
			return err
		},
	}
}

func version(v string) string {
	if v == "" {
		return Name + " development build"
	}
	return Name + " " + v
}

// quiet keeps client-go's own log lines off the terminal: what matters of them comes back as an error, or is told by
// the command.
func quiet() {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(fmt.Sprintf("setting klog's %s: %v", name, err)) // klog has no such flag any more
		}
	}
	klog.SetOutput(io.Discard)
}

// unknownCommand returns the error for a command that does not exist. Cobra would complain about its flags instead.
func unknownCommand(root *cobra.Command, args []string) error {
	cmd, _, err := root.Find(args)
	if err != nil || cmd != root {
		return err
	}
	at := commandAt(root, args)
	if at < 0 || isBuiltIn(args[at]) {
		return nil // cobra knows what to say
	}
	unknown := args[at]
	var names []string
	for _, c := range root.Commands() {
		names = append(names, append(c.Aliases, c.Name())...)
	}
	problem := &command.Error{Err: fmt.Errorf("there is no command %q", unknown), Meant: suggest.Near(unknown, names), Code: command.ExitUsage}
	if len(problem.Meant) == 0 {
		problem.Try = []string{Name + " --help   lists the commands"}
	}
	return problem
}

// isBuiltIn reports whether cobra adds the command itself, at the last moment.
func isBuiltIn(name string) bool {
	return slices.Contains([]string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, name)
}

// takesValue reports whether the argument is one of root's flags whose value is the next argument.
func takesValue(root *cobra.Command, arg string) bool {
	name, isLong := strings.CutPrefix(arg, "--")
	if strings.Contains(arg, "=") {
		return false
	}
	flags := root.PersistentFlags()
	if isLong {
		f := flags.Lookup(name)
		return f != nil && f.NoOptDefVal == ""
	}
	if len(arg) != 2 {
		return false
	}
	f := flags.ShorthandLookup(arg[1:])
	return f != nil && f.NoOptDefVal == ""
}
