// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/job"
	"github.com/drover-dev/drover/internal/podstate"
)

// JobView is what the API server holds of one Job of Kubernetes.
type JobView struct {
	Job  *batchv1.Job
	Pods []*corev1.Pod
	Told *corev1.Event // the last warning about the Job itself; nil: there is none
	Now  time.Time
}

// ObserveJob reads what the API server holds of one Job.
func ObserveJob(ctx context.Context, client kubernetes.Interface, namespace, name string, now time.Time) (JobView, error) {
	j, err := client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return JobView{}, err
	}
	v := JobView{Job: j, Now: now}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(j.Spec.Selector)})
	if err != nil {
		return v, fmt.Errorf("listing its pods: %w", err)
	}
	for i := range pods.Items {
		if metav1.IsControlledBy(&pods.Items[i], j) {
			v.Pods = append(v.Pods, &pods.Items[i])
		}
	}
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(j.UID)})
	if err != nil {
		return v, fmt.Errorf("listing its events: %w", err)
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.Type == corev1.EventTypeWarning && (v.Told == nil || seen(v.Told).Before(seen(e))) {
			v.Told = e
		}
	}
	return v, nil
}

// seen is when an event happened last.
func seen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return slices.MaxFunc([]time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time}, time.Time.Compare)
}

// JobText says where a Job is and why, and what follows. It asks the function that the controller asks.
func JobText(v JobView) string {
	var b strings.Builder
	j := v.Job
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s %s\n", what, fmt.Sprintf(format, args...))
	}
	sum := workload.SummarizeJob(j)
	fmt.Fprintf(&b, "%s is %s", j.Name, sum.Status)
	since, at := "begun", sum.Started
	if !sum.Ended.IsZero() {
		since, at = "since it ended", sum.Ended
	}
	if !at.IsZero() {
		fmt.Fprintf(&b, ", %s at %s (%s ago)", since, at.UTC().Format(time.RFC3339), duration.HumanDuration(v.Now.Sub(at)))
	}
	b.WriteString("\n")
	if why := whyJob(j, sum); why != "" {
		line("because", "%s", why)
	}
	line("done", "%s", sum.Done)
	line("pods", "%s", jobPods(&j.Status))
	line("failures", "%s", failures(j))
	if limit := j.Spec.ActiveDeadlineSeconds; limit != nil && j.Status.StartTime != nil && job.Finished(j) == nil {
		at := j.Status.StartTime.Add(time.Duration(*limit) * time.Second)
		line("deadline", "%s (in %s)", at.UTC().Format(time.RFC3339), duration.HumanDuration(max(0, at.Sub(v.Now))))
	}
	if p := lastFailed(v.Pods); p != nil {
		line("failed", "pod %s: %s", p.Name, whyFailed(p))
	}
	if job.Finished(j) != nil {
		return b.String()
	}
	for _, p := range v.Pods {
		if p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			line("waiting", "pod %s: %s", p.Name, whyPending(p))
		}
	}
	if e := v.Told; e != nil {
		line("warning", "%s, %s ago: %s", e.Reason, duration.HumanDuration(v.Now.Sub(seen(e))), e.Message)
	}
	for _, text := range next(v) {
		line("now", "%s", text)
	}
	return b.String()
}

// whyJob says in the controller's words why a Job is where it is.
func whyJob(j *batchv1.Job, sum workload.Summary) string {
	if sum.Message != "" {
		return sum.Message
	}
	for _, c := range slices.Backward(j.Status.Conditions) {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			return c.Message
		}
	}
	return ""
}

func jobPods(s *batchv1.JobStatus) string {
	active := fmt.Sprintf("%d active", s.Active)
	if s.Ready != nil {
		active += fmt.Sprintf(" (%d ready)", *s.Ready)
	}
	parts := []string{active, fmt.Sprintf("%d succeeded", s.Succeeded), fmt.Sprintf("%d failed", s.Failed)}
	if s.Terminating != nil && *s.Terminating > 0 {
		parts = append(parts, fmt.Sprintf("%d terminating", *s.Terminating))
	}
	return strings.Join(parts, ", ")
}

// failures says how many a Job has had, and how many end it.
func failures(j *batchv1.Job) string {
	if limit := j.Spec.BackoffLimitPerIndex; limit != nil {
		text := fmt.Sprintf("%d; an index fails with more than %d", j.Status.Failed, *limit)
		if most := j.Spec.MaxFailedIndexes; most != nil {
			text += fmt.Sprintf(", the Job with more than %d failed indexes", *most)
		}
		if failed := j.Status.FailedIndexes; failed != nil && *failed != "" {
			text += "; failed indexes: " + *failed
		}
		return text
	}
	if limit := j.Spec.BackoffLimit; limit != nil {
		return fmt.Sprintf("%d; the Job fails with more than %d", j.Status.Failed, *limit)
	}
	return fmt.Sprintf("%d", j.Status.Failed)
}

// lastFailed returns the failed pod that ended last, or nil.
func lastFailed(pods []*corev1.Pod) (last *corev1.Pod) {
	for _, p := range pods {
		if p.Status.Phase == corev1.PodFailed && (last == nil || podstate.FinishTime(last).Before(podstate.FinishTime(p))) {
			last = p
		}
	}
	return last
}

// whyFailed says how a pod failed: its own reason, or the container that did.
func whyFailed(p *corev1.Pod) string {
	if p.Status.Reason != "" {
		return strings.TrimSuffix(p.Status.Reason+": "+p.Status.Message, ": ")
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			text := fmt.Sprintf("container %s ended with %d", c.Name, t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" {
				text += " (" + t.Reason + ")"
			}
			if t.Message != "" {
				text += ": " + strings.TrimSpace(t.Message)
			}
			return text
		}
	}
	return "no container says why"
}

// next says what the controller does next, or waits for.
func next(v JobView) []string {
	j := v.Job
	if job.ManagedElsewhere(j, batchv1.JobControllerName, false) && job.ManagedElsewhere(j, config.MarkedManager, true) {
		return []string{fmt.Sprintf("it is managed by %s, which alone can say", *j.Spec.ManagedBy)}
	}
	ledger, err := job.NewLedger(j)
	if err != nil {
		return []string{fmt.Sprintf("the controller cannot work on it: %v", err)}
	}
	for _, p := range v.Pods {
		ledger.Observe(p)
	}
	ledger.Fold()
	extras, problems := job.ExtrasOf(j)
	plan := job.Decide(job.Observed{Job: j, Pods: ledger, Now: v.Now, Settled: true, Options: extras.On(job.DefaultOptions())})
	return slices.Concat(plan.Because, problems)
}
