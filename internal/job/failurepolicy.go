// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// ruling is what a Job's podFailurePolicy says of one failed pod. The zero value means that no rule matched: the failure
// counts as usual.
type ruling struct {
	action  batchv1.PodFailurePolicyAction
	message string // for FailJob: why, as the condition tells it
}

func (r ruling) ignored() bool    { return r.action == batchv1.PodFailurePolicyActionIgnore }
func (r ruling) failsJob() bool   { return r.action == batchv1.PodFailurePolicyActionFailJob }
func (r ruling) failsIndex() bool { return r.action == batchv1.PodFailurePolicyActionFailIndex }

// judge returns the ruling of the first rule that matches the failed pod p. A rule with an action or operator that is not
// known matches nothing.
func judge(policy *batchv1.PodFailurePolicy, p *corev1.Pod) ruling {
	if policy == nil {
		return ruling{}
	}
	for n := range policy.Rules {
		rule := &policy.Rules[n]
		switch rule.Action {
		case batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionFailIndex,
			batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionCount:
		default:
			continue
		}
		switch {
		case rule.OnExitCodes != nil:
			if c := matchExitCode(rule.OnExitCodes, p); c != nil {
				return ruling{rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v matching %v rule at index %d",
					c.Name, p.Namespace, p.Name, c.State.Terminated.ExitCode, rule.Action, n)}
			}
		default:
			if c := matchCondition(rule.OnPodConditions, p); c != nil {
				return ruling{rule.Action, fmt.Sprintf("Pod %s/%s has condition %v matching %v rule at index %d",
					p.Namespace, p.Name, c.Type, rule.Action, n)}
			}
		}
	}
	return ruling{}
}

// matchExitCode returns the first container that failed with a code the requirement asks for, containers before init
// containers. Code 0 never matches.
func matchExitCode(want *batchv1.PodFailurePolicyOnExitCodesRequirement, p *corev1.Pod) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range statuses {
			c := &statuses[i]
			if c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 {
				continue
			}
			if want.ContainerName != nil && *want.ContainerName != c.Name {
				continue
			}
			listed := slices.Contains(want.Values, c.State.Terminated.ExitCode)
			switch want.Operator {
			case batchv1.PodFailurePolicyOnExitCodesOpIn:
				if listed {
					return c
				}
			case batchv1.PodFailurePolicyOnExitCodesOpNotIn:
				if !listed {
					return c
				}
			}
		}
	}
	return nil
}

func matchCondition(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		for _, want := range patterns {
			if c := &p.Status.Conditions[i]; c.Type == want.Type && c.Status == want.Status {
				return c
			}
		}
	}
	return nil
}
