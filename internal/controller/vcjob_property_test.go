// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/simulate"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// TestVolcanoJobsKeepTheirPromisesWhateverHappens lets users, nodes, a scheduler, slow watches, failing requests and crashes do their
// worst to random Jobs, and then lets the world come to rest. It fails with the seed, which -seed runs again.
func TestVolcanoJobsKeepTheirPromisesWhateverHappens(t *testing.T) {
	seeds, first := *seedsFlag, uint64(1)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	syncs, crashes := 0, 0
	phases := map[batch.JobPhase]int{}
	for seed := first; seed < first+seeds; seed++ {
		s := newVCStorm(t, seed)
		s.run(*stepsFlag)
		syncs, crashes = syncs+s.w.syncs, crashes+s.w.crashes
		phases[s.w.phase()]++
		if t.Failed() {
			t.Fatalf("seed %d: run it again with -run %s -seed %d", seed, t.Name(), seed)
		}
	}
	t.Logf("%d seeds, %d syncs, %d crashes in the middle of a sync, ended in %v", seeds, syncs, crashes, phases)
}

// vcStorm is one random history.
type vcStorm struct {
	t        *testing.T
	w        *vcWorld
	rng      *rand.Rand
	faults   float64
	commands int
}

func newVCStorm(t *testing.T, seed uint64) *vcStorm {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 77))
	cfg := VCJobConfig{}
	cfg.Options.Own = rng.IntN(3) == 0
	cfg.Options.Native = cfg.Options.Own && rng.IntN(2) == 0
	s := &vcStorm{t: t, rng: rng, w: newVCWorld(t, cfg), faults: []float64{0, 0.02, 0.2}[rng.IntN(3)]}
	if rng.IntN(2) == 0 {
		s.w.others = calmSyncs
		s.w.start()
	}
	s.w.cluster.Fault = s.fault
	s.w.submit(s.randomJob())
	return s
}

func (s *vcStorm) fault(request string) simulate.Fault {
	f := simulate.None
	if s.rng.Float64() < s.faults {
		f = []simulate.Fault{simulate.Refuse, simulate.Lose, simulate.Unreachable, simulate.CrashBefore, simulate.CrashAfter}[s.rng.IntN(5)]
	}
	s.say("  %s fault=%d", request, f)
	return f
}

func (s *vcStorm) say(format string, args ...any) {
	if *seedFlag != 0 {
		s.t.Logf(format, args...)
	}
}

func (s *vcStorm) randomJob() *batch.Job {
	r := s.rng
	j := vcJob()
	for i := range 1 + r.IntN(3) {
		vcTask(fmt.Sprintf("t%d", i), int32(r.IntN(4)), func(t *batch.TaskSpec) {
			if r.IntN(2) == 0 {
				t.MinAvailable = ptr.To(int32(r.IntN(int(t.Replicas) + 1)))
			}
			if i > 0 && r.IntN(4) == 0 {
				t.DependsOn = &batch.DependsOn{Name: []string{"t0"}}
			}
			if r.IntN(4) == 0 && t.Replicas == 2 {
				t.MinAvailable = nil
				t.PartitionPolicy = &batch.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 1}
			}
			t.Policies = s.randomPolicies(1)
		})(j)
	}
	j.Spec.Policies = s.randomPolicies(3)
	j.Spec.MaxRetry = int32(r.IntN(5))
	if r.IntN(3) == 0 {
		j.Spec.Plugins = map[string][]string{"svc": {}, "env": {}, "ssh": {}}
	}
	if r.IntN(4) == 0 {
		j.Spec.MinSuccess = ptr.To(int32(1 + r.IntN(2)))
	}
	if r.IntN(4) == 0 {
		j.Spec.TTLSecondsAfterFinished = ptr.To(int32(r.IntN(20)))
	}
	return j
}

func (s *vcStorm) randomPolicies(most int) []batch.LifecyclePolicy {
	events := []batch.Event{"PodFailed", "PodEvicted", "PodPending", "TaskCompleted", "TaskFailed", "Unknown"}
	actions := []batch.Action{"RestartJob", "RestartTask", "RestartPod", "RestartPartition", "AbortJob", "TerminateJob", "CompleteJob", "ResumeJob"}
	s.rng.Shuffle(len(events), func(i, k int) { events[i], events[k] = events[k], events[i] })
	var list []batch.LifecyclePolicy
	for i := range s.rng.IntN(most + 1) {
		p := batch.LifecyclePolicy{Event: events[i], Action: actions[s.rng.IntN(len(actions))]}
		if p.Event == "PodPending" || s.rng.IntN(4) == 0 {
			p.Timeout = &metav1.Duration{Duration: time.Duration(1+s.rng.IntN(20)) * time.Second}
		}
		list = append(list, p)
	}
	return list
}

func (s *vcStorm) run(steps int) {
	for range steps {
		s.step()
		if len(s.w.cluster.Violations()) > 0 {
			break
		}
	}
	s.faults = 0
	s.say("-- rest")
	s.rest()
	s.w.checkInvariants()
	s.checkRest()
}

func (s *vcStorm) step() {
	w, r := s.w, s.rng
	pods := w.cluster.Pods()
	pick := func() *corev1.Pod {
		if len(pods) == 0 {
			return nil
		}
		return pods[r.IntN(len(pods))]
	}
	switch n := r.IntN(100); {
	case n < 20:
		w.tell(1 + r.IntN(4))
	case n < 40:
		w.tellPods(1 + r.IntN(4))
	case n < 65:
		w.work(1 + r.IntN(2))
	case n < 70:
		w.setTime(w.clock.Now().Add(time.Duration(r.IntN(3000)) * time.Millisecond))
	case n < 75:
		w.admit()
	case n < 83:
		if p := pick(); p != nil && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending {
			s.say("start %s", p.Name)
			w.cluster.Start(p, true)
		}
	case n < 88:
		if p := pick(); p != nil && p.Status.Phase == corev1.PodRunning {
			code := []int32{0, 0, 1, 3}[r.IntN(4)]
			s.say("finish %s %d", p.Name, code)
			w.cluster.Finish(p, code)
		}
	case n < 90:
		if p := pick(); p != nil && p.Status.Phase == corev1.PodRunning {
			w.cluster.Restart(p)
		}
	case n < 92:
		if p := pick(); p != nil {
			s.say("evict %s", p.Name)
			w.cluster.EvictPod(p, int64(r.IntN(2)*5))
		}
	case n < 95:
		w.kubelet()
	case n < 96:
		s.say("controller restarts")
		w.start()
	case n < 97:
		w.cluster.CollectGarbage()
	case n == 97:
		if s.commands++; w.job() != nil {
			actions := []batch.Action{"RestartJob", "RestartTask", "AbortJob", "ResumeJob", "ResumeJob", "TerminateJob", "CompleteJob", "Nonsense"}
			a := actions[r.IntN(len(actions))]
			s.say("command %s", a)
			w.command(fmt.Sprintf("c%d", s.commands), a)
		}
	case n == 98:
		s.scale()
	default:
		for _, g := range simulate.All[*scheduling.PodGroup](w.cluster) {
			if g.Status.Phase != scheduling.GroupPending {
				phase := []scheduling.PodGroupPhase{scheduling.GroupUnknown, scheduling.GroupRunning}[r.IntN(2)]
				simulate.Modify(w.cluster, g, func(g *scheduling.PodGroup) { g.Status.Phase = phase })
			}
		}
	}
}

func (s *vcStorm) scale() {
	s.w.edit(func(j *batch.Job) {
		t := &j.Spec.Tasks[s.rng.IntN(len(j.Spec.Tasks))]
		if t.PartitionPolicy != nil {
			return
		}
		t.Replicas = int32(s.rng.IntN(4))
		t.MinAvailable = ptr.To(min(*t.MinAvailable, t.Replicas))
		all := int32(0)
		for i := range j.Spec.Tasks {
			all += j.Spec.Tasks[i].Replicas
		}
		j.Spec.MinAvailable = min(j.Spec.MinAvailable, all)
	})
}

// rest lets everything that is under way come to its end: watches, the scheduler, nodes, timers. Pods run, and stay so.
func (s *vcStorm) rest() {
	w := s.w
	for range 60 {
		w.cluster.CollectGarbage()
		w.admit()
		w.startAll()
		w.kubelet()
		w.pass(5 * time.Second)
	}
}

// checkRest checks what must hold of a world at rest.
func (s *vcStorm) checkRest() {
	w := s.w
	for _, c := range simulate.All[*bus.Command](w.cluster) {
		s.t.Errorf("Command %s (%s) is left", c.Name, c.Action)
	}
	j := w.job()
	if j == nil {
		if pods := w.cluster.Pods(); len(pods) > 0 {
			s.t.Errorf("the Job is gone and %d pods are left", len(pods))
		}
		return
	}
	var got, want batch.JobStatus
	st := &j.Status
	got.Pending, got.Running, got.Succeeded, got.Failed, got.Terminating = st.Pending, st.Running, st.Succeeded, st.Failed, st.Terminating
	wanted := int32(0)
	for i := range j.Spec.Tasks {
		wanted += j.Spec.Tasks[i].Replicas
	}
	for _, p := range w.cluster.Pods() {
		switch {
		case p.DeletionTimestamp != nil:
			want.Terminating++
		case p.Status.Phase == corev1.PodPending:
			want.Pending++
		case p.Status.Phase == corev1.PodRunning:
			want.Running++
		case p.Status.Phase == corev1.PodSucceeded:
			want.Succeeded++
		case p.Status.Phase == corev1.PodFailed:
			want.Failed++
		}
		if _, marked := p.Annotations[batch.OutOfSyncKey]; marked {
			s.t.Errorf("pod %s is marked and was not deleted", p.Name)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("the status counts %s, the pods are %v", vcStatusLine(j), w.podNames())
	}
	switch phase := st.State.Phase; phase {
	case batch.Pending, batch.Running:
		s.checkGoingOn(j, wanted)
	case batch.Aborted, batch.Completed, batch.Terminated, batch.Failed:
		if got.Pending+got.Running+got.Terminating > 0 {
			s.t.Errorf("the Job is %s and pods are left: %v", phase, w.podNames())
		}
		if n := len(simulate.All[*scheduling.PodGroup](w.cluster)) + len(simulate.All[*corev1.Service](w.cluster)) + len(simulate.All[*corev1.ConfigMap](w.cluster)); n > 0 {
			s.t.Errorf("the Job is %s and %d objects are left", phase, n)
		}
	default:
		s.t.Errorf("the Job rests in the phase %s: %s", phase, st.State.Message)
	}
	s.checkSettled()
}

// checkGoingOn checks a Job that could go on for ever: all its pods are there, and no policy is left undone.
func (s *vcStorm) checkGoingOn(j *batch.Job, wanted int32) {
	pods := s.w.cluster.Pods()
	waits := slices.ContainsFunc(j.Spec.Tasks, func(t batch.TaskSpec) bool { return t.DependsOn != nil })
	if int32(len(pods)) != wanted && !waits {
		s.t.Errorf("the Job is %s with %d pods of %d", j.Status.State.Phase, len(pods), wanted)
	}
	for _, p := range pods {
		version := p.Annotations[batch.VersionKey]
		if p.Status.Phase != corev1.PodFailed || version != fmt.Sprint(j.Status.Version) {
			continue
		}
		for i := range j.Spec.Policies {
			policy := &j.Spec.Policies[i]
			if policy.Event == batch.PodFailedEvent && slices.Contains([]batch.Action{"RestartJob", "RestartTask", "RestartPod", "AbortJob", "TerminateJob", "CompleteJob"}, policy.Action) && !s.taskSpeaks(j, p) {
				s.t.Errorf("pod %s has failed, %s was not carried out", p.Name, policy.Action)
			}
		}
	}
}

// taskSpeaks reports whether the task of p has a policy of its own about failures.
func (s *vcStorm) taskSpeaks(j *batch.Job, p *corev1.Pod) bool {
	for i := range j.Spec.Tasks {
		if t := &j.Spec.Tasks[i]; t.Name == p.Labels[batch.TaskKey] {
			return slices.ContainsFunc(t.Policies, func(p batch.LifecyclePolicy) bool { return p.Event == batch.PodFailedEvent })
		}
	}
	return false
}

// checkSettled checks that looking again at a world at rest writes nothing.
func (s *vcStorm) checkSettled() {
	w := s.w
	count := func() (n int) {
		for _, each := range w.cluster.Requests() {
			n += each
		}
		return n
	}
	before := count()
	w.c.queue.Add("default/j")
	w.tell(math.MaxInt)
	w.settle()
	if after := count(); after != before {
		s.t.Errorf("looking at a Job at rest makes %d requests", after-before)
	}
}
