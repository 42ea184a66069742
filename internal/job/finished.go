// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNoFinishTime says that the condition which ended a Job does not tell when.
var ErrNoFinishTime = errors.New("the condition that ended the Job has no transition time")

// Expiry returns when a finished Job must be deleted; limited is false for a Job that goes on, stays for ever, or is being
// deleted already. It fails with ErrNoFinishTime only.
//
// Source: Kubernetes v1.37 TTL-after-finished controller.
func Expiry(j *batchv1.Job) (at time.Time, limited bool, err error) {
	final := Finished(j)
	if final == nil || j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return time.Time{}, false, nil
	}
	if final.LastTransitionTime.IsZero() {
		return time.Time{}, false, fmt.Errorf("reading when Job %s/%s ended: %w", j.Namespace, j.Name, ErrNoFinishTime)
	}
	return final.LastTransitionTime.Add(seconds(int64(*j.Spec.TTLSecondsAfterFinished))), true, nil
}

// ManagedElsewhere reports whether another controller than manager looks after j. manager is the value of spec.managedBy that
// means us; a Job without one belongs to us too, unless onlyMarked says that such Jobs are left to the built-in controller.
func ManagedElsewhere(j *batchv1.Job, manager string, onlyMarked bool) bool {
	if j.Spec.ManagedBy == nil {
		return onlyMarked
	}
	return *j.Spec.ManagedBy != manager
}

// IsOrphan reports whether the tracking finalizer of p keeps it for nobody: the pod is controlled by no Job that will still
// count it. owner is the Job that p's controller reference means, the same UID included, or nil when there is none;
// elsewhere says that another controller looks after that Job, or after pods without one.
func IsOrphan(p *corev1.Pod, owner *batchv1.Job, elsewhere bool) bool {
	if !IsTracked(p) {
		return false
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil && !IsJobReference(ref) {
		return false
	}
	return !elsewhere && (owner == nil || Finished(owner) != nil)
}

// IsJobReference reports whether ref means a batch/v1 Job.
func IsJobReference(ref *metav1.OwnerReference) bool {
	return ref.Kind == "Job" && ref.APIVersion == batchv1.SchemeGroupVersion.String()
}
