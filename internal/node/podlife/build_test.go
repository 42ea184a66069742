// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var kubelet = BackOff{Base: 10 * time.Second, Max: 5 * time.Minute}

// podOf returns a pod with the given policy. Names that start with "init" become init containers, those with "side" sidecars.
func podOf(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", Generation: 1}}
	pod.Spec.RestartPolicy = policy
	for _, name := range names {
		c := corev1.Container{Name: name}
		switch name[:4] {
		case "init":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case "side":
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// with changes the named container of a pod and returns the pod.
func with(pod *corev1.Pod, name string, edit func(*corev1.Container)) *corev1.Pod {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				edit(&list[i])
			}
		}
	}
	return pod
}

func ownPolicy(policy corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) func(*corev1.Container) {
	return func(c *corev1.Container) {
		c.RestartPolicy = &policy
		c.RestartPolicyRules = rules
	}
}

func onExit(action corev1.ContainerRestartRuleAction, codes ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{
		Action:    action,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: codes},
	}
}

func running(edits ...func(*Container)) Container {
	return edited(Container{Attempts: []Attempt{{ID: "drover://r", State: Running, StartedAt: now.Add(-time.Minute)}}}, edits)
}

// exited is a container whose only attempt ended one second ago.
func exited(code int32, edits ...func(*Container)) Container {
	reason := ReasonCompleted
	if code != 0 {
		reason = ReasonError
	}
	return edited(Container{Attempts: []Attempt{{
		ID: "drover://e", State: Exited, ExitCode: code, Reason: reason, StartedAt: now.Add(-2 * time.Second), FinishedAt: now.Add(-time.Second),
	}}}, edits)
}

func lost() Container {
	return Container{Attempts: []Attempt{{ID: "drover://l", State: Lost, StartedAt: now.Add(-time.Minute), FinishedAt: now}}}
}

func edited(c Container, edits []func(*Container)) Container {
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

func attempt(n int32, backOff time.Duration) func(*Container) {
	return func(c *Container) { c.Attempts[0].Number, c.Attempts[0].BackOff = n, backOff }
}

func known(pairs ...any) map[string]Container {
	m := map[string]Container{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1].(Container)
	}
	return m
}
