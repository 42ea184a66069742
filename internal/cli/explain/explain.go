// SPDX-License-Identifier: Apache-2.0

// Package explain is the command that says why a Job is where it is, and what it waits for. It asks the same function that the
// controller asks. Start reading at Run; Text, for Jobs of Volcano, and JobText, for those of Kubernetes, are pure.
package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Ref     workload.Ref
}

// NewCommand returns the explain command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f}
	return &cobra.Command{
		Use:   "explain job/NAME|vcjob/NAME",
		Short: "Say why a Job is where it is, and what it waits for",
		Long: `Say why a Job is where it is: how many pods have failed and why the last one has, what the others wait for, and what the controller
does next. Of a Volcano Job also which policy has fired on what, how often it was restarted, and which actions are due when.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable),
		Example: `  drover explain job/pi
  drover explain vcjob/train`,
		Args: func(_ *cobra.Command, args []string) error {
			ref, err := One(args)
			o.Ref = ref
			return err
		},
		ValidArgsFunction: pick.CompleteKind(f, workload.Job),
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
}

// One reads the arguments of a command that takes one Job: "vcjob/NAME" or "vcjob NAME", and for those of Kubernetes "NAME" as well.
func One(args []string) (workload.Ref, error) {
	refs, err := workload.ParseRefs(args)
	switch {
	case err != nil:
		return workload.Ref{}, &command.Error{Err: err, Code: command.ExitUsage}
	case len(refs) != 1 || refs[0].Kind.Name != workload.VCJob && refs[0].Kind.Name != workload.Job:
		return workload.Ref{}, command.Usagef("which one? Give job/NAME or vcjob/NAME")
	}
	return refs[0], nil
}

// Run prints the explanation.
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
	text, err := explain(ctx, client, namespace, o.Ref, f.Clock.Now())
	if err != nil {
		return pick.Explain(ctx, f, o.Ref, "explaining", err)
	}
	_, err = fmt.Fprint(f.Streams.Out, text)
	return err
}

func explain(ctx context.Context, client kubernetes.Interface, namespace string, ref workload.Ref, now time.Time) (string, error) {
	if ref.Kind.Name == workload.Job {
		v, err := ObserveJob(ctx, client, namespace, ref.Name, now)
		if err != nil {
			return "", err
		}
		return JobText(v), nil
	}
	o, err := Observe(ctx, client, namespace, ref.Name, now)
	if err != nil {
		return "", err
	}
	return Text(o), nil
}

// Observe reads what the API server holds of one Job.
func Observe(ctx context.Context, client kubernetes.Interface, namespace, name string, now time.Time) (vcjob.Observed, error) {
	object, err := workload.VCJobs(client, namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return vcjob.Observed{}, err
	}
	j := object.(*batch.Job)
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: batch.JobNameKey + "=" + name})
	if err != nil {
		return vcjob.Observed{}, fmt.Errorf("listing its pods: %w", err)
	}
	o := vcjob.Observed{Job: j, Prepared: true, Now: now, Options: vcjob.DefaultOptions()}
	for i := range pods.Items {
		if metav1.IsControlledBy(&pods.Items[i], j) {
			o.Pods = append(o.Pods, &pods.Items[i])
		}
	}
	group, err := workload.PodGroups(client, namespace).Get(ctx, vcjob.GroupName(j), metav1.GetOptions{})
	switch {
	case err == nil:
		o.Group = group
	case !apierrors.IsNotFound(err):
		return o, fmt.Errorf("reading its PodGroup: %w", err)
	}
	commands, err := workload.VCCommands(client, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("listing Commands: %w", err)
	}
	for i := range commands.Items {
		if c := &commands.Items[i]; c.TargetObject != nil && c.TargetObject.Kind == "Job" && c.TargetObject.Name == name {
			o.Commands = append(o.Commands, c)
		}
	}
	return o, nil
}

// Text says why a Job is where it is, and what follows.
func Text(o vcjob.Observed) string {
	var b strings.Builder
	s := &o.Job.Status
	phase := string(s.State.Phase)
	if phase == "" {
		phase = "not looked at by a controller yet"
	}
	fmt.Fprintf(&b, "%s is %s", o.Job.Name, phase)
	if at := s.State.LastTransitionTime; !at.IsZero() {
		fmt.Fprintf(&b, " since %s (%s)", at.UTC().Format(time.RFC3339), duration.HumanDuration(o.Now.Sub(at.Time)))
	}
	b.WriteString("\n")
	if s.State.Message != "" {
		fmt.Fprintf(&b, "  because   %s\n", s.State.Message)
	}
	plan := vcjob.Decide(o)
	numbers := s
	if next := plan.Status; next != nil && next.State.Phase == s.State.Phase { // the stored ones may be a moment behind
		numbers = next
	}
	fmt.Fprintf(&b, "  pods      %s\n", counts(numbers))
	fmt.Fprintf(&b, "  restarts  %d of the %d with which it fails\n", s.RetryCount, max(o.Job.Spec.MaxRetry, 1))
	if len(s.Conditions) > 0 {
		var way []string
		for _, c := range s.Conditions {
			at := ""
			if c.LastTransitionTime != nil {
				at = " " + c.LastTransitionTime.UTC().Format(time.TimeOnly)
			}
			way = append(way, string(c.Status)+at)
		}
		fmt.Fprintf(&b, "  phases    %s\n", strings.Join(way, ", "))
	}
	if g := o.Group; g != nil {
		fmt.Fprintf(&b, "  podgroup  %s: %s, needs %d pods at once\n", g.Name, g.Status.Phase, g.Spec.MinMember)
	}
	for _, p := range o.Pods {
		if p.Status.Phase == corev1.PodPending {
			fmt.Fprintf(&b, "  waiting   pod %s: %s\n", p.Name, whyPending(p))
		}
	}
	for _, d := range plan.Delayed {
		fmt.Fprintf(&b, "  due       %s on %s of %s at %s\n", d.Action, d.Event, d.About, d.Due.UTC().Format(time.RFC3339))
	}
	for _, line := range plan.Because {
		fmt.Fprintf(&b, "  now       %s\n", line)
	}
	switch {
	case len(plan.Because) > 0:
	case plan.Now || plan.Group != nil || plan.Native != nil || plan.DropObjects || len(plan.Create)+len(plan.Delete)+len(plan.Commands) > 0:
		fmt.Fprintf(&b, "  now       something is left to do for the controller, which tries again and again\n")
	default:
		fmt.Fprintf(&b, "  now       nothing is left to do until something happens\n")
	}
	return b.String()
}

func counts(s *batch.JobStatus) string {
	var parts []string
	for _, n := range []struct {
		name  string
		value int32
	}{{"pending", s.Pending}, {"running", s.Running}, {"succeeded", s.Succeeded}, {"failed", s.Failed}, {"terminating", s.Terminating}, {"unknown", s.Unknown}} {
		if n.value > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.value, n.name))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// whyPending says why a pod does not run.
func whyPending(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	if trouble := workload.PodTrouble(p); trouble != "" {
		return trouble
	}
	if p.Spec.NodeName != "" {
		return "its containers are being made"
	}
	return "not placed on a node yet"
}
