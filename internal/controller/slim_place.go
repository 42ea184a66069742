// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// place keeps of a pod where it is, who places it and, until it has ended, what it requests in sum, in Spec.Resources.
func (s *slimmer) place(p *corev1.Pod) corev1.PodSpec {
	spec := corev1.PodSpec{NodeName: s.texts.one(p.Spec.NodeName)}
	if p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		spec.SchedulerName = s.texts.one(p.Spec.SchedulerName)
	}
	if !podstate.IsFinished(p) {
		spec.Resources = s.requests.of(p)
	}
	return spec
}

// unplaced keeps why a pod cannot be placed; nil: nobody says that it cannot.
func (s *slimmer) unplaced(conditions []corev1.PodCondition) []corev1.PodCondition {
	i := slices.IndexFunc(conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
	if i < 0 {
		return nil
	}
	c := &conditions[i]
	return []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: c.LastTransitionTime,
		Reason: s.texts.one(c.Reason), Message: s.texts.one(c.Message),
	}}
}

// groupAnnotation keeps the PodGroup of Volcano that a pod belongs to.
func (s *slimmer) groupAnnotation(annotations map[string]string) map[string]string {
	if name := annotations[batch.GroupNameKey]; name != "" {
		return map[string]string{batch.GroupNameKey: s.texts.one(name)}
	}
	return nil
}

// requests gives equal requests the same memory. It is safe for concurrent use. What it returns is never changed.
type requests struct {
	mu   sync.Mutex
	seen map[string]*corev1.ResourceRequirements
}

// maxSeenRequests bounds how many are remembered; beyond it, remembering starts afresh.
const maxSeenRequests = 1 << 12

// of returns what p requests in sum; nil: nothing.
func (r *requests) of(p *corev1.Pod) *corev1.ResourceRequirements {
	sum := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	if len(sum) == 0 {
		return nil
	}
	names := make([]string, 0, len(sum))
	for name, q := range sum {
		names = append(names, string(name)+"="+strconv.FormatInt(q.MilliValue(), 10))
	}
	slices.Sort(names)
	key := strings.Join(names, ",")
	r.mu.Lock()
	defer r.mu.Unlock()
	if same := r.seen[key]; same != nil {
		return same
	}
	if r.seen == nil || len(r.seen) >= maxSeenRequests {
		r.seen = map[string]*corev1.ResourceRequirements{}
	}
	r.seen[key] = &corev1.ResourceRequirements{Requests: sum}
	return r.seen[key]
}
