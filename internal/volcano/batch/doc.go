// SPDX-License-Identifier: Apache-2.0

// Package batch has the kinds Job and CronJob of the API group batch.volcano.sh/v1alpha1, and the keys of the labels and
// annotations that go with them.
//
// +groupName=batch.volcano.sh
// +versionName=v1alpha1
// +kubebuilder:object:generate=true
package batch

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API version of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "batch.volcano.sh", Version: "v1alpha1"}

// AddToScheme makes s know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Job{}, &JobList{}, &CronJob{}, &CronJobList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
