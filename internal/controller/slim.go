// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/job"
	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// slimmer cuts objects down to what controllers look at before they go into a cache, so that the caches of a large cluster
// stay small. Its methods are cache.TransformFuncs: they change the object they are given, and pass other kinds through.
type slimmer struct {
	texts    texts
	requests requests
}

// pod keeps of a pod whose it is, how it is doing and how it ended.
func (s *slimmer) pod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	s.meta(&p.ObjectMeta)
	p.TypeMeta = metav1.TypeMeta{}
	spec := s.place(p)
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil && owner.Kind != "Job" {
		p.Labels, p.Finalizers = nil, nil // somebody else's: only whose it is matters, and where it is
		p.Annotations = s.groupAnnotation(p.Annotations)
		p.Spec, p.Status = spec, corev1.PodStatus{Phase: p.Status.Phase, Conditions: s.unplaced(p.Status.Conditions)}
		return p, nil
	}
	if vcjob.IsOwner(metav1.GetControllerOfNoCopy(p)) {
		return s.vcPod(p, spec), nil
	}
	p.Annotations = s.jobAnnotations(p.Annotations)
	spec.InitContainers = s.sidecars(p.Spec.InitContainers)
	p.Spec = spec
	over := podstate.IsFinished(p) && !job.IsTracked(p)
	p.Status = corev1.PodStatus{
		Phase:                 p.Status.Phase,
		Conditions:            s.conditions(p.Status.Conditions, over),
		ContainerStatuses:     s.statuses(p.Status.ContainerStatuses),
		InitContainerStatuses: s.statuses(p.Status.InitContainerStatuses),
	}
	return p, nil
}

// job keeps everything of a Job that goes on, as its metadata goes back with every status, and of a finished one all but its
// template.
func (s *slimmer) job(obj any) (any, error) {
	j, ok := obj.(*batchv1.Job)
	if !ok {
		return obj, nil
	}
	j.TypeMeta = metav1.TypeMeta{}
	j.ManagedFields = nil
	if job.Finished(j) != nil {
		j.Spec.Template = corev1.PodTemplateSpec{}
	}
	return j, nil
}

func (s *slimmer) meta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	m.GenerateName = ""
	m.Namespace = s.texts.one(m.Namespace)
	for k, v := range m.Labels {
		m.Labels[s.texts.one(k)] = s.texts.one(v)
	}
	for i := range m.OwnerReferences {
		ref := &m.OwnerReferences[i]
		ref.APIVersion, ref.Kind, ref.Name = s.texts.one(ref.APIVersion), s.texts.one(ref.Kind), s.texts.one(ref.Name)
		ref.UID = types.UID(s.texts.one(string(ref.UID)))
	}
	for i := range m.Finalizers {
		m.Finalizers[i] = s.texts.one(m.Finalizers[i])
	}
}

func (s *slimmer) jobAnnotations(m map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range [...]string{
		batchv1.JobCompletionIndexAnnotation, batchv1.JobIndexFailureCountAnnotation, batchv1.JobIndexIgnoredFailureCountAnnotation, batch.GroupNameKey,
	} {
		if v, ok := m[key]; ok {
			if kept == nil {
				kept = make(map[string]string, 1)
			}
			kept[key] = s.texts.one(v)
		}
	}
	return kept
}

// sidecars keeps the init containers that go on running beside the others.
func (s *slimmer) sidecars(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range containers {
		if c := &containers[i]; c.RestartPolicy != nil {
			kept = append(kept, corev1.Container{Name: s.texts.one(c.Name), RestartPolicy: c.RestartPolicy})
		}
	}
	return kept
}

// conditions keeps all of them, as a Job's rules may name any, but of a pod that is counted only Ready.
func (s *slimmer) conditions(conditions []corev1.PodCondition, onlyReady bool) []corev1.PodCondition {
	kept := conditions[:0]
	for i := range conditions {
		c := &conditions[i]
		if onlyReady && c.Type != corev1.PodReady {
			continue
		}
		kept = append(kept, corev1.PodCondition{
			Type: corev1.PodConditionType(s.texts.one(string(c.Type))), Status: corev1.ConditionStatus(s.texts.one(string(c.Status))),
			LastTransitionTime: c.LastTransitionTime,
		})
	}
	clear(conditions[len(kept):])
	return kept
}

func (s *slimmer) statuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	kept := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		c := &statuses[i]
		kept[i] = corev1.ContainerStatus{Name: s.texts.one(c.Name), RestartCount: c.RestartCount}
		if t := c.State.Terminated; t != nil {
			kept[i].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, FinishedAt: t.FinishedAt}
		}
	}
	return kept
}

// texts gives equal texts the same memory. It is safe for concurrent use.
type texts struct {
	mu   sync.Mutex
	seen map[string]string
}

// maxTexts bounds how many texts are remembered; beyond it, remembering starts afresh.
const maxTexts = 1 << 14

func (t *texts) one(text string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if same, ok := t.seen[text]; ok {
		return same
	}
	if t.seen == nil || len(t.seen) >= maxTexts {
		t.seen = make(map[string]string)
	}
	t.seen[text] = text
	return text
}
