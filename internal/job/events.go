// SPDX-License-Identifier: Apache-2.0

package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Event is told on the Job once the write that makes it true has worked.
type Event struct {
	Type    string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason  string
	Message string
}

// The reasons of events that follow from single writes; their messages are formats. Those that follow from a status are in
// Accounting.Events.
//
// Source: Kubernetes v1.37 Job controller; users and tools know them letter for letter.
const (
	ReasonSuccessfulCreate      = "SuccessfulCreate"
	MessageSuccessfulCreate     = "Created pod: %v"
	ReasonFailedCreate          = "FailedCreate"
	MessageFailedCreate         = "Error creating: %v"
	ReasonSuccessfulDelete      = "SuccessfulDelete"
	MessageSuccessfulDelete     = "Deleted pod: %v"
	ReasonFailedDelete          = "FailedDelete"
	MessageFailedDelete         = "Error deleting: %v"
	ReasonStartTimeout          = "StartTimeout" // ours
	MessageStartTimeout         = "Pod %s has not started within %v and counts as failed: %s"
	ReasonInvalidAnnotation     = "InvalidAnnotation" // ours
	ReasonWorkloadCreated       = "WorkloadCreated"
	MessageWorkloadCreated      = "Created Workload %s for Job %s"
	ReasonPodGroupCreated       = "PodGroupCreated"
	MessagePodGroupCreated      = "Created PodGroup %s for Job %s"
	ReasonWorkloadNotCreated    = "FailedWorkloadCreate"
	MessageWorkloadNotCreated   = "Failed to create Workload for Job %s: %v"
	ReasonWorkloadNotCompiled   = "FailedWorkloadCompilation"
	MessageWorkloadNotCompiled  = "Failed to compile Workload for Job %s: %v"
	ReasonUnknownCompletionMode = "UnknownCompletionMode"
	MessageUnknownMode          = "Skipped Job sync because completion mode is unknown"
)

// finalEvents are told when the Job has ended with verdict v and the given status.
func finalEvents(j *batchv1.Job, s *batchv1.JobStatus, v *verdict) []Event {
	if v.outcome == batchv1.JobFailed {
		return []Event{{corev1.EventTypeWarning, v.reason, v.message}}
	}
	var events []Event
	if j.Spec.Completions != nil && s.Succeeded > *j.Spec.Completions {
		events = append(events, Event{corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"})
	}
	return append(events, Event{corev1.EventTypeNormal, "Completed", "Job completed"})
}
