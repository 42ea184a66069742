// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// PodTrouble returns why a pending pod does not get going, as "Reason: message", or "" if it is merely on its way.
func PodTrouble(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return describe(c.Reason, c.Message)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return describe(w.Reason, w.Message)
			}
		}
	}
	return ""
}

// PodIndex returns the completion index of an Indexed Job's pod, and false for a pod without one.
func PodIndex(pod *corev1.Pod) (int, bool) {
	index, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return index, err == nil && index >= 0
}

func describe(reason, message string) string {
	message, _, _ = strings.Cut(message, "\n")
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	default:
		return reason + ": " + message
	}
}
