// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/jobflow"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// flowState is what is remembered of one JobFlow, by UID, between its syncs. All of it can be had again from the API server, but for how
// Jobs were that are gone.
type flowState struct {
	mu      sync.Mutex
	written string                // resource version of our last write
	gone    map[string]*batch.Job // by name, until the stored status tells of them

	// What follows belongs to the worker that syncs the JobFlow.

	stored  *flow.JobFlow         // newer than the cache
	made    map[string]*batch.Job // by name: Jobs that the API server has and the cache may not show yet
	deleted map[uid]bool          // Jobs that we have deleted
	told    map[jobflow.Event]bool
}

func (s *flowState) wrote(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written == version
}

func (s *flowState) setWritten(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = version
}

func (s *flowState) noteGone(j *batch.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[j.Name] = j
}

func (s *flowState) goneJobs() map[string]*batch.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.gone)
}

// forgetGone forgets Jobs of which the stored status tells.
func (s *flowState) forgetGone(known map[string]*batch.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, j := range known {
		if s.gone[name] == j {
			delete(s.gone, name)
		}
	}
}

func (s *flowState) newest(cached *flow.JobFlow) *flow.JobFlow {
	if s.stored == nil {
		return cached
	}
	if isAsNew(cached, s.stored) {
		s.stored = nil
		return cached
	}
	return s.stored
}

// flowStates holds the states of all JobFlows. It is safe for concurrent use.
type flowStates struct {
	mu    sync.Mutex
	byUID map[uid]*flowState
}

func (s *flowStates) get(id uid) *flowState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUID[id]
}

// of returns the state of a JobFlow, a new one if there was none.
func (s *flowStates) of(id uid) *flowState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byUID[id]
	if state == nil {
		state = &flowState{gone: map[string]*batch.Job{}, made: map[string]*batch.Job{}, deleted: map[uid]bool{}, told: map[jobflow.Event]bool{}}
		s.byUID[id] = state
	}
	return state
}

func (s *flowStates) drop(id uid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byUID, id)
}

// flowRounds bounds how many plans one sync carries out; what is left then is for the next.
const flowRounds = 8

// syncFlow looks at one JobFlow and does what is to be done now.
func (c *JobFlowController) syncFlow(ctx context.Context, key string) error {
	o, exists, err := c.flows.GetByKey(key)
	if err != nil {
		return fmt.Errorf("reading JobFlow %s from the cache: %w", key, err)
	}
	if !exists {
		return nil
	}
	cached := o.(*flow.JobFlow)
	s := &flowSync{c: c, key: key, state: c.states.of(cached.UID)}
	s.flow = s.state.newest(cached)
	return s.run(ctx)
}

// flowSync is one look at one JobFlow.
type flowSync struct {
	c     *JobFlowController
	key   string
	state *flowState
	flow  *flow.JobFlow // changes with every write
}

func (s *flowSync) run(ctx context.Context) error {
	answers := map[jobflow.Question]bool{}
	for round := 0; round < flowRounds; {
		o, err := s.observe(answers)
		if err != nil {
			return err
		}
		plan := jobflow.Decide(o)
		s.c.log.Debug("Decided", "jobFlow", s.key, "because", plan.Because)
		s.tell(plan.Events)
		if len(plan.Ask) > 0 {
			s.ask(ctx, plan.Ask, answers)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue // each time with more answers
		}
		round++
		if len(plan.Create) == 0 && len(plan.Delete) == 0 && plan.Status == nil {
			s.state.forgetGone(o.Gone)
			if plan.After > 0 {
				s.c.queue.AddAfter(s.key, plan.After)
			}
			return nil
		}
		if err := s.carryOut(ctx, o, plan); err != nil {
			return err
		}
	}
	s.c.queue.AddAfter(s.key, s.c.cfg.BatchPeriod)
	return nil
}

// tell tells events, each once.
func (s *flowSync) tell(events []jobflow.Event) {
	for _, e := range events {
		if !s.state.told[e] {
			s.state.told[e] = true
			s.c.events.Event(s.flow, e.Type, e.Reason, e.Message)
		}
	}
}

func (s *flowSync) ask(ctx context.Context, questions []jobflow.Question, answers map[jobflow.Question]bool) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, q := range questions {
		asking.Go(func() {
			yes := s.c.prober.Ask(ctx, q)
			mu.Lock()
			defer mu.Unlock()
			answers[q] = yes
		})
	}
	asking.Wait()
}

// observe gathers what the next decision may look at.
func (s *flowSync) observe(answers map[jobflow.Question]bool) (jobflow.Observed, error) {
	c, namespace := s.c, s.flow.Namespace
	o := jobflow.Observed{
		Flow: s.flow, Templates: map[string]*flow.JobTemplate{}, Jobs: map[string]*batch.Job{}, Gone: s.state.goneJobs(), Answers: answers, Now: c.clock.Now(),
	}
	for i := range s.flow.Spec.Flows {
		name := s.flow.Spec.Flows[i].Name
		found, exists, err := c.templates.GetByKey(namespace + "/" + name)
		if err != nil {
			return o, fmt.Errorf("reading JobTemplate %q from the cache: %w", name, err)
		}
		if exists {
			o.Templates[name] = found.(*flow.JobTemplate)
		}
		job := jobflow.JobName(s.flow.Name, name)
		j, err := s.job(job)
		if err != nil {
			return o, err
		}
		if j != nil {
			o.Jobs[job] = j
		}
	}
	for _, name := range jobflow.AskedJobs(s.flow) {
		j := o.Jobs[name]
		if j == nil || j.Status.State.Phase != batch.Running {
			continue
		}
		pods, err := c.pods.ByIndex(podsOfJob, string(j.UID))
		if err != nil {
			return o, fmt.Errorf("reading pods from the cache: %w", err)
		}
		if o.Pods == nil {
			o.Pods = map[string][]*corev1.Pod{}
		}
		for _, p := range pods {
			o.Pods[name] = append(o.Pods[name], p.(*corev1.Pod))
		}
	}
	return o, nil
}

// job returns the Job of that name as the cache shows it or as we know it better, or nil.
func (s *flowSync) job(name string) (*batch.Job, error) {
	found, exists, err := s.c.jobs.GetByKey(s.flow.Namespace + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("reading Job %q from the cache: %w", name, err)
	}
	var j *batch.Job
	if exists {
		j = found.(*batch.Job)
	}
	if known := s.state.made[name]; known != nil {
		seen := seenVersion(s.c.jobs, s.flow.Namespace)
		if n, err := resourceversion.CompareResourceVersion(seen, known.ResourceVersion); j != nil && isAsNew(j, known) || err == nil && n >= 0 {
			delete(s.state.made, name) // the cache knows all about it, also that it is gone
		} else {
			j = known
		}
	}
	if j != nil && s.state.deleted[j.UID] {
		return nil, nil
	}
	return j, nil
}

// carryOut does what a plan says.
func (s *flowSync) carryOut(ctx context.Context, o jobflow.Observed, plan jobflow.Plan) error {
	var errs []error
	for _, j := range plan.Create {
		errs = append(errs, s.create(ctx, j))
	}
	if plan.Status != nil {
		errs = append(errs, s.store(ctx, o, plan.Status))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, d := range plan.Delete {
		switch err := s.c.api.DeleteJob(ctx, s.flow.Namespace, d); {
		case err == nil, isGone(err):
			s.c.log.Debug("Deleted Job", "jobFlow", s.key, "job", s.flow.Namespace+"/"+d.Name)
			s.state.deleted[d.UID] = true
		default:
			return fmt.Errorf("deleting Job %q: %w", d.Name, err)
		}
	}
	return nil
}

func (s *flowSync) create(ctx context.Context, j *batch.Job) error {
	made, err := s.c.api.CreateJob(ctx, j)
	switch {
	case err == nil:
		e := jobflow.Created(j.Name)
		s.c.events.Event(s.flow, e.Type, e.Reason, e.Message)
		s.c.log.Info("Created Job", "jobFlow", s.key, "job", keyOf(j))
	case apierrors.IsAlreadyExists(err): // an earlier answer was lost, or it is another's
		if made, err = s.c.api.Job(ctx, j.Namespace, j.Name); err != nil {
			return fmt.Errorf("finding out whose Job %q is: %w", j.Name, err)
		}
	case isNamespaceEnding(err):
		return nil
	default:
		if outcomeOf(err) == refused {
			s.tell([]jobflow.Event{jobflow.FailedCreate(j.Name, err)})
		}
		return fmt.Errorf("creating Job %q: %w", j.Name, err)
	}
	s.state.made[j.Name] = made
	return nil
}

// store writes the status. After a conflict the next round decides on what is stored then.
func (s *flowSync) store(ctx context.Context, o jobflow.Observed, status *flow.JobFlowStatus) error {
	next := s.flow.DeepCopy()
	next.Status = *status
	stored, err := s.c.api.StoreFlowStatus(ctx, next)
	switch {
	case apierrors.IsConflict(err):
		live, err := s.c.api.Flow(ctx, s.flow.Namespace, s.flow.Name)
		if apierrors.IsNotFound(err) {
			return nil // the watch will tell
		}
		if err != nil {
			return fmt.Errorf("reading JobFlow %s after a conflict: %w", s.key, err)
		}
		if live.UID != s.flow.UID {
			return fmt.Errorf("looking at JobFlow %s: it was replaced by another of its name", s.key)
		}
		s.flow, s.state.stored = live, live
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("storing the status of JobFlow %s: %w", s.key, err)
	}
	measureFlow(stored, s.flow.Status.State.Phase)
	if before, after := s.flow.Status.State.Phase, stored.Status.State.Phase; before != after {
		s.c.log.Info("JobFlow has come to a phase", "jobFlow", s.key, "from", before, "to", after)
	}
	s.state.setWritten(stored.ResourceVersion)
	s.state.forgetGone(o.Gone)
	s.flow, s.state.stored = stored, stored
	return nil
}

// syncTemplate brings the status of one JobTemplate up to date.
func (c *JobFlowController) syncTemplate(ctx context.Context, key string) error {
	o, exists, err := c.templates.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	t := o.(*flow.JobTemplate)
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("reading the key %q of a JobTemplate: %w", key, err)
	}
	found, err := c.jobs.ByIndex(jobsOfTemplate, namespace+"."+name)
	if err != nil {
		return fmt.Errorf("reading Jobs from the cache: %w", err)
	}
	jobs := make([]*batch.Job, len(found))
	for i, j := range found {
		jobs[i] = j.(*batch.Job)
	}
	status := jobflow.TemplateStatus(t, jobs)
	if status == nil {
		return nil
	}
	next := t.DeepCopy()
	next.Status = *status
	switch err := c.api.StoreTemplateStatus(ctx, next); {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err): // the cache is behind
		c.status.AddAfter(key, c.cfg.BatchPeriod)
		return nil
	case err != nil:
		return fmt.Errorf("storing the status of JobTemplate %s: %w", key, err)
	}
	return nil
}
