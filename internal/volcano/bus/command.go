// SPDX-License-Identifier: Apache-2.0

// Package bus has the kind Command of the API group bus.volcano.sh/v1alpha1.
//
// +groupName=bus.volcano.sh
// +versionName=v1alpha1
// +kubebuilder:object:generate=true
package bus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API version of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "bus.volcano.sh", Version: "v1alpha1"}

// AddToScheme makes s know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Command{}, &CommandList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Command asks once for an action on one object. Whoever carries it out deletes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=commands
type Command struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to do: an action of a Job, or OpenQueue or CloseQueue.
	// +optional
	Action string `json:"action,omitempty"`
	// With which object.
	// +optional
	TargetObject *metav1.OwnerReference `json:"target,omitempty"`
	// Why, in a word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why, for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// CommandList is a list of Commands.
//
// +kubebuilder:object:root=true
type CommandList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Command `json:"items"`
}
