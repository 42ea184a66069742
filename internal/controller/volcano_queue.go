// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/queue"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

const (
	// queueSettle is how long the PodGroups of a queue may change before they are counted.
	queueSettle = 250 * time.Millisecond
	// queueCountPeriod is the shortest time between two writes of one queue that only tell numbers.
	queueCountPeriod = 2 * time.Second
	queueWorkers     = 2
	// maxQueueDepth bounds how many queues stand above each other, should they form a ring.
	maxQueueDepth = 64
	// queueFieldManager owns what we write of the status; a scheduler of Volcano writes other parts of it.
	queueFieldManager = "queue-controller"
)

// queueAPI is what a QueueController asks of the API server.
type queueAPI interface {
	// PatchQueue merges a patch into metadata and spec of one queue, and no other of its name.
	PatchQueue(ctx context.Context, q *scheduling.Queue, patch []byte) (*scheduling.Queue, error)
	// ApplyQueueStatus makes the stored status have what patch says, by server-side apply.
	ApplyQueueStatus(ctx context.Context, name string, patch []byte) (*scheduling.Queue, error)
	// DeleteCommand deletes one Command and no other of its name.
	DeleteCommand(ctx context.Context, c *bus.Command) error
}

type queueClient struct{ vc *client.Client }

func (c queueClient) PatchQueue(ctx context.Context, q *scheduling.Queue, patch []byte) (*scheduling.Queue, error) {
	return c.vc.Queues().Patch(ctx, q.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

func (c queueClient) ApplyQueueStatus(ctx context.Context, name string, patch []byte) (*scheduling.Queue, error) {
	return c.vc.Queues().Patch(ctx, name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: queueFieldManager, Force: ptr.To(true)}, "status")
}

func (c queueClient) DeleteCommand(ctx context.Context, cmd *bus.Command) error {
	return vcjobClient{vc: c.vc}.DeleteCommand(ctx, cmd)
}

// QueueController opens and closes queues, counts their PodGroups and, where no scheduler of Volcano does, says what their pods have.
type QueueController struct {
	api    queueAPI
	events eventSink
	clock  clock.WithTicker
	log    *slog.Logger

	queues, groups, commands cache.Indexer
	pods                     cache.Indexer // with podsOfGroup; nil: a scheduler of Volcano says what queues have
	synced                   []cache.InformerSynced
	caches                   *VolcanoCaches
	queue                    keyQueue
	ready                    chan struct{}

	mu      sync.Mutex
	own     map[string]*scheduling.Queue // as we have written them last, until the cache has them
	counted map[string]time.Time         // when numbers were written last
	handled map[types.UID]bool           // Commands that we have deleted, until the cache knows
}

// NewQueueController returns a controller that follows Volcano's kinds through caches. kinds is for the pods, by which it says what queues
// have; nil: a scheduler of Volcano does. It starts nothing; kinds must be started by the caller.
func NewQueueController(vc *client.Client, kinds *KubeCaches, caches *VolcanoCaches, events eventSink, c clock.WithTicker, log *slog.Logger) (*QueueController, error) {
	registerQueueMetrics()
	q := newQueueController(queueClient{vc}, events, c, log)
	q.caches = caches
	q.queues, q.groups, q.commands = caches.queues.GetIndexer(), caches.groups.GetIndexer(), caches.commands.GetIndexer()
	var errs []error
	watch := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		if err == nil {
			q.synced = append(q.synced, registration.HasSynced)
		}
		errs = append(errs, err)
	}
	watch(caches.queues, handlerOf(q.queueAdded, q.queueUpdated, q.queueDeleted))
	watch(caches.groups, handlerOf(q.groupChanged, q.groupUpdated, q.groupDeleted))
	watch(caches.commands, handlerOf(q.commandAdded, func(_, cmd *bus.Command) { q.commandAdded(cmd) }, q.commandAdded))
	if kinds != nil {
		var slim slimmer
		pods := kinds.pods()
		q.pods = pods.GetIndexer()
		errs = append(errs, indexByGroup(pods), pods.SetTransform(slim.pod))
		watch(pods, handlerOf(q.podChanged, q.podUpdated, q.podChanged))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("watching for the controller of queues: %w", err)
	}
	return q, nil
}

func newQueueController(api queueAPI, events eventSink, c clock.WithTicker, log *slog.Logger) *QueueController {
	return &QueueController{
		api: api, events: events, clock: c, log: log, queue: newLazyQueue("volcano_queue", retryDelays(), c), ready: make(chan struct{}),
		own: map[string]*scheduling.Queue{}, counted: map[string]time.Time{}, handled: map[types.UID]bool{},
	}
}

// Run works until ctx ends, and returns when everything it started has ended.
func (c *QueueController) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	c.caches.run(ctx, &running)
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	close(c.ready)
	c.log.Info("Controller of queues started")
	for range queueWorkers {
		running.Go(func() { work(ctx, c.queue, c.sync, c.log) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	return nil
}

// Ready is closed once the controller knows the cluster and works.
func (c *QueueController) Ready() <-chan struct{} { return c.ready }

func (c *QueueController) queueAdded(q *scheduling.Queue) {
	c.queue.Add(q.Name)
	c.wakeBelow(q.Name)
}

func (c *QueueController) queueUpdated(before, after *scheduling.Queue) {
	if sameVersion(before, after) {
		return
	}
	c.queue.Add(after.Name)
	if before.Status.State != after.Status.State {
		c.wakeBelow(after.Name)
	}
}

func (c *QueueController) queueDeleted(q *scheduling.Queue) {
	dropQueueMetrics(q.Name)
	c.queue.Add(q.Name) // Commands for it are left
}

// wakeBelow has the queues looked at whose parent has changed.
func (c *QueueController) wakeBelow(name string) {
	for _, o := range c.queues.List() {
		if q := o.(*scheduling.Queue); q.Spec.Parent == name && q.Name != name {
			c.queue.Add(q.Name)
		}
	}
}

func (c *QueueController) groupChanged(g *scheduling.PodGroup) {
	c.queue.AddAfter(g.Spec.Queue, queueSettle)
	c.wakeAllocated(g.Spec.Queue)
}

func (c *QueueController) groupUpdated(before, after *scheduling.PodGroup) {
	if before.Status.Phase != after.Status.Phase || before.Spec.Queue != after.Spec.Queue {
		c.groupChanged(after)
		if before.Spec.Queue != after.Spec.Queue {
			c.groupChanged(before)
		}
	}
}

// groupDeleted looks at a queue at once that waits for its last PodGroup.
func (c *QueueController) groupDeleted(g *scheduling.PodGroup) {
	if o, exists, err := c.queues.GetByKey(g.Spec.Queue); err == nil && exists && o.(*scheduling.Queue).Status.State == scheduling.QueueClosing {
		c.queue.Add(g.Spec.Queue)
		return
	}
	c.groupChanged(g)
}

// podChanged has it told what the queues of a pod have.
func (c *QueueController) podChanged(p *corev1.Pod) {
	key := groupOfPod(p)
	if key == "" || p.Spec.NodeName == "" {
		return
	}
	if o, exists, err := c.groups.GetByKey(key); err == nil && exists { // else it is told with the PodGroup
		c.wakeAllocated(o.(*scheduling.PodGroup).Spec.Queue)
	}
}

// wakeAllocated has it told what a queue and those above it have, as soon as their numbers may be written.
func (c *QueueController) wakeAllocated(name string) {
	if c.pods == nil {
		return
	}
	for range maxQueueDepth {
		c.mu.Lock()
		wait := c.counted[name].Add(queueCountPeriod).Sub(c.clock.Now()) // long ago where nothing was written
		c.mu.Unlock()
		c.queue.AddAfter(name, max(queueSettle, wait))
		o, exists, err := c.queues.GetByKey(name)
		if err != nil || !exists {
			return
		}
		parent := o.(*scheduling.Queue).Spec.Parent
		if parent == "" || parent == name {
			return
		}
		name = parent
	}
}

func (c *QueueController) podUpdated(before, after *corev1.Pod) {
	if queue.Holds(before) != queue.Holds(after) || before.Spec.Resources != after.Spec.Resources || groupOfPod(before) != groupOfPod(after) {
		c.podChanged(after)
	}
}

// allocated returns what the pods of a queue and of those below it have; nil: that is not ours to say.
func (c *QueueController) allocated(name string) (corev1.ResourceList, error) {
	if c.pods == nil {
		return nil, nil
	}
	parents := map[string]string{}
	for _, o := range c.queues.List() {
		q := o.(*scheduling.Queue)
		parents[q.Name] = q.Spec.Parent
	}
	var pods []*corev1.Pod
	for _, below := range queue.Below(name, parents) {
		groups, err := c.groups.ByIndex(groupsOfQueue, below)
		if err != nil {
			return nil, fmt.Errorf("reading the PodGroups of queue %q from the cache: %w", below, err)
		}
		for _, o := range groups {
			g := o.(*scheduling.PodGroup)
			if !gang.IsAdmitted(g) || g.Status.Phase == scheduling.GroupCompleted {
				continue // it has no pods with a place
			}
			found, err := c.pods.ByIndex(podsOfGroup, keyOf(g))
			if err != nil {
				return nil, fmt.Errorf("reading the pods of PodGroup %s from the cache: %w", keyOf(g), err)
			}
			for _, p := range found {
				pods = append(pods, p.(*corev1.Pod))
			}
		}
	}
	return queue.Allocated(pods), nil
}

func (c *QueueController) commandAdded(cmd *bus.Command) {
	if name := commandQueue(cmd); name != "" {
		c.queue.Add(name)
	}
}

// sync looks at one queue and does what is to be done now.
func (c *QueueController) sync(ctx context.Context, name string) error {
	cached, exists, err := c.queues.GetByKey(name)
	if err != nil {
		return fmt.Errorf("reading queue %q from the cache: %w", name, err)
	}
	commands, err := c.commandsFor(name)
	if err != nil {
		return err
	}
	if !exists {
		c.mu.Lock()
		delete(c.own, name)
		delete(c.counted, name)
		c.mu.Unlock()
		for _, cmd := range commands { // for a queue that is gone
			if err := c.drop(ctx, cmd); err != nil {
				return err
			}
		}
		return nil
	}
	q := c.newest(cached.(*scheduling.Queue))
	counts, err := c.count(name)
	if err != nil {
		return err
	}
	measureQueue(name, counts)
	allocated, err := c.allocated(name)
	if err != nil {
		return err
	}
	o := queue.Observed{Queue: q, Counts: counts, Commands: commands, Allocated: allocated}
	if parent, exists, err := c.queues.GetByKey(q.Spec.Parent); err == nil && exists && q.Spec.Parent != name {
		o.Parent = c.newest(parent.(*scheduling.Queue))
	}
	return c.carryOut(ctx, q, queue.Decide(o))
}

func (c *QueueController) newest(cached *scheduling.Queue) *scheduling.Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.own[cached.Name]
	if own == nil || own.UID != cached.UID || isAsNew(cached, own) {
		delete(c.own, cached.Name)
		return cached
	}
	return own
}

func (c *QueueController) keep(q *scheduling.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own[q.Name] = q
}

// commandsFor returns the Commands for a queue that we have not deleted.
func (c *QueueController) commandsFor(name string) ([]*bus.Command, error) {
	found, err := c.commands.ByIndex(commandsOn, name)
	if err != nil {
		return nil, fmt.Errorf("reading Commands from the cache: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []*bus.Command
	for _, o := range found {
		if cmd := o.(*bus.Command); !c.handled[cmd.UID] {
			left = append(left, cmd)
		}
	}
	if len(found) == 0 && len(c.handled) > 0 {
		all := map[types.UID]bool{}
		for _, o := range c.commands.List() {
			all[o.(*bus.Command).UID] = true
		}
		for id := range c.handled {
			if !all[id] {
				delete(c.handled, id)
			}
		}
	}
	return left, nil
}

func (c *QueueController) count(name string) (queue.Counts, error) {
	var counts queue.Counts
	found, err := c.groups.ByIndex(groupsOfQueue, name)
	if err != nil {
		return counts, fmt.Errorf("reading the PodGroups of queue %q from the cache: %w", name, err)
	}
	for _, o := range found {
		counts.Add(o.(*scheduling.PodGroup).Status.Phase)
	}
	return counts, nil
}

func (c *QueueController) carryOut(ctx context.Context, q *scheduling.Queue, plan queue.Plan) error {
	if plan.Parent != "" || plan.ClosedByParent != "" {
		metadata := map[string]any{"uid": q.UID}
		patch := map[string]any{"metadata": metadata}
		if plan.Parent != "" {
			patch["spec"] = map[string]any{"parent": plan.Parent}
		}
		if plan.ClosedByParent != "" {
			metadata["annotations"] = map[string]string{scheduling.ClosedByParentKey: plan.ClosedByParent}
		}
		text, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("writing queue %q: %w", q.Name, err)
		}
		stored, err := c.api.PatchQueue(ctx, q, text)
		if err != nil {
			return fmt.Errorf("storing queue %q: %w", q.Name, err)
		}
		c.keep(stored)
	}
	if plan.Status != nil {
		if wait := c.mayWait(q.Name, plan); wait > 0 {
			c.queue.AddAfter(q.Name, wait)
		} else if err := c.store(ctx, q, plan); err != nil {
			return err
		}
	}
	for _, e := range plan.Events {
		c.events.Event(q, e.Type, e.Reason, e.Message)
	}
	for _, cmd := range plan.Commands {
		if err := c.drop(ctx, cmd); err != nil {
			return err
		}
		c.queue.Add(q.Name) // there may be more
	}
	return nil
}

// mayWait returns for how long a status may wait that only tells numbers.
func (c *QueueController) mayWait(name string, plan queue.Plan) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.counted[name]
	if plan.Now || last.IsZero() {
		return 0
	}
	return last.Add(queueCountPeriod).Sub(c.clock.Now())
}

func (c *QueueController) store(ctx context.Context, q *scheduling.Queue, plan queue.Plan) error {
	s := plan.Status
	ours := map[string]any{
		"state": s.State, "pending": s.Pending, "inqueue": s.Inqueue, "running": s.Running, "unknown": s.Unknown, "completed": s.Completed,
	}
	if len(s.Allocated) > 0 && c.pods != nil { // what is applied as an empty map where there was more becomes null, which is refused
		ours["allocated"] = s.Allocated
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": scheduling.GroupVersion.String(), "kind": "Queue", "metadata": map[string]any{"name": q.Name, "uid": q.UID}, "status": ours,
	})
	if err != nil {
		return fmt.Errorf("writing the status of queue %q: %w", q.Name, err)
	}
	stored, err := c.api.ApplyQueueStatus(ctx, q.Name, text)
	if err != nil {
		return fmt.Errorf("storing the status of queue %q: %w", q.Name, err)
	}
	if s.State != q.Status.State {
		c.log.Info("Queue has come to a new state", "queue", q.Name, "state", s.State, "from", q.Status.State, "why", plan.Because)
		c.wakeBelow(q.Name)
	}
	c.keep(stored)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted[q.Name] = c.clock.Now()
	return nil
}

// drop deletes a Command that is done with.
func (c *QueueController) drop(ctx context.Context, cmd *bus.Command) error {
	if err := c.api.DeleteCommand(ctx, cmd); err != nil && !isGone(err) {
		return fmt.Errorf("deleting Command %q: %w", cmd.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handled[cmd.UID] = true
	return nil
}
