// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
)

const (
	never     = corev1.RestartPolicyNever
	onFailure = corev1.RestartPolicyOnFailure
	always    = corev1.RestartPolicyAlways
)

func TestDecide(t *testing.T) {
	probe := &corev1.Probe{}
	probed := func(c *corev1.Container) { c.StartupProbe, c.LivenessProbe = probe, probe }
	crash := func(delay string, name string, retry time.Time) map[string]Waiting {
		return map[string]Waiting{name: {
			Reason:  "CrashLoopBackOff",
			Message: "back-off " + delay + " restarting failed container=" + name + " pod=p_ns(u)",
			Retry:   retry,
		}}
	}
	restartAll := onExit(corev1.ContainerRestartRuleActionRestartAllContainers, 42)

	cases := map[string]struct {
		pod   *corev1.Pod
		state map[string]Container
		stop  *Stop
		want  Plan
	}{
		"main containers start in their order": {
			pod:  podOf(never, "main", "main2"),
			want: Plan{Start: []string{"main", "main2"}},
		},
		"a running pod is left alone": {
			pod:   podOf(never, "main"),
			state: known("main", running()),
		},
		"a pod whose containers have all ended is finished": {
			pod:   podOf(never, "main", "main2"),
			state: known("main", exited(0), "main2", exited(1)),
			want:  Plan{Finish: true},
		},
		"with OnFailure a container that succeeded stays ended while another is restarted": {
			pod:   podOf(onFailure, "main", "main2"),
			state: known("main", exited(0), "main2", exited(1)),
			want:  Plan{Start: []string{"main2"}},
		},
		"with Always a container that succeeded is restarted": {
			pod:   podOf(always, "main"),
			state: known("main", exited(0)),
			want:  Plan{Start: []string{"main"}},
		},
		"the second restart waits for ten seconds after the end": {
			pod:   podOf(onFailure, "main"),
			state: known("main", exited(1, attempt(1, 10*time.Second))),
			want: Plan{
				Waiting: crash("10s", "main", now.Add(9*time.Second)),
				At:      now.Add(9 * time.Second),
			},
		},
		"a long back-off reads like kubelet's": {
			pod:   podOf(always, "main"),
			state: known("main", exited(1, attempt(5, 160*time.Second))),
			want: Plan{
				Waiting: crash("2m40s", "main", now.Add(159*time.Second)),
				At:      now.Add(159 * time.Second),
			},
		},
		"a container that ran for more than ten minutes is restarted at once": {
			pod: podOf(always, "main"),
			state: known("main", exited(1, attempt(5, 160*time.Second), func(c *Container) {
				c.Attempts[0].StartedAt = now.Add(-11 * time.Minute)
			})),
			want: Plan{Start: []string{"main"}},
		},
		"init containers run one after another": {
			pod:   podOf(never, "init1", "init2", "main"),
			state: known("init1", running()),
		},
		"the next init container starts when the one before has succeeded": {
			pod:   podOf(never, "init1", "init2", "main"),
			state: known("init1", exited(0)),
			want:  Plan{Start: []string{"init2"}},
		},
		"main containers start when the last init container has succeeded": {
			pod:   podOf(never, "init1", "init2", "main"),
			state: known("init1", exited(0), "init2", exited(0)),
			want:  Plan{Start: []string{"main"}},
		},
		"an init container that fails ends a pod that never restarts": {
			pod:   podOf(never, "init1", "main"),
			state: known("init1", exited(3)),
			want:  Plan{Finish: true},
		},
		"an init container that fails is tried again otherwise": {
			pod:   podOf(onFailure, "init1", "main"),
			state: known("init1", exited(3)),
			want:  Plan{Start: []string{"init1"}},
		},
		"a lost init container counts as failed": {
			pod:   podOf(never, "init1", "main"),
			state: known("init1", lost()),
			want:  Plan{Finish: true},
		},
		"a lost main container is not started again when the pod never restarts": {
			pod:   podOf(never, "main"),
			state: known("main", lost()),
			want:  Plan{Finish: true},
		},
		"a lost main container is restarted with OnFailure": {
			pod:   podOf(onFailure, "main"),
			state: known("main", lost()),
			want:  Plan{Start: []string{"main"}},
		},
		"a sidecar that runs lets the next container start": {
			pod:   podOf(never, "side", "main"),
			state: known("side", running()),
			want:  Plan{Start: []string{"main"}},
		},
		"a sidecar with a startup probe holds back the next container until the probe succeeds": {
			pod:   with(podOf(never, "side", "main"), "side", probed),
			state: known("side", running()),
		},
		"a sidecar that ended during initialization is restarted before the next one starts": {
			pod:   podOf(never, "side1", "side2", "main"),
			state: known("side1", exited(1)),
			want:  Plan{Start: []string{"side1"}},
		},
		"a sidecar is restarted even when the pod never restarts": {
			pod:   podOf(never, "side", "main"),
			state: known("side", exited(0), "main", running()),
			want:  Plan{Start: []string{"side"}},
		},
		"sidecars do not keep a pod alive": {
			pod:   podOf(never, "side", "main"),
			state: known("side", running(), "main", exited(0)),
			want:  Plan{Finish: true},
		},
		"an ended sidecar is not restarted when the main containers are done": {
			pod:   podOf(never, "side", "main"),
			state: known("side", exited(1), "main", exited(0)),
			want:  Plan{Finish: true},
		},
		"init containers that nobody remembers do not run again beside a main container": {
			pod:   podOf(never, "init1", "main"),
			state: known("main", running()),
		},
		"a container that fails its liveness probe is ended to be restarted": {
			pod:   with(podOf(always, "main"), "main", probed),
			state: known("main", running(func(c *Container) { c.Startup, c.Liveness = Success, Failure })),
			want:  Plan{Stop: []Kill{{Name: "main", Message: "Container main failed liveness probe, will be restarted", Probe: probe}}},
		},
		"a container that fails its startup probe ends for good when the pod never restarts": {
			pod:   with(podOf(never, "main"), "main", probed),
			state: known("main", running(func(c *Container) { c.Startup = Failure })),
			want:  Plan{Stop: []Kill{{Name: "main", Message: "Container main failed startup probe", Probe: probe}}},
		},
		"a container that is being ended already is not ended twice": {
			pod:   with(podOf(always, "main"), "main", probed),
			state: known("main", running(func(c *Container) { c.Startup, c.Stopping = Failure, true })),
		},
		"a container rule restarts on its exit code in a pod that never restarts": {
			pod:   with(podOf(never, "main"), "main", ownPolicy(corev1.ContainerRestartPolicyNever, onExit(corev1.ContainerRestartRuleActionRestart, 42))),
			state: known("main", exited(42)),
			want:  Plan{Start: []string{"main"}},
		},
		"a container rule says nothing about other exit codes": {
			pod:   with(podOf(always, "main"), "main", ownPolicy(corev1.ContainerRestartPolicyNever, onExit(corev1.ContainerRestartRuleActionRestart, 42))),
			state: known("main", exited(1)),
			want:  Plan{Finish: true},
		},
		"a container's own policy goes before the pod's": {
			pod:   with(podOf(never, "main"), "main", ownPolicy(corev1.ContainerRestartPolicyOnFailure)),
			state: known("main", exited(1)),
			want:  Plan{Start: []string{"main"}},
		},
		"restarting all containers first ends those that run": {
			pod:   with(podOf(never, "side", "main", "main2"), "main", ownPolicy(corev1.ContainerRestartPolicyNever, restartAll)),
			state: known("side", running(), "main", exited(42), "main2", running()),
			want: Plan{Stop: []Kill{
				{Name: "main2", Message: "Stopping container main2"},
				{Name: "side", Message: "Stopping container side"},
			}},
		},
		"restarting all containers begins anew when none runs": {
			pod:   with(podOf(never, "init1", "main"), "main", ownPolicy(corev1.ContainerRestartPolicyNever, restartAll)),
			state: known("init1", exited(0), "main", exited(42)),
			want:  Plan{Start: []string{"init1"}, Epoch: 1},
		},
		"a container whose image is unknown waits for its retry": {
			pod:   podOf(never, "main"),
			state: known("main", Container{Waiting: &Waiting{Reason: "ErrImagePull", Retry: now.Add(time.Second)}}),
			want:  Plan{At: now.Add(time.Second)},
		},
		"a pod that is to stop starts nothing": {
			pod:   podOf(always, "main"),
			state: known("main", exited(1)),
			stop:  &Stop{},
			want:  Plan{Finish: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := Facts{Pod: tc.pod, Containers: tc.state, Stop: tc.stop, Now: now, BackOff: kubelet, Prepared: true}
			if diff := cmp.Diff(tc.want, Decide(f), cmpopts.IgnoreFields(Plan{}, "Because")); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackOffNext(t *testing.T) {
	previous := &Attempt{State: Exited, StartedAt: now, FinishedAt: now.Add(time.Second)}
	var delays []time.Duration
	for range 8 {
		previous.BackOff = kubelet.Next(previous)
		delays = append(delays, previous.BackOff)
	}
	want := []time.Duration{10, 20, 40, 80, 160, 300, 300, 300}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("delays of attempts that end at once (-want +got):\n%s", diff)
	}
	if d := kubelet.Next(nil); d != 0 {
		t.Errorf("the first attempt carries a back-off of %s", d)
	}
	long := &Attempt{State: Exited, BackOff: 300 * time.Second, StartedAt: now, FinishedAt: now.Add(time.Hour)}
	if d := kubelet.Next(long); d != 10*time.Second {
		t.Errorf("after an hour of running the back-off begins with %s, want 10s", d)
	}
}

func TestTurns(t *testing.T) {
	got := Turns(&podOf(never, "init1", "side1", "side2", "main", "main2").Spec)
	want := map[string][]string{
		"side2": {"main", "main2"},
		"side1": {"main", "main2", "side2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}
