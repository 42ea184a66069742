// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/testkit/plane"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// issue sends the Command of a file, with the UID of the Job that it is for.
func (p *vcPlay) issue(file string) {
	p.t.Helper()
	c := &bus.Command{}
	readManifest(p.t, "vcjob", file, c)
	c.Namespace = p.ns
	c.OwnerReferences[0].UID, c.TargetObject.UID = p.job.UID, p.job.UID
	_, err := p.vc.Commands(p.ns).Create(p.ctx, c, metav1.CreateOptions{})
	p.must(err)
}

// TestPublishedVolcanoJobsDoWhatTheyDoInVolcano runs manifests that other projects publish. What must come of each was seen with
// Volcano at ed72c7c81.
func TestPublishedVolcanoJobsDoWhatTheyDoInVolcano(t *testing.T) {
	pl := plane.Start(t, plane.Options{})
	vc, err := client.New(pl.Config)
	if err != nil {
		t.Fatal(err)
	}
	queue := &scheduling.Queue{}
	readManifest(t, "vcjob", "queue.yaml", queue)
	awaitAdmission(t, vc)
	if _, err := vc.Queues().Create(t.Context(), queue, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const (
		pending, running, restarting, failed = batch.Pending, batch.Running, batch.Restarting, batch.Failed
		completing, completed                = batch.Completing, batch.Completed
	)
	cases := map[string]func(p *vcPlay){
		"completed.yaml": func(p *vcPlay) {
			p.apply()
			p.ends("Completed succeeded=1", pending, running, completed)
			if got := p.log("volcano-job-completed-worker-0"); got != "completed" {
				p.t.Errorf("it has printed %q", got)
			}
		},
		"running.yaml": func(p *vcPlay) { // and the two Commands for it
			p.apply()
			p.becomes("Running running=1")
			first := p.pods()[0].UID
			if g := p.group(); g.Spec.Queue != "volcano-lab-queue" || g.Spec.MinMember != 1 {
				p.t.Errorf("its PodGroup is %+v", g.Spec)
			}
			p.issue("command-abort.yaml")
			p.ends("Aborted", pending, running, batch.Aborting, batch.Aborted)
			if n := p.podNames(); n != "" {
				p.t.Errorf("pods are left: %s", n)
			}
			p.awaitEvent("CommandIssued", "AbortJob")
			p.awaitEvent("ExecuteAction", "AbortJob")
			p.issue("command-resume.yaml")
			j := p.becomes("Running retries=1 running=1")
			p.went(j, batch.Aborting, batch.Aborted, restarting, pending, running)
			if p.pods()[0].UID == first {
				p.t.Error("the pod is the old one")
			}
			commands, err := p.vc.Commands(p.ns).List(p.ctx, metav1.ListOptions{})
			p.must(err)
			if len(commands.Items) > 0 {
				p.t.Errorf("%d Commands are left", len(commands.Items))
			}
		},
		"retry-until-failed.yaml": func(p *vcPlay) {
			p.apply()
			// A pod that fails at once need not be seen running, neither the first nor the second.
			j := p.becomes("Failed retries=2 failed=1")
			var last []batch.JobPhase
			for _, c := range j.Status.Conditions {
				last = append(last, c.Status)
			}
			if i, n := slices.Index(last, pending), len(last); i < 0 || i > 1 || !slices.Equal(last[n-2:], []batch.JobPhase{restarting, failed}) {
				p.t.Errorf("it has gone through %q, want pending and perhaps running, then restarting and failed", last)
			}
			p.ends("Failed retries=2 failed=1", last...)
			if pod := p.pods()[0]; pod.Annotations[batch.VersionKey] != "1" || pod.DeletionTimestamp != nil {
				p.t.Errorf("the pod that is kept is of version %s, deleted %v", pod.Annotations[batch.VersionKey], pod.DeletionTimestamp)
			}
		},
		"depends-on-chain.yaml": func(p *vcPlay) {
			for i := 1; i <= 3; i++ {
				p.runs(fmt.Sprintf("job-nginx%d", i), "sleep", "8")
			}
			p.apply()
			p.ends("Completed succeeded=11", pending, running, completed)
			began := map[string][]metav1.Time{} // of the pods of each task
			for _, pod := range p.pods() {
				began[pod.Labels[batch.TaskKey]] = append(began[pod.Labels[batch.TaskKey]], pod.Status.ContainerStatuses[0].State.Terminated.StartedAt)
			}
			for _, pod := range p.pods() {
				if before := began[map[string]string{"job-nginx2": "job-nginx1", "job-nginx3": "job-nginx2"}[pod.Labels[batch.TaskKey]]]; slices.ContainsFunc(before, func(t metav1.Time) bool { return pod.CreationTimestamp.Before(&t) }) {
					p.t.Errorf("pod %s was made before what it depends on ran", pod.Name)
				}
			}
		},
		"min-success.yaml": func(p *vcPlay) {
			p.runs("task", "sleep", "3")
			p.runs("redis", "sleep", "3600")
			p.apply()
			p.ends("Completed succeeded=5", pending, running, completed)
			if want := "test-job-task-0 test-job-task-1 test-job-task-2 test-job-task-3 test-job-task-4"; p.podNames() != want {
				p.t.Errorf("pods %s, want %s", p.podNames(), want)
			}
		},
		"lifecycle-events.yaml": func(p *vcPlay) {
			p.runs("ps", "sh", "-c", "sleep 2; exit 1")
			p.runs("worker", "sleep", "3600")
			p.apply()
			j := p.ends("Failed retries=3 failed=1", pending, running, restarting, failed)
			if j.Status.Version < 2 || p.podNames() != "tensorflow-dist-mnist-ps-0" {
				p.t.Errorf("version %d, pods %s", j.Status.Version, p.podNames())
			}
		},
		"partitions.yaml": func(p *vcPlay) {
			p.runs("t0", "sleep", "3600")
			p.apply()
			p.becomes("Running running=8")
			for _, pod := range p.pods() {
				want := "0"
				if pod.Labels[batch.IndexKey] >= "4" {
					want = "1"
				}
				if pod.Labels[batch.PartitionKey] != want {
					p.t.Errorf("pod %s is of partition %s", pod.Name, pod.Labels[batch.PartitionKey])
				}
			}
			spec := p.group().Spec
			if spec.MinMember != 4 || !maps.Equal(spec.MinTaskMember, map[string]int32{"t0": 8}) || (*spec.MinResources).Cpu().String() != "160m" {
				p.t.Errorf("PodGroup %+v", spec)
			}
			one, two, four := 1, 2, int32(4)
			if diff := cmp.Diff(&scheduling.NetworkTopologySpec{Mode: "hard", HighestTierAllowed: &two}, spec.NetworkTopology); diff != "" {
				p.t.Errorf("topology (-want +got):\n%s", diff)
			}
			want := []scheduling.SubGroupPolicySpec{{
				Name: "t0", SubGroupSize: &four, NetworkTopology: &scheduling.NetworkTopologySpec{Mode: "hard", HighestTierAllowed: &one},
				LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{batch.TaskKey: "t0"}},
				MatchLabelKeys: []string{batch.PartitionKey}, MinSubGroups: new(int32),
			}}
			if diff := cmp.Diff(want, spec.SubGroupPolicy); diff != "" {
				p.t.Errorf("groups within (-want +got):\n%s", diff)
			}
		},
		"tensorflow-env-svc.yaml": func(p *vcPlay) {
			p.runs("ps", "sleep", "3600")
			p.runs("worker", "sh", "-c", "cat /etc/volcano/*.host; echo; echo $VK_TASK_INDEX; sleep 3")
			p.apply()
			p.ends("Completed succeeded=2", pending, running, completing, completed)
			for i, want := range []string{"0", "1"} {
				const hosts = "tensorflow-dist-mnist-ps-0.tensorflow-dist-mnist" + "tensorflow-dist-mnist-worker-0.tensorflow-dist-mnist\n" +
					"tensorflow-dist-mnist-worker-1.tensorflow-dist-mnist\n"
				if got := p.log(fmt.Sprintf("tensorflow-dist-mnist-worker-%d", i)); got != hosts+want {
					p.t.Errorf("worker %d has printed\n%s", i, got)
				}
			}
		},
		"rejected-min-available.yaml": func(p *vcPlay) {
			if why := p.refused(); !strings.Contains(why, "job 'minAvailable' should not be greater than total replicas in tasks") {
				p.t.Errorf("it is refused because %s", why)
			}
		},
		"rejected-volumes.yaml": playVolumes,
	}
	others := []string{"queue.yaml", "command-abort.yaml", "command-resume.yaml"} // for other cases
	files, err := os.ReadDir(filepath.Join("testdata", "manifests", "vcjob"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("file", func(t *testing.T) {
		for _, file := range files {
			play := cases[file.Name()]
			if play == nil {
				if !slices.Contains(others, file.Name()) {
					t.Errorf("%s is not run", file.Name())
				}
				continue
			}
			t.Run(strings.TrimSuffix(file.Name(), ".yaml"), func(t *testing.T) {
				t.Parallel()
				p := newVCPlay(t, pl.Client(), vc, "manifest-"+strings.TrimSuffix(file.Name(), ".yaml"))
				readManifest(t, "vcjob", file.Name(), p.job)
				p.job.Namespace = p.ns
				play(p)
			})
		}
	})
}

// playVolumes tries the example of volumes, which is refused twice over, and what is left of it when its mistakes are taken out.
func playVolumes(p *vcPlay) {
	delete(p.job.Spec.Plugins, "ssh")
	p.runs("default-nginx", "sh", "-c", "echo $VC_TASK_INDEX >> /myoutput/seen; sleep 3")
	if why := p.refused(); !strings.Contains(why, "either VolumeClaim or VolumeClaimName must be specified") {
		p.t.Errorf("it is refused because %s", why)
	}
	p.job.Spec.Volumes = p.job.Spec.Volumes[1:]
	if why := p.refused(); !strings.Contains(why, "conflict: If you want to use an existing PVC, just specify VolumeClaimName") {
		p.t.Errorf("with one volume it is refused because %s", why)
	}

	// Its priority class does not exist.
	whole := p.job.DeepCopy()
	p.job.Name, p.job.Spec.Volumes = "prior", nil
	p.apply()
	p.await("waiting for a priority class", func(j *batch.Job) bool {
		return j.Status.State.Phase == batch.Pending && strings.Contains(j.Status.State.Message, "no PriorityClass with name high-priority was found")
	})
	if g := p.group(); g.Status.Phase != scheduling.GroupInqueue || len(p.pods()) > 0 {
		p.t.Errorf("its PodGroup is %s, its pods are %s", g.Status.Phase, p.podNames())
	}
	p.must(p.vc.Jobs(p.ns).Delete(p.ctx, "prior", metav1.DeleteOptions{}))

	// A claim that does not exist is waited for, with no PodGroup.
	p.job = whole.DeepCopy()
	p.job.Name, p.job.Spec.PriorityClassName, p.job.Spec.Volumes[0].VolumeClaim = "missing", "", nil
	p.apply()
	p.awaitEvent("PVCError", "pvc testvolumeclaimname is not found, the job will be in the Pending state until the PVC is created")
	p.await("waiting for a claim", func(j *batch.Job) bool {
		return j.Status.State.Phase == batch.Pending && j.Status.State.Reason == "PVCError"
	})
	if _, err := p.vc.PodGroups(p.ns).Get(p.ctx, scheduling.JobGroupName("missing", p.job.UID), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		p.t.Errorf("it has a PodGroup (%v)", err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "testvolumeclaimname"}, Spec: *whole.Spec.Volumes[0].VolumeClaim.DeepCopy()}
	claim.Spec.StorageClassName = nil
	_, err := p.kube.CoreV1().PersistentVolumeClaims(p.ns).Create(p.ctx, claim, metav1.CreateOptions{})
	p.must(err)
	p.ends("Completed succeeded=6", batch.Pending, batch.Running, batch.Completed)
	p.remove("missing")
	if _, err := p.kube.CoreV1().PersistentVolumeClaims(p.ns).Get(p.ctx, claim.Name, metav1.GetOptions{}); err != nil {
		p.t.Errorf("the claim that somebody else has made is gone: %v", err)
	}

	// A claim that is only described is made, bound, mounted in all pods, and goes with the Job.
	p.job = whole.DeepCopy()
	p.job.Spec.PriorityClassName, p.job.Spec.Volumes[0].VolumeClaimName, p.job.Spec.Volumes[0].VolumeClaim.StorageClassName = "", "", nil
	p.apply()
	j := p.ends("Completed succeeded=6", batch.Pending, batch.Running, batch.Completed)
	name := j.Spec.Volumes[0].VolumeClaimName
	if !strings.HasPrefix(name, "test-job-pvc-") || j.Status.ControlledResources["volume-pvc-"+name] != name {
		p.t.Errorf("the claim is called %q, and the Job has %v", name, j.Status.ControlledResources)
	}
	made, err := p.kube.CoreV1().PersistentVolumeClaims(p.ns).Get(p.ctx, name, metav1.GetOptions{})
	p.must(err)
	if made.Status.Phase != corev1.ClaimBound || !metav1.IsControlledBy(made, j) {
		p.t.Errorf("the claim is %s and belongs to %v", made.Status.Phase, made.OwnerReferences)
	}
	for _, pod := range p.pods() {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name
		}) {
			p.t.Errorf("pod %s does not have the claim", pod.Name)
		}
	}
	p.remove("test-job")
	p.awaitGone("the claim", func() error {
		_, err := p.kube.CoreV1().PersistentVolumeClaims(p.ns).Get(p.ctx, name, metav1.GetOptions{})
		return err
	})
}
