// SPDX-License-Identifier: Apache-2.0

package retain

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func failedPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Status:     corev1.PodStatus{Phase: corev1.PodFailed},
	}
}

// logsOf makes a directory of logs as a pod has it.
func logsOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log"), []byte(pod.Name), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func names(t *testing.T, s *Store, namespace string) []string {
	t.Helper()
	pods, err := s.Pods(namespace)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, p := range pods {
		list = append(list, p.Name)
	}
	slices.Sort(list)
	return list
}

func TestWhatIsKeptIsFoundAgain(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, 10, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pod := failedPod("ns", "p")
	logs := logsOf(t, pod)
	if err := s.Keep(pod, logs, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(logs); !os.IsNotExist(err) {
		t.Errorf("the directory of the logs is still there: %v", err)
	}
	if s, err = New(dir, 10, time.Hour); err != nil { // as after a restart
		t.Fatal(err)
	}
	pods, err := s.Pods("ns")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*corev1.Pod{pod}, pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(filepath.Join(s.dirOf(pod), "log"))
	if err != nil || string(text) != "p" {
		t.Errorf("log %q, %v", text, err)
	}
	if got := names(t, s, "n"); got != nil {
		t.Errorf("another namespace has %v", got)
	}
}

func TestOnlySoManyAreKeptAndOnlyForSoLong(t *testing.T) {
	s, err := New(t.TempDir(), 2, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	keep := func(name string, age time.Duration, at time.Time) {
		t.Helper()
		pod := failedPod("ns", name)
		logs := logsOf(t, pod)
		if err := s.Keep(pod, logs, at); err != nil {
			t.Fatal(err)
		}
		record := filepath.Join(s.dirOf(pod), recordName)
		if err := os.Chtimes(record, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	keep("a", 30*time.Minute, now)
	keep("b", 20*time.Minute, now)
	keep("c", 10*time.Minute, now)
	if diff := cmp.Diff([]string{"b", "c"}, names(t, s, "ns")); diff != "" {
		t.Errorf("too many (-want +got):\n%s", diff)
	}
	keep("d", 0, now.Add(45*time.Minute))
	if diff := cmp.Diff([]string{"c", "d"}, names(t, s, "ns")); diff != "" {
		t.Errorf("too old (-want +got):\n%s", diff)
	}
}

func TestAPodWithoutLogsIsNotKept(t *testing.T) {
	s, err := New(t.TempDir(), 2, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(failedPod("ns", "p"), filepath.Join(t.TempDir(), "none"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s, "ns"); got != nil {
		t.Errorf("kept %v", got)
	}
}

func TestHasFailed(t *testing.T) {
	status := func(edit func(*corev1.ContainerStatus)) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{}}}}
		edit(&p.Status.ContainerStatuses[0])
		return p
	}
	terminated := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	cases := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a failed pod":        {failedPod("ns", "p"), true},
		"one that runs":       {status(func(*corev1.ContainerStatus) {}), false},
		"one that ended well": {status(func(s *corev1.ContainerStatus) { s.State = terminated(0) }), false},
		"one that was killed": {status(func(s *corev1.ContainerStatus) { s.State = terminated(143) }), true},
		"one that runs again": {status(func(s *corev1.ContainerStatus) { s.LastTerminationState = terminated(1) }), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := HasFailed(c.pod); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
