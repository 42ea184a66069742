// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/simulate"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// vcWorld is a simulated cluster with a controller of Volcano's Jobs on it that a test moves by hand.
type vcWorld struct {
	t       *testing.T
	cluster *simulate.Volcano
	clock   *clocktesting.FakeClock
	cfg     VCJobConfig

	c          *VCJobController
	queues     map[string]*handQueue
	seen       int64 // messages of other kinds than pods
	seenPods   int64
	events     []string
	syncs      int
	crashes    int
	keys       int // pairs that were made
	others     int // syncs that are always under way
	lastErrors []error
	told       strings.Builder
	version    int64
	shown      int
}

func newVCWorld(t *testing.T, cfg VCJobConfig) *vcWorld {
	t.Helper()
	w := &vcWorld{t: t, cluster: simulate.NewVolcano(worldBegin), clock: clocktesting.NewFakeClock(worldBegin), cfg: cfg}
	simulate.Add(w.cluster, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	w.start()
	return w
}

// start begins a controller that knows nothing yet, as after a restart of its process, and lets it list the cluster.
func (w *vcWorld) start() {
	w.c = newVCJobController(w.cfg, simulatedVCAPI{w.cluster}, w, w.clock, slog.New(slog.DiscardHandler))
	w.c.gate = newGate(1)
	for range w.others {
		w.c.rush.enter()
	}
	w.c.makeKeys = func() (plugin.Keys, error) {
		w.keys++
		return plugin.Keys{Private: fmt.Appendf(nil, "private %d", w.keys), Public: fmt.Appendf(nil, "public %d", w.keys)}, nil
	}
	w.queues = map[string]*handQueue{}
	for name, q := range map[string]*keyQueue{"job": &w.c.queue, "expired": &w.c.expired} {
		h := &handQueue{clock: w.clock, due: map[string]time.Time{}, tries: map[string]int{}}
		w.queues[name] = h
		*q = h
	}
	w.c.jobs = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, podIndexers)
	w.c.groups = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.commands = cache.NewIndexer(cache.MetaNamespaceKeyFunc, commandIndexers)
	w.c.queues = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.priorities = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if w.cfg.Options.Native {
		w.c.natives = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	}
	w.seen, w.seenPods = w.cluster.Version(), w.cluster.Version()
	for _, p := range w.cluster.Pods() {
		w.podMessage(simulate.Change{Version: w.seenPods, Pod: p})
	}
	for _, o := range simulate.All[runtime.Object](w.cluster) {
		w.message(simulate.Message{Version: w.seen, Object: o})
	}
}

// Event implements eventSink.
func (w *vcWorld) Event(o runtime.Object, eventType, reason, message string) {
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", o.(*batch.Job).Name, eventType, reason, message))
}

// tell delivers up to n messages of the watch of other kinds than pods, tellPods of that of pods.
func (w *vcWorld) tell(n int) {
	for _, m := range w.cluster.Messages(w.seen) {
		if n--; n < 0 {
			return
		}
		w.seen = m.Version
		w.message(m)
	}
}

// deliver updates a cache and calls the handlers for one message.
func deliver[T runtime.Object](w *vcWorld, store cache.Indexer, o T, version int64, deleted bool, added func(T), updated func(a, b T), removed func(T)) {
	before, exists, err := store.Get(o)
	must(w.t, err)
	switch {
	case deleted:
		must(w.t, store.Delete(o))
	case exists:
		must(w.t, store.Update(o))
	default:
		must(w.t, store.Add(o))
	}
	store.Bookmark(fmt.Sprint(version))
	switch {
	case deleted:
		removed(o)
	case exists:
		updated(before.(T), o)
	default:
		added(o)
	}
}

func (w *vcWorld) message(m simulate.Message) {
	var slim slimmer
	c := w.c
	switch o := m.Object.DeepCopyObject().(type) {
	case *batch.Job:
		_, _ = slim.vcjob(o)
		deliver(w, c.jobs, o, m.Version, m.Deleted, c.jobAdded, c.jobUpdated, c.jobDeleted)
	case *scheduling.PodGroup:
		deliver(w, c.groups, o, m.Version, m.Deleted, c.groupChanged, c.groupUpdated, c.groupDeleted)
	case *schedulingv1beta1.PodGroup:
		if c.natives != nil {
			nothing := func(*schedulingv1beta1.PodGroup) {}
			deliver(w, c.natives, o, m.Version, m.Deleted, nothing, func(_, _ *schedulingv1beta1.PodGroup) {}, nothing)
		}
	case *bus.Command:
		deliver(w, c.commands, o, m.Version, m.Deleted, c.commandAdded, func(_, x *bus.Command) { c.commandAdded(x) }, c.commandAdded)
	case *scheduling.Queue:
		deliver(w, c.queues, o, m.Version, m.Deleted, c.queueChanged, func(_, x *scheduling.Queue) { c.queueChanged(x) }, c.queueChanged)
	}
}

func (w *vcWorld) tellPods(n int) {
	for _, ch := range w.cluster.Changes(w.seenPods) {
		if n--; n < 0 {
			return
		}
		w.seenPods = ch.Version
		w.podMessage(ch)
	}
}

func (w *vcWorld) podMessage(ch simulate.Change) {
	var slim slimmer
	o, _ := slim.pod(ch.Pod.DeepCopy())
	deliver(w, w.c.pods, o.(*corev1.Pod), ch.Version, ch.Deleted, w.c.podAdded, w.c.podUpdated, w.c.podDeleted)
}

// work handles up to n due keys. A crash of the controller's process ends it, and a new one takes over.
func (w *vcWorld) work(n int) (worked bool) {
	for range n {
		name := "job"
		key, ok := w.queues[name].pop()
		if !ok {
			name = "expired"
			if key, ok = w.queues[name].pop(); !ok {
				return worked
			}
		}
		worked = true
		w.handle(name, key)
	}
	return worked
}

func (w *vcWorld) handle(name, key string) {
	sync := map[string]func(context.Context, string) error{"job": w.c.syncJob, "expired": w.c.syncExpired}[name]
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(simulate.Crash); !ok {
				panic(r)
			}
			w.crashes++
			w.start()
		}
	}()
	w.syncs++
	if err := sync(context.Background(), key); err != nil {
		w.lastErrors = append(w.lastErrors, err)
		w.queues[name].AddRateLimited(key)
	} else {
		w.queues[name].Forget(key)
	}
}

// settle lets the watches tell everything and works off what is due, until nothing is left to do now.
func (w *vcWorld) settle() {
	w.t.Helper()
	for range 10_000 {
		w.tell(math.MaxInt)
		w.tellPods(math.MaxInt)
		if !w.work(1) {
			return
		}
	}
	w.t.Fatalf("the controller does not come to rest; last errors: %v", w.lastErrors[max(0, len(w.lastErrors)-3):])
}

// pass moves the clock, and works off what becomes due on the way.
func (w *vcWorld) pass(d time.Duration) {
	w.t.Helper()
	end := w.clock.Now().Add(d)
	for {
		w.settle()
		next, ok := w.nextTimer()
		if !ok || next.After(end) {
			break
		}
		w.setTime(next)
	}
	w.setTime(end)
	w.settle()
}

func (w *vcWorld) setTime(t time.Time) {
	if t.After(w.clock.Now()) {
		w.clock.SetTime(t)
		w.cluster.Now = t
	}
}

func (w *vcWorld) nextTimer() (time.Time, bool) {
	var next time.Time
	for _, q := range w.queues {
		for _, due := range q.due {
			if next.IsZero() || due.Before(next) {
				next = due
			}
		}
	}
	return next, !next.IsZero()
}

func (w *vcWorld) job() *batch.Job {
	return simulate.Find(w.cluster, &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}})
}

func (w *vcWorld) phase() batch.JobPhase {
	if j := w.job(); j != nil {
		return j.Status.State.Phase
	}
	return "gone"
}

// groups returns how many PodGroups there are.
func (w *vcWorld) groups() int { return len(simulate.All[*scheduling.PodGroup](w.cluster)) }

// pod returns the stored pod of a task and index, or nil.
func (w *vcWorld) pod(task string, index int) *corev1.Pod {
	for _, p := range w.cluster.Pods() {
		if p.Name == vcjob.PodName("j", task, index) {
			return p
		}
	}
	return nil
}

func (w *vcWorld) mustPod(task string, index int) *corev1.Pod {
	w.t.Helper()
	p := w.pod(task, index)
	if p == nil {
		w.t.Fatalf("there is no pod %s; pods: %v", vcjob.PodName("j", task, index), w.podNames())
	}
	return p
}

func (w *vcWorld) podNames() []string {
	var names []string
	for _, p := range w.cluster.Pods() {
		names = append(names, p.Name+" "+string(p.Status.Phase))
	}
	return names
}

// submit adds a Job called "j", as admission leaves it.
func (w *vcWorld) submit(j *batch.Job) {
	w.t.Helper()
	j.Namespace, j.Name = "default", "j"
	vcjob.Default(j, "")
	if problems := vcjob.Validate(j, vcjob.Surroundings{Queue: &scheduling.Queue{}}); len(problems) > 0 {
		w.t.Fatalf("the Job is wrong: %v", problems)
	}
	simulate.Add(w.cluster, j)
}

func (w *vcWorld) edit(change func(*batch.Job)) {
	simulate.Modify(w.cluster, &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}}, change)
}

// command issues a Command.
func (w *vcWorld) command(name string, action batch.Action) {
	j := w.job()
	id := types.UID("")
	if j != nil {
		id = j.UID
	}
	simulate.Add(w.cluster, &bus.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Action: string(action),
		TargetObject: &metav1.OwnerReference{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job", Name: "j", UID: id},
	})
}

// admit plays the scheduler: every waiting PodGroup gets room, and where package gang tells of the PodGroups, it is told how they fare.
func (w *vcWorld) admit() {
	for _, g := range simulate.All[*scheduling.PodGroup](w.cluster) {
		if w.cfg.Options.Own {
			w.tellOfGroup(g)
			continue
		}
		if g.Status.Phase == scheduling.GroupPending {
			simulate.Modify(w.cluster, g, func(g *scheduling.PodGroup) { g.Status.Phase = scheduling.GroupInqueue })
		}
	}
}

func (w *vcWorld) tellOfGroup(g *scheduling.PodGroup) {
	var m gang.Members
	for _, p := range w.cluster.Pods() {
		switch {
		case groupOfPod(p) != keyOf(g) || p.DeletionTimestamp != nil:
		case p.Status.Phase == corev1.PodRunning:
			m.Running++
		case p.Status.Phase == corev1.PodSucceeded:
			m.Succeeded++
		case p.Status.Phase == corev1.PodFailed:
			m.Failed++
		default:
			m.Waiting++
		}
	}
	if s := gang.Status(g, "", m, w.clock.Now()); !equality.Semantic.DeepEqual(s, g.Status) {
		simulate.Modify(w.cluster, g, func(g *scheduling.PodGroup) { g.Status = s })
	}
}

// startAll has every waiting pod run.
func (w *vcWorld) startAll() {
	for _, p := range w.cluster.Pods() {
		if p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			w.cluster.Start(p, true)
			w.ready(p, true)
		}
	}
}

// ready says whether the one container of a pod is ready.
func (w *vcWorld) ready(p *corev1.Pod, ready bool) {
	w.cluster.EditPod(p, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: ready}}
	})
}

// kubelet ends the pods that are asked to go.
func (w *vcWorld) kubelet() {
	for _, p := range w.cluster.Pods() {
		if p.DeletionTimestamp != nil {
			w.cluster.Finish(p, 143)
		}
	}
}

func (w *vcWorld) checkInvariants() {
	w.t.Helper()
	if v := w.cluster.Violations(); len(v) > 0 {
		w.t.Errorf("violated:\n  %s", strings.Join(v, "\n  "))
	}
	for _, err := range w.lastErrors {
		if errors.Is(err, errPanic) {
			w.t.Fatal(err)
		}
	}
}

// turn says what happens, lets it happen and the controller react, and tells what has changed.
func (w *vcWorld) turn(what string, happen func()) {
	w.t.Helper()
	fmt.Fprintf(&w.told, "%s\n", what)
	happen()
	w.settle()
	w.tellStory()
}

// after lets time pass.
func (w *vcWorld) after(d time.Duration) {
	fmt.Fprintf(&w.told, "%v pass\n", d)
	w.pass(d)
	w.tellStory()
}

// tellStory tells what has changed since it was last called, in the order in which it did.
func (w *vcWorld) tellStory() {
	type line struct {
		version int64
		text    string
	}
	var lines []line
	add := func(version int64, format string, args ...any) {
		lines = append(lines, line{version, fmt.Sprintf(format, args...)})
	}
	for _, ch := range w.cluster.Changes(w.version) {
		if ch.Deleted {
			add(ch.Version, "pod %s is gone", ch.Pod.Name)
		} else {
			add(ch.Version, "pod %s: %s", ch.Pod.Name, vcPodLine(ch.Pod))
		}
	}
	for _, m := range w.cluster.Messages(w.version) {
		name := m.Object.(metav1.Object).GetName()
		kind := strings.ToLower(strings.TrimLeft(fmt.Sprintf("%T", m.Object), "*abcdefghijklmnopqrstuvwxyz1."))
		if kind == "" {
			kind = strings.ToLower(fmt.Sprintf("%T", m.Object))
		}
		switch o := m.Object.(type) {
		case *scheduling.Queue:
		case *batch.Job:
			if m.Deleted {
				add(m.Version, "job is gone")
			} else {
				add(m.Version, "job: %s", vcStatusLine(o))
			}
		case *scheduling.PodGroup:
			if m.Deleted {
				add(m.Version, "podgroup is gone")
			} else {
				add(m.Version, "podgroup: %s, minMember %d", o.Status.Phase, o.Spec.MinMember)
			}
		case *schedulingv1beta1.PodGroup:
			if m.Deleted {
				add(m.Version, "native podgroup is gone")
			} else {
				add(m.Version, "native podgroup: minCount %d", o.Spec.SchedulingPolicy.Gang.MinCount)
			}
		case *bus.Command:
			if m.Deleted {
				add(m.Version, "command %s is gone", name)
			}
		default:
			if m.Deleted {
				add(m.Version, "%s %s is gone", kind, name)
			} else {
				add(m.Version, "%s %s is there", kind, name)
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.version - b.version) })
	for _, l := range lines {
		fmt.Fprintf(&w.told, "    %s\n", l.text)
	}
	w.version = w.cluster.Version()
	for _, e := range w.events[w.shown:] {
		fmt.Fprintf(&w.told, "    event on %s\n", e)
	}
	w.shown = len(w.events)
}

func vcPodLine(p *corev1.Pod) string {
	words := []string{string(p.Status.Phase), "version=" + p.Annotations[batch.VersionKey]}
	if _, marked := p.Annotations[batch.OutOfSyncKey]; marked {
		words = append(words, "marked")
	}
	if restart := p.Annotations[vcjob.RestartKey]; restart != "" {
		words = append(words, "restart="+restart)
	}
	if p.DeletionTimestamp != nil {
		words = append(words, "going")
	}
	return strings.Join(words, " ")
}

func vcStatusLine(j *batch.Job) string {
	s := &j.Status
	if s.State.Phase == "" {
		return "new"
	}
	var b strings.Builder
	b.WriteString(string(s.State.Phase))
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"pending", s.Pending},
		{"running", s.Running},
		{"succeeded", s.Succeeded},
		{"failed", s.Failed},
		{"terminating", s.Terminating},
		{"unknown", s.Unknown},
		{"version", s.Version},
		{"retries", s.RetryCount},
	} {
		if n.value != 0 {
			fmt.Fprintf(&b, " %s=%d", n.name, n.value)
		}
	}
	if s.State.Reason != "" || s.State.Message != "" {
		fmt.Fprintf(&b, " (%s: %s)", s.State.Reason, s.State.Message)
	}
	return b.String()
}

// end compares the story with its golden file, and checks what must hold in every story.
func (w *vcWorld) end() {
	w.t.Helper()
	w.checkInvariants()
	path := filepath.Join("testdata", "VCJob"+strings.ReplaceAll(strings.TrimPrefix(w.t.Name(), "TestVCStory"), "/", "")+".golden")
	if *update {
		must(w.t, os.MkdirAll("testdata", 0o755))
		must(w.t, os.WriteFile(path, []byte(w.told.String()), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(w.t, err)
	if diff := cmp.Diff(string(want), w.told.String()); diff != "" {
		w.t.Errorf("story (-%s +told), rewrite with -update:\n%s", path, diff)
	}
}

// simulatedVCAPI is a vcjobAPI on a simulated cluster.
type simulatedVCAPI struct{ v *simulate.Volcano }

func (a simulatedVCAPI) Job(_ context.Context, namespace, name string) (*batch.Job, error) {
	o, err := a.v.GetObject(&batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	return as[*batch.Job](o, err)
}

func as[T any](o any, err error) (T, error) {
	t, _ := o.(T)
	return t, err
}

func (a simulatedVCAPI) StoreStatus(_ context.Context, j *batch.Job) (string, error) {
	return a.v.PutJobStatus(j)
}

func (a simulatedVCAPI) Store(_ context.Context, j *batch.Job) (*batch.Job, error) {
	o, err := a.v.PutObject(j)
	return as[*batch.Job](o, err)
}

func (a simulatedVCAPI) DeleteJob(_ context.Context, j *batch.Job) error {
	return a.v.DeleteObject(j, j.UID)
}

func (a simulatedVCAPI) DeleteCommand(_ context.Context, c *bus.Command) error {
	return a.v.DeleteObject(c, c.UID)
}

func (a simulatedVCAPI) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return a.v.GetPod(namespace, name)
}

func (a simulatedVCAPI) CreatePod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return a.v.PostVCPod(p)
}

func (a simulatedVCAPI) MarkPod(_ context.Context, namespace string, pod vcjob.PodKey, restart string) error {
	annotations := map[string]string{batch.OutOfSyncKey: "true"}
	if restart != "" {
		annotations[vcjob.RestartKey] = restart
	}
	return a.v.MarkPod(namespace, pod.Name, pod.UID, annotations)
}

func (a simulatedVCAPI) DeletePod(_ context.Context, namespace string, pod vcjob.PodKey) error {
	return a.v.DeleteVCPod(namespace, pod.Name, pod.UID)
}

func (a simulatedVCAPI) Group(_ context.Context, namespace, name string) (*scheduling.PodGroup, error) {
	o, err := a.v.GetObject(&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	return as[*scheduling.PodGroup](o, err)
}

func (a simulatedVCAPI) CreateGroup(_ context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error) {
	o, err := a.v.PostObject(g)
	return as[*scheduling.PodGroup](o, err)
}

func (a simulatedVCAPI) UpdateGroup(_ context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error) {
	o, err := a.v.PutObject(g)
	return as[*scheduling.PodGroup](o, err)
}

func (a simulatedVCAPI) DeleteGroup(_ context.Context, g *scheduling.PodGroup) error {
	return a.v.DeleteObject(g, g.UID)
}

func (a simulatedVCAPI) Native(_ context.Context, namespace, name string) (*schedulingv1beta1.PodGroup, error) {
	o, err := a.v.GetObject(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	return as[*schedulingv1beta1.PodGroup](o, err)
}

func (a simulatedVCAPI) CreateNative(_ context.Context, g *schedulingv1beta1.PodGroup) (*schedulingv1beta1.PodGroup, error) {
	o, err := a.v.PostObject(g)
	return as[*schedulingv1beta1.PodGroup](o, err)
}

func (a simulatedVCAPI) ResizeNative(_ context.Context, g *schedulingv1beta1.PodGroup) (*schedulingv1beta1.PodGroup, error) {
	o, err := a.v.PutObject(g)
	return as[*schedulingv1beta1.PodGroup](o, err)
}

func (a simulatedVCAPI) Get(_ context.Context, like metav1.Object) (metav1.Object, error) {
	o, err := a.v.GetObject(like.(runtime.Object))
	return as[metav1.Object](o, err)
}

func (a simulatedVCAPI) Create(_ context.Context, o metav1.Object) error {
	_, err := a.v.PostObject(o.(runtime.Object))
	return err
}

func (a simulatedVCAPI) Update(_ context.Context, o metav1.Object) error {
	_, err := a.v.PutObject(o.(runtime.Object))
	return err
}

func (a simulatedVCAPI) Delete(_ context.Context, o metav1.Object, uid types.UID) error {
	return a.v.DeleteObject(o.(runtime.Object), uid)
}
