// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of pod conditions, letter for letter those of kubelet.
const (
	reasonPodCompleted             = "PodCompleted"
	reasonPodFailed                = "PodFailed"
	reasonContainersNotReady       = "ContainersNotReady"
	reasonContainersNotInitialized = "ContainersNotInitialized"
	reasonReadinessGatesNotReady   = "ReadinessGatesNotReady"
	reasonRestartAllStarted        = "RestartAllContainersStarted"
	reasonSandboxNotReady          = "PodSandboxNotReady"
)

// ownedConditions are the conditions that the node writes, in the order in which they stand in a status. All others belong to
// somebody else and are kept as they are.
var ownedConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers,
	corev1.PodInitialized,
	corev1.PodReady,
	corev1.ContainersReady,
	corev1.PodScheduled,
	corev1.AllContainersRestarting,
}

// conditions returns the conditions of the pod in phase, given its new container statuses.
func conditions(f Facts, plan Plan, statuses map[string]*corev1.ContainerStatus, phase corev1.PodPhase) []corev1.PodCondition {
	old := f.Pod.Status.Conditions
	var list []corev1.PodCondition
	for _, c := range old {
		if !slices.Contains(ownedConditions, c.Type) {
			list = append(list, c)
		}
	}
	foreign := list
	ready := containersReady(&f.Pod.Spec, statuses, phase)
	own := []corev1.PodCondition{
		readyToStart(f),
		initialized(f, statuses, phase),
		podReady(f.Pod, ready, foreign),
		ready,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	if mayRestartAll(&f.Pod.Spec) {
		own = append(own, restartingAll(f, plan, phase))
	}
	for _, c := range own {
		c.ObservedGeneration = f.Pod.Generation
		c.LastTransitionTime = metav1.NewTime(f.Now).Rfc3339Copy()
		if before := find(old, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
		list = append(list, c)
	}
	return list
}

func find(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

func readyToStart(f Facts) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}
	switch {
	case f.Ended:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonSandboxNotReady, "pod sandbox is not ready"
	case !f.Prepared:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonSandboxNotReady, "no pod sandbox exists"
	}
	return c
}

func initialized(f Facts, statuses map[string]*corev1.ContainerStatus, phase corev1.PodPhase) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if phase == corev1.PodSucceeded {
		c.Reason = reasonPodCompleted
		return c
	}
	spec := &f.Pod.Spec
	for i := range spec.Containers {
		if s := statuses[spec.Containers[i].Name]; s.State.Running != nil || s.State.Terminated != nil {
			return c
		}
	}
	var incomplete []string
	for i := range spec.InitContainers {
		ic := &spec.InitContainers[i]
		s := statuses[ic.Name]
		done := s.Ready
		if IsSidecar(ic) {
			done = s.Started != nil && *s.Started
		}
		if !done {
			incomplete = append(incomplete, ic.Name)
		}
	}
	if len(incomplete) == 0 {
		return c
	}
	// A pod that was initialized stays so while all its containers are restarted together.
	if before := find(f.Pod.Status.Conditions, corev1.PodInitialized); before != nil && before.Status == corev1.ConditionTrue && mayRestartAll(spec) {
		return c
	}
	c.Status, c.Reason = corev1.ConditionFalse, reasonContainersNotInitialized
	c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	return c
}

func containersReady(spec *corev1.PodSpec, statuses map[string]*corev1.ContainerStatus, phase corev1.PodPhase) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch phase {
	case corev1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case corev1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	default: // it depends on the containers
	}
	var unready []string
	for i := range spec.InitContainers {
		if ic := &spec.InitContainers[i]; IsSidecar(ic) && !statuses[ic.Name].Ready {
			unready = append(unready, ic.Name)
		}
	}
	for i := range spec.Containers {
		if name := spec.Containers[i].Name; !statuses[name].Ready {
			unready = append(unready, name)
		}
	}
	if len(unready) == 0 {
		c.Status = corev1.ConditionTrue
		return c
	}
	c.Reason = reasonContainersNotReady
	c.Message = fmt.Sprintf("containers with unready status: %s", unready)
	return c
}

func podReady(pod *corev1.Pod, containers corev1.PodCondition, foreign []corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if containers.Status != corev1.ConditionTrue {
		return c
	}
	var missing []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch g := find(foreign, gate.ConditionType); {
		case g == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case g.Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, g.Status))
		}
	}
	if len(missing) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonReadinessGatesNotReady, strings.Join(missing, ", ")
	}
	return c
}

func restartingAll(f Facts, plan Plan, phase corev1.PodPhase) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}
	switch phase {
	case corev1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case corev1.PodFailed:
		c.Reason = reasonPodFailed
	default:
		d := decision{Facts: f, spec: &f.Pod.Spec, epoch: plan.Epoch}
		if d.restartAllDue() {
			c.Status, c.Reason = corev1.ConditionTrue, reasonRestartAllStarted
			c.Message = "container exited with restart policy rule"
		}
	}
	return c
}
