// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second)) }

type jobOption func(*batchv1.Job)

// newJob returns a Job as the API server has it after creation: parallelism 1, and nothing else that a case did not ask for.
func newJob(options ...jobOption) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", UID: "job-uid", CreationTimestamp: at(0), Generation: 1, ResourceVersion: "1"},
		Spec: batchv1.JobSpec{
			Parallelism:          ptr.To[int32](1),
			BackoffLimit:         ptr.To[int32](6),
			CompletionMode:       ptr.To(batchv1.NonIndexedCompletion),
			Suspend:              ptr.To(false),
			PodReplacementPolicy: ptr.To(batchv1.TerminatingOrFailed),
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "job-uid"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.ControllerUidLabel: "job-uid", batchv1.JobNameLabel: "j"}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main"}}},
			},
		},
	}
	for _, o := range options {
		o(j)
	}
	return j
}

func parallelism(n int32) jobOption { return func(j *batchv1.Job) { j.Spec.Parallelism = &n } }
func completions(n int32) jobOption { return func(j *batchv1.Job) { j.Spec.Completions = &n } }
func backoffOf(n int32) jobOption   { return func(j *batchv1.Job) { j.Spec.BackoffLimit = &n } }
func deadline(seconds int64) jobOption {
	return func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = &seconds }
}

func startedAt(s int) jobOption { return func(j *batchv1.Job) { j.Status.StartTime = ptr.To(at(s)) } }
func suspended(j *batchv1.Job)  { j.Spec.Suspend = ptr.To(true) }
func onFailure(j *batchv1.Job)  { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
func deleting(j *batchv1.Job)   { j.DeletionTimestamp = ptr.To(at(1)) }
func waitForFailed(j *batchv1.Job) {
	j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
}

func indexed(n int32) jobOption {
	return func(j *batchv1.Job) {
		j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		j.Spec.Completions = &n
	}
}

func perIndex(limit int32) jobOption {
	return func(j *batchv1.Job) {
		j.Spec.BackoffLimitPerIndex = &limit
		j.Spec.BackoffLimit = ptr.To[int32](1<<31 - 1)
	}
}

func maxFailedIndexes(n int32) jobOption {
	return func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = &n }
}

func failurePolicy(rules ...batchv1.PodFailurePolicyRule) jobOption {
	return func(j *batchv1.Job) {
		waitForFailed(j)
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules}
	}
}

func exitCodes(action batchv1.PodFailurePolicyAction, op batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: op, Values: codes}}
}

func podCondition(action batchv1.PodFailurePolicyAction, kind corev1.PodConditionType) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: kind, Status: corev1.ConditionTrue}}}
}

func succeedsWith(rules ...batchv1.SuccessPolicyRule) jobOption {
	return func(j *batchv1.Job) { j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: rules} }
}

func status(change func(*batchv1.JobStatus)) jobOption {
	return func(j *batchv1.Job) { change(&j.Status) }
}

func haveCondition(kind batchv1.JobConditionType, s corev1.ConditionStatus, reason, message string) jobOption {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: s, Reason: reason, Message: message, LastProbeTime: at(1), LastTransitionTime: at(1)})
	}
}

type podOption func(*corev1.Pod)

// newPod returns a tracked pod of newJob's Job.
func newPod(name string, phase corev1.PodPhase, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID("uid-" + name), CreationTimestamp: at(0), ResourceVersion: "10",
			Labels:          map[string]string{batchv1.ControllerUidLabel: "job-uid", batchv1.JobNameLabel: "j"},
			Finalizers:      []string{batchv1.JobTrackingFinalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "job-uid", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// pods returns n tracked pods of that phase, named by prefix and number.
func pods(n int, prefix string, phase corev1.PodPhase, options ...podOption) []*corev1.Pod {
	var all []*corev1.Pod
	for i := range n {
		all = append(all, newPod(fmt.Sprintf("%s-%d", prefix, i), phase, options...))
	}
	return all
}

func untracked(p *corev1.Pod) { p.Finalizers = nil }
func ready(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
}

func goingSince(s int) podOption {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(at(s)), ptr.To[int64](0)
	}
}

func ended(s int, exitCode int32) podOption {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, FinishedAt: at(s)}}}}
	}
}

func atIndex(i int) podOption {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(i)
	}
}

func wentThrough(failures, ignored int) podOption {
	return func(p *corev1.Pod) {
		p.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(failures)
		if ignored > 0 {
			p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(ignored)
		}
	}
}

func restarted(n int32) podOption {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: n}}
	}
}

func withCondition(kind corev1.PodConditionType) podOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
}

// scene is one Job with its pods at one instant, as a case lays it out.
type scene struct {
	job       *batchv1.Job
	pods      []*corev1.Pod
	now       int  // seconds after t0
	unsettled bool // the outcome of an earlier write is unknown
	refuse    bool // the API server refuses every write to a pod
	room      int  // pods that may be created; 0: any number
}

// observe returns what a controller that has just begun would see.
func (sc scene) observe(t *testing.T) Observed {
	t.Helper()
	l, err := NewLedger(sc.job)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range sc.pods {
		l.Observe(p)
	}
	l.Fold()
	now := t0.Add(time.Duration(sc.now) * time.Second)
	if !IsSuspended(sc.job) {
		l.Begin(now)
	}
	return Observed{Job: sc.job, Pods: l, Now: now, Settled: !sc.unsettled, Options: DefaultOptions()}
}

// sync does one sync as a controller does, on a world that does what it is asked, and tells in one line a step what was
// written.
func (sc scene) sync(t *testing.T) (Observed, []string) {
	t.Helper()
	o := sc.observe(t)
	var told []string
	tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	plan := Decide(o)
	account := func() {
		for range 4 {
			a := Account(o)
			if a.Status != nil {
				tell("status %s", describe(o.Job, a.Status))
				for _, e := range a.Events {
					tell("event %s %s: %s", e.Type, e.Reason, e.Message)
				}
				j := o.Job.DeepCopy()
				j.Status = *a.Status
				o.Job = j
				if err := o.Pods.Follow(j); err != nil {
					t.Fatal(err)
				}
			}
			sc.untrack(o, a.Untrack, tell)
			if a.Status == nil || a.Final != nil || sc.refuse && len(a.Untrack) > 0 {
				return
			}
		}
	}
	if plan.AccountFirst {
		account()
	}
	for _, d := range plan.Delete {
		if sc.refuse {
			tell("tried to delete %s", d.Pod.Name)
			continue
		}
		how := "delete %s"
		if d.Untrack {
			how = "untrack and delete %s"
			o.Pods.MarkUntracked(d.Pod.UID)
		}
		o.Pods.MarkDeleting(d.Pod.UID)
		tell(how, d.Pod.Name)
	}
	sc.create(o, plan, tell)
	account()
	if plan.After > 0 {
		tell("look again after %v", plan.After)
	}
	return o, told
}

func (sc scene) create(o Observed, plan Plan, tell func(string, ...any)) {
	var names []string
	for n, c := range plan.Create {
		if sc.refuse || sc.room > 0 && n >= sc.room {
			break
		}
		p := newPod(c.Name, corev1.PodPending)
		p.Spec.NodeName = ""
		name := "a pod"
		if c.Index != noIndex {
			atIndex(c.Index)(p)
			name = fmt.Sprintf("index %d", c.Index)
			if o.Job.Spec.BackoffLimitPerIndex != nil {
				wentThrough(int(c.Failures), int(c.Ignored))(p)
				name += fmt.Sprintf(" after %d failures", c.Failures)
				if c.Ignored > 0 {
					name += fmt.Sprintf(" and %d ignored", c.Ignored)
				}
			}
		}
		o.Pods.Created(p)
		names = append(names, name)
	}
	for len(names) > 0 {
		n := 1
		for n < len(names) && names[n] == names[0] {
			n++
		}
		if n > 1 {
			tell("create %s %d times", names[0], n)
		} else {
			tell("create %s", names[0])
		}
		names = names[n:]
	}
}

func (sc scene) untrack(o Observed, pods []Untracking, tell func(string, ...any)) {
	if len(pods) == 0 {
		return
	}
	var names []string
	for _, u := range pods {
		names = append(names, u.Pod.Name)
		if !sc.refuse {
			o.Pods.MarkUntracked(u.Pod.UID)
		}
	}
	how := "untrack %s"
	if sc.refuse {
		how = "tried to untrack %s"
	}
	tell(how, strings.Join(names, ", "))
}

// describe tells what a status says, in one line.
func describe(j *batchv1.Job, s *batchv1.JobStatus) string {
	words := []string{fmt.Sprintf("active=%d", s.Active)}
	add := func(name string, n int32) {
		if n != 0 {
			words = append(words, fmt.Sprintf("%s=%d", name, n))
		}
	}
	add("ready", ptr.Deref(s.Ready, -99))
	add("terminating", ptr.Deref(s.Terminating, -99))
	add("succeeded", s.Succeeded)
	add("failed", s.Failed)
	if u := s.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		words = append(words, fmt.Sprintf("uncounted=%v/%v", shortNames(u.Succeeded), shortNames(u.Failed)))
	}
	if IsIndexed(j) {
		words = append(words, fmt.Sprintf("completed=%q", s.CompletedIndexes))
		if s.FailedIndexes != nil {
			words = append(words, fmt.Sprintf("failedIndexes=%q", *s.FailedIndexes))
		}
	}
	if s.StartTime == nil {
		words = append(words, "not-started")
	}
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			words = append(words, fmt.Sprintf("%s(%s)", c.Type, c.Reason))
		} else {
			words = append(words, fmt.Sprintf("not-%s(%s)", c.Type, c.Reason))
		}
	}
	return strings.Join(words, " ")
}

func shortNames(uids []types.UID) []string {
	var names []string
	for _, uid := range uids {
		names = append(names, strings.TrimPrefix(string(uid), "uid-"))
	}
	return names
}

func all(groups ...[]*corev1.Pod) []*corev1.Pod { return slices.Concat(groups...) }

func uids(names ...string) []types.UID {
	var all []types.UID
	for _, n := range names {
		all = append(all, types.UID("uid-"+n))
	}
	return all
}
