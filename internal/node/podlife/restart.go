// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// BackOff says how long a container that has ended waits before it is started again: not at all the first time, Base the
// second, then doubled up to Max. A container that ran for longer than twice Max starts from the beginning.
type BackOff struct {
	Base time.Duration // 10 seconds on a kubelet
	Max  time.Duration // 5 minutes on a kubelet
}

// after returns the delay that holds once a has ended.
func (b BackOff) after(a *Attempt) time.Duration {
	if a.State == Exited && a.FinishedAt.Sub(a.StartedAt) > 2*b.Max && !a.StartedAt.IsZero() {
		return 0
	}
	return min(a.BackOff, b.Max)
}

// Next returns the back-off to note in the attempt that follows previous; previous is nil for the first attempt.
func (b BackOff) Next(previous *Attempt) time.Duration {
	if previous == nil {
		return 0
	}
	if delay := b.after(previous); delay > 0 {
		return min(2*delay, b.Max)
	}
	return min(b.Base, b.Max)
}

// shouldRestart reports whether c is started again after it ended with exitCode: by its own rules, then by its own policy, then by
// the pod's.
func shouldRestart(spec *corev1.PodSpec, c *corev1.Container, exitCode int32) bool {
	if c.RestartPolicy != nil {
		if matchingRule(c, exitCode) != "" {
			return true
		}
		switch *c.RestartPolicy {
		case corev1.ContainerRestartPolicyAlways:
			return true
		case corev1.ContainerRestartPolicyOnFailure:
			return exitCode != 0
		case corev1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// shouldRestartKilled reports whether c comes back after a probe made us kill it. Rules on exit codes have no say in that,
// because there is no exit code yet.
func shouldRestartKilled(spec *corev1.PodSpec, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return spec.RestartPolicy != corev1.RestartPolicyNever
}

// matchingRule returns the action of the first rule of c that fits exitCode; "" when none does.
func matchingRule(c *corev1.Container, exitCode int32) corev1.ContainerRestartRuleAction {
	if c.RestartPolicy == nil {
		return ""
	}
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(rule.ExitCodes.Values, exitCode)
		switch rule.ExitCodes.Operator {
		case corev1.ContainerRestartRuleOnExitCodesOpIn:
			if listed {
				return rule.Action
			}
		case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !listed {
				return rule.Action
			}
		}
	}
	return ""
}

// mayRestartAll reports whether some rule of the pod can restart all its containers.
func mayRestartAll(spec *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, rule := range list[i].RestartPolicyRules {
				if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}
