// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/jobflow"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// JobFlowConfig says how a JobFlowController works. The zero value of each field means its default.
type JobFlowConfig struct {
	// Workers is how many JobFlows are looked at at once; default 8.
	Workers int
	// BatchPeriod is how long news of a Job that change no phase wait for more; default 1 s.
	BatchPeriod time.Duration
}

func (c JobFlowConfig) withDefaults() JobFlowConfig {
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.BatchPeriod == 0 {
		c.BatchPeriod = time.Second
	}
	return c
}

// Validate reports every setting that makes no sense.
func (c JobFlowConfig) Validate() error {
	var errs []error
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers: %d is negative", c.Workers))
	}
	if c.BatchPeriod < 0 {
		errs = append(errs, fmt.Errorf("batch period: %v is negative", c.BatchPeriod))
	}
	return errors.Join(errs...)
}

// JobFlowController runs JobFlows of Volcano, and keeps the status of their JobTemplates.
type JobFlowController struct {
	cfg    JobFlowConfig
	api    flowAPI
	prober prober
	events eventSink
	clock  clock.WithTicker
	log    *slog.Logger

	flows     cache.Indexer // with flowIndexers
	templates cache.Indexer // by namespace and name
	jobs      cache.Indexer // with templateIndexers
	pods      cache.Indexer // with podIndexers
	synced    []cache.InformerSynced
	informers []cache.SharedIndexInformer // that this controller runs itself
	caches    *VolcanoCaches

	queue  keyQueue // JobFlows
	status keyQueue // JobTemplates
	states flowStates
	ready  chan struct{}
}

// NewJobFlowController returns a controller that follows pods through kinds, Jobs of Volcano through caches, and JobFlows and
// JobTemplates through vc, and writes through vc. It starts nothing; kinds must be started by the caller.
func NewJobFlowController(cfg JobFlowConfig, vc *client.Client, kinds *KubeCaches, caches *VolcanoCaches, events eventSink, c clock.WithTicker, log *slog.Logger) (*JobFlowController, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the JobFlow controller: %w", err)
	}
	registerFlowMetrics()
	fc := newJobFlowController(cfg, flowClient{vc}, newHTTPProber(), events, c, log)
	pods := kinds.pods()
	if _, there := pods.GetIndexer().GetIndexers()[podsOfJob]; !there {
		if err := pods.AddIndexers(podIndexers); err != nil {
			return nil, fmt.Errorf("indexing pods: %w", err)
		}
	}
	var slim slimmer
	flows := inNamespaces(caches.namespaces, func(namespace string) cache.SharedIndexInformer {
		return client.NewInformer(vc.JobFlows(namespace), &flow.JobFlow{}, volcanoResync, flowIndexers)
	})
	templates := inNamespaces(caches.namespaces, func(namespace string) cache.SharedIndexInformer {
		return client.NewInformer(vc.JobTemplates(namespace), &flow.JobTemplate{}, volcanoResync, cache.Indexers{})
	})
	fc.informers, fc.caches = []cache.SharedIndexInformer{flows, templates}, caches
	fc.flows, fc.templates, fc.jobs, fc.pods = flows.GetIndexer(), templates.GetIndexer(), caches.jobs.GetIndexer(), pods.GetIndexer()
	errs := []error{
		caches.jobs.AddIndexers(templateIndexers), pods.SetTransform(slim.pod), flows.SetTransform(slim.unmanaged), templates.SetTransform(slim.unmanaged),
	}
	watch := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		if err == nil {
			fc.synced = append(fc.synced, registration.HasSynced)
		}
		errs = append(errs, err)
	}
	watch(flows, handlerOf(fc.flowAdded, fc.flowUpdated, fc.flowDeleted))
	watch(templates, handlerOf(fc.templateAdded, func(_, t *flow.JobTemplate) { fc.templateAdded(t) }, func(*flow.JobTemplate) {}))
	watch(caches.jobs, handlerOf(fc.jobAdded, fc.jobUpdated, fc.jobDeleted))
	fc.synced = append(fc.synced, pods.HasSynced)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("watching for the JobFlow controller: %w", err)
	}
	return fc, nil
}

func newJobFlowController(cfg JobFlowConfig, api flowAPI, p prober, events eventSink, c clock.WithTicker, log *slog.Logger) *JobFlowController {
	return &JobFlowController{
		cfg: cfg.withDefaults(), api: api, prober: p, events: events, clock: c, log: log,
		queue:  newLazyQueue("jobflow", retryDelays(), c),
		status: newLazyQueue("jobtemplate", retryDelays(), c),
		states: flowStates{byUID: map[uid]*flowState{}},
		ready:  make(chan struct{}),
	}
}

// Run works until ctx ends, and returns when everything it started has ended.
func (c *JobFlowController) Run(ctx context.Context) error {
	defer c.log.Info("JobFlow controller stopped")
	var running sync.WaitGroup
	defer running.Wait()
	c.caches.run(ctx, &running)
	for _, informer := range c.informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	close(c.ready)
	c.log.Info("JobFlow controller started", "workers", c.cfg.Workers)
	for range c.cfg.Workers {
		running.Go(func() { work(ctx, c.queue, c.syncFlow, c.log) })
	}
	running.Go(func() { work(ctx, c.status, c.syncTemplate, c.log) })
	<-ctx.Done()
	c.queue.ShutDown()
	c.status.ShutDown()
	return nil
}

// Ready is closed once the controller knows the cluster and works.
func (c *JobFlowController) Ready() <-chan struct{} { return c.ready }

// The indexes: JobFlows by "namespace/name" of the JobTemplates and of the Jobs that their entries mean, and Jobs by "namespace.name" of
// their JobTemplate.
const (
	flowsOfTemplate = "template"
	flowsOfJob      = "job"
	jobsOfTemplate  = "template"
)

var flowIndexers = cache.Indexers{
	flowsOfTemplate: func(o any) ([]string, error) {
		f := o.(*flow.JobFlow)
		return entryKeys(f, func(entry string) string { return entry }), nil
	},
	flowsOfJob: func(o any) ([]string, error) {
		f := o.(*flow.JobFlow)
		return entryKeys(f, func(entry string) string { return jobflow.JobName(f.Name, entry) }), nil
	},
}

func entryKeys(f *flow.JobFlow, name func(entry string) string) []string {
	keys := make([]string, len(f.Spec.Flows))
	for i := range f.Spec.Flows {
		keys[i] = f.Namespace + "/" + name(f.Spec.Flows[i].Name)
	}
	return keys
}

var templateIndexers = cache.Indexers{
	jobsOfTemplate: func(o any) ([]string, error) {
		if key := jobflow.TemplateOf(o.(*batch.Job)); key != "" {
			return []string{key}, nil
		}
		return nil, nil
	},
}

// The handlers do no work: they wake the workers, and note how Jobs were that are gone.

func (c *JobFlowController) flowAdded(f *flow.JobFlow) { c.queue.Add(keyOf(f)) }

func (c *JobFlowController) flowUpdated(before, after *flow.JobFlow) {
	if sameVersion(before, after) {
		return
	}
	if state := c.states.get(after.UID); state == nil || !state.wrote(after.ResourceVersion) {
		c.queue.Add(keyOf(after))
	}
}

func (c *JobFlowController) flowDeleted(f *flow.JobFlow) { c.states.drop(f.UID) }

func (c *JobFlowController) templateAdded(t *flow.JobTemplate) {
	c.status.Add(keyOf(t))
	c.wakeFlows(flowsOfTemplate, keyOf(t))
}

// wakeFlows has the JobFlows looked at that an index has under a key.
func (c *JobFlowController) wakeFlows(index, key string) {
	found, err := c.flows.ByIndex(index, key)
	if err != nil {
		c.log.Error("JobFlows cannot be found", "index", index, "err", err)
		return
	}
	for _, o := range found {
		c.queue.Add(keyOf(o.(*flow.JobFlow)))
	}
}

// flowOf returns the key and UID of the JobFlow that controls j; "": none.
func flowOf(j *batch.Job) (key string, id uid) {
	ref := metav1.GetControllerOfNoCopy(j)
	if !jobflow.IsOwner(ref) {
		return "", ""
	}
	return j.Namespace + "/" + ref.Name, ref.UID
}

func (c *JobFlowController) jobAdded(j *batch.Job) {
	if key, _ := flowOf(j); key != "" {
		c.queue.Add(key)
	}
	c.templateNews(j)
}

func (c *JobFlowController) jobUpdated(before, after *batch.Job) {
	key, _ := flowOf(after)
	if key == "" || sameVersion(before, after) {
		return
	}
	if before.Status.State.Phase != after.Status.State.Phase || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
		c.queue.Add(key)
		return
	}
	c.queue.AddAfter(key, c.cfg.BatchPeriod)
}

func (c *JobFlowController) jobDeleted(j *batch.Job) {
	if _, id := flowOf(j); id != "" {
		if state := c.states.get(id); state != nil {
			state.noteGone(j)
		}
	}
	c.wakeFlows(flowsOfJob, keyOf(j)) // it may have been another's, in the way of ours
	c.templateNews(j)
}

// templateNews has the status of the JobTemplate of a Job looked at.
func (c *JobFlowController) templateNews(j *batch.Job) {
	namespace := j.Namespace + "."
	if of := jobflow.TemplateOf(j); len(of) > len(namespace) && of[:len(namespace)] == namespace {
		c.status.AddAfter(j.Namespace+"/"+of[len(namespace):], c.cfg.BatchPeriod)
	}
}
