// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// plainPod returns a pod that requests one CPU.
func plainPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func owned(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "set", Controller: ptr.To(true)}}
}

// cpus returns what n pods of one CPU use.
func cpus(n int64) *corev1.ResourceList {
	q := *resource.NewQuantity(n, resource.DecimalSI)
	return &corev1.ResourceList{"cpu": q, "requests.cpu": q, "pods": q, "count/pods": q}
}

func TestPlainGroup(t *testing.T) {
	for name, tc := range map[string]struct {
		p         *corev1.Pod
		inherited map[string]string
		want      *scheduling.PodGroup
	}{
		"a pod without an owner has its own": {
			plainPod(), nil,
			&scheduling.PodGroup{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "podgroup-u", OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)},
				}},
				Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: "default", MinResources: cpus(1)},
			},
		},
		"the pods of a set share one, as large as the set says": {
			plainPod(owned),
			map[string]string{scheduling.MinMemberKey: "3", "volcano.sh/sla-waiting-time": "1h", "other": "x"},
			&scheduling.PodGroup{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "podgroup-set", OwnerReferences: plainPod(owned).OwnerReferences,
					Annotations: map[string]string{"volcano.sh/sla-waiting-time": "1h"},
				},
				Spec: scheduling.PodGroupSpec{MinMember: 3, Queue: "default", MinResources: cpus(3)},
			},
		},
		"what is no number means one": {
			plainPod(owned),
			map[string]string{scheduling.MinMemberKey: "-3"},
			&scheduling.PodGroup{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "podgroup-set", OwnerReferences: plainPod(owned).OwnerReferences},
				Spec:       scheduling.PodGroupSpec{MinMember: 1, Queue: "default", MinResources: cpus(1)},
			},
		},
		"the pod chooses queue, priority, topology and how it may be disturbed": {
			plainPod(owned, func(p *corev1.Pod) {
				p.Spec.PriorityClassName = "high"
				p.Annotations = map[string]string{
					scheduling.QueueNameKey: "q", TopologyModeKey: "Soft", TopologyTierKey: "2", "volcano.sh/preemptable": "true",
					"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "2", "volcano.sh/revocable-zone": "z",
				}
				p.Labels = map[string]string{"volcano.sh/cooldown-time": "1m", "app": "x"}
			}), nil,
			&scheduling.PodGroup{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "podgroup-set", OwnerReferences: plainPod(owned).OwnerReferences,
					Annotations: map[string]string{"volcano.sh/preemptable": "true", "volcano.sh/jdb-min-available": "1", "volcano.sh/revocable-zone": "z"},
					Labels:      map[string]string{"volcano.sh/cooldown-time": "1m"},
				},
				Spec: scheduling.PodGroupSpec{
					MinMember: 1, Queue: "q", MinResources: cpus(1), PriorityClassName: "high",
					NetworkTopology: &scheduling.NetworkTopologySpec{Mode: "soft", HighestTierAllowed: ptr.To(2)},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Status.Phase = scheduling.GroupPending
			got := PlainGroup(tc.p, tc.inherited)
			if len(got.Annotations) == 0 {
				got.Annotations = nil
			}
			if len(got.Labels) == 0 {
				got.Labels = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("PodGroup (-want +got):\n%s", diff)
			}
			if next := UpdatedPlain(got, PlainGroup(tc.p, tc.inherited)); next != nil {
				t.Errorf("it is to be stored again as %+v", next)
			}
		})
	}
	have := PlainGroup(plainPod(owned), nil)
	have.Status.Phase = scheduling.GroupRunning
	next := UpdatedPlain(have, PlainGroup(plainPod(owned), map[string]string{scheduling.MinMemberKey: "2"}))
	if next == nil || next.Spec.MinMember != 2 || next.Status.Phase != scheduling.GroupRunning {
		t.Errorf("a set that has grown leaves %+v", next)
	}
	// The queue that admission has taken from the namespace stays, unless a pod names another.
	have.Spec.Queue = "of-the-namespace"
	if next := UpdatedPlain(have, PlainGroup(plainPod(owned), nil)); next != nil {
		t.Errorf("a queue of the namespace is replaced: %+v", next.Spec)
	}
	named := PlainGroup(plainPod(owned, func(p *corev1.Pod) { p.Annotations = map[string]string{scheduling.QueueNameKey: "named"} }), nil)
	if next := UpdatedPlain(have, named); next == nil || next.Spec.Queue != "named" {
		t.Errorf("a queue that a pod names leads to %+v", next)
	}
}
