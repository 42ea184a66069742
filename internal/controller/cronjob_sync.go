// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/cronjob"
)

// sync does what was asked for one CronJob.
func (c *cronController[C, J]) sync(ctx context.Context, key string, asked cronAsk) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil || namespace == "" || name == "" {
		return fmt.Errorf("reading the key %q of a CronJob: want namespace/name", key)
	}
	cached, exists, err := c.cached(key)
	if err != nil {
		return fmt.Errorf("reading CronJob %s from the cache: %w", key, err)
	}
	if !exists {
		c.states.drop(key)
		c.queue.Forget(key)
		return nil
	}
	s := &cronTurn[C, J]{c: c, key: key, state: c.states.of(key, cached.GetUID())}
	s.cron = s.state.newest(cached)
	if asked.Look || asked.Version != "" && isNewer(asked.Version, s.state.decided) {
		if err := s.look(ctx, asked.Due); err != nil {
			return err
		}
	}
	if asked.Store {
		return s.store(ctx)
	}
	s.arm()
	return nil
}

// isNewer reports whether one resource version of an object is later than another.
func isNewer(version, than string) bool {
	n, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || n > 0
}

// cronTurn is one turn of one CronJob.
type cronTurn[C, J apiObject] struct {
	c     *cronController[C, J]
	key   string
	state *cronState[C]
	cron  C // changes with every write
}

// facts returns what decisions look at of the CronJob.
func (s *cronTurn[C, J]) facts() *cronjob.CronJob { return s.c.kind.facts(s.cron) }

// look decides what the CronJob needs next, does it, and plans the next look.
func (s *cronTurn[C, J]) look(ctx context.Context, due bool) error {
	o, err := s.observe()
	if err != nil {
		return err
	}
	plan := cronjob.Decide(o)
	if len(plan.Because) > 0 {
		s.c.log.Debug("Decided", "cronJob", s.key, "because", plan.Because)
	}
	out := s.act(ctx, plan)
	if tidy := len(plan.Tidy) > 0; tidy && due && len(plan.Start) > 0 && !anyRefused(out.Start) {
		plan.Tidy = nil // others may be waiting to start
		s.c.queue.Tidy(s.key)
	} else if tidy {
		for _, d := range plan.Tidy {
			out.Tidy = append(out.Tidy, s.delete(ctx, d))
		}
	}
	out.At = s.c.clock.Now()
	a := cronjob.Account(o, plan, out)
	s.state.memory, s.state.decided = a.Memory, s.cron.GetResourceVersion()
	s.state.afterStore = plan.AfterStore
	for _, e := range plan.Events {
		s.c.events.Event(s.cron, e.Type, e.Reason, e.Message)
	}
	for _, e := range a.Events {
		s.c.events.Event(s.cron, e.Type, e.Reason, e.Message)
	}
	for _, skew := range a.Skew {
		s.c.kind.observeSkew(skew)
	}
	if len(a.Because) > 0 {
		s.c.log.Debug("Acted", "cronJob", s.key, "because", a.Because)
	}
	s.c.queue.LookAt(s.key, a.Wake, rankOf(o.CronJob))
	return nil
}

// rankOf says who starts first of those that are due at the same time: who may be started late the least.
func rankOf(c *cronjob.CronJob) time.Duration {
	if d := c.Spec.StartingDeadline; d != nil {
		return min(*d, noHurry)
	}
	return noHurry
}

const noHurry = time.Hour

func anyRefused(starts []cronjob.StartOutcome) bool {
	for _, s := range starts {
		if apierrors.IsForbidden(s.Err) {
			return true // by a quota, it may be, in which old Jobs take up the room
		}
	}
	return false
}

func (s *cronTurn[C, J]) observe() (cronjob.Observed, error) {
	found, err := s.c.jobs.ByIndex(jobsOfCronJob, string(s.cron.GetUID()))
	if err != nil {
		return cronjob.Observed{}, fmt.Errorf("reading the Jobs of CronJob %s from the cache: %w", s.key, err)
	}
	facts := s.facts()
	if from := rulesSourceOf(facts); s.state.rules == nil || !from.equal(s.state.rulesFrom) {
		s.state.rules, s.state.rulesFrom = cronjob.Read(facts, s.c.zones.load, s.c.cfg.Local), from
	}
	o := cronjob.Observed{
		CronJob: facts, Rules: s.state.rules, Memory: s.state.memory, Now: s.c.clock.Now(), Awake: s.c.awakeSince(), Options: s.c.cfg.Options,
		Children: make([]cronjob.Child, 0, len(found)),
	}
	for _, j := range found {
		if j := j.(J); j.GetNamespace() == s.cron.GetNamespace() {
			o.Children = append(o.Children, s.c.kind.child(j))
		}
	}
	return o, nil
}

// act carries a plan out but for its tidying up.
func (s *cronTurn[C, J]) act(ctx context.Context, p cronjob.Plan) cronjob.Outcomes {
	var out cronjob.Outcomes
	for _, ref := range p.Check {
		j, err := s.c.api.Job(ctx, s.cron.GetNamespace(), ref.Name)
		if err == nil && j.GetUID() != ref.UID {
			err = apierrors.NewNotFound(s.c.kind.jobs, ref.Name)
		}
		out.Check = append(out.Check, cronjob.CheckOutcome{Err: err})
	}
	for _, d := range p.Replace {
		err := s.delete(ctx, d)
		out.Replace = append(out.Replace, err)
		if err != nil && !isGone(err) {
			return out
		}
	}
	for _, start := range p.Start {
		r := s.start(ctx, start)
		out.Start = append(out.Start, r)
		if r.Err != nil && (r.Job == nil || r.Job.Controller != s.cron.GetUID()) {
			break
		}
	}
	return out
}

func (s *cronTurn[C, J]) delete(ctx context.Context, d cronjob.Deletion) error {
	err := s.c.api.DeleteJobWithPods(ctx, s.cron.GetNamespace(), d.Name, d.UID)
	if err == nil {
		s.c.log.Debug("Deleted Job", "cronJob", s.key, "job", s.cron.GetNamespace()+"/"+d.Name, "uid", d.UID)
	}
	return err
}

// start creates a Job. Where its name is taken the answer says by whom.
func (s *cronTurn[C, J]) start(ctx context.Context, start cronjob.Start) cronjob.StartOutcome {
	s.state.beginStart(start.Name)
	j, err := s.c.api.CreateJob(ctx, s.c.kind.jobFor(s.cron, start))
	if s.state.endStart(start.Name, err == nil) {
		s.c.queue.Look(s.key)
	}
	now := s.c.clock.Now()
	switch {
	case err == nil:
		s.c.log.Debug("Created Job", "cronJob", s.key, "job", keyOf(j), "due", start.Due, "late", now.Sub(start.Due))
	case apierrors.IsAlreadyExists(err):
		var getErr error
		if j, getErr = s.c.api.Job(ctx, s.cron.GetNamespace(), start.Name); getErr != nil {
			return cronjob.StartOutcome{Err: errors.Join(err, fmt.Errorf("finding out whose it is: %w", getErr)), At: now}
		}
	default:
		return cronjob.StartOutcome{Err: err, At: now}
	}
	child := s.c.kind.child(j)
	return cronjob.StartOutcome{Err: err, At: now, Job: &child}
}
