// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/queue"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// vcjobRounds bounds how many steps one sync takes; what is left then is for the next.
const vcjobRounds = 12

// syncJob looks at one Job and takes the steps that are to be taken now.
func (c *VCJobController) syncJob(ctx context.Context, key string) error {
	defer c.rush.during(c.queue)()
	cached, err := c.cachedJob(key)
	if err != nil {
		return fmt.Errorf("reading Job %s from the cache: %w", key, err)
	}
	if cached == nil {
		return c.dropCommands(ctx, key)
	}
	if vcjob.TooLarge(cached) {
		c.events.Event(cached, corev1.EventTypeWarning, vcjob.ReasonFailedCreate, fmt.Sprintf("The job has more than the %d pods that a job may have", vcjob.MaxPods))
		return nil
	}
	state, isNew := c.states.begin(cached.UID)
	state.setOver("")
	s := &vcjobSync{c: c, key: key, state: state, job: state.newest(cached)}
	if isNew {
		pods, err := c.podsOf(cached.UID)
		if err != nil {
			return err
		}
		for _, g := range vcjob.Lost(s.job, pods, c.clock.Now()) {
			state.noteGone(g)
		}
	}
	return s.run(ctx)
}

// podsOf returns the pods in the cache that a Job controls.
func (c *VCJobController) podsOf(id uid) ([]*corev1.Pod, error) {
	found, err := c.pods.ByIndex(podsOfJob, string(id))
	if err != nil {
		return nil, fmt.Errorf("reading pods from the cache: %w", err)
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, o := range found {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods, nil
}

// dropCommands deletes Commands for a Job that does not exist.
func (c *VCJobController) dropCommands(ctx context.Context, key string) error {
	commands, err := c.commandsOf(key)
	if err != nil || len(commands) == 0 {
		return err
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("reading the key %q of a Job: %w", key, err)
	}
	if _, err := c.api.Job(ctx, namespace, name); !apierrors.IsNotFound(err) {
		return err // there is one: the cache will tell
	}
	var none vcjobState
	for _, cmd := range none.commandsLeft(commands) {
		if err := c.api.DeleteCommand(ctx, cmd); err != nil && !isGone(err) {
			return fmt.Errorf("deleting Command %q for a Job that does not exist: %w", cmd.Name, err)
		}
	}
	return nil
}

func (c *VCJobController) commandsOf(key string) ([]any, error) {
	found, err := c.commands.ByIndex(commandsFor, key)
	if err != nil {
		return nil, fmt.Errorf("reading Commands from the cache: %w", err)
	}
	return found, nil
}

// vcjobSync is one look at one Job.
type vcjobSync struct {
	c      *VCJobController
	key    string
	state  *vcjobState
	job    *batch.Job // changes with every write
	wakeIn time.Duration
	sure   bool // claims and objects of plugins were found or made in this very sync

	mu   sync.Mutex // guards state and errs while requests run beside each other
	errs []error
}

func (s *vcjobSync) run(ctx context.Context) error {
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	for range vcjobRounds {
		o, err := s.observe()
		if err != nil {
			return err
		}
		plan := vcjob.Decide(o)
		s.c.log.Debug("Decided", "job", s.key, "because", plan.Because)
		s.wake(plan.After)
		s.tellDelayed(plan.Delayed)
		again, err := s.carryOut(ctx, o, plan)
		if err != nil || len(s.errs) > 0 {
			return errors.Join(append(s.errs, err)...)
		}
		if plan.Over && plan.Status == nil && !again {
			s.close()
			return nil
		}
		if !again {
			s.arm()
			return nil
		}
	}
	s.wake(time.Millisecond)
	s.arm()
	return nil
}

// close ends the memory of a Job that is over, as soon as the cache knows so.
func (s *vcjobSync) close() {
	if cached, err := s.c.cachedJob(s.key); err != nil || cached == nil || cached.UID != s.job.UID || vcjob.IsFinal(cached.Status.State.Phase) {
		s.c.states.drop(s.job.UID)
		return
	}
	s.state.setOver(s.job.ResourceVersion)
}

// wake asks for the next look after d at the latest; 0 asks for nothing.
func (s *vcjobSync) wake(d time.Duration) {
	if d > 0 && (s.wakeIn == 0 || d < s.wakeIn) {
		s.wakeIn = d
	}
}

func (s *vcjobSync) arm() {
	if s.wakeIn > 0 {
		s.c.queue.AddAfter(s.key, s.wakeIn)
	}
}

// catchUp finds out what has become of writes whose answers were lost.
func (s *vcjobSync) catchUp(ctx context.Context) error {
	if s.state.unsure {
		live, err := s.c.api.Job(ctx, s.job.Namespace, s.job.Name)
		switch {
		case apierrors.IsNotFound(err):
			return nil // the watch will tell
		case err != nil:
			return fmt.Errorf("finding out whether the status of Job %s was stored: %w", s.key, err)
		case live.UID != s.job.UID:
			return fmt.Errorf("looking at Job %s: it was replaced by another of its name", s.key)
		}
		s.state.unsure = false
		s.adopt(live)
	}
	for name := range s.state.unresolved {
		p, err := s.c.api.Pod(ctx, s.job.Namespace, name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("finding out whether pod %q was created: %w", name, err)
		default:
			s.found(p)
		}
		delete(s.state.unresolved, name)
	}
	return nil
}

// adopt takes over a version of the Job that is newer than the cache.
func (s *vcjobSync) adopt(j *batch.Job) {
	s.job, s.state.stored = j, j
}

// found notes a pod that has a name which one of ours is to have.
func (s *vcjobSync) found(p *corev1.Pod) {
	if metav1.IsControlledBy(p, s.job) {
		s.state.made[p.UID] = p
	} else {
		s.state.taken[p.Name] = p.ResourceVersion
	}
}

// isFree reports whether the pod that had a name at that version is gone, as far as the cache knows.
func (s *vcjobSync) isFree(name, version string) bool {
	if _, exists, err := s.c.pods.GetByKey(s.job.Namespace + "/" + name); err != nil || exists {
		return false
	}
	cmp, err := resourceversion.CompareResourceVersion(seenVersion(s.c.pods, s.job.Namespace), version)
	return err != nil || cmp >= 0
}

// observe gathers what the next decision may look at.
func (s *vcjobSync) observe() (vcjob.Observed, error) {
	c, now := s.c, s.c.clock.Now()
	pods, err := s.pods(now)
	if err != nil {
		return vcjob.Observed{}, err
	}
	commands, err := c.commandsOf(s.key)
	if err != nil {
		return vcjob.Observed{}, err
	}
	gone, unknownSince := s.state.catchUp()
	for name, version := range s.state.taken {
		if s.isFree(name, version) {
			delete(s.state.taken, name)
		}
	}
	o := vcjob.Observed{
		Job: s.job, Pods: pods, Gone: gone, Group: s.group(), Native: s.native(), GroupUnknownSince: unknownSince, Commands: s.state.commandsLeft(commands),
		Prepared: s.state.prepared == s.wantedFor(), Dropped: s.state.dropped, Taken: s.state.takenNames(),
		Refusal: s.state.refusal, RefusedFor: s.state.refusedFor, Priorities: s.priorities(), Now: now, Options: c.cfg.Options,
	}
	if name := s.job.Spec.Queue; name != "" {
		found, exists, err := c.queues.GetByKey(name)
		o.QueueMissing = err == nil && !exists
		if exists {
			q := found.(*scheduling.Queue)
			o.Forward, o.QueueClosed = len(q.Spec.ExtendClusters) > 0, !queue.TakesJobs(q)
			o.QueueFree = c.cfg.Options.Own && !gang.IsLimited(name, c.findQueue)
		}
	}
	s.state.mu.Lock()
	s.state.lastSync, s.state.pods = now, len(pods)
	s.state.mu.Unlock()
	return o, nil
}

// pods returns the Job's pods as the cache and our own writes have them.
func (s *vcjobSync) pods(now time.Time) ([]*corev1.Pod, error) {
	pods, err := s.c.podsOf(s.job.UID)
	if err != nil {
		return nil, err
	}
	present := make(map[uid]bool, len(s.state.marked)+len(s.state.going))
	for i, p := range pods {
		delete(s.state.made, p.UID)
		if len(s.state.marked)+len(s.state.going) > 0 {
			present[p.UID] = true
			pods[i] = s.state.withOverlay(p, now)
		}
	}
	if len(s.state.made) > 0 {
		seen := seenVersion(s.c.pods, s.job.Namespace)
		for id, p := range s.state.made {
			if cmp, err := resourceversion.CompareResourceVersion(seen, p.ResourceVersion); err == nil && cmp >= 0 {
				delete(s.state.made, id) // gone before it was seen
				if g, ok := vcjob.GoneFrom(p, now); ok && s.state.marked[id] == "" && !s.state.going[id] {
					s.state.noteGone(g)
				}
				continue
			}
			present[id] = true
			pods = append(pods, s.state.withOverlay(p, now))
		}
	}
	for id := range s.state.going {
		if !present[id] {
			delete(s.state.going, id)
		}
	}
	for id := range s.state.marked {
		if !present[id] {
			delete(s.state.marked, id)
		}
	}
	return pods, nil
}

// group returns the PodGroup as the cache and our own writes have it; nil: there is none.
func (s *vcjobSync) group() *scheduling.PodGroup {
	var cached *scheduling.PodGroup
	for _, name := range []string{vcjob.GroupName(s.job), s.job.Name} { // the second is how old versions of Volcano call it
		o, exists, err := s.c.groups.GetByKey(s.job.Namespace + "/" + name)
		if err == nil && exists && metav1.IsControlledBy(o.(*scheduling.PodGroup), s.job) {
			cached = o.(*scheduling.PodGroup)
			break
		}
	}
	if cached != nil && cached.UID == s.state.groupGone {
		cached = nil
	}
	own := s.state.group
	switch {
	case own == nil:
		return cached
	case cached != nil && isAsNew(cached, own):
		s.state.group = nil
		return cached
	case cached == nil:
		if cmp, err := resourceversion.CompareResourceVersion(seenVersion(s.c.groups, s.job.Namespace), own.ResourceVersion); err == nil && cmp >= 0 {
			s.state.group = nil // gone already
			return nil
		}
	}
	return own
}

// native returns the PodGroup of Kubernetes for this round, as the cache and our own writes have it; nil: there is none.
func (s *vcjobSync) native() *schedulingv1beta1.PodGroup {
	if s.c.natives == nil {
		return nil
	}
	name, own := vcjob.NativeName(s.job), s.state.native
	if own != nil && own.Name != name {
		own, s.state.native = nil, nil
	}
	var cached *schedulingv1beta1.PodGroup
	if o, exists, err := s.c.natives.GetByKey(s.job.Namespace + "/" + name); err == nil && exists {
		cached = o.(*schedulingv1beta1.PodGroup)
	}
	switch {
	case own == nil:
		return cached
	case cached != nil && isAsNew(cached, own):
		s.state.native = nil
		return cached
	case cached == nil:
		if cmp, err := resourceversion.CompareResourceVersion(seenVersion(s.c.natives, s.job.Namespace), own.ResourceVersion); err == nil && cmp >= 0 {
			s.state.native = nil // gone already
			return nil
		}
	}
	return own
}

// findQueue returns what counts of a queue in the cache.
func (c *VCJobController) findQueue(name string) (gang.Queue, bool) {
	o, exists, err := c.queues.GetByKey(name)
	if err != nil || !exists {
		return gang.Queue{}, false
	}
	return gangQueue(o.(*scheduling.Queue)), true
}

// wantedFor names what claims and objects depend on.
func (s *vcjobSync) wantedFor() string {
	return strconv.FormatInt(s.job.Generation, 10)
}

// priorities returns the values of the priority classes that the Job's templates name.
func (s *vcjobSync) priorities() map[string]int32 {
	var values map[string]int32
	for i := range s.job.Spec.Tasks {
		name := s.job.Spec.Tasks[i].Template.Spec.PriorityClassName
		if name == "" {
			continue
		}
		if o, exists, err := s.c.priorities.GetByKey(name); err == nil && exists {
			if values == nil {
				values = map[string]int32{}
			}
			values[name] = o.(*schedulingv1.PriorityClass).Value
		}
	}
	return values
}

func (s *vcjobSync) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// tellDelayed tells of actions that wait, each once.
func (s *vcjobSync) tellDelayed(delayed []vcjob.Delayed) {
	for _, d := range delayed {
		id := fmt.Sprintf("%s/%s/%s/%d", d.Event, d.Action, d.About, d.Due.Unix())
		if !s.state.told[id] {
			s.state.told[id] = true
			s.c.events.Event(s.job, corev1.EventTypeNormal, vcjob.ReasonExecuteAction, fmt.Sprintf("Execute action %s after %v", d.Action, d.Delay))
		}
	}
}
