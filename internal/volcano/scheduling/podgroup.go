// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodGroup is a set of pods that are scheduled all together or not at all. Its status is written like the rest of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podgroups,shortName=pg;podgroup-v1beta1
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="minMember",type=integer,JSONPath=`.spec.minMember`
// +kubebuilder:printcolumn:name="RUNNINGS",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="QUEUE",type=string,priority=1,JSONPath=`.spec.queue`
type PodGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the group needs.
	// +optional
	Spec PodGroupSpec `json:"spec,omitempty"`
	// How it fares.
	// +optional
	Status PodGroupStatus `json:"status,omitempty"`
}

// PodGroupList is a list of PodGroups.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodGroup `json:"items"`
}

// PodGroupSpec says what a group needs to be started.
type PodGroupSpec struct {
	// How many pods must be placed together.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinMember int32 `json:"minMember,omitempty"`
	// How many pods of each task must be among them.
	// +optional
	MinTaskMember map[string]int32 `json:"minTaskMember,omitempty"`
	// Queue whose capacity they use.
	// +kubebuilder:default=default
	// +optional
	Queue string `json:"queue,omitempty"`
	// Priority of the group in its queue.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// What the pods that must be placed together use in sum.
	// +optional
	MinResources *corev1.ResourceList `json:"minResources,omitempty"`
	// How close to each other the pods must be placed.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// Groups within the group.
	// +optional
	SubGroupPolicy []SubGroupPolicySpec `json:"subGroupPolicy,omitempty"`
}

// NetworkTopologyMode says whether a placement must or should be close.
//
// +kubebuilder:validation:Enum=hard;soft
type NetworkTopologyMode string

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

// SubGroupPolicySpec splits pods of a group into groups of their own.
type SubGroupPolicySpec struct {
	// Name of the policy; for the tasks of a Job, that of the task.
	// +optional
	Name string `json:"name,omitempty"`
	// How close to each other the pods of one subgroup must be placed.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// How many pods a subgroup has.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +optional
	SubGroupSize *int32 `json:"subGroupSize,omitempty"`
	// How many subgroups must be placed.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinSubGroups *int32 `json:"minSubGroups,omitempty"`
	// Which pods the policy is about.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// Pods with equal values of these labels form a subgroup.
	// +listType=atomic
	// +optional
	MatchLabelKeys []string `json:"matchLabelKeys,omitempty"`
}

// PodGroupPhase is where a group is in its life.
//
// +kubebuilder:validation:Enum=Pending;Running;Unknown;Inqueue;Completed
type PodGroupPhase string

// The phases. Pods may be made as soon as a group has left Pending.
const (
	GroupPending   PodGroupPhase = "Pending"   // the queue has no room
	GroupInqueue   PodGroupPhase = "Inqueue"   // it has: pods may be made
	GroupRunning   PodGroupPhase = "Running"   // enough of the pods are placed
	GroupUnknown   PodGroupPhase = "Unknown"   // some of the pods run, and others cannot be placed
	GroupCompleted PodGroupPhase = "Completed" // the pods have ended
)

// PodGroupConditionType names what a condition is about.
//
// +kubebuilder:validation:Enum=Unschedulable;Scheduled
type PodGroupConditionType string

// The types of conditions.
const (
	GroupUnschedulable PodGroupConditionType = "Unschedulable"
	GroupScheduled     PodGroupConditionType = "Scheduled"
)

// PodGroupCondition is something that the scheduler has found out.
type PodGroupCondition struct {
	// What it is about.
	// +optional
	Type PodGroupConditionType `json:"type,omitempty"`
	// Whether it holds.
	// +optional
	Status corev1.ConditionStatus `json:"status,omitempty"`
	// The scheduling session that has found it out.
	// +optional
	TransitionID string `json:"transitionID,omitempty"`
	// Since when.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Why, in a word: PodFailed, PodDeleted, NotEnoughResources, NotEnoughTasks, NotEnoughPodsOfTask.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why, for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// PodGroupStatus is how a group fares.
type PodGroupStatus struct {
	// Where it is.
	// +optional
	Phase PodGroupPhase `json:"phase,omitempty"`
	// What the scheduler has found out.
	// +optional
	Conditions []PodGroupCondition `json:"conditions,omitempty"`
	// Pods that run.
	// +optional
	Running int32 `json:"running,omitempty"`
	// Pods that have succeeded.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Pods that have failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// JobGroupName returns the name of the PodGroup of a Job.
func JobGroupName(job string, uid types.UID) string { return job + "-" + string(uid) }
