// SPDX-License-Identifier: Apache-2.0

// Package trigger is the command that starts a Job of a CronJob now. Start reading at Run.
package trigger

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/cronjob"
)

// Options is what the command line asks for.
type Options struct {
	Factory            *command.Factory
	Ref                workload.Ref
	RespectConcurrency bool
}

// NewCommand returns the trigger command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "trigger CRONJOB",
		Short: "Start a Job of a CronJob now",
		Long: `Start a Job of a CronJob now, suspended or not. Its due times stay as they are. The Job is kept within the CronJob's history limits.

With --respect-concurrency the concurrency policy holds for it as if it were due: under Forbid it is not started while another
Job is active, under Replace it takes the place of that; and due times regard it while it runs. Without, it runs beside all others,
as what "kubectl create job --from" makes.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable),
		Example: `  # Run the backup now, and wait for it
  drover wait "$(drover trigger backup)"`,
		ValidArgsFunction: pick.CompleteKind(f, "cronjob"),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return command.Usagef("trigger takes one CronJob, but there are %d", len(args))
			}
			ref, err := workload.CronJobName(args[0])
			if err != nil {
				return &command.Error{Err: err, Code: command.ExitUsage}
			}
			o.Ref = ref
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.RespectConcurrency, "respect-concurrency", false, "start it only as the concurrency policy allows")
	return cmd
}

// Run starts the Job and prints its name.
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
	observed, cron, err := workload.Observe(ctx, client, namespace, o.Ref, f.Clock.Now().In(f.ControllerZone()))
	if err != nil {
		return pick.Explain(ctx, f, o.Ref, "triggering", err)
	}
	plan, err := cronjob.Trigger(observed, o.RespectConcurrency)
	if err != nil {
		problem := &command.Error{Err: err}
		if errors.Is(err, cronjob.ErrBlocked) {
			name := o.Ref.Name
			if kind := o.Ref.Kind; kind.Name != "cronjob" {
				name = kind.Name + "/" + name
			}
			problem.Try = []string{fmt.Sprintf("drover trigger %s   without --respect-concurrency, to start it beside the other", name)}
		}
		return problem
	}
	kind := workload.Lookup(o.Ref.Kind.Cron.Jobs)
	jobs := kind.Open(client, namespace)
	for _, d := range plan.Replace {
		err := jobs.Delete(ctx, d.Name, metav1.DeleteOptions{
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &d.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return pick.Wrap(f, o.Ref, "replacing "+d.Name+" of", err)
		}
		f.Printf("%s deleted, to be replaced\n", kind.Qualified(d.Name))
	}
	for _, start := range plan.Start {
		if err := o.Ref.Kind.Cron.Start(ctx, client, cron, start, metav1.CreateOptions{FieldManager: command.FieldManager}); err != nil {
			return pick.Wrap(f, o.Ref, "triggering", err)
		}
		if _, err := fmt.Fprintln(f.Streams.Out, kind.Qualified(start.Name)); err != nil {
			return err
		}
	}
	return nil
}
