// SPDX-License-Identifier: Apache-2.0

// Package podstate answers questions about one pod that several kinds of workload ask: is it over, when did it end, which of
// two should go first. It looks only at the pod it is given and decides nothing.
package podstate

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsFinished reports whether all containers of p have ended for good: its phase is Succeeded or Failed.
func IsFinished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// IsActive reports whether p runs or may still run, and nobody has asked for its deletion.
func IsActive(p *corev1.Pod) bool { return !IsFinished(p) && p.DeletionTimestamp == nil }

// IsTerminating reports whether p was asked to go and has not ended yet.
func IsTerminating(p *corev1.Pod) bool { return !IsFinished(p) && p.DeletionTimestamp != nil }

// IsReady reports whether p has the condition Ready=True.
func IsReady(p *corev1.Pod) bool {
	c := condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// FinishTime returns when p ended, from the best evidence there is: the end of its last container; else the moment it stopped
// being ready; else the moment its deletion was asked for; else its creation.
//
// Source: Kubernetes v1.37 Job controller, which also takes the sidecars' end where they have all ended and the other
// containers have not.
func FinishTime(p *corev1.Pod) time.Time {
	if t := lastContainerEnd(p); !t.IsZero() {
		return t
	}
	if c := condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if p.DeletionTimestamp != nil {
		grace := time.Duration(0)
		if p.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
		}
		return p.DeletionTimestamp.Add(-grace)
	}
	return p.CreationTimestamp.Time
}

// lastContainerEnd returns the zero time unless the containers' own records tell when p ended.
func lastContainerEnd(p *corev1.Pod) time.Time {
	var latest time.Time
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		if !isSidecar(p, s.Name) {
			continue
		}
		if s.State.Terminated == nil || s.State.Terminated.FinishedAt.IsZero() {
			return time.Time{}
		}
		latest = later(latest, s.State.Terminated.FinishedAt)
	}
	var latestApp time.Time
	for i := range p.Status.ContainerStatuses {
		t := p.Status.ContainerStatuses[i].State.Terminated
		if t == nil || t.FinishedAt.IsZero() {
			return latest
		}
		latestApp = later(latestApp, t.FinishedAt)
	}
	if latestApp.After(latest) {
		return latestApp
	}
	return latest
}

func later(a time.Time, b metav1.Time) time.Time {
	if b.After(a) {
		return b.Time
	}
	return a
}

// isSidecar reports whether the init container of that name keeps running beside the others.
func isSidecar(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return false
}

// Restarts returns how often the containers of p, init containers included, have been started again.
func Restarts(p *corev1.Pod) int {
	n := 0
	for i := range p.Status.InitContainerStatuses {
		n += int(p.Status.InitContainerStatuses[i].RestartCount)
	}
	for i := range p.Status.ContainerStatuses {
		n += int(p.Status.ContainerStatuses[i].RestartCount)
	}
	return n
}

// CompareForDeletion orders active pods by how little is lost with them; the first should be deleted first: those without a
// node, those that have not started, those not ready, those ready for the shortest time, those with the most restarts, the
// youngest. Equal pods are ordered by name, so that the order never depends on chance.
//
// Source: Kubernetes v1.37, the ranking of active pods, without its pod-deletion-cost annotation, which Jobs do not use.
func CompareForDeletion(a, b *corev1.Pod) int {
	readyA, readyB := IsReady(a), IsReady(b)
	if c := cmp.Or(
		falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(progress(a.Status.Phase), progress(b.Status.Phase)),
		falseFirst(readyA, readyB),
	); c != 0 {
		return c
	}
	if readyA && readyB {
		if c := latestFirst(readySince(a), readySince(b)); c != 0 {
			return c
		}
	}
	appA, sidecarA := maxRestarts(a)
	appB, sidecarB := maxRestarts(b)
	return cmp.Or(
		cmp.Compare(appB, appA),
		cmp.Compare(sidecarB, sidecarA),
		latestFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func progress(phase corev1.PodPhase) int {
	switch phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	default:
		return 0
	}
}

// latestFirst orders an unknown time before every known one.
func latestFirst(a, b time.Time) int {
	switch {
	case a.IsZero() || b.IsZero():
		return falseFirst(!a.IsZero(), !b.IsZero())
	default:
		return b.Compare(a)
	}
}

func readySince(p *corev1.Pod) time.Time {
	if c := condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func maxRestarts(p *corev1.Pod) (app, sidecar int32) {
	for i := range p.Status.ContainerStatuses {
		app = max(app, p.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; isSidecar(p, s.Name) {
			sidecar = max(sidecar, s.RestartCount)
		}
	}
	return app, sidecar
}
