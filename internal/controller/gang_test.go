// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// gangWorld is a GangController on objects that a test sets by hand. What it writes comes to its cache at once, unless told otherwise.
type gangWorld struct {
	t       *testing.T
	c       *GangController
	clock   *clocktesting.FakeClock
	groups  map[string]*scheduling.PodGroup // as stored
	version int
	writes  int
	lost    bool // answers to writes are lost, and the watch is silent
	silent  bool // the watch is silent
	events  []string
}

// Event implements eventSink.
func (w *gangWorld) Event(o runtime.Object, eventType, reason, message string) {
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", o.(*scheduling.PodGroup).Name, eventType, reason, message))
}

func newGangWorld(t *testing.T) *gangWorld {
	t.Helper()
	w := &gangWorld{t: t, clock: clocktesting.NewFakeClock(worldBegin), groups: map[string]*scheduling.PodGroup{}, version: 100}
	w.start()
	return w
}

func (w *gangWorld) start() {
	w.c = newGangController(w, w, w.clock, slog.New(slog.DiscardHandler))
	w.c.gate = newGate(1)
	for _, q := range []*keyQueue{&w.c.passes, &w.c.mirror} {
		*q = &handQueue{clock: w.clock, due: map[string]time.Time{}, tries: map[string]int{}}
	}
	w.c.queues = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.groups = cache.NewIndexer(cache.MetaNamespaceKeyFunc, groupIndexers)
	w.c.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{podsOfGroup: podsByGroup})
	w.c.nodes = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.priorities = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.natives = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{nativesOfGroup: nativesByGroup})
}

// PatchGroup implements gangAPI.
func (w *gangWorld) PatchGroup(_ context.Context, g *scheduling.PodGroup, text []byte) (*scheduling.PodGroup, error) {
	stored := w.groups[g.Name]
	if stored == nil || stored.UID != g.UID {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "podgroups"}, g.Name)
	}
	var patch struct {
		Metadata struct {
			UID         types.UID
			Annotations map[string]string
		}
		Status scheduling.PodGroupStatus
	}
	must(w.t, json.Unmarshal(text, &patch))
	if patch.Metadata.UID != g.UID {
		w.t.Errorf("a patch of PodGroup %s does not name its UID", g.Name)
	}
	next := stored.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, patch.Metadata.Annotations)
	next.Status = patch.Status
	w.writes++
	w.store(next)
	if w.lost {
		return nil, fmt.Errorf("connection lost")
	}
	return next.DeepCopy(), nil
}

// store stores a PodGroup, and has the watch tell of it.
func (w *gangWorld) store(g *scheduling.PodGroup) {
	w.version++
	g.ResourceVersion = strconv.Itoa(w.version)
	w.groups[g.Name] = g
	if w.silent || w.lost {
		return
	}
	w.tell(g)
}

func (w *gangWorld) tell(g *scheduling.PodGroup) {
	before, exists, err := w.c.groups.GetByKey(keyOf(g))
	must(w.t, err)
	must(w.t, w.c.groups.Update(g.DeepCopy()))
	if exists {
		w.c.groupUpdated(before.(*scheduling.PodGroup), g)
	} else {
		w.c.groupAdded(g)
	}
}

func (w *gangWorld) queue(name string, cpus string, changes ...func(*scheduling.Queue)) {
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if cpus != "" {
		q.Spec.Capability = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
	}
	for _, change := range changes {
		change(q)
	}
	must(w.t, w.c.queues.Update(q))
	w.c.queueChanged(q)
}

// group stores a new PodGroup of queue "q".
func (w *gangWorld) group(name string, members int32, cpus string, changes ...func(*scheduling.PodGroup)) {
	w.version++
	g := &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(worldBegin.Add(time.Duration(w.version) * time.Second))},
		Spec:       scheduling.PodGroupSpec{MinMember: members, Queue: "q", MinResources: &corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}},
		Status:     scheduling.PodGroupStatus{Phase: scheduling.GroupPending},
	}
	for _, change := range changes {
		change(g)
	}
	w.store(g)
}

func (w *gangWorld) remove(name string) {
	g := w.groups[name]
	delete(w.groups, name)
	must(w.t, w.c.groups.Delete(g))
	w.c.groupDeleted(g)
}

// pod has the watch tell of a pod of a PodGroup.
func (w *gangWorld) pod(group string, index int, phase corev1.PodPhase, node, unplaced string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", group, index), Annotations: map[string]string{batch.GroupNameKey: group}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
		Status: corev1.PodStatus{Phase: phase},
	}
	if unplaced != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: unplaced}}
	}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "Job", Name: group, UID: types.UID("job-" + group), Controller: ptr.To(true)}}
	var slim slimmer
	o, err := slim.pod(p)
	must(w.t, err)
	must(w.t, w.c.pods.Update(o))
	w.c.podChanged(o.(*corev1.Pod))
}

func (w *gangWorld) settle() {
	w.t.Helper()
	for range 2000 {
		worked := false
		for q, sync := range map[keyQueue]func(context.Context, string) error{w.c.passes: w.c.pass, w.c.mirror: w.c.syncGroup} {
			if key, ok := q.(*handQueue).pop(); ok {
				worked = true
				if err := sync(context.Background(), key); err != nil {
					q.AddRateLimited(key)
				}
			}
		}
		if !worked {
			return
		}
	}
	w.t.Fatal("the controller does not come to rest")
}

// pass lets time pass, a tenth of a second at a time.
func (w *gangWorld) pass(d time.Duration) {
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.settle()
		w.clock.Step(100 * time.Millisecond)
	}
	w.settle()
}

// story tells how the PodGroups fare.
func (w *gangWorld) story() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		g := w.groups[name]
		line := fmt.Sprintf("%s %s running=%d", name, g.Status.Phase, g.Status.Running)
		if s, ok := gang.ShareOf(g.Annotations[gang.GrantedKey]); ok {
			line += fmt.Sprintf(" granted=%d", s.Pods)
		}
		for _, c := range g.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				line += fmt.Sprintf(" %s: %s", c.Type, c.Message)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (w *gangWorld) expect(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), w.story()); diff != "" {
		w.t.Errorf("PodGroups (-want +got):\n%s", diff)
	}
}

func TestPodGroupsAreAdmittedInTheirOrder(t *testing.T) {
	w := newGangWorld(t)
	w.queue("q", "4")
	w.group("a", 3, "3")
	w.group("b", 2, "2")
	w.group("c", 1, "1")
	w.pass(time.Second)
	w.expect(
		"a Inqueue running=0 granted=3",
		`b Pending running=0 Unschedulable: needs 2 CPUs at once, and queue "q" has 1 of 4 left; waiting for default/a`,
		`c Pending running=0 Unschedulable: waits in queue "q" behind others that came earlier or have a higher priority`,
	)
	writes := w.writes
	w.pass(time.Minute)
	if w.writes != writes {
		t.Errorf("%d writes while nothing has changed", w.writes-writes)
	}
	if len(w.events) > 0 {
		t.Errorf("those that wait for their queue are told, which their Jobs tell: %q", w.events)
	}
	w.remove("a")
	w.pass(time.Second)
	w.expect("b Inqueue running=0 granted=2", "c Inqueue running=0 granted=1")
}

func TestAdmissionIsCountedBeforeTheWatchTellsOfIt(t *testing.T) {
	w := newGangWorld(t)
	w.queue("q", "2")
	w.group("a", 2, "2")
	w.silent = true
	w.pass(time.Second)
	w.silent = false
	w.group("b", 2, "2")
	w.pass(time.Second)
	w.expect("a Inqueue running=0 granted=2", `b Pending running=0 Unschedulable: needs 2 CPUs at once, and queue "q" has 0 of 2 left; waiting for default/a`)
}

func TestAQueueWithoutLimitsNotesNoShares(t *testing.T) {
	w := newGangWorld(t)
	w.queue("q", "")
	w.group("a", 2, "200")
	w.pass(time.Second)
	w.expect("a Inqueue running=0")
}

func TestAPodGroupFollowsItsPods(t *testing.T) {
	w := newGangWorld(t)
	w.queue("q", "")
	must(t, w.c.nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}))
	w.group("a", 3, "3")
	w.pod("other", 0, corev1.PodRunning, "n", "")
	for i := range 3 {
		w.pod("a", i, corev1.PodPending, "", "0/1 nodes are available")
	}
	w.pass(time.Second)
	w.expect("a Inqueue running=0 Unschedulable: needs 3 CPUs at once, the node has 1 free; waiting for default/other (the scheduler says: 0/1 nodes are available)")

	must(t, w.c.natives.Add(&schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: scheduling.GroupVersion.String(), Kind: "PodGroup", Name: "a", UID: "uid-a", Controller: ptr.To(true)},
		}},
		Status: schedulingv1beta1.PodGroupStatus{Conditions: []metav1.Condition{{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Message: "minCount (3) cannot be satisfied"}}},
	}))
	w.c.podChanged(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Annotations: map[string]string{batch.GroupNameKey: "a"}}})
	w.pass(6 * time.Second)
	w.expect("a Inqueue running=0 Unschedulable: needs 3 CPUs at once, the node has 1 free; waiting for default/other (the scheduler says: minCount (3) cannot be satisfied)")

	w.pod("a", 0, corev1.PodRunning, "n", "") // the watch tells of one before the others
	w.pass(6 * time.Second)
	w.expect("a Inqueue running=1 Unschedulable: minCount (3) cannot be satisfied")
	for i := range 3 {
		w.pod("a", i, corev1.PodRunning, "n", "")
	}
	w.pass(2 * time.Second)
	w.expect("a Running running=3 Scheduled: 3 pods must be placed at once, and are")
	w.pod("a", 0, corev1.PodPending, "", "0/1 nodes are available")
	w.pass(2 * time.Second)
	w.expect("a Unknown running=2 Unschedulable: minCount (3) cannot be satisfied")
	for i := range 3 {
		w.pod("a", i, corev1.PodSucceeded, "n", "")
	}
	w.pass(2 * time.Second)
	w.expect("a Completed running=0")
	want := []string{
		"a Warning Unschedulable: needs 3 CPUs at once, the node has 1 free; waiting for default/other (the scheduler says: 0/1 nodes are available)",
		"a Warning Unschedulable: minCount (3) cannot be satisfied",
	}
	if diff := cmp.Diff(want, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestALostAnswerAdmitsNobodyTwice has every answer lost, and the controller begin anew in between.
func TestALostAnswerAdmitsNobodyTwice(t *testing.T) {
	w := newGangWorld(t)
	w.queue("q", "2")
	w.group("a", 1, "2")
	w.group("b", 1, "2")
	w.lost = true
	w.pass(300 * time.Millisecond)
	w.lost = false
	queues := w.c.queues
	w.start()
	w.c.queues = queues
	for _, g := range w.groups {
		w.tell(g)
	}
	w.pass(time.Second)
	w.expect("a Inqueue running=0 granted=1", `b Pending running=0 Unschedulable: needs 2 CPUs at once, and queue "q" has 0 of 2 left; waiting for default/a`)
}
