// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/node/process"
)

// Labels under which the runtime keeps what the node must know of a container that it finds again.
const (
	labelUID       = "drover.dev/pod-uid"
	labelNamespace = "drover.dev/pod-namespace"
	labelName      = "drover.dev/pod-name"
	labelContainer = "drover.dev/container"
	labelAttempt   = "drover.dev/attempt"
	labelEpoch     = "drover.dev/epoch"
	labelBackOff   = "drover.dev/back-off"
	labelGrace     = "drover.dev/grace-seconds" // for a pod whose object is gone
	labelImage     = "drover.dev/image"
)

// idPrefix goes before the runtime's ID in the status of a container.
const idPrefix = "drover://"

// containerID names one attempt of one container: no other start of anything ever has the same name.
func containerID(uid types.UID, container string, attempt int32) string {
	return fmt.Sprintf("%s.%s.%d", uid, container, attempt)
}

// attemptOf returns the number of the attempt that an ID in a status names, and false for an ID that is not ours.
func attemptOf(statusID string) (int32, bool) {
	id, ok := strings.CutPrefix(statusID, idPrefix)
	if !ok {
		return 0, false
	}
	dot := strings.LastIndexByte(id, '.')
	n, err := strconv.ParseInt(id[dot+1:], 10, 32)
	if dot < 0 || err != nil {
		return 0, false
	}
	return int32(n), true
}

// identity is what the labels of a container say.
type identity struct {
	uid       types.UID
	namespace string
	name      string
	container string
	attempt   int32
	epoch     int32
	backOff   time.Duration
	grace     time.Duration
	image     string
}

func (i identity) labels() map[string]string {
	return map[string]string{
		labelUID:       string(i.uid),
		labelNamespace: i.namespace,
		labelName:      i.name,
		labelContainer: i.container,
		labelAttempt:   strconv.Itoa(int(i.attempt)),
		labelEpoch:     strconv.Itoa(int(i.epoch)),
		labelBackOff:   i.backOff.String(),
		labelGrace:     strconv.Itoa(int(i.grace / time.Second)),
		labelImage:     i.image,
	}
}

// identify reads the labels back; an error means that this is no container of a node.
func identify(labels map[string]string) (identity, error) {
	number := func(key string) (int32, error) {
		n, err := strconv.ParseInt(labels[key], 10, 32)
		if err != nil {
			return 0, fmt.Errorf("label %s: %w", key, err)
		}
		return int32(n), nil
	}
	i := identity{
		uid:       types.UID(labels[labelUID]),
		namespace: labels[labelNamespace],
		name:      labels[labelName],
		container: labels[labelContainer],
		image:     labels[labelImage],
	}
	if i.uid == "" || i.container == "" {
		return i, fmt.Errorf("labels name no container of a pod")
	}
	var err error
	if i.attempt, err = number(labelAttempt); err != nil {
		return i, err
	}
	if i.epoch, err = number(labelEpoch); err != nil {
		return i, err
	}
	grace, err := number(labelGrace)
	if err != nil {
		return i, err
	}
	i.grace = time.Duration(grace) * time.Second
	if i.backOff, err = time.ParseDuration(labels[labelBackOff]); err != nil {
		return i, fmt.Errorf("label %s: %w", labelBackOff, err)
	}
	return i, nil
}

// containersOf returns all containers of a pod: init containers, main containers, ephemeral ones.
func containersOf(spec *corev1.PodSpec) []*corev1.Container {
	all := make([]*corev1.Container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		all = append(all, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		all = append(all, &spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		all = append(all, (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

func findContainer(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, c := range containersOf(spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// podKey is how logs name a pod.
func podKey(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// RunningPods returns how many pods the running containers among statuses belong to.
func RunningPods(statuses []process.Status) int {
	pods := map[string]bool{}
	for _, s := range statuses {
		if s.State == process.Running {
			pods[s.Spec.Labels[labelUID]] = true
		}
	}
	return len(pods)
}
