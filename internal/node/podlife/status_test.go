// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// brief renders a status the way the cases below are written: phase, conditions, containers.
func brief(s corev1.PodStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", s.Phase, strings.TrimSpace(s.Reason+" "+s.Message))
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "%s=%s %s\n", c.Type, c.Status, strings.TrimSpace(c.Reason+" "+c.Message))
	}
	for _, c := range append(append([]corev1.ContainerStatus(nil), s.InitContainerStatuses...), s.ContainerStatuses...) {
		fmt.Fprintf(&b, "%s %s ready=%t started=%t restarts=%d", c.Name, stateText(c.State), c.Ready, *c.Started, c.RestartCount)
		if last := stateText(c.LastTerminationState); last != "" {
			fmt.Fprintf(&b, " last=%s", last)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func stateText(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return "waiting:" + s.Waiting.Reason
	case s.Terminated != nil:
		return fmt.Sprintf("%s:%d", s.Terminated.Reason, s.Terminated.ExitCode)
	}
	return ""
}

func TestStatus(t *testing.T) {
	readiness := func(c *corev1.Container) { c.ReadinessProbe = &corev1.Probe{} }
	cases := map[string]struct {
		facts Facts
		want  string
	}{
		"a pod that was just seen": {
			facts: Facts{Pod: podOf(never, "main")},
			want: `Pending 
PodReadyToStartContainers=False PodSandboxNotReady no pod sandbox exists
Initialized=True 
Ready=False ContainersNotReady containers with unready status: [main]
ContainersReady=False ContainersNotReady containers with unready status: [main]
PodScheduled=True 
main waiting:ContainerCreating ready=false started=false restarts=0
`,
		},
		"a pod in its first init container": {
			facts: Facts{Pod: podOf(never, "init1", "main"), Prepared: true, Containers: known("init1", running())},
			want: `Pending 
PodReadyToStartContainers=True 
Initialized=False ContainersNotInitialized containers with incomplete status: [init1]
Ready=False ContainersNotReady containers with unready status: [main]
ContainersReady=False ContainersNotReady containers with unready status: [main]
PodScheduled=True 
init1 running ready=false started=true restarts=0
main waiting:PodInitializing ready=false started=false restarts=0
`,
		},
		"a pod that runs": {
			facts: Facts{Pod: podOf(never, "init1", "main"), Prepared: true, Containers: known("init1", exited(0), "main", running())},
			want: `Running 
PodReadyToStartContainers=True 
Initialized=True 
Ready=True 
ContainersReady=True 
PodScheduled=True 
init1 Completed:0 ready=true started=false restarts=0
main running ready=true started=true restarts=0
`,
		},
		"a container whose readiness probe has not spoken": {
			facts: Facts{Pod: with(podOf(never, "main"), "main", readiness), Prepared: true, Containers: known("main", running())},
			want: `Running 
PodReadyToStartContainers=True 
Initialized=True 
Ready=False ContainersNotReady containers with unready status: [main]
ContainersReady=False ContainersNotReady containers with unready status: [main]
PodScheduled=True 
main running ready=false started=true restarts=0
`,
		},
		"a container whose postStart hook has not returned": {
			facts: Facts{Pod: podOf(never, "main"), Prepared: true, Containers: known("main", running(func(c *Container) { c.Starting = true }))},
			want: `Pending 
PodReadyToStartContainers=True 
Initialized=True 
Ready=False ContainersNotReady containers with unready status: [main]
ContainersReady=False ContainersNotReady containers with unready status: [main]
PodScheduled=True 
main waiting:ContainerCreating ready=false started=false restarts=0
`,
		},
		"a pod that succeeded": {
			facts: Facts{Pod: podOf(never, "main"), Prepared: true, Ended: true, Containers: known("main", exited(0))},
			want: `Succeeded 
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=True PodCompleted
Ready=False PodCompleted
ContainersReady=False PodCompleted
PodScheduled=True 
main Completed:0 ready=false started=false restarts=0
`,
		},
		"a pod that failed": {
			facts: Facts{Pod: podOf(never, "main", "main2"), Prepared: true, Ended: true, Containers: known("main", exited(0), "main2", exited(7))},
			want: `Failed 
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=True 
Ready=False PodFailed
ContainersReady=False PodFailed
PodScheduled=True 
main Completed:0 ready=false started=false restarts=0
main2 Error:7 ready=false started=false restarts=0
`,
		},
		"a pod with a main container that ended and a sidecar that still ends": {
			facts: Facts{Pod: podOf(never, "side", "main"), Prepared: true, Containers: known("side", running(), "main", exited(0))},
			want: `Running 
PodReadyToStartContainers=True 
Initialized=True 
Ready=False ContainersNotReady containers with unready status: [main]
ContainersReady=False ContainersNotReady containers with unready status: [main]
PodScheduled=True 
side running ready=true started=true restarts=0
main Completed:0 ready=false started=false restarts=0
`,
		},
		"a sidecar's exit code does not matter": {
			facts: Facts{Pod: podOf(never, "side", "main"), Prepared: true, Ended: true, Containers: known("side", exited(143), "main", exited(0))},
			want: `Succeeded 
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=True PodCompleted
Ready=False PodCompleted
ContainersReady=False PodCompleted
PodScheduled=True 
side Error:143 ready=false started=false restarts=0
main Completed:0 ready=false started=false restarts=0
`,
		},
		"an init container failed for good": {
			facts: Facts{Pod: podOf(never, "init1", "init2", "main"), Prepared: true, Ended: true, Containers: known("init1", exited(2))},
			want: `Failed 
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=False ContainersNotInitialized containers with incomplete status: [init1 init2]
Ready=False PodFailed
ContainersReady=False PodFailed
PodScheduled=True 
init1 Error:2 ready=false started=false restarts=0
init2 waiting:PodInitializing ready=false started=false restarts=0
main waiting:PodInitializing ready=false started=false restarts=0
`,
		},
		"a container in back-off": {
			facts: Facts{Pod: podOf(onFailure, "main"), Prepared: true, Containers: known("main", exited(1, attempt(2, 20*time.Second)))},
			want: `Running 
PodReadyToStartContainers=True 
Initialized=True 
Ready=False ContainersNotReady containers with unready status: [main]
ContainersReady=False ContainersNotReady containers with unready status: [main]
PodScheduled=True 
main waiting:CrashLoopBackOff ready=false started=false restarts=2 last=Error:1
`,
		},
		"a container that cannot be configured": {
			facts: Facts{Pod: podOf(never, "main"), Prepared: true, Containers: known("main", Container{Waiting: &Waiting{Reason: "CreateContainerConfigError", Retry: now.Add(time.Second)}})},
			want: `Pending 
PodReadyToStartContainers=True 
Initialized=True 
Ready=False ContainersNotReady containers with unready status: [main]
ContainersReady=False ContainersNotReady containers with unready status: [main]
PodScheduled=True 
main waiting:CreateContainerConfigError ready=false started=false restarts=0
`,
		},
		"a container that was lost": {
			facts: Facts{Pod: podOf(never, "main"), Prepared: true, Ended: true, Containers: known("main", lost())},
			want: `Failed 
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=True 
Ready=False PodFailed
ContainersReady=False PodFailed
PodScheduled=True 
main ContainerStatusUnknown:137 ready=false started=false restarts=0
`,
		},
		"a pod past its deadline stays Running while its container ends": {
			facts: Facts{
				Pod: podOf(never, "main"), Prepared: true, Containers: known("main", running()),
				Stop: &Stop{Reason: "DeadlineExceeded", Message: "too late"},
			},
			want: `Running 
PodReadyToStartContainers=True 
Initialized=True 
Ready=True 
ContainersReady=True 
PodScheduled=True 
main running ready=true started=true restarts=0
`,
		},
		"a pod past its deadline fails even when its container exits with 0": {
			facts: Facts{
				Pod: podOf(never, "main"), Prepared: true, Ended: true, Containers: known("main", exited(0)),
				Stop: &Stop{Reason: "DeadlineExceeded", Message: "too late"},
			},
			want: `Failed DeadlineExceeded too late
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=True 
Ready=False PodFailed
ContainersReady=False PodFailed
PodScheduled=True 
main Completed:0 ready=false started=false restarts=0
`,
		},
		"a pod that the node did not take on": {
			facts: Facts{Pod: podOf(never, "main"), Ended: true, Stop: &Stop{Reason: "OutOfcpu", Message: "too big", Rejected: true}},
			want:  "Failed OutOfcpu too big\n",
		},
		"a deleted pod that never started has failed": {
			facts: Facts{Pod: podOf(always, "main"), Ended: true, Stop: &Stop{}},
			want: `Failed 
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=True 
Ready=False PodFailed
ContainersReady=False PodFailed
PodScheduled=True 
main ContainerStatusUnknown:137 ready=false started=false restarts=0
`,
		},
		"a deleted pod whose container exits with 0 has succeeded": {
			facts: Facts{Pod: podOf(always, "main"), Prepared: true, Ended: true, Stop: &Stop{}, Containers: known("main", exited(0))},
			want: `Succeeded 
PodReadyToStartContainers=False PodSandboxNotReady pod sandbox is not ready
Initialized=True PodCompleted
Ready=False PodCompleted
ContainersReady=False PodCompleted
PodScheduled=True 
main Completed:0 ready=false started=false restarts=0
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := tc.facts
			f.Now, f.BackOff = now, kubelet
			if diff := cmp.Diff(tc.want, brief(Status(f, Decide(f)))); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusKeepsWhatOthersWrote(t *testing.T) {
	pod := podOf(never, "main")
	then := metav1.NewTime(now.Add(-time.Hour))
	pod.Status = corev1.PodStatus{
		Phase:     corev1.PodRunning,
		QOSClass:  corev1.PodQOSBurstable,
		StartTime: &then,
		Conditions: []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: then},
			{Type: "example.com/gate", Status: corev1.ConditionFalse},
		},
	}
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	f := Facts{Pod: pod, Now: now, BackOff: kubelet, Prepared: true, Containers: known("main", running()), HostIPs: []string{"127.0.0.1"}}
	s := Status(f, Decide(f))

	var types []string
	for _, c := range s.Conditions {
		types = append(types, string(c.Type))
		if c.ObservedGeneration != 1 && (c.Type == corev1.PodReady || c.Type == corev1.PodInitialized) {
			t.Errorf("condition %s has observedGeneration %d", c.Type, c.ObservedGeneration)
		}
	}
	want := []string{"DisruptionTarget", "example.com/gate", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if c := find(s.Conditions, corev1.PodScheduled); !c.LastTransitionTime.Equal(&then) {
		t.Errorf("an unchanged condition got transition time %v", c.LastTransitionTime)
	}
	ready := find(s.Conditions, corev1.PodReady)
	if ready.Reason != "ReadinessGatesNotReady" || ready.Message != `the status of pod readiness gate "example.com/gate" is not "True", but False` {
		t.Errorf("ready condition = %+v", ready)
	}
	if s.QOSClass != corev1.PodQOSBurstable || !s.StartTime.Equal(&then) || s.PodIP != "127.0.0.1" || s.ObservedGeneration != 1 {
		t.Errorf("status = %+v", s)
	}
}

func TestAFinishedPodStaysFinished(t *testing.T) {
	pod := podOf(always, "main")
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
	f := Facts{Pod: pod, Now: now, BackOff: kubelet, Containers: known("main", running())}
	plan := Decide(f)
	if !plan.Finish {
		t.Errorf("plan = %+v, want Finish", plan)
	}
	if s := Status(f, plan); s.Phase != corev1.PodFailed || s.Reason != "Evicted" {
		t.Errorf("phase %s, reason %s", s.Phase, s.Reason)
	}
}
