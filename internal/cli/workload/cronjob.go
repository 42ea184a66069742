// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cronjob"
)

func cronJobKind() *Kind {
	return &Kind{
		Name:             "cronjob",
		Plural:           "cronjobs",
		Aliases:          []string{"cj"},
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("CronJob"),
		Endless:          true,
		Summarize:        func(o runtime.Object) Summary { return SummarizeCronJob(o.(*batchv1.CronJob)) },
		Columns:          []string{"SCHEDULE", "TZ", "SUSPEND", "ACTIVE", "LAST", "RESULT", "NEXT"},
		Cells: func(o runtime.Object, now time.Time) []string {
			return cronJobCells(cronjob.FromBatch(o.(*batchv1.CronJob)), now)
		},
		SuspendPatch: func(suspend bool) []byte {
			return fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)
		},
		Cron: &Cron{
			Jobs: "job", Options: cronjob.DefaultOptions(),
			Facts: func(o runtime.Object) *cronjob.CronJob { return cronjob.FromBatch(o.(*batchv1.CronJob)) },
			Child: func(o runtime.Object) cronjob.Child { return cronjob.ChildFromBatch(o.(*batchv1.Job)) },
			Start: func(ctx context.Context, client kubernetes.Interface, o runtime.Object, s cronjob.Start, opts metav1.CreateOptions) error {
				j := cronjob.JobFor(o.(*batchv1.CronJob), s)
				_, err := client.BatchV1().Jobs(j.Namespace).Create(ctx, j, opts)
				return err
			},
		},
		Open: func(client kubernetes.Interface, namespace string) Client {
			return Adapt(client.BatchV1().CronJobs(namespace))
		},
	}
}

// Cron is what commands about schedules need to know about a kind of CronJob. Its functions panic on objects of other kinds.
type Cron struct {
	Jobs    string // name of the kind of its Jobs
	Options cronjob.Options
	Facts   func(cron runtime.Object) *cronjob.CronJob
	Child   func(job runtime.Object) cronjob.Child
	// Start creates the Job that a start asks for.
	Start func(ctx context.Context, client kubernetes.Interface, cron runtime.Object, s cronjob.Start, opts metav1.CreateOptions) error
}

// Observe reads a CronJob of any kind and its Jobs as decisions look at them, without the memory that its controller has. now is in
// the zone of schedules that name none.
func Observe(ctx context.Context, client kubernetes.Interface, namespace string, ref Ref, now time.Time) (cronjob.Observed, runtime.Object, error) {
	kind := ref.Kind.Cron
	cron, err := ref.Kind.Open(client, namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return cronjob.Observed{}, nil, err
	}
	jobs, err := Lookup(kind.Jobs).Open(client, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return cronjob.Observed{}, nil, fmt.Errorf("listing its Jobs: %w", err)
	}
	facts := kind.Facts(cron)
	o := cronjob.Observed{CronJob: facts, Rules: cronjob.Read(facts, time.LoadLocation, now.Location()), Now: now, Options: kind.Options}
	err = meta.EachListItem(jobs, func(job runtime.Object) error {
		if metav1.IsControlledBy(job.(metav1.Object), cron.(metav1.Object)) {
			o.Children = append(o.Children, kind.Child(job))
		}
		return nil
	})
	return o, cron, err
}

// SummarizeCronJob sums a CronJob up.
func SummarizeCronJob(c *batchv1.CronJob) Summary {
	return summarizeCron(cronjob.FromBatch(c), c.Spec.JobTemplate.Spec.Template.Spec.Containers)
}

func summarizeCron(c *cronjob.CronJob, containers []corev1.Container) Summary {
	s := Summary{Status: "Scheduled", Active: len(c.Status.Active), Images: images(containers)}
	if s.Active > 0 {
		s.Status = "Running"
	}
	if c.Spec.Suspend {
		s.Status, s.Outcome = "Suspended", Stopped
	}
	if c.Deleting {
		s.Status = "Terminating"
	}
	return s
}

func cronJobCells(c *cronjob.CronJob, now time.Time) []string {
	zone := ""
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	last := ""
	if t := c.Status.LastSchedule; !t.IsZero() {
		last = duration.HumanDuration(now.Sub(t))
	}
	return []string{
		c.Spec.Schedule, zone, strconv.FormatBool(c.Spec.Suspend), strconv.Itoa(len(c.Status.Active)), last, lastResult(c), untilNext(c, now),
	}
}

// lastResult returns what has become of the last Job that was started, as the ledger tells it.
func lastResult(c *cronjob.CronJob) string {
	ledger, err := cronjob.DecodeLedger(c.Annotations[cronjob.LedgerAnnotation], c.UID)
	if err != nil {
		return ""
	}
	for i := len(ledger.Ticks) - 1; i >= 0; i-- {
		t := ledger.Ticks[i]
		if t.Outcome != cronjob.Started {
			continue
		}
		if t.Result == cronjob.Running {
			return "Running"
		}
		return string(t.Result)
	}
	return ""
}

// untilNext returns how long it is until the next start, "" where there is none.
func untilNext(c *cronjob.CronJob, now time.Time) string {
	if c.Spec.Suspend || c.Deleting {
		return ""
	}
	rules := cronjob.Read(c, time.LoadLocation, now.Location())
	if rules.Schedule() == nil {
		return "unreadable"
	}
	next := NextDue(c, rules, now.Add(-rules.Offset()))
	if next.IsZero() {
		return "never"
	}
	return duration.HumanDuration(max(0, next.Add(rules.Offset()).Sub(now)))
}

// NextDue returns the first due time of a CronJob after an instant, the zero time if there is none: the one that its controller
// goes by, which follows from the last start or the creation.
func NextDue(c *cronjob.CronJob, rules *cronjob.Rules, after time.Time) time.Time {
	from := c.Status.LastSchedule
	if from.IsZero() {
		from = c.Created
	}
	if !from.Before(after) {
		if from.Equal(c.Created) || rules.Schedule().Every() > 0 {
			return rules.Schedule().Next(from) // what lies before never was due
		}
		return rules.Schedule().Next(after)
	}
	if run := rules.Schedule().Between(from, after); run.Count > 0 {
		from = run.Last
	}
	return rules.Schedule().Next(from)
}

// CronJobName reads an argument that can mean nothing but a CronJob: "NAME", "cronjob/NAME" or what else CronJobs are called, those of
// Volcano too. A bare name means one of batch/v1.
func CronJobName(arg string) (Ref, error) {
	kind := Lookup("cronjob")
	ref, err := ParseRef(arg)
	switch {
	case err != nil:
		return Ref{}, err
	case ref.Kind.Cron != nil:
		return ref, nil
	case arg == ref.Name: // without a type
		return Ref{Kind: kind, Name: arg}, nil
	}
	return Ref{}, fmt.Errorf("%q is no CronJob: write NAME or %s/NAME", arg, kind.Name)
}
