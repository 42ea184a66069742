// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file is all that this package knows of batch/v1. Another kind of CronJob gets another such file.

// Annotations of Jobs.
const (
	// annotationInstantiate marks Jobs started by hand, as "kubectl create job --from" does.
	annotationInstantiate = "cronjob.kubernetes.io/instantiate"
	// annotationTriggered marks those of them that concurrency policies regard.
	annotationTriggered = "drover.dev/respect-concurrency"
)

// FromBatch returns what this package looks at of a batch/v1 CronJob. It shares memory with it.
func FromBatch(c *batchv1.CronJob) *CronJob {
	out := &CronJob{
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, Generation: c.Generation,
		Created: c.CreationTimestamp.Time, Deleting: c.DeletionTimestamp != nil, Annotations: c.Annotations,
		Spec: Spec{
			Schedule: c.Spec.Schedule, TimeZone: c.Spec.TimeZone, Concurrency: Allow,
			Suspend:         c.Spec.Suspend != nil && *c.Spec.Suspend,
			SuccessfulLimit: c.Spec.SuccessfulJobsHistoryLimit, FailedLimit: c.Spec.FailedJobsHistoryLimit,
		},
		Status: Status{
			Active:       c.Status.Active,
			LastSchedule: timeOf(c.Status.LastScheduleTime), LastSuccess: timeOf(c.Status.LastSuccessfulTime),
		},
	}
	switch c.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		out.Spec.Concurrency = Forbid
	case batchv1.ReplaceConcurrent:
		out.Spec.Concurrency = Replace
	default: // Allow
	}
	out.Spec.StartingDeadline = deadlineOf(c.Spec.StartingDeadlineSeconds)
	return out
}

func deadlineOf(seconds *int64) *time.Duration {
	if seconds == nil {
		return nil
	}
	deadline := maxDeadline
	if *seconds < int64(maxDeadline/time.Second) {
		deadline = time.Duration(*seconds) * time.Second
	}
	return &deadline
}

// maxDeadline is as good as none: a hundred years.
const maxDeadline = 100 * 365 * 24 * time.Hour

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// ChildFromBatch returns what this package looks at of a batch/v1 Job.
func ChildFromBatch(j *batchv1.Job) Child {
	c := Child{
		Name: j.Name, ResourceVersion: j.ResourceVersion, UID: j.UID, Created: j.CreationTimestamp.Time,
		Started: timeOf(j.Status.StartTime), Deleting: j.DeletionTimestamp != nil,
		Triggered: j.Annotations[annotationTriggered] == "true",
	}
	if ref := metav1.GetControllerOfNoCopy(j); ref != nil {
		c.Controller = ref.UID
	}
	if due, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]); err == nil {
		c.Due = due.UTC()
	}
	for i := range j.Status.Conditions {
		cond := &j.Status.Conditions[i]
		if cond.Status != corev1.ConditionTrue {
			continue
		}
		switch cond.Type {
		case batchv1.JobComplete:
			c.Result, c.Ended = Complete, timeOf(j.Status.CompletionTime)
		case batchv1.JobFailed:
			c.Result, c.Ended = Failed, cond.LastTransitionTime.Time
		default: // it goes on
		}
	}
	return c
}

// JobFor returns the Job that a start asks for. It shares memory with the CronJob's template and must not be changed.
//
// Source: Kubernetes v1.37 CronJob controller; for Jobs started by hand, "kubectl create job --from".
func JobFor(c *batchv1.CronJob, s Start) *batchv1.Job {
	template := &c.Spec.JobTemplate
	annotations := maps.Clone(template.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	owner := *metav1.NewControllerRef(c, batchv1.SchemeGroupVersion.WithKind("CronJob"))
	if s.Due.IsZero() {
		owner.BlockOwnerDeletion = nil
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: c.Namespace, Labels: template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: template.Spec,
	}
	if s.Due.IsZero() {
		annotations[annotationInstantiate] = "manual"
		if s.RespectConcurrency {
			annotations[annotationTriggered] = "true"
		}
		return job
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = s.Due.Format(time.RFC3339)
	job.CreationTimestamp = metav1.NewTime(s.Due)
	return job
}

// ToBatch returns the status in the terms of batch/v1. It shares memory with s.
func (s Status) ToBatch() batchv1.CronJobStatus {
	out := batchv1.CronJobStatus{Active: s.Active}
	if !s.LastSchedule.IsZero() {
		out.LastScheduleTime = &metav1.Time{Time: s.LastSchedule}
	}
	if !s.LastSuccess.IsZero() {
		out.LastSuccessfulTime = &metav1.Time{Time: s.LastSuccess}
	}
	return out
}
