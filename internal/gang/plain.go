// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"cmp"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Annotations of plain pods that say how close to each other they must be placed.
const (
	TopologyModeKey = "volcano.sh/network-topology-mode"
	TopologyTierKey = "volcano.sh/network-topology-highest-tier"
)

// PlainName returns the name of the PodGroup of a pod that no Job of Volcano has made: one for all pods of a controller.
func PlainName(p *corev1.Pod) string {
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		return PlainNameOf(ref.UID)
	}
	return PlainNameOf(p.UID)
}

// PlainNameOf returns the name of the PodGroup of the pods that the object of that UID controls.
func PlainNameOf(uid types.UID) string { return scheduling.PlainGroupPrefix + string(uid) }

// HasMembers reports whether a controller of pods may say in its annotations how many of them must be placed at once.
func HasMembers(ref *metav1.OwnerReference) bool {
	if ref == nil {
		return false
	}
	switch ref.Kind {
	case "ReplicaSet", "DaemonSet", "StatefulSet":
		return ref.APIVersion == "apps/v1"
	case "Job":
		return ref.APIVersion == "batch/v1"
	}
	return false
}

// PlainGroup returns the PodGroup of p. inherited are the annotations of its controller, where they count; nil: they do not.
//
// Source: Volcano, as specified in section 5.5 of its behaviour.
func PlainGroup(p *corev1.Pod, inherited map[string]string) *scheduling.PodGroup {
	members := int32(1)
	if n, err := strconv.ParseInt(inherited[scheduling.MinMemberKey], 10, 32); err == nil && n >= 0 {
		members = int32(n)
	}
	least := corev1.ResourceList{}
	AddTimes(least, Usage(&p.Spec), members)
	g := &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: PlainName(p), OwnerReferences: p.OwnerReferences, Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec: scheduling.PodGroupSpec{
			MinMember: members, MinResources: &least, PriorityClassName: p.Spec.PriorityClassName,
			Queue: cmp.Or(p.Annotations[scheduling.QueueNameKey], batch.DefaultQueue), NetworkTopology: plainTopology(p),
		},
		Status: scheduling.PodGroupStatus{Phase: scheduling.GroupPending},
	}
	if metav1.GetControllerOfNoCopy(p) == nil {
		g.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))}
	}
	for key, value := range inherited {
		if strings.HasPrefix(key, "volcano.sh/") {
			g.Annotations[key] = value
		}
	}
	for _, key := range [...]string{batch.PreemptableKey, batch.CooldownKey} {
		copyKey(g.Annotations, p.Annotations, key)
		copyKey(g.Labels, p.Labels, key)
	}
	copyKey(g.Annotations, p.Annotations, batch.RevocableZoneKey)
	if !copyKey(g.Annotations, p.Annotations, batch.MinAvailableKey) {
		copyKey(g.Annotations, p.Annotations, batch.MaxUnavailableKey)
	}
	return g
}

func copyKey(to, from map[string]string, key string) bool {
	value, there := from[key]
	if there {
		to[key] = value
	}
	return there
}

func plainTopology(p *corev1.Pod) *scheduling.NetworkTopologySpec {
	mode, hasMode := p.Annotations[TopologyModeKey]
	tier, err := strconv.Atoi(p.Annotations[TopologyTierKey])
	if !hasMode && err != nil {
		return nil
	}
	t := &scheduling.NetworkTopologySpec{Mode: "hard"}
	if mode = strings.ToLower(mode); mode == "soft" {
		t.Mode = "soft"
	}
	if err == nil {
		t.HighestTierAllowed = &tier
	}
	return t
}

// UpdatedPlain returns what is to be stored in the place of have, so that it is as want; nil: it is. Its status stays.
func UpdatedPlain(have, want *scheduling.PodGroup) *scheduling.PodGroup {
	next := have.DeepCopy()
	next.Spec.MinMember, next.Spec.MinResources, next.Spec.PriorityClassName = want.Spec.MinMember, want.Spec.MinResources, want.Spec.PriorityClassName
	next.Spec.NetworkTopology = want.Spec.NetworkTopology
	if want.Spec.Queue != batch.DefaultQueue { // otherwise admission may have taken that of the namespace
		next.Spec.Queue = want.Spec.Queue
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	maps.Copy(next.Annotations, want.Annotations)
	maps.Copy(next.Labels, want.Labels)
	if sameGroup(have, next) {
		return nil
	}
	return next
}

func sameGroup(a, b *scheduling.PodGroup) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Annotations, b.Annotations) && maps.Equal(a.Labels, b.Labels)
}
