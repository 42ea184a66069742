// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/simulate"
	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// vcJob returns a Job with the given changes.
func vcJob(changes ...func(*batch.Job)) *batch.Job {
	j := &batch.Job{}
	for _, change := range changes {
		change(j)
	}
	return j
}

func vcTask(name string, replicas int32, changes ...func(*batch.TaskSpec)) func(*batch.Job) {
	return func(j *batch.Job) {
		t := batch.TaskSpec{Name: name, Replicas: replicas}
		t.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox"}}
		for _, change := range changes {
			change(&t)
		}
		j.Spec.Tasks = append(j.Spec.Tasks, t)
	}
}

func vcPolicy(event batch.Event, action batch.Action) func(*batch.Job) {
	return func(j *batch.Job) {
		j.Spec.Policies = append(j.Spec.Policies, batch.LifecyclePolicy{Event: event, Action: action})
	}
}

func vcDelayed(event batch.Event, action batch.Action, d time.Duration) func(*batch.Job) {
	return func(j *batch.Job) {
		j.Spec.Policies = append(j.Spec.Policies, batch.LifecyclePolicy{Event: event, Action: action, Timeout: &metav1.Duration{Duration: d}})
	}
}

func TestVCStoryOrdinaryLife(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.turn("a Job of two pods with the plugins env and svc is submitted", func() {
		w.submit(vcJob(vcTask("t", 2), func(j *batch.Job) { j.Spec.Plugins = map[string][]string{"env": {}, "svc": {}} }))
	})
	w.after(4 * time.Second)
	w.turn("the scheduler admits its PodGroup", w.admit)
	w.turn("both pods run", w.startAll)
	w.turn("one succeeds", func() { w.cluster.Finish(w.mustPod("t", 0), 0) })
	w.after(time.Second)
	w.turn("the other one succeeds", func() { w.cluster.Finish(w.mustPod("t", 1), 0) })
	w.after(time.Minute)
	w.end()
}

func TestVCStoryRestartJobUntilRetriesAreUsedUp(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.turn("a Job is submitted that restarts when a pod fails, maxRetry 2", func() {
		w.submit(vcJob(vcTask("bad", 1), vcTask("good", 1), vcPolicy("PodFailed", "RestartJob"), func(j *batch.Job) { j.Spec.MaxRetry = 2 }))
	})
	w.turn("admitted", w.admit)
	w.turn("both run", w.startAll)
	w.turn("bad fails", func() { w.cluster.Finish(w.mustPod("bad", 0), 3) })
	w.turn("the good one has ended", w.kubelet)
	w.turn("admitted", w.admit)
	w.turn("both run", w.startAll)
	w.turn("bad fails again", func() { w.cluster.Finish(w.mustPod("bad", 0), 3) })
	w.turn("the good one has ended", w.kubelet)
	w.after(time.Minute)
	w.end()
}

func TestVCStoryRestartPod(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.turn("a Job of three pods, two needed, that restarts pods which fail", func() {
		w.submit(vcJob(vcTask("t", 3), vcPolicy("PodFailed", "RestartPod"), func(j *batch.Job) {
			j.Spec.Plugins = map[string][]string{"svc": {}}
		}))
	})
	w.turn("admitted", w.admit)
	w.turn("all run", w.startAll)
	w.turn("t-1 fails", func() { w.cluster.Finish(w.mustPod("t", 1), 1) })
	w.turn("the new pod runs", w.startAll)
	w.after(time.Second)
	w.end()
}

func TestVCStoryAbortAndResume(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.turn("a Job of two pods", func() { w.submit(vcJob(vcTask("t", 2))) })
	w.turn("admitted", w.admit)
	w.turn("all run", w.startAll)
	w.turn("one succeeds", func() { w.cluster.Finish(w.mustPod("t", 0), 0) })
	w.turn("AbortJob is issued", func() { w.command("stop", "AbortJob") })
	w.turn("the pod has ended", w.kubelet)
	w.after(time.Second)
	w.turn("ResumeJob is issued", func() { w.command("go", "ResumeJob") })
	w.turn("admitted", w.admit)
	w.turn("the new pod runs", w.startAll)
	w.turn("and succeeds", func() { w.cluster.Finish(w.mustPod("t", 1), 0) })
	w.end()
}

func TestVCStoryDelayedActions(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.turn("a Job whose pods may wait for ten seconds", func() {
		w.submit(vcJob(vcTask("t", 2, func(t *batch.TaskSpec) { t.MinAvailable = ptr.To[int32](1) }), vcDelayed("PodPending", "RestartPod", 10*time.Second)))
	})
	w.turn("admitted", w.admit)
	w.turn("t-0 runs", func() { w.cluster.Start(w.mustPod("t", 0), true) })
	w.after(6 * time.Second)
	w.turn("the controller starts again", w.start)
	w.after(3 * time.Second)
	w.after(4 * time.Second)
	w.turn("the new t-1 runs", w.startAll)
	w.after(20 * time.Second)
	w.end()
}

func TestVCStoryQuota(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.cluster.Quota = 1
	w.turn("a Job of two pods in a namespace with room for one", func() { w.submit(vcJob(vcTask("t", 2))) })
	w.turn("admitted", w.admit)
	w.after(10 * time.Second)
	w.turn("ten minutes later there is room", func() { w.pass(10 * time.Minute); w.cluster.Quota = 2 })
	w.after(time.Minute)
	w.turn("both run", w.startAll)
	w.end()
}

func TestVCStoryPodWebhookDown(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.cluster.PodWebhookDown = true
	w.turn("a Job while nobody answers for the webhook of pods", func() { w.submit(vcJob(vcTask("t", 1))) })
	w.turn("admitted", w.admit)
	w.after(10 * time.Second)
	w.turn("ten minutes later somebody does", func() { w.pass(10 * time.Minute); w.cluster.PodWebhookDown = false })
	w.after(time.Minute)
	w.turn("it runs", w.startAll)
	w.end()
}

func TestVCStoryScaling(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.turn("a Job of two pods that restarts when a pod is evicted", func() {
		w.submit(vcJob(vcTask("t", 2), vcPolicy("PodEvicted", "RestartJob"), func(j *batch.Job) { j.Spec.Plugins = map[string][]string{"svc": {}} }))
	})
	w.turn("admitted", w.admit)
	w.turn("both run", w.startAll)
	w.turn("it grows to three", func() {
		w.edit(func(j *batch.Job) {
			j.Spec.MinAvailable, j.Spec.Tasks[0].Replicas, j.Spec.Tasks[0].MinAvailable = 3, 3, ptr.To[int32](3)
		})
	})
	w.turn("the third runs", w.startAll)
	w.turn("it shrinks to none", func() {
		w.edit(func(j *batch.Job) {
			j.Spec.MinAvailable, j.Spec.Tasks[0].Replicas, j.Spec.Tasks[0].MinAvailable = 0, 0, ptr.To[int32](0)
		})
	})
	w.turn("the pods have ended", w.kubelet)
	w.after(4 * time.Second)
	w.end()
}

func TestVCStoryDependencies(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.turn("train waits for prep", func() {
		w.submit(vcJob(vcTask("prep", 1), vcTask("train", 2, func(t *batch.TaskSpec) { t.DependsOn = &batch.DependsOn{Name: []string{"prep"}} }),
			func(j *batch.Job) { j.Spec.MinAvailable = 1 }))
	})
	w.turn("admitted", w.admit)
	w.after(4 * time.Second)
	w.turn("prep succeeds", func() { w.cluster.Finish(w.mustPod("prep", 0), 0) })
	w.turn("train runs", w.startAll)
	w.end()
}

func TestAJobThatGotPastAdmissionWithTooManyPodsIsToldOfAndLeftAlone(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	j := vcJob(vcTask("t", math.MaxInt32), func(j *batch.Job) { j.Spec.Plugins = map[string][]string{"svc": {}} })
	j.Namespace, j.Name = "default", "j"
	simulate.Add(w.cluster, j)
	w.settle()
	if want := "j Warning FailedCreate: The job has more than the 1000000 pods that a job may have"; len(w.events) != 1 || w.events[0] != want {
		t.Errorf("events %q, want %q", w.events, want)
	}
	if w.phase() != "" || len(w.cluster.Pods()) > 0 {
		t.Errorf("the Job is %q with %d pods", w.phase(), len(w.cluster.Pods()))
	}
}

func TestWhatSomebodyDeletesOfARunningJobIsMadeAgainBeforeItsNextPod(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.submit(vcJob(vcTask("t", 2), func(j *batch.Job) { j.Spec.Plugins = map[string][]string{"svc": {}} }))
	w.settle()
	w.admit()
	w.settle()
	w.startAll()
	w.settle()
	for _, o := range simulate.All[*corev1.ConfigMap](w.cluster) {
		must(t, w.cluster.DeleteObject(o, o.UID))
	}
	for _, o := range simulate.All[*corev1.Service](w.cluster) {
		must(t, w.cluster.DeleteObject(o, o.UID))
	}
	w.cluster.EvictPod(w.mustPod("t", 0), 0)
	w.kubelet()
	w.pass(time.Second)
	configs, services := len(simulate.All[*corev1.ConfigMap](w.cluster)), len(simulate.All[*corev1.Service](w.cluster))
	if w.pod("t", 0) == nil || configs != 1 || services != 1 {
		t.Errorf("there are %d ConfigMaps, %d Services and the pods %v", configs, services, w.podNames())
	}
	w.checkInvariants()
}

// TestAJobOfTenThousandPodsCostsLittleMoreThanTheirCreation counts requests from the submission of a Job to its end.
// A watch that was cut begins anew with what is there. That pods are gone is told after the cache has lost them, and by their last known
// state.
func TestARestartIsNotTakenForAnEvictionWhenTheWatchWasCutMeanwhile(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.submit(vcJob(vcTask("t", 2), vcPolicy("PodFailed", "RestartTask"), vcPolicy("PodEvicted", "AbortJob")))
	w.settle()
	w.admit()
	w.settle()
	w.startAll()
	w.settle()
	w.cluster.Finish(w.mustPod("t", 0), 1)
	w.tellPods(math.MaxInt)
	w.work(10) // marks both pods and has them deleted
	w.kubelet()
	if pods := w.podNames(); len(pods) > 0 {
		t.Fatalf("there are still the pods %v", pods)
	}
	w.seenPods = w.cluster.Version()
	gone := w.c.pods.List()
	for _, o := range gone {
		must(t, w.c.pods.Delete(o))
	}
	w.c.pods.Bookmark(fmt.Sprint(w.seenPods))
	w.c.queue.Add("default/j")
	w.tell(math.MaxInt)
	w.work(10)
	for _, o := range gone {
		w.c.podDeleted(o.(*corev1.Pod))
	}
	w.settle()
	w.admit()
	w.settle()
	w.startAll()
	w.pass(time.Second)
	if j := w.job(); j.Status.State.Phase != batch.Running || j.Status.RetryCount != 1 {
		t.Errorf("the Job is %s, want it to run again: %s", vcStatusLine(j), j.Status.State.Message)
	}
	w.checkInvariants()
}

func TestInARushAShortJobIsToldOfInOneWrite(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.others = calmSyncs
	w.start()
	w.submit(vcJob(vcTask("t", 1)))
	w.pass(time.Second)
	w.admit()
	w.pass(time.Second)
	if got := w.phase(); got != "" {
		t.Errorf("it is told of as %s while there is better to do", got)
	}
	w.startAll()
	w.cluster.Finish(w.mustPod("t", 0), 0)
	w.pass(time.Second)
	var phases []batch.JobPhase
	for _, c := range w.job().Status.Conditions {
		phases = append(phases, c.Status)
	}
	if diff := cmp.Diff([]batch.JobPhase{batch.Pending, batch.Running, batch.Completed}, phases); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if n := w.cluster.Requests()["PUT status"]; n != 1 {
		t.Errorf("its status is written %d times: %v", n, w.cluster.Requests())
	}
	w.checkInvariants()
}

func TestInARushThePodGroupOfAnEndedJobStaysForAWhile(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(w *vcWorld)
		wait time.Duration
	}{
		"until the end of the rush":          {func(w *vcWorld) { w.c.rush.leave(); w.c.rush.leave(); w.c.queue.Add("default/j") }, time.Second},
		"not for longer than a rush counts":  {func(*vcWorld) {}, longestRush},
		"and goes after a restart all alike": {func(w *vcWorld) { w.others = 0; w.start() }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVCWorld(t, VCJobConfig{})
			w.others = calmSyncs
			w.start()
			w.submit(vcJob(vcTask("t", 1)))
			w.pass(time.Second)
			w.admit()
			w.pass(time.Second)
			w.startAll()
			w.cluster.Finish(w.mustPod("t", 0), 0)
			w.pass(time.Second)
			if got := w.phase(); got != batch.Completed {
				t.Fatalf("it is %q, want Completed", got)
			}
			if w.groups() == 0 {
				t.Error("its PodGroup is deleted while there is better to do")
			}
			tc.end(w)
			w.pass(tc.wait)
			if w.groups() != 0 {
				t.Errorf("its PodGroup is there %v later", tc.wait)
			}
			w.checkInvariants()
		})
	}
}

func TestInARushThePodGroupOfAnEndedJobMakesRoomInItsQueue(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{Options: vcjob.Options{Own: true}})
	simulate.Add(w.cluster, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: scheduling.QueueSpec{Capability: corev1.ResourceList{"pods": resource.MustParse("1")}}})
	w.others = calmSyncs
	w.start()
	w.submit(vcJob(vcTask("t", 1), func(j *batch.Job) { j.Spec.Queue = "small" }))
	w.pass(time.Second)
	w.admit()
	w.pass(time.Second)
	w.startAll()
	w.cluster.Finish(w.mustPod("t", 0), 0)
	w.pass(time.Second)
	if got := w.phase(); got != batch.Completed {
		t.Fatalf("it is %q, want Completed", got)
	}
	if w.groups() != 0 {
		t.Error("others wait for the room of its PodGroup, which is still there")
	}
}

func TestInARushAJobThatWaitsIsToldOfInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(w *vcWorld)
		wait time.Duration
	}{
		"at the end of the rush":    {func(w *vcWorld) { w.c.rush.leave(); w.c.rush.leave(); w.c.queue.Add("default/j") }, time.Second},
		"before the rush has ended": {func(*vcWorld) {}, longestRush},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVCWorld(t, VCJobConfig{})
			w.others = calmSyncs
			w.start()
			w.submit(vcJob(vcTask("t", 1)))
			w.pass(time.Second)
			tc.end(w)
			w.pass(tc.wait)
			if got := w.phase(); got != batch.Pending {
				t.Errorf("after %v it is %q, want Pending", tc.wait, got)
			}
		})
	}
}

func TestAJobOfTenThousandPodsCostsLittleMoreThanTheirCreation(t *testing.T) {
	const pods = 10_000
	w := newVCWorld(t, VCJobConfig{})
	w.submit(vcJob(vcTask("t", pods), vcPolicy("PodFailed", "RestartPod"), func(j *batch.Job) { j.Spec.Plugins = map[string][]string{"env": {}} }))
	w.settle()
	w.admit()
	w.pass(time.Second)
	if n := len(w.cluster.Pods()); n != pods {
		t.Fatalf("there are %d pods", n)
	}
	made := maps.Clone(w.cluster.Requests())
	w.startAll()
	w.pass(5 * time.Second)
	for _, p := range w.cluster.Pods() {
		w.cluster.Finish(p, 0)
	}
	w.pass(5 * time.Second)
	if got := vcStatusLine(w.job()); !strings.HasPrefix(got, "Completed succeeded=10000") {
		t.Errorf("it has ended as %s", got)
	}
	sum := func(requests map[string]int) (n int) {
		for _, each := range requests {
			n += each
		}
		return n
	}
	if n := sum(made); n > pods+20 {
		t.Errorf("until its pods are there it takes %d requests: %v", n, made)
	}
	if n := sum(w.cluster.Requests()); n > pods+60 {
		t.Errorf("in all it takes %d requests: %v", n, w.cluster.Requests())
	}
}
