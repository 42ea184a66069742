// SPDX-License-Identifier: Apache-2.0

// Package app builds the parts of Drover from a configuration and runs them together. Every wire between parts is drawn here.
//
// Start reading at NewControllers.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/controller"
	"github.com/drover-dev/drover/internal/eventqueue"
)

// resync is how often the caches tell everything again. Nothing depends on it.
const resync = 12 * time.Hour

// eventsEach is how many events in a row an object may have, and eventsRefill how many more a second after that. It leaves
// room for the end of a wide Job to be told after its many pods.
const (
	eventsEach   = 25
	eventsRefill = 1. / 300
)

// part is something that runs.
type part interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
}

// Controllers are the controllers of all kinds, on one set of caches.
type Controllers struct {
	kinds  *controller.KubeCaches
	events record.EventBroadcaster
	sink   record.EventSink
	queue  *eventqueue.Sink // nil: events do not wait
	parts  map[string]part
	order  []string
	ready  chan struct{}
	log    *slog.Logger
}

// NewControllers returns the controllers that cfg asks for, on the API server that rc means. It starts nothing.
func NewControllers(cfg config.Controllers, rc *rest.Config, log *slog.Logger) (*Controllers, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Namespaces = eachOnce(cfg.Namespaces)
	client, err := kubernetes.NewForConfig(controllerConfig(cfg, rc))
	if err != nil {
		return nil, fmt.Errorf("connecting the controllers: %w", err)
	}
	c := &Controllers{
		kinds:  controller.NewKubeCaches(client, resync, cfg.Namespaces),
		events: record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: eventsEach, QPS: eventsRefill})),
		sink:   &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")},
		parts:  map[string]part{},
		ready:  make(chan struct{}),
		log:    log,
	}
	if cfg.EventsWait {
		c.queue = eventqueue.New(c.sink, log)
		c.sink = c.queue
	}
	startsFirst := controller.NewPrecedence(clock.RealClock{})
	if cfg.Runs("job") {
		jobs := controller.JobConfig{Workers: cfg.JobWorkers, BatchPeriod: cfg.JobBatchPeriod, Groups: cfg.Groups, Precedence: startsFirst}
		if cfg.Manage == config.ManageMarked {
			jobs.ManagerName, jobs.OnlyMarked = config.MarkedManager, true
		}
		recorder := c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "job-controller"})
		p, err := controller.NewJobController(jobs, client, c.kinds, recorder, clock.RealClock{}, log.With("controller", "job"))
		if err != nil {
			return nil, err
		}
		c.add("job", p)
	}
	// Where the cluster's own CronJob loop works, it cannot be told to spare one.
	if cfg.Runs("cronjob") && cfg.Manage != config.ManageMarked {
		crons := controller.CronJobConfig{Workers: cfg.CronJobWorkers, Local: time.Local, Precedence: startsFirst}
		recorder := c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "cronjob-controller"})
		p, err := controller.NewCronJobController(crons, client, c.kinds, recorder, clock.RealClock{}, log.With("controller", "cronjob"))
		if err != nil {
			return nil, err
		}
		c.add("cronjob", p)
	}
	if err := c.newVolcano(cfg, client, rc); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Controllers) add(name string, p part) {
	c.parts[name] = p
	c.order = append(c.order, name)
}

// controllerConfig returns rc as controllers use it: the compact encoding, and no limit of their own unless asked for.
func controllerConfig(cfg config.Controllers, rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	rc.DisableCompression = true // costs more than it saves on a local network
	rc.QPS, rc.Burst = -1, -1
	if cfg.QPS > 0 {
		rc.QPS, rc.Burst = cfg.QPS, int(2*cfg.QPS)
	}
	return rest.AddUserAgent(rc, "drover-controller")
}

// Run works until ctx ends or a controller fails, and returns when everything it started has ended.
func (c *Controllers) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.events.StartRecordingToSink(c.sink)
	defer c.events.Shutdown()
	c.kinds.Start(ctx.Done())
	defer c.kinds.Shutdown()
	defer cancel() // before the caches are waited for

	var running sync.WaitGroup
	if c.queue != nil {
		running.Go(func() { c.queue.Run(ctx) })
	}
	errs := make(chan error, len(c.parts))
	for _, name := range c.order {
		running.Go(func() {
			if err := c.parts[name].Run(ctx); err != nil && ctx.Err() == nil {
				errs <- fmt.Errorf("running the %s controller: %w", name, err)
				cancel()
			}
		})
	}
	running.Go(func() { c.awaitReady(ctx) })
	running.Go(func() { <-ctx.Done() }) // also where there is no controller: the process may serve webhooks
	running.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func (c *Controllers) awaitReady(ctx context.Context) {
	for _, name := range c.order {
		select {
		case <-c.parts[name].Ready():
		case <-ctx.Done():
			return
		}
	}
	close(c.ready)
}

// Ready is closed once every controller knows the cluster and works.
func (c *Controllers) Ready() <-chan struct{} { return c.ready }
