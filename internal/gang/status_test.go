// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

func TestStatus(t *testing.T) {
	now, before := begin, metav1.NewTime(begin.Add(-time.Minute))
	condition := func(kind scheduling.PodGroupConditionType, status corev1.ConditionStatus, since metav1.Time, reason, message string) scheduling.PodGroupCondition {
		return scheduling.PodGroupCondition{Type: kind, Status: status, LastTransitionTime: since, Reason: reason, Message: message}
	}
	at := metav1.NewTime(now)
	unschedulable := func(status corev1.ConditionStatus, since metav1.Time, message string) scheduling.PodGroupCondition {
		return condition(scheduling.GroupUnschedulable, status, since, ReasonNotEnoughResources, message)
	}
	scheduled := condition(scheduling.GroupScheduled, corev1.ConditionTrue, at, ReasonScheduled, "2 pods must be placed at once, and are")
	for name, tc := range map[string]struct {
		was   scheduling.PodGroupStatus
		waits string
		m     Members
		want  scheduling.PodGroupStatus
	}{
		"a new one waits for its queue": {
			scheduling.PodGroupStatus{},
			"no room",
			Members{},
			scheduling.PodGroupStatus{Phase: scheduling.GroupPending, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, at, "no room")}},
		},
		"the time of a condition is that of its beginning": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupPending, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, before, "no room")}},
			"still none",
			Members{},
			scheduling.PodGroupStatus{Phase: scheduling.GroupPending, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, before, "still none")}},
		},
		"an admitted one waits for its pods": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupPending, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, before, "no room")}},
			"",
			Members{},
			scheduling.PodGroupStatus{Phase: scheduling.GroupInqueue, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionFalse, at, "no room")}},
		},
		"one whose pods cannot be placed says why": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupInqueue},
			"",
			Members{Waiting: 2, Unplaceable: "no CPU"},
			scheduling.PodGroupStatus{Phase: scheduling.GroupInqueue, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, at, "no CPU")}},
		},
		"enough pods are placed": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupInqueue, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, before, "no CPU")}},
			"",
			Members{Placed: 1, Running: 1, Waiting: 1},
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Running: 1, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionFalse, at, "no CPU"), scheduled}},
		},
		"some run, and others cannot be placed": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Running: 2, Conditions: []scheduling.PodGroupCondition{scheduled}},
			"",
			Members{Running: 1, Waiting: 1, Unplaceable: "no CPU"},
			scheduling.PodGroupStatus{Phase: scheduling.GroupUnknown, Running: 1, Conditions: []scheduling.PodGroupCondition{
				condition(scheduling.GroupScheduled, corev1.ConditionFalse, at, ReasonScheduled, "2 pods must be placed at once, and are"), unschedulable(corev1.ConditionTrue, at, "no CPU"),
			}},
		},
		"the first is seen of those that are placed at once": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupInqueue, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, before, "no CPU")}},
			"",
			Members{Running: 1, Waiting: 1, Together: true, Unplaceable: "no CPU"},
			scheduling.PodGroupStatus{Phase: scheduling.GroupInqueue, Running: 1, Conditions: []scheduling.PodGroupCondition{unschedulable(corev1.ConditionTrue, before, "no CPU")}},
		},
		"one that has lost a pod which is made again stays Running": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Running: 2, Conditions: []scheduling.PodGroupCondition{scheduled}},
			"",
			Members{Running: 1, Waiting: 1},
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Running: 1, Conditions: []scheduling.PodGroupCondition{scheduled}},
		},
		"all have ended": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Running: 2, Conditions: []scheduling.PodGroupCondition{scheduled}},
			"",
			Members{Succeeded: 2, Failed: 1},
			scheduling.PodGroupStatus{Phase: scheduling.GroupCompleted, Succeeded: 2, Failed: 1, Conditions: []scheduling.PodGroupCondition{scheduled}},
		},
		"all have failed, and their Job may make them anew": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Running: 2, Conditions: []scheduling.PodGroupCondition{scheduled}},
			"",
			Members{Failed: 2},
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Failed: 2, Conditions: []scheduling.PodGroupCondition{scheduled}},
		},
		"all have failed, and no Job of Volcano has made them": {
			scheduling.PodGroupStatus{Phase: scheduling.GroupRunning, Running: 2, Conditions: []scheduling.PodGroupCondition{scheduled}},
			"",
			Members{Failed: 2, Loose: true},
			scheduling.PodGroupStatus{Phase: scheduling.GroupCompleted, Failed: 2, Conditions: []scheduling.PodGroupCondition{scheduled}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := &scheduling.PodGroup{Spec: scheduling.PodGroupSpec{MinMember: 2}, Status: tc.was}
			got := Status(g, tc.waits, tc.m, now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			g.Status = got
			if diff := cmp.Diff(got, Status(g, tc.waits, tc.m, now.Add(time.Hour))); diff != "" {
				t.Errorf("an hour later the same is told anew (-first +second):\n%s", diff)
			}
		})
	}
}

func TestAShareIsReadAsItIsWritten(t *testing.T) {
	want := Share{3, Amounts{corev1.ResourceCPU: 1500, corev1.ResourceMemory: 3 << 30, "nvidia.com/gpu": 2}}
	text := want.Text()
	if wantText := `{"pods":3,"resources":{"cpu":"1500m","memory":"3Gi","nvidia.com/gpu":"2"}}`; text != wantText {
		t.Errorf("text %s, want %s", text, wantText)
	}
	got, ok := ShareOf(text)
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("share (-want +got):\n%s", diff)
	}
	if _, ok := ShareOf("{"); ok {
		t.Error("what is no share is read as one")
	}
}

func TestShortage(t *testing.T) {
	two := []Node{{"a", Amounts{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 1 << 30}}}
	for name, tc := range map[string]struct {
		need    Amounts
		nodes   []Node
		holders []Holder
		want    string
	}{
		"one node": {
			Amounts{corev1.ResourceCPU: 3000, "requests.cpu": 3000, "pods": 3, "count/pods": 3},
			two,
			[]Holder{{"ns/x", cpu(1)}, {"ns/y", cpu(2)}, {"ns/z", Amounts{"gpu": 1}}},
			"needs 3 CPUs at once, the node has 2 free; waiting for ns/y and ns/x (the scheduler says: no)",
		},
		"several nodes": {
			Amounts{corev1.ResourceMemory: 3 << 30},
			append(two, Node{"b", Amounts{corev1.ResourceMemory: 1 << 29}}), nil,
			"needs 3Gi of memory at once, the 2 nodes have 1536Mi free, one of them at most 1Gi (the scheduler says: no)",
		},
		"a device that no node has": {
			Amounts{"nvidia.com/gpu": 1}, two, nil, "needs 1 nvidia.com/gpu at once, the node has 0 free (the scheduler says: no)",
		},
		"enough in sum":             {cpu(2), two, nil, "no"},
		"no node takes pods at all": {cpu(2), nil, nil, "needs 2 CPUs at once, and no node takes pods (the scheduler says: no)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Shortage(tc.need, tc.nodes, tc.holders, "no"); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
