// SPDX-License-Identifier: Apache-2.0

package controller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// vcPod keeps of a pod of Volcano's Jobs what decides about it: whose it is, how it is doing, how its containers ended.
func (s *slimmer) vcPod(p *corev1.Pod, spec corev1.PodSpec) *corev1.Pod {
	var kept map[string]string
	for _, key := range [...]string{batch.VersionKey, batch.OutOfSyncKey, vcjob.RestartKey, vcjob.EvictedKey, batch.GroupNameKey} {
		if v, ok := p.Annotations[key]; ok {
			if kept == nil {
				kept = make(map[string]string, 1)
			}
			kept[key] = s.texts.one(v)
		}
	}
	p.Annotations = kept
	spec.InitContainers = s.sidecars(p.Spec.InitContainers)
	p.Spec = spec
	unplaced := s.unplaced(p.Status.Conditions)
	if unplaced == nil {
		unplaced = s.conditions(p.Status.Conditions, false)
	}
	p.Status = corev1.PodStatus{
		Phase:                 p.Status.Phase,
		PodIP:                 p.Status.PodIP, // for the probes of JobFlows
		Conditions:            unplaced,
		ContainerStatuses:     s.vcStatuses(p.Status.ContainerStatuses),
		InitContainerStatuses: s.vcStatuses(p.Status.InitContainerStatuses),
	}
	return p
}

func (s *slimmer) vcStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := s.statuses(statuses)
	for i := range kept {
		kept[i].Ready = statuses[i].Ready
		if end := statuses[i].LastTerminationState.Terminated; end != nil {
			kept[i].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: end.FinishedAt}
		}
	}
	return kept
}

// vcjob keeps everything of a Job that goes on, and of one that is never left all but its templates.
func (s *slimmer) vcjob(obj any) (any, error) {
	j, ok := obj.(*batch.Job)
	if !ok {
		return obj, nil
	}
	j.ManagedFields = nil
	if vcjob.IsFinal(j.Status.State.Phase) {
		for i := range j.Spec.Tasks {
			j.Spec.Tasks[i].Template = corev1.PodTemplateSpec{}
		}
	}
	return j, nil
}

// unmanaged drops what is only for those who apply objects.
func (s *slimmer) unmanaged(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
