// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-dev/drover/internal/standalone"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestStatusOfAPlaneThatDoesNotRun(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"never used": {
			want: "plane  not running; DIR has not been used yet\n",
		},
		"stopped": {
			files: map[string]string{"state.json": `{"phase": "Stopped", "version": "v1"}`},
			want:  "plane    not running\ndata     51 B in DIR\nversion  v1\n",
		},
		"stopped with pods that go on": {
			files: map[string]string{"state.json": `{"phase": "Stopped", "survivors": 2}`},
			want:  "plane  not running\ndata   50 B in DIR\npods   2 went on running when it stopped\n",
		},
		"killed": {
			files: map[string]string{"state.json": `{"phase": "Ready", "pid": 7}`},
			want:  "plane  not running; the last run has not ended well (ready)\ndata   42 B in DIR\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.files != nil {
				tc.files["drover.json"] = `{"version": 1}`
			}
			for file, content := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := run(t, dir, "", nil)
			if exit, ok := errors.AsType[*Error](err); !ok || exit.Code != ExitNotRunning {
				t.Errorf("error %v, want exit code %d", err, ExitNotRunning)
			}
			if diff := cmp.Diff(tc.want, strings.ReplaceAll(got, dir, "DIR")); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			got, _ = run(t, dir, "json", nil)
			var report Report
			if err := json.Unmarshal([]byte(got), &report); err != nil || report.Running || report.Answers || report.DataDir != dir {
				t.Errorf("JSON %s, error %v, want a plane that does not run in %s", got, err, dir)
			}
		})
	}
}

func TestPrintOfARunningPlane(t *testing.T) {
	since := now.Add(-5 * time.Minute)
	cases := map[string]struct {
		change func(*Report)
		want   string
	}{
		"that answers": {
			want: `
plane       running for 5m, process 7
API server  https://127.0.0.1:6443 answers
kubeconfig  /d/kubeconfig
data        1.5 MiB in /d
node        m: ready, 2 CPUs, 4.0 GiB, room for 110 pods
pods        1 running, 2 pending
jobs        1 active, 3 complete
`,
		},
		"in which nothing happens": {
			change: func(r *Report) { r.Cluster = Cluster{} },
			want: `
plane       running for 5m, process 7
API server  https://127.0.0.1:6443 answers
kubeconfig  /d/kubeconfig
data        1.5 MiB in /d
pods        none
jobs        none
`,
		},
		"that does not answer": {
			change: func(r *Report) { r.Answers, r.Problem, r.Cluster = false, "connection refused", Cluster{} },
			want: `
plane       running for 5m, process 7
API server  https://127.0.0.1:6443 does not answer: connection refused
kubeconfig  /d/kubeconfig
data        1.5 MiB in /d
`,
		},
		"of another container": {
			change: func(r *Report) { r.PID = 0; r.Cluster = Cluster{} },
			want: `
plane       running in a process that cannot be seen from here
API server  https://127.0.0.1:6443 answers
kubeconfig  /d/kubeconfig
data        1.5 MiB in /d
pods        none
jobs        none
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := Report{
				Running: true, Phase: standalone.Ready, PID: 7, Since: &since, Server: "https://127.0.0.1:6443", Answers: true,
				DataDir: "/d", DataBytes: 3 << 19, Kubeconfig: "/d/kubeconfig",
				Cluster: Cluster{
					Nodes: []Node{{Name: "m", Ready: true, CPU: "2", Memory: "4.0 GiB", Pods: "110"}},
					Pods:  map[string]int{"Running": 1, "Pending": 2}, Jobs: map[string]int{"Active": 1, "Complete": 3},
				},
			}
			if tc.change != nil {
				tc.change(&r)
			}
			var out bytes.Buffer
			if err := r.print(&out, now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), out.String()); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAskCounts(t *testing.T) {
	job := func(name string, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Status: batchv1.JobStatus{Conditions: conditions}}
	}
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: name}, Status: corev1.PodStatus{Phase: phase}}
	}
	client := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"),
				corev1.ResourcePods: resource.MustParse("110"),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}},
		pod("p1", corev1.PodRunning), pod("p2", corev1.PodRunning), pod("p3", corev1.PodFailed),
		job("active"),
		job("no longer suspended", batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}),
		job("suspended", batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}),
		job("done", batchv1.JobCondition{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue},
			batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}),
		job("failed", batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}),
	)
	got, err := ask(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	want := Cluster{
		Nodes: []Node{{Name: "m", Ready: true, CPU: "2", Memory: "4.0 GiB", Pods: "110"}},
		Pods:  map[string]int{"Running": 2, "Failed": 1},
		Jobs:  map[string]int{"Active": 2, "Suspended": 1, "Complete": 1, "Failed": 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cluster (-want +got):\n%s", diff)
	}
}

func TestCommandLine(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string // an error; "": none
	}{
		"without flags":        {},
		"as JSON":              {args: []string{"-o", "json"}},
		"in an unknown format": {args: []string{"-o", "xml"}, want: `reading --output: there is no format "xml"`},
		"with an argument":     {args: []string{"x"}, want: `unknown command "x" for "status"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got *Options
			cmd := NewCommand(genericiooptions.NewTestIOStreamsDiscard(), func() (string, error) { return "/d", nil },
				func(_ context.Context, o *Options) error { got = o; return nil })
			cmd.SetArgs(tc.args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			if tc.want == "" && (err != nil || got == nil || got.Dir != "/d") {
				t.Errorf("options %+v, error %v", got, err)
			}
			if tc.want != "" && (err == nil || err.Error() != tc.want || got != nil) {
				t.Errorf("error %v, want %q and nothing run", err, tc.want)
			}
		})
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 19: "1.5 MiB", 24 << 30: "24.0 GiB", 5 << 50: "5120.0 TiB"} {
		if got := inUnits(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func run(t *testing.T, dir, output string, client kubernetes.Interface) (string, error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	err := Run(t.Context(), &Options{
		Streams: streams, Clock: clocktesting.NewFakePassiveClock(now), Dir: standalone.Dir(dir), Output: output, Timeout: time.Minute,
		Client: func(string) (kubernetes.Interface, error) { return client, nil },
	})
	return out.String(), err
}
