// SPDX-License-Identifier: Apache-2.0

// Package run is the command that makes a Job of a command line. Start reading at Run; job.go makes the Job.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/logs"
	"github.com/drover-dev/drover/internal/cli/printer"
	"github.com/drover-dev/drover/internal/cli/wait"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// DefaultImage is the image of a Job's container when --image is not given. On the standalone plane, whose image is the
// host, it only stands for that.
const DefaultImage = "busybox:1.37"

// removeWithin is how long --rm may take after an interrupt.
const removeWithin = 10 * time.Second

// Options is what the command line asks for.
type Options struct {
	Factory      *command.Factory
	Name         string   // "" to have one made from the command
	Command      []string // nil for the image's own
	Image        string
	Env          []corev1.EnvVar
	Labels       map[string]string
	Restart      corev1.RestartPolicy
	Completions  *int32
	Parallelism  *int32
	Indexed      bool
	BackoffLimit *int32
	Wait         bool
	Timeout      time.Duration // of waiting; 0: none
	Logs         bool
	Remove       bool
	DryRun       string // "none", "client", "server"
	Output       *printer.Flags
}

// NewCommand returns the run command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Output: printer.NewFlags(false)}
	var raw rawFlags
	cmd := &cobra.Command{
		Use:   "run [NAME] [--image IMAGE] -- COMMAND [ARG...]",
		Short: "Run a command as a Job",
		Long: `Run a command as a Job. Without NAME, the Job gets a name that begins like the command.

The standalone plane runs the command as a process of this machine. Elsewhere it runs in a container of --image.
Without --wait the command returns as soon as the Job is accepted. --logs waits, and shows what the pods print;
--rm waits, and deletes the Job in the end, also after Ctrl-C. The exit code is then that of "drover wait".

` + command.ExitCodesHelp(),
		Example: `  # Run a command and wait for it
  drover run --wait -- make all

  # Twenty pieces of work, five at a time; each finds its number in $JOB_COMPLETION_INDEX
  drover run render --completions 20 --parallelism 5 --indexed -- ./render.sh

  # Print a manifest instead of running it
  drover run pi --dry-run=client -o yaml -- perl -Mbignum=bpi -wle 'print bpi(2000)'`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			return o.parse(cmd.Flags().Changed, raw, args, cmd.ArgsLenAtDash())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Image, "image", DefaultImage, "image of the container")
	flags.StringArrayVarP(&raw.env, "env", "e", nil, "environment variable NAME=VALUE, or NAME to pass on its value here; may be repeated")
	flags.StringToStringVar(&o.Labels, "label", nil, "label NAME=VALUE of the Job and its pods; may be repeated")
	flags.StringVar(&raw.restart, "restart", string(corev1.RestartPolicyNever), "after a failure: Never (a new pod) or OnFailure (the same pod again)")
	flags.Int32Var(&raw.completions, "completions", 0, "how many pods must succeed (default 1)")
	flags.Int32Var(&raw.parallelism, "parallelism", 0, "how many pods run at a time (default 1)")
	flags.BoolVar(&o.Indexed, "indexed", false, "number the pods, each number succeeds once")
	flags.Int32Var(&raw.backoffLimit, "backoff-limit", 0, "how many failures are tried again (default 6)")
	flags.BoolVar(&o.Wait, "wait", false, "wait until the Job has ended; the exit code tells how")
	flags.DurationVar(&o.Timeout, "timeout", 0, "give up waiting after this long (default: never)")
	flags.BoolVar(&o.Logs, "logs", false, "show what the pods print, until the Job has ended; implies --wait")
	flags.BoolVar(&o.Remove, "rm", false, "delete the Job in the end; implies --wait")
	flags.StringVar(&o.DryRun, "dry-run", "none", `"client" makes the Job but does not send it, "server" has the server check it`)
	flags.Lookup("dry-run").NoOptDefVal = "client"
	o.Output.AddFlags(cmd)
	return cmd
}

// Run makes the Job, sends it, and does what else is asked for.
func Run(ctx context.Context, o *Options) error {
	structured, err := o.Output.Printer()
	if err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	f := o.Factory
	if o.DryRun == "client" {
		return o.print(newJob(o), structured, " created (dry run)")
	}
	client, err := f.Kubernetes()
	if err != nil {
		return err
	}
	namespace, err := f.Namespace()
	if err != nil {
		return err
	}
	opts := metav1.CreateOptions{FieldManager: command.FieldManager}
	if o.DryRun == "server" {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	job, err := client.BatchV1().Jobs(namespace).Create(ctx, newJob(o), opts)
	if err != nil {
		return o.explain(namespace, err)
	}
	if o.DryRun == "server" {
		return o.print(job, structured, " created (server dry run)")
	}
	if !o.Wait {
		return o.print(job, structured, " created")
	}

	v, err := o.SeeThrough(ctx, client, namespace, job)
	if o.Remove {
		err = errors.Join(err, o.remove(ctx, client, namespace, job))
	} else if ctx.Err() != nil {
		f.Printf("%s goes on. Try: drover wait %s, or drover delete %s\n", v.Ref, job.Name, job.Name)
	}
	if err != nil {
		return err
	}
	if last, ok := v.Object.(*batchv1.Job); ok && structured != nil {
		if err := o.print(last, structured, ""); err != nil {
			return err
		}
	}
	return command.ExitWith(v.Code())
}

// SeeThrough waits until a Job that was just created has ended, with or without its logs, and tells how it did. Of o it needs Factory,
// Output, Logs, Remove and Timeout.
func (o *Options) SeeThrough(ctx context.Context, client kubernetes.Interface, namespace string, job *batchv1.Job) (wait.Verdict, error) {
	f := o.Factory
	ref := workload.Ref{Kind: workload.Lookup("job"), Name: job.Name}
	out := f.Streams.Out
	if o.Logs || o.Output.Format() != "" {
		out = f.Streams.ErrOut // standard output is for the logs or the object
	}
	_, _ = fmt.Fprintf(out, "%s created\n", ref)

	waiting, cancel := wait.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var v wait.Verdict
	var err error
	var last string
	if o.Logs {
		v, err = logs.Follow(waiting, &logs.Options{Factory: f, Ref: ref, Tail: -1}, job)
	} else {
		progress := wait.NewProgress(f, []workload.Ref{ref})
		stop := progress.Start(waiting, client, namespace)
		v, err = wait.Await(waiting, f, ref.Kind.Open(client, namespace), ref, job, progress)
		stop()
		last = progress.Remaining()
	}
	switch {
	case wait.TimedOut(waiting):
		if last == "" {
			last = ref.String()
		}
		return v, &command.Error{
			Doing: "waiting for " + last,
			Err:   fmt.Errorf("not ended after %s", o.Timeout),
			Code:  command.ExitTimeout,
		}
	case ctx.Err() != nil:
		return v, ctx.Err()
	case err != nil:
		return v, err
	}
	if !o.Logs || v.Code() != command.ExitOK {
		_, _ = fmt.Fprintln(out, v)
	}
	wait.Explain(f, v)
	if v.Code() == command.ExitFailed && !o.Logs && !o.Remove {
		f.Printf("Try: drover logs %s --failed\n", v.Ref.Name)
	}
	return v, nil
}

// remove deletes the Job that this command has created, even if ctx has ended.
func (o *Options) remove(ctx context.Context, client kubernetes.Interface, namespace string, job *batchv1.Job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	background := metav1.DeletePropagationBackground
	err := client.BatchV1().Jobs(namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &job.UID},
	})
	switch {
	case err == nil:
		o.Factory.Printf("%s deleted\n", workload.Lookup("job").Qualified(job.Name))
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // a conflict: another Job has the name by now
		return nil
	default:
		return &command.Error{
			Doing: fmt.Sprintf("deleting job %q in namespace %q, as --rm asks", job.Name, namespace),
			Err:   err,
			Try:   []string{"drover delete " + job.Name},
		}
	}
}

func (o *Options) explain(namespace string, err error) error {
	name := o.Name
	if name == "" {
		name = generateName(o)
	}
	problem := &command.Error{Doing: fmt.Sprintf("creating job %q in namespace %q", name, namespace), Err: err}
	if apierrors.IsAlreadyExists(err) {
		problem.Err = errors.New("there is one of that name")
		problem.Try = []string{fmt.Sprintf("another name, none to have one made, or first: drover delete %s", o.Name)}
	}
	return problem
}
