// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second)) }

type option func(*corev1.Pod)

func newPod(name string, options ...option) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(0)}}
	for _, o := range options {
		o(p)
	}
	return p
}

func phase(ph corev1.PodPhase) option { return func(p *corev1.Pod) { p.Status.Phase = ph } }
func onNode(p *corev1.Pod)            { p.Spec.NodeName = "n" }
func created(s int) option            { return func(p *corev1.Pod) { p.CreationTimestamp = at(s) } }

func ready(status corev1.ConditionStatus, since int) option {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: at(since)})
	}
}

func deleted(s int, grace int64) option {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp = ptr.To(at(s))
		p.DeletionGracePeriodSeconds = &grace
	}
}

// container adds an app container; ended < 0 means that it still runs.
func container(ended int, restarts int32) option {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status("", ended, restarts))
	}
}

func sidecar(ended int, restarts int32) option {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status("side", ended, restarts))
	}
}

func initContainer(ended int, restarts int32) option {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "init"})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status("init", ended, restarts))
	}
}

func status(name string, ended int, restarts int32) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, RestartCount: restarts}
	if ended >= 0 {
		s.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: at(ended)}
	}
	return s
}

func TestFinishTime(t *testing.T) {
	cases := map[string]struct {
		pod  *corev1.Pod
		want int
	}{
		"the last container to end tells":                           {newPod("p", container(5, 0), container(9, 0), container(7, 0)), 9},
		"a sidecar that ends later tells":                           {newPod("p", container(5, 0), sidecar(8, 0)), 8},
		"an ordinary init container does not count":                 {newPod("p", initContainer(30, 0), container(5, 0)), 5},
		"a container that still runs leaves it to the Ready change": {newPod("p", container(5, 0), container(-1, 0), ready(corev1.ConditionFalse, 6)), 6},
		"a sidecar that still runs leaves it to the Ready change":   {newPod("p", container(5, 0), sidecar(-1, 0), ready(corev1.ConditionFalse, 6)), 6},
		"ended sidecars tell although a container still runs":       {newPod("p", container(-1, 0), sidecar(4, 0), ready(corev1.ConditionFalse, 6)), 4},
		"being ready tells nothing":                                 {newPod("p", ready(corev1.ConditionTrue, 6), deleted(40, 30)), 10},
		"a deletion counts from when it was asked for":              {newPod("p", deleted(40, 30)), 10},
		"without any evidence the creation tells":                   {newPod("p", created(3)), 3},
		"a terminated container without an end tells nothing itself": {newPod("p", created(3), func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}), 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, want := FinishTime(tc.pod), at(tc.want).Time; !got.Equal(want) {
				t.Errorf("FinishTime = %v, want %v", got, want)
			}
		})
	}
}

func TestPodsAreDeletedInTheOrderOfTheirWorth(t *testing.T) {
	running := phase(corev1.PodRunning)
	want := []*corev1.Pod{
		newPod("unscheduled", phase(corev1.PodPending)),
		newPod("pending", onNode, phase(corev1.PodPending)),
		newPod("unknown", onNode, phase(corev1.PodUnknown)),
		newPod("not-ready-restarted", onNode, running, container(-1, 3)),
		newPod("not-ready-sidecar-restarted", onNode, running, container(-1, 0), sidecar(-1, 2)),
		newPod("not-ready-young", onNode, running, created(20)),
		newPod("not-ready-old", onNode, running, created(10)),
		newPod("ready-since-unknown", onNode, running, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}),
		newPod("ready-recently", onNode, running, ready(corev1.ConditionTrue, 30)),
		newPod("ready-long-a", onNode, running, ready(corev1.ConditionTrue, 5)),
		newPod("ready-long-b", onNode, running, ready(corev1.ConditionTrue, 5)),
	}
	got := slices.Clone(want)
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, CompareForDeletion)
	if diff := cmp.Diff(names(want), names(got)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func names(pods []*corev1.Pod) []string {
	var ns []string
	for _, p := range pods {
		ns = append(ns, p.Name)
	}
	return ns
}

func TestRestartsCountEveryContainer(t *testing.T) {
	if got := Restarts(newPod("p", container(-1, 2), initContainer(1, 3), sidecar(-1, 4))); got != 9 {
		t.Errorf("Restarts = %d, want 9", got)
	}
}

func TestAFinishedPodIsNeitherActiveNorTerminating(t *testing.T) {
	for _, ph := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		p := newPod("p", phase(ph), deleted(1, 0))
		if !IsFinished(p) || IsActive(p) || IsTerminating(p) {
			t.Errorf("%s: finished %v, active %v, terminating %v", ph, IsFinished(p), IsActive(p), IsTerminating(p))
		}
	}
	p := newPod("p", phase(corev1.PodRunning), deleted(1, 0))
	if IsActive(p) || !IsTerminating(p) {
		t.Errorf("a running pod with a deletion time: active %v, terminating %v", IsActive(p), IsTerminating(p))
	}
}
