// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/job"
	"github.com/drover-dev/drover/internal/simulate"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run only this seed of the property tests")
	seedsFlag = flag.Uint64("seeds", 400, "how many seeds the property tests run")
	stepsFlag = flag.Int("steps", 600, "how many steps each seed takes")
)

// TestJobsKeepTheirPromisesWhateverHappens lets users, nodes, slow watches, failing requests and crashes do their worst to
// random Jobs, and then lets the world come to rest. It fails with the seed, which -seed runs again.
func TestJobsKeepTheirPromisesWhateverHappens(t *testing.T) {
	seeds := *seedsFlag
	first := uint64(1)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	steps, syncs, crashes := 0, 0, 0
	for seed := first; seed < first+seeds; seed++ {
		s := newStorm(t, seed)
		s.run(*stepsFlag)
		steps += *stepsFlag
		syncs += s.w.syncs
		crashes += s.w.crashes
		if t.Failed() {
			t.Fatalf("seed %d: run it again with -run %s -seed %d", seed, t.Name(), seed)
		}
	}
	t.Logf("%d seeds, %d steps, %d syncs, %d crashes in the middle of a sync", seeds, steps, syncs, crashes)
}

// storm is one random history.
type storm struct {
	t    *testing.T
	w    *world
	rng  *rand.Rand
	seed uint64

	faults float64 // probability that a request meets a fault
}

func newStorm(t *testing.T, seed uint64) *storm {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 42))
	s := &storm{t: t, rng: rng, seed: seed, w: newWorld(t, JobConfig{})}
	s.w.cfg.Options = job.DefaultOptions()
	if rng.IntN(2) == 0 { // tight bounds, so that a few pods reach them
		s.w.cfg.Options.MaxPerSync, s.w.cfg.Options.MaxUncounted = 3, 2
	}
	s.w.start()
	s.faults = []float64{0, 0.02, 0.2}[rng.IntN(3)]
	s.w.cluster.Fault = s.fault
	s.w.cluster.Submit(s.randomJob("j"))
	return s
}

func (s *storm) fault(request string) simulate.Fault {
	f := simulate.None
	if s.rng.Float64() < s.faults {
		f = []simulate.Fault{simulate.Refuse, simulate.Lose, simulate.Unreachable, simulate.CrashBefore, simulate.CrashAfter}[s.rng.IntN(5)]
	}
	s.tell("  %s fault=%d", request, f)
	return f
}

// tell prints a line of the history where one seed is run again.
func (s *storm) tell(format string, args ...any) {
	if *seedFlag != 0 {
		s.t.Logf(format, args...)
	}
}

func (s *storm) maybe(v int32) *int32 {
	if s.rng.IntN(2) == 0 {
		return nil
	}
	return ptr.To(v)
}

func (s *storm) randomJob(name string) *batchv1.Job {
	r := s.rng
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: batchv1.JobSpec{
			Parallelism:  ptr.To(int32(r.IntN(5))),
			Completions:  s.maybe(int32(r.IntN(8))),
			BackoffLimit: s.maybe(int32(r.IntN(5))),
			Suspend:      ptr.To(r.IntN(5) == 0),
			Template:     corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}},
		},
	}
	if r.IntN(4) == 0 {
		j.Spec.ActiveDeadlineSeconds = ptr.To(int64(r.IntN(300)))
	}
	if r.IntN(4) == 0 {
		j.Spec.TTLSecondsAfterFinished = ptr.To(int32(r.IntN(30)))
	}
	if r.IntN(4) == 0 {
		j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	}
	if r.IntN(2) == 0 {
		j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		j.Spec.Completions = ptr.To(int32(r.IntN(8)))
		if r.IntN(3) == 0 {
			j.Spec.BackoffLimitPerIndex = ptr.To(int32(r.IntN(3)))
			j.Spec.BackoffLimit = ptr.To[int32](math.MaxInt32)
			if r.IntN(2) == 0 {
				j.Spec.MaxFailedIndexes = ptr.To(int32(r.IntN(3)))
			}
		}
		if r.IntN(4) == 0 {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: ptr.To(int32(1 + r.IntN(3)))}}}
		}
	}
	if r.IntN(4) == 0 {
		j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
		rules := []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionIgnore, OnExitCodes: onExit(2)},
			{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: onExit(3)},
			{Action: batchv1.PodFailurePolicyActionCount, OnExitCodes: onExit(4)},
		}
		if j.Spec.BackoffLimitPerIndex != nil {
			rules = append(rules, batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionFailIndex, OnExitCodes: onExit(5)})
		}
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules}
	} else if r.IntN(4) == 0 {
		j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	return j
}

func onExit(code int32) *batchv1.PodFailurePolicyOnExitCodesRequirement {
	return &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code}}
}

func (s *storm) run(steps int) {
	for range steps {
		version := s.w.cluster.Version()
		s.step()
		for _, ch := range s.w.cluster.Changes(version) {
			switch {
			case ch.Job != nil:
				s.tell("job %s %s deleted=%v suspend=%v p=%d", ch.Job.Name, statusLine(ch.Job), ch.Deleted, *ch.Job.Spec.Suspend, *ch.Job.Spec.Parallelism)
			default:
				s.tell("pod %s %s index=%s deleting=%v finalizers=%v gone=%v", ch.Pod.Name, ch.Pod.Status.Phase, ch.Pod.Annotations[batchv1.JobCompletionIndexAnnotation], ch.Pod.DeletionTimestamp != nil, ch.Pod.Finalizers, ch.Deleted)
			}
		}
		if len(s.w.cluster.Violations()) > 0 {
			break
		}
	}
	s.w.checkInvariants()
	if s.t.Failed() {
		return
	}
	s.calm()
	s.w.checkInvariants()
}

// step does one random thing.
func (s *storm) step() {
	w, c, r := s.w, s.w.cluster, s.rng
	switch r.IntN(20) {
	case 0, 1, 2:
		w.tellPods(r.IntN(4))
	case 3, 4, 5:
		w.tellJobs(r.IntN(3))
	case 6, 7, 8, 9:
		w.work(1 + r.IntN(3))
	case 10:
		w.setTime(w.clock.Now().Add(time.Duration(r.IntN(3000)) * time.Millisecond))
	case 11:
		if next, ok := w.nextTimer(); ok {
			w.setTime(next)
		}
	case 12, 13, 14:
		if p := s.randomPod(); p != nil {
			s.movePod(p)
		}
	case 15:
		if p := s.randomPod(); p != nil && r.IntN(3) == 0 {
			s.meddleWithPod(p)
		}
	case 16:
		if r.IntN(6) == 0 {
			s.editJob()
		}
	case 17:
		if r.IntN(25) == 0 {
			w.start() // a restart between two syncs
		}
	case 18:
		if r.IntN(20) == 0 {
			s.removeJob()
		}
	case 19:
		c.CollectGarbage()
	}
}

func (s *storm) randomPod() *corev1.Pod {
	pods := s.w.cluster.Pods()
	if len(pods) == 0 {
		return nil
	}
	return pods[s.rng.IntN(len(pods))]
}

// movePod lets a node bring a pod one step further.
func (s *storm) movePod(p *corev1.Pod) {
	c, r := s.w.cluster, s.rng
	switch r.IntN(6) {
	case 0:
		c.Bind(p)
	case 1:
		c.Start(p, r.IntN(2) == 0)
	case 2:
		if p.Status.Phase == corev1.PodRunning && r.IntN(2) == 0 {
			c.Restart(p)
		}
	default:
		code := int32(0)
		if r.IntN(3) == 0 {
			code = int32(1 + r.IntN(5))
		}
		c.Finish(p, code)
	}
}

// meddleWithPod does to a pod what a user or a drain may.
func (s *storm) meddleWithPod(p *corev1.Pod) {
	c, r := s.w.cluster, s.rng
	switch r.IntN(4) {
	case 0, 1:
		c.EvictPod(p, int64(r.IntN(40)))
	case 2:
		c.EditPod(p, func(p *corev1.Pod) { p.OwnerReferences = nil })
	case 3:
		if p.Labels[batchv1.ControllerUidLabel] != "" && r.IntN(2) == 0 {
			c.EditPod(p, func(p *corev1.Pod) { p.Labels = nil })
		}
	}
}

func (s *storm) editJob() {
	c, r := s.w.cluster, s.rng
	c.Edit("default", "j", func(j *batchv1.Job) {
		switch r.IntN(5) {
		case 0, 1:
			j.Spec.Suspend = ptr.To(!*j.Spec.Suspend)
		case 2:
			j.Spec.Parallelism = ptr.To(int32(r.IntN(5)))
			if job.IsIndexed(j) && r.IntN(2) == 0 {
				j.Spec.Completions = j.Spec.Parallelism
			}
		case 3:
			j.Spec.BackoffLimit = ptr.To(int32(r.IntN(6)))
		case 4:
			j.Spec.ActiveDeadlineSeconds = ptr.To(int64(r.IntN(600)))
		}
	})
}

func (s *storm) removeJob() {
	c := s.w.cluster
	if s.rng.IntN(2) == 0 {
		c.Remove("default", "j")
	} else {
		c.RemoveForeground("default", "j")
	}
	if s.rng.IntN(2) == 0 && c.FindJob("default", "j") == nil {
		c.Submit(s.randomJob("j")) // the same name again, at once
	}
}

// calm ends all trouble, lets every pod end well, and checks that everything comes to its end.
func (s *storm) calm() {
	w, c := s.w, s.w.cluster
	s.faults = 0
	for range 400 {
		w.settle()
		for _, p := range c.Pods() {
			c.Finish(p, 0)
		}
		c.CollectGarbage()
		w.pass(10 * time.Second)
		if s.atRest() {
			break
		}
	}
	j := c.FindJob("default", "j")
	for _, p := range c.Pods() {
		if j == nil || job.Finished(j) != nil {
			if metav1.GetControllerOf(p) != nil && slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
				s.t.Errorf("pod %s keeps the tracking finalizer although its Job is over", p.Name)
			}
		}
	}
	if j == nil || job.Finished(j) != nil {
		return
	}
	switch {
	case *j.Spec.Suspend:
		if j.Status.Active != 0 || !hasTrue(j, batchv1.JobSuspended) {
			s.t.Errorf("the Job is suspended and says %s", statusLine(j))
		}
	case *j.Spec.Parallelism == 0:
	default:
		s.t.Errorf("every pod has ended well, and the Job goes on: %s", statusLine(j))
	}
	before := c.Requests()
	n := 0
	for _, v := range before {
		n += v
	}
	w.c.queue.Add("default/j")
	w.settle()
	for _, v := range c.Requests() {
		n -= v
	}
	if n != 0 {
		s.t.Errorf("looking again at a Job at rest made %d requests", -n)
	}
}

// atRest reports whether nothing can happen any more.
func (s *storm) atRest() bool {
	j := s.w.cluster.FindJob("default", "j")
	switch {
	case j == nil || job.Finished(j) != nil && j.DeletionTimestamp == nil:
	case j.DeletionTimestamp != nil:
		return false // its pods must go, and then it
	case !*j.Spec.Suspend && *j.Spec.Parallelism > 0:
		return false
	}
	return len(s.w.activePods()) == 0
}

func hasTrue(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}
