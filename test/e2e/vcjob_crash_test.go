// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

// volcanoStory is a set of Jobs whose end does not depend on chance: one restarts as a whole until its retries are used up, one
// restarts a task that fails once, one is aborted by a failure, one just completes.
const volcanoStory = `
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: whole}
spec:
  maxRetry: 3
  policies: [{event: PodFailed, action: RestartJob}]
  tasks:
  - name: t
    replicas: 2
    template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: c, image: busybox, command: [sh, -c, "sleep 1; exit $VC_TASK_INDEX"]}]}}
  plugins: {env: []}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: task}
spec:
  maxRetry: 5
  policies: [{event: PodFailed, action: RestartTask}]
  tasks:
  - name: once
    replicas: 1
    template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: c, image: busybox, command: [sh, -c, "sleep 1; test -e /marks/once || { touch /marks/once; exit 1; }"], volumeMounts: [{name: m, mountPath: /marks}]}], volumes: [{name: m, hostPath: {path: MARKS, type: Directory}}]}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: abort}
spec:
  policies: [{event: PodFailed, action: AbortJob}]
  tasks:
  - name: bad
    replicas: 1
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: [sh, -c, "sleep 2; exit 1"]}]}}
  - name: long
    replicas: 1
    template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: c, image: busybox, command: [sleep, "1000"]}]}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: well}
spec:
  tasks:
  - name: t
    replicas: 2
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: [sleep, "2"]}]}}
`

// volcanoEnd is how it ends: name, phase, retryCount, succeeded, failed.
const volcanoEnd = `abort Aborted 0 0 1
task Completed 1 1 0
well Completed 0 2 0
whole Failed 3 1 1
`

// TestVolcanoJobsEndTheSameWhenTheirPlaneIsKilled kills the whole plane, and with it the controller, in the middle of the Jobs, and
// starts it again, until they have ended.
func TestVolcanoJobsEndTheSameWhenTheirPlaneIsKilled(t *testing.T) {
	const rounds = 4
	binary := plane.Binary(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			marks := t.TempDir()
			dir := filepath.Join(t.TempDir(), "plane")
			p := plane.Start(t, plane.Options{Dir: dir, Durable: true})
			file := filepath.Join(t.TempDir(), "jobs.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(volcanoStory, "MARKS", marks)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(binary, "--data-dir", p.Dir, "kubectl", "apply", "-f", file).CombinedOutput(); err != nil {
				t.Fatalf("applying the Jobs: %v\n%s", err, out)
			}
			for range 3 {
				pass(t, time.Duration(rng.IntN(2500))*time.Millisecond) // the moment of the kill is what is varied
				p.Kill()
				p = plane.Start(t, plane.Options{Dir: dir, Durable: true})
			}
			awaitVolcano(t, binary, p.Dir)
		})
	}
}

// awaitVolcano waits until the Jobs have ended as they must.
func awaitVolcano(t *testing.T, binary, dir string) {
	t.Helper()
	const each = `{range .items[*]}{.metadata.name} {.status.state.phase} {.status.retryCount} {.status.succeeded} {.status.failed}{"\n"}{end}`
	var got string
	err := wait.PollUntilContextTimeout(t.Context(), untilPause, 2*time.Minute, true, func(context.Context) (bool, error) {
		out, err := exec.Command(binary, "--data-dir", dir, "kubectl", "get", "vcjob", "-o", "jsonpath="+each).Output()
		got = withZeros(string(out))
		return err == nil && got == volcanoEnd, nil
	})
	if err == nil {
		return
	}
	t.Fatalf("the Jobs have not ended as they must; got:\n%swant:\n%s", got, volcanoEnd)
}

// withZeros writes numbers that the API leaves out because they are 0.
func withZeros(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimRight(line, "\n"), " ")
		for i := range fields {
			if fields[i] == "" {
				fields[i] = "0"
			}
		}
		b.WriteString(strings.Join(fields, " ") + "\n")
	}
	return b.String()
}
