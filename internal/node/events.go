// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// events sends events about pods in kubelet's words.
//
// Differs: kubelet sends Pulled, Created, Started and Killing for every container. Each is a write, so they are sent only when
// routine is set.
type events struct {
	recorder record.EventRecorder
	routine  bool
}

// pod sends an event about a whole pod.
func (e events) pod(pod *corev1.Pod, kind, reason, message string) {
	e.recorder.Event(reference(pod, ""), kind, reason, message)
}

// container sends an event about a container.
func (e events) container(pod *corev1.Pod, name, kind, reason, message string) {
	e.recorder.Event(reference(pod, name), kind, reason, message)
}

// ordinary sends an event that only says that all goes well.
func (e events) ordinary(pod *corev1.Pod, name, reason, message string) {
	if e.routine {
		e.container(pod, name, corev1.EventTypeNormal, reason, message)
	}
}

func reference(pod *corev1.Pod, container string) *corev1.ObjectReference {
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	if container != "" {
		ref.FieldPath = fieldPath(&pod.Spec, container)
	}
	return ref
}

func fieldPath(spec *corev1.PodSpec, name string) string {
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return fmt.Sprintf("spec.initContainers{%s}", name)
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return fmt.Sprintf("spec.ephemeralContainers{%s}", name)
		}
	}
	return fmt.Sprintf("spec.containers{%s}", name)
}
