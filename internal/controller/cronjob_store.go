// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/drover-dev/drover/internal/cronjob"
)

// Tries of one write, and how long the next turn waits where they do not work.
const (
	storeTries    = 3
	storeRetry    = 500 * time.Millisecond
	storeRetryMax = 30 * time.Second
)

var errRestless = errors.New("it changes all the time")

// arm plans the write of what is not stored yet.
func (s *cronTurn[C, J]) arm() {
	c := s.c
	now := c.clock.Now()
	switch s.state.memory.Record(s.facts(), c.cfg.Options).Urgency {
	case cronjob.Nothing:
	case cronjob.Eventually:
		c.queue.StoreAt(s.key, now.Add(c.cfg.LedgerDelay))
	case cronjob.Soon:
		// The more CronJobs are due at once, the longer each waits for what follows from its start to be written with it, and the
		// longer writes keep out of the way of starts.
		crowd := time.Duration(c.crowd.size(now)) * c.cfg.StoreDelayEach
		c.queue.StoreAt(s.key, now.Add(max(c.cfg.StoreDelay, min(crowd, c.cfg.StoreDelayMax))))
	case cronjob.AtOnce:
		c.queue.Store(s.key)
	}
}

// store writes what is not stored yet, and looks at the CronJob again where a decision waits for that, or where the watch has not told
// of a Job that was started.
func (s *cronTurn[C, J]) store(ctx context.Context) error {
	stored, err := s.write(ctx)
	if apierrors.IsNotFound(err) || ctx.Err() != nil {
		return nil //nolint:nilerr // the watch will tell that it is gone; or the process ends
	}
	if err != nil {
		wait := min(storeRetryMax, storeRetry<<min(s.state.failures, 10))
		s.state.failures++
		s.c.log.Warn("Status could not be stored, to be tried again", "cronJob", s.key, "err", err, "again", wait)
		s.c.queue.StoreAt(s.key, s.c.clock.Now().Add(wait))
		return nil
	}
	s.state.failures = 0
	if stored && (s.state.afterStore || s.state.forgetUnseen()) {
		if err := s.look(ctx, false); err != nil {
			return err
		}
		s.arm()
	}
	return nil
}

// write brings the stored status and ledger up to date, on the newest version that there is. It reports whether nothing is left
// to be stored.
func (s *cronTurn[C, J]) write(ctx context.Context) (stored bool, err error) {
	for range storeTries {
		r := s.state.memory.Record(s.facts(), s.c.cfg.Options)
		if r.Urgency == cronjob.Nothing {
			return true, nil
		}
		annotations := s.cron.GetAnnotations()
		if r.Ledger != annotations[cronjob.LedgerAnnotation] {
			annotations = maps.Clone(annotations)
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[cronjob.LedgerAnnotation] = r.Ledger
		}
		next := s.c.kind.withStatus(s.cron, r.Status, annotations)
		s.state.beginWrite()
		version, err := s.c.api.StoreCronStatus(ctx, s.cron, next)
		for _, other := range s.state.endWrite(version) {
			s.c.queue.LookIfNewer(s.key, other)
		}
		switch {
		case err == nil:
			next.SetResourceVersion(version)
			s.cron, s.state.stored = next, next
			s.c.log.Debug("Stored status", "cronJob", s.key, "active", len(r.Status.Active), "lastScheduleTime", r.Status.LastSchedule)
			return true, nil
		case !apierrors.IsConflict(err):
			return false, err
		}
		// Somebody else has changed it. What is to be stored can be applied to any version.
		live, getErr := s.c.api.CronJob(ctx, s.cron.GetNamespace(), s.cron.GetName())
		switch {
		case getErr != nil:
			return false, getErr
		case live.GetUID() != s.cron.GetUID():
			return false, apierrors.NewNotFound(s.c.kind.crons, s.cron.GetName())
		}
		if n, cmpErr := resourceversion.CompareResourceVersion(live.GetResourceVersion(), s.cron.GetResourceVersion()); cmpErr == nil && n < 0 {
			return false, err // an API server that lags behind; the next try meets another
		}
		live.SetManagedFields(nil)
		s.cron, s.state.stored = live, live
		s.c.queue.LookIfNewer(s.key, live.GetResourceVersion()) // the watch may tell of the write that follows alone, as of no news
	}
	return false, apierrors.NewConflict(s.c.kind.crons, s.cron.GetName(), errRestless)
}

// storeAll writes what no turn has stored when the controller ends, as far as cfg.StopTime allows: statuses first, then ledgers.
// What is not written can be found out again, but for why due times were skipped of late.
func (c *cronController[C, J]) storeAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.StopTime)
	defer cancel()
	var left []*cronTurn[C, J]
	urgency := map[*cronTurn[C, J]]cronjob.Urgency{}
	for _, key := range c.states.keys() {
		if s := c.leftTurn(key); s != nil {
			left = append(left, s)
			urgency[s] = s.state.memory.Record(s.facts(), c.cfg.Options).Urgency
		}
	}
	slices.SortStableFunc(left, func(a, b *cronTurn[C, J]) int { return int(urgency[b] - urgency[a]) })
	next := make(chan *cronTurn[C, J])
	var workers sync.WaitGroup
	for range min(c.cfg.Workers, len(left)) {
		workers.Go(func() {
			for s := range next {
				if _, err := s.write(ctx); err != nil && ctx.Err() == nil {
					c.log.Debug("Status could not be stored at the end", "cronJob", s.key, "err", err)
				}
			}
		})
	}
	for _, s := range left {
		if ctx.Err() != nil || urgency[s] == cronjob.Nothing {
			break
		}
		next <- s
	}
	close(next)
	workers.Wait()
}

// leftTurn returns a turn for what is left to be done for a CronJob, or nil where it is no more.
func (c *cronController[C, J]) leftTurn(key string) *cronTurn[C, J] {
	state := c.states.get(key)
	if state == nil {
		return nil
	}
	cached, exists, err := c.cached(key)
	if err != nil || !exists || cached.GetUID() != state.uid {
		return nil
	}
	return &cronTurn[C, J]{c: c, key: key, state: state, cron: state.newest(cached)}
}
