// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// SkewMetric is the histogram of Accounting.Skew. Buckets in seconds: 1, 2, 4, … 512.
//
// Source: Kubernetes v1.37 CronJob controller.
const SkewMetric = "cronjob_controller_job_creation_skew_duration_seconds"

// Event is told on the CronJob.
type Event struct {
	Type    string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason  string
	Message string
}

// Topic is what an event is about. How it is worded depends on the kind of CronJob.
type Topic int

// The topics.
const (
	UnexpectedJob       Topic = iota // a Job is active that the status does not list: name
	SawCompletedJob                  // name, result
	MissingJob                       // name
	UnknownTimeZone                  // zone, error
	UnsupportedSchedule              // schedule
	UnparseableSchedule              // schedule, error
	UnparseableEdit                  // the same, at the edit that made it so: schedule
	InvalidSchedule                  // schedule, error
	TooManyMissedTimes
	MissSchedule  // due time, UTC
	AlreadyActive // a due time is not started because an earlier Job still runs
	FailedDelete  // error
	Deleted       // name
	FailedCreate  // error
	Created       // name
	BadAnnotation // error
	ReplacedJob   // a Job is deleted to make room for the next: name
	ForeignJob    // the name of the next Job is taken by another's: error
	topics
)

// Wording is how a kind of CronJob speaks to its users.
type Wording struct {
	JobAPIVersion string        // of the Jobs that the status lists; their kind is Job
	Events        [topics]Event // what events say, by topic; messages are formats of package fmt. Without a reason: nothing
}

// BatchWording returns the words of batch/v1 CronJobs: those of Kubernetes v1.37, which users and tools know letter for letter,
// and one of our own.
func BatchWording() Wording {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	return Wording{JobAPIVersion: "batch/v1", Events: [topics]Event{
		UnexpectedJob:   {warning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s"},
		SawCompletedJob: {normal, "SawCompletedJob", "Saw completed job: %s, condition: %v"},
		MissingJob:      {normal, "MissingJob", "Active job went missing: %v"},
		UnknownTimeZone: {warning, "UnknownTimeZone", "invalid timeZone: %q: %s"},
		UnsupportedSchedule: {warning, "UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, " +
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"},
		UnparseableSchedule: {warning, "UnparseableSchedule", "unparseable schedule: %q : %s"},
		UnparseableEdit:     {warning, "UnParseableCronJobSchedule", "unparseable schedule for cronjob: %s"},
		InvalidSchedule:     {warning, "InvalidSchedule", "invalid schedule: %s : %s"},
		TooManyMissedTimes: {warning, "TooManyMissedTimes", "too many missed start times. " +
			"Set or decrease .spec.startingDeadlineSeconds or check clock skew"},
		MissSchedule: {warning, "MissSchedule", "Missed scheduled time to start a job: %s"},
		AlreadyActive: {normal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is " +
			"Forbid"},
		FailedDelete:  {warning, "FailedDelete", "Deleted job: %v"},
		Deleted:       {normal, "SuccessfulDelete", "Deleted job %v"},
		FailedCreate:  {warning, "FailedCreate", "Error creating job: %v"},
		Created:       {normal, "SuccessfulCreate", "Created job %v"},
		BadAnnotation: {warning, "InvalidAnnotation", "%v"},
		ForeignJob:    {warning, "FailedCreate", "Error creating job: %v"},
	}}
}

// VolcanoWording returns the words of CronJobs of Volcano: its reasons, as far as it has one.
func VolcanoWording() Wording {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	w := BatchWording()
	w.JobAPIVersion = batch.GroupVersion.String()
	for topic, event := range map[Topic]Event{
		UnexpectedJob:       {warning, "OrphanedJob", "Found a job that the controller did not create or forgot: %s"},
		MissingJob:          {normal, "StaleReference", "Active job is gone: %v"},
		UnknownTimeZone:     {warning, "InvalidTimeZone", "invalid timeZone: %q: %s"},
		UnsupportedSchedule: {warning, "UnsupportedSchedule", "TZ in schedule %q is not supported: use timeZone"},
		UnparseableSchedule: {warning, "UnParseableCronJobSchedule", "unparseable schedule: %q : %s"},
		AlreadyActive:       {normal, "ForbidConcurrent", "Not starting job because an earlier one is active and concurrencyPolicy is Forbid"},
		ReplacedJob:         {normal, "ReplaceConcurrent", "Deleting active job %s because concurrencyPolicy is Replace"},
		ForeignJob:          {warning, "ForeignJob", "The name of the job is taken: %v"},
	} {
		w.Events[topic] = event
	}
	return w
}

// add appends the event about a topic to events, if there is one.
func (w *Wording) add(events []Event, t Topic, args ...any) []Event {
	e := w.Events[t]
	if e.Reason == "" {
		return events
	}
	if len(args) > 0 {
		e.Message = fmt.Sprintf(e.Message, args...)
	}
	return append(events, e)
}
