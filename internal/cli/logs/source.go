// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/cli/workload"
)

// source is one log: of one container, and of the present run or the one before it.
type source struct {
	pod       *corev1.Pod
	container string
	previous  bool
	gone      bool // the pod is, and its log was kept
	alone     bool // the pod has no other container whose log is shown
}

// label is what a prefix says about the source: the index or pod, and the container if there are several.
func (s source) label() string {
	label := s.pod.Name
	if index, ok := workload.PodIndex(s.pod); ok {
		label = strconv.Itoa(index)
	}
	if !s.alone {
		label += "/" + s.container
	}
	return label
}

// inOrder is the order in which pods are shown: by index, creation, name. Those without an index come first.
func inOrder(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(order(a), order(b)), workload.Older(a, b))
}

func order(pod *corev1.Pod) int {
	if index, ok := workload.PodIndex(pod); ok {
		return index
	}
	return -1
}

// wants reports whether the pod is one of those asked for, whatever its state.
func (o *Options) wants(pod *corev1.Pod) bool {
	if len(o.Indexes) == 0 {
		return true
	}
	index, ok := workload.PodIndex(pod)
	return ok && slices.Contains(o.Indexes, index)
}

// containers returns the names of the containers asked for, in the order in which they start.
func (o *Options) containers(pod *corev1.Pod) []string {
	var names []string
	add := func(containers []corev1.Container, unasked bool) {
		for _, c := range containers {
			if c.Name == o.Container || o.Container == "" && (unasked || o.All) {
				names = append(names, c.Name)
			}
		}
	}
	add(pod.Spec.InitContainers, false) // sidecars are init containers too
	add(pod.Spec.Containers, true)
	return names
}

func hasContainer(pod *corev1.Pod, name string) bool {
	is := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.InitContainers, is) || slices.ContainsFunc(pod.Spec.Containers, is)
}

// sources returns the logs of a pod that are asked for and can be read in its present state.
func (o *Options) sources(pod *corev1.Pod) []source {
	if !o.wants(pod) {
		return nil
	}
	var all []source
	names := o.containers(pod)
	for _, name := range names {
		status := containerStatus(pod, name)
		if status == nil {
			continue
		}
		s := source{pod: pod, container: name, alone: len(names) == 1}
		restarted := status.RestartCount > 0
		last := status.LastTerminationState.Terminated
		if restarted && (o.All || o.Failed && (last == nil || last.ExitCode != 0)) {
			before := s
			before.previous = true
			all = append(all, before)
		}
		// While a container waits for its restart, its present log is that of the run before.
		started := status.State.Running != nil || status.State.Terminated != nil
		if (started || restarted && !o.All && !o.Failed) && (!o.Failed || pod.Status.Phase == corev1.PodFailed) {
			all = append(all, s)
		}
	}
	return all
}

func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}
