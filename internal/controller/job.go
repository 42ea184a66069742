// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/job"
)

// JobConfig says how a JobController works. The zero value of each field means its default.
type JobConfig struct {
	// Workers is how many Jobs are looked at at once; default 16.
	Workers int
	// BatchPeriod is the shortest time between two status writes of one Job that tell of ended pods; default 1 s. What ends
	// the Job, or changes a condition, is written at once.
	BatchPeriod time.Duration
	// GaugeDelay is how long the numbers of active, ready and terminating pods may be behind; default 250 ms. It lets a Job
	// that is done quickly be told in one write. While there are many Jobs at work it is four times as long, and in a rush
	// up to ten seconds.
	GaugeDelay time.Duration
	// ManagerName is the value of spec.managedBy that means this controller; default kubernetes.io/job-controller.
	ManagerName string
	// OnlyMarked leaves Jobs without spec.managedBy to the controller of the cluster.
	OnlyMarked bool
	// Precedence lets starts of CronJobs go first; nil: there are none in this process.
	Precedence *Precedence
	// Groups makes a Workload and a PodGroup for each new Job, as Kubernetes does whose gate WorkloadWithJob is on.
	Groups bool
	// Options are the bounds of single decisions; default job.DefaultOptions.
	Options job.Options
}

func (c JobConfig) withDefaults() JobConfig {
	if c.Workers == 0 {
		c.Workers = 16
	}
	if c.BatchPeriod == 0 {
		c.BatchPeriod = time.Second
	}
	if c.GaugeDelay == 0 {
		c.GaugeDelay = 250 * time.Millisecond
	}
	if c.ManagerName == "" {
		c.ManagerName = job.ManagerName
	}
	if c.Options == (job.Options{}) {
		c.Options = job.DefaultOptions()
	}
	return c
}

// Validate reports every setting that makes no sense.
func (c JobConfig) Validate() error {
	var errs []error
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers: %d is negative", c.Workers))
	}
	if c.BatchPeriod < 0 {
		errs = append(errs, fmt.Errorf("batch period: %v is negative", c.BatchPeriod))
	}
	if c.GaugeDelay < 0 {
		errs = append(errs, fmt.Errorf("gauge delay: %v is negative", c.GaugeDelay))
	}
	if c.OnlyMarked && (c.ManagerName == "" || c.ManagerName == job.ManagerName) {
		errs = append(errs, fmt.Errorf("manager name: %q means the cluster's own controller, which cannot be told from us; choose another, such as drover.dev/job-controller", job.ManagerName))
	}
	return errors.Join(errs...)
}

// JobController runs batch/v1 Jobs.
type JobController struct {
	cfg    JobConfig
	api    jobAPI
	events eventSink
	clock  clock.WithTicker
	log    *slog.Logger
	gate   gate

	jobs     batchlisters.JobLister
	jobIndex cache.Indexer
	pods     cache.Indexer
	synced   []cache.InformerSynced

	groups *jobGroups // nil: Jobs get none

	queue   keyQueue
	orphans keyQueue
	expired keyQueue
	states  *jobStates
	freed   freedPods
	rush    rush
	ready   chan struct{}
}

// maxRequests bounds how many requests a controller has under way at once.
const maxRequests = 64

// NewJobController returns a controller that follows Jobs and pods through kinds and writes through client. It starts nothing; kinds
// must be started by the caller.
func NewJobController(cfg JobConfig, client kubernetes.Interface, kinds *KubeCaches, events eventSink, c clock.WithTicker, log *slog.Logger) (*JobController, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the Job controller: %w", err)
	}
	registerMetrics()
	jc := newJobController(cfg, jobClient{client}, events, c, log)
	jobs, pods := kinds.jobs(), kinds.pods()
	if err := pods.AddIndexers(podIndexers); err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	if err := jobs.AddIndexers(jobIndexers); err != nil {
		return nil, fmt.Errorf("indexing Jobs: %w", err)
	}
	jc.jobs, jc.jobIndex, jc.pods = batchlisters.NewJobLister(jobs.GetIndexer()), jobs.GetIndexer(), pods.GetIndexer()
	var slim slimmer
	if err := errors.Join(jobs.SetTransform(slim.job), pods.SetTransform(slim.pod)); err != nil {
		return nil, fmt.Errorf("keeping the caches small: %w", err)
	}
	jobsSynced, err := jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { jc.jobAdded(o.(*batchv1.Job)) },
		UpdateFunc: func(before, after any) { jc.jobUpdated(before.(*batchv1.Job), after.(*batchv1.Job)) },
		DeleteFunc: func(o any) { withLast(o, jc.jobDeleted) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching Jobs: %w", err)
	}
	podsSynced, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { jc.podAdded(o.(*corev1.Pod)) },
		UpdateFunc: func(before, after any) { jc.podUpdated(before.(*corev1.Pod), after.(*corev1.Pod)) },
		DeleteFunc: func(o any) { withLast(o, jc.podDeleted) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	jc.synced = []cache.InformerSynced{jobsSynced.HasSynced, podsSynced.HasSynced}
	if cfg.Groups {
		groups, synced, err := newJobGroups(client, kinds)
		if err != nil {
			return nil, err
		}
		jc.groups, jc.synced = groups, append(jc.synced, synced...)
	}
	return jc, nil
}

func newJobController(cfg JobConfig, api jobAPI, events eventSink, c clock.WithTicker, log *slog.Logger) *JobController {
	return &JobController{
		cfg: cfg.withDefaults(), api: api, events: events, clock: c, log: log, gate: newGate(maxRequests),
		queue:   newLazyQueue("job", retryDelays(), c),
		orphans: newLazyQueue("job_orphan_pod", retryDelays(), c),
		expired: newLazyQueue("ttl_jobs_to_delete", retryDelays(), c),
		states:  newJobStates(),
		ready:   make(chan struct{}),
	}
}

// retryDelays returns how long a key waits after its first, second, … failure in a row: 100 ms, doubled up to 10 s.
//
// Differs: upstream waits 1 s to 60 s, and up to 1000 s before it deletes an expired Job.
func retryDelays() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second)
}

// withLast calls f with the last known state of a deleted object.
func withLast[T any](o any, f func(T)) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	if object, ok := o.(T); ok {
		f(object)
	}
}

// Run works until ctx ends, and returns when everything it started has ended.
func (c *JobController) Run(ctx context.Context) error {
	defer c.log.Info("Job controller stopped")
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	close(c.ready)
	c.log.Info("Job controller started", "workers", c.cfg.Workers)
	var workers sync.WaitGroup
	for _, q := range []struct {
		queue keyQueue
		n     int
		sync  func(ctx context.Context, key string) error
	}{
		{c.queue, c.cfg.Workers, c.syncJob},
		{c.orphans, max(1, c.cfg.Workers/2), c.syncOrphans},
		{c.expired, max(1, c.cfg.Workers/4), c.syncExpired},
	} {
		for range q.n {
			workers.Go(func() {
				work(ctx, q.queue, func(ctx context.Context, key string) error {
					c.cfg.Precedence.GiveWay(ctx)
					return q.sync(ctx, key)
				}, c.log)
			})
		}
	}
	<-ctx.Done()
	c.queue.ShutDown()
	c.orphans.ShutDown()
	c.expired.ShutDown()
	workers.Wait()
	return nil
}

// Ready is closed once the controller knows the cluster and works.
func (c *JobController) Ready() <-chan struct{} { return c.ready }
