// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/testkit/plane"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
)

// completes awaits the end of the Job, and checks that what its plugins have made is gone and which pods are left.
func (p *vcPlay) completes(left ...string) *batch.Job {
	p.t.Helper()
	j := p.await("Completed", func(j *batch.Job) bool { return j.Status.State.Phase == batch.Completed })
	if len(j.Status.ControlledResources) > 0 {
		p.t.Errorf("it still controls %v", j.Status.ControlledResources)
	}
	p.await("rid of other pods and objects", func(*batch.Job) bool {
		return p.podNames() == strings.Join(left, " ") && len(p.objects()) == 0
	})
	return j
}

func (p *vcPlay) check(what string, want, got any) {
	p.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// settings returns the variables among those a pod has printed whose names begin with one of prefixes, sorted.
func settings(log string, prefixes ...string) []string {
	var found []string
	for line := range strings.Lines(log) {
		line = strings.TrimSuffix(line, "\n")
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
			found = append(found, line)
		}
	}
	slices.Sort(found)
	return found
}

// printed is what containers that print their environment print last.
const printed = "that is all"

// TestPublishedVolcanoJobsWithPlugins runs manifests that others publish. What must come of each was seen with Volcano.
func TestPublishedVolcanoJobsWithPlugins(t *testing.T) {
	images := filepath.Join(t.TempDir(), "images.yaml")
	bin := t.TempDir()
	ray := "#!/bin/sh\necho ray \"$@\"; exec sleep 600\n"
	if err := os.WriteFile(filepath.Join(bin, "ray"), []byte(ray), 0o755); err != nil {
		t.Fatal(err)
	}
	table := fmt.Sprintf("images:\n- {names: [bitnami/ray], entrypoint: [sh], env: [\"PATH=%s:/usr/bin:/bin\"]}\n", bin)
	if err := os.WriteFile(images, []byte(table), 0o644); err != nil {
		t.Fatal(err)
	}
	pl := plane.Start(t, plane.Options{Args: []string{"--images", images}})
	kube := pl.Client()
	vc, err := client.New(pl.Config)
	if err != nil {
		t.Fatal(err)
	}
	awaitAdmission(t, vc)
	type play struct {
		file, variation string
		do              func(p *vcPlay)
	}
	pytorch := func(p *vcPlay, name string, rank int) {
		p.t.Helper()
		want := []string{"MASTER_ADDR=pytorch-job-master-0.pytorch-job", "MASTER_PORT=23456", fmt.Sprintf("RANK=%d", rank), "WORLD_SIZE=3"}
		p.check("variables of "+name, want, settings(p.awaitLog(name, printed), "MASTER_", "RANK=", "WORLD_SIZE="))
	}
	plays := []play{
		{"plugin-arguments.yaml", "", func(p *vcPlay) {
			p.runs("default-nginx", "sh", "-c", "env; cat /etc/volcano/*; echo; ls /home/user/.ssh; echo "+printed+"; sleep 3")
			p.apply()
			const hosts = "test-job-plugin-default-nginx-0.test-job-plugin,test-job-plugin-default-nginx-1.test-job-plugin,test-job-plugin-default-nginx-2.test-job-plugin"
			for i := range 3 {
				name := fmt.Sprintf("test-job-plugin-default-nginx-%d", i)
				log := p.awaitLog(name, printed)
				want := []string{"VC_DEFAULT_NGINX_HOSTS=" + hosts, "VC_DEFAULT_NGINX_NUM=3", fmt.Sprintf("VC_TASK_INDEX=%d", i), fmt.Sprintf("VK_TASK_INDEX=%d", i)}
				p.check("variables of "+name, want, settings(log, "VC_", "VK_"))
				// The files in the order of their names: VC_DEFAULT_NGINX_HOSTS, VC_DEFAULT_NGINX_NUM, default_nginx.host.
				for _, text := range []string{hosts + "3" + strings.ReplaceAll(hosts, ",", "\n") + "\n", "\nauthorized_keys\nconfig\nid_rsa\nid_rsa.pub\n"} {
					if !strings.Contains(log, text) {
						p.t.Errorf("%s does not print %q, but:\n%s", name, text, log)
					}
				}
			}
			p.check("objects", []string{"Service/test-job-plugin", "ConfigMap/test-job-plugin-svc", "Secret/test-job-plugin-ssh", "NetworkPolicy/test-job-plugin"}, p.objects())
			p.completes("test-job-plugin-default-nginx-0", "test-job-plugin-default-nginx-1", "test-job-plugin-default-nginx-2")
		}},
		{"mpi-ssh-svc.yaml", "", func(p *vcPlay) {
			p.runs("mpimaster", "sh", "-c", "cat /etc/volcano/mpiworker.host; sleep 5")
			p.runs("mpiworker", "sleep", "3600")
			p.apply()
			p.await("Running", func(j *batch.Job) bool { return j.Status.State.Phase == batch.Running })
			p.check("objects", []string{"Service/lm-mpi-job", "ConfigMap/lm-mpi-job-svc", "Secret/lm-mpi-job-ssh", "NetworkPolicy/lm-mpi-job"}, p.objects())
			p.went(p.completes("lm-mpi-job-mpimaster-0"), batch.Pending, batch.Running, batch.Completing, batch.Completed)
			p.check("list of workers", "lm-mpi-job-mpiworker-0.lm-mpi-job\nlm-mpi-job-mpiworker-1.lm-mpi-job", p.awaitLog("lm-mpi-job-mpimaster-0", ""))
		}},
		{"mpi-plugin.yaml", "", func(p *vcPlay) {
			p.runs("mpimaster", "sh", "-c", "env; echo "+printed+"; sleep 5")
			p.runs("mpiworker", "sh", "-c", "env; echo "+printed+"; sleep 3600")
			p.apply()
			p.check("plugins", map[string][]string{"mpi": {"--master=mpimaster", "--worker=mpiworker", "--port=22"}, "svc": {}, "ssh": {}}, p.job.Spec.Plugins)
			want := []string{"MPI_HOST=lm-mpi-job-mpiworker-0.lm-mpi-job,lm-mpi-job-mpiworker-1.lm-mpi-job"}
			p.check("variables of the master", want, settings(p.awaitLog("lm-mpi-job-mpimaster-0", printed), "MPI_"))
			p.check("variables of a worker", []string(nil), settings(p.awaitLog("lm-mpi-job-mpiworker-0", printed), "MPI_"))
			p.went(p.completes("lm-mpi-job-mpimaster-0"), batch.Pending, batch.Running, batch.Completing, batch.Completed)
		}},
		{"tensorflow-env-svc.yaml", "", func(p *vcPlay) {
			p.runs("ps", "sleep", "3600")
			p.runs("worker", "sh", "-c", "cat /etc/volcano/*.host; echo; echo $VK_TASK_INDEX; sleep 5")
			p.apply()
			p.completes("tensorflow-dist-mnist-worker-0", "tensorflow-dist-mnist-worker-1")
			for i := range 2 {
				const files = "tensorflow-dist-mnist-ps-0.tensorflow-dist-mnist" + "tensorflow-dist-mnist-worker-0.tensorflow-dist-mnist\ntensorflow-dist-mnist-worker-1.tensorflow-dist-mnist"
				p.check("files and index", fmt.Sprintf("%s\n%d\n", files, i), p.awaitLog(fmt.Sprintf("tensorflow-dist-mnist-worker-%d", i), ""))
			}
		}},
		{"tensorflow-env-svc.yaml", "by-plugin", func(p *vcPlay) {
			p.job.Spec.Plugins = map[string][]string{"tensorflow": {"--port=2222", "--worker=worker", "--ps=ps"}}
			p.runs("ps", "sh", "-c", "env; echo "+printed+"; sleep 3600")
			p.runs("worker", "sh", "-c", "env; echo "+printed+"; sleep 5")
			p.apply()
			if _, there := p.job.Spec.Plugins["svc"]; !there {
				p.t.Errorf("svc is not switched on: %v", p.job.Spec.Plugins)
			}
			const cluster = `TF_CONFIG={"cluster":{"ps":["tensorflow-dist-mnist-ps-0.tensorflow-dist-mnist:2222"],` +
				`"worker":["tensorflow-dist-mnist-worker-0.tensorflow-dist-mnist:2222","tensorflow-dist-mnist-worker-1.tensorflow-dist-mnist:2222"]},"task":{"type":`
			for name, want := range map[string]string{"ps-0": `"ps","index":0}}`, "worker-0": `"worker","index":0}}`, "worker-1": `"worker","index":1}}`} {
				p.check("TF_CONFIG of "+name, []string{cluster + want}, settings(p.awaitLog("tensorflow-dist-mnist-"+name, printed), "TF_"))
			}
			p.completes("tensorflow-dist-mnist-worker-0", "tensorflow-dist-mnist-worker-1")
		}},
		{"pytorch-plugin.yaml", "", func(p *vcPlay) {
			p.runs("master", "sh", "-c", "env; echo "+printed+"; sleep 8")
			p.runs("worker", "sleep", "3600")
			p.apply()
			pytorch(p, "pytorch-job-master-0", 0)
			init := p.pod("pytorch-job-worker-1").Spec.InitContainers
			if len(init) != 1 || init[0].Name != "wait-for-master" || init[0].Image != "busybox:1.36.1" {
				p.t.Errorf("init containers of a worker: %+v", init)
			}
			p.check("init containers of the master", 0, len(p.pod("pytorch-job-master-0").Spec.InitContainers))
			p.completes("pytorch-job-master-0") // nothing has listened for the workers
		}},
		{"pytorch-plugin.yaml", "without-wait", func(p *vcPlay) {
			p.job.Spec.Plugins["pytorch"] = p.job.Spec.Plugins["pytorch"][:3]
			p.runs("master", "sh", "-c", "env; echo "+printed+"; sleep 8")
			p.runs("worker", "sh", "-c", "env; echo "+printed+"; sleep 3600")
			p.apply()
			pytorch(p, "pytorch-job-master-0", 0)
			pytorch(p, "pytorch-job-worker-0", 1)
			pytorch(p, "pytorch-job-worker-1", 2)
			p.completes("pytorch-job-master-0")
		}},
		{"ray-plugin.yaml", "", func(p *vcPlay) {
			p.apply()
			running := func(retries int32) {
				p.t.Helper()
				p.await("Running with all pods", func(j *batch.Job) bool {
					return j.Status.State.Phase == batch.Running && j.Status.Running == 3 && j.Status.RetryCount == retries
				})
			}
			running(0)
			p.check("objects", []string{"Service/ray-cluster-job", "Service/ray-cluster-job-head-svc", "ConfigMap/ray-cluster-job-svc", "NetworkPolicy/ray-cluster-job"}, p.objects())
			const head = "ray start --head --block --dashboard-host=0.0.0.0 --port=6379 --dashboard-port=8265 --ray-client-server-port=10001"
			const worker = "ray start --block --address=ray-cluster-job-head-0.ray-cluster-job:6379"
			p.check("command of the head", []string{"sh", "-c", head}, p.pod("ray-cluster-job-head-0").Spec.Containers[0].Command)
			p.check("command of a worker", []string{"sh", "-c", worker}, p.pod("ray-cluster-job-worker-1").Spec.Containers[0].Command)
			p.check("what the head has run", head+"\n", p.awaitLog("ray-cluster-job-head-0", "ray"))
			p.check("what a worker has run", worker+"\n", p.awaitLog("ray-cluster-job-worker-0", "ray"))
			service, err := p.kube.CoreV1().Services(p.ns).Get(p.ctx, "ray-cluster-job-head-svc", metav1.GetOptions{})
			p.must(err)
			var ports []string
			for _, port := range service.Spec.Ports {
				ports = append(ports, fmt.Sprintf("%s %s %d to %s", port.Protocol, port.Name, port.Port, port.TargetPort.String()))
			}
			p.check("ports", []string{"TCP gcs 6379 to gcs", "TCP dashboard 8265 to dashboard", "TCP client-server 10001 to client-server"}, ports)
			before := p.pod("ray-cluster-job-worker-0").UID
			p.must(p.kube.CoreV1().Pods(p.ns).Delete(p.ctx, "ray-cluster-job-worker-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
			running(1)
			if p.pod("ray-cluster-job-worker-0").UID == before {
				p.t.Error("the other worker was not replaced")
			}
			p.remove(p.job.Name)
			p.until("what was made for the Job is gone", func() bool { return len(p.objects()) == 0 })
		}},
	}
	files, err := os.ReadDir(filepath.Join("testdata", "manifests", "vcjob-plugins"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.ContainsFunc(plays, func(p play) bool { return p.file == file.Name() }) {
			t.Errorf("%s is not run", file.Name())
		}
	}
	t.Run("file", func(t *testing.T) {
		for _, each := range plays {
			t.Run(strings.TrimSuffix(strings.TrimSuffix(each.file, ".yaml")+" "+each.variation, " "), func(t *testing.T) {
				t.Parallel()
				p := newVCPlay(t, kube, vc, strings.TrimSuffix("plugin-"+strings.TrimSuffix(each.file, ".yaml")+"-"+each.variation, "-"))
				readManifest(t, "vcjob-plugins", each.file, p.job)
				each.do(p)
			})
		}
	})
}
