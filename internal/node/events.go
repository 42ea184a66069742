// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// events sends events about pods in kubelet's words.
type events struct {
	recorder record.EventRecorder
}

// pod sends an event about a whole pod.
func (e events) pod(pod *corev1.Pod, kind, reason, message string) {
	e.recorder.Event(reference(pod, ""), kind, reason, message)
}

// container sends an event about a container.
func (e events) container(pod *corev1.Pod, name, kind, reason, message string) {
	e.recorder.Event(reference(pod, name), kind, reason, message)
}

// routine are the events of a pod that only say that all goes well, and that are not sent yet.
//
// Differs: kubelet sends them at once. Here a pod that succeeds within Config.RoutineAfter costs no write for them.
type routine struct {
	since  time.Time // the first was to be told; zero: none was
	events []func()
}

// ordinary sends an event that only says that all goes well, when it is time for it.
func (w *worker) ordinary(pod *corev1.Pod, name, reason, message string) {
	if w.n.cfg.RoutineAfter < 0 {
		return
	}
	w.mu.Lock()
	if w.routine.since.IsZero() {
		w.routine.since = w.n.clock.Now()
	}
	w.routine.events = append(w.routine.events, func() { w.n.events.container(pod, name, corev1.EventTypeNormal, reason, message) })
	w.mu.Unlock()
	w.poke()
}

// tellRoutineLocked sends the events whose time has come. A pod that has failed will be looked at, so its events do not wait.
func (w *worker) tellRoutineLocked(now time.Time, failed bool, at *earliest) {
	if len(w.routine.events) == 0 {
		return
	}
	if due := w.routine.since.Add(w.n.cfg.RoutineAfter); now.Before(due) && !failed {
		at.add(due)
		return
	}
	for _, send := range w.routine.events {
		send()
	}
	w.routine.events = nil
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
