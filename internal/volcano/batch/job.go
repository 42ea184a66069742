// SPDX-License-Identifier: Apache-2.0

package batch

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Job is a set of tasks whose pods are started together, watched together, and restarted or ended by policies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=jobs,shortName=vcjob;vj
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.state.phase`
// +kubebuilder:printcolumn:name="minAvailable",type=integer,JSONPath=`.status.minAvailable`
// +kubebuilder:printcolumn:name="RUNNINGS",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="QUEUE",type=string,priority=1,JSONPath=`.spec.queue`
type Job struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is to run.
	// +kubebuilder:validation:XValidation:rule="self.tasks.size() == oldSelf.tasks.size()",message="job updates may not add or remove tasks"
	// +kubebuilder:validation:XValidation:rule="self.queue == oldSelf.queue",message="job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`"
	// +optional
	Spec JobSpec `json:"spec,omitempty"`
	// What has become of it; written by the controller.
	// +optional
	Status JobStatus `json:"status,omitempty"`
}

// JobList is a list of Jobs.
//
// +kubebuilder:object:root=true
type JobList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Job `json:"items"`
}

// JobSpec says what a Job runs and what is done when something happens to its pods.
type JobSpec struct {
	// Scheduler of the pods whose template names none. Admission fills in "volcano".
	// +kubebuilder:validation:MaxLength=63
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// How many pods must be there together before the Job counts as running; they are scheduled all or none. 0 means the sum of
	// the tasks' minAvailable. It can be changed later.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// Volumes that every container of every task gets.
	// +optional
	Volumes []VolumeSpec `json:"volumes,omitempty" patchStrategy:"merge" patchMergeKey:"mountPath"`
	// The tasks, each a number of pods from one template.
	// +kubebuilder:validation:MinItems=1
	// +optional
	Tasks []TaskSpec `json:"tasks,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// What to do on which event. The policies of a task come before these.
	// +optional
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// Plugins by name, with arguments in the form of command line flags.
	// +optional
	Plugins map[string][]string `json:"plugins,omitempty"`
	// How long the Job is expected to run. For schedulers; nothing here depends on it.
	// +optional
	RunningEstimate *metav1.Duration `json:"runningEstimate,omitempty"`
	// Queue whose capacity the pods use.
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Queue string `json:"queue,omitempty"`
	// The Job fails with this restart: 3 allows two restarts, and the third ends it. Resuming counts as well. 0 means 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// How many seconds a Job that has ended is kept. Without it, until somebody deletes it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// Priority class of the Job's PodGroup, and of pods whose template names none. It can be changed later.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// The Job is complete as soon as this many pods have succeeded.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MinSuccess *int32 `json:"minSuccess,omitempty"`
	// How close to each other the pods must be placed.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
}

// NetworkTopologyMode says whether a placement must or should be close.
//
// +kubebuilder:validation:Enum=hard;soft
type NetworkTopologyMode string

// The modes.
const (
	HardTopology NetworkTopologyMode = "hard"
	SoftTopology NetworkTopologyMode = "soft"
)

// NetworkTopologySpec says how close to each other pods must be placed. Tier and tier name exclude each other.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.highestTierAllowed) && has(self.highestTierName))",message="must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
type NetworkTopologySpec struct {
	// Whether that is a condition or a wish.
	// +kubebuilder:default=hard
	// +optional
	Mode NetworkTopologyMode `json:"mode,omitempty"`
	// The highest tier of the network that the pods may be spread over.
	// +kubebuilder:validation:Minimum=0
	// +optional
	HighestTierAllowed *int `json:"highestTierAllowed,omitempty"`
	// The same, by the name of the tier.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	HighestTierName string `json:"highestTierName,omitempty"`
}

// VolumeSpec is a claim that every container of a Job mounts.
type VolumeSpec struct {
	// Where; no colon.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[^:]*$`
	MountPath string `json:"mountPath"`
	// A claim that is there already. The name of the claim that is made from volumeClaim is noted here.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	VolumeClaimName string `json:"volumeClaimName,omitempty"`
	// A claim to be made, which goes with the Job.
	// +optional
	VolumeClaim *corev1.PersistentVolumeClaimSpec `json:"volumeClaim,omitempty"`
}

// NumaPolicy says how a pod's CPUs are to be aligned with NUMA nodes.
//
// +kubebuilder:validation:Enum=none;best-effort;restricted;single-numa-node
type NumaPolicy string

// NumaNone asks for no alignment.
const NumaNone NumaPolicy = "none"

// TaskSpec is a number of pods from one template, with indexes from 0.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minAvailable) || self.minAvailable <= (has(self.replicas) ? self.replicas : 0)",message="'minAvailable' is greater than 'replicas' in task"
type TaskSpec struct {
	// Name, unique in the Job. Without one, "default" and the position of the task.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Name string `json:"name,omitempty"`
	// How many pods. It can be changed later.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// How many of them the Job needs; without it, all. It can be changed later.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinAvailable *int32 `json:"minAvailable,omitempty"`
	// What the pods are made from.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`
	// What to do on events of this task; asked before the policies of the Job.
	// +optional
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// How CPUs are to be aligned with NUMA nodes.
	// +optional
	TopologyPolicy NumaPolicy `json:"topologyPolicy,omitempty"`
	// The event TaskFailed is raised when the containers of the task's pods were restarted so often, all together. 0 means 3,
	// -1 never.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// Tasks that must be ready before the pods of this one are made.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// Splits the pods into groups of equal size by their index.
	// +optional
	PartitionPolicy *PartitionPolicySpec `json:"partitionPolicy,omitempty"`
}

// Iteration says how many of several dependencies must be ready.
type Iteration string

// The iterations; every other text means all.
const (
	IterationAny Iteration = "any"
	IterationAll Iteration = "all"
)

// DependsOn names tasks that must be ready first.
type DependsOn struct {
	// Names of tasks.
	// +optional
	Name []string `json:"name,omitempty"`
	// "any": one of them suffices; otherwise all.
	// +optional
	Iteration Iteration `json:"iteration,omitempty"`
}

// PartitionPolicySpec splits the pods of a task: pod i belongs to partition i / partitionSize. The task's replicas must be
// totalPartitions × partitionSize.
type PartitionPolicySpec struct {
	// How many partitions.
	// +kubebuilder:validation:Minimum=1
	TotalPartitions int32 `json:"totalPartitions"`
	// How many pods each has.
	// +kubebuilder:validation:Minimum=1
	PartitionSize int32 `json:"partitionSize"`
	// How close to each other the pods of one partition must be placed.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// How many partitions the Job needs; 0 means all pods of the task.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinPartitions int32 `json:"minPartitions,omitempty"`
}

// Event is something that happens to a pod, a task or a Job.
//
// +kubebuilder:validation:Enum=*;PodPending;PodRunning;PodFailed;PodEvicted;Unknown;TaskCompleted;OutOfSync;CommandIssued;JobUpdated;TaskFailed
type Event string

// The events that policies may name.
const (
	AnyEvent           Event = "*"             // each of the following
	PodPendingEvent    Event = "PodPending"    // a pod waits; needs a timeout
	PodFailedEvent     Event = "PodFailed"     // a pod has failed
	PodEvictedEvent    Event = "PodEvicted"    // a pod was deleted by somebody else
	UnknownEvent       Event = "Unknown"       // some of the gang run, others cannot be placed
	TaskCompletedEvent Event = "TaskCompleted" // all pods of a task have succeeded
	TaskFailedEvent    Event = "TaskFailed"    // containers of a task were restarted too often
	JobUpdatedEvent    Event = "JobUpdated"    // accepted and never raised
)

// Events that are not for policies.
const (
	PodRunningEvent    Event = "PodRunning"
	OutOfSyncEvent     Event = "OutOfSync"
	CommandIssuedEvent Event = "CommandIssued"
)

// Action is what is done with a Job.
type Action string

// The actions that policies and Commands may ask for.
const (
	AbortJobAction         Action = "AbortJob"         // end all pods; the Job can be resumed
	RestartJobAction       Action = "RestartJob"       // end all pods and begin again
	RestartTaskAction      Action = "RestartTask"      // the same with the pods of the event's task
	RestartPodAction       Action = "RestartPod"       // the same with the event's pod
	RestartPartitionAction Action = "RestartPartition" // the same with the partition of the event's pod
	TerminateJobAction     Action = "TerminateJob"     // end all pods for good
	CompleteJobAction      Action = "CompleteJob"      // end what still runs: the Job has done its work
	ResumeJobAction        Action = "ResumeJob"        // go on after AbortJob
)

// Actions that are not for policies.
const (
	SyncJobAction    Action = "SyncJob"
	EnqueueJobAction Action = "EnqueueJob"
	SyncQueueAction  Action = "SyncQueue"
	OpenQueueAction  Action = "OpenQueue"
	CloseQueueAction Action = "CloseQueue"
)

// LifecyclePolicy says what to do on an event, or when a container ends with an exit code. Both exclude each other.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.exitCode) && (has(self.event) || has(self.events)))",message="must not specify event and exitCode simultaneously"
// +kubebuilder:validation:XValidation:rule="has(self.exitCode) || has(self.event) || has(self.events)",message="either event and exitCode should be specified"
// +kubebuilder:validation:XValidation:rule="!has(self.exitCode) || self.exitCode != 0",message="0 is not a valid error code"
type LifecyclePolicy struct {
	// What to do.
	// +optional
	Action Action `json:"action,omitempty"`
	// On which event.
	// +optional
	Event Event `json:"event,omitempty"`
	// On which events; the one above is added to them.
	// +optional
	Events []Event `json:"events,omitempty"`
	// On which exit code of a container of a failed pod; never 0.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// How long to wait before the action is carried out, if what has caused it still holds then. PodPending needs it.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// JobPhase is where a Job is in its life.
//
// +kubebuilder:validation:Enum=Pending;Aborting;Aborted;Running;Restarting;Completing;Completed;Terminating;Terminated;Failed
type JobPhase string

// The phases. Completed, Terminated and Failed are final; an Aborted Job waits to be resumed.
const (
	Pending     JobPhase = "Pending"
	Running     JobPhase = "Running"
	Restarting  JobPhase = "Restarting"
	Aborting    JobPhase = "Aborting"
	Aborted     JobPhase = "Aborted"
	Completing  JobPhase = "Completing"
	Completed   JobPhase = "Completed"
	Terminating JobPhase = "Terminating"
	Terminated  JobPhase = "Terminated"
	Failed      JobPhase = "Failed"
)

// JobState is the phase of a Job and how it came there.
type JobState struct {
	// Where the Job is.
	// +optional
	Phase JobPhase `json:"phase,omitempty"`
	// What has brought it there, in a word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// The same for people: the pod, its exit code, the policy, what is waited for.
	// +optional
	Message string `json:"message,omitempty"`
	// Since when.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
}

// JobCondition tells when a Job was last in a phase.
type JobCondition struct {
	// The phase.
	Status JobPhase `json:"status"`
	// When the Job came there last.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// TaskState counts the pods of one task.
type TaskState struct {
	// Pods that are not being deleted, by their phase.
	// +optional
	Phase map[corev1.PodPhase]int32 `json:"phase,omitempty"`
}

// JobStatus is what has become of a Job.
type JobStatus struct {
	// Where the Job is, and why.
	// +optional
	State JobState `json:"state,omitempty"`
	// spec.minAvailable, as it was when the pods were last looked at.
	// +optional
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// Pods of each task.
	// +optional
	TaskStatusCount map[string]TaskState `json:"taskStatusCount,omitempty"`
	// Pods that wait.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// Pods that run.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Running int32 `json:"running,omitempty"`
	// Pods that have succeeded.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Pods that have failed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Pods that are being deleted; they are in none of the other numbers.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Terminating int32 `json:"terminating,omitempty"`
	// Pods nothing is known of.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
	// Grows each time all pods are to go. Every pod carries the version that it was made for.
	// +optional
	Version int32 `json:"version,omitempty"`
	// How often the Job was restarted or resumed.
	// +optional
	RetryCount int32 `json:"retryCount,omitempty"`
	// From creation to the last phase that ended pods.
	// +optional
	RunningDuration *metav1.Duration `json:"runningDuration,omitempty"`
	// Objects that go with the Job: "plugin-<name>" and "volume-pvc-<claim>".
	// +optional
	ControlledResources map[string]string `json:"controlledResources,omitempty"`
	// When the Job was last in each phase, the latest last.
	// +patchMergeKey=status
	// +patchStrategy=merge
	// +optional
	Conditions []JobCondition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"status"`
}
