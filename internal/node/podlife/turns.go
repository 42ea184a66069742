// SPDX-License-Identifier: Apache-2.0

package podlife

import corev1 "k8s.io/api/core/v1"

// Turns returns, for each sidecar of the pod, the containers that must have ended before it is told to end: all main containers
// and the sidecars behind it. Containers without an entry end at once.
func Turns(spec *corev1.PodSpec) map[string][]string {
	turns := map[string][]string{}
	var before []string
	for i := range spec.Containers {
		before = append(before, spec.Containers[i].Name)
	}
	for i := len(spec.InitContainers) - 1; i >= 0; i-- {
		c := &spec.InitContainers[i]
		if !IsSidecar(c) {
			continue
		}
		turns[c.Name] = append([]string(nil), before...)
		before = append(before, c.Name)
	}
	return turns
}
