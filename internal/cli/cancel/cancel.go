// SPDX-License-Identifier: Apache-2.0

// Package cancel is the command that ends work for good. Start reading at Run.
package cancel

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Pick    pick.Pick
}

// NewCommand returns the cancel command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "cancel TARGET...",
		Short: "End Volcano Jobs for good; what they have done stays to be looked at",
		Long: `End Volcano Jobs for good. Their pods that have not ended are deleted; those that have stay, with their logs.

A target is vcjob/NAME. Other work is ended by "drover delete".

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable),
		Example: `  # End one Job
  drover cancel vcjob/train`,
		ValidArgsFunction: pick.CompleteKind(f, workload.VCJob),
		Args:              func(_ *cobra.Command, args []string) error { return o.Pick.Parse(args) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.Pick.AddFlags(cmd)
	return cmd
}

// Run cancels every target and prints each on a line.
func Run(ctx context.Context, o *Options) error {
	f := o.Factory
	client, err := f.Kubernetes()
	if err != nil {
		return err
	}
	namespace, err := f.Namespace()
	if err != nil {
		return err
	}
	refs, err := o.Pick.Resolve(ctx, f)
	if err != nil {
		return err
	}
	return pick.Each(ctx, f, refs, func(ctx context.Context, ref workload.Ref) (string, error) {
		if ref.Kind.Command == nil {
			return "", pick.Wrap(f, ref, "cancelling", fmt.Errorf("a %s can only be deleted", ref.Kind.Name))
		}
		object, err := ref.Kind.Open(client, namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err == nil {
			if s := ref.Kind.Summarize(object); s.Outcome != workload.Unfinished {
				return ref.String() + " has already ended (" + s.Status + ")", nil
			}
			err = ref.Kind.Command(ctx, client, object, string(batch.TerminateJobAction))
		}
		if err != nil {
			return "", pick.Explain(ctx, f, ref, "cancelling", err)
		}
		return ref.String() + " is being cancelled", nil
	})
}
