// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// FuzzLife lives through random pods: containers end as they like, probes say what they like, the pod is stopped at some time. Whatever
// happens, plans and statuses keep their promises.
func FuzzLife(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		l := newLife(t, seed)
		for range 80 {
			if l.turn() {
				return
			}
		}
	})
}

type life struct {
	t       *testing.T
	rand    *rand.Rand
	f       Facts
	runs    map[string]int // starts of each container
	history []string
}

func newLife(t *testing.T, seed uint64) *life {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	policies := []corev1.RestartPolicy{never, onFailure, always}
	var names []string
	for i := range r.IntN(3) {
		names = append(names, fmt.Sprintf("init%d", i))
	}
	for i := range r.IntN(3) {
		names = append(names, fmt.Sprintf("side%d", i))
	}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i := range 1 + r.IntN(2) {
		names = append(names, fmt.Sprintf("main%d", i))
	}
	pod := podOf(policies[r.IntN(3)], names...)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if r.IntN(4) == 0 {
				list[i].StartupProbe = &corev1.Probe{}
			}
			if r.IntN(4) == 0 {
				list[i].LivenessProbe = &corev1.Probe{}
			}
			if list[i].RestartPolicy == nil && r.IntN(4) == 0 {
				own := []corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure}
				list[i].RestartPolicy = &own[r.IntN(2)]
				actions := []corev1.ContainerRestartRuleAction{corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers}
				list[i].RestartPolicyRules = []corev1.ContainerRestartRule{onExit(actions[r.IntN(2)], 2)}
			}
		}
	}
	return &life{t: t, rand: r, runs: map[string]int{}, f: Facts{
		Pod: pod, Containers: map[string]Container{}, Now: now, BackOff: BackOff{Base: time.Second, Max: 4 * time.Second}, Prepared: true,
	}}
}

// turn decides, checks, carries out and lets something happen. It reports whether the pod has ended.
func (l *life) turn() bool {
	plan := Decide(l.f)
	if diff := cmp.Diff(plan, Decide(l.f)); diff != "" {
		l.fatal("deciding twice gives two plans:\n%s", diff)
	}
	if (plan.Finish || l.f.Stop != nil) && (len(plan.Start) > 0 || len(plan.Stop) > 0) {
		l.fatal("a pod that is to finish starts %v and stops %v", plan.Start, plan.Stop)
	}
	l.f.Ended = plan.Finish && !AnyRunning(l.f.Containers)
	status := Status(l.f, plan)
	l.check(status)
	l.f.Pod = l.f.Pod.DeepCopy()
	l.f.Pod.Status = status
	if l.f.Ended {
		if !IsTerminal(status.Phase) {
			l.fatal("a pod that has ended has phase %s", status.Phase)
		}
		return true
	}
	if len(plan.Start) == 0 && len(plan.Stop) == 0 && !plan.Finish && plan.At.IsZero() && !AnyRunning(l.f.Containers) {
		l.fatal("nothing runs, nothing is planned, and nothing is waited for")
	}
	l.carryOut(plan)
	l.happen(plan)
	return false
}

func (l *life) check(s corev1.PodStatus) {
	before := l.f.Pod.Status
	if IsTerminal(before.Phase) && s.Phase != before.Phase {
		l.fatal("phase went from %s to %s", before.Phase, s.Phase)
	}
	if IsTerminal(s.Phase) && AnyRunning(l.f.Containers) {
		l.fatal("phase is %s while a container runs", s.Phase)
	}
	if s.Phase == corev1.PodSucceeded {
		for _, c := range s.ContainerStatuses {
			if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
				l.fatal("a pod succeeded whose container is %+v", c.State)
			}
		}
	}
	restarts := map[string]int32{}
	for _, c := range append(append([]corev1.ContainerStatus(nil), before.InitContainerStatuses...), before.ContainerStatuses...) {
		restarts[c.Name] = c.RestartCount
	}
	for _, c := range append(append([]corev1.ContainerStatus(nil), s.InitContainerStatuses...), s.ContainerStatuses...) {
		if c.RestartCount < restarts[c.Name] {
			l.fatal("restarts of %s went from %d to %d", c.Name, restarts[c.Name], c.RestartCount)
		}
		if c.Ready && c.State.Running == nil && (c.State.Terminated == nil || c.State.Terminated.ExitCode != 0) {
			l.fatal("%s is ready and %+v", c.Name, c.State)
		}
	}
}

func (l *life) carryOut(plan Plan) {
	if len(plan.Start) > 0 {
		name := plan.Start[0]
		c := l.f.Containers[name]
		if c.Latest().running() {
			l.fatal("%s is started while it runs", name)
		}
		l.startsInOrder(name, plan.Epoch)
		var number int32
		if latest := c.Latest(); latest != nil {
			number = latest.Number + 1
		}
		a := Attempt{ID: fmt.Sprintf("%s-%d", name, number), Number: number, Epoch: plan.Epoch, State: Running, StartedAt: l.f.Now, BackOff: l.f.BackOff.Next(c.Latest())}
		l.f.Containers[name] = Container{Attempts: append([]Attempt{a}, c.Attempts[:min(1, len(c.Attempts))]...)}
		l.note("start %s", name)
	}
	for _, kill := range plan.Stop {
		l.end(kill.Name, 137)
	}
	if plan.Finish {
		for name, c := range l.f.Containers {
			if c.Latest().running() {
				l.end(name, int32(l.rand.IntN(2)*143))
				break
			}
		}
	}
}

// startsInOrder checks that a container does not overtake those before it.
func (l *life) startsInOrder(name string, epoch int32) {
	for i := range l.f.Pod.Spec.InitContainers {
		c := &l.f.Pod.Spec.InitContainers[i]
		if c.Name == name {
			return
		}
		known := l.f.Containers[c.Name]
		a := known.Latest()
		switch {
		case IsSidecar(c):
			if a == nil || a.Epoch != epoch {
				l.fatal("%s starts before sidecar %s", name, c.Name)
			}
		case a == nil || a.Epoch != epoch || !a.succeeded():
			l.fatal("%s starts before init container %s is done", name, c.Name)
		}
	}
}

func (l *life) end(name string, code int32) {
	c := l.f.Containers[name]
	a := &c.Attempts[0]
	a.State, a.ExitCode, a.FinishedAt = Exited, code, l.f.Now
	l.f.Containers[name] = c
	l.note("end %s %d", name, code)
}

// happen lets time pass and something happen to one container.
func (l *life) happen(plan Plan) {
	l.f.Now = l.f.Now.Add(time.Duration(l.rand.IntN(3)) * time.Second)
	if !plan.At.IsZero() && plan.At.After(l.f.Now) && l.rand.IntN(2) == 0 {
		l.f.Now = plan.At
	}
	if l.rand.IntN(40) == 0 && l.f.Stop == nil {
		l.f.Stop = &Stop{}
		l.note("stop")
	}
	for _, list := range [][]corev1.Container{l.f.Pod.Spec.InitContainers, l.f.Pod.Spec.Containers} {
		for i := range list {
			name := list[i].Name
			c, ok := l.f.Containers[name]
			if !ok || !c.Latest().running() {
				continue
			}
			switch l.rand.IntN(6) {
			case 0:
				l.end(name, int32(l.rand.IntN(3)))
			case 1:
				c.Startup = Success
				l.f.Containers[name] = c
			case 2:
				if l.rand.IntN(3) == 0 {
					c.Liveness = Failure
					l.f.Containers[name] = c
				}
			case 3:
				if l.rand.IntN(10) == 0 {
					c.Attempts[0].State, c.Attempts[0].FinishedAt = Lost, l.f.Now
					l.note("lose %s", name)
				}
			}
		}
	}
}

func (l *life) note(format string, args ...any) {
	l.history = append(l.history, fmt.Sprintf(format, args...))
}

func (l *life) fatal(format string, args ...any) {
	l.t.Helper()
	l.t.Fatalf("%s\npod: %s %+v\nhistory: %q", fmt.Sprintf(format, args...), l.f.Pod.Spec.RestartPolicy, l.f.Pod.Spec.InitContainers, l.history)
}
