// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

var everything = labels.Everything()

// choose returns the volume for a claim: the one that the claim names or that is promised to it, otherwise the smallest free one that
// fits; nil when there is none.
func choose(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume) *corev1.PersistentVolume {
	var best *corev1.PersistentVolume
	for _, pv := range volumes {
		if pv.DeletionTimestamp != nil {
			continue
		}
		if name := claim.Spec.VolumeName; name != "" {
			if pv.Name == name && (pv.Spec.ClaimRef == nil || promised(pv, claim)) {
				return pv
			}
			continue
		}
		if promised(pv, claim) {
			return pv
		}
		if pv.Spec.ClaimRef != nil || !fits(claim, pv) {
			continue
		}
		if best == nil || smaller(pv, best) {
			best = pv
		}
	}
	return best
}

// promised reports whether a volume is for this claim alone.
func promised(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
}

// fits reports whether a free volume has what a claim asks for.
func fits(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	if pv.Spec.StorageClassName != class || modeOf(pv.Spec.VolumeMode) != modeOf(claim.Spec.VolumeMode) {
		return false
	}
	for _, mode := range claim.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, mode) {
			return false
		}
	}
	have, want := pv.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if have.Cmp(want) < 0 {
		return false
	}
	if claim.Spec.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(claim.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pv.Labels)) {
			return false
		}
	}
	return true
}

func modeOf(mode *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if mode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *mode
}

// smaller orders volumes by capacity, then by name, so that the choice does not depend on the order of a cache.
func smaller(a, b *corev1.PersistentVolume) bool {
	x, y := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
	if c := x.Cmp(y); c != 0 {
		return c < 0
	}
	return strings.Compare(a.Name, b.Name) < 0
}
