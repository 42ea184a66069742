// SPDX-License-Identifier: Apache-2.0

// Package wait is the command that waits until work has ended, and tells how by its exit code. Start reading at Run.
package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/feed"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Pick    pick.Pick
	Timeout time.Duration // 0: none
}

// NewCommand returns the wait command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "wait TARGET...",
		Short: "Wait until work has ended; the exit code tells how",
		Long: `Wait until every target has ended, then print how each one did, in the order in which they ended.

A target is NAME or TYPE/NAME. What is suspended will not end by itself, so waiting for it ends at once.
What is deleted meanwhile, even if it is created again, counts as deleted.
With several targets the exit code is the worst: timeout, then failed, deleted, suspended, succeeded.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitStopped, command.ExitDeleted,
			command.ExitUsage, command.ExitUnreachable, command.ExitTimeout, command.ExitInterrupted),
		Example: `  # Wait for the Job pi, five minutes at most
  drover wait pi --timeout 5m

  # Wait for all Jobs of a batch
  drover wait jobs -l batch=nightly`,
		ValidArgsFunction: pick.Complete(f),
		Args:              func(_ *cobra.Command, args []string) error { return o.parse(args) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.Pick.AddFlags(cmd)
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "give up after this long (default: never)")
	return cmd
}

// parse reads the arguments, after the flags. What goes on for ever is not waited for.
func (o *Options) parse(args []string) error {
	if err := o.Pick.Parse(args); err != nil {
		return err
	}
	for _, ref := range o.Pick.Refs {
		if ref.Kind.Endless {
			return command.Usagef("%s never ends: wait for one of its Jobs, which drover history %s/%s lists", ref, ref.Kind.Name, ref.Name)
		}
	}
	named := len(o.Pick.Kinds)
	o.Pick.Kinds = slices.DeleteFunc(o.Pick.Kinds, func(k *workload.Kind) bool { return k.Endless })
	if named > 0 && len(o.Pick.Kinds) == 0 {
		return command.Usagef("%s never end: wait for Jobs", strings.Join(args, ", "))
	}
	return nil
}

// Verdict is how waiting for one object ended.
type Verdict struct {
	Ref     workload.Ref
	Summary workload.Summary // the last one seen
	Object  runtime.Object   // the last state seen; nil if it was never there
	Deleted bool
}

// Code returns the exit code that the verdict stands for.
func (v Verdict) Code() command.ExitCode {
	switch {
	case v.Deleted:
		return command.ExitDeleted
	case v.Summary.Outcome == workload.Failed:
		return command.ExitFailed
	case v.Summary.Outcome == workload.Stopped:
		return command.ExitStopped
	default:
		return command.ExitOK
	}
}

// String returns the line that is printed for the verdict: "job.batch/pi Complete".
func (v Verdict) String() string {
	if v.Deleted {
		return v.Ref.String() + " Deleted"
	}
	return v.Ref.String() + " " + v.Summary.Status
}

// Run waits for what o asks for, prints the verdicts, and returns the worst as an error that carries the exit code.
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
		return &command.Error{
			Doing: fmt.Sprintf("waiting in namespace %q", namespace),
			Err:   errors.New("nothing matches"),
			Code:  command.ExitDeleted,
		}
	}

	ctx, cancel := WithTimeout(ctx, o.Timeout)
	defer cancel()
	progress := NewProgress(f, refs)
	stop := progress.Start(ctx, client, namespace)
	defer stop()

	type result struct {
		ref     workload.Ref
		verdict Verdict
		err     error
	}
	results := make(chan result)
	var wg sync.WaitGroup
	for _, ref := range refs {
		wg.Go(func() {
			v, err := Await(ctx, f, ref.Kind.Open(client, namespace), ref, nil, progress)
			results <- result{ref, v, err}
		})
	}
	go func() {
		wg.Wait()
		close(results)
	}()
	worst := command.ExitOK
	var failure error
	for r := range results {
		if r.err == nil {
			progress.Done(r.ref)
			Report(f, r.verdict)
			worst = Worse(worst, r.verdict.Code())
			continue
		}
		err := pick.Explain(ctx, f, r.ref, "waiting for", r.err)
		code := command.CodeOf(err)
		if code == command.ExitDeleted && len(refs) > 1 { // the others are still of interest
			progress.Done(r.ref)
			command.Print(f, err)
			worst = Worse(worst, code)
			continue
		}
		if failure == nil {
			failure = err
			cancel() // no server, no verdicts: end the others too
		}
	}
	if TimedOut(ctx) {
		stop()
		return &command.Error{
			Doing: "waiting for " + progress.Remaining(),
			Err:   fmt.Errorf("not ended after %s", o.Timeout),
			Code:  command.ExitTimeout,
		}
	}
	if failure != nil {
		return failure
	}
	return command.ExitWith(worst)
}

// Await follows one object until it has ended, stopped or gone, and tells progress how it goes. known is its state as the
// server has just returned it, or nil. If the object is not there at the beginning, the error satisfies
// apierrors.IsNotFound.
func Await(ctx context.Context, f *command.Factory, client workload.Client, ref workload.Ref, known runtime.Object, progress *Progress) (Verdict, error) {
	v := Verdict{Ref: ref}
	news := feed.Feed{Source: client, Clock: f.Clock, Name: ref.Name, Known: known, Lost: progress.lost}
	var missing error
	err := news.Run(ctx, func(e feed.Event) bool {
		switch e.Type {
		case feed.Synced:
			if v.Object == nil {
				missing = apierrors.NewNotFound(schema.GroupResource{
					Group: ref.Kind.GroupVersionKind.Group, Resource: ref.Kind.Plural,
				}, ref.Name)
			}
			return missing != nil
		case feed.Gone:
			v.Deleted = true
			return true
		case feed.Present:
			v.Object, v.Summary = e.Object, ref.Kind.Summarize(e.Object)
			progress.Observe(ref, v.Summary, e.Object)
		}
		return v.Summary.Outcome != workload.Unfinished
	})
	return v, cmp.Or(err, missing)
}

// Report prints a verdict: the line to standard output, and for a failure the reason and what to try to standard error.
func Report(f *command.Factory, v Verdict) {
	_, _ = fmt.Fprintln(f.Streams.Out, v)
	Explain(f, v)
	if v.Code() == command.ExitFailed {
		f.Printf("Try: drover logs %s --failed\n", v.Ref.Name)
	}
}

// Explain prints the reason of a failure, if there is one, to standard error.
func Explain(f *command.Factory, v Verdict) {
	if v.Code() == command.ExitFailed && v.Summary.Message != "" {
		f.Printf("%s: %s\n", v.Ref, v.Summary.Message)
	}
}

// severity orders the exit codes of verdicts; see the help text.
var severity = []command.ExitCode{
	command.ExitOK, command.ExitStopped, command.ExitDeleted, command.ExitFailed, command.ExitTimeout,
}

// Worse returns the worse of two verdicts' exit codes.
func Worse(a, b command.ExitCode) command.ExitCode {
	for _, code := range severity {
		if code == a {
			return b
		}
		if code == b {
			return a
		}
	}
	return a
}

// LostPrinter returns a function for Feed.Lost that tells the person at the terminal once that the server is away.
func LostPrinter(f *command.Factory) func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() { f.Printf("Lost the server, trying again: %s\n", command.Text(err)) })
	}
}

var errTimeout = errors.New("timeout")

// WithTimeout returns a context that ends after d; 0 means never.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, errTimeout)
}

// TimedOut reports whether a context of WithTimeout has ended because its time was over.
func TimedOut(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errTimeout) }
