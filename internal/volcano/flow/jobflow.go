// SPDX-License-Identifier: Apache-2.0

package flow

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// JobFlow runs Jobs one after the other, each when those that it depends on have completed.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=jobflows,shortName=jf
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.state.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type JobFlow struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which Jobs, in which order.
	// +optional
	Spec JobFlowSpec `json:"spec,omitempty"`
	// How they fare; written by the controller.
	// +optional
	Status JobFlowStatus `json:"status,omitempty"`
}

// JobFlowList is a list of JobFlows.
//
// +kubebuilder:object:root=true
type JobFlowList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []JobFlow `json:"items"`
}

// RetainPolicy says what becomes of the Jobs of a flow that has succeeded.
//
// +kubebuilder:validation:Enum=retain;delete
type RetainPolicy string

// The policies.
const (
	Retain RetainPolicy = "retain"
	Delete RetainPolicy = "delete"
)

// JobFlowSpec says which Jobs a flow runs.
type JobFlowSpec struct {
	// The Jobs.
	// +optional
	Flows []Flow `json:"flows,omitempty"`
	// What becomes of them afterwards.
	// +optional
	JobRetainPolicy RetainPolicy `json:"jobRetainPolicy,omitempty"`
}

// Flow is one Job of a flow, made from the JobTemplate of the same name.
type Flow struct {
	// Name of the JobTemplate.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// What must be there first.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// What differs from the template.
	// +optional
	Patch *Patch `json:"patch,omitempty"`
}

// DependsOn says what must be there before a Job is made.
type DependsOn struct {
	// Names of entries whose Jobs must have completed.
	// +optional
	Targets []string `json:"targets,omitempty"`
	// What the targets must answer instead of having completed.
	// +optional
	Probe *Probe `json:"probe,omitempty"`
}

// Probe asks the pods of the targets.
type Probe struct {
	// Requests that must be answered.
	// +optional
	HTTPGetList []HTTPGet `json:"httpGetList,omitempty"`
	// Ports that must take connections.
	// +optional
	TCPSocketList []TCPSocket `json:"tcpSocketList,omitempty"`
	// Tasks that must be in a phase.
	// +optional
	TaskStatusList []TaskStatus `json:"taskStatusList,omitempty"`
}

// HTTPGet is a request that a task must answer.
type HTTPGet struct {
	// +optional
	TaskName string `json:"taskName,omitempty"`
	// +optional
	Path string `json:"path,omitempty"`
	// +optional
	Port int `json:"port,omitempty"`
	// +optional
	HTTPHeader corev1.HTTPHeader `json:"httpHeader,omitempty"`
}

// TCPSocket is a port of a task that must take connections.
type TCPSocket struct {
	// +optional
	TaskName string `json:"taskName,omitempty"`
	Port     int    `json:"port"`
}

// TaskStatus is a phase that a task must be in.
type TaskStatus struct {
	// +optional
	TaskName string `json:"taskName,omitempty"`
	// +optional
	Phase string `json:"phase,omitempty"`
}

// Patch says how a Job differs from its template.
type Patch struct {
	// Fields that take the place of the template's.
	// +optional
	JobSpec batch.JobSpec `json:"jobSpec,omitempty"`
}

// Phase is where a flow is in its life.
//
// +kubebuilder:validation:Enum=Succeed;Terminating;Failed;Running;Pending
type Phase string

// The phases.
const (
	Succeed     Phase = "Succeed"
	Terminating Phase = "Terminating"
	Failed      Phase = "Failed"
	Running     Phase = "Running"
	Pending     Phase = "Pending"
)

// State is the phase of a flow.
type State struct {
	// +optional
	Phase Phase `json:"phase,omitempty"`
}

// JobFlowStatus is how the Jobs of a flow fare.
type JobFlowStatus struct {
	// +optional
	PendingJobs []string `json:"pendingJobs,omitempty"`
	// +optional
	RunningJobs []string `json:"runningJobs,omitempty"`
	// +optional
	FailedJobs []string `json:"failedJobs,omitempty"`
	// +optional
	CompletedJobs []string `json:"completedJobs,omitempty"`
	// +optional
	TerminatedJobs []string `json:"terminatedJobs,omitempty"`
	// The name is misspelt in the API.
	// +optional
	UnKnowJobs []string `json:"unKnowJobs,omitempty"`
	// The life of each Job.
	// +optional
	JobStatusList []JobStatus `json:"jobStatusList,omitempty"`
	// Each Job, by its name.
	// +optional
	Conditions map[string]Condition `json:"conditions,omitempty"`
	// The flow itself.
	// +optional
	State State `json:"state,omitempty"`
}

// JobStatus is the life of one Job of a flow.
type JobStatus struct {
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	State batch.JobPhase `json:"state,omitempty"`
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitzero"`
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitzero"`
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// +optional
	RunningHistories []RunningHistory `json:"runningHistories,omitempty"`
}

// RunningHistory is one phase of a Job of a flow.
type RunningHistory struct {
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitzero"`
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitzero"`
	// +optional
	State batch.JobPhase `json:"state,omitempty"`
}

// Condition is one Job of a flow in a few words.
type Condition struct {
	// +optional
	Phase batch.JobPhase `json:"phase,omitempty"`
	// +optional
	CreateTimestamp metav1.Time `json:"createTime,omitzero"`
	// +optional
	RunningDuration *metav1.Duration `json:"runningDuration,omitempty"`
	// +optional
	TaskStatusCount map[string]batch.TaskState `json:"taskStatusCount,omitempty"`
}

// JobTemplate is what Jobs of flows are made from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=jobtemplates,shortName=jt
// +kubebuilder:subresource:status
type JobTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec of the Jobs.
	// +optional
	Spec batch.JobSpec `json:"spec,omitempty"`
	// Which Jobs were made from it.
	// +optional
	Status JobTemplateStatus `json:"status,omitempty"`
}

// JobTemplateList is a list of JobTemplates.
//
// +kubebuilder:object:root=true
type JobTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []JobTemplate `json:"items"`
}

// JobTemplateStatus names the Jobs that were made from a template.
type JobTemplateStatus struct {
	// +optional
	JobDependsOnList []string `json:"jobDependsOnList,omitempty"`
}
