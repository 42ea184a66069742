// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// selectorFunc reports whether a Job's selector matches a pod's labels.
type selectorFunc func(podLabels map[string]string) bool

// selectorOf returns the selector of j and a text that changes with it. The one in before is used again when it is the same.
func selectorOf(j *batchv1.Job, before shape) (selectorFunc, string, error) {
	// The selector that the API server makes asks for one label; it is worth a short way.
	if s := j.Spec.Selector; s != nil && len(s.MatchExpressions) == 0 && len(s.MatchLabels) == 1 {
		for key, value := range s.MatchLabels {
			return func(podLabels map[string]string) bool { v, ok := podLabels[key]; return ok && v == value }, key + "=" + value, nil
		}
	}
	text := metav1.FormatLabelSelector(j.Spec.Selector)
	if before.selector != nil && before.selectorText == text {
		return before.selector, text, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		return nil, "", fmt.Errorf("reading spec.selector: %w", err)
	}
	return func(podLabels map[string]string) bool { return selector.Matches(labels.Set(podLabels)) }, text, nil
}

// legacyUIDLabel is the label that selectors of Jobs made before Kubernetes v1.27 ask for.
const legacyUIDLabel = "controller-uid"

// HasGeneratedSelector reports whether j selects its pods by its own UID, as the API server has it unless told otherwise.
func HasGeneratedSelector(j *batchv1.Job) bool {
	s := j.Spec.Selector
	if s == nil || len(s.MatchExpressions) > 0 || len(s.MatchLabels) != 1 {
		return false
	}
	return s.MatchLabels[batchv1.ControllerUidLabel] == string(j.UID) || s.MatchLabels[legacyUIDLabel] == string(j.UID)
}

// NamedJob returns the UID of the Job from whose template p was made, "" if p's labels name none.
func NamedJob(p *corev1.Pod) types.UID {
	if uid := p.Labels[batchv1.ControllerUidLabel]; uid != "" {
		return types.UID(uid)
	}
	return types.UID(p.Labels[legacyUIDLabel])
}

// claimOn says what the Job has to do with p.
//
// Differs: pods that a Job which is being deleted controls stay with it even if its selector no longer matches, so that their
// finalizers are taken off and a foreground deletion can end.
func (s shape) claimOn(p *corev1.Pod) claim {
	owner := metav1.GetControllerOfNoCopy(p)
	switch {
	case owner != nil && owner.UID != s.uid:
		return unrelated
	case owner != nil:
		if s.deleting || s.selector(p.Labels) {
			return claimed
		}
		return toRelease
	case p.DeletionTimestamp == nil && !s.deleting && s.selector(p.Labels):
		return toAdopt
	}
	return unrelated
}

// Claims are the pods whose ownership must change before anything is counted, in the order of their names.
type Claims struct {
	Adopt   []Adoption // ownerless, and the selector matches
	Release []PodKey   // ours, and the selector does not match any more: take reference and finalizer off
}

// Adoption asks for the Job to be made the controller of a pod.
type Adoption struct {
	Pod PodKey
	// Track asks for the tracking finalizer too, so that the pod will be counted.
	//
	// Differs: a pod that has ended and carries the UID of this very Job was made by it and may have been counted before it
	// lost its owner; it is not counted again.
	Track bool
	// ResourceVersion is the version of the pod that this was decided on; the adoption may be done on no other.
	ResourceVersion string
}

// Claim returns which pods to adopt and to release.
func Claim(l *Ledger) Claims {
	var c Claims
	if len(l.claims) == 0 {
		return c
	}
	for _, e := range sortedByIndex(l.claims) {
		key := PodKey{e.pod.Name, e.pod.UID}
		if e.claim == toAdopt {
			c.Adopt = append(c.Adopt, Adoption{key, e.state != stateFinished || l.shape.selectsByHand, e.pod.ResourceVersion})
		} else {
			c.Release = append(c.Release, key)
		}
	}
	return c
}
