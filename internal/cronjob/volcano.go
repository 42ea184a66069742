// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-dev/drover/internal/schedule"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// This file is all that this package knows of CronJobs of Volcano, but for the words of their events.

// FromVolcano returns what this package looks at of a CronJob of Volcano. It shares memory with it.
func FromVolcano(c *batch.CronJob) *CronJob {
	out := &CronJob{
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, Generation: c.Generation,
		Created: c.CreationTimestamp.Time, Deleting: c.DeletionTimestamp != nil, Annotations: c.Annotations,
		Spec: Spec{
			Schedule: c.Spec.Schedule, TimeZone: c.Spec.TimeZone, Concurrency: Allow, StartingDeadline: deadlineOf(c.Spec.StartingDeadlineSeconds),
			Suspend:         c.Spec.Suspend != nil && *c.Spec.Suspend,
			SuccessfulLimit: c.Spec.SuccessfulJobsHistoryLimit, FailedLimit: c.Spec.FailedJobsHistoryLimit,
		},
		Status: Status{
			Active:       c.Status.Active,
			LastSchedule: timeOf(c.Status.LastScheduleTime), LastSuccess: timeOf(c.Status.LastSuccessfulTime),
		},
	}
	switch c.Spec.ConcurrencyPolicy {
	case batch.ForbidConcurrent:
		out.Spec.Concurrency = Forbid
	case batch.ReplaceConcurrent:
		out.Spec.Concurrency = Replace
	case batch.AllowConcurrent:
	}
	return out
}

// ChildFromVolcano returns what this package looks at of a Job of Volcano. An aborted one can be resumed and counts as active.
//
// Differs: Volcano never deletes Jobs that were terminated; here they are kept like those that have failed.
func ChildFromVolcano(j *batch.Job) Child {
	c := Child{
		Name: j.Name, ResourceVersion: j.ResourceVersion, UID: j.UID, Created: j.CreationTimestamp.Time,
		Started: j.CreationTimestamp.Time, Deleting: j.DeletionTimestamp != nil, Triggered: j.Annotations[annotationTriggered] == "true",
	}
	if ref := metav1.GetControllerOfNoCopy(j); ref != nil {
		c.Controller = ref.UID
	}
	if due, err := time.Parse(time.RFC3339, j.Annotations[batch.ScheduledKey]); err == nil {
		c.Due = due.UTC()
	}
	switch j.Status.State.Phase {
	case batch.Completed:
		c.Result, c.Ended = Complete, j.Status.State.LastTransitionTime.Time
	case batch.Failed, batch.Terminated:
		c.Result, c.Ended = Failed, j.Status.State.LastTransitionTime.Time
	default: // it goes on
	}
	return c
}

// VolcanoJobFor returns the Job of Volcano that a start asks for. It shares memory with the CronJob's template and must not be changed.
func VolcanoJobFor(c *batch.CronJob, s Start) *batch.Job {
	template := &c.Spec.JobTemplate
	annotations := maps.Clone(template.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if s.Due.IsZero() {
		annotations[annotationInstantiate] = "manual"
		if s.RespectConcurrency {
			annotations[annotationTriggered] = "true"
		}
	} else {
		annotations[batch.ScheduledKey] = s.Due.Format(time.RFC3339)
	}
	return &batch.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: c.Namespace, Labels: template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, batch.GroupVersion.WithKind("CronJob"))},
		},
		Spec: template.Spec,
	}
}

// ToVolcano returns the status in the terms of Volcano. It shares memory with s.
func (s Status) ToVolcano() batch.CronJobStatus {
	b := s.ToBatch()
	return batch.CronJobStatus{Active: b.Active, LastScheduleTime: b.LastScheduleTime, LastSuccessfulTime: b.LastSuccessfulTime}
}

// maxName leaves room for the minutes in the names of Jobs.
const maxName = 52

// ValidateVolcano returns everything that is wrong with a CronJob of Volcano; nil: nothing. zones finds the time zones that it names.
//
// Source: Volcano's webhook for CronJobs.
func ValidateVolcano(c *batch.CronJob, zones schedule.Zones) []string {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch text := c.Spec.Schedule; {
	case text == "":
		add("spec.schedule: it is required")
	case strings.Contains(text, "TZ"):
		add("spec.schedule: cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	default:
		if _, err := schedule.Parse(text, zones); err != nil {
			add("spec.schedule: invalid schedule %q: %v", text, err)
		}
	}
	if zone := c.Spec.TimeZone; zone != nil {
		if why := zoneProblem(*zone, zones); why != "" {
			add("spec.timeZone: %q: %s", *zone, why)
		}
	}
	if len(c.Name) > maxName {
		add("metadata.name: must be no more than %d characters", maxName)
	}
	for _, why := range validation.IsQualifiedName(c.Name) {
		add("metadata.name: %q: %s", c.Name, why)
	}
	return problems
}

var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func zoneProblem(zone string, zones schedule.Zones) string {
	switch {
	case zone == "":
		return "timeZone must be nil or non-empty string"
	case strings.EqualFold(zone, "local"):
		return "timeZone must be an explicit time zone"
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			return "unknown time zone"
		}
	}
	if _, err := zones(zone); err != nil {
		return err.Error()
	}
	return ""
}
