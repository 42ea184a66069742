// SPDX-License-Identifier: Apache-2.0

package batch

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronJob makes Jobs at the times of a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=cronjobs,shortName=cronvcjob;cronvj
// +kubebuilder:subresource:status
type CronJob struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// When, and what.
	// +optional
	Spec CronJobSpec `json:"spec,omitempty"`
	// What has become of it; written by the controller.
	// +optional
	Status CronJobStatus `json:"status,omitempty"`
}

// CronJobList is a list of CronJobs.
//
// +kubebuilder:object:root=true
type CronJobList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CronJob `json:"items"`
}

// ConcurrencyPolicy says what happens when a Job is due and an earlier one goes on.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ConcurrencyPolicy string

// The policies.
const (
	AllowConcurrent   ConcurrencyPolicy = "Allow"
	ForbidConcurrent  ConcurrencyPolicy = "Forbid"
	ReplaceConcurrent ConcurrencyPolicy = "Replace"
)

// CronJobSpec says when to make which Job.
type CronJobSpec struct {
	// Five fields, or a macro such as @hourly.
	Schedule string `json:"schedule"`
	// Time zone of the schedule; without it, that of the controller.
	// +optional
	TimeZone *string `json:"timeZone,omitempty"`
	// How late a Job may be made, in seconds; without it, any time.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// What to do while an earlier Job goes on.
	// +kubebuilder:default=Allow
	// +optional
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// Makes no Jobs while it is set.
	// +kubebuilder:default=false
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// The Job to make.
	JobTemplate JobTemplateSpec `json:"jobTemplate"`
	// How many completed Jobs are kept.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +optional
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`
	// How many failed Jobs are kept.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +optional
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`
}

// JobTemplateSpec is what the Jobs of a CronJob are made from.
type JobTemplateSpec struct {
	// Labels and annotations of the Jobs.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Their spec.
	// +optional
	Spec JobSpec `json:"spec,omitempty"`
}

// CronJobStatus is what has become of a CronJob.
type CronJobStatus struct {
	// Jobs that go on.
	// +listType=atomic
	// +optional
	Active []corev1.ObjectReference `json:"active,omitempty"`
	// The last time for which a Job was made.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// When a Job was last completed.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`
}
