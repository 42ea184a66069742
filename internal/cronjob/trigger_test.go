// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTriggeringByHand(t *testing.T) {
	running := job("2016-05-19 10:00:00")
	active := []option{last("2016-05-19 10:00:00"), listing(running)}
	name := TriggerName("cj", at("2016-05-19 10:30:00"))
	type outcome struct {
		Replace, Start []string
		Error          string
	}
	for title, tc := range map[string]struct {
		cron     *batchv1.CronJob
		children []Child
		respect  bool
		want     outcome
	}{
		"nothing runs":                    {newCronJob(hourly, policy(batchv1.ForbidConcurrent)), nil, true, outcome{Start: []string{name}}},
		"suspended":                       {newCronJob(hourly, suspended(true)), nil, true, outcome{Start: []string{name}}},
		"a Job runs, whatever the policy": {newCronJob(hourly, append(active, policy(batchv1.ForbidConcurrent))...), []Child{running}, false, outcome{Start: []string{name}}},
		"a Job runs under Allow":          {newCronJob(hourly, active...), []Child{running}, true, outcome{Start: []string{name}}},
		"a Job runs under Forbid": {
			newCronJob(hourly, append(active, policy(batchv1.ForbidConcurrent))...),
			[]Child{running},
			true,
			outcome{Error: "triggering default/cj: the concurrency policy lets no other Job start now: cj-24394200 is active and the policy is Forbid"},
		},
		"a Job has just ended under Forbid": {
			newCronJob(hourly, append(active, policy(batchv1.ForbidConcurrent))...),
			[]Child{job("2016-05-19 10:00:00", ended(Complete, "2016-05-19 10:29:00"))},
			true,
			outcome{Start: []string{name}},
		},
		"a Job runs under Replace": {
			newCronJob(hourly, append(active, policy(batchv1.ReplaceConcurrent))...),
			[]Child{running},
			true,
			outcome{Replace: []string{running.Name}, Start: []string{name}},
		},
		"a Job runs under Replace, and its start is not stored": {
			newCronJob(hourly, policy(batchv1.ReplaceConcurrent)),
			[]Child{running},
			true,
			outcome{Error: "triggering default/cj: the concurrency policy lets no other Job start now: its last start is not stored yet, try again in a second"},
		},
		"places are left under Enqueue": {
			newCronJob(hourly, append(active, annotated(AnnotationConcurrency, "Enqueue", AnnotationMaxActive, "2"))...),
			[]Child{running},
			true,
			outcome{Start: []string{name}},
		},
		"no place is left under Enqueue": {
			newCronJob(hourly, append(active, listing(job("2016-05-19 09:00:00")), annotated(AnnotationConcurrency, "Enqueue", AnnotationMaxActive, "2"))...),
			[]Child{running, job("2016-05-19 09:00:00")},
			true,
			outcome{Error: "triggering default/cj: the concurrency policy lets no other Job start now: cj-24394200, one of 2 Jobs, is active and the policy is Enqueue"},
		},
		"being deleted": {
			newCronJob(hourly, func(c *batchv1.CronJob) { c.DeletionTimestamp = &metav1.Time{Time: at(created)} }), nil, false,
			outcome{Error: "triggering default/cj: the CronJob is being deleted"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			o := Observed{CronJob: FromBatch(tc.cron), Children: tc.children, Now: at("2016-05-19 10:30:00"), Options: DefaultOptions()}
			o.Rules = Read(o.CronJob, time.LoadLocation, time.UTC)
			p, err := Trigger(o, tc.respect)
			var got outcome
			for _, d := range p.Replace {
				got.Replace = append(got.Replace, d.Name)
			}
			for _, s := range p.Start {
				got.Start = append(got.Start, s.Name)
			}
			if err != nil {
				got.Error = err.Error()
				if !errors.Is(err, ErrBlocked) && !errors.Is(err, ErrDeleting) {
					t.Errorf("%v is of no kind that callers know", err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamesFitTheirBounds(t *testing.T) {
	long := "a123456789b123456789c123456789d123456789e123456789fg" // 52 characters, the most a CronJob's name may have
	for _, name := range []string{JobName(long, at("2150-01-01 00:00:00")), TriggerName(long, at("2050-01-01 00:00:00"))} {
		if len(name) > 63 {
			t.Errorf("%s has %d characters", name, len(name))
		}
	}
	if got := JobName("cj", at("2016-05-19 11:00:59")); got != "cj-24394260" {
		t.Errorf("got %s", got)
	}
}
