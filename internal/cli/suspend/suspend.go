// SPDX-License-Identifier: Apache-2.0

// Package suspend has the commands that suspend work and resume it. Start reading at Run.
package suspend

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Pick    pick.Pick
	Suspend bool // or resume
}

// NewCommand returns the suspend command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	return newCommand(&Options{Factory: f, Suspend: true}, run, cobra.Command{
		Use:   "suspend TARGET...",
		Short: "Suspend work: its pods are stopped, it keeps what it has done",
		Long: `Suspend work. The running pods of a Job are deleted; what has succeeded stays so. A suspended CronJob starts no Jobs; those
that run go on. "drover resume" lets it go on.

A target is NAME or TYPE/NAME. Work that has ended cannot be suspended.`,
		Example: `  # Suspend two Jobs, then all of a batch
  drover suspend pi job/render
  drover suspend jobs -l batch=nightly`,
	})
}

// NewResumeCommand returns the resume command, which calls run with its options.
func NewResumeCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	return newCommand(&Options{Factory: f}, run, cobra.Command{
		Use:   "resume TARGET...",
		Short: "Let suspended work go on",
		Long: `Let suspended work go on where it was.

A target is NAME or TYPE/NAME.`,
		Example: `  # Let the Job pi go on
  drover resume pi`,
	})
}

func newCommand(o *Options, run func(context.Context, *Options) error, c cobra.Command) *cobra.Command {
	cmd := &c
	cmd.Long += "\n\n" + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable)
	cmd.ValidArgsFunction = pick.Complete(o.Factory)
	cmd.Args = func(_ *cobra.Command, args []string) error { return o.Pick.Parse(args) }
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) }
	o.Pick.AddFlags(cmd)
	return cmd
}

// Run suspends or resumes every target, prints each on a line, and returns what went wrong with those that could not be
// changed.
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
	if len(refs) == 0 {
		f.Printf("Nothing matches in namespace %q.\n", namespace)
	}
	doing := "resuming"
	if o.Suspend {
		doing = "suspending"
	}
	return pick.Each(ctx, f, refs, func(ctx context.Context, ref workload.Ref) (string, error) {
		done, err := o.change(ctx, client, ref.Kind.Open(client, namespace), ref)
		if err != nil {
			return "", pick.Explain(ctx, f, ref, doing, err)
		}
		return ref.String() + " " + done, nil
	})
}

// change suspends or resumes one object and returns what became of it: "suspended", "already suspended".
func (o *Options) change(ctx context.Context, kube kubernetes.Interface, client workload.Client, ref workload.Ref) (string, error) {
	if ref.Kind.SuspendPatch == nil && ref.Kind.Command == nil {
		return "", fmt.Errorf("a %s cannot be suspended", ref.Kind.Name)
	}
	before, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	s := ref.Kind.Summarize(before)
	switch {
	case s.Outcome == workload.Succeeded || s.Outcome == workload.Failed:
		return "", fmt.Errorf("it has already ended (%s)", s.Status)
	case s.Outcome == workload.Stopped && o.Suspend:
		return "already suspended", nil
	case s.Outcome != workload.Stopped && !o.Suspend:
		return "not suspended", nil
	}
	if ref.Kind.SuspendPatch == nil {
		if o.Suspend {
			return "is being suspended", ref.Kind.Command(ctx, kube, before, string(batch.AbortJobAction))
		}
		return "is being resumed", ref.Kind.Command(ctx, kube, before, string(batch.ResumeJobAction))
	}
	_, err = client.Patch(ctx, ref.Name, types.MergePatchType, ref.Kind.SuspendPatch(o.Suspend),
		metav1.PatchOptions{FieldManager: command.FieldManager})
	if o.Suspend {
		return "suspended", err
	}
	return "resumed", err
}
