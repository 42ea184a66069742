// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// pod returns a pod that requests so much.
func pod(node string, phase corev1.PodPhase, requests corev1.ResourceList) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	if requests != nil {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: requests}
	}
	return p
}

func TestAllocated(t *testing.T) {
	one := amounts("cpu", "500m", "memory", "1Gi", "nvidia.com/gpu", "1")
	going := pod("n", corev1.PodRunning, one)
	going.DeletionTimestamp = &metav1.Time{}
	cases := map[string]struct {
		pods []*corev1.Pod
		want corev1.ResourceList
	}{
		"nothing has nothing": {nil, amounts()},
		"what runs and what has a node is counted": {
			[]*corev1.Pod{pod("n", corev1.PodRunning, one), pod("m", corev1.PodPending, one)},
			amounts("cpu", "1", "memory", "2Gi", "nvidia.com/gpu", "2", "pods", "2"),
		},
		"what waits for a node is not":         {[]*corev1.Pod{pod("", corev1.PodPending, one)}, amounts()},
		"what has ended is not":                {[]*corev1.Pod{pod("n", corev1.PodSucceeded, one), pod("n", corev1.PodFailed, one)}, amounts()},
		"what is to be deleted is not":         {[]*corev1.Pod{going}, amounts()},
		"what requests nothing is a pod still": {[]*corev1.Pod{pod("n", corev1.PodRunning, nil)}, amounts("pods", "1")},
		"none of a resource is not named":      {[]*corev1.Pod{pod("n", corev1.PodRunning, amounts("cpu", "0", "memory", "5"))}, amounts("memory", "5", "pods", "1")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Allocated(tc.pods)); diff != "" {
				t.Errorf("allocated (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(amounts("cpu", "500m", "memory", "1Gi", "nvidia.com/gpu", "1"), one); diff != "" {
		t.Errorf("what a pod requests was changed:\n%s", diff)
	}
}

func TestBelow(t *testing.T) {
	parents := map[string]string{"root": "", "a": "root", "b": "root", "a1": "a", "a2": "a", "a11": "a1", "x": "y", "y": "x"}
	for name, want := range map[string][]string{
		"a11": {"a11"}, "a": {"a", "a1", "a11", "a2"}, "root": {"a", "a1", "a11", "a2", "b", "root"}, "x": {"x", "y"}, "gone": {"gone"},
	} {
		if diff := cmp.Diff(want, Below(name, parents)); diff != "" {
			t.Errorf("below %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatIsAllocatedIsTold(t *testing.T) {
	with := func(allocated corev1.ResourceList) *scheduling.Queue {
		return newQueue(scheduling.QueueOpen, func(q *scheduling.Queue) { q.Status.Allocated = allocated })
	}
	cases := map[string]struct {
		had, has corev1.ResourceList
		want     Plan
	}{
		"as long as it has changed": {nil, amounts("cpu", "1"), Plan{Status: &scheduling.QueueStatus{State: scheduling.QueueOpen, Allocated: amounts("cpu", "1")}}},
		"when there is none left":   {amounts("cpu", "1"), amounts(), Plan{Status: &scheduling.QueueStatus{State: scheduling.QueueOpen, Allocated: amounts()}}},
		"and not twice":             {amounts("cpu", "1000m"), amounts("cpu", "1"), Plan{}},
		"and nothing is nothing":    {nil, amounts(), Plan{}},
		"unless somebody else does": {amounts("cpu", "7"), nil, Plan{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(Observed{Queue: with(tc.had), Allocated: tc.has})); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
