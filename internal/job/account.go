// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Urgency says how long a status may wait to be written, so that changes close together share one write.
type Urgency int

// The urgencies, each more urgent than the one before.
const (
	Nothing Urgency = iota // the stored status says it all
	Gauges                 // only numbers that come and go: active, ready, terminating, the first start time
	Counts                 // pods have ended or were counted
	AtOnce                 // a condition, the end of the Job, or a list that is full
)

// Accounting is what the status must say once the world is as observed.
type Accounting struct {
	Status  *batchv1.JobStatus // the whole new status; nil: the stored one stands
	Urgency Urgency
	// Untrack are the pods whose tracking finalizer may go once Status is stored, or at once when it is nil.
	Untrack []Untracking
	// Events are true once Status is stored.
	Events []Event
	// Final is the condition in Status that ends the Job, or nil.
	Final *batchv1.JobCondition

	Because []string
}

// Untracking asks for the tracking finalizer of a pod to be taken off.
type Untracking struct {
	Pod PodKey
	// Ruling is what the Job's podFailurePolicy said of the pod, "" where no rule matched.
	Ruling batchv1.PodFailurePolicyAction
}

// Account returns what the status of o.Job must say now. It first settles what an earlier status has named, then names what
// has ended since, and ends the Job when nothing is left to wait for.
func Account(o Observed) Accounting {
	t := count(o)
	a := account{
		o: o, t: &t, status: o.Job.Status.DeepCopy(), verdict: rule(o, &t),
		uncounted: batchv1.UncountedTerminatedPods{},
	}
	if a.verdict != nil && (!o.Settled || len(o.Pods.active) > 0 && !a.verdict.announcedEarly()) {
		a.verdict = nil // not while a pod may still run: it is derived again when they are gone
	}
	final := a.verdict != nil && len(o.Pods.active) == 0 && o.Pods.terminating == 0
	a.settle()
	if final {
		a.countDirectly()
	} else {
		a.name()
	}
	a.gauges()
	a.startTime()
	if a.verdict != nil {
		a.announce(final)
	} else {
		a.suspension()
	}
	return a.result()
}

// account is an Accounting in the making.
type account struct {
	o       Observed
	t       *tally
	verdict *verdict
	status  *batchv1.JobStatus

	uncounted batchv1.UncountedTerminatedPods
	out       Accounting
	full      bool // as many pods are named as one status may name
}

// settle moves what the stored status names, and what has lost its finalizer since, to the counters.
func (a *account) settle() {
	listed := a.status.UncountedTerminatedPods
	if listed == nil {
		return
	}
	for _, uid := range listed.Succeeded {
		if a.stillTracked(uid) {
			a.uncounted.Succeeded = append(a.uncounted.Succeeded, uid)
		} else if !a.o.Pods.shape.indexed {
			a.status.Succeeded++
		}
	}
	for _, uid := range listed.Failed {
		if a.stillTracked(uid) {
			a.uncounted.Failed = append(a.uncounted.Failed, uid)
		} else {
			a.status.Failed++
		}
	}
}

func (a *account) stillTracked(uid types.UID) bool {
	e := a.o.Pods.entries[uid]
	return e != nil && e.tracked
}

// countable returns the tracked pods that may lose their finalizer, ordered by index, creation and name: those that have ended
// and are not held for their replacement, and all of them when the Job itself ends or goes.
func (a *account) countable() []*entry {
	l := a.o.Pods
	everything := a.verdict != nil || a.o.Job.DeletionTimestamp != nil
	var pods []*entry
	if everything {
		for _, e := range l.entries {
			if e.tracked && e.claim == claimed {
				pods = append(pods, e)
			}
		}
	} else {
		for _, e := range l.over {
			if !e.failed || a.t.held[e.index] != e {
				pods = append(pods, e)
			}
		}
	}
	slices.SortFunc(pods, compareByIndex)
	return pods
}

// part says to which counter a pod belongs.
type part int

const (
	uncountedPod part = iota // it does not count: no valid index, ignored by a rule, or cut short by the Job's own end
	succeededPod
	failedPod
)

func (a *account) partOf(e *entry) part {
	over := e.state == stateFinished || e.failed
	jobFails := a.verdict != nil && a.verdict.outcome == batchv1.JobFailed
	switch {
	case a.t.listedFailed[e.pod.UID]:
		return failedPod // once booked as failed it stays so, however it ends
	case a.o.Pods.shape.indexed && e.index == noIndex:
		return uncountedPod
	case over && !e.failed:
		return succeededPod
	case !e.failed && !jobFails, e.ruling.ignored():
		return uncountedPod
	}
	return failedPod
}

// name lists the pods that have ended by UID, so that the next status can count them when their finalizer is gone. A completed
// index needs no UID: it is in the set however often it is put there.
func (a *account) name() {
	l := a.o.Pods
	newlyCompleted := 0
	for _, e := range a.countable() {
		uid := e.pod.UID
		if a.t.listedSucceeded[uid] || a.t.listedFailed[uid] {
			a.untrack(e) // named before, and not let go yet
			continue
		}
		if newlyCompleted+len(a.uncounted.Succeeded)+len(a.uncounted.Failed) >= a.o.Options.MaxUncounted {
			a.full = true
			continue
		}
		a.untrack(e)
		switch a.partOf(e) {
		case succeededPod:
			if !l.shape.indexed {
				a.uncounted.Succeeded = append(a.uncounted.Succeeded, uid)
			} else if !l.completed.Has(e.index) {
				newlyCompleted++
			}
		case failedPod:
			a.uncounted.Failed = append(a.uncounted.Failed, uid)
		case uncountedPod:
		}
	}
	if l.shape.indexed {
		a.setIndexes()
	}
}

// countDirectly adds everything to the counters at once: the status that ends a Job is the last that counts.
func (a *account) countDirectly() {
	l := a.o.Pods
	if !l.shape.indexed {
		a.status.Succeeded += int32(len(a.uncounted.Succeeded))
	}
	a.status.Failed += int32(len(a.uncounted.Failed))
	for _, e := range a.countable() {
		uid := e.pod.UID
		a.untrack(e)
		switch a.partOf(e) {
		case succeededPod:
			if !l.shape.indexed && !a.t.listedSucceeded[uid] {
				a.status.Succeeded++
			}
		case failedPod:
			if !a.t.listedFailed[uid] {
				a.status.Failed++
			}
		case uncountedPod:
		}
	}
	a.uncounted = batchv1.UncountedTerminatedPods{}
	if l.shape.indexed {
		a.setIndexes()
	}
}

func (a *account) untrack(e *entry) {
	u := Untracking{Pod: PodKey{e.pod.Name, e.pod.UID}}
	if e.failed {
		u.Ruling = e.ruling.action
	}
	a.out.Untrack = append(a.out.Untrack, u)
}

// setIndexes writes what is known of each index.
//
// Differs: after an Indexed Job has been cut, the counter of successes may be more than the completed indexes that are left, as
// long as the API server lets it go down only for Jobs whose completions equal their parallelism; upstream writes in vain.
func (a *account) setIndexes() {
	spec := &a.o.Job.Spec
	succeeded := int32(a.t.succeededIndexes.Len())
	if succeeded < a.o.Job.Status.Succeeded && !ptr.Equal(spec.Completions, spec.Parallelism) {
		succeeded = a.o.Job.Status.Succeeded
	}
	a.status.Succeeded = succeeded
	a.status.CompletedIndexes = a.t.succeededIndexes.String()
	if spec.BackoffLimitPerIndex != nil {
		a.status.FailedIndexes = ptr.To(a.t.failedIndexes.String())
	} else {
		a.status.FailedIndexes = nil
	}
}

func (a *account) gauges() {
	l := a.o.Pods
	a.status.Active = int32(len(l.active))
	a.status.Ready = ptr.To(int32(l.ready))
	a.status.Terminating = ptr.To(int32(l.terminating))
	a.status.UncountedTerminatedPods = &a.uncounted
}

func (a *account) startTime() {
	if a.status.StartTime == nil {
		if start := a.o.startTime(); start != nil {
			a.status.StartTime = ptr.To(metav1.NewTime(*start).Rfc3339Copy())
		}
	}
}

// announce puts the verdict into the conditions: the interim one, and with it the final one when every pod has ended.
func (a *account) announce(final bool) {
	v := a.verdict
	if trueCondition(a.status, v.interim()) == nil {
		a.status.Conditions = append(a.status.Conditions, a.condition(v.interim(), corev1.ConditionTrue, v.reason, v.message))
		a.because("%s: %s", v.interim(), v.message)
	}
	if !final {
		return
	}
	c := a.condition(v.outcome, corev1.ConditionTrue, v.reason, v.message)
	setCondition(&a.status.Conditions, c)
	a.out.Final = &c
	a.finishSuspended()
	if v.outcome == batchv1.JobComplete {
		a.status.CompletionTime = ptr.To(c.LastTransitionTime)
		if start := a.status.StartTime; start != nil && start.After(c.LastTransitionTime.Time) {
			a.status.CompletionTime = start.DeepCopy() // the clock was set back meanwhile
		}
	}
	a.out.Events = append(a.out.Events, finalEvents(a.o.Job, a.status, v)...)
	a.because("%s: no pod is left to wait for", v.outcome)
}

// finishSuspended gives a start time to a Job that ends while it is suspended. Without one the API server refuses its end,
// unless it wants no completions at all.
//
// Differs: upstream tries in vain until the Job is resumed.
func (a *account) finishSuspended() {
	wantsNone := a.o.Job.Spec.Completions != nil && *a.o.Job.Spec.Completions == 0
	if a.status.StartTime == nil && !wantsNone {
		a.status.StartTime = ptr.To(metav1.NewTime(a.o.Now).Rfc3339Copy())
	}
}

// suspension says in the conditions that the Job is suspended, once no pod of it is active, or that it was resumed.
//
// Differs: upstream says Suspended although the deletion of a pod has failed, and sends the event before the status is stored.
func (a *account) suspension() {
	if !a.o.Settled || a.o.Job.DeletionTimestamp != nil {
		return
	}
	if IsSuspended(a.o.Job) {
		if len(a.o.Pods.active) > 0 || !setCondition(&a.status.Conditions, a.condition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")) {
			return
		}
		if !a.o.Options.KeepStartTimeOnSuspend {
			a.status.StartTime = nil
		}
		a.out.Events = append(a.out.Events, Event{corev1.EventTypeNormal, "Suspended", "Job suspended"})
		return
	}
	if !hasCondition(a.status, batchv1.JobSuspended) {
		return
	}
	if setCondition(&a.status.Conditions, a.condition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")) {
		a.status.StartTime = ptr.To(metav1.NewTime(a.o.Now).Rfc3339Copy())
		a.out.Events = append(a.out.Events, Event{corev1.EventTypeNormal, "Resumed", "Job resumed"})
	}
}

// result compares the new status with the stored one.
func (a *account) result() Accounting {
	before := &a.o.Job.Status
	a.out.Urgency = a.urgency(before)
	if a.out.Urgency != Nothing {
		a.out.Status = a.status
	}
	return a.out
}

func (a *account) urgency(before *batchv1.JobStatus) Urgency {
	after := a.status
	counted := before.Succeeded != after.Succeeded || before.Failed != after.Failed ||
		before.CompletedIndexes != after.CompletedIndexes || !equality.Semantic.DeepEqual(before.FailedIndexes, after.FailedIndexes) ||
		!sameUncounted(before.UncountedTerminatedPods, after.UncountedTerminatedPods)
	interim := a.verdict != nil || a.o.Job.DeletionTimestamp != nil
	switch {
	case !equality.Semantic.DeepEqual(before.Conditions, after.Conditions):
		return AtOnce
	case counted && (interim || a.full):
		return AtOnce
	case counted:
		return Counts
	case before.Active != after.Active || !equality.Semantic.DeepEqual(before.Ready, after.Ready) ||
		!equality.Semantic.DeepEqual(before.Terminating, after.Terminating) || !before.StartTime.Equal(after.StartTime):
		return Gauges
	}
	return Nothing
}

func sameUncounted(a, b *batchv1.UncountedTerminatedPods) bool {
	if a == nil {
		a = &batchv1.UncountedTerminatedPods{}
	}
	return slices.Equal(a.Succeeded, b.Succeeded) && slices.Equal(a.Failed, b.Failed)
}

func (a *account) condition(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) batchv1.JobCondition {
	now := metav1.NewTime(a.o.Now.Truncate(time.Second))
	return batchv1.JobCondition{Type: kind, Status: status, LastProbeTime: now, LastTransitionTime: now, Reason: reason, Message: message}
}

func (a *account) because(format string, args ...any) {
	a.out.Because = append(a.out.Because, fmt.Sprintf(format, args...))
}

func hasCondition(s *batchv1.JobStatus, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind })
}

// setCondition puts c in the place of the condition of its type, or at the end. It reports whether that changed anything but
// the times.
func setCondition(conditions *[]batchv1.JobCondition, c batchv1.JobCondition) bool {
	for i := range *conditions {
		old := &(*conditions)[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return false
		}
		*old = c
		return true
	}
	*conditions = append(*conditions, c)
	return true
}
