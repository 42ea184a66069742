// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/testkit/plane"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
)

// failoverLease is how long a dead leader keeps its place; a third of Kubernetes' own, so that the test is short.
const failoverLease = 5 * time.Second

// replica is one drover-controller.
type replica struct {
	cmd    *exec.Cmd
	output *lockedOutput
	done   chan struct{}
}

type lockedOutput struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *lockedOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *lockedOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startReplica runs drover-controller with everything on; flags in more go before.
func startReplica(t *testing.T, kubeconfig string, more ...string) *replica {
	t.Helper()
	args := []string{
		"--kubeconfig", kubeconfig, "--manage=all", "--controllers=*", "--gang=none", "--install-crds", "--leader-elect-namespace=drover-system",
		"--leader-elect-lease-duration=" + failoverLease.String(), "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s",
	}
	r := &replica{
		cmd:    exec.Command(filepath.Join(filepath.Dir(plane.Binary(t)), "drover-controller"), append(args, more...)...),
		output: &lockedOutput{}, done: make(chan struct{}),
	}
	r.cmd.Stdout, r.cmd.Stderr = r.output, r.output
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // it is killed
	}()
	t.Cleanup(r.kill)
	return r
}

func (r *replica) kill() {
	_ = r.cmd.Process.Kill() // unless it has ended
	<-r.done
}

// asServiceAccount writes a kubeconfig with which somebody is a service account and nobody else.
func asServiceAccount(t *testing.T, p *plane.Plane, namespace, name string) string {
	t.Helper()
	token, err := p.Client().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["plane"] = &clientcmdapi.Cluster{Server: p.Config.Host, CertificateAuthorityData: p.Config.CAData, CertificateAuthority: p.Config.CAFile}
	config.AuthInfos["account"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["plane"] = &clientcmdapi.Context{Cluster: "plane", AuthInfo: "account"}
	config.CurrentContext = "plane"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestWorkGoesOnWhenTheLeadingControllerIsKilled applies the manifests of deploy/ to a plane without controllers of its own, and runs
// two replicas with the rights that these give. The leader is killed while 200 Jobs and 50 Jobs of Volcano are at work and 100 CronJobs
// are due.
func TestWorkGoesOnWhenTheLeadingControllerIsKilled(t *testing.T) {
	t.Parallel()
	const jobs, vcjobs, crons = 200, 50, 100
	p := plane.Start(t, plane.Options{Args: []string{"--controllers=-*"}})
	ctx, kube := t.Context(), p.Client()
	deploy := filepath.Join(filepath.Dir(filepath.Dir(plane.Binary(t))), "deploy")
	for _, args := range [][]string{{"-k", filepath.Join(deploy, "overlays", "volcano")}, {"-f", filepath.Join(deploy, "overlays", "replace", "rbac.yaml")}} {
		if out, err := plane.Command(t, append([]string{"--kubeconfig", p.Kubeconfig, "kubectl", "apply", "--server-side"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	kubeconfig := asServiceAccount(t, p, "drover-system", "drover-controller")
	replicas := []*replica{startReplica(t, kubeconfig), startReplica(t, kubeconfig)}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		if wait.PollUntilContextTimeout(ctx, pollEvery, outcomeLimit, true, func(context.Context) (bool, error) { return ok(), nil }) != nil {
			t.Fatalf("waited in vain for %s\n%s\n\n%s", what, replicas[0].output, replicas[1].output)
		}
	}
	leader := func() int {
		for i, r := range replicas {
			select {
			case <-r.done:
			default:
				if strings.Contains(r.output.String(), "Leading") {
					return i
				}
			}
		}
		return -1
	}
	vc, err := client.New(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	eventually("a leader and Volcano's queues", func() bool {
		_, err := vc.Queues().Get(ctx, batch.DefaultQueue, metav1.GetOptions{})
		return leader() >= 0 && err == nil
	})

	out := t.TempDir()
	pod := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false),
			Volumes: []corev1.Volume{{Name: "out", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: out}}}},
			Containers: []corev1.Container{{
				Name: "work", Image: "busybox", Command: []string{"sh", "-c", "echo ran >> /out/" + name},
				VolumeMounts: []corev1.VolumeMount{{Name: "out", MountPath: "/out"}},
			}},
		}}
	}
	due := time.Now().Add(80 * time.Second).Truncate(time.Minute) // at least 20 s ahead
	for i := range crons {
		name := fmt.Sprintf("cron-%d", i)
		c := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: batchv1.CronJobSpec{
				Schedule: due.UTC().Format("4 15") + " * * *", TimeZone: ptr.To("Etc/UTC"),
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod(name)}},
			},
		}
		if _, err := kube.BatchV1().CronJobs("default").Create(ctx, c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The work begins so that it is under way when the CronJobs are due.
	eventually("the time to begin", func() bool { return time.Until(due) < 3*time.Second })
	for i := range max(jobs, vcjobs) {
		if i < jobs {
			name := fmt.Sprintf("job-%d", i)
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: pod(name)}}
			if _, err := kube.BatchV1().Jobs("default").Create(ctx, j, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if i < vcjobs {
			name := fmt.Sprintf("vcjob-%d", i)
			j := &batch.Job{
				TypeMeta: metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
				Spec: batch.JobSpec{
					MinAvailable: 1, Queue: batch.DefaultQueue, MaxRetry: 3, SchedulerName: corev1.DefaultSchedulerName,
					Tasks: []batch.TaskSpec{{Name: "t", Replicas: 1, MinAvailable: ptr.To[int32](1), Template: pod(name)}},
				},
			}
			if _, err := vc.Jobs("default").Create(ctx, j, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually("the CronJobs to be due", func() bool { return time.Now().After(due) })
	first := leader()
	replicas[first].kill()
	killed := time.Now()
	eventually("the other replica to lead", func() bool { return strings.Contains(replicas[1-first].output.String(), "Leading") })
	t.Logf("led on after %v, %v from the time at which the CronJobs were due", time.Since(killed).Round(time.Millisecond), time.Since(due).Round(time.Millisecond))

	ended := func() map[string]int {
		list, err := kube.BatchV1().Jobs("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, j := range list.Items {
			kind, number, _ := strings.Cut(j.Name, "-")
			if kind == "cron" {
				if want := fmt.Sprintf("cron-%s-%d", strings.Split(number, "-")[0], due.Unix()/60); j.Name != want {
					t.Fatalf("CronJob made %s, want %s", j.Name, want)
				}
			}
			if j.Status.Succeeded == 1 && isFinished(&j) {
				counts[kind]++
			}
		}
		vcs, err := vc.Jobs("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range vcs.Items {
			if j.Status.State.Phase == batch.Completed {
				counts["vcjob"]++
			}
		}
		return counts
	}
	eventually("everything to end well", func() bool {
		n := ended()
		return n["job"] == jobs && n["cron"] == crons && n["vcjob"] == vcjobs
	})
	files, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != jobs+vcjobs+crons {
		t.Errorf("%d Jobs have run, want %d", len(files), jobs+vcjobs+crons)
	}
	for _, f := range files {
		if text, err := os.ReadFile(filepath.Join(out, f.Name())); err != nil || string(text) != "ran\n" {
			t.Errorf("%s has run %d times (%v)", f.Name(), strings.Count(string(text), "ran"), err)
		}
	}
	for _, r := range replicas {
		for line := range strings.Lines(r.output.String()) {
			if strings.Contains(line, "forbidden") {
				t.Errorf("the shipped roles are too narrow: %s", line)
			}
		}
	}
}
