// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// native has kube-scheduler place pods together.
func native(o *Observed) { o.Options.Own, o.Options.Native = true, true }

func inqueue(o *Observed) { o.Group.Status.Phase = scheduling.GroupInqueue }

func nativeOf(count int32) func(*Observed) {
	return func(o *Observed) {
		o.Native = &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: NativeName(o.Job), ResourceVersion: "7"}}
		o.Native.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: count}
	}
}

func minAvailable(n int32) func(*batch.Job) {
	return func(j *batch.Job) { j.Spec.MinAvailable = n }
}

func taskMinimum(n int32) func(*batch.TaskSpec) {
	return func(t *batch.TaskSpec) { t.MinAvailable = ptr.To(n) }
}

func onNode(p *corev1.Pod) { p.Spec.NodeName = "n" }

// together sums up what a plan does for pods that are placed together.
func togetherLine(p Plan) string {
	var words []string
	if p.Native != nil {
		verb := "make"
		if p.Native.ResourceVersion != "" {
			verb = "resize"
		}
		words = append(words, fmt.Sprintf("%s(%d)", verb, p.Native.Spec.SchedulingPolicy.Gang.MinCount))
	}
	for _, c := range p.Create {
		words = append(words, strings.TrimPrefix(c.Name, "j-")+map[bool]string{true: "+"}[c.Native != ""])
	}
	return strings.Join(words, " ")
}

func TestPodsArePlacedTogether(t *testing.T) {
	two := []func(*batch.Job){task("a", 1), task("b", 3, taskMinimum(1)), minAvailable(2)}
	for name, tc := range map[string]struct {
		s    *scene
		want string
	}{
		"all pods join one group": {newScene(batch.Pending, task("a", 2)).with(native).with(inqueue), "make(2) a-0+ a-1+"},
		"a single pod needs none": {newScene(batch.Pending, task("a", 1)).with(native).with(inqueue), "a-0"},
		"there is none where kube-scheduler is not asked": {
			newScene(batch.Pending, task("a", 2)).with(inqueue), "a-0 a-1",
		},
		"pods beyond the minimum are not made before the others are placed": {newScene(batch.Pending, two...).with(native).with(inqueue), "make(2) a-0+ b-0+"},
		"and then they are": {
			newScene(batch.Pending, two...).with(native).with(nativeOf(2)).pod("a", 0, corev1.PodPending, onNode).pod("b", 0, corev1.PodPending, onNode), "b-1+ b-2+",
		},
		"unless the queue has no room for them": {
			newScene(batch.Pending, two...).with(native).with(nativeOf(2)).pod("a", 0, corev1.PodPending, onNode).pod("b", 0, corev1.PodPending, onNode).
				with(func(o *Observed) { o.Group.Annotations[gang.GrantedKey] = gang.Share{Pods: 3}.Text() }), "b-1+",
		},
		"pods that have ended do not count": {
			newScene(batch.Running, task("a", 3)).with(native).with(nativeOf(3)).pod("a", 0, corev1.PodSucceeded, onNode).pod("a", 1, corev1.PodRunning, onNode), "resize(2) a-2+",
		},
		"nor do those of an earlier round": {
			newScene(batch.Pending, task("a", 3)).with(native).with(inqueue).pod("a", 0, corev1.PodSucceeded, old, onNode), "make(2) a-1+ a-2+",
		},
		"a task that waits for another is not waited for": {
			newScene(batch.Pending, task("a", 1), task("b", 2, func(t *batch.TaskSpec) { t.DependsOn = &batch.DependsOn{Name: []string{"a"}} })).with(native).with(inqueue), "make(1) a-0+",
		},
		"until it comes": {
			newScene(batch.Pending, task("a", 1), task("b", 2, func(t *batch.TaskSpec) { t.DependsOn = &batch.DependsOn{Name: []string{"a"}} })).with(native).with(inqueue).
				with(nativeOf(1)).pod("a", 0, corev1.PodRunning, onNode, func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: true}} }),
			"resize(3) b-0+ b-1+",
		},
		"nothing is written while all pods have their places": {
			newScene(batch.Running, task("a", 2)).with(native).with(nativeOf(2)).pod("a", 0, corev1.PodSucceeded, onNode).pod("a", 1, corev1.PodRunning, onNode), "",
		},
		"tasks of different priorities cannot": {
			newScene(batch.Pending, task("a", 1), task("b", 1, func(t *batch.TaskSpec) { t.Template.Spec.PriorityClassName = "high" })).with(native).with(inqueue), "a-0 b-0",
		},
		"pods that their author has grouped are left alone": {
			newScene(batch.Pending, task("a", 2, func(t *batch.TaskSpec) {
				t.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("own")}
			})).with(native).with(inqueue), "a-0 a-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := togetherLine(Decide(tc.s.o)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestAJobSaysWhatItsPodGroupWaitsFor(t *testing.T) {
	unschedulable := func(o *Observed) {
		o.Group.Status.Conditions = []scheduling.PodGroupCondition{{Type: scheduling.GroupUnschedulable, Status: corev1.ConditionTrue, Message: "no room"}}
	}
	pending := func(o *Observed) { o.Group.Status.Phase = scheduling.GroupPending }
	closed := func(o *Observed) { o.QueueClosed = true }
	for name, tc := range map[string]struct {
		s    *scene
		want string
	}{
		"for its queue":                    {newScene(batch.Pending, task("a", 1)).with(pending).with(unschedulable), "PodGroupPending: no room"},
		"for its queue to be opened":       {newScene(batch.Pending, task("a", 1)).with(pending).with(unschedulable).with(closed), `QueueClosed: queue "default" is closed; no pod is made until it is opened`},
		"for places":                       {newScene(batch.Pending, task("a", 1)).with(inqueue).with(unschedulable).pod("a", 0, corev1.PodPending), "Unschedulable: no room"},
		"nothing, in a queue that closes":  {newScene(batch.Running, task("a", 1)).with(closed).pod("a", 0, corev1.PodRunning), ": "},
		"nothing said, while it waits yet": {newScene(batch.Pending, task("a", 1)).with(pending), "PodGroupPending: the PodGroup is not admitted to the queue yet"},
	} {
		t.Run(name, func(t *testing.T) {
			status := tc.s.o.Job.Status
			if p := Decide(tc.s.o); p.Status != nil {
				status = *p.Status
			}
			if got := status.State.Reason + ": " + status.State.Message; got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestAPodGroupSaysWhatAllPodsWant(t *testing.T) {
	one := func(t *batch.TaskSpec) {
		t.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	}
	s := newScene(batch.Pending, task("a", 3, one), minAvailable(2)).with(native).with(func(o *Observed) { o.Group = nil })
	g := Decide(s.o).Group
	if g == nil || g.Status.Phase != scheduling.GroupPending {
		t.Fatalf("PodGroup %+v", g)
	}
	want := `{"pods":3,"resources":{"count/pods":"3","cpu":"3","pods":"3","requests.cpu":"3"}}`
	if got := g.Annotations[gang.WantedKey]; got != want {
		t.Errorf("wants %s, not %s", got, want)
	}
	s.o.QueueFree = true
	if g := Decide(s.o).Group; g.Status.Phase != scheduling.GroupInqueue {
		t.Errorf("in a queue without limits the phase is %s", g.Status.Phase)
	}
}
