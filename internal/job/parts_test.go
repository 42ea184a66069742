// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/indexset"
)

func TestPodFailurePolicy(t *testing.T) {
	const (
		failJob, ignore, countIt = batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionCount
		in, notIn                = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	)
	onContainer := func(name string, r batchv1.PodFailurePolicyRule) batchv1.PodFailurePolicyRule {
		r.OnExitCodes.ContainerName = &name
		return r
	}
	initEnded := func(code int32) podOption {
		return func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
		}
	}
	falseCondition := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}}
	}
	cases := map[string]struct {
		rules []batchv1.PodFailurePolicyRule
		pod   *corev1.Pod
		want  ruling
	}{
		"an exit code that is listed": {
			[]batchv1.PodFailurePolicyRule{exitCodes(ignore, in, 1, 3)}, newPod("p", corev1.PodFailed, ended(1, 3)), ruling{ignore, "Container main for pod ns/p failed with exit code 3 matching Ignore rule at index 0"},
		},
		"an exit code that is not listed": {
			[]batchv1.PodFailurePolicyRule{exitCodes(ignore, in, 1)}, newPod("p", corev1.PodFailed, ended(1, 3)), ruling{},
		},
		"NotIn takes every other code": {
			[]batchv1.PodFailurePolicyRule{exitCodes(failJob, notIn, 0)}, newPod("p", corev1.PodFailed, ended(1, 3)), ruling{failJob, "Container main for pod ns/p failed with exit code 3 matching FailJob rule at index 0"},
		},
		"code zero never matches": {
			[]batchv1.PodFailurePolicyRule{exitCodes(failJob, notIn, 1)}, newPod("p", corev1.PodFailed, ended(1, 0)), ruling{},
		},
		"a negative code may be listed": {
			[]batchv1.PodFailurePolicyRule{exitCodes(failJob, in, -1073741510)}, newPod("p", corev1.PodFailed, ended(1, -1073741510)), ruling{failJob, "Container main for pod ns/p failed with exit code -1073741510 matching FailJob rule at index 0"},
		},
		"a rule for another container": {
			[]batchv1.PodFailurePolicyRule{onContainer("setup", exitCodes(failJob, in, 3))}, newPod("p", corev1.PodFailed, ended(1, 3)), ruling{},
		},
		"an init container's code": {
			[]batchv1.PodFailurePolicyRule{onContainer("setup", exitCodes(failJob, in, 7))}, newPod("p", corev1.PodFailed, ended(1, 3), initEnded(7)), ruling{failJob, "Container setup for pod ns/p failed with exit code 7 matching FailJob rule at index 0"},
		},
		"the first rule that matches decides": {
			[]batchv1.PodFailurePolicyRule{podCondition(countIt, corev1.DisruptionTarget), exitCodes(countIt, in, 3), exitCodes(failJob, in, 3)}, newPod("p", corev1.PodFailed, ended(1, 3)), ruling{countIt, "Container main for pod ns/p failed with exit code 3 matching Count rule at index 1"},
		},
		"a condition": {
			[]batchv1.PodFailurePolicyRule{podCondition(failJob, corev1.DisruptionTarget)}, newPod("p", corev1.PodFailed, withCondition(corev1.DisruptionTarget)), ruling{failJob, "Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"},
		},
		"a condition of another status": {
			[]batchv1.PodFailurePolicyRule{podCondition(failJob, corev1.DisruptionTarget)}, newPod("p", corev1.PodFailed, falseCondition), ruling{},
		},
		"an action that is not known matches nothing": {
			[]batchv1.PodFailurePolicyRule{exitCodes("Explode", in, 3), exitCodes(ignore, in, 3)}, newPod("p", corev1.PodFailed, ended(1, 3)), ruling{ignore, "Container main for pod ns/p failed with exit code 3 matching Ignore rule at index 1"},
		},
		"an operator that is not known matches nothing": {
			[]batchv1.PodFailurePolicyRule{exitCodes(failJob, "Near", 3)}, newPod("p", corev1.PodFailed, ended(1, 3)), ruling{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := judge(&batchv1.PodFailurePolicy{Rules: tc.rules}, tc.pod)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(ruling{})); diff != "" {
				t.Errorf("ruling (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSuccessPolicy(t *testing.T) {
	rule := func(indexes string, count int32) batchv1.SuccessPolicyRule {
		var r batchv1.SuccessPolicyRule
		if indexes != "-" {
			r.SucceededIndexes = &indexes
		}
		if count > 0 {
			r.SucceededCount = &count
		}
		return r
	}
	cases := map[string]struct {
		rules     []batchv1.SuccessPolicyRule
		succeeded string
		want      int
	}{
		"two of the listed indexes are enough":          {[]batchv1.SuccessPolicyRule{rule("0-9", 2)}, "3,7", 0},
		"all of the listed indexes are asked for":       {[]batchv1.SuccessPolicyRule{rule("0-9", 0)}, "0-8", -1},
		"all of the listed indexes are there":           {[]batchv1.SuccessPolicyRule{rule("1,3", 0)}, "0-5", 0},
		"an empty list is never satisfied":              {[]batchv1.SuccessPolicyRule{rule("", 0)}, "0-5", -1},
		"a malformed list is never satisfied":           {[]batchv1.SuccessPolicyRule{rule("1,x", 1)}, "0-5", -1},
		"a count alone asks for any so many":            {[]batchv1.SuccessPolicyRule{rule("-", 3)}, "0,4,9", 0},
		"a count alone that is not reached":             {[]batchv1.SuccessPolicyRule{rule("-", 3)}, "0,4", -1},
		"successes outside the list do not count":       {[]batchv1.SuccessPolicyRule{rule("0-2", 2)}, "2-9", -1},
		"the first satisfied rule is named":             {[]batchv1.SuccessPolicyRule{rule("0", 0), rule("-", 2), rule("-", 1)}, "1,2", 1},
		"without any success nothing is satisfied":      {[]batchv1.SuccessPolicyRule{rule("-", 0)}, "", -1},
		"a rule that asks for nothing is not satisfied": {[]batchv1.SuccessPolicyRule{rule("-", 0)}, "1", -1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			succeeded := indexset.Parse(tc.succeeded, 100)
			if got := successRule(&batchv1.SuccessPolicy{Rules: tc.rules}, &succeeded); got != tc.want {
				t.Errorf("rule %d, want %d", got, tc.want)
			}
		})
	}
}

func TestNamesOfPods(t *testing.T) {
	long := strings.Repeat("x", 68)
	prefixes := map[string]struct {
		job   string
		index int
		want  string
	}{
		"a plain Job":                       {"pi", noIndex, "pi-"},
		"an index":                          {"indexed-job", 1, "indexed-job-1-"},
		"a long name is cut, not its index": {long, 1, long[:55] + "-1-"},
	}
	for name, tc := range prefixes {
		t.Run(name, func(t *testing.T) {
			if got := generateName(tc.job, tc.index); got != tc.want {
				t.Errorf("generateName = %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("names of one Job never repeat and are as long as those of the API server", func(t *testing.T) {
		seen := map[string]bool{}
		for n := range 20_000 {
			name := podName("job-", "uid", noIndex, n)
			if len(name) != len("job-")+5 {
				t.Fatalf("name %q", name)
			}
			if seen[name] {
				t.Fatalf("name %q comes again at %d", name, n)
			}
			seen[name] = true
		}
	})
	t.Run("a Job made again under the same name uses other names", func(t *testing.T) {
		if a, b := podName("j-", "uid-1", noIndex, 0), podName("j-", "uid-2", noIndex, 0); a == b {
			t.Errorf("both are %q", a)
		}
	})
	t.Run("a creation whose answer was lost is asked for under the same name", func(t *testing.T) {
		o := scene{job: newJob(parallelism(3), completions(3))}.observe(t)
		first := Decide(o).Create
		p := newPod(first[1].Name, corev1.PodPending)
		o.Pods.Created(p) // the answers to the other two were lost
		again := Decide(o).Create
		if want := []string{first[0].Name, first[2].Name}; len(again) != 2 || again[0].Name != want[0] || again[1].Name != want[1] {
			t.Errorf("asks for %v, want %v", again, want)
		}
	})
}

func TestNewPod(t *testing.T) {
	j := newJob(indexed(3), perIndex(2))
	j.Spec.Template.Annotations = map[string]string{"note": "kept"}
	j.Spec.Template.Finalizers = []string{"example.com/own"}
	j.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}, {Name: "other", Env: []corev1.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: "mine"}}}}
	before := j.DeepCopy()
	variable := corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['batch.kubernetes.io/job-completion-index']"}}}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "j-2-abcde", GenerateName: "j-2-", Namespace: "ns",
			Labels:          map[string]string{batchv1.ControllerUidLabel: "job-uid", batchv1.JobNameLabel: "j", "batch.kubernetes.io/job-completion-index": "2"},
			Annotations:     map[string]string{"note": "kept", "batch.kubernetes.io/job-completion-index": "2", "batch.kubernetes.io/job-index-failure-count": "1", "batch.kubernetes.io/job-index-ignored-failure-count": "3"},
			Finalizers:      []string{"example.com/own", "batch.kubernetes.io/job-tracking"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "job-uid", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Hostname: "j-2",
			InitContainers: []corev1.Container{{Name: "setup", Env: []corev1.EnvVar{variable}}},
			Containers:     []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, variable}}, {Name: "other", Env: []corev1.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: "mine"}}}},
		},
	}
	got, err := NewPod(j, Creation{Name: "j-2-abcde", Index: 2, Failures: 1, Ignored: 3})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, j); diff != "" {
		t.Errorf("the Job was changed (-before +after):\n%s", diff)
	}
	j.Spec.Template.Labels = nil
	if _, err := NewPod(j, Creation{Index: noIndex}); !errors.Is(err, ErrNoLabels) {
		t.Errorf("without labels: %v, want %v", err, ErrNoLabels)
	}
}

func TestFailureCountsAreReadWithCare(t *testing.T) {
	for text, want := range map[string]int32{"": 0, "x": 0, "-1": 0, "2147483648": 0, "2147483647": 2147483647, "3": 3} {
		p := newPod("p", corev1.PodFailed)
		p.Annotations = map[string]string{batchv1.JobIndexFailureCountAnnotation: text}
		if got := countAnnotation(p, batchv1.JobIndexFailureCountAnnotation); got != want {
			t.Errorf("%q reads as %d, want %d", text, got, want)
		}
	}
}

func TestBackoffOfAnIndex(t *testing.T) {
	o := scene{job: newJob(indexed(1), perIndex(6))}.observe(t)
	o.Options.Backoff.Base = 5 * time.Second
	for name, p := range map[string]*corev1.Pod{
		"two failures before":                newPod("p", corev1.PodFailed, atIndex(0), wentThrough(2, 0), ended(0, 1)),
		"one failure and one ignored before": newPod("p", corev1.PodFailed, atIndex(0), wentThrough(1, 1), ended(0, 1)),
	} {
		if got := indexBackoff(o, &entry{pod: p}); got != 20*time.Second {
			t.Errorf("%s: %v, want 20s", name, got)
		}
	}
}

func TestExpiry(t *testing.T) {
	ttl := func(n int32) jobOption { return func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = &n } }
	finished := haveCondition(batchv1.JobComplete, corev1.ConditionTrue, "CompletionsReached", "")
	cases := map[string]struct {
		job     *batchv1.Job
		at      time.Time
		limited bool
	}{
		"counted from the end":                    {newJob(finished, ttl(10)), t0.Add(11 * time.Second), true},
		"zero is at once":                         {newJob(finished, ttl(0)), t0.Add(time.Second), true},
		"a failure counts too":                    {newJob(haveCondition(batchv1.JobFailed, corev1.ConditionTrue, "", ""), ttl(5)), t0.Add(6 * time.Second), true},
		"a Job that goes on stays":                {newJob(ttl(10)), time.Time{}, false},
		"without a limit it stays":                {newJob(finished), time.Time{}, false},
		"one that is being deleted needs no help": {newJob(finished, ttl(10), deleting), time.Time{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			at, limited, err := Expiry(tc.job)
			if err != nil || limited != tc.limited || !at.Equal(tc.at) {
				t.Errorf("Expiry = %v, %v, %v; want %v, %v", at, limited, err, tc.at, tc.limited)
			}
		})
	}
	j := newJob(ttl(1), status(func(s *batchv1.JobStatus) {
		s.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	}))
	if _, _, err := Expiry(j); !errors.Is(err, ErrNoFinishTime) {
		t.Errorf("without a time: %v, want %v", err, ErrNoFinishTime)
	}
}

func TestWhoLooksAfterAJob(t *testing.T) {
	by := func(name string) *batchv1.Job {
		return newJob(func(j *batchv1.Job) { j.Spec.ManagedBy = &name })
	}
	const own = "drover.dev/job-controller"
	cases := map[string]struct {
		job       *batchv1.Job
		manager   string
		marked    bool
		elsewhere bool
	}{
		"unmarked is ours":                                 {newJob(), ManagerName, false, false},
		"marked for the built-in controller is ours":       {by(ManagerName), ManagerName, false, false},
		"marked for another is not":                        {by("example.com/other"), ManagerName, false, true},
		"beside upstream, unmarked is upstream's":          {newJob(), own, true, true},
		"beside upstream, marked for upstream is not ours": {by(ManagerName), own, true, true},
		"beside upstream, marked for us is ours":           {by(own), own, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ManagedElsewhere(tc.job, tc.manager, tc.marked); got != tc.elsewhere {
				t.Errorf("ManagedElsewhere = %v", got)
			}
		})
	}
}

func TestOrphans(t *testing.T) {
	finished := newJob(haveCondition(batchv1.JobComplete, corev1.ConditionTrue, "", ""))
	ownerless := func(p *corev1.Pod) { p.OwnerReferences = nil }
	ofReplicaSet := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "x", Controller: ptr.To(true)}}
	}
	ofOtherJobKind := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job", UID: "x", Controller: ptr.To(true)}}
	}
	cases := map[string]struct {
		pod       *corev1.Pod
		owner     *batchv1.Job
		elsewhere bool
		orphan    bool
	}{
		"its Job is gone":                       {newPod("p", corev1.PodRunning), nil, false, true},
		"its Job has ended":                     {newPod("p", corev1.PodRunning), finished, false, true},
		"its Job goes on":                       {newPod("p", corev1.PodRunning), newJob(), false, false},
		"its Job has ended and is another's":    {newPod("p", corev1.PodRunning), finished, true, false},
		"it never had an owner":                 {newPod("p", corev1.PodRunning, ownerless), nil, false, true},
		"it carries no finalizer":               {newPod("p", corev1.PodRunning, untracked), nil, false, false},
		"it belongs to another kind":            {newPod("p", corev1.PodRunning, ofReplicaSet), nil, false, false},
		"it belongs to a Job of another group":  {newPod("p", corev1.PodRunning, ofOtherJobKind), nil, false, false},
		"ownerless pods are left to the others": {newPod("p", corev1.PodRunning, ownerless), nil, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := IsOrphan(tc.pod, tc.owner, tc.elsewhere); got != tc.orphan {
				t.Errorf("IsOrphan = %v", got)
			}
		})
	}
}

func TestClaims(t *testing.T) {
	ownerless := func(p *corev1.Pod) { p.OwnerReferences = nil }
	relabelled := func(p *corev1.Pod) { p.Labels = map[string]string{"job": "other"} }
	ofOther := func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }
	byHand := func(j *batchv1.Job) {
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"job": "other"}}
	}
	cases := map[string]struct {
		job  *batchv1.Job
		pod  *corev1.Pod
		want Claims
	}{
		"our own pod is kept":                       {newJob(), newPod("p", corev1.PodRunning), Claims{}},
		"an ownerless pod is adopted":               {newJob(), newPod("p", corev1.PodRunning, ownerless), Claims{Adopt: []Adoption{{PodKey{"p", "uid-p"}, true, "10"}}}},
		"one that has ended is not counted again":   {newJob(), newPod("p", corev1.PodSucceeded, ownerless, untracked), Claims{Adopt: []Adoption{{PodKey{"p", "uid-p"}, false, "10"}}}},
		"by a hand-made selector it is counted":     {newJob(byHand), newPod("p", corev1.PodSucceeded, ownerless, untracked, relabelled), Claims{Adopt: []Adoption{{PodKey{"p", "uid-p"}, true, "10"}}}},
		"a pod that is going is not adopted":        {newJob(), newPod("p", corev1.PodRunning, ownerless, goingSince(1)), Claims{}},
		"a Job that is going adopts nothing":        {newJob(deleting), newPod("p", corev1.PodRunning, ownerless), Claims{}},
		"another's pod is left alone":               {newJob(), newPod("p", corev1.PodRunning, ofOther), Claims{}},
		"a pod that does not match is released":     {newJob(), newPod("p", corev1.PodRunning, relabelled), Claims{Release: []PodKey{{"p", "uid-p"}}}},
		"a Job that is going keeps it all the same": {newJob(deleting), newPod("p", corev1.PodRunning, relabelled), Claims{}},
		"an ownerless stranger is left alone":       {newJob(), newPod("p", corev1.PodRunning, ownerless, relabelled), Claims{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := scene{job: tc.job, pods: []*corev1.Pod{tc.pod}}.observe(t)
			if diff := cmp.Diff(tc.want, Claim(o.Pods)); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCadence(t *testing.T) {
	c := Cadence{Batch: time.Second, Gauge: 250 * time.Millisecond}
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	cases := map[string]struct {
		urgency          Urgency
		now, last, since time.Time
		want             time.Duration
	}{
		"what ends the Job is written at once":          {AtOnce, ms(10), ms(5), ms(10), 0},
		"after a quiet second an end is told at once":   {Counts, ms(2000), ms(900), ms(2000), 0},
		"further ends wait for the second to be over":   {Counts, ms(1400), ms(900), ms(1400), 500 * time.Millisecond},
		"a number may be a little behind":               {Gauges, ms(5000), ms(0), ms(4900), 150 * time.Millisecond},
		"a number is written when it has waited enough": {Gauges, ms(5000), ms(0), ms(4750), 0},
		"a number waits for the second too":             {Gauges, ms(500), ms(100), ms(100), 600 * time.Millisecond},
		"the first status of a Job is a number":         {Gauges, ms(0), time.Time{}, ms(0), 250 * time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.Wait(tc.urgency, tc.now, tc.last, tc.since); got != tc.want {
				t.Errorf("Wait = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestALedgerFollowsAsIfItWereMadeAnew compares a ledger that has followed many changes with one made from what is left.
func TestALedgerFollowsAsIfItWereMadeAnew(t *testing.T) {
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		options := []jobOption{parallelism(4)}
		if rng.IntN(2) == 0 {
			options = append(options, indexed(5))
		}
		if rng.IntN(2) == 0 {
			options = append(options, failurePolicy(exitCodes(batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyOnExitCodesOpIn, 3)))
		}
		j := newJob(options...)
		l, err := NewLedger(j)
		if err != nil {
			t.Fatal(err)
		}
		present := map[types.UID]*corev1.Pod{}
		version := 100
		for range 150 {
			version++
			p := newPod(string(rune('a'+rng.IntN(12))), phases[rng.IntN(len(phases))], atIndex(rng.IntN(7)), ended(1, int32(rng.IntN(5))))
			p.ResourceVersion = itoa(version)
			for _, change := range []podOption{untracked, ready, goingSince(3), restarted(2), func(p *corev1.Pod) { p.OwnerReferences = nil }} {
				if rng.IntN(4) == 0 {
					change(p)
				}
			}
			switch rng.IntN(6) {
			case 0:
				l.Gone(p.UID)
				delete(present, p.UID)
			case 1:
				old := p.DeepCopy()
				old.ResourceVersion = "1"
				if present[p.UID] != nil {
					l.Observe(old) // an old version comes late
				}
			case 2:
				j = j.DeepCopy()
				j.Spec.Completions = ptr.To(int32(3 + rng.IntN(4)))
				if err := l.Follow(j); err != nil {
					t.Fatal(err)
				}
			default:
				l.Observe(p)
				present[p.UID] = p
			}
		}
		fresh, err := NewLedger(j)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range present {
			fresh.Observe(p)
		}
		if diff := cmp.Diff(summary(fresh), summary(l)); diff != "" {
			t.Fatalf("seed %d: ledger (-made anew +followed):\n%s", seed, diff)
		}
	}
}

func itoa(n int) string {
	return string(append([]byte(nil), []byte{byte('0' + n/100%10), byte('0' + n/10%10), byte('0' + n%10)}...))
}

// summary is everything that a decision reads from a ledger.
func summary(l *Ledger) map[string]any {
	names := func(m map[types.UID]*entry) []string {
		var ns []string
		for _, e := range m {
			ns = append(ns, e.pod.Name)
		}
		slices.Sort(ns)
		return ns
	}
	var active []string
	for n, e := range l.active {
		if e.slot != n {
			active = append(active, "misplaced")
		}
		active = append(active, e.pod.Name)
	}
	slices.Sort(active)
	return map[string]any{
		"active": active, "ready": l.ready, "terminating": l.terminating, "restarts": l.restarts,
		"over": names(l.over), "failJob": names(l.failJob), "claims": names(l.claims),
		"activeSet": l.activeSet.String(), "endingSet": l.endingSet.String(), "unnumbered": l.unnumbered, "doubled": l.doubled,
		"activeAt": l.activeAt, "endingAt": l.endingAt,
	}
}
