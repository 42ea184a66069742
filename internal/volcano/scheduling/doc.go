// SPDX-License-Identifier: Apache-2.0

// Package scheduling has the kinds PodGroup and Queue of the API group scheduling.volcano.sh/v1beta1.
//
// +groupName=scheduling.volcano.sh
// +versionName=v1beta1
// +kubebuilder:object:generate=true
package scheduling

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API version of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "scheduling.volcano.sh", Version: "v1beta1"}

// AddToScheme makes s know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PodGroup{}, &PodGroupList{}, &Queue{}, &QueueList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Keys of labels and annotations.
const (
	QueueNameKey      = "scheduling.volcano.sh/queue-name"          // of plain pods and namespaces: which queue
	MinMemberKey      = "scheduling.volcano.sh/group-min-member"    // of owners of plain pods
	MinResourcesKey   = "scheduling.volcano.sh/group-min-resources" // of owners of plain pods
	AllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"
	HierarchyKey      = "volcano.sh/hierarchy"         // of queues
	WeightsKey        = "volcano.sh/hierarchy-weights" // of queues
	ClosedByParentKey = "volcano.sh/closed-by-parent"  // of queues: "true" or "false"
	PlainGroupPrefix  = "podgroup-"                    // of the names of PodGroups of plain pods
)
