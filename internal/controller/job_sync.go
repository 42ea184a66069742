// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/job"
)

// maxRounds bounds how often one sync writes the status; what is left then is for the next.
const maxRounds = 4

// unseenCheck is how long a pod that only our own create has told of may stay unconfirmed before the cache is asked again.
const unseenCheck = 5 * time.Second

// syncJob looks at one Job and does what is to be done now.
func (c *JobController) syncJob(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil || namespace == "" || name == "" {
		return fmt.Errorf("reading the key %q of a Job: want namespace/name", key)
	}
	defer c.rush.during(c.queue)()
	cached, err := c.jobs.Jobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Job %s from the cache: %w", key, err)
	}
	if c.elsewhere(cached) {
		return nil
	}
	state, isNew := c.states.begin(cached.UID)
	if state == nil {
		return nil // deleted meanwhile
	}
	j := state.newest(cached)
	if job.Finished(j) != nil {
		return nil
	}
	if m := j.Spec.CompletionMode; m != nil && *m != batchv1.NonIndexedCompletion && *m != batchv1.IndexedCompletion {
		c.events.Event(j, corev1.EventTypeWarning, job.ReasonUnknownCompletionMode, job.MessageUnknownMode)
		return nil
	}
	if isNew || state.ledger == nil {
		if err := c.openLedger(state, j); err != nil {
			return err
		}
	}
	s := &jobSync{c: c, key: key, state: state, job: j, action: "reconciling", began: c.clock.Now()}
	err = s.run(ctx)
	s.measure(err)
	return err
}

// openLedger makes the ledger of a Job from the pods in the cache. What the watch tells meanwhile is noted already.
func (c *JobController) openLedger(state *jobState, j *batchv1.Job) error {
	ledger, err := job.NewLedger(j)
	if err != nil {
		return err
	}
	pods, err := c.podsFor(j)
	if err != nil {
		return fmt.Errorf("reading the pods of Job %s from the cache: %w", keyOf(j), err)
	}
	for _, p := range pods {
		ledger.Observe(p)
	}
	state.ledger = ledger
	return nil
}

// jobSync is one look at one Job.
type jobSync struct {
	c     *JobController
	key   string
	state *jobState
	job   *batchv1.Job // changes with every write
	began time.Time

	extras   job.Extras
	podGroup string // what new pods join; ""
	action   string // for the metrics
	wakeIn   time.Duration
	lazy     bool

	mu   sync.Mutex // guards ledger and errs while requests run beside each other
	errs []error
}

func (s *jobSync) run(ctx context.Context) error {
	s.readExtras()
	ledger := s.state.ledger
	s.state.catchUp()
	if err := ledger.Follow(s.job); err != nil {
		return fmt.Errorf("following Job %s: %w", s.key, err)
	}
	if job.IsSuspended(s.job) {
		ledger.Pause()
	} else {
		ledger.Begin(s.c.clock.Now())
	}
	s.dropUnseen()
	if err := s.resolve(ctx); err != nil {
		return err
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	ledger.Fold()
	if err := s.group(ctx); err != nil {
		return err
	}

	plan := job.Decide(s.observed())
	s.c.log.Debug("Decided", "job", s.key, "because", plan.Because)
	if plan.AccountFirst {
		if upToDate, err := s.account(ctx); err != nil || !upToDate {
			return err
		}
	}
	s.delete(ctx, plan.Delete)
	s.create(ctx, plan.Create)
	if _, err := s.account(ctx); err != nil {
		s.fail(err)
		return errors.Join(s.errs...)
	}
	if s.state.ledger == nil {
		return nil // the Job has ended
	}
	s.wake(plan.After, false)
	if len(ledger.Unseen()) > 0 {
		s.wake(unseenCheck, true)
	}
	s.arm()
	return errors.Join(s.errs...)
}

func (s *jobSync) observed() job.Observed {
	return job.Observed{
		Job: s.job, Pods: s.state.ledger, Now: s.c.clock.Now(), Settled: len(s.state.unresolved) == 0, Options: s.extras.On(s.c.cfg.Options),
	}
}

// readExtras reads what the annotations of the Job ask for, and says once what is wrong with them.
func (s *jobSync) readExtras() {
	var problems []string
	s.extras, problems = job.ExtrasOf(s.job)
	text := strings.Join(problems, "; ")
	if text != "" && text != s.state.mistakes {
		s.event(corev1.EventTypeWarning, job.ReasonInvalidAnnotation, "%s", text)
	}
	s.state.mistakes = text
}

// wake asks for the next look after d at the latest; 0 asks for nothing.
func (s *jobSync) wake(d time.Duration, lazy bool) {
	if d > 0 && (s.wakeIn == 0 || d < s.wakeIn) {
		s.wakeIn, s.lazy = d, lazy
	}
}

func (s *jobSync) arm() {
	switch {
	case s.wakeIn == 0:
	case s.lazy:
		s.c.queue.AddLazily(s.key, s.wakeIn)
	default:
		s.c.queue.AddAfter(s.key, s.wakeIn)
	}
}

// dropUnseen forgets pods that we have made and that are gone before the watch has told of them.
func (s *jobSync) dropUnseen() {
	unseen := s.state.ledger.Unseen()
	if len(unseen) == 0 {
		return
	}
	seen := seenVersion(s.c.pods, s.job.Namespace)
	for _, p := range unseen {
		if _, exists, err := s.c.pods.GetByKey(keyOf(p)); err != nil || exists {
			continue
		}
		if c, err := resourceversion.CompareResourceVersion(seen, p.ResourceVersion); err == nil && c >= 0 {
			s.c.log.Debug("Pod is gone before it was seen", "job", s.key, "pod", keyOf(p))
			s.state.ledger.Gone(p.UID)
		}
	}
}

// resolve finds out what has become of creations whose answer was lost.
func (s *jobSync) resolve(ctx context.Context) error {
	for name := range s.state.unresolved {
		p, err := s.c.api.Pod(ctx, s.job.Namespace, name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			staleSyncSkips.WithLabelValues("", "pods").Inc()
			return fmt.Errorf("finding out whether pod %q was created: %w", name, err)
		case metav1.IsControlledBy(p, s.job):
			s.state.ledger.Created(p)
		default:
			s.state.ledger.MarkTaken(name)
		}
		delete(s.state.unresolved, name)
	}
	return nil
}

// claim adopts and releases pods. It stops the sync at the first one that cannot be: nothing must be counted before.
func (s *jobSync) claim(ctx context.Context) error {
	claims := job.Claim(s.state.ledger)
	if len(claims.Adopt) > 0 {
		live, err := s.c.api.Job(ctx, s.job.Namespace, s.job.Name)
		switch {
		case err != nil:
			return fmt.Errorf("making sure that Job %s may adopt pods: %w", s.key, err)
		case live.UID != s.job.UID:
			return fmt.Errorf("adopting pods for Job %s: it was replaced by another of its name", s.key)
		case live.DeletionTimestamp != nil:
			return fmt.Errorf("adopting pods for Job %s: it is being deleted since %v", s.key, live.DeletionTimestamp)
		}
	}
	for _, a := range claims.Adopt {
		p, err := s.c.api.Adopt(ctx, s.job, a)
		if apierrors.IsConflict(err) { // it is not as it was: look again
			p, err = s.c.api.Pod(ctx, s.job.Namespace, a.Pod.Name)
			s.wake(time.Millisecond, false)
		}
		if err := s.claimed(p, a.Pod, err); err != nil {
			return fmt.Errorf("adopting pod %q for Job %s: %w", a.Pod.Name, s.key, err)
		}
	}
	for _, pod := range claims.Release {
		p, err := s.c.api.Release(ctx, s.job, pod)
		if err := s.claimed(p, pod, err); err != nil {
			return fmt.Errorf("releasing pod %q from Job %s: %w", pod.Name, s.key, err)
		}
	}
	return nil
}

// claimed tells the ledger of the answer to an adoption or release. A pod that is no more, or not the one that was meant, is
// no failure.
func (s *jobSync) claimed(p *corev1.Pod, pod job.PodKey, err error) error {
	switch {
	case err == nil && p.UID == pod.UID:
		s.state.ledger.Observe(p)
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		s.state.ledger.Gone(pod.UID)
	default:
		return err
	}
	return nil
}

// account brings the stored status up to date, as soon as its cadence allows, and takes the finalizers off the pods that it
// has named. It reports false where the status could not be stored because somebody else has changed the Job.
func (s *jobSync) account(ctx context.Context) (upToDate bool, err error) {
	for range maxRounds {
		a := job.Account(s.observed())
		if a.Status == nil {
			s.state.dirtySince = time.Time{}
			s.untrack(ctx, a.Untrack, false)
			return true, nil
		}
		now := s.c.clock.Now()
		if s.state.dirtySince.IsZero() {
			s.state.dirtySince = now
		}
		if wait := s.statusWait(a, now); wait > 0 {
			s.wake(wait, true)
			return true, nil
		}
		if stored, err := s.store(ctx, a); err != nil || !stored {
			return false, err
		}
		s.untrack(ctx, a.Untrack, a.Final != nil)
		if a.Final != nil {
			s.close()
			return true, nil
		}
		if len(s.errs) > 0 {
			return true, nil // to be tried again; what was done stands
		}
	}
	s.wake(time.Millisecond, false)
	return true, nil
}

// close ends the memory of a Job that has ended. What was written stays until the cache knows of it, so that a late message of
// the watch cannot wake the Job up again.
func (s *jobSync) close() {
	s.state.ledger = nil
	s.state.setClosing(false)
	if cached, err := s.c.jobs.Jobs(s.job.Namespace).Get(s.job.Name); err != nil || cached.UID != s.job.UID || job.Finished(cached) != nil {
		s.c.states.drop(s.job.UID)
	}
}

// store writes the status of a, then tells the world what it makes true. It reports false where somebody else has changed the
// Job: it is looked at afresh then.
func (s *jobSync) store(ctx context.Context, a job.Accounting) (stored bool, err error) {
	next := &batchv1.Job{ObjectMeta: s.job.ObjectMeta, Spec: s.job.Spec, Status: *a.Status}
	if a.Final != nil {
		s.state.setClosing(true)
	}
	version, err := s.c.api.StoreStatus(ctx, next)
	if err != nil {
		s.reopen()
		return false, s.notStored(ctx, err)
	}
	s.c.rush.forget(s.key)
	before := &s.job.Status
	next.ResourceVersion = version
	s.job, s.state.stored = next, next
	s.state.setWritten(version)
	s.state.lastWrite, s.state.dirtySince = s.c.clock.Now(), time.Time{}
	if err := s.state.ledger.Follow(next); err != nil {
		return false, fmt.Errorf("following Job %s: %w", s.key, err)
	}
	s.c.log.Debug("Stored status", "job", s.key, "because", a.Because, "active", next.Status.Active, "succeeded", next.Status.Succeeded, "failed", next.Status.Failed)
	measureStatus(next, before, a.Final)
	for _, e := range a.Events {
		s.c.events.Event(next, e.Type, e.Reason, e.Message)
	}
	return true, nil
}

// reopen takes back that this worker looks after the end of the Job. Where the status was stored all the same and the watch has told of
// the end meanwhile, what is left of the Job was left to this worker.
func (s *jobSync) reopen() {
	s.state.setClosing(false)
	if cached, err := s.c.jobs.Jobs(s.job.Namespace).Get(s.job.Name); err == nil && cached.UID == s.job.UID && job.Finished(cached) != nil {
		s.c.freeFinished(cached)
	}
}

// notStored has the Job looked at as it really is, where a status was refused because somebody else has changed it.
func (s *jobSync) notStored(ctx context.Context, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil // deleted: the watch will tell
	case !apierrors.IsConflict(err):
		return fmt.Errorf("storing the status of Job %s: %w", s.key, err)
	}
	live, getErr := s.c.api.Job(ctx, s.job.Namespace, s.job.Name)
	if getErr != nil || live.UID != s.job.UID {
		return fmt.Errorf("storing the status of Job %s: %w", s.key, err)
	}
	s.state.stored = live
	s.c.queue.Add(s.key)
	return nil
}

// statusWait returns how long the status of a should wait for more to tell.
func (s *jobSync) statusWait(a job.Accounting, now time.Time) time.Duration {
	cadence := job.Cadence{Batch: s.c.cfg.BatchPeriod, Gauge: s.c.gaugeDelay()}
	wait := cadence.Wait(a.Urgency, now, s.state.lastWrite, s.state.dirtySince)
	if wait > 0 || a.Urgency != job.Gauges || s.startsClock() {
		return wait
	}
	return s.c.rush.wait(s.key, s.state.dirtySince, now)
}

// startsClock reports whether the next status tells of the start from which the Job's deadline counts: it must outlive the controller.
func (s *jobSync) startsClock() bool {
	return s.job.Spec.ActiveDeadlineSeconds != nil && s.job.Status.StartTime == nil
}

// untrack takes the tracking finalizer off pods. What does not work is tried again: by the next sync, or by the orphan queue
// where the Job has ended.
func (s *jobSync) untrack(ctx context.Context, pods []job.Untracking, final bool) {
	s.c.gate.each(len(pods), func(i int) {
		err := s.untrackOne(ctx, pods[i].Pod)
		if err == nil {
			if final {
				s.c.noteFreed(s.job.Namespace, pods[i].Pod)
			}
			if action := pods[i].Ruling; action != "" {
				podFailuresHandled.WithLabelValues(string(action)).Inc()
			}
			return
		}
		if final {
			s.c.orphans.AddRateLimited(onePod(&metav1.ObjectMeta{Namespace: s.job.Namespace, Name: pods[i].Pod.Name}))
			return
		}
		s.fail(fmt.Errorf("taking the tracking finalizer off pod %q: %w", pods[i].Pod.Name, err))
	})
}

func (s *jobSync) untrackOne(ctx context.Context, pod job.PodKey) error {
	err := s.c.api.Untrack(ctx, s.job.Namespace, pod, "")
	if err != nil && !isGone(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.ledger.MarkUntracked(pod.UID)
	return nil
}

// isGone reports whether a write has failed because the pod it was meant for is no more.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

func (s *jobSync) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// measure keeps the metrics of the sync itself.
func (s *jobSync) measure(err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	labels := []string{completionMode(s.job), result, s.action}
	jobSyncDuration.WithLabelValues(labels...).Observe(s.c.clock.Since(s.began).Seconds())
	jobSyncs.WithLabelValues(labels...).Inc()
}

func completionMode(j *batchv1.Job) string {
	if job.IsIndexed(j) {
		return string(batchv1.IndexedCompletion)
	}
	return string(batchv1.NonIndexedCompletion)
}

// measureStatus keeps the metrics that follow from a stored status.
func measureStatus(j *batchv1.Job, before *batchv1.JobStatus, final *batchv1.JobCondition) {
	mode, after := completionMode(j), &j.Status
	if n := after.Succeeded - before.Succeeded; n > 0 {
		jobPodsFinished.WithLabelValues(mode, "succeeded").Add(float64(n))
	}
	if n := after.Failed - before.Failed; n > 0 {
		jobPodsFinished.WithLabelValues(mode, "failed").Add(float64(n))
	}
	if job.IsIndexed(j) {
		measureIndexes(j, before)
	}
	if final == nil {
		return
	}
	result := "succeeded"
	if final.Type == batchv1.JobFailed {
		result = "failed"
	}
	jobsFinished.WithLabelValues(mode, result, final.Reason).Inc()
}

func measureIndexes(j *batchv1.Job, before *batchv1.JobStatus) {
	limit := "global"
	if j.Spec.BackoffLimitPerIndex != nil {
		limit = "perIndex"
	}
	if n := j.Status.Succeeded - before.Succeeded; n > 0 {
		jobFinishedIndexes.WithLabelValues("succeeded", limit).Add(float64(n))
	}
	if n := job.CountIndexes(j.Status.FailedIndexes) - job.CountIndexes(before.FailedIndexes); n > 0 {
		jobFinishedIndexes.WithLabelValues("failed", limit).Add(float64(n))
	}
}
