// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	topics
)

// Wording is how a kind of CronJob speaks to its users.
type Wording struct {
	JobAPIVersion string        // of the Jobs that the status lists; their kind is Job
	Events        [topics]Event // what events say, by topic; messages are formats of package fmt
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
	}}
}

func (w *Wording) event(t Topic, args ...any) Event {
	e := w.Events[t]
	if len(args) > 0 {
		e.Message = fmt.Sprintf(e.Message, args...)
	}
	return e
}
