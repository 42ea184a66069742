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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/cronjob"
)

// CronJobConfig says how a CronJobController works. The zero value of each field means its default.
type CronJobConfig struct {
	// Workers is how many CronJobs are looked at at once; default 16.
	Workers int
	// StoreDelay is how long a changed status waits for more to be written with it; default 1 s. Where many CronJobs are due at
	// once it is StoreDelayEach for each of them, up to StoreDelayMax; defaults 15 ms and 30 s.
	StoreDelay, StoreDelayEach, StoreDelayMax time.Duration
	// LedgerDelay is how long news that only the ledger tells of wait for a write; default 1 min.
	LedgerDelay time.Duration
	// StopTime is how long a controller that ends may go on to store what is not stored yet; default 3 s.
	StopTime time.Duration
	// Precedence is told of starts, so that others can let them go first; nil: nobody asks.
	Precedence *Precedence
	// Local is the time zone of schedules that name none; default UTC.
	Local *time.Location
	// Options are the bounds of single decisions; default cronjob.DefaultOptions, where LedgerSize is 0.
	Options cronjob.Options
}

func (c CronJobConfig) withDefaults() CronJobConfig {
	if c.Workers == 0 {
		c.Workers = 16
	}
	setDefaultSpan(&c.StoreDelay, time.Second)
	setDefaultSpan(&c.StoreDelayEach, 15*time.Millisecond)
	setDefaultSpan(&c.StoreDelayMax, 30*time.Second)
	setDefaultSpan(&c.LedgerDelay, time.Minute)
	setDefaultSpan(&c.StopTime, 3*time.Second)
	if c.Local == nil {
		c.Local = time.UTC
	}
	if c.Options.LedgerSize == 0 {
		c.Options = cronjob.DefaultOptions()
	}
	return c
}

func setDefaultSpan(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Validate reports every setting that makes no sense.
func (c CronJobConfig) Validate() error {
	var errs []error
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers: %d is negative", c.Workers))
	}
	for _, d := range []struct {
		name string
		span time.Duration
	}{
		{"store delay", c.StoreDelay},
		{"store delay for each start", c.StoreDelayEach},
		{"longest store delay", c.StoreDelayMax},
		{"ledger delay", c.LedgerDelay},
		{"stop time", c.StopTime},
	} {
		if d.span < 0 {
			errs = append(errs, fmt.Errorf("%s: %v is negative", d.name, d.span))
		}
	}
	return errors.Join(errs...)
}

// CronJobController runs batch/v1 CronJobs.
type CronJobController = cronController[*batchv1.CronJob, *batchv1.Job]

// cronController runs CronJobs of the kind C, whose Jobs are of the kind J.
//
// A due time fires from memory: the queue knows the next one of each CronJob, and when it comes the first request is the
// creation of the Job. What it means for the status is stored later, together with what follows from it.
type cronController[C, J apiObject] struct {
	kind   cronKind[C, J]
	cfg    CronJobConfig
	api    cronAPI[C, J]
	events eventSink
	clock  clock.WithTicker
	log    *slog.Logger

	crons  cache.Indexer // by namespace and name
	jobs   cache.Indexer // with the index jobsOfCronJob
	synced []cache.InformerSynced
	run    func(ctx context.Context, running *sync.WaitGroup) // runs what it follows; nil: others do

	queue  *cronQueue
	states *cronStates[C]
	zones  zones
	crowd  crowd
	ready  chan struct{}

	mu    sync.Mutex
	awake time.Time // since when due times are watched without a break
}

// NewCronJobController returns a controller that follows CronJobs and Jobs through kinds and writes through client. It starts
// nothing; kinds must be started by the caller.
func NewCronJobController(cfg CronJobConfig, client kubernetes.Interface, kinds *KubeCaches, events eventSink, c clock.WithTicker, log *slog.Logger) (*CronJobController, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the CronJob controller: %w", err)
	}
	registerCronMetrics()
	cc := newCronJobController(cfg, cronClient{client}, events, c, log)
	crons, jobs := kinds.cronJobs(), kinds.jobs()
	var slim slimmer // the same for Jobs as the Job controller's, whichever is set last
	if err := errors.Join(jobs.SetTransform(slim.job), crons.SetTransform(slimCronJob)); err != nil {
		return nil, fmt.Errorf("keeping the caches small: %w", err)
	}
	return cc, cc.follow(crons, jobs)
}

func newCronJobController(cfg CronJobConfig, api cronAPI[*batchv1.CronJob, *batchv1.Job], events eventSink, c clock.WithTicker, log *slog.Logger) *CronJobController {
	return newCronController(batchCronKind(), cfg, api, events, c, log)
}

func newCronController[C, J apiObject](kind cronKind[C, J], cfg CronJobConfig, api cronAPI[C, J], events eventSink, c clock.WithTicker, log *slog.Logger) *cronController[C, J] {
	if cfg.Options.LedgerSize == 0 {
		cfg.Options = kind.options
	}
	return &cronController[C, J]{
		kind: kind, cfg: cfg.withDefaults(), api: api, events: events, clock: c, log: log,
		queue:  newCronQueue(kind.queue, c, cfg.Precedence),
		states: newCronStates[C](),
		ready:  make(chan struct{}),
		awake:  c.Now(),
	}
}

// follow has the controller follow what informers tell.
func (c *cronController[C, J]) follow(crons, jobs cache.SharedIndexInformer) error {
	if err := jobs.AddIndexers(c.kind.indexers()); err != nil {
		return fmt.Errorf("indexing the Jobs of CronJobs: %w", err)
	}
	c.crons, c.jobs = crons.GetIndexer(), jobs.GetIndexer()
	cronsSynced, err := crons.AddEventHandler(handlerOf(c.cronAdded, c.cronUpdated, c.cronDeleted))
	if err != nil {
		return fmt.Errorf("watching CronJobs: %w", err)
	}
	jobsSynced, err := jobs.AddEventHandler(handlerOf(c.childAdded, c.childUpdated, c.childDeleted))
	if err != nil {
		return fmt.Errorf("watching the Jobs of CronJobs: %w", err)
	}
	c.synced = []cache.InformerSynced{cronsSynced.HasSynced, jobsSynced.HasSynced}
	return nil
}

// cached returns the CronJob with that key, and whether there is one.
func (c *cronController[C, J]) cached(key string) (cron C, exists bool, err error) {
	o, exists, err := c.crons.GetByKey(key)
	if err != nil || !exists {
		return cron, false, err
	}
	return o.(C), true, nil
}

// Run works until ctx ends, and returns when everything it started has ended.
func (c *cronController[C, J]) Run(ctx context.Context) error {
	defer c.log.Info("CronJob controller stopped")
	var following sync.WaitGroup
	defer following.Wait()
	if c.run != nil {
		c.run(ctx, &following)
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		c.queue.ShutDown()
		return ctx.Err()
	}
	c.setAwake(c.clock.Now())
	close(c.ready)
	c.log.Info("CronJob controller started", "workers", c.cfg.Workers)
	var running sync.WaitGroup
	for range c.cfg.Workers {
		running.Go(func() { c.work(ctx) })
	}
	c.keepTime(ctx)
	c.queue.ShutDown()
	running.Wait()
	c.storeAll(ctx)
	return nil
}

// Ready is closed once the controller knows the cluster and works.
func (c *cronController[C, J]) Ready() <-chan struct{} { return c.ready }

func (c *cronController[C, J]) setAwake(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awake = since
}

func (c *cronController[C, J]) awakeSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awake
}

// work gives CronJobs their turns, one after the other, until the queue is shut down.
func (c *cronController[C, J]) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil { // else what is queued is left to the next process
			c.turn(ctx, key)
		}
		c.queue.Done(key)
	}
}

// turn gives a CronJob one turn. One whose turn goes wrong gets another one later.
func (c *cronController[C, J]) turn(ctx context.Context, key string) {
	asked := c.queue.Take(key)
	if asked.Due {
		defer c.cfg.Precedence.add(-1)
	}
	err := safely(ctx, key, func(ctx context.Context, key string) error { return c.sync(ctx, key, asked) })
	if err != nil && ctx.Err() == nil {
		c.log.Error("CronJob could not be looked at, to be tried again", "cronJob", key, "err", err, "again", turnRetry)
		c.queue.LookAt(key, c.clock.Now().Add(turnRetry), 0)
	}
}

// turnRetry is how long a CronJob waits whose turn has met what never should happen.
const turnRetry = 10 * time.Second

// zones finds time zones, and keeps those that it has found: reading one takes longer than a decision. It is safe for
// concurrent use; the zero value is ready.
type zones struct{ known sync.Map }

func (z *zones) load(name string) (*time.Location, error) {
	if known, ok := z.known.Load(name); ok {
		return known.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	z.known.Store(name, zone) // there are a few hundred at most
	return zone, nil
}
