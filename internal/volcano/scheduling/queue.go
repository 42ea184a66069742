// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Queue is a share of the cluster that Jobs use, with others above and below it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=queues,scope=Cluster,shortName=q;queue-v1beta1
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="PARENT",type=string,JSONPath=`.spec.parent`
type Queue struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What it may use.
	// +optional
	Spec QueueSpec `json:"spec,omitempty"`
	// How it fares.
	// +optional
	Status QueueStatus `json:"status,omitempty"`
}

// QueueList is a list of Queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Queue `json:"items"`
}

// DequeueStrategy says which waiting group of a queue is tried next.
//
// +kubebuilder:validation:Enum=fifo;traverse
type DequeueStrategy string

// The strategies.
const (
	DequeueFIFO     DequeueStrategy = "fifo"     // the first one, or none
	DequeueTraverse DequeueStrategy = "traverse" // those that there is room for
)

// QueueSpec says what a queue may use.
type QueueSpec struct {
	// Share of the cluster beside the other queues.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Weight int32 `json:"weight,omitempty"`
	// The most that it may use.
	// +optional
	Capability corev1.ResourceList `json:"capability,omitempty"`
	// Whether other queues may take back what it uses beyond its share.
	// +optional
	Reclaimable *bool `json:"reclaimable,omitempty"`
	// Other clusters that its Jobs may run in.
	// +optional
	ExtendClusters []Cluster `json:"extendClusters,omitempty"`
	// What is kept free for it.
	// +optional
	Guarantee Guarantee `json:"guarantee,omitempty"`
	// Groups of nodes that its pods may or should use.
	// +optional
	Affinity *Affinity `json:"affinity,omitempty"`
	// Kind of queue; free text.
	// +optional
	Type string `json:"type,omitempty"`
	// The queue above it; "root" is above all.
	// +optional
	Parent string `json:"parent,omitempty"`
	// What it should have when others want the rest.
	// +optional
	Deserved corev1.ResourceList `json:"deserved,omitempty"`
	// Which queue comes first.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Which of its groups comes first.
	// +kubebuilder:default=traverse
	// +optional
	DequeueStrategy DequeueStrategy `json:"dequeueStrategy,omitempty"`
}

// Cluster is another cluster that Jobs of a queue may run in.
type Cluster struct {
	// Name of the cluster.
	// +optional
	Name string `json:"name,omitempty"`
	// Share beside the others.
	// +optional
	Weight int32 `json:"weight,omitempty"`
	// What it has.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
}

// Guarantee is what is kept free for a queue.
type Guarantee struct {
	// How much.
	// +optional
	Resource corev1.ResourceList `json:"resource,omitempty"`
}

// Affinity says which groups of nodes the pods of a queue use.
type Affinity struct {
	// Groups to be near.
	// +optional
	NodeGroupAffinity *NodeGroupAffinity `json:"nodeGroupAffinity,omitempty"`
	// Groups to stay away from.
	// +optional
	NodeGroupAntiAffinity *NodeGroupAffinity `json:"nodeGroupAntiAffinity,omitempty"`
}

// NodeGroupAffinity names groups of nodes.
type NodeGroupAffinity struct {
	// That is a condition.
	// +optional
	RequiredDuringSchedulingIgnoredDuringExecution []string `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`
	// That is a wish.
	// +optional
	PreferredDuringSchedulingIgnoredDuringExecution []string `json:"preferredDuringSchedulingIgnoredDuringExecution,omitempty"`
}

// QueueState says whether a queue takes Jobs.
//
// +kubebuilder:validation:Enum=Open;Closed;Closing;Unknown
type QueueState string

// The states.
const (
	QueueOpen    QueueState = "Open"
	QueueClosed  QueueState = "Closed"
	QueueClosing QueueState = "Closing" // closed, and some groups are left
	QueueUnknown QueueState = "Unknown"
)

// QueueStatus is how a queue fares.
type QueueStatus struct {
	// Whether it takes Jobs.
	// +optional
	State QueueState `json:"state,omitempty"`
	// Groups of which some pods run and others cannot be placed.
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
	// Groups that wait for room.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// Groups that run.
	// +optional
	Running int32 `json:"running,omitempty"`
	// Groups that may be placed.
	// +optional
	Inqueue int32 `json:"inqueue,omitempty"`
	// Groups that have ended.
	// +optional
	Completed int32 `json:"completed,omitempty"`
	// What is kept free.
	// +optional
	Reservation Reservation `json:"reservation,omitempty"`
	// What its pods use.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
}

// Reservation is what is kept free for a queue.
type Reservation struct {
	// On which nodes.
	// +optional
	Nodes []string `json:"nodes,omitempty"`
	// How much.
	// +optional
	Resource corev1.ResourceList `json:"resource,omitempty"`
}
