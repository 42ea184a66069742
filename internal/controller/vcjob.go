// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
)

// VCJobConfig says how a VCJobController works. The zero value of each field means its default.
type VCJobConfig struct {
	// Workers is how many Jobs are looked at at once; default 16.
	Workers int
	// BatchPeriod is the shortest time between two status writes of one Job that only tell numbers; default 1 s. A change of phase
	// is written at once.
	BatchPeriod time.Duration
	// GaugeDelay is how long numbers of pods may be behind after a quiet time; default 250 ms.
	GaugeDelay time.Duration
	// WideJob is how many pods make a Job wide. The pods of a wide one are looked at at most every WidePeriod; defaults 32 and
	// 100 ms.
	WideJob    int
	WidePeriod time.Duration
	// Options bound single decisions; default vcjob.DefaultOptions.
	Options vcjob.Options
}

func (c VCJobConfig) withDefaults() VCJobConfig {
	if c.Workers == 0 {
		c.Workers = 16
	}
	if c.BatchPeriod == 0 {
		c.BatchPeriod = time.Second
	}
	if c.GaugeDelay == 0 {
		c.GaugeDelay = 250 * time.Millisecond
	}
	if c.WideJob == 0 {
		c.WideJob = 32
	}
	if c.WidePeriod == 0 {
		c.WidePeriod = 100 * time.Millisecond
	}
	if c.Options.MaxPerStep == 0 {
		c.Options.MaxPerStep = vcjob.DefaultOptions().MaxPerStep
	}
	return c
}

// Validate reports every setting that makes no sense.
func (c VCJobConfig) Validate() error {
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
	return errors.Join(errs...)
}

// VCJobController runs Jobs of Volcano.
type VCJobController struct {
	cfg    VCJobConfig
	api    vcjobAPI
	events eventSink
	clock  clock.WithTicker
	log    *slog.Logger
	gate   gate
	// makeKeys makes the keys with which the pods of a Job log in to each other.
	makeKeys func() (plugin.Keys, error)

	jobs       cache.Indexer // by namespace and name
	pods       cache.Indexer // with podIndexers
	groups     cache.Indexer // by namespace and name
	commands   cache.Indexer // with commandIndexers
	queues     cache.Indexer // by name
	priorities cache.Indexer // by name
	natives    cache.Indexer // PodGroups of Kubernetes by namespace and name; nil: there are none
	synced     []cache.InformerSynced
	caches     *VolcanoCaches

	queue   keyQueue
	expired keyQueue
	states  *vcjobStates
	rush    rush
	ready   chan struct{}
}

// NewVCJobController returns a controller that follows pods and priority classes through kinds and Volcano's kinds through caches,
// and writes through both clients. It starts nothing; kinds must be started by the caller.
func NewVCJobController(cfg VCJobConfig, kube kubernetes.Interface, vc *client.Client, kinds *KubeCaches, caches *VolcanoCaches, events eventSink, c clock.WithTicker, log *slog.Logger) (*VCJobController, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the controller of Volcano's Jobs: %w", err)
	}
	registerVCJobMetrics()
	vj := newVCJobController(cfg, vcjobClient{kube, vc}, events, c, log)
	pods := kinds.pods()
	if _, there := pods.GetIndexer().GetIndexers()[podsOfJob]; !there {
		if err := pods.AddIndexers(podIndexers); err != nil {
			return nil, fmt.Errorf("indexing pods: %w", err)
		}
	}
	var slim slimmer
	jobs, groups, commands, queues := caches.jobs, caches.groups, caches.commands, caches.queues
	priorities := kinds.priorityClasses()
	vj.caches = caches
	if cfg.Options.Native {
		natives := kinds.podGroups()
		vj.natives = natives.GetIndexer()
		vj.synced = append(vj.synced, natives.HasSynced)
	}
	vj.jobs, vj.pods, vj.groups, vj.commands = jobs.GetIndexer(), pods.GetIndexer(), groups.GetIndexer(), commands.GetIndexer()
	vj.queues, vj.priorities = queues.GetIndexer(), priorities.GetIndexer()
	errs := []error{pods.SetTransform(slim.pod)}
	watch := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		if err == nil {
			vj.synced = append(vj.synced, registration.HasSynced)
		}
		errs = append(errs, err)
	}
	watch(jobs, handlerOf(vj.jobAdded, vj.jobUpdated, vj.jobDeleted))
	watch(pods, handlerOf(vj.podAdded, vj.podUpdated, vj.podDeleted))
	watch(groups, handlerOf(vj.groupChanged, vj.groupUpdated, vj.groupDeleted))
	watch(commands, handlerOf(vj.commandAdded, func(_, c *bus.Command) { vj.commandAdded(c) }, vj.commandAdded))
	watch(queues, handlerOf(vj.queueChanged, vj.queueUpdated, vj.queueChanged))
	watch(priorities, handlerOf(func(*schedulingv1.PriorityClass) {}, func(_, _ *schedulingv1.PriorityClass) {}, func(*schedulingv1.PriorityClass) {}))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("watching for the controller of Volcano's Jobs: %w", err)
	}
	return vj, nil
}

// handlerOf returns the handler of one kind.
func handlerOf[T any](added func(T), updated func(before, after T), deleted func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { added(o.(T)) },
		UpdateFunc: func(before, after any) { updated(before.(T), after.(T)) },
		DeleteFunc: func(o any) { withLast(o, deleted) },
	}
}

func newVCJobController(cfg VCJobConfig, api vcjobAPI, events eventSink, c clock.WithTicker, log *slog.Logger) *VCJobController {
	return &VCJobController{
		cfg: cfg.withDefaults(), api: api, events: events, clock: c, log: log, gate: newGate(maxRequests), makeKeys: newSSHKeys,
		queue:   newLazyQueue("vcjob", retryDelays(), c),
		expired: newLazyQueue("vcjob_ttl", retryDelays(), c),
		states:  &vcjobStates{byUID: map[uid]*vcjobState{}},
		ready:   make(chan struct{}),
	}
}

// Run works until ctx ends, and returns when everything it started has ended.
func (c *VCJobController) Run(ctx context.Context) error {
	defer c.log.Info("Controller of Volcano's Jobs stopped")
	var running sync.WaitGroup
	defer running.Wait()
	c.caches.run(ctx, &running)
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	close(c.ready)
	c.log.Info("Controller of Volcano's Jobs started", "workers", c.cfg.Workers)
	for range c.cfg.Workers {
		running.Go(func() { work(ctx, c.queue, c.syncJob, c.log) })
	}
	for range max(1, c.cfg.Workers/4) {
		running.Go(func() { work(ctx, c.expired, c.syncExpired, c.log) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	c.expired.ShutDown()
	return nil
}

// Ready is closed once the controller knows the cluster and works.
func (c *VCJobController) Ready() <-chan struct{} { return c.ready }

// cachedJob returns the Job with that key, or nil.
func (c *VCJobController) cachedJob(key string) (*batch.Job, error) {
	o, exists, err := c.jobs.GetByKey(key)
	if err != nil || !exists {
		return nil, err
	}
	return o.(*batch.Job), nil
}
