// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// queueWorld is a QueueController and what it has written, in order.
type queueWorld struct {
	t       *testing.T
	c       *QueueController
	clock   *clocktesting.FakeClock
	version int
	told    []string
	fail    map[string]bool // requests by verb that fail once
}

func newQueueWorld(t *testing.T) *queueWorld {
	t.Helper()
	w := &queueWorld{t: t, clock: clocktesting.NewFakeClock(worldBegin), version: 10, fail: map[string]bool{}}
	w.c = newQueueController(w, w, w.clock, slog.New(slog.DiscardHandler))
	w.c.queue = &handQueue{clock: w.clock, due: map[string]time.Time{}, tries: map[string]int{}}
	w.c.queues = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.groups = cache.NewIndexer(cache.MetaNamespaceKeyFunc, groupIndexers)
	w.c.commands = cache.NewIndexer(cache.MetaNamespaceKeyFunc, commandIndexers)
	return w
}

func (w *queueWorld) say(verb, format string, args ...any) error {
	if w.fail[verb] {
		w.fail[verb] = false
		return fmt.Errorf("no answer")
	}
	w.told = append(w.told, verb+" "+fmt.Sprintf(format, args...))
	return nil
}

// Event implements eventSink.
func (w *queueWorld) Event(o runtime.Object, _, reason, message string) {
	_ = w.say("event", "%s %s: %s", o.(*scheduling.Queue).Name, reason, message)
}

func (w *queueWorld) put(q *scheduling.Queue) *scheduling.Queue {
	w.version++
	q.ResourceVersion = strconv.Itoa(w.version)
	before, exists, err := w.c.queues.GetByKey(q.Name)
	must(w.t, err)
	must(w.t, w.c.queues.Update(q))
	if exists {
		w.c.queueUpdated(before.(*scheduling.Queue), q)
	} else {
		w.c.queueAdded(q)
	}
	return q
}

func (w *queueWorld) change(name string, change func(q *scheduling.Queue)) *scheduling.Queue {
	o, _, err := w.c.queues.GetByKey(name)
	must(w.t, err)
	q := o.(*scheduling.Queue).DeepCopy()
	change(q)
	return w.put(q)
}

// PatchQueue implements queueAPI.
func (w *queueWorld) PatchQueue(_ context.Context, q *scheduling.Queue, text []byte) (*scheduling.Queue, error) {
	var patch scheduling.Queue
	must(w.t, json.Unmarshal(text, &patch))
	if err := w.say("patch", "%s parent=%s %v", q.Name, patch.Spec.Parent, patch.Annotations); err != nil {
		return nil, err
	}
	return w.change(q.Name, func(q *scheduling.Queue) {
		if patch.Spec.Parent != "" {
			q.Spec.Parent = patch.Spec.Parent
		}
		if q.Annotations == nil {
			q.Annotations = map[string]string{}
		}
		maps.Copy(q.Annotations, patch.Annotations)
	}), nil
}

// ApplyQueueStatus implements queueAPI.
func (w *queueWorld) ApplyQueueStatus(_ context.Context, name string, text []byte) (*scheduling.Queue, error) {
	var patch scheduling.Queue
	must(w.t, json.Unmarshal(text, &patch))
	has := ""
	if patch.Status.Allocated != nil && len(patch.Status.Allocated) == 0 {
		return nil, apierrors.NewBadRequest("status.allocated: Invalid value: \"null\"") // what an API server makes of an empty map that was not empty
	}
	if n := patch.Status.Allocated; len(n) > 0 {
		has = fmt.Sprintf(" has %s CPUs in %s pods", n.Cpu(), n.Pods())
	}
	if err := w.say("status", "%s %s pending=%d running=%d%s", name, patch.Status.State, patch.Status.Pending, patch.Status.Running, has); err != nil {
		return nil, err
	}
	return w.change(name, func(q *scheduling.Queue) { q.Status = patch.Status }), nil
}

// DeleteCommand implements queueAPI.
func (w *queueWorld) DeleteCommand(_ context.Context, c *bus.Command) error {
	if err := w.say("delete", "%s", c.Name); err != nil {
		return err
	}
	return w.c.commands.Delete(c)
}

func (w *queueWorld) command(name, action, queue string) {
	c := &bus.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Action: action,
		TargetObject: &metav1.OwnerReference{APIVersion: scheduling.GroupVersion.String(), Kind: "Queue", Name: queue},
	}
	must(w.t, w.c.commands.Add(c))
	w.c.commandAdded(c)
}

func (w *queueWorld) group(name string, phase scheduling.PodGroupPhase) {
	g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: scheduling.PodGroupSpec{Queue: "q"}, Status: scheduling.PodGroupStatus{Phase: phase}}
	must(w.t, w.c.groups.Update(g))
	w.c.groupChanged(g)
}

// expect lets time pass and compares what was written then.
func (w *queueWorld) expect(d time.Duration, want ...string) {
	w.t.Helper()
	for end := w.clock.Now().Add(d); ; w.clock.Step(50 * time.Millisecond) {
		for range 1000 {
			key, ok := w.c.queue.(*handQueue).pop()
			if !ok {
				break
			}
			if err := w.c.sync(context.Background(), key); err != nil {
				w.c.queue.AddRateLimited(key)
			}
		}
		if !w.clock.Now().Before(end) {
			break
		}
	}
	if diff := cmp.Diff(want, w.told); diff != "" {
		w.t.Errorf("written (-want +got):\n%s", diff)
	}
	w.told = nil
}

func TestAQueueOpensClosesAndTakesOthersAlong(t *testing.T) {
	w := newQueueWorld(t)
	w.put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})
	w.put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "below"}, Spec: scheduling.QueueSpec{Parent: "q"}})
	w.expect(time.Second, "status below Open pending=0 running=0", "patch q parent=root map[]", "status q Open pending=0 running=0")
	w.group("g", scheduling.GroupRunning)
	w.command("c", "CloseQueue", "q")
	w.expect(time.Second,
		"status q Closing pending=0 running=1", "event q CloseQueue: Close queue succeed", "delete c",
		"patch below parent= map[volcano.sh/closed-by-parent:true]", "status below Closed pending=0 running=0", "event below CloseQueue: Close queue succeed",
	)
	o, _, err := w.c.groups.GetByKey("default/g")
	must(t, err)
	must(t, w.c.groups.Delete(o))
	w.c.groupDeleted(o.(*scheduling.PodGroup))
	w.expect(time.Second, "status q Closed pending=0 running=0")
	w.command("o", "OpenQueue", "q")
	w.expect(time.Second,
		"status q Open pending=0 running=0", "event q OpenQueue: Open queue succeed", "delete o",
		"patch below parent= map[volcano.sh/closed-by-parent:false]", "status below Open pending=0 running=0", "event below OpenQueue: Open queue succeed",
	)
	w.expect(time.Hour)
}

func TestACommandOutlivesAWriteThatFails(t *testing.T) {
	w := newQueueWorld(t)
	w.put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{Parent: "root"}})
	w.expect(time.Second, "status q Open pending=0 running=0")
	w.fail["status"], w.fail["delete"] = true, true
	w.command("c", "CloseQueue", "q")
	w.expect(5*time.Second, "status q Closed pending=0 running=0", "event q CloseQueue: Close queue succeed", "delete c")
	w.command("x", "CloseQueue", "gone")
	w.expect(time.Second, "delete x")
}

func TestCountsAreWrittenNowAndThen(t *testing.T) {
	w := newQueueWorld(t)
	w.put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{Parent: "root"}})
	w.expect(5*time.Second, "status q Open pending=0 running=0")
	for i := range 1000 {
		w.group(fmt.Sprint("g", i), scheduling.GroupPending)
	}
	w.expect(time.Second, "status q Open pending=1000 running=0")
	w.group("g0", scheduling.GroupRunning)
	w.expect(500 * time.Millisecond)
	w.group("g1", scheduling.GroupRunning)
	w.expect(5*time.Second, "status q Open pending=998 running=2")
	w.expect(time.Hour)
}

// pod lets a pod of the PodGroup g come or change.
func (w *queueWorld) pod(name, node string, phase corev1.PodPhase) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{batch.GroupNameKey: "g"}},
		Spec: corev1.PodSpec{NodeName: node, Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("500m"),
		}}},
		Status: corev1.PodStatus{Phase: phase},
	}
	before, exists, err := w.c.pods.Get(p)
	must(w.t, err)
	must(w.t, w.c.pods.Update(p))
	if exists {
		w.c.podUpdated(before.(*corev1.Pod), p)
	} else {
		w.c.podChanged(p)
	}
}

func TestQueuesSayWhatTheirPodsHaveAndNotWithEachPod(t *testing.T) {
	w := newQueueWorld(t)
	w.c.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{podsOfGroup: podsByGroup})
	w.put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{Parent: "up"}})
	w.put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "up"}, Spec: scheduling.QueueSpec{Parent: "root"}})
	w.expect(5*time.Second, "status q Open pending=0 running=0", "status up Open pending=0 running=0")
	w.group("g", scheduling.GroupPending)
	for i := range 100 {
		w.pod(fmt.Sprint("p", i), "", corev1.PodPending)
	}
	w.expect(5*time.Second, "status q Open pending=1 running=0")
	w.group("g", scheduling.GroupRunning)
	for i := range 100 {
		w.pod(fmt.Sprint("p", i), "n", corev1.PodPending)
	}
	w.expect(time.Second, "status q Open pending=0 running=1 has 50 CPUs in 100 pods", "status up Open pending=0 running=0 has 50 CPUs in 100 pods")
	for i := range 100 {
		w.pod(fmt.Sprint("p", i), "n", corev1.PodRunning)
	}
	w.expect(time.Minute) // they have no more than before
	for i := range 97 {
		w.pod(fmt.Sprint("p", i), "n", corev1.PodSucceeded)
		w.clock.Step(20 * time.Millisecond)
	}
	w.expect(time.Second, "status q Open pending=0 running=1 has 1500m CPUs in 3 pods", "status up Open pending=0 running=0 has 1500m CPUs in 3 pods")
	w.pod("p97", "n", corev1.PodFailed)
	w.expect(500 * time.Millisecond) // numbers were written a moment ago
	w.expect(time.Minute, "status q Open pending=0 running=1 has 1 CPUs in 2 pods", "status up Open pending=0 running=0 has 1 CPUs in 2 pods")

	o, _, err := w.c.groups.GetByKey("default/g")
	must(t, err)
	must(t, w.c.groups.Delete(o))
	w.c.groupDeleted(o.(*scheduling.PodGroup))
	w.expect(time.Minute, "status q Open pending=0 running=0", "status up Open pending=0 running=0")
	w.expect(time.Hour)
}
