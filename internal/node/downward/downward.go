// SPDX-License-Identifier: Apache-2.0

// Package downward reads the values of a pod that the pod itself may see, as environment variables or files.
//
// It is pure. Start reading at Values.
package downward

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
)

// Values are the facts beside the pod itself that its values are read from.
type Values struct {
	Pod     *corev1.Pod
	HostIPs []string // the node's addresses, first the primary one
	PodIPs  []string
	// Allocatable is what a container without a limit may use: the node's allocatable resources.
	Allocatable corev1.ResourceList
}

// Field returns the value at a field path such as "metadata.labels['app']" or "status.podIP".
func (v Values) Field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return v.Pod.Spec.NodeName, nil
	case "spec.serviceAccountName", "spec.serviceAccount":
		return v.Pod.Spec.ServiceAccountName, nil
	case "spec.host":
		return v.Pod.Spec.NodeName, nil
	case "status.hostIP":
		return first(v.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(v.HostIPs, ","), nil
	case "status.podIP":
		return first(v.PodIPs), nil
	case "status.podIPs":
		return strings.Join(v.PodIPs, ","), nil
	}
	value, err := fieldpath.ExtractFieldPathAsString(v.Pod, path)
	if err != nil {
		return "", fmt.Errorf("reading field %q of the pod: %w", path, err)
	}
	return value, nil
}

// Resource returns a request or limit of a container as a whole number of divisors, rounded up. The container is the one that the
// selector names, or own. A missing limit is the pod's limit, or what the node can allocate.
func (v Values) Resource(s *corev1.ResourceFieldSelector, own *corev1.Container) (string, error) {
	c := own
	if s.ContainerName != "" {
		c = v.container(s.ContainerName)
	}
	if c == nil {
		return "", fmt.Errorf("container %q not found", s.ContainerName)
	}
	kind, name, ok := strings.Cut(s.Resource, ".")
	if !ok || !known(name) {
		return "", fmt.Errorf("unsupported container resource : %v", s.Resource)
	}
	divisor := s.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	var quantity resource.Quantity
	switch kind {
	case "limits":
		quantity = v.limit(c, corev1.ResourceName(name))
	case "requests":
		quantity = c.Resources.Requests[corev1.ResourceName(name)]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", s.Resource)
	}
	if name == string(corev1.ResourceCPU) {
		return ceil(quantity.MilliValue(), divisor.MilliValue()), nil
	}
	return ceil(quantity.Value(), divisor.Value()), nil
}

func known(resourceName string) bool {
	switch corev1.ResourceName(resourceName) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	default:
		return strings.HasPrefix(resourceName, corev1.ResourceHugePagesPrefix)
	}
}

func (v Values) limit(c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	if q, ok := c.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	if v.Pod.Spec.Resources != nil {
		if q, ok := v.Pod.Spec.Resources.Limits[name]; ok && !q.IsZero() {
			return q
		}
	}
	return v.Allocatable[name]
}

func (v Values) container(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{v.Pod.Spec.Containers, v.Pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func ceil(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
