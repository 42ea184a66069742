// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/backoff"
)

func TestAnnotationsAskForMoreThanKubernetesOffers(t *testing.T) {
	policy := func(base, most time.Duration, factor float64) *backoff.Policy {
		return &backoff.Policy{Base: base, Max: most, Factor: factor}
	}
	cases := map[string]struct {
		annotations map[string]string
		want        Extras
		problem     string
	}{
		"none":                            {},
		"all":                             {annotations: map[string]string{BackoffAnnotation: "base=2s,factor=1.5,max=1m", StartTimeoutAnnotation: "5m", RetainFailedLogsAnnotation: "true"}, want: Extras{policy(2*time.Second, time.Minute, 1.5), 5 * time.Minute, true}},
		"a part of the back-off":          {annotations: map[string]string{BackoffAnnotation: "max=30s"}, want: Extras{Backoff: policy(10*time.Second, 30*time.Second, 2)}},
		"a base beyond the usual longest": {annotations: map[string]string{BackoffAnnotation: "base=1h"}, want: Extras{Backoff: policy(time.Hour, time.Hour, 2)}},
		"a base beyond its own longest":   {annotations: map[string]string{BackoffAnnotation: "base=1h,max=1m"}, problem: "annotation drover.dev/backoff is ignored: base 1h0m0s is more than max 1m0s"},
		"a back-off that is only a time":  {annotations: map[string]string{BackoffAnnotation: "10s"}, problem: `"10s" is not NAME=VALUE; write it like base=2s,factor=2,max=1m`},
		"a part that is not known":        {annotations: map[string]string{BackoffAnnotation: "jitter=1"}, problem: `"jitter" is not known; known are base, factor and max`},
		"a part twice":                    {annotations: map[string]string{BackoffAnnotation: "base=1s,base=2s"}, problem: "base stands in it twice"},
		"a factor that shrinks":           {annotations: map[string]string{BackoffAnnotation: "factor=0.5"}, problem: `factor "0.5" is not a number from 1 to 100`},
		"a factor that is no number":      {annotations: map[string]string{BackoffAnnotation: "factor=NaN"}, problem: `factor "NaN" is not a number`},
		"a base of nothing":               {annotations: map[string]string{BackoffAnnotation: "base=0s"}, problem: "base 0s is not between 100ms and 24h0m0s"},
		"a timeout without a unit":        {annotations: map[string]string{StartTimeoutAnnotation: "300"}, problem: `the value "300" is not a duration; write it like 90s or 5m`},
		"a timeout that is negative":      {annotations: map[string]string{StartTimeoutAnnotation: "-5m"}, problem: "the value -5m0s is not between 1s and 720h0m0s"},
		"neither true nor false":          {annotations: map[string]string{RetainFailedLogsAnnotation: "yes"}, problem: `"yes" is neither true nor false`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, problems := ExtrasOf(newJob(func(j *batchv1.Job) { j.Annotations = c.annotations }))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			text := strings.Join(problems, "; ")
			if !strings.Contains(text, c.problem) || (text == "") != (c.problem == "") {
				t.Errorf("problems %q, want %q", text, c.problem)
			}
		})
	}
}

func TestWhyAPodHasNotStarted(t *testing.T) {
	cases := map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"no room": {
			corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}}},
			"it has no node: Unschedulable: 0/1 nodes are available",
		},
		"an image that is not there": {
			corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling"}}}}}},
			"container main waits: ImagePullBackOff: Back-off pulling",
		},
		"a gate":            {corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "quota"}}}}, "it has no node: scheduling gate quota is closed"},
		"nobody looks":      {corev1.Pod{}, "it has no node, and no scheduler has said why"},
		"a node that hangs": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, "node n has not said why"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := WhyNotStarted(&c.pod); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
