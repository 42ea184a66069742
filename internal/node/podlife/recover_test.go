// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRecover(t *testing.T) {
	yes := true
	began, ended := now.Add(-time.Minute), now.Add(-time.Second)
	terminated := func(id string, code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ContainerID: id, ExitCode: code, Reason: "Error", StartedAt: metav1.NewTime(began), FinishedAt: metav1.NewTime(ended),
		}}
	}
	end := func(id string, number, code int32, backOff time.Duration) Attempt {
		return Attempt{ID: id, Number: number, State: Exited, ExitCode: code, Reason: "Error", StartedAt: began, FinishedAt: ended, BackOff: backOff}
	}
	run := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	cases := map[string]struct {
		api   *corev1.ContainerStatus
		found []Attempt
		want  Container
	}{
		"nobody knows of a start": {
			api: &corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
		},
		"nothing was told yet": {
			found: []Attempt{{ID: "0", Number: 0, State: Running}},
			want:  Container{Attempts: []Attempt{{ID: "0", Number: 0, State: Running}}},
		},
		"it runs, as the API server knows": {
			api:   &corev1.ContainerStatus{ContainerID: "0", State: run, Ready: true, Started: &yes},
			found: []Attempt{{ID: "0", Number: 0, State: Running}},
			want:  Container{Attempts: []Attempt{{ID: "0", Number: 0, State: Running}}, WasReady: true, WasStarted: true},
		},
		"it has ended meanwhile": {
			api:   &corev1.ContainerStatus{ContainerID: "0", State: run},
			found: []Attempt{end("0", 0, 3, 0)},
			want:  Container{Attempts: []Attempt{end("0", 0, 3, 0)}},
		},
		"it was restarted meanwhile": {
			api:   &corev1.ContainerStatus{ContainerID: "0", State: run, Ready: true, Started: &yes},
			found: []Attempt{end("0", 0, 3, 0), {ID: "1", Number: 1, State: Running}},
			want:  Container{Attempts: []Attempt{{ID: "1", Number: 1, State: Running}, end("0", 0, 3, 0)}},
		},
		"it ran, and the runtime has nothing": {
			api: &corev1.ContainerStatus{ContainerID: "2", RestartCount: 2, State: run, LastTerminationState: terminated("1", 1)},
			want: Container{Attempts: []Attempt{
				{ID: "2", Number: 2, State: Lost, StartedAt: began, FinishedAt: now, BackOff: 20 * time.Second},
				end("1", 1, 1, 10*time.Second),
			}},
		},
		"it had ended, and the runtime has forgotten it": {
			api:  &corev1.ContainerStatus{ContainerID: "0", State: terminated("0", 0)},
			want: Container{Attempts: []Attempt{end("0", 0, 0, 0)}},
		},
		"it waits for its next attempt": {
			api:  &corev1.ContainerStatus{ContainerID: "3", RestartCount: 3, State: waits, LastTerminationState: terminated("3", 1)},
			want: Container{Attempts: []Attempt{end("3", 3, 1, 40*time.Second)}},
		},
		"its postStart hook had not returned, and the runtime has nothing": {
			api:  &corev1.ContainerStatus{ContainerID: "0", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
			want: Container{Attempts: []Attempt{{ID: "0", State: Lost, FinishedAt: now}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Recover(tc.api, tc.found, now, kubelet)); diff != "" {
				t.Errorf("container (-want +got):\n%s", diff)
			}
		})
	}
}
