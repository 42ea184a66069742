// SPDX-License-Identifier: Apache-2.0

// Package again has the commands that do a Job's work once more: all of it, or what has failed. Start reading at Run; what the new Job
// looks like is decided by package job.
package again

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/printer"
	"github.com/drover-dev/drover/internal/cli/run"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/job"
)

// removeWithin is how long a Job that was made by half may take to be removed.
const removeWithin = 10 * time.Second

// maxNames is how many names are tried.
const maxNames = 1000

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Ref     workload.Ref // of the Job to do again
	Failed  bool         // only what has failed
	Name    string       // of the new Job; "" to have one made
	Wait    bool
	Timeout time.Duration // of waiting; 0: none
	Logs    bool
	Output  *printer.Flags
}

// NewRetry returns the retry command, which calls run with its options.
func NewRetry(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Failed: true}
	failed := false
	cmd := newCommand(o, run, cobra.Command{
		Use:   "retry JOB --failed",
		Short: "Do what has failed of a Job again, as a new Job",
		Long: `Make a new Job that does what an ended Job has not: of an Indexed Job the indexes that have not succeeded, under the same
numbers; of another as many completions as are missing. The annotation ` + job.RetryOfAnnotation + ` links it to the old one, which stays.`,
		Example: `  # Run the failed indexes of a Job again, and wait
  drover retry render --failed --wait`,
	})
	cmd.Flags().BoolVar(&failed, "failed", false, `do only what has failed (required: "drover rerun" does everything)`)
	parse := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := parse(cmd, args); err != nil {
			return err
		}
		if !failed {
			return command.Usagef(`retry needs --failed; to do all of the work again: drover rerun %s`, o.Ref.Name)
		}
		return nil
	}
	return cmd
}

// NewRerun returns the rerun command, which calls run with its options.
func NewRerun(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	return newCommand(&Options{Factory: f}, run, cobra.Command{
		Use:   "rerun JOB",
		Short: "Do all of a Job's work again, as a new Job",
		Long: `Make a new Job that is like an old one, whether that has ended or not. The annotation ` + job.RerunOfAnnotation + ` links it to the
old one, which stays.`,
		Example: `  # Run a Job once more, and see what it prints
  drover rerun render --logs`,
	})
}

func newCommand(o *Options, run func(context.Context, *Options) error, c cobra.Command) *cobra.Command {
	cmd := &c
	cmd.Long += "\n\nWithout --wait the command returns as soon as the new Job is accepted; with it, and with --logs, the exit code is that of \"drover wait\".\n\n" +
		command.ExitCodesHelp()
	cmd.ValidArgsFunction = pick.Complete(o.Factory)
	o.Output = printer.NewFlags(false)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		refs, err := workload.ParseRefs(args)
		if err != nil {
			return &command.Error{Err: err, Code: command.ExitUsage}
		}
		if len(refs) != 1 {
			return command.Usagef("%s takes one Job: NAME or job/NAME", cmd.Name())
		}
		if o.Ref = refs[0]; o.Ref.Kind.Qualified("") != workload.Lookup("job").Qualified("") {
			return command.Usagef("%s takes a Job: NAME or job/NAME; %s is none", cmd.Name(), o.Ref)
		}
		o.Wait = o.Wait || o.Logs
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) }
	flags := cmd.Flags()
	flags.StringVar(&o.Name, "name", "", "name of the new Job (default: that of the old one with a number)")
	flags.BoolVar(&o.Wait, "wait", false, "wait until the new Job has ended; the exit code tells how")
	flags.DurationVar(&o.Timeout, "timeout", 0, "give up waiting after this long (default: never)")
	flags.BoolVar(&o.Logs, "logs", false, "show what the pods print, until the Job has ended; implies --wait")
	o.Output.AddFlags(cmd)
	return cmd
}

// Run makes the new Job, and does what else is asked for.
func Run(ctx context.Context, o *Options) error {
	structured, err := o.Output.Printer()
	if err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	f := o.Factory
	client, err := f.Kubernetes()
	if err != nil {
		return err
	}
	namespace, err := f.Namespace()
	if err != nil {
		return err
	}
	old, err := client.BatchV1().Jobs(namespace).Get(ctx, o.Ref.Name, metav1.GetOptions{})
	if err != nil {
		return pick.Explain(ctx, f, o.Ref, o.doing(), err)
	}
	r := &job.Remainder{Job: job.Rerun(old, ""), Text: "everything"}
	if o.Failed {
		if r, err = job.Retry(old, ""); err != nil {
			return o.explain(namespace, err)
		}
	}
	made, err := o.create(ctx, client, namespace, old.Name, r)
	if err != nil {
		return &command.Error{Doing: fmt.Sprintf("%s %s in namespace %q", o.doing(), o.Ref, namespace), Err: err}
	}
	if !o.Wait {
		if structured != nil {
			return structured.PrintObj(made, f.Streams.Out)
		}
		_, err := fmt.Fprintf(f.Streams.Out, "%s created: %s of %s\n", o.Ref.Kind.Qualified(made.Name), r.Text, old.Name)
		return err
	}
	see := run.Options{Factory: f, Output: o.Output, Logs: o.Logs, Timeout: o.Timeout}
	v, err := see.SeeThrough(ctx, client, namespace, made)
	if err != nil {
		return err
	}
	if last, ok := v.Object.(*batchv1.Job); ok && structured != nil {
		if err := structured.PrintObj(last, f.Streams.Out); err != nil {
			return err
		}
	}
	return command.ExitWith(v.Code())
}

func (o *Options) doing() string {
	if o.Failed {
		return "retrying"
	}
	return "rerunning"
}

func (o *Options) explain(namespace string, err error) error {
	problem := &command.Error{Doing: fmt.Sprintf("%s %s in namespace %q", o.doing(), o.Ref, namespace), Err: err}
	switch {
	case errors.Is(err, job.ErrGoesOn):
		problem.Try = []string{"drover wait " + o.Ref.Name}
	case errors.Is(err, job.ErrNothingFailed):
		problem.Try = []string{"drover rerun " + o.Ref.Name + "   does all of it again"}
	}
	return problem
}

// create stores the new Job under a free name. One that begins with a part done is held back until its status says so; if that does not
// work it is removed.
func (o *Options) create(ctx context.Context, client kubernetes.Interface, namespace, old string, r *job.Remainder) (*batchv1.Job, error) {
	jobs := client.BatchV1().Jobs(namespace)
	what := "rerun"
	if o.Failed {
		what = "retry"
	}
	var made *batchv1.Job
	for n := 1; ; n++ {
		var err error
		r.Job.Name = o.Name
		if o.Name == "" {
			r.Job.Name = job.NameAgain(old, what, n)
		}
		made, err = jobs.Create(ctx, r.Job, metav1.CreateOptions{FieldManager: command.FieldManager})
		if apierrors.IsAlreadyExists(err) && o.Name == "" && n < maxNames {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("creating job %q: %w", r.Job.Name, err)
		}
		break
	}
	if r.Done == nil {
		return made, nil
	}
	started, err := o.begin(ctx, client, made, r.Done)
	if err == nil {
		return started, nil
	}
	err = fmt.Errorf("noting in job %q what is done already: %w", made.Name, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	if removal := jobs.Delete(ctx, made.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(made.UID))}); removal != nil {
		err = errors.Join(err, fmt.Errorf("removing it: %w", removal))
	}
	return nil, err
}

// begin says in the status of a suspended Job what is done already, and lets it start.
func (o *Options) begin(ctx context.Context, client kubernetes.Interface, made *batchv1.Job, done *batchv1.JobStatus) (*batchv1.Job, error) {
	jobs := client.BatchV1().Jobs(made.Namespace)
	opts := metav1.PatchOptions{FieldManager: command.FieldManager}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"completedIndexes": done.CompletedIndexes, "succeeded": done.Succeeded}})
	if err != nil {
		return nil, err
	}
	if _, err := jobs.Patch(ctx, made.Name, types.MergePatchType, status, opts, "status"); err != nil {
		return nil, err
	}
	return jobs.Patch(ctx, made.Name, types.MergePatchType, o.Ref.Kind.SuspendPatch(false), opts)
}
