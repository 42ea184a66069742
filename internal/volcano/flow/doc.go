// SPDX-License-Identifier: Apache-2.0

// Package flow has the kinds JobFlow and JobTemplate of the API group flow.volcano.sh/v1alpha1.
//
// +groupName=flow.volcano.sh
// +versionName=v1alpha1
// +kubebuilder:object:generate=true
package flow

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API version of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "flow.volcano.sh", Version: "v1alpha1"}

// AddToScheme makes s know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &JobFlow{}, &JobFlowList{}, &JobTemplate{}, &JobTemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
