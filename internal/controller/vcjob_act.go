// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// carryOut takes one step. It reports whether anything was done, so that the next step may be decided. An error ends the sync: the
// rest of the step depends on what did not work.
func (s *vcjobSync) carryOut(ctx context.Context, o vcjob.Observed, plan vcjob.Plan) (again bool, err error) {
	if s.mark(ctx, plan.Mark); len(s.errs) > 0 {
		return false, nil
	}
	if plan.Now {
		if stored, err := s.store(ctx, plan); err != nil || !stored {
			return false, err
		}
		again = true
	} else {
		s.tellOnce(plan.Events)
	}
	for _, cmd := range plan.Commands {
		if err := s.c.api.DeleteCommand(ctx, cmd); err != nil && !isGone(err) {
			return false, fmt.Errorf("deleting Command %q: %w", cmd.Name, err)
		}
		s.state.handled[cmd.UID] = true
		again = true
	}
	if plan.ActedOnGroup {
		s.state.mu.Lock()
		s.state.unknownSince = time.Time{}
		s.state.mu.Unlock()
	}
	again = s.delete(ctx, plan.Delete) || again
	if g := plan.DropGroup; g != nil && (!plan.DropLater || !s.postpone()) {
		if err := s.c.api.DeleteGroup(ctx, g); err != nil && !isGone(err) {
			return false, fmt.Errorf("deleting PodGroup %q: %w", g.Name, err)
		}
		s.state.groupGone, s.state.group = g.UID, nil
		again = true
	}
	if plan.DropObjects {
		if err := s.dropObjects(ctx); err != nil {
			return false, err
		}
		again = true
	}
	if len(s.errs) > 0 {
		return false, nil
	}
	made, err := s.make(ctx, o, plan)
	if err != nil {
		return false, err
	}
	s.settle(o, plan)
	if again = again || made; again || plan.Now {
		return again, nil
	}
	return false, s.storeLazily(ctx, o, plan)
}

// postpone reports whether clearing up after a Job that has ended is left for calmer times.
func (s *vcjobSync) postpone() bool {
	wait := s.c.rush.wait(s.key, s.job.Status.State.LastTransitionTime.Time, s.c.clock.Now())
	s.wake(wait)
	return wait > 0
}

// settle forgets pods that are gone, as soon as nothing can follow from them any more: their phase is over, or others have their
// places.
func (s *vcjobSync) settle(o vcjob.Observed, plan vcjob.Plan) {
	if len(o.Gone) == 0 {
		return
	}
	phase := s.job.Status.State.Phase
	idle := phase != batch.Pending && phase != batch.Running
	there := map[string]bool{}
	for _, p := range s.state.made {
		there[p.Name] = true
	}
	for _, p := range o.Pods {
		there[p.Name] = true
	}
	if plan.Now { // acted upon, and the stored status does not count them
		idle = true
	}
	replicas := map[string]int32{}
	for i := range s.job.Spec.Tasks {
		replicas[s.job.Spec.Tasks[i].Name] = s.job.Spec.Tasks[i].Replicas
	}
	s.state.settle(func(g vcjob.Gone) bool {
		return idle || there[vcjob.PodName(s.job.Name, g.Task, g.Index)] || int32(g.Index) >= replicas[g.Task]
	})
}

// mark notes on pods that they are about to be deleted.
func (s *vcjobSync) mark(ctx context.Context, marks []vcjob.Mark) {
	s.c.gate.each(len(marks), func(i int) { s.markOne(ctx, marks[i].Pod, marks[i].Restart) })
}

func (s *vcjobSync) markOne(ctx context.Context, pod vcjob.PodKey, restart string) bool {
	err := s.c.api.MarkPod(ctx, s.job.Namespace, pod, restart)
	if err != nil && !isGone(err) {
		s.failDelete(fmt.Errorf("marking pod %q: %w", pod.Name, err))
		return false
	}
	if err == nil {
		s.state.doom(pod.UID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.marked[pod.UID] = restart
	return true
}

func (s *vcjobSync) failDelete(err error) {
	s.c.events.Event(s.job, corev1.EventTypeWarning, vcjob.ReasonFailedDelete, fmt.Sprintf("Error deleting pods: %v", err))
	s.fail(err)
}

// delete asks for pods to be deleted, each marked first. It reports whether there were any.
func (s *vcjobSync) delete(ctx context.Context, deletions []vcjob.Deletion) bool {
	s.c.gate.each(len(deletions), func(i int) {
		d := deletions[i]
		if !d.Marked && !s.markOne(ctx, d.Pod, "") {
			return
		}
		if err := s.c.api.DeletePod(ctx, s.job.Namespace, d.Pod); err != nil && !isGone(err) {
			s.failDelete(fmt.Errorf("deleting pod %q: %w", d.Pod.Name, err))
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state.going[d.Pod.UID] = true
	})
	return len(deletions) > 0
}

// store writes the status of a plan, then tells the world what it makes true. It reports false where somebody else has changed the
// Job: it is looked at afresh then.
func (s *vcjobSync) store(ctx context.Context, plan vcjob.Plan) (stored bool, err error) {
	next := &batch.Job{ObjectMeta: s.job.ObjectMeta, Spec: s.job.Spec, Status: *plan.Status}
	version, err := s.c.api.StoreStatus(ctx, next)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // deleted: the watch will tell
	case apierrors.IsConflict(err):
		live, getErr := s.c.api.Job(ctx, s.job.Namespace, s.job.Name)
		if getErr != nil || live.UID != s.job.UID {
			return false, fmt.Errorf("storing the status of Job %s: %w", s.key, err)
		}
		s.adopt(live)
		s.c.queue.Add(s.key)
		return false, nil
	case err != nil:
		s.state.unsure = outcomeOf(err) == unknown
		return false, fmt.Errorf("storing the status of Job %s: %w", s.key, err)
	}
	before := cmp.Or(s.job.Status.State.Phase, batch.Pending)
	s.c.rush.forget(s.key)
	next.ResourceVersion = version
	s.adopt(next)
	s.state.setWritten(version)
	s.state.lastWrite, s.state.dirtySince = s.c.clock.Now(), time.Time{}
	measurePhase(next, before)
	if phase := next.Status.State.Phase; phase != before {
		s.c.log.Info("Job has come to a new phase", "job", s.key, "phase", phase, "from", before, "why", next.Status.State.Message)
		s.state.refusal, s.state.refusedFor, s.state.retryAt = "", "", time.Time{}
	}
	for _, e := range plan.Events {
		s.c.events.Event(next, e.Type, e.Reason, e.Message)
	}
	return true, nil
}

// tellOnce tells of events that go with no status: each text once in a row.
func (s *vcjobSync) tellOnce(events []vcjob.Event) {
	for _, e := range events {
		if id := e.Reason + "/" + e.Message; e.Reason == vcjob.ReasonCommandIssued || !s.state.told[id] {
			s.state.told[id] = true
			s.c.events.Event(s.job, e.Type, e.Reason, e.Message)
		}
	}
}

// storeLazily writes a status that may wait, when it has waited for long enough.
func (s *vcjobSync) storeLazily(ctx context.Context, o vcjob.Observed, plan vcjob.Plan) error {
	if plan.Status == nil {
		s.state.dirtySince = time.Time{}
		return nil
	}
	now := s.c.clock.Now()
	if s.state.dirtySince.IsZero() {
		s.state.dirtySince = now
	}
	delay := s.c.cfg.GaugeDelay
	switch {
	case o.Job.Status.State.Phase == "":
		if s.c.rush.hold(s.key) {
			delay = longestRush
		}
	case onlyWords(&o.Job.Status, plan.Status):
		delay = wordsDelay
	}
	due := s.state.dirtySince.Add(delay)
	if next := s.state.lastWrite.Add(s.c.cfg.BatchPeriod); next.After(due) && !s.state.lastWrite.IsZero() && now.Sub(s.state.lastWrite) < s.c.cfg.BatchPeriod && delay == s.c.cfg.GaugeDelay && s.state.pods > s.c.cfg.WideJob {
		due = next
	}
	if wait := due.Sub(now); wait > 0 {
		s.wake(wait)
		return nil
	}
	_, err := s.store(ctx, plan)
	return err
}

// wordsDelay is how long a new reason to wait may be untold: most waits are over sooner, and earn no write.
const wordsDelay = 3 * time.Second

// onlyWords reports whether two statuses differ in no number that people wait for.
func onlyWords(a, b *batch.JobStatus) bool {
	return a.Running == b.Running && a.Succeeded == b.Succeeded && a.Failed == b.Failed && a.Terminating == b.Terminating
}

// make makes what a plan wants made. It reports whether there was anything.
func (s *vcjobSync) make(ctx context.Context, o vcjob.Observed, plan vcjob.Plan) (bool, error) {
	wanted := plan.Prepare || plan.Group != nil || plan.Native != nil || len(plan.Create) > 0
	if wait := s.state.retryAt.Sub(o.Now); wanted && wait > 0 {
		s.wake(wait) // it was refused a moment ago
		return false, nil
	}
	did := false
	if plan.Prepare {
		if reason, err := s.prepare(ctx); err != nil {
			return false, s.refused(reason, err)
		}
		did = true
	}
	if plan.Group != nil {
		wrote, err := s.writeGroup(ctx, plan)
		if err != nil {
			return did, s.refused(vcjob.ReasonPodGroupError, err)
		}
		did = did || wrote
	}
	if plan.Native != nil {
		if err := s.writeNative(ctx, plan.Native); err != nil {
			return did, s.refused(vcjob.ReasonPodGroupError, err)
		}
		did = true
	}
	if len(plan.Create) > 0 {
		if !s.sure { // somebody may have deleted what these pods need
			if reason, err := s.prepare(ctx); err != nil {
				return did, s.refused(reason, err)
			}
		}
		if err := s.create(ctx, o, plan.Create); err != nil {
			return false, s.refused(vcjob.ReasonFailedCreate, err)
		}
		did = true
	}
	if s.state.refusal != "" { // it worked, or is not wanted any more
		s.state.refusal, s.state.refusedFor, s.state.refusals = "", "", 0
	}
	return did, nil
}

// refused waits longer and longer before something that was refused is tried again, and has the reason told. It never ends a Job.
// An answer that was lost, or did not tell, is an ordinary error.
//
// Differs: Volcano terminates a Job after about three minutes of such errors.
func (s *vcjobSync) refused(reason string, err error) error {
	if outcomeOf(err) == unknown && !errors.Is(err, errWaits) {
		return err
	}
	text := strings.TrimLeft(strings.TrimPrefix(err.Error(), errWaits.Error()), ":\n ")
	if apierrors.IsForbidden(err) && strings.Contains(text, "exceeded quota") {
		reason = "QuotaExceeded"
	}
	if text != s.state.refusal && !isNamespaceEnding(err) {
		told, message := reason, text
		if reason == vcjob.ReasonFailedCreate || reason == "QuotaExceeded" {
			told, message = vcjob.ReasonFailedCreate, "Error creating pods: "+text
		}
		s.c.events.Event(s.job, corev1.EventTypeWarning, told, message)
	}
	s.state.refusal, s.state.refusedFor = text, reason
	wait := longestRefusalWait
	if n := s.state.refusals; n < 5 {
		wait = min(wait, time.Second<<n)
	}
	s.state.refusals++
	s.state.retryAt = s.c.clock.Now().Add(wait)
	s.c.log.Info("Refused", "job", s.key, "err", err, "again", wait)
	s.wake(wait)
	s.c.queue.AddAfter(s.key, s.c.cfg.BatchPeriod) // so that the reason is stored
	return nil
}

// errWaits marks what cannot be made because something else must come or go first.
var errWaits = errors.New("waits for others")

// prepare makes the claims and objects that the pods need. reason is for events, where it does not work.
func (s *vcjobSync) prepare(ctx context.Context) (reason string, err error) {
	if err := s.prepareClaims(ctx); err != nil {
		return vcjob.ReasonPVCError, err
	}
	objects, err := vcjob.Objects(s.job)
	if err != nil {
		return vcjob.ReasonPluginError, errors.Join(errWaits, err)
	}
	for _, o := range objects {
		if err := s.ensure(ctx, o); err != nil {
			return vcjob.ReasonPluginError, err
		}
	}
	s.state.prepared, s.state.dropped, s.sure = s.wantedFor(), false, true
	return "", nil
}

// prepareClaims makes the claims of the Job, and notes in its spec how they are called.
func (s *vcjobSync) prepareClaims(ctx context.Context) error {
	var named *batch.Job
	for _, claim := range vcjob.Claims(s.job) {
		if claim.Make != nil {
			if err := s.c.api.Create(ctx, claim.Make); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating claim %q: %w", claim.Name, err)
			}
		} else if _, err := s.c.api.Get(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.job.Namespace, Name: claim.Name}}); apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: pvc %s is not found, the job will be in the Pending state until the PVC is created", errWaits, claim.Name)
		} else if err != nil {
			return fmt.Errorf("looking for claim %q: %w", claim.Name, err)
		}
		if claim.Unnamed >= 0 {
			if named == nil {
				named = s.job.DeepCopy()
			}
			named.Spec.Volumes[claim.Unnamed].VolumeClaimName = claim.Name
		}
	}
	if named == nil {
		return nil
	}
	stored, err := s.c.api.Store(ctx, named)
	if err != nil {
		return fmt.Errorf("noting the names of claims in Job %s: %w", s.key, err)
	}
	s.adopt(stored)
	return nil
}

// ensure makes one object of a plugin what it should be.
func (s *vcjobSync) ensure(ctx context.Context, want plugin.Object) error {
	o, ok := want.Object.(metav1.Object)
	if !ok {
		return fmt.Errorf("making an object of plugin %s: %T is none", want.Plugin, want.Object)
	}
	have, err := s.makeOrFind(ctx, want, o)
	if err != nil || have == nil {
		return err
	}
	switch ref := metav1.GetControllerOfNoCopy(have); {
	case metav1.IsControlledBy(have, s.job):
	case ref != nil:
		return fmt.Errorf("%w: %s belongs to %s %s", errWaits, describe(o), ref.Kind, ref.Name)
	case want.Keep:
		return nil // somebody has put it there for this Job
	default:
		return fmt.Errorf("%w: %s is there already and belongs to nobody; delete it or rename the Job", errWaits, describe(o))
	}
	if want.NeedsKeys {
		if err := s.giveKeys(o, have); err != nil {
			return err
		}
	}
	if want.Keep || !updateData(have, o) {
		return nil
	}
	if err := s.c.api.Update(ctx, have); err != nil {
		return fmt.Errorf("updating %s: %w", describe(o), err)
	}
	return nil
}

// makeOrFind makes an object of a plugin. Where one of its name is there already, it returns that one.
func (s *vcjobSync) makeOrFind(ctx context.Context, want plugin.Object, o metav1.Object) (have metav1.Object, err error) {
	if want.NeedsKeys { // they take a while to make, and are made once
		have, err := s.c.api.Get(ctx, o)
		if err == nil {
			return have, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("looking for %s: %w", describe(o), err)
		}
		if err := s.giveKeys(o, nil); err != nil {
			return nil, err
		}
	}
	err = s.c.api.Create(ctx, o)
	if err == nil {
		return nil, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating %s: %w", describe(o), err)
	}
	if have, err = s.c.api.Get(ctx, o); err != nil {
		return nil, fmt.Errorf("looking at %s: %w", describe(o), err)
	}
	return have, nil
}

// giveKeys puts a pair of keys into a Secret that is to be stored: that of the stored one, if it has any, or else a new one. have is
// nil where none is stored.
func (s *vcjobSync) giveKeys(o, have metav1.Object) error {
	secret, ok := o.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("making keys for %s: it is no Secret", describe(o))
	}
	if stored, ok := have.(*corev1.Secret); ok {
		if keys, ok := plugin.KeysOf(stored); ok {
			keys.Into(secret)
			return nil
		}
	}
	keys, err := s.c.makeKeys()
	if err != nil {
		return fmt.Errorf("making keys for %s: %w", describe(o), err)
	}
	keys.Into(secret)
	return nil
}

// updateData gives have the data of want, and reports whether they were different.
func updateData(have, want metav1.Object) bool {
	switch have := have.(type) {
	case *corev1.ConfigMap:
		if want, ok := want.(*corev1.ConfigMap); ok && !equality.Semantic.DeepEqual(have.Data, want.Data) {
			have.Data = want.Data
			return true
		}
	case *corev1.Secret:
		if want, ok := want.(*corev1.Secret); ok && !equality.Semantic.DeepEqual(have.Data, want.Data) {
			have.Data = want.Data
			return true
		}
	}
	return false
}

func describe(o metav1.Object) string {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
	return fmt.Sprintf("%s %q", kind, o.GetName())
}

// dropObjects deletes the objects of the plugins that belong to the Job.
func (s *vcjobSync) dropObjects(ctx context.Context) error {
	objects, err := vcjob.Objects(s.job)
	if err != nil {
		return fmt.Errorf("finding out what belongs to Job %s: %w", s.key, err)
	}
	for _, each := range objects {
		o, ok := each.Object.(metav1.Object)
		if !ok {
			continue
		}
		have, err := s.c.api.Get(ctx, o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking at %s: %w", describe(o), err)
		}
		if !metav1.IsControlledBy(have, s.job) {
			continue
		}
		if err := s.c.api.Delete(ctx, o, have.GetUID()); err != nil && !isGone(err) {
			return fmt.Errorf("deleting %s: %w", describe(o), err)
		}
	}
	s.state.dropped, s.state.prepared = true, ""
	return nil
}

// groupDelay is how long a PodGroup that others have changed is left alone.
const groupDelay = time.Second

// writeGroup makes or updates the PodGroup. It reports whether it has.
func (s *vcjobSync) writeGroup(ctx context.Context, plan vcjob.Plan) (bool, error) {
	g := plan.Group
	if g.ResourceVersion == "" {
		made, err := s.c.api.CreateGroup(ctx, g)
		if apierrors.IsAlreadyExists(err) {
			made, err = s.c.api.Group(ctx, g.Namespace, g.Name)
			if err == nil && (made.UID == s.state.groupGone || !metav1.IsControlledBy(made, s.job)) {
				return false, fmt.Errorf("%w: the former PodGroup %q is still there", errWaits, g.Name)
			}
		}
		if err != nil {
			return false, fmt.Errorf("creating PodGroup %q: %w", g.Name, err)
		}
		s.state.group = made
		s.state.setGroupMade(made.ResourceVersion)
		return true, nil
	}
	stored, err := s.c.api.UpdateGroup(ctx, g)
	if isGone(err) { // somebody has changed it: the watch will tell
		s.wake(groupDelay)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("updating PodGroup %q: %w", g.Name, err)
	}
	s.state.group = stored
	return true, nil
}

// writeNative makes the PodGroup of Kubernetes, or tells it how many pods must be placed at once.
func (s *vcjobSync) writeNative(ctx context.Context, g *schedulingv1beta1.PodGroup) error {
	if g.ResourceVersion != "" {
		stored, err := s.c.api.ResizeNative(ctx, g)
		if isGone(err) { // somebody has changed it: the watch will tell
			s.wake(groupDelay)
			return nil
		}
		if err != nil {
			return fmt.Errorf("resizing the PodGroup %q of Kubernetes: %w", g.Name, err)
		}
		s.state.native = stored
		return nil
	}
	made, err := s.c.api.CreateNative(ctx, g)
	if apierrors.IsAlreadyExists(err) {
		made, err = s.c.api.Native(ctx, g.Namespace, g.Name)
	}
	if err != nil {
		return fmt.Errorf("creating the PodGroup %q of Kubernetes: %w", g.Name, err)
	}
	s.state.native = made
	return nil
}

// create makes pods, slowly at first: where one cannot be made the others are not tried.
func (s *vcjobSync) create(ctx context.Context, o vcjob.Observed, creations []vcjob.Creation) error {
	builder, err := vcjob.NewBuilder(s.job, o.Forward)
	if err != nil {
		return errors.Join(errWaits, err)
	}
	var refusal error
	s.c.gate.slowly(len(creations), func(i int) bool {
		err := s.createOne(ctx, builder, creations[i])
		if err == nil {
			return true
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if outcomeOf(err) == refused || errors.Is(err, errWaits) {
			refusal = err
		} else {
			s.state.unresolved[creations[i].Name] = true
			s.errs = append(s.errs, fmt.Errorf("creating pod %q: %w", creations[i].Name, err))
		}
		return false
	})
	return refusal
}

func (s *vcjobSync) createOne(ctx context.Context, b *vcjob.Builder, c vcjob.Creation) error {
	p, err := b.Pod(c)
	if err != nil {
		return errors.Join(errWaits, err)
	}
	created, err := s.c.api.CreatePod(ctx, p)
	if apierrors.IsAlreadyExists(err) {
		created, err = s.c.api.Pod(ctx, p.Namespace, p.Name)
		if err == nil && !metav1.IsControlledBy(created, s.job) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.state.taken[c.Name] = created.ResourceVersion
			return nil
		}
	}
	if err != nil {
		return err
	}
	vcjobPodLatency.Observe(float64(s.c.clock.Since(s.job.CreationTimestamp.Time).Milliseconds()))
	s.state.mu.Lock()
	s.state.expect[created.UID] = true
	s.state.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.made[created.UID] = created
	return nil
}
