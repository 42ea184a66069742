// SPDX-License-Identifier: Apache-2.0

// Package tree is the command that shows a Volcano Job with its tasks, partitions and pods, or a JobFlow with its Jobs. Start reading
// at Run; Text and FlowText are pure.
package tree

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/explain"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Ref     workload.Ref
}

// NewCommand returns the tree command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f}
	return &cobra.Command{
		Use:   "tree vcjob/NAME | jobflow/NAME",
		Short: "Show a Volcano Job with its tasks and pods, or a JobFlow with its Jobs",
		Long: `Show a Volcano Job with its tasks, partitions and pods. An attempt is a round of the Job: pods of the first have attempt 1.
Of a JobFlow it shows the Jobs, those that others depend on first, and what is waited for.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable),
		Example: `  drover tree vcjob/train
  drover tree jobflow/nightly`,
		Args: func(_ *cobra.Command, args []string) error {
			refs, err := workload.ParseRefs(args)
			switch {
			case err != nil:
				return &command.Error{Err: err, Code: command.ExitUsage}
			case len(refs) != 1 || refs[0].Kind.Name != workload.VCJob && refs[0].Kind.Name != workload.JobFlow:
				return command.Usagef("which one? Give vcjob/NAME or jobflow/NAME")
			}
			o.Ref = refs[0]
			return nil
		},
		ValidArgsFunction: pick.CompleteKind(f, workload.VCJob),
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
}

// Run prints the tree.
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
	var text string
	if o.Ref.Kind.Name == workload.JobFlow {
		observed, err := observeFlow(ctx, client, namespace, o.Ref.Name, f.Clock.Now())
		if err != nil {
			return pick.Explain(ctx, f, o.Ref, "showing", err)
		}
		text = FlowText(observed)
	} else {
		observed, err := explain.Observe(ctx, client, namespace, o.Ref.Name, f.Clock.Now())
		if err != nil {
			return pick.Explain(ctx, f, o.Ref, "showing", err)
		}
		text = Text(observed)
	}
	_, err = fmt.Fprint(f.Streams.Out, text)
	return err
}

// node is one line of a tree and what hangs on it.
type node struct {
	text  string
	below []*node
}

func (n *node) add(format string, args ...any) *node {
	child := &node{text: fmt.Sprintf(format, args...)}
	n.below = append(n.below, child)
	return child
}

func (n *node) write(b *strings.Builder, lead string) {
	for i, child := range n.below {
		branch, next := "├─ ", "│  "
		if i == len(n.below)-1 {
			branch, next = "└─ ", "   "
		}
		b.WriteString(lead + branch + child.text + "\n")
		child.write(b, lead+next)
	}
}

// Text returns the tree of a Job.
func Text(o vcjob.Observed) string {
	j := o.Job
	root := &node{text: fmt.Sprintf("vcjob/%s  %s", j.Name, j.Status.State.Phase)}
	if j.Status.RetryCount > 0 {
		root.text += fmt.Sprintf("  restarted %d of %d times", j.Status.RetryCount, j.Spec.MaxRetry)
	}
	if g := o.Group; g != nil {
		root.add("podgroup %s  %s, needs %d pods at once", g.Name, g.Status.Phase, g.Spec.MinMember)
	}
	pods := slices.Clone(o.Pods)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return index(a) - index(b) })
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		count := j.Status.TaskStatusCount[t.Name].Phase
		task := root.add("task %s  %d/%d", t.Name, count[corev1.PodRunning]+count[corev1.PodSucceeded], t.Replicas)
		if t.DependsOn != nil && len(t.DependsOn.Name) > 0 {
			task.text += "  after " + strings.Join(t.DependsOn.Name, ", ")
		}
		partitions := map[string]*node{}
		for _, p := range pods {
			if p.Labels[batch.TaskKey] != t.Name {
				continue
			}
			under := task
			if id, ok := p.Labels[batch.PartitionKey]; ok {
				if partitions[id] == nil {
					partitions[id] = task.add("partition %s", id)
				}
				under = partitions[id]
			}
			under.add("%s", podLine(p))
		}
	}
	var b strings.Builder
	b.WriteString(root.text + "\n")
	root.write(&b, "")
	return b.String()
}

func index(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Labels[batch.IndexKey])
	if err != nil {
		return -1
	}
	return n
}

func podLine(p *corev1.Pod) string {
	version, err := strconv.Atoi(p.Annotations[batch.VersionKey])
	if err != nil {
		version = 0
	}
	line := fmt.Sprintf("%s  %s  attempt %d", p.Name, p.Status.Phase, version+1)
	if p.DeletionTimestamp != nil {
		line += "  ending"
	}
	if n := podstate.Restarts(p); n > 0 {
		line += fmt.Sprintf("  containers restarted %d times", n)
	}
	for _, c := range p.Status.ContainerStatuses {
		if end := c.State.Terminated; end != nil && end.ExitCode != 0 {
			line += fmt.Sprintf("  %s exited with %d", c.Name, end.ExitCode)
		}
	}
	return line
}
