// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/queue"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

const (
	// passPause is the shortest time between two looks at all queues.
	passPause = 100 * time.Millisecond
	// groupSettle is how long pods may change before their PodGroup is looked at.
	groupSettle = 100 * time.Millisecond
	// gangGaugeDelay is how long the numbers of a PodGroup may be behind.
	gangGaugeDelay = time.Second
	// gangWordsDelay is the shortest time between two writes that only say in other words why a PodGroup waits.
	gangWordsDelay = 5 * time.Second
	gangWorkers    = 4
	// everyQueue is the key of a look at all queues.
	everyQueue = "queues"
)

// gangAPI is what a GangController asks of the API server.
type gangAPI interface {
	// PatchGroup merges a patch into one PodGroup of Volcano, and no other of its name.
	PatchGroup(ctx context.Context, g *scheduling.PodGroup, patch []byte) (*scheduling.PodGroup, error)
}

type gangClient struct{ vc *client.Client }

func (c gangClient) PatchGroup(ctx context.Context, g *scheduling.PodGroup, patch []byte) (*scheduling.PodGroup, error) {
	return c.vc.PodGroups(g.Namespace).Patch(ctx, g.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// GangController admits PodGroups of Volcano to their queues and writes their status, where no scheduler of Volcano does. Which node
// a pod goes to, and that pods which belong together go together, is kube-scheduler's business.
type GangController struct {
	api    gangAPI
	events eventSink
	clock  clock.WithTicker
	log    *slog.Logger
	gate   gate

	groups     cache.Indexer // with groupIndexers
	queues     cache.Indexer // by name
	pods       cache.Indexer // with podsOfGroup
	nodes      cache.Indexer // by name; nil: too few pods are known to tell what is free
	priorities cache.Indexer // by name
	natives    cache.Indexer // with nativesOfGroup; nil: kube-scheduler places pods one by one
	synced     []cache.InformerSynced
	caches     *VolcanoCaches

	passes   keyQueue // the one key is everyQueue
	mirror   keyQueue // PodGroups by "namespace/name"
	lastPass time.Time
	parsed   map[types.UID]parsedGroup // belongs to the one worker of passes

	mu    sync.Mutex
	waits map[string]string // why PodGroups are not admitted, by key
	state map[string]*groupState
	ready chan struct{}

	freeMu sync.Mutex
	free   *cluster
}

// parsedGroup is what was read from a version of a PodGroup.
type parsedGroup struct {
	version  string
	priority int32
	group    gang.Group
	counts   bool
}

// groupState is what is remembered of one PodGroup.
type groupState struct {
	own       *scheduling.PodGroup // as we have written it last, until the cache has it
	lastWrite time.Time
	dirty     time.Time // since when its numbers are behind; zero: they are not
}

// Names of indexes.
const (
	podsOfGroup    = "podGroup"     // pods by "namespace/name" of their PodGroup of Volcano
	nativesOfGroup = "volcanoGroup" // PodGroups of Kubernetes by the UID of that of Volcano
)

func podsByGroup(o any) ([]string, error) {
	if key := groupOfPod(o.(*corev1.Pod)); key != "" {
		return []string{key}, nil
	}
	return nil, nil
}

// indexByGroup adds the index podsOfGroup, if nobody has.
func indexByGroup(pods cache.SharedIndexInformer) error {
	if _, there := pods.GetIndexer().GetIndexers()[podsOfGroup]; there {
		return nil
	}
	return pods.AddIndexers(cache.Indexers{podsOfGroup: podsByGroup})
}

// groupOfPod returns "namespace/name" of the PodGroup of Volcano that p belongs to; "": it belongs to none.
func groupOfPod(p *corev1.Pod) string {
	if name := p.Annotations[batch.GroupNameKey]; name != "" {
		return p.Namespace + "/" + name
	}
	return ""
}

func nativesByGroup(o any) ([]string, error) {
	if ref := metav1.GetControllerOfNoCopy(o.(*schedulingv1beta1.PodGroup)); names(ref, "PodGroup", scheduling.GroupVersion.String()) {
		return []string{string(ref.UID)}, nil
	}
	return nil, nil
}

// NewGangController returns a controller that follows pods, nodes and, where native says so, PodGroups of Kubernetes through kinds,
// and Volcano's kinds through caches. It starts nothing.
func NewGangController(native bool, vc *client.Client, kinds *KubeCaches, caches *VolcanoCaches, events eventSink, c clock.WithTicker, log *slog.Logger) (*GangController, error) {
	g := newGangController(gangClient{vc}, events, c, log)
	g.caches = caches
	pods, priorities := kinds.pods(), kinds.priorityClasses()
	g.groups, g.queues = caches.groups.GetIndexer(), caches.queues.GetIndexer()
	g.pods, g.priorities = pods.GetIndexer(), priorities.GetIndexer()
	var slim slimmer
	errs := []error{indexByGroup(pods), pods.SetTransform(slim.pod)}
	watch := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		if err == nil {
			g.synced = append(g.synced, registration.HasSynced)
		}
		errs = append(errs, err)
	}
	watch(caches.groups, handlerOf(g.groupAdded, g.groupUpdated, g.groupDeleted))
	watch(caches.queues, handlerOf(g.queueChanged, g.queueUpdated, g.queueChanged))
	watch(pods, handlerOf(g.podChanged, g.podUpdated, g.podChanged))
	if !kinds.partial() {
		nodes := kinds.nodes()
		g.nodes = nodes.GetIndexer()
		errs = append(errs, nodes.SetTransform(slimNode))
		watch(nodes, handlerOf(func(*corev1.Node) {}, func(_, _ *corev1.Node) {}, func(*corev1.Node) {}))
	}
	watch(priorities, handlerOf(g.priorityChanged, func(_, p *schedulingv1.PriorityClass) { g.priorityChanged(p) }, g.priorityChanged))
	if native {
		natives := kinds.podGroups()
		g.natives = natives.GetIndexer()
		errs = append(errs, natives.AddIndexers(cache.Indexers{nativesOfGroup: nativesByGroup}))
		watch(natives, handlerOf(g.nativeChanged, func(_, n *schedulingv1beta1.PodGroup) { g.nativeChanged(n) }, g.nativeChanged))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("watching for the controller of PodGroups: %w", err)
	}
	return g, nil
}

func newGangController(api gangAPI, events eventSink, c clock.WithTicker, log *slog.Logger) *GangController {
	return &GangController{
		api: api, events: events, clock: c, log: log, gate: newGate(maxRequests),
		passes: newLazyQueue("gang_admission", retryDelays(), c), mirror: newLazyQueue("gang", retryDelays(), c),
		parsed: map[types.UID]parsedGroup{}, waits: map[string]string{}, state: map[string]*groupState{},
		ready: make(chan struct{}),
	}
}

// Run works until ctx ends, and returns when everything it started has ended.
func (c *GangController) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	c.caches.run(ctx, &running)
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	close(c.ready)
	c.log.Info("Controller of PodGroups started", "native", c.natives != nil)
	running.Go(func() { work(ctx, c.passes, c.pass, c.log) })
	for range gangWorkers {
		running.Go(func() { work(ctx, c.mirror, c.syncGroup, c.log) })
	}
	<-ctx.Done()
	c.passes.ShutDown()
	c.mirror.ShutDown()
	return nil
}

// Ready is closed once the controller knows the cluster and works.
func (c *GangController) Ready() <-chan struct{} { return c.ready }

// The handlers do no work: they say which PodGroup, or whether all queues, are to be looked at.

func (c *GangController) groupAdded(g *scheduling.PodGroup) {
	if !gang.IsAdmitted(g) || c.isLimited(g) {
		c.passes.Add(everyQueue)
	}
	if gang.IsAdmitted(g) {
		c.mirror.AddAfter(keyOf(g), groupSettle)
	}
}

func (c *GangController) groupUpdated(before, after *scheduling.PodGroup) {
	if sameVersion(before, after) {
		return
	}
	if gang.IsAdmitted(before) != gang.IsAdmitted(after) || after.Status.Phase == scheduling.GroupCompleted ||
		before.Generation != after.Generation || before.Annotations[gang.WantedKey] != after.Annotations[gang.WantedKey] {
		c.passes.Add(everyQueue)
	}
	if gang.IsAdmitted(after) {
		c.mirror.AddAfter(keyOf(after), groupSettle)
	}
}

func (c *GangController) groupDeleted(g *scheduling.PodGroup) {
	c.mu.Lock()
	delete(c.waits, keyOf(g))
	delete(c.state, keyOf(g))
	c.mu.Unlock()
	if c.isLimited(g) {
		c.passes.Add(everyQueue)
	}
}

// isLimited reports whether anybody may wait for room in the queue of g.
func (c *GangController) isLimited(g *scheduling.PodGroup) bool {
	return gang.IsLimited(g.Spec.Queue, func(name string) (gang.Queue, bool) {
		o, exists, err := c.queues.GetByKey(name)
		if err != nil || !exists {
			return gang.Queue{}, false
		}
		return gangQueue(o.(*scheduling.Queue)), true
	})
}

func (c *GangController) queueChanged(*scheduling.Queue) { c.passes.Add(everyQueue) }

func (c *GangController) queueUpdated(before, after *scheduling.Queue) {
	if before.Generation != after.Generation || queue.TakesJobs(before) != queue.TakesJobs(after) {
		c.passes.Add(everyQueue)
	}
}

func (c *GangController) priorityChanged(*schedulingv1.PriorityClass) { c.passes.Add(everyQueue) }

func (c *GangController) podChanged(p *corev1.Pod) {
	if key := groupOfPod(p); key != "" {
		c.mirror.AddAfter(key, groupSettle)
	}
}

func (c *GangController) podUpdated(before, after *corev1.Pod) {
	if before.Status.Phase != after.Status.Phase || before.Spec.NodeName != after.Spec.NodeName || groupOfPod(before) != groupOfPod(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || whyUnplaced(before) != whyUnplaced(after) {
		c.podChanged(after)
	}
}

func (c *GangController) nativeChanged(n *schedulingv1beta1.PodGroup) {
	if ref := metav1.GetControllerOfNoCopy(n); names(ref, "PodGroup", scheduling.GroupVersion.String()) {
		c.mirror.Add(n.Namespace + "/" + ref.Name)
	}
}

// pass looks at all queues once: it admits what there is room for, and has told to the others what they wait for.
func (c *GangController) pass(ctx context.Context, key string) error {
	if wait := passPause - c.clock.Since(c.lastPass); !c.lastPass.IsZero() && wait > 0 {
		c.passes.AddAfter(key, wait)
		return nil
	}
	c.lastPass = c.clock.Now()
	queues, find := c.allQueues()
	var groups []gang.Group
	objects := map[string]*scheduling.PodGroup{}
	parsed := make(map[types.UID]parsedGroup, len(c.parsed))
	for _, o := range c.groups.List() {
		g := c.newest(o.(*scheduling.PodGroup))
		p := c.parse(g)
		parsed[g.UID] = p
		if !p.counts || p.group.Admitted && !gang.IsLimited(p.group.Queue, find) {
			continue
		}
		groups = append(groups, p.group)
		objects[p.group.Key] = g
	}
	c.parsed = parsed
	verdicts := gang.Admit(queues, groups)
	waits := make(map[string]string, len(verdicts))
	var grants []gang.Verdict
	for _, v := range verdicts {
		if v.Grant != nil {
			grants = append(grants, v)
		} else {
			waits[v.Key] = v.Waits
		}
	}
	c.tellWaits(waits)
	errs := make([]error, len(grants))
	c.gate.each(len(grants), func(i int) {
		errs[i] = c.grant(ctx, objects[grants[i].Key], *grants[i].Grant, gang.IsLimited(objects[grants[i].Key].Spec.Queue, find))
	})
	return errors.Join(errs...)
}

func (c *GangController) allQueues() ([]gang.Queue, func(name string) (gang.Queue, bool)) {
	list := c.queues.List()
	queues, byName := make([]gang.Queue, len(list)), make(map[string]gang.Queue, len(list))
	for i, o := range list {
		queues[i] = gangQueue(o.(*scheduling.Queue))
		byName[queues[i].Name] = queues[i]
	}
	return queues, func(name string) (gang.Queue, bool) { q, ok := byName[name]; return q, ok }
}

// gangQueue returns what counts of q.
func gangQueue(q *scheduling.Queue) gang.Queue {
	return gang.Queue{
		Name: q.Name, Parent: q.Spec.Parent, Closed: !queue.TakesJobs(q), Priority: q.Spec.Priority,
		Strict: q.Spec.DequeueStrategy == scheduling.DequeueFIFO, Capability: gang.AmountsOf(q.Spec.Capability),
	}
}

func (c *GangController) parse(g *scheduling.PodGroup) parsedGroup {
	priority := c.priority(g.Spec.PriorityClassName)
	if p, ok := c.parsed[g.UID]; ok && p.version == g.ResourceVersion && p.priority == priority {
		return p
	}
	p := parsedGroup{version: g.ResourceVersion, priority: priority}
	p.group, p.counts = gang.GroupOf(g, priority)
	p.counts = p.counts && g.DeletionTimestamp == nil
	return p
}

func (c *GangController) priority(class string) int32 {
	if class == "" {
		return 0
	}
	if o, exists, err := c.priorities.GetByKey(class); err == nil && exists {
		return o.(*schedulingv1.PriorityClass).Value
	}
	return 0
}

// newest returns the later of what the cache holds of a PodGroup and what we have written.
func (c *GangController) newest(cached *scheduling.PodGroup) *scheduling.PodGroup {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state[keyOf(cached)]
	if s == nil || s.own == nil || s.own.UID != cached.UID {
		return cached
	}
	if isAsNew(cached, s.own) {
		s.own = nil
		return cached
	}
	return s.own
}

// tellWaits has told what is new about those that wait.
func (c *GangController) tellWaits(waits map[string]string) {
	c.mu.Lock()
	before := c.waits
	c.waits = waits
	c.mu.Unlock()
	for key, text := range waits {
		if before[key] != text {
			c.mirror.Add(key)
		}
	}
}

// grant admits a PodGroup, or gives an admitted one a share of another size. Without a limit nothing is noted.
func (c *GangController) grant(ctx context.Context, g *scheduling.PodGroup, s gang.Share, limited bool) error {
	patch := map[string]any{}
	if limited {
		patch["annotations"] = map[string]string{gang.GrantedKey: s.Text()}
	}
	status := g.Status
	if !gang.IsAdmitted(g) {
		status = gang.Status(g, "", gang.Members{}, c.clock.Now())
		c.log.Info("PodGroup is admitted", "podGroup", keyOf(g), "queue", g.Spec.Queue, "pods", s.Pods)
	}
	return c.write(ctx, g, patch, &status)
}

// write stores metadata and status of a PodGroup.
func (c *GangController) write(ctx context.Context, g *scheduling.PodGroup, metadata map[string]any, s *scheduling.PodGroupStatus) error {
	metadata["uid"] = g.UID
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "status": map[string]any{
		"phase": s.Phase, "conditions": s.Conditions, "running": s.Running, "succeeded": s.Succeeded, "failed": s.Failed,
	}})
	if err != nil {
		return fmt.Errorf("writing the status of PodGroup %s: %w", keyOf(g), err)
	}
	stored, err := c.api.PatchGroup(ctx, g, patch)
	if isGone(err) {
		return nil // the watch will tell
	}
	if err != nil {
		return fmt.Errorf("storing the status of PodGroup %s: %w", keyOf(g), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.stateLocked(keyOf(g))
	state.own, state.lastWrite, state.dirty = stored, c.clock.Now(), time.Time{}
	return nil
}

func (c *GangController) stateLocked(key string) *groupState {
	s := c.state[key]
	if s == nil {
		s = &groupState{}
		c.state[key] = s
	}
	return s
}

// syncGroup makes the status of one PodGroup say how it fares.
func (c *GangController) syncGroup(ctx context.Context, key string) error {
	o, exists, err := c.groups.GetByKey(key)
	if err != nil || !exists || o.(*scheduling.PodGroup).DeletionTimestamp != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.state, key)
		return err
	}
	g := c.newest(o.(*scheduling.PodGroup))
	c.mu.Lock()
	waits := c.waits[key]
	state := c.stateLocked(key)
	lastWrite, dirty := state.lastWrite, state.dirty
	c.mu.Unlock()
	now := c.clock.Now()
	var next scheduling.PodGroupStatus
	switch {
	case gang.IsAdmitted(g):
		members, err := c.members(g)
		if err != nil {
			return err
		}
		next = gang.Status(g, "", members, now)
	case waits != "":
		next = gang.Status(g, waits, gang.Members{}, now)
	default:
		return nil // it is to be admitted, or nobody has looked at it yet
	}
	wait := time.Duration(0)
	switch {
	case next.Phase != g.Status.Phase && !c.mayWait(g, next.Phase), !sameKinds(next.Conditions, g.Status.Conditions):
	case !sameConditions(next.Conditions, g.Status.Conditions):
		wait = lastWrite.Add(gangWordsDelay).Sub(now)
	case next.Phase != g.Status.Phase || next.Running != g.Status.Running || next.Succeeded != g.Status.Succeeded || next.Failed != g.Status.Failed:
		wait = gangGaugeDelay
		if !dirty.IsZero() {
			wait = dirty.Add(gangGaugeDelay).Sub(now)
		}
	default:
		return nil
	}
	if wait > 0 {
		c.mu.Lock()
		if state.dirty.IsZero() {
			state.dirty = now
		}
		c.mu.Unlock()
		c.mirror.AddAfter(key, wait)
		return nil
	}
	if err := c.write(ctx, g, map[string]any{}, &next); err != nil {
		return err
	}
	// Differs: a scheduler of Volcano says so again and again. Those that wait for their queue are told by their Jobs.
	if n := len(next.Conditions); n > 0 && gang.IsAdmitted(g) && holds(&next.Conditions[n-1]) && !sameKinds(next.Conditions, g.Status.Conditions) {
		c.events.Event(g, corev1.EventTypeWarning, string(scheduling.GroupUnschedulable), next.Conditions[n-1].Message)
	}
	return nil
}

// holds reports whether a condition says that pods cannot be placed.
func holds(c *scheduling.PodGroupCondition) bool {
	return c.Status == corev1.ConditionTrue && c.Type == scheduling.GroupUnschedulable
}

// mayWait reports whether nobody waits for a PodGroup to come to that phase: many are deleted before it matters.
func (c *GangController) mayWait(g *scheduling.PodGroup, phase scheduling.PodGroupPhase) bool {
	return phase == scheduling.GroupRunning && g.Status.Phase == scheduling.GroupInqueue && g.Annotations[gang.WantedKey] == "" ||
		phase == scheduling.GroupCompleted
}

// sameKinds reports whether the same conditions hold.
func sameKinds(a, b []scheduling.PodGroupCondition) bool {
	holding := func(all []scheduling.PodGroupCondition) (kinds []scheduling.PodGroupConditionType) {
		for i := range all {
			if holds(&all[i]) {
				kinds = append(kinds, all[i].Type)
			}
		}
		return kinds
	}
	return slices.Equal(holding(a), holding(b))
}

// members counts the pods of g.
func (c *GangController) members(g *scheduling.PodGroup) (gang.Members, error) {
	var m gang.Members
	found, err := c.pods.ByIndex(podsOfGroup, keyOf(g))
	if err != nil {
		return m, fmt.Errorf("reading the pods of PodGroup %s from the cache: %w", keyOf(g), err)
	}
	said := ""
	for _, o := range found {
		p := o.(*corev1.Pod)
		switch {
		case p.DeletionTimestamp != nil && !podstate.IsFinished(p):
		case p.Status.Phase == corev1.PodRunning:
			m.Running++
		case p.Status.Phase == corev1.PodSucceeded:
			m.Succeeded++
		case p.Status.Phase == corev1.PodFailed:
			m.Failed++
		case p.Spec.NodeName != "":
			m.Placed++
		default:
			m.Waiting++
			said = cmp.Or(said, whyUnplaced(p))
		}
	}
	all := m.Waiting + m.Placed + m.Running + m.Succeeded + m.Failed
	m.Loose = !names(metav1.GetControllerOfNoCopy(g), "Job", batch.GroupVersion.String())
	if m.Loose && all < g.Spec.MinMember && gang.IsPlaced(g) {
		m.Unplaceable = fmt.Sprintf("%d pods must be there, and %d are", g.Spec.MinMember, all) // nobody makes them again
	}
	if m.Waiting == 0 {
		return m, nil
	}
	natives := c.nativesOf(g)
	m.Together = len(natives) > 0
	if text := nativeSays(natives); text != "" {
		said = text
	}
	if said != "" {
		m.Unplaceable = said
		if m.Placed+m.Running == 0 && g.Spec.MinResources != nil && c.nodes != nil {
			m.Unplaceable = c.cluster().shortage(gang.AmountsOf(*g.Spec.MinResources), said)
		}
	}
	return m, nil
}

// whyUnplaced returns what the scheduler says about a pod that it cannot place; "": nothing.
func whyUnplaced(p *corev1.Pod) string {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// nativesOf returns the PodGroups of Kubernetes by which the pods of g are placed together; none: they are placed one by one.
func (c *GangController) nativesOf(g *scheduling.PodGroup) []any {
	if c.natives == nil {
		return nil
	}
	found, err := c.natives.ByIndex(nativesOfGroup, string(g.UID))
	if err != nil {
		return nil // there is no such index, and so there are none
	}
	return found
}

// nativeSays returns what the scheduler says about PodGroups of Kubernetes that it cannot place; "": nothing.
func nativeSays(natives []any) string {
	for _, o := range natives {
		for _, condition := range o.(*schedulingv1beta1.PodGroup).Status.Conditions {
			if condition.Type == schedulingv1beta1.PodGroupInitiallyScheduled && condition.Status == metav1.ConditionFalse {
				return cmp.Or(condition.Message, condition.Reason)
			}
		}
	}
	return ""
}
