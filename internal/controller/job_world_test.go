// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-dev/drover/internal/job"
	"github.com/drover-dev/drover/internal/simulate"
)

var worldBegin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a simulated cluster with a Job controller on it that a test moves by hand: what the watches have told, what is
// worked off and what time it is.
type world struct {
	t       *testing.T
	cluster *simulate.Cluster
	clock   *clocktesting.FakeClock
	cfg     JobConfig

	c          *JobController
	jobCache   cache.Indexer
	podCache   cache.Indexer
	seenJobs   int64
	seenPods   int64
	queues     map[string]*handQueue
	events     []string
	syncs      int
	crashes    int
	lastErrors []error
}

func newWorld(t *testing.T, cfg JobConfig) *world {
	t.Helper()
	w := &world{t: t, cluster: simulate.New(worldBegin), clock: clocktesting.NewFakeClock(worldBegin), cfg: cfg}
	w.start()
	return w
}

// start begins a controller that knows nothing yet, as after a restart of its process, and lets it list the cluster.
func (w *world) start() {
	w.c = newJobController(w.cfg, simulatedAPI{w.cluster}, w, w.clock, slog.New(slog.DiscardHandler))
	w.c.gate = newGate(1) // one request after the other, so that runs can be repeated
	w.queues = map[string]*handQueue{}
	for name, q := range map[string]*keyQueue{"job": &w.c.queue, "orphans": &w.c.orphans, "expired": &w.c.expired} {
		h := &handQueue{clock: w.clock, due: map[string]time.Time{}, tries: map[string]int{}}
		w.queues[name] = h
		*q = h
	}
	w.jobCache = cache.NewIndexer(cache.MetaNamespaceKeyFunc, jobIndexers)
	w.podCache = cache.NewIndexer(cache.MetaNamespaceKeyFunc, podIndexers)
	w.c.jobs, w.c.jobIndex, w.c.pods = batchlisters.NewJobLister(w.jobCache), w.jobCache, w.podCache
	var slim slimmer
	for _, j := range w.cluster.Jobs() {
		o, _ := slim.job(j)
		must(w.t, w.jobCache.Add(o))
	}
	for _, p := range w.cluster.Pods() {
		o, _ := slim.pod(p)
		must(w.t, w.podCache.Add(o))
	}
	w.seenJobs, w.seenPods = w.cluster.Version(), w.cluster.Version()
	w.podCache.Bookmark(fmt.Sprint(w.seenPods))
	for _, key := range sorted(w.jobCache.ListKeys()) {
		o, _, _ := w.jobCache.GetByKey(key)
		w.c.jobAdded(o.(*batchv1.Job))
	}
	for _, key := range sorted(w.podCache.ListKeys()) {
		o, _, _ := w.podCache.GetByKey(key)
		w.c.podAdded(o.(*corev1.Pod))
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Event implements eventSink.
func (w *world) Event(o runtime.Object, eventType, reason, message string) {
	j := o.(*batchv1.Job)
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", j.Name, eventType, reason, message))
}

// tellJobs and tellPods deliver up to n messages of a watch.
func (w *world) tellJobs(n int) {
	var slim slimmer
	for _, ch := range w.cluster.Changes(w.seenJobs) {
		if ch.Job == nil {
			w.seenJobs = ch.Version
			continue
		}
		if n--; n < 0 {
			return
		}
		w.seenJobs = ch.Version
		o, _ := slim.job(ch.Job.DeepCopy())
		j := o.(*batchv1.Job)
		before, exists, _ := w.jobCache.Get(j)
		switch {
		case ch.Deleted:
			must(w.t, w.jobCache.Delete(j))
			w.c.jobDeleted(j)
		case exists:
			must(w.t, w.jobCache.Update(j))
			w.c.jobUpdated(before.(*batchv1.Job), j)
		default:
			must(w.t, w.jobCache.Add(j))
			w.c.jobAdded(j)
		}
	}
}

func (w *world) tellPods(n int) {
	var slim slimmer
	for _, ch := range w.cluster.Changes(w.seenPods) {
		if ch.Pod == nil {
			w.seenPods = ch.Version
			continue
		}
		if n--; n < 0 {
			return
		}
		w.seenPods = ch.Version
		o, _ := slim.pod(ch.Pod.DeepCopy())
		p := o.(*corev1.Pod)
		before, exists, _ := w.podCache.Get(p)
		switch {
		case ch.Deleted:
			must(w.t, w.podCache.Delete(p))
			w.podCache.Bookmark(fmt.Sprint(ch.Version))
			w.c.podDeleted(p)
		case exists:
			must(w.t, w.podCache.Update(p))
			w.podCache.Bookmark(fmt.Sprint(ch.Version))
			w.c.podUpdated(before.(*corev1.Pod), p)
		default:
			must(w.t, w.podCache.Add(p))
			w.podCache.Bookmark(fmt.Sprint(ch.Version))
			w.c.podAdded(p)
		}
	}
}

// work handles up to n due keys. A crash of the controller's process ends it, and a new one takes over.
func (w *world) work(n int) (worked bool) {
	for range n {
		name, key, ok := w.nextDue()
		if !ok {
			return worked
		}
		worked = true
		w.handle(name, key)
	}
	return worked
}

func (w *world) nextDue() (queue, key string, ok bool) {
	for _, name := range []string{"job", "orphans", "expired"} {
		if key, ok := w.queues[name].pop(); ok {
			return name, key, true
		}
	}
	return "", "", false
}

func (w *world) handle(name, key string) {
	sync := map[string]func(context.Context, string) error{"job": w.c.syncJob, "orphans": w.c.syncOrphans, "expired": w.c.syncExpired}[name]
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
func (w *world) settle() {
	w.t.Helper()
	for range 10_000 {
		w.tellJobs(math.MaxInt)
		w.tellPods(math.MaxInt)
		if !w.work(1) {
			return
		}
	}
	w.t.Fatalf("the controller does not come to rest; last errors: %v", w.lastErrors[max(0, len(w.lastErrors)-3):])
}

// pass moves the clock, and works off what becomes due on the way.
func (w *world) pass(d time.Duration) {
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

func (w *world) setTime(t time.Time) {
	if t.After(w.clock.Now()) {
		w.clock.SetTime(t)
		w.cluster.Now = t
	}
}

func (w *world) nextTimer() (time.Time, bool) {
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

// status returns what a user sees of a Job's status, in one line.
func (w *world) status(name string) string {
	j := w.cluster.FindJob("default", name)
	if j == nil {
		return "gone"
	}
	return statusLine(j)
}

// statusLine returns what a user sees of a status, in one line.
func statusLine(j *batchv1.Job) string {
	s := &j.Status
	var b strings.Builder
	fmt.Fprintf(&b, "active=%d", s.Active)
	if s.Ready != nil && *s.Ready > 0 {
		fmt.Fprintf(&b, " ready=%d", *s.Ready)
	}
	if s.Terminating != nil && *s.Terminating > 0 {
		fmt.Fprintf(&b, " terminating=%d", *s.Terminating)
	}
	fmt.Fprintf(&b, " succeeded=%d failed=%d", s.Succeeded, s.Failed)
	if u := s.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		fmt.Fprintf(&b, " uncounted=%d/%d", len(u.Succeeded), len(u.Failed))
	}
	if job.IsIndexed(j) {
		fmt.Fprintf(&b, " completed=%q", s.CompletedIndexes)
		if s.FailedIndexes != nil {
			fmt.Fprintf(&b, " failedIndexes=%q", *s.FailedIndexes)
		}
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, " %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	return b.String()
}

// podsOf returns the pods of a Job that are at work, by name.
func (w *world) activePods() []*corev1.Pod {
	var active []*corev1.Pod
	for _, p := range w.cluster.Pods() {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			active = append(active, p)
		}
	}
	return active
}

func (w *world) checkInvariants() {
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

// handQueue is a keyQueue that is worked off by hand.
type handQueue struct {
	clock *clocktesting.FakeClock
	due   map[string]time.Time
	tries map[string]int
}

func (q *handQueue) add(key string, at time.Time) {
	if due, ok := q.due[key]; !ok || at.Before(due) {
		q.due[key] = at
	}
}

func (q *handQueue) Add(key string)                        { q.add(key, q.clock.Now()) }
func (q *handQueue) AddAfter(key string, d time.Duration)  { q.add(key, q.clock.Now().Add(d)) }
func (q *handQueue) AddLazily(key string, d time.Duration) { q.add(key, q.clock.Now().Add(d)) }
func (q *handQueue) Forget(key string)                     { delete(q.tries, key) }
func (q *handQueue) NumRequeues(key string) int            { return q.tries[key] }
func (q *handQueue) Get() (string, bool)                   { panic("worked off by hand") }
func (q *handQueue) Done(string)                           {}
func (q *handQueue) ShutDown()                             {}
func (q *handQueue) AddRateLimited(key string) {
	q.tries[key]++
	q.AddAfter(key, min(10*time.Second, 100*time.Millisecond<<min(q.tries[key], 10)))
}

// pop takes the key that has been due for the longest time.
func (q *handQueue) pop() (string, bool) {
	var first string
	for key, due := range q.due {
		if due.After(q.clock.Now()) {
			continue
		}
		if first == "" || due.Before(q.due[first]) || due.Equal(q.due[first]) && key < first {
			first = key
		}
	}
	delete(q.due, first)
	return first, first != ""
}

// simulatedAPI is a jobAPI on a simulated cluster.
type simulatedAPI struct{ *simulate.Cluster }

func (a simulatedAPI) Job(_ context.Context, namespace, name string) (*batchv1.Job, error) {
	return a.GetJob(namespace, name)
}

func (a simulatedAPI) StoreStatus(_ context.Context, j *batchv1.Job) (string, error) {
	return a.PutStatus(j)
}

func (a simulatedAPI) DeleteJob(_ context.Context, j *batchv1.Job) error {
	return a.DeleteJobForeground(j.Namespace, j.Name, j.UID)
}

func (a simulatedAPI) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return a.GetPod(namespace, name)
}

func (a simulatedAPI) CreatePod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return a.PostPod(p)
}

func (a simulatedAPI) DeletePod(_ context.Context, namespace string, pod job.PodKey) error {
	return a.Cluster.DeletePod(namespace, pod.Name, pod.UID)
}

func (a simulatedAPI) Untrack(_ context.Context, namespace string, pod job.PodKey, resourceVersion string) error {
	return a.UntrackPod(namespace, pod.Name, pod.UID, resourceVersion)
}

func (a simulatedAPI) Adopt(_ context.Context, j *batchv1.Job, adoption job.Adoption) (*corev1.Pod, error) {
	return a.AdoptPod(j, adoption.Pod.Name, adoption.Pod.UID, adoption.ResourceVersion, adoption.Track)
}

func (a simulatedAPI) Release(_ context.Context, j *batchv1.Job, pod job.PodKey) (*corev1.Pod, error) {
	return a.ReleasePod(j, pod.Name, pod.UID)
}
