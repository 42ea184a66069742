// SPDX-License-Identifier: Apache-2.0

package downward

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func values() Values {
	return Values{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "p", Namespace: "ns", UID: "u",
				Labels: map[string]string{"app": "x", "b": "y"}, Annotations: map[string]string{"Note": "hi"},
			},
			Spec: corev1.PodSpec{
				NodeName: "n", ServiceAccountName: "sa",
				Containers: []corev1.Container{
					{Name: "c", Resources: corev1.ResourceRequirements{
						Limits:   corev1.ResourceList{"cpu": resource.MustParse("1500m")},
						Requests: corev1.ResourceList{"memory": resource.MustParse("100Mi")},
					}},
					{Name: "d"},
				},
			},
		},
		HostIPs:     []string{"127.0.0.1", "::1"},
		PodIPs:      []string{"127.0.0.1"},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")},
	}
}

func TestField(t *testing.T) {
	cases := map[string]string{
		"metadata.name":                "p",
		"metadata.namespace":           "ns",
		"metadata.uid":                 "u",
		"metadata.labels":              "app=\"x\"\nb=\"y\"",
		"metadata.labels['app']":       "x",
		"metadata.labels['none']":      "",
		"metadata.annotations['Note']": "hi",
		"spec.nodeName":                "n",
		"spec.serviceAccountName":      "sa",
		"status.hostIP":                "127.0.0.1",
		"status.hostIPs":               "127.0.0.1,::1",
		"status.podIP":                 "127.0.0.1",
		"status.podIPs":                "127.0.0.1",
	}
	for path, want := range cases {
		t.Run(path, func(t *testing.T) {
			if got, err := values().Field(path); err != nil || got != want {
				t.Errorf("Field = %q, %v; want %q", got, err, want)
			}
		})
	}
	if _, err := values().Field("spec.containers"); err == nil {
		t.Error("a field that no pod may see was read")
	}
}

func TestResource(t *testing.T) {
	cases := map[string]struct {
		selector corev1.ResourceFieldSelector
		want     string
	}{
		"whole cores are rounded up":             {corev1.ResourceFieldSelector{Resource: "limits.cpu"}, "2"},
		"thousandths of a core":                  {corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")}, "1500"},
		"a missing limit is the node's":          {corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Gi")}, "8"},
		"a missing request is nothing":           {corev1.ResourceFieldSelector{Resource: "requests.cpu"}, "0"},
		"a request in bytes":                     {corev1.ResourceFieldSelector{Resource: "requests.memory"}, "104857600"},
		"another container of the pod":           {corev1.ResourceFieldSelector{ContainerName: "d", Resource: "limits.cpu"}, "4"},
		"a resource that the node does not have": {corev1.ResourceFieldSelector{Resource: "limits.ephemeral-storage"}, "0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := values()
			if got, err := v.Resource(&tc.selector, &v.Pod.Spec.Containers[0]); err != nil || got != tc.want {
				t.Errorf("Resource = %q, %v; want %q", got, err, tc.want)
			}
		})
	}
	for _, bad := range []corev1.ResourceFieldSelector{{Resource: "limits.gpu"}, {Resource: "cpu"}, {ContainerName: "x", Resource: "limits.cpu"}} {
		v := values()
		if got, err := v.Resource(&bad, &v.Pod.Spec.Containers[0]); err == nil {
			t.Errorf("Resource(%+v) = %q, want an error", bad, got)
		}
	}
}
