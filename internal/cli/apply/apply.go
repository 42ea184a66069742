// SPDX-License-Identifier: Apache-2.0

// Package apply is the command that creates and changes objects from manifests. It is kubectl's apply, aimed at the same
// cluster as all other commands. Start reading at Run.
package apply

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	kubectlapply "k8s.io/kubectl/pkg/cmd/apply"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/target"
)

// Options is what the command line asks for. The many flags of kubectl's apply stay in its own structures.
type Options struct {
	Factory *command.Factory
	Flags   *kubectlapply.ApplyFlags
	Cmd     *cobra.Command // kubectl's apply reads some flags from the command itself
}

// NewCommand returns the apply command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Flags: kubectlapply.NewApplyFlags(f.Streams)}
	cmd := &cobra.Command{
		Use:   "apply -f FILE | -k DIRECTORY",
		Short: "Create and change objects from manifests",
		Long: `Create the objects of manifests, or change those that exist to what the manifests say.

FILE is a file, a directory (with -R also those below it), a URL, or - for standard input.
This is kubectl's apply with all its flags: client-side by default, --server-side on request.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitUsage, command.ExitUnreachable),
		Example: `  # Apply a manifest, a directory and what another program prints
  drover apply -f job.yaml
  drover apply -f examples/
  generate-jobs | drover apply -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usagef("apply takes no arguments, but there is %q: write -f %s", args[0], args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.Cmd = cmd
	o.Flags.AddFlags(cmd)
	return cmd
}

// Run applies the manifests.
func Run(_ context.Context, o *Options) error {
	files := o.Flags.DeleteFlags.FileNameFlags
	if len(*files.Filenames) == 0 && *files.Kustomize == "" {
		return command.Usagef("apply what? Give -f FILE or -k DIRECTORY")
	}
	cluster, err := o.Factory.Cluster()
	if err != nil {
		return err
	}
	getter := &target.Getter{Cluster: cluster, Warn: func(s string) { o.Factory.Printf("Warning: %s\n", s) }}
	options, err := o.Flags.ToOptions(cmdutil.NewFactory(getter), o.Cmd, "drover", nil)
	if err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	if err := options.Validate(); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	if err := options.Run(); err != nil {
		problem := &command.Error{Doing: "applying", Err: err}
		if meta.IsNoMatchError(err) {
			problem.Try = []string{"drover kubectl api-resources lists the kinds that the cluster knows"}
		}
		return problem
	}
	return nil
}
