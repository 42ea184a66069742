// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNoLabels says that a pod made from the Job's template would have no labels, so that no selector could find it.
var ErrNoLabels = errors.New("unable to create pods, no labels")

// NewPod returns the pod that c asks for. It shares memory with the Job's template and must not be changed. It fails with
// ErrNoLabels only.
func NewPod(j *batchv1.Job, c Creation) (*corev1.Pod, error) {
	template := &j.Spec.Template
	if len(template.Labels) == 0 {
		return nil, ErrNoLabels
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            c.Name,
			GenerateName:    generateName(j.Name, c.Index),
			Namespace:       j.Namespace,
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			Finalizers:      tracked(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*controllerRef(j)},
		},
		Spec: template.Spec,
	}
	if text := j.Annotations[RetainFailedLogsAnnotation]; text != "" {
		pod.Annotations = with(pod.Annotations, RetainFailedLogsAnnotation, text) // nodes see no Jobs
	}
	if c.Index == noIndex {
		return pod, nil
	}
	index := strconv.Itoa(c.Index)
	pod.Labels = with(pod.Labels, batchv1.JobCompletionIndexAnnotation, index)
	pod.Annotations = with(pod.Annotations, batchv1.JobCompletionIndexAnnotation, index)
	if j.Spec.BackoffLimitPerIndex != nil {
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(int(c.Failures))
		if c.Ignored > 0 {
			pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(int(c.Ignored))
		}
	}
	pod.Spec.Hostname = j.Name + "-" + index
	pod.Spec.InitContainers = withIndexVariable(pod.Spec.InitContainers)
	pod.Spec.Containers = withIndexVariable(pod.Spec.Containers)
	return pod, nil
}

func tracked(finalizers []string) []string {
	if slices.Contains(finalizers, batchv1.JobTrackingFinalizer) {
		return finalizers
	}
	return append(slices.Clone(finalizers), batchv1.JobTrackingFinalizer)
}

func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// withIndexVariable returns copies of the containers in which the completion index is a variable, unless they have it already.
func withIndexVariable(containers []corev1.Container) []corev1.Container {
	out := slices.Clone(containers)
	for i := range out {
		if slices.ContainsFunc(out[i].Env, func(v corev1.EnvVar) bool { return v.Name == envCompletionIndex }) {
			continue
		}
		out[i].Env = append(slices.Clone(out[i].Env), corev1.EnvVar{
			Name: envCompletionIndex,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation),
			}},
		})
	}
	return out
}
