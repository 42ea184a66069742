// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/simulate"
)

// cronWorld is a simulated cluster with a CronJob controller on it that a test moves by hand: what the watches have told, what
// is worked off and what time it is.
type cronWorld struct {
	t       *testing.T
	cluster *simulate.Cluster
	clock   *clocktesting.FakeClock
	cfg     CronJobConfig

	c         *CronJobController
	cronCache cache.Indexer
	jobCache  cache.Indexer
	seenCrons int64
	seenJobs  int64
	alive     time.Time // when the controller last looked at the clock

	requests []string
	events   []string
	turns    int
	crashes  int
	errors   []error
}

func newCronWorld(t *testing.T, cfg CronJobConfig) *cronWorld {
	t.Helper()
	w := &cronWorld{t: t, cluster: simulate.New(worldBegin), clock: clocktesting.NewFakeClock(worldBegin), cfg: cfg}
	w.cluster.Fault = func(request string) simulate.Fault {
		w.requests = append(w.requests, request)
		return simulate.None
	}
	w.start()
	t.Cleanup(func() { w.c.queue.ShutDown() })
	return w
}

// start begins a controller that knows nothing yet, as after a restart of its process, and lets it list the cluster.
func (w *cronWorld) start() {
	if w.c != nil {
		w.c.queue.ShutDown()
	}
	w.c = newCronJobController(w.cfg, simulatedCronAPI{w.cluster}, w, w.clock, slog.New(slog.DiscardHandler))
	w.cronCache = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.jobCache = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cronIndexers)
	w.c.crons, w.c.jobs = w.cronCache, w.jobCache
	w.seenCrons, w.seenJobs = w.cluster.Version(), w.cluster.Version()
	for _, j := range w.cluster.Jobs() {
		must(w.t, w.jobCache.Add(slimmed(j)))
	}
	for _, cron := range w.cluster.CronJobs() {
		must(w.t, w.cronCache.Add(cron))
	}
	for _, cron := range w.cluster.CronJobs() {
		w.c.cronAdded(cron)
	}
	for _, j := range w.cluster.Jobs() {
		w.c.childAdded(slimmed(j))
	}
	w.alive = w.clock.Now()
}

func slimmed(j *batchv1.Job) *batchv1.Job {
	var slim slimmer
	o, _ := slim.job(j.DeepCopy())
	return o.(*batchv1.Job)
}

// Event implements eventSink.
func (w *cronWorld) Event(o runtime.Object, eventType, reason, message string) {
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", o.(*batchv1.CronJob).Name, eventType, reason, message))
}

// tellCrons and tellJobs deliver up to n messages of a watch.
func (w *cronWorld) tellCrons(n int) {
	for _, ch := range w.cluster.Changes(w.seenCrons) {
		if ch.CronJob == nil {
			w.seenCrons = ch.Version
			continue
		}
		if n--; n < 0 {
			return
		}
		w.seenCrons = ch.Version
		cron := ch.CronJob.DeepCopy()
		before, exists, _ := w.cronCache.Get(cron)
		switch {
		case ch.Deleted:
			must(w.t, w.cronCache.Delete(cron))
			w.c.cronDeleted(cron)
		case exists:
			must(w.t, w.cronCache.Update(cron))
			w.c.cronUpdated(before.(*batchv1.CronJob), cron)
		default:
			must(w.t, w.cronCache.Add(cron))
			w.c.cronAdded(cron)
		}
	}
}

func (w *cronWorld) tellJobs(n int) {
	for _, ch := range w.cluster.Changes(w.seenJobs) {
		if ch.Job == nil {
			w.seenJobs = ch.Version
			continue
		}
		if n--; n < 0 {
			return
		}
		w.seenJobs = ch.Version
		j := slimmed(ch.Job)
		before, exists, _ := w.jobCache.Get(j)
		switch {
		case ch.Deleted:
			must(w.t, w.jobCache.Delete(j))
			w.c.childDeleted(j)
		case exists:
			must(w.t, w.jobCache.Update(j))
			w.c.childUpdated(before.(*batchv1.Job), j)
		default:
			must(w.t, w.jobCache.Add(j))
			w.c.childAdded(j)
		}
	}
}

// relist lets both watches break off and begin again: what has happened meanwhile is told as the difference that it has made.
func (w *cronWorld) relist() {
	w.seenCrons, w.seenJobs = w.cluster.Version(), w.cluster.Version()
	relist(w.t, w.cronCache, w.cluster.CronJobs(), w.c.cronAdded, w.c.cronUpdated, w.c.cronDeleted)
	var jobs []*batchv1.Job
	for _, j := range w.cluster.Jobs() {
		jobs = append(jobs, slimmed(j))
	}
	relist(w.t, w.jobCache, jobs, w.c.childAdded, w.c.childUpdated, w.c.childDeleted)
}

func relist[T apiObject](t *testing.T, cached cache.Indexer, listed []T, added func(T), updated func(before, after T), deleted func(T)) {
	t.Helper()
	there := map[string]bool{}
	for _, o := range listed {
		there[keyOf(o)] = true
		before, exists, _ := cached.Get(o)
		must(t, cached.Update(o))
		if exists {
			updated(before.(T), o)
		} else {
			added(o)
		}
	}
	for _, key := range slices.Sorted(slices.Values(cached.ListKeys())) {
		if !there[key] {
			gone, _, _ := cached.GetByKey(key)
			must(t, cached.Delete(gone))
			deleted(gone.(T))
		}
	}
}

// work gives up to n turns. A crash of the controller's process ends it, and a new one takes over.
func (w *cronWorld) work(n int) (worked bool) {
	for range n {
		w.tick()
		if w.c.queue.Len() == 0 {
			return worked
		}
		worked = true
		w.turn()
	}
	return worked
}

// tick looks at the clock.
func (w *cronWorld) tick() {
	now := w.clock.Now()
	if now.Before(w.alive) { // otherwise time passes in leaps that are none to the controller
		w.c.noticeJump(w.alive, now)
	}
	w.alive = now
	w.c.advance(now)
}

func (w *cronWorld) turn() {
	key, _ := w.c.queue.Get()
	asked := w.c.queue.Take(key)
	queue := w.c.queue
	defer queue.Done(key)
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(simulate.Crash); !ok {
				panic(r)
			}
			w.crashes++
			w.start()
		}
	}()
	w.turns++
	if err := w.c.sync(context.Background(), key, asked); err != nil {
		w.errors = append(w.errors, err)
		w.c.queue.LookAt(key, w.clock.Now().Add(turnRetry), 0)
	}
}

// settle lets the watches tell everything and works off what is due, until nothing is left to do now.
func (w *cronWorld) settle() {
	w.t.Helper()
	for range 10_000 {
		w.tellCrons(math.MaxInt)
		w.tellJobs(math.MaxInt)
		if !w.work(1) {
			return
		}
	}
	w.t.Fatalf("the controller does not come to rest; last events:\n%s", strings.Join(w.events[max(0, len(w.events)-5):], "\n"))
}

// pass moves the clock, and works off what becomes due on the way.
func (w *cronWorld) pass(d time.Duration) {
	w.t.Helper()
	end := w.clock.Now().Add(d)
	for {
		w.settle()
		next := w.c.advance(w.clock.Now())
		if next.IsZero() || next.After(end) {
			break
		}
		w.setTime(next)
	}
	w.setTime(end)
	w.settle()
}

func (w *cronWorld) setTime(t time.Time) {
	w.clock.SetTime(t)
	w.cluster.Now = t
}

// sleep lets the machine sleep.
func (w *cronWorld) sleep(d time.Duration) {
	before := w.clock.Now()
	w.setTime(before.Add(d))
	w.c.noticeJump(before, w.clock.Now())
	w.alive = w.clock.Now()
	w.settle()
}

// took returns the requests since it was last called, in order, and forgets them.
func (w *cronWorld) took() string {
	r := strings.Join(w.requests, ", ")
	w.requests = nil
	return r
}

// told returns the events since it was last called, in order, and forgets them.
func (w *cronWorld) told() []string {
	e := w.events
	w.events = nil
	return e
}

func (w *cronWorld) jobs() []string {
	var names []string
	for _, j := range w.cluster.Jobs() {
		names = append(names, j.Name)
	}
	return names
}

// history returns the ledger of a CronJob as a command would show it, a line for each entry.
func (w *cronWorld) history(name string) []string {
	var lines []string
	for _, t := range cronjob.History(w.observed(name)) {
		line := t.Due.Format("15:04:05")
		if t.Count > 1 {
			line += fmt.Sprintf("-%s (%d)", t.Through.Format("15:04:05"), t.Count)
		}
		lines = append(lines, line+" "+t.String())
	}
	return lines
}

func (w *cronWorld) observed(name string) cronjob.Observed {
	cron := w.cluster.FindCronJob("default", name)
	facts := cronjob.FromBatch(cron)
	o := cronjob.Observed{
		CronJob: facts, Rules: cronjob.Read(facts, time.LoadLocation, time.UTC), Now: w.clock.Now(), Options: cronjob.DefaultOptions(),
	}
	for _, j := range w.cluster.Jobs() {
		if metav1.IsControlledBy(j, cron) {
			o.Children = append(o.Children, cronjob.ChildFromBatch(j))
		}
	}
	return o
}

func (w *cronWorld) checkInvariants() {
	w.t.Helper()
	if v := w.cluster.Violations(); len(v) > 0 {
		w.t.Errorf("violated:\n  %s", strings.Join(v, "\n  "))
	}
	for _, err := range w.errors {
		w.t.Errorf("a turn went wrong: %v", err)
	}
}

func aCronJob(name, schedule string, options ...func(*batchv1.CronJob)) *batchv1.CronJob {
	c := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: batchv1.CronJobSpec{Schedule: schedule, JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}},
		}}},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

func withPolicy(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = p }
}

func withDeadline(seconds int64) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) { c.Spec.StartingDeadlineSeconds = &seconds }
}

func withLimits(successful, failed int32) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) {
		c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = ptr.To(successful), ptr.To(failed)
	}
}

func withNote(key, value string) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value) }
}

// simulatedCronAPI is a cronAPI on a simulated cluster.
type simulatedCronAPI struct{ *simulate.Cluster }

func (a simulatedCronAPI) CronJob(_ context.Context, namespace, name string) (*batchv1.CronJob, error) {
	return a.GetCronJob(namespace, name)
}

func (a simulatedCronAPI) StoreCronStatus(_ context.Context, _, c *batchv1.CronJob) (string, error) {
	return a.PutCronJobStatus(c)
}

func (a simulatedCronAPI) Job(_ context.Context, namespace, name string) (*batchv1.Job, error) {
	return a.GetJob(namespace, name)
}

func (a simulatedCronAPI) CreateJob(_ context.Context, j *batchv1.Job) (*batchv1.Job, error) {
	return a.PostJob(j)
}

func (a simulatedCronAPI) DeleteJobWithPods(_ context.Context, namespace, name string, uid types.UID) error {
	return a.DeleteJobBackground(namespace, name, uid)
}
