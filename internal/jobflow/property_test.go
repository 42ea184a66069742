// SPDX-License-Identifier: Apache-2.0

package jobflow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// world is a flow among random events: its Jobs live, end, are deleted, and writes of the plan are lost now and then.
type world struct {
	t      *testing.T
	rand   *rand.Rand
	now    time.Time
	flow   *flow.JobFlow
	all    map[string]*flow.JobTemplate
	jobs   map[string]*batch.Job
	gone   map[string]*batch.Job // until a status is stored
	made   map[string]int        // how often each Job was made
	lost   map[string]int        // how often each was deleted before it had completed
	done   map[string]bool       // what has completed
	up     map[string]bool       // Jobs whose pods answer
	serial int
	log    []string
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 6)), now: t0, all: map[string]*flow.JobTemplate{}, jobs: map[string]*batch.Job{},
		gone: map[string]*batch.Job{}, made: map[string]int{}, lost: map[string]int{}, done: map[string]bool{}, up: map[string]bool{},
	}
	n := 1 + w.rand.IntN(7)
	var entries []flow.Flow
	for i := range n {
		e := flow.Flow{Name: fmt.Sprintf("e%d", i)}
		for k := range i {
			if w.rand.IntN(3) == 0 {
				if e.DependsOn == nil {
					e.DependsOn = &flow.DependsOn{}
				}
				e.DependsOn.Targets = append(e.DependsOn.Targets, fmt.Sprintf("e%d", k))
			}
		}
		if e.DependsOn != nil && w.rand.IntN(3) == 0 {
			e.DependsOn.Probe = &flow.Probe{TCPSocketList: []flow.TCPSocket{{TaskName: "t", Port: 80}}}
		}
		entries = append(entries, e)
		if w.rand.IntN(4) > 0 {
			w.all[e.Name] = newTemplate(e.Name)
		}
	}
	w.rand.Shuffle(n, func(i, k int) { entries[i], entries[k] = entries[k], entries[i] })
	w.flow = newFlow(entries...)
	if w.rand.IntN(2) == 0 {
		w.flow.Spec.JobRetainPolicy = flow.Delete
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *world) observe(answers map[Question]bool) Observed {
	o := Observed{Flow: w.flow, Templates: w.all, Jobs: w.jobs, Gone: w.gone, Answers: answers, Now: w.now, Pods: map[string][]*corev1.Pod{}}
	for _, name := range AskedJobs(w.flow) {
		if j := w.jobs[name]; j != nil && j.Status.State.Phase == batch.Running {
			o.Pods[name] = []*corev1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Name: name + "-t-0", UID: j.UID, Labels: map[string]string{batch.TaskKey: "t"}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: name},
			}}
		}
	}
	return o
}

// decide asks what there is to ask, and returns the plan with the answers.
func (w *world) decide() (Plan, map[Question]bool) {
	answers := map[Question]bool{}
	for range 10 {
		p := Decide(w.observe(answers))
		if len(p.Ask) == 0 {
			return p, answers
		}
		for _, q := range p.Ask {
			answers[q] = w.up[q.Address]
		}
	}
	w.fail("the plan asks again and again")
	return Plan{}, nil
}

// holds says independently of the code under test whether the Job of an entry may exist.
func (w *world) holds(name string) bool {
	i := slices.IndexFunc(w.flow.Spec.Flows, func(f flow.Flow) bool { return f.Name == name })
	on := w.flow.Spec.Flows[i].DependsOn
	if on == nil {
		return true
	}
	for _, target := range on.Targets {
		job := JobName(w.flow.Name, target)
		running := w.jobs[job] != nil && w.jobs[job].Status.State.Phase == batch.Running
		if !w.done[job] && (on.Probe == nil || !running || !w.up[job]) {
			return false
		}
	}
	return true
}

// step carries a plan out, or a part of it where writes are lost.
func (w *world) step(p Plan, lossy bool) {
	lose := func() bool { return lossy && w.rand.IntN(4) == 0 }
	for _, j := range p.Create {
		entry := j.Name[len(w.flow.Name)+1:]
		if !w.holds(entry) {
			w.fail("%s is made before what it depends on holds", j.Name)
		}
		if phase := w.flow.Status.State.Phase; phase == flow.Failed || phase == flow.Succeed {
			w.fail("%s is made though the flow is %s", j.Name, phase)
		}
		if w.jobs[j.Name] != nil {
			w.fail("%s is made a second time while it is there", j.Name)
		}
		if lose() {
			continue
		}
		if w.made[j.Name]++; w.made[j.Name] > 1+w.lost[j.Name] {
			w.fail("%s is made a second time though it was not lost", j.Name)
		}
		w.serial++
		j = j.DeepCopy()
		j.UID, j.CreationTimestamp = types.UID(fmt.Sprint(w.serial)), metav1.NewTime(w.now)
		w.jobs[j.Name] = j
		w.log = append(w.log, "made "+j.Name)
	}
	if p.Status != nil && !lose() {
		before, next := w.flow.Status.State.Phase, p.Status.State.Phase
		if (before == flow.Succeed || before == flow.Failed) && next != before {
			w.fail("a flow that is %s becomes %s", before, next)
		}
		if next == flow.Succeed {
			for _, f := range w.flow.Spec.Flows {
				if !w.done[JobName(w.flow.Name, f.Name)] {
					w.fail("the flow has succeeded without %s", f.Name)
				}
			}
		}
		w.flow = w.flow.DeepCopy()
		w.flow.Status = *p.Status.DeepCopy()
		w.gone = map[string]*batch.Job{}
		w.log = append(w.log, "flow is "+string(next))
	}
	for _, k := range p.Delete {
		if w.flow.Spec.JobRetainPolicy != flow.Delete || w.flow.Status.State.Phase != flow.Succeed {
			w.fail("%s is deleted", k.Name)
		}
		if j := w.jobs[k.Name]; j != nil && j.UID == k.UID && !lose() {
			w.remove(k.Name)
		}
	}
}

func (w *world) remove(name string) {
	j := w.jobs[name]
	delete(w.jobs, name)
	w.gone[name] = j
	if !isOver(j.Status.State.Phase) {
		w.lost[name]++
	}
	w.log = append(w.log, fmt.Sprintf("%s (%s) is gone", name, j.Status.State.Phase))
}

// happen is one random event.
func (w *world) happen(failures bool) {
	w.now = w.now.Add(time.Duration(w.rand.IntN(30)) * time.Second)
	var names []string
	for name := range w.jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	switch n := w.rand.IntN(12); {
	case n == 0:
		for _, f := range w.flow.Spec.Flows {
			if w.all[f.Name] == nil {
				w.all[f.Name] = newTemplate(f.Name)
				break
			}
		}
	case len(names) == 0:
	case n == 1:
		w.remove(names[w.rand.IntN(len(names))])
	case n == 2:
		w.up[names[w.rand.IntN(len(names))]] = w.rand.IntN(2) == 0
	default:
		name := names[w.rand.IntN(len(names))]
		j := w.jobs[name].DeepCopy()
		next := map[batch.JobPhase][]batch.JobPhase{
			"": {batch.Pending}, batch.Pending: {batch.Running, batch.Aborting}, batch.Running: {batch.Completed, batch.Completing, batch.Restarting},
			batch.Restarting: {batch.Pending}, batch.Aborting: {batch.Aborted}, batch.Aborted: {batch.Restarting}, batch.Completing: {batch.Completed},
		}[j.Status.State.Phase]
		if failures && w.rand.IntN(8) == 0 {
			next = map[batch.JobPhase][]batch.JobPhase{batch.Running: {batch.Failed, batch.Terminating}, batch.Terminating: {batch.Terminated}}[j.Status.State.Phase]
		}
		if len(next) == 0 {
			return
		}
		j.Status.State = batch.JobState{Phase: next[w.rand.IntN(len(next))], LastTransitionTime: metav1.NewTime(w.now)}
		w.jobs[name] = j
		if j.Status.State.Phase == batch.Completed {
			w.done[name] = true
		}
		w.log = append(w.log, fmt.Sprintf("%s is %s", name, j.Status.State.Phase))
	}
}

// settle carries plans out until there is nothing left to do.
func (w *world) settle() {
	for range 6 { // at most: Pending, Running, Succeed, deleted
		p, _ := w.decide()
		if len(p.Create) == 0 && len(p.Delete) == 0 && p.Status == nil {
			return
		}
		w.step(p, false)
	}
	w.fail("the plan does not settle")
}

// FuzzFlow checks, for any seed, that no Job is made before what it depends on holds, none twice while it is there or after it has
// ended, that a flow which is over stays so, that plans settle, and that a flow whose Jobs all complete succeeds.
func FuzzFlow(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		failures := w.rand.IntN(2) == 0
		for range 60 {
			p, _ := w.decide()
			w.step(p, true)
			w.happen(failures)
			if w.rand.IntN(4) == 0 {
				w.settle()
			}
		}
		if failures {
			return
		}
		for _, e := range w.flow.Spec.Flows { // everything turns out well from here on
			w.all[e.Name] = newTemplate(e.Name)
		}
		for range len(w.flow.Spec.Flows) + 1 {
			w.settle()
			for name, j := range w.jobs {
				j = j.DeepCopy()
				j.Status.State = batch.JobState{Phase: batch.Completed, LastTransitionTime: metav1.NewTime(w.now)}
				w.jobs[name], w.done[name] = j, true
			}
		}
		w.settle()
		if got := w.flow.Status.State.Phase; got != flow.Succeed {
			w.fail("the flow is %s in the end", got)
		}
		if n := len(w.flow.Status.CompletedJobs); n != len(w.flow.Spec.Flows) {
			w.fail("%d of %d jobs are listed as completed", n, len(w.flow.Spec.Flows))
		}
		if w.flow.Spec.JobRetainPolicy == flow.Delete && len(w.jobs) > 0 {
			w.fail("%d jobs are kept", len(w.jobs))
		}
	})
}
