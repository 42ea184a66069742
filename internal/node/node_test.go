// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/drover-dev/drover/internal/node/process"
)

const (
	never     = corev1.RestartPolicyNever
	onFailure = corev1.RestartPolicyOnFailure
	always    = corev1.RestartPolicyAlways
)

func check(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAPodThatEndsAtOnceCostsOneWrite(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", never, "c: exit 0"))
		check(t, "writes", []string{"Succeeded"}, w.statusWrites("p"))
		w.pass(time.Minute)
		check(t, "writes after a minute", []string{"Succeeded"}, w.statusWrites("p"))
		check(t, "events", []string(nil), w.events("p"))
		check(t, "files", []string{"logs/ns_p_uid-p"}, w.files())
	})
}

func TestAPodThatRunsForAWhileCostsTwoWrites(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", never, "c: sleep 5s code 3"))
		w.pass(time.Second)
		check(t, "writes while it runs", []string{"Running"}, w.statusWrites("p"))
		w.pass(time.Hour)
		check(t, "writes", []string{"Running", "Failed"}, w.statusWrites("p"))
		check(t, "container", "Error 3", state(w.pod("p"), "c"))
	})
}

func TestContainersStartAndEndInOrder(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", never, "init1: sleep 2s", "side1: run", "side2: run", "init2: sleep 1s", "main: sleep 4s", "main2: sleep 5s"))
		w.pass(time.Minute)
		check(t, "story", []string{
			"0s start init1.0",
			"2s start side1.0",
			"2s start side2.0",
			"2s start init2.0",
			"3s start main.0",
			"3s start main2.0",
			"8s terminated side2.0",
			"8s terminated side1.0",
		}, w.rt.story())
		check(t, "phase", corev1.PodSucceeded, w.pod("p").Status.Phase)
	})
}

func TestAContainerThatKeepsFailingWaitsLongerEachTime(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", onFailure, "c: exit 1"))
		w.pass(80 * time.Second)
		check(t, "story", []string{"0s start c.0", "0s start c.1", "10s start c.2", "30s start c.3", "70s start c.4"}, w.rt.story())
		pod := w.pod("p")
		check(t, "container", "waiting: CrashLoopBackOff", state(pod, "c"))
		s := pod.Status.ContainerStatuses[0]
		check(t, "restarts", int32(4), s.RestartCount)
		check(t, "message", "back-off 1m20s restarting failed container=c pod=p_ns(uid-p)", s.State.Waiting.Message)
		check(t, "last exit code", int32(1), s.LastTerminationState.Terminated.ExitCode)
		check(t, "events", []string{"BackOff: Back-off restarting failed container c in pod p_ns(uid-p)"}, unique(w.events("p")))
		if n := len(w.rt.List()); n != 2 {
			t.Errorf("the runtime keeps %d containers, want the last and the one before", n)
		}
	})
}

func unique(list []string) []string {
	var u []string
	for _, s := range list {
		if len(u) == 0 || u[len(u)-1] != s {
			u = append(u, s)
		}
	}
	return u
}

func TestDeletion(t *testing.T) {
	cases := map[string]struct {
		container string
		grace     int64
		want      []string
		end       string
	}{
		"a container that listens ends at once": {
			container: "c: run", grace: 30,
			want: []string{"0s start c.0", "5s terminated c.0"}, end: "Error 143",
		},
		"a container that needs time gets it": {
			container: "c: slow 7s", grace: 30,
			want: []string{"0s start c.0", "5s terminated c.0"}, end: "Completed 0",
		},
		"a container that does not listen is killed": {
			container: "c: stubborn", grace: 10,
			want: []string{"0s start c.0", "5s terminated c.0", "15s killed c.0"}, end: "Error 137",
		},
		"every container gets two seconds": {
			container: "c: stubborn", grace: 1,
			want: []string{"0s start c.0", "5s terminated c.0", "7s killed c.0"}, end: "Error 137",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				w.create(newPod("p", always, tc.container))
				w.pass(5 * time.Second)
				w.deletePod("p", tc.grace)
				w.pass(time.Minute)
				check(t, "story", tc.want, w.rt.story())
				if pod := w.pod("p"); pod != nil {
					t.Errorf("the object is still there: %+v", pod.Status)
				}
				last := lastStatus(w, "p")
				check(t, "last status", tc.end, state(last, "c"))
				check(t, "files", []string(nil), w.files())
				check(t, "containers", 0, len(w.rt.List()))
			})
		})
	}
}

// lastStatus returns the last version of a pod that was written.
func lastStatus(w *world, name string) *corev1.Pod {
	var last *corev1.Pod
	for _, a := range w.client.Actions() {
		if u, ok := a.(ktesting.UpdateAction); ok && a.GetSubresource() == "status" {
			if pod, ok := u.GetObject().(*corev1.Pod); ok && pod.Name == name {
				last = pod
			}
		}
	}
	return last
}

func TestTheObjectIsDeletedOnlyIfItIsStillTheSame(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", always, "c: run"))
		w.deletePod("p", 30)
		w.pass(time.Second)
		for _, a := range w.client.Actions() {
			if d, ok := a.(ktesting.DeleteActionImpl); ok && d.GetResource().Resource == "pods" {
				o := d.DeleteOptions
				if o.Preconditions == nil || *o.Preconditions.UID != "uid-p" || *o.GracePeriodSeconds != 0 {
					t.Errorf("delete options = %+v", o)
				}
				return
			}
		}
		t.Error("the object was not deleted")
	})
}

func TestAGracePeriodCanBeShortened(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", always, "c: stubborn"))
		w.deletePod("p", 300)
		w.pass(10 * time.Second)
		w.deletePod("p", 15)
		w.pass(time.Minute)
		check(t, "story", []string{"0s start c.0", "0s terminated c.0", "15s killed c.0"}, w.rt.story())
	})
}

func TestAPodWhoseObjectIsGoneIsEnded(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", always, "c: stubborn"))
		w.pass(time.Second)
		if err := w.client.CoreV1().Pods("ns").Delete(context.Background(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Minute)
		check(t, "story", []string{"0s start c.0", "1s terminated c.0", "3s killed c.0"}, w.rt.story())
		check(t, "files", []string(nil), w.files())
		check(t, "containers", 0, len(w.rt.List()))
	})
}

func TestAFinishedPodsLogsStayAsLongAsItsObject(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", never, "c: exit 0"))
		path := filepath.Join(w.dir, "logs", "ns_p_uid-p")
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Hour)
		check(t, "files", []string{"logs/ns_p_uid-p"}, w.files())
		if err := w.client.CoreV1().Pods("ns").Delete(context.Background(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		check(t, "files", []string(nil), w.files())
	})
}

func TestAPodPastItsDeadlineFails(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		pod := newPod("p", never, "c: run")
		seconds := int64(60)
		pod.Spec.ActiveDeadlineSeconds = &seconds
		w.create(pod)
		w.pass(2 * time.Minute)
		got := w.pod("p").Status
		check(t, "story", []string{"0s start c.0", "60s terminated c.0"}, w.rt.story())
		check(t, "phase", corev1.PodFailed, got.Phase)
		check(t, "reason", "DeadlineExceeded", got.Reason)
		check(t, "events", []string{"DeadlineExceeded: Pod was active on the node longer than the specified deadline"}, w.events("p"))
	})
}

func TestAPodWaitsForItsConfigMapAndSecret(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		pod := newPod("p", never, "c: exit 0")
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "cm", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}},
			{Name: "sec", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "late"}}},
		}
		w.create(pod)
		w.pass(10 * time.Minute)
		check(t, "story", []string(nil), w.rt.story())
		check(t, "container", "waiting: ContainerCreating", state(w.pod("p"), "c"))
		check(t, "events", []string{`FailedMount: MountVolume.SetUp failed for volume "cm" : configmap "late" not found`}, unique(w.events("p")))
		meta := metav1.ObjectMeta{Namespace: "ns", Name: "late"}
		if _, err := w.client.CoreV1().Secrets("ns").Create(context.Background(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.CoreV1().ConfigMaps("ns").Create(context.Background(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * time.Second)
		check(t, "phase", corev1.PodSucceeded, w.pod("p").Status.Phase)
	})
}

func TestAVolumeFollowsItsConfigMap(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"k": "old"}}
		api := w.client.CoreV1().ConfigMaps("ns")
		if _, err := api.Create(context.Background(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := newPod("p", never, "c: run")
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}}}
		w.create(pod)
		w.pass(5 * time.Second)
		path := filepath.Join(w.dir, "files", "uid-p", "volumes", "configmap", "v", "k")
		read := func() string {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		check(t, "file", "old", read())
		cm = cm.DeepCopy()
		cm.Data["k"] = "new"
		if _, err := api.Update(context.Background(), cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		check(t, "file after the change", "new", read())
		if err := api.Delete(context.Background(), "cm", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Minute)
		check(t, "file after the deletion", "new", read())
	})
}

func TestAnImageThatIsInNoTable(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		pod := newPod("p", never, "c: ")
		pod.Spec.Containers[0].Image = "registry.example/app:v1"
		w.create(pod)
		w.pass(time.Second)
		check(t, "container", "waiting: ErrImagePull", state(w.pod("p"), "c"))
		w.pass(time.Minute)
		got := w.pod("p")
		check(t, "container", "waiting: ImagePullBackOff", state(got, "c"))
		message := got.Status.ContainerStatuses[0].State.Waiting.Message
		if !strings.Contains(message, "give the container a command") || !strings.HasPrefix(message, `Back-off pulling image "registry.example/app:v1": ErrImagePull: `) {
			t.Errorf("message = %s", message)
		}
		for _, want := range []string{"Failed: Failed to pull image", "Failed: Error: ErrImagePull", "BackOff: Back-off pulling image"} {
			if !strings.Contains(strings.Join(w.events("p"), "\n"), want) {
				t.Errorf("no event %q in %q", want, w.events("p"))
			}
		}
		w.deletePod("p", 30)
		w.pass(time.Second)
		if w.pod("p") != nil {
			t.Error("a pod that waits for its image cannot be deleted")
		}
	})
}

func TestAnImageNameThatNobodyHasFilledInYet(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		for name, command := range map[string]string{"with": "c: exit 0", "without": "c: "} {
			pod := newPod(name, never, command)
			pod.Spec.Containers[0].Image = "registry.example/PROJECT_ID/app"
			w.create(pod)
		}
		w.pass(time.Second)
		check(t, "container with a command", "Completed 0", state(w.pod("with"), "c"))
		check(t, "container without one", "waiting: InvalidImageName", state(w.pod("without"), "c"))
	})
}

func TestACommandThatDoesNotExist(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", never, "c: nocommand"))
		w.pass(time.Second)
		got := w.pod("p")
		check(t, "phase", corev1.PodFailed, got.Status.Phase)
		check(t, "container", "StartError 128", state(got, "c"))
		check(t, "events", []string{`Failed: Error: exec: "nocommand": executable file not found in $PATH: images are not pulled on this node, a container's command is a program of this machine`}, w.events("p"))
	})
}

func TestARuntimeThatFailsIsAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.rt.failStarts = []error{errors.New("no space left"), errors.New("no space left")}
	}, func(w *world) {
		w.create(newPod("p", never, "c: exit 0"))
		w.pass(400 * time.Millisecond)
		check(t, "container", "waiting: CreateContainerError", state(w.pod("p"), "c"))
		w.pass(10 * time.Second)
		check(t, "phase", corev1.PodSucceeded, w.pod("p").Status.Phase)
		check(t, "story", []string{"1.5s start c.0"}, w.rt.story())
	})
}

func TestProbes(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		began := time.Now()
		after := func(d time.Duration) func() (int, error) {
			return func() (int, error) {
				if time.Since(began) >= d {
					return 0, nil
				}
				return 1, nil
			}
		}
		w.rt.execs["started"] = after(3 * time.Second)
		w.rt.execs["ready"] = after(6 * time.Second)
		w.rt.execs["alive"] = func() (int, error) {
			if d := time.Since(began); d > 20*time.Second && d < 23500*time.Millisecond {
				return 1, nil
			}
			return 0, nil
		}
		pod := newPod("p", always, "c: run")
		probe := func(command string) *corev1.Probe {
			return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
		}
		c := &pod.Spec.Containers[0]
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = probe("started"), probe("ready"), probe("alive")
		c.LivenessProbe.FailureThreshold = 3
		seconds := int64(5)
		c.LivenessProbe.TerminationGracePeriodSeconds = &seconds
		w.create(pod)
		flags := func() [2]bool {
			s := w.pod("p").Status.ContainerStatuses[0]
			return [2]bool{*s.Started, s.Ready}
		}
		w.pass(2 * time.Second)
		check(t, "started, ready after 2s", [2]bool{false, false}, flags())
		w.pass(2 * time.Second)
		check(t, "started, ready after 4s", [2]bool{true, false}, flags())
		w.pass(3 * time.Second)
		check(t, "started, ready after 7s", [2]bool{true, true}, flags())
		w.pass(time.Minute)
		check(t, "story", []string{"0s start c.0", "23s terminated c.0", "23s start c.1"}, w.rt.story())
		check(t, "started, ready in the end", [2]bool{true, true}, flags())
		if all := strings.Join(w.events("p"), "\n"); !strings.Contains(all, "Killing: Container c failed liveness probe, will be restarted") || !strings.Contains(all, "Unhealthy: Liveness probe failed") {
			t.Errorf("events: %s", all)
		}
	})
}

func TestHooks(t *testing.T) {
	hook := func(command string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
	}
	inWorld(t, nil, func(w *world) {
		w.rt.execs["postStart"] = func() (int, error) { time.Sleep(3 * time.Second); return 0, nil }
		w.rt.execs["preStop"] = func() (int, error) { time.Sleep(4 * time.Second); return 0, nil }
		pod := newPod("p", always, "c: run", "d: run")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook("postStart"), PreStop: hook("preStop")}
		w.create(pod)
		w.pass(2 * time.Second)
		check(t, "while the hook runs", "waiting: ContainerCreating", state(w.node.current(w.pod("p")), "c"))
		w.pass(8 * time.Second)
		check(t, "after the hook", "running", state(w.pod("p"), "c"))
		w.deletePod("p", 30)
		w.pass(time.Minute)
		check(t, "story", []string{
			"0s start c.0", "0s exec postStart in c.0", "3s start d.0",
			"10s terminated d.0", "10s exec preStop in c.0", "14s terminated c.0",
		}, sortedSecond(w.rt.story(), 3))
	})
}

// sortedSecond puts the two entries at i and i+1, which happen at the same time, in a fixed order.
func sortedSecond(story []string, i int) []string {
	if len(story) > i+1 && strings.Contains(story[i], "exec") {
		story[i], story[i+1] = story[i+1], story[i]
	}
	return story
}

func TestAHookThatHangsDoesNotKeepAPodAlive(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		pod := newPod("p", always, "c: run")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"hang"}}}}
		w.create(pod)
		w.deletePod("p", 10)
		w.pass(time.Minute)
		check(t, "story", []string{"0s start c.0", "10s terminated c.0"}, w.rt.story())
	})
}

func TestAPostStartHookThatFailsEndsItsContainer(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.rt.execs["postStart"] = func() (int, error) { return 1, nil }
		pod := newPod("p", never, "c: run")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"postStart"}}}}
		w.create(pod)
		w.pass(time.Second)
		check(t, "story", []string{"0s start c.0", "0s exec postStart in c.0", "0s terminated c.0"}, w.rt.story())
		check(t, "phase", corev1.PodFailed, w.pod("p").Status.Phase)
		check(t, "events", []string{"FailedPostStartHook: PostStartHook failed", "Killing: FailedPostStartHook"}, w.events("p"))
	})
}

func TestAPodThatFillsItsEmptyDirIsEvicted(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		pod := newPod("p", never, "c: stubborn")
		limit := resource.MustParse("64Ki")
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
		w.create(pod)
		w.pass(30 * time.Second)
		check(t, "phase", corev1.PodRunning, w.pod("p").Status.Phase)
		path := filepath.Join(w.dir, "pods", "uid-p", "volumes", "empty-dir", "v", "big")
		if err := os.WriteFile(path, make([]byte, 200<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		w.pass(30 * time.Second)
		got := w.pod("p").Status
		check(t, "phase", corev1.PodFailed, got.Phase)
		check(t, "reason", "Evicted", got.Reason)
		check(t, "message", `Usage of EmptyDir volume "v" exceeds the limit "64Ki". `, got.Message)
	})
}

func TestAPodThatDoesNotFitIsRefused(t *testing.T) {
	cases := map[string]struct {
		edit   func(*corev1.PodSpec)
		reason string
	}{
		"too many cores": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1000")}
		}, "OutOfcpu"},
		"too much memory": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("1000Ti")}
		}, "OutOfmemory"},
		"a pod of another system": {func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Windows} }, "PodOSNotSupported"},
		"a pod of other nodes":    {func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} }, "NodeAffinity"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				pod := newPod("p", never, "c: run")
				tc.edit(&pod.Spec)
				w.create(pod)
				got := w.pod("p").Status
				check(t, "phase", corev1.PodFailed, got.Phase)
				check(t, "reason", tc.reason, got.Reason)
				check(t, "story", []string(nil), w.rt.story())
			})
		})
	}
}

func TestOnlySoManyPods(t *testing.T) {
	inWorld(t, func(w *world) { w.cfg.MaxPods = 2 }, func(w *world) {
		w.create(newPod("a", never, "c: sleep 10s"))
		w.create(newPod("b", never, "c: run"))
		w.create(newPod("c", never, "c: run"))
		check(t, "the third pod", "OutOfpods", w.pod("c").Status.Reason)
		w.pass(20 * time.Second)
		w.create(newPod("d", never, "c: exit 0"))
		check(t, "a pod after the first has ended", corev1.PodSucceeded, w.pod("d").Status.Phase)
	})
}

func TestABurstOfPodsIsStartedAFewAtATime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.StartConcurrency = 3
		w.rt.delay = 100 * time.Millisecond
	}, func(w *world) {
		for i := range 30 {
			w.create(newPod("p"+string(rune('a'+i)), never, "c: exit 0"))
		}
		w.pass(time.Minute)
		check(t, "starts at the same time", 3, w.rt.most)
		for i := range 30 {
			name := "p" + string(rune('a'+i))
			check(t, "writes of "+name, []string{"Succeeded"}, w.statusWrites(name))
		}
	})
}

func TestAConflictIsDecidedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		conflicts := 2
		w.client.PrependReactor("update", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "status" || conflicts == 0 {
				return false, nil, nil
			}
			conflicts--
			return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("it has changed"))
		})
	}, func(w *world) {
		w.create(newPod("p", never, "c: exit 0"))
		w.pass(time.Second)
		check(t, "phase", corev1.PodSucceeded, w.pod("p").Status.Phase)
	})
}

func TestAnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		until := time.Now().Add(time.Minute)
		w.client.PrependReactor("update", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			return time.Now().Before(until), nil, errors.New("connection refused")
		})
	}, func(w *world) {
		w.create(newPod("p", never, "c: exit 7"))
		w.pass(50 * time.Second)
		check(t, "phase while it is away", corev1.PodPending, w.pod("p").Status.Phase)
		w.pass(30 * time.Second)
		check(t, "phase", corev1.PodFailed, w.pod("p").Status.Phase)
		check(t, "container", "Error 7", state(w.pod("p"), "c"))
	})
}

func TestRestartOfTheNode(t *testing.T) {
	cases := map[string]struct {
		pod       *corev1.Pod
		meanwhile func(w *world)
		story     []string
		phase     corev1.PodPhase
		end       string
	}{
		"a container that runs goes on": {
			pod:   newPod("p", never, "c: run"),
			story: []string{"0s start c.0"}, phase: corev1.PodRunning, end: "running",
		},
		"a container that ended meanwhile has its true exit code": {
			pod:       newPod("p", never, "c: run"),
			meanwhile: func(w *world) { w.rt.end("uid-p.c.0", 42, 0) },
			story:     []string{"0s start c.0"}, phase: corev1.PodFailed, end: "Error 42",
		},
		"a container that nobody saw end has failed and is not started again": {
			pod:       newPod("p", never, "c: run"),
			meanwhile: func(w *world) { w.rt.lose("uid-p.c.0") },
			story:     []string{"0s start c.0"}, phase: corev1.PodFailed, end: "ContainerStatusUnknown 137",
		},
		"a container that the runtime has forgotten has failed and is not started again": {
			pod:       newPod("p", never, "c: run"),
			meanwhile: func(w *world) { w.rt.lose("uid-p.c.0"); _ = w.rt.Remove(context.Background(), "uid-p.c.0") },
			story:     []string{"0s start c.0"}, phase: corev1.PodFailed, end: "ContainerStatusUnknown 137",
		},
		"a lost container is restarted where the policy says so": {
			pod:       newPod("p", onFailure, "c: run"),
			meanwhile: func(w *world) { w.rt.lose("uid-p.c.0") },
			story:     []string{"0s start c.0", "5s start c.1"}, phase: corev1.PodRunning, end: "running",
		},
		"back-off goes on": {
			pod:   newPod("p", onFailure, "c: sleep 1s code 1"),
			story: []string{"0s start c.0", "1s start c.1", "12s start c.2"}, phase: corev1.PodRunning, end: "waiting: CrashLoopBackOff",
		},
		"an init container that had ended does not run again": {
			pod:   newPod("p", never, "init1: exit 0", "c: run"),
			story: []string{"0s start init1.0", "0s start c.0"}, phase: corev1.PodRunning, end: "running",
		},
		"a pod that was deleted meanwhile is ended": {
			pod:       newPod("p", never, "c: run"),
			meanwhile: func(w *world) { w.deletePod("p", 30) },
			story:     []string{"0s start c.0", "5s terminated c.0"},
		},
		"a pod whose object went meanwhile is ended by its own grace period": {
			pod: newPod("p", never, "c: stubborn"),
			meanwhile: func(w *world) {
				if err := w.client.CoreV1().Pods("ns").Delete(context.Background(), "p", metav1.DeleteOptions{}); err != nil {
					w.t.Error(err)
				}
			},
			story: []string{"0s start c.0", "5s terminated c.0", "35s killed c.0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				w.create(tc.pod.DeepCopy())
				w.pass(5 * time.Second)
				w.restart(func() {
					if tc.meanwhile != nil {
						tc.meanwhile(w)
					}
				})
				w.pass(10 * time.Second)
				if tc.phase != "" {
					got := w.pod("p")
					check(t, "phase", tc.phase, got.Status.Phase)
					check(t, "container", tc.end, state(got, "c"))
				} else {
					w.pass(time.Minute)
					if w.pod("p") != nil {
						t.Error("the object is still there")
					}
					check(t, "containers", 0, len(w.rt.List()))
					check(t, "files", []string(nil), w.files())
				}
				check(t, "story", tc.story, w.rt.story())
			})
		})
	}
}

// A user saw a pod with restartPolicy Never run its command twice: the informer showed the pod as it was before its end.
func TestAFinishedPodDoesNotRunASecondTime(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.create(newPod("p", never, "c: exit 0"))
		w.pass(time.Second)
		late := w.pod("p")
		late.ResourceVersion = "1"
		late.Status = corev1.PodStatus{Phase: corev1.PodPending}
		w.node.mu.Lock()
		w.node.finished["uid-p"] = w.pod("p").ResourceVersion
		w.node.mu.Unlock()
		w.node.saw(context.Background(), late)
		w.pass(time.Second)
		check(t, "story", []string{"0s start c.0"}, w.rt.story())
	})
}

func TestLeftoversOfAnEarlierRunAreRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, dir := range []string{"pods/gone/volumes", "files/gone", "logs/ns_gone_gone/c", "logs/not-ours"} {
			if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o700); err != nil {
				w.t.Fatal(err)
			}
		}
		id := identity{uid: "gone", namespace: "ns", name: "gone", container: "c", grace: 5 * time.Second}
		if _, err := w.rt.Start(context.Background(), process.Spec{ID: "gone.c.0", Labels: id.labels(), Args: []string{"run"}}); err != nil {
			w.t.Fatal(err)
		}
	}, func(w *world) {
		w.pass(time.Second)
		check(t, "files", []string{"logs/not-ours"}, w.files())
		check(t, "containers", 0, len(w.rt.List()))
		check(t, "story", []string{"0s start c.0", "0s terminated c.0"}, w.rt.story())
	})
}

func TestTheNodeObject(t *testing.T) {
	inWorld(t, func(w *world) {
		w.rt.features = process.Features{Isolation: process.None, Isolated: process.Feature{Reason: "not root"}, Memory: process.Feature{Available: true}, PIDs: process.Feature{Available: true}}
		w.cfg.Labels = map[string]string{"disk": "ssd"}
		w.cfg.Heartbeat = 10 * time.Second
	}, func(w *world) {
		get := func() *corev1.Node {
			node, err := w.client.CoreV1().Nodes().Get(context.Background(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return node
		}
		node := get()
		check(t, "label", "ssd", node.Labels["disk"])
		check(t, "host name", "n", node.Labels[corev1.LabelHostname])
		check(t, "limitations", "pods are not isolated from the host and from each other, and have no volumes at their mount paths: not root; "+
			"limits of CPU are not enforced: ", node.Annotations[annotationLimitations])
		var conditions []string
		for _, c := range node.Status.Conditions {
			conditions = append(conditions, string(c.Type))
		}
		check(t, "conditions", []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}, conditions)
		if cpu := node.Status.Capacity.Cpu(); cpu.IsZero() || node.Status.Allocatable.Memory().Cmp(*node.Status.Capacity.Memory()) >= 0 {
			t.Errorf("capacity %v, allocatable %v", node.Status.Capacity, node.Status.Allocatable)
		}
		w.pass(time.Second)
		w.client.ClearActions()
		w.pass(15 * time.Minute)
		writes := map[string]int{}
		for _, a := range w.client.Actions() {
			if a.GetVerb() != "get" {
				writes[a.GetVerb()+" "+a.GetResource().Resource+"/"+a.GetSubresource()]++
			}
		}
		if n := writes["update nodes/status"]; n > 4 {
			t.Errorf("%d status writes of an idle node in 15 minutes", n)
		}
		if n := writes["update leases/"]; n < 80 || n > 91 {
			t.Errorf("%d renewals of the lease in 15 minutes", n)
		}
		delete(writes, "update nodes/status")
		delete(writes, "update leases/")
		check(t, "other writes of an idle node", map[string]int{}, writes)
	})
}

func TestRegistrationTakesTheTaintOfNewNodesAway(t *testing.T) {
	have := &corev1.Node{}
	have.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}, {Key: "mine"}}
	merged, changed := merge(have, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}})
	check(t, "changed", true, changed)
	check(t, "taints", []corev1.Taint{{Key: "mine"}}, merged.Spec.Taints)
	_, changed = merge(merged, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}})
	check(t, "changed again", false, changed)
}

func TestRestartingAllContainers(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		pod := newPod("p", never, "init1: exit 0", "a: run", "b: sleep 5s code 42")
		policy := corev1.ContainerRestartPolicyNever
		pod.Spec.Containers[1].RestartPolicy = &policy
		pod.Spec.Containers[1].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		w.create(pod)
		w.pass(8 * time.Second)
		check(t, "story", []string{
			"0s start init1.0", "0s start a.0", "0s start b.0",
			"5s terminated a.0", "5s start init1.1", "5s start a.1", "5s start b.1",
		}, w.rt.story())
		got := w.pod("p")
		check(t, "phase", corev1.PodRunning, got.Status.Phase)
		check(t, "restarts", int32(1), got.Status.ContainerStatuses[0].RestartCount)
	})
}

func TestConfigValidateNamesEveryProblem(t *testing.T) {
	err := Config{Name: "No Name", IPs: []string{"x"}, Bind: "y", APIServer: "z", MaxPods: -1}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`name "No Name"`, `dir "" is not absolute`, `"x" is no IP address`, "bind:", "API server:", "API clients are missing", "must not be negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestKubeletsRoutineEventsAreToldOfPodsThatSomebodyMayLookAt(t *testing.T) {
	started := []string{"Created: Container created", "Pulled: Container image \"busybox\" already present on machine", "Started: Container started"}
	cases := map[string]struct {
		container string
		want      []string
	}{
		"one that runs":                        {"c: run", started},
		"one that has failed at once":          {"c: exit 1", started},
		"one that has succeeded at once":       {"c: exit 0", nil},
		"one that has succeeded after a while": {"c: sleep 3s", started},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) { w.cfg.RoutineAfter = time.Second }, func(w *world) {
				w.create(newPod("p", never, c.container))
				w.pass(10 * time.Second)
				check(t, "events", c.want, w.events("p"))
			})
		})
	}
}

// TestAPodThatAKilledAPIServerHasHalfDeletedGoes starts a node where the API server was killed after it had noted that a pod waits for
// nobody, and before it had deleted it.
func TestAPodThatAKilledAPIServerHasHalfDeletedGoes(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.restart(func() {
			for name, finalizers := range map[string][]string{"free": nil, "kept": {"example.com/keeps"}} {
				pod := newPod(name, corev1.RestartPolicyNever, "c: true")
				pod.Status.Phase, pod.Finalizers = corev1.PodFailed, finalizers
				now, grace := metav1.Now(), int64(0)
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
				w.create(pod)
			}
		})
		if w.pod("free") == nil {
			t.Error("it is deleted without giving the API server time to")
		}
		w.pass(10 * time.Second)
		if w.pod("free") != nil {
			t.Error("the pod that nothing keeps is still there")
		}
		if w.pod("kept") == nil {
			t.Error("a pod was deleted that a finalizer keeps")
		}
	})
}
