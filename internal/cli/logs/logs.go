// SPDX-License-Identifier: Apache-2.0

// Package logs is the command that shows what the pods of a workload print: all of them, one after the other, or, when it
// follows, interleaved by line as they come. Start reading at Run; follow.go has what -f adds.
package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// aheadOfReader is how many logs are opened before their turn to be printed.
const aheadOfReader = 8

// Opener opens one container's log.
type Opener func(ctx context.Context, namespace, pod string, opts *corev1.PodLogOptions) (io.ReadCloser, error)

// Options is what the command line asks for.
type Options struct {
	Factory    *command.Factory
	Ref        workload.Ref
	Follow     bool
	Indexes    []int  // only pods of these completion indexes; empty means all
	Container  string // "" for all regular ones
	All        bool   // init containers, sidecars and earlier runs too
	Failed     bool   // only what failed
	Tail       int64  // lines from the end of each log; negative means all
	Since      time.Duration
	Timestamps bool
	Prefix     *bool // nil: if there may be more than one log

	Open Opener // nil: ask the API server
}

// NewCommand returns the logs command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f}
	var prefix bool
	cmd := &cobra.Command{
		Use:   "logs TARGET",
		Short: "Show what the pods of a workload print",
		Long: `Show what the pods of a workload print: all of its pods, in the order of their indexes and creation.

A target is NAME or TYPE/NAME. If there may be several pods, each line begins with the completion index of its pod,
"[3] ", or with the pod's name, "[render-x7k2p] ", and the container's where there are several.
With -f, pods that appear later and restarts are followed too, lines come as they are printed, and the command ends when
the work has ended.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable, command.ExitInterrupted),
		Example: `  # Follow a Job to its end
  drover logs render -f

  # Why did it fail?
  drover logs render --failed --tail 20

  # What did index 3 print, earlier attempts included?
  drover logs render --index 3`,
		ValidArgsFunction: pick.Complete(f),
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("prefix") {
				o.Prefix = &prefix
			}
			return o.parse(args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.Follow, "follow", "f", false, "go on as lines come, until the work has ended")
	flags.IntSliceVar(&o.Indexes, "index", nil, "only pods of this completion index; several are separated by commas")
	flags.StringVarP(&o.Container, "container", "c", "", "only this container (default: all but init containers and sidecars)")
	flags.BoolVar(&o.All, "all", false, "everything there is: also init containers, sidecars, and runs before a restart")
	flags.BoolVar(&o.Failed, "failed", false, "only pods that failed, and runs that failed before a restart")
	flags.Int64Var(&o.Tail, "tail", -1, "only so many lines from the end of each log (default: all)")
	flags.DurationVar(&o.Since, "since", 0, "only lines of this last while, like 5m (default: all)")
	flags.BoolVar(&o.Timestamps, "timestamps", false, "begin each line with the time at which it was printed")
	flags.BoolVar(&prefix, "prefix", false, "begin each line with its index or pod (default: if there may be several pods)")
	return cmd
}

// parse reads the arguments, after the flags.
func (o *Options) parse(args []string) error {
	if len(args) != 1 {
		return command.Usagef("logs takes one NAME or TYPE/NAME, but there are %d", len(args))
	}
	var err error
	if o.Ref, err = workload.ParseRef(args[0]); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	switch {
	case o.Ref.Kind.PodSelector == nil:
		return command.Usagef("a %s has no pods of its own", o.Ref.Kind.Name)
	case o.Since < 0:
		return command.Usagef("--since %s: it cannot be negative", o.Since)
	case slices.ContainsFunc(o.Indexes, func(i int) bool { return i < 0 }):
		return command.Usagef("--index %v: they start at 0", o.Indexes)
	}
	return nil
}

// Run shows the logs. With o.Follow it returns when the work has ended, otherwise when everything printed so far has
// been shown.
func Run(ctx context.Context, o *Options) error {
	client, err := o.Factory.Kubernetes()
	if err != nil {
		return err
	}
	namespace, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	object, err := o.Ref.Kind.Open(client, namespace).Get(ctx, o.Ref.Name, metav1.GetOptions{})
	if err != nil {
		return pick.Explain(ctx, o.Factory, o.Ref, "reading the logs of", err)
	}
	if o.Follow {
		end, err := Follow(ctx, o, object)
		if err == nil && end.Deleted {
			o.Factory.Printf("%s was deleted.\n", o.Ref)
		}
		return err
	}
	if err := show(ctx, o, client, namespace, object); err != nil {
		return pick.Wrap(o.Factory, o.Ref, "reading the logs of", err)
	}
	return nil
}

// opener returns how to open a log.
func (o *Options) opener(client kubernetes.Interface) Opener {
	if o.Open != nil {
		return o.Open
	}
	return func(ctx context.Context, namespace, pod string, opts *corev1.PodLogOptions) (io.ReadCloser, error) {
		return client.CoreV1().Pods(namespace).GetLogs(pod, opts).Stream(ctx)
	}
}

// show prints what there is now, one log after the other. Several are opened ahead, so that their requests overlap.
func show(ctx context.Context, o *Options, client kubernetes.Interface, namespace string, object runtime.Object) error {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: o.Ref.Kind.PodSelector(object)})
	if err != nil {
		return fmt.Errorf("listing its pods: %w", err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	gone := map[*corev1.Pod]bool{}
	kept, store := o.retained(namespace, object)
	for _, pod := range kept {
		gone[pod] = true
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, inOrder)
	var sources []source
	for _, pod := range pods {
		for _, s := range o.sources(pod) {
			s.gone = gone[pod]
			sources = append(sources, s)
		}
	}
	if len(sources) == 0 {
		return o.nothing(pods)
	}

	out := newOutput(o.Factory, o.Prefix != nil && *o.Prefix || o.Prefix == nil && (len(sources) > 1 || o.Ref.Kind.ManyPods(object)))
	type opened struct {
		log io.ReadCloser
		err error
	}
	open := o.opener(client)
	var failures []error
	err = ahead(ctx, len(sources), func(ctx context.Context, i int) opened {
		if sources[i].gone {
			return opened{o.openRetained(ctx, store, sources[i]), nil}
		}
		log, err := open(ctx, namespace, sources[i].pod.Name, o.podLogOptions(sources[i]))
		return opened{log, err}
	}, func(i int, from opened) error {
		s, err := sources[i], from.err
		if err == nil {
			err = out.copy(s, from.log)
			_ = from.log.Close()
		}
		if s.gone {
			o.tellEnd(s)
		}
		if errors.Is(err, errOutput) {
			return err
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("container %q of pod %q: %w", s.container, s.pod.Name, err))
		}
		return nil
	})
	return cmp.Or(err, errors.Join(failures...))
}

// ahead calls use with the results of open(0) to open(n-1), in that order, and open up to aheadOfReader calls earlier,
// several at once. It stops at the first error of use and when ctx ends.
func ahead[T any](ctx context.Context, n int, open func(ctx context.Context, i int) T, use func(i int, result T) error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make([]chan T, n)
	for i := range results {
		results[i] = make(chan T, 1)
	}
	slots := make(chan struct{}, aheadOfReader)
	wg.Go(func() {
		for i := range n {
			select {
			case slots <- struct{}{}:
				wg.Go(func() { results[i] <- open(ctx, i) })
			case <-ctx.Done():
				return
			}
		}
	})
	for i := range n {
		select {
		case result := <-results[i]:
			if err := use(i, result); err != nil {
				return err
			}
			<-slots
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (o *Options) podLogOptions(s source) *corev1.PodLogOptions {
	opts := &corev1.PodLogOptions{Container: s.container, Previous: s.previous, Timestamps: o.Timestamps}
	if o.Tail >= 0 {
		opts.TailLines = &o.Tail
	}
	if o.Since > 0 {
		seconds := int64((o.Since + time.Second - 1) / time.Second)
		opts.SinceSeconds = &seconds
	}
	return opts
}

// nothing returns why there is nothing to show.
func (o *Options) nothing(pods []*corev1.Pod) error {
	var chosen []*corev1.Pod
	for _, pod := range pods {
		if o.wants(pod) {
			chosen = append(chosen, pod)
		}
	}
	switch {
	case o.Failed:
		o.Factory.Printf("None of its %d pods has failed.\n", len(pods))
		return nil
	case len(pods) == 0:
		return &command.Error{Err: errors.New("it has no pods"), Try: []string{
			fmt.Sprintf("drover logs -f %s   waits for them", o.Ref.Name),
			fmt.Sprintf("drover kubectl describe %s/%s   says why", o.Ref.Kind.Name, o.Ref.Name),
		}}
	case len(chosen) == 0:
		return fmt.Errorf("none of its %d pods has index %v", len(pods), o.Indexes)
	case o.Container != "" && !hasContainer(chosen[0], o.Container):
		return fmt.Errorf("its pods have no container %q", o.Container)
	}
	problem := &command.Error{Err: errors.New("no container has started yet"), Try: []string{
		fmt.Sprintf("drover logs -f %s   waits for it", o.Ref.Name),
	}}
	if why := workload.PodTrouble(chosen[0]); why != "" {
		problem.Err = fmt.Errorf("%w; pod %q: %s", problem.Err, chosen[0].Name, why)
	}
	return problem
}
