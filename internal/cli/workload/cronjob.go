// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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
		Cells:            func(o runtime.Object, now time.Time) []string { return cronJobCells(o.(*batchv1.CronJob), now) },
		SuspendPatch: func(suspend bool) []byte {
			return fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)
		},
		Open: func(client kubernetes.Interface, namespace string) Client {
			return Adapt(client.BatchV1().CronJobs(namespace))
		},
	}
}

// SummarizeCronJob sums a CronJob up.
func SummarizeCronJob(c *batchv1.CronJob) Summary {
	s := Summary{Status: "Scheduled", Active: len(c.Status.Active), Images: images(c.Spec.JobTemplate.Spec.Template.Spec.Containers)}
	if s.Active > 0 {
		s.Status = "Running"
	}
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		s.Status, s.Outcome = "Suspended", Stopped
	}
	if c.DeletionTimestamp != nil {
		s.Status = "Terminating"
	}
	return s
}

func cronJobCells(c *batchv1.CronJob, now time.Time) []string {
	facts := cronjob.FromBatch(c)
	zone := ""
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	last := ""
	if t := c.Status.LastScheduleTime; t != nil {
		last = duration.HumanDuration(now.Sub(t.Time))
	}
	return []string{
		c.Spec.Schedule, zone, strconv.FormatBool(facts.Spec.Suspend), strconv.Itoa(len(c.Status.Active)), last, lastResult(facts),
		untilNext(facts, now),
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

// CronJobName reads an argument that can mean nothing but a CronJob: "NAME", "cronjob/NAME" or what else CronJobs are called.
func CronJobName(arg string) (Ref, error) {
	kind := Lookup("cronjob")
	ref, err := ParseRef(arg)
	switch {
	case err != nil:
		return Ref{}, err
	case ref.Kind.Name == kind.Name:
		return ref, nil
	case arg == ref.Name: // without a type
		return Ref{Kind: kind, Name: arg}, nil
	}
	return Ref{}, fmt.Errorf("%q is no CronJob: write NAME or %s/NAME", arg, kind.Name)
}
