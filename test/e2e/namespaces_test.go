// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

// everyKind is one object of each kind that is worked on.
const everyKind = `
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cron}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: vcjob}
spec:
  minAvailable: 2
  queue: default
  schedulerName: default-scheduler
  plugins: {env: [], svc: [], ssh: []}
  tasks: [{name: t, replicas: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}]
---
apiVersion: batch.volcano.sh/v1alpha1
kind: CronJob
metadata: {name: vccron}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      minAvailable: 1
      queue: default
      schedulerName: default-scheduler
      tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}]
---
apiVersion: flow.volcano.sh/v1alpha1
kind: JobTemplate
metadata: {name: step}
spec:
  minAvailable: 1
  queue: default
  schedulerName: default-scheduler
  tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}]
---
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: flow}
spec: {jobRetainPolicy: retain, flows: [{name: step}]}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {schedulerName: volcano, restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}
`

// wrongJob is a Job that webhooks refuse.
const wrongJob = `
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: wrong}
spec:
  minAvailable: 1
  queue: nowhere
  tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}]
`

// TestWorkIsDoneInSelectedNamespacesOnly runs drover-controller --namespaces with the roles of deploy/ bound in these namespaces, and
// with no other right in any namespace.
func TestWorkIsDoneInSelectedNamespacesOnly(t *testing.T) {
	t.Parallel()
	p := plane.Start(t, plane.Options{Args: []string{"--controllers=-*"}})
	run := func(args ...string) (string, error) {
		t.Helper()
		out, err := plane.Command(t, append([]string{"--kubeconfig", p.Kubeconfig, "kubectl"}, args...)...).CombinedOutput()
		return string(out), err
	}
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return out
	}
	deploy := filepath.Join(filepath.Dir(filepath.Dir(plane.Binary(t))), "deploy")
	kubectl("apply", "--server-side", "-k", filepath.Join(deploy, "overlays", "volcano"))
	kubectl("apply", "--server-side", "-f", filepath.Join(deploy, "overlays", "replace", "rbac.yaml"))
	inNamespaces := []string{"drover-controller-cronjobs", "drover-controller-volcano", "drover-controller"}
	kubectl(append([]string{"delete", "clusterrolebinding"}, inNamespaces...)...)
	open := func(namespace string) {
		t.Helper()
		kubectl("create", "namespace", namespace)
		for _, role := range inNamespaces {
			kubectl("create", "rolebinding", role, "-n", namespace, "--clusterrole="+role, "--serviceaccount=drover-system:drover-controller")
		}
	}
	open("a")
	kubectl("create", "namespace", "b")

	r := startReplica(t, asServiceAccount(t, p, "drover-system", "drover-controller"), "--namespaces=later,a", "--gang=native",
		"--webhook-bind-address=127.0.0.1:0", "--webhook-secret=drover-system/drover-webhook", "--webhook-name=only-a")
	eventually := func(what string, ok func() bool) {
		t.Helper()
		if wait.PollUntilContextTimeout(t.Context(), pollEvery, outcomeLimit, true, func(context.Context) (bool, error) { return ok(), nil }) != nil {
			everything, _ := run("get", "jobs,cronjobs,vcjob,cronvcjob,jobflows,podgroups.scheduling.volcano.sh,pods", "-A")
			t.Fatalf("waited in vain for %s\n%s\n\n%s", what, everything, r.output)
		}
	}
	says := func(text string) func() bool {
		return func() bool { return strings.Contains(r.output.String(), text) }
	}
	eventually("the webhooks", says("Webhooks are served"))
	eventually("a word about the namespace that does not exist", says("There are no rights in a selected namespace, or it does not exist yet"))
	eventually("the queue default", func() bool { _, err := run("get", "queue", "default"); return err == nil })

	manifest := filepath.Join(t.TempDir(), "work.yaml")
	if err := os.WriteFile(manifest, []byte(everyKind), 0o600); err != nil {
		t.Fatal(err)
	}
	versions := func() string {
		t.Helper()
		return kubectl("get", "jobs,cronjobs,vcjob,cronvcjob,jobflows,jobtemplates,podgroups.scheduling.volcano.sh,podgroups.scheduling.k8s.io,secrets,services,networkpolicies", "-n", "b",
			"-o", "custom-columns=KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion", "--no-headers")
	}
	kubectl("apply", "-n", "b", "-f", manifest)
	untouched := versions()
	kubectl("apply", "-n", "a", "-f", manifest)

	// The webhooks check what is in a, and let through what is in b.
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte(wrongJob), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("create", "--dry-run=server", "-n", "a", "-f", wrong); err == nil || !strings.Contains(out, "nowhere") {
		t.Errorf("a Job of a queue that does not exist was taken in a: %v %s", err, out)
	}
	kubectl("create", "--dry-run=server", "-n", "b", "-f", wrong)

	outcomes := []struct{ object, path, text string }{
		{"job/job", `{.status.succeeded}`, `^1$`},
		{"vcjob/vcjob", `{.status.state.phase} {.status.succeeded}`, `^Completed 2$`},
		{"jobflow/flow", `{.status.state.phase}`, `^Succeed$`},
		{"pod/plain", `{.metadata.annotations.scheduling\.k8s\.io/group-name}`, `^podgroup-`},
		{"cronjob/cron", `{.status.lastSuccessfulTime}`, `^2`}, // at the next full minute
		{"cronvcjob/vccron", `{.status.lastSuccessfulTime}`, `^2`},
	}
	await := func(namespace string, n int) {
		t.Helper()
		for _, want := range outcomes[:n] {
			eventually(want.object+" in "+namespace, func() bool {
				out, err := run("get", want.object, "-n", namespace, "-o", "jsonpath="+want.path)
				return err == nil && regexp.MustCompile(want.text).MatchString(out)
			})
		}
	}
	await("a", len(outcomes))

	// A namespace that is made later, with its roles, is worked in from then on.
	open("later")
	eventually("work in the namespace that was made later", says("Working in namespaces\" namespaces=a,later"))
	kubectl("apply", "-n", "later", "-f", manifest)
	await("later", 4)

	if now := versions(); now != untouched {
		t.Errorf("what is in b was touched:\n%s\nbefore:\n%s", now, untouched)
	}
	if pods := kubectl("get", "pods", "-n", "b", "-o", "name"); pods != "pod/plain\n" {
		t.Errorf("pods in b: %s", pods)
	}
	if group := kubectl("get", "pod", "plain", "-n", "b", "-o", `jsonpath={.metadata.annotations.scheduling\.k8s\.io/group-name}`); group != "" {
		t.Errorf("the pod in b has the PodGroup %s", group)
	}
	for line := range strings.Lines(r.output.String()) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, "level=ERROR") {
			t.Errorf("the rights in the namespaces do not do: %s", line)
		}
	}
}
