// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/job"
)

// Each of these tests is named after what a user saw.

func TestPodsOfAJobThatIsDeletedWithoutThemKeepTheFinalizerWhenTheWatchOfJobsIsBehind(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job of two", func() {
		s.submit(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](2) })
	})
	s.after(time.Second)
	for _, p := range s.cluster.Pods() {
		s.cluster.EditPod(p, func(p *corev1.Pod) { p.OwnerReferences = nil })
	}
	s.cluster.Remove("default", "j")
	s.tellPods(math.MaxInt)
	for s.work(1) {
	}
	s.pass(time.Minute)
	for _, p := range s.cluster.Pods() {
		if job.IsTracked(p) {
			t.Errorf("pod %s keeps the tracking finalizer, and no Job is left to take it off; told so far:\n%s", p.Name, s.told.String())
		}
	}
	s.checkInvariants()
}

func TestPodsOfAFinishedJobKeepTheFinalizerWhenTheAnswerToItsLastStatusIsLost(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job of two", func() {
		s.submit(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](2) })
	})
	s.c.api = &lastAnswerLost{jobAPI: s.c.api, first: func() { s.tellJobs(math.MaxInt) }}
	s.finishAll(0)
	s.pass(time.Minute)
	for _, p := range s.cluster.Pods() {
		if job.IsTracked(p) {
			t.Errorf("pod %s keeps the tracking finalizer; told so far:\n%s", p.Name, s.told.String())
		}
	}
	s.checkInvariants()
}

// lastAnswerLost is an API server whose answer to the status that ends a Job is lost. First something else happens.
type lastAnswerLost struct {
	jobAPI

	first func()
	lost  int
}

func (a *lastAnswerLost) StoreStatus(ctx context.Context, j *batchv1.Job) (string, error) {
	version, err := a.jobAPI.StoreStatus(ctx, j)
	if err != nil || job.Finished(j) == nil {
		return version, err
	}
	a.first()
	a.lost++
	return "", apierrors.NewInternalError(fmt.Errorf("answer %d was lost", a.lost))
}

// finishAll ends every pod that is at work.
func (s *story) finishAll(exitCode int32) {
	for _, p := range s.activePods() {
		s.cluster.Finish(p, exitCode)
	}
}

// want fails the test unless the status of the Job reads like that.
func (s *story) want(status string) {
	s.t.Helper()
	if got := s.status("j"); got != status {
		s.t.Fatalf("the Job's status is\n  %s, want\n  %s; told so far:\n%s", got, status, s.told.String())
	}
}

// podsEver returns how many pods were ever made.
func (s *story) podsEver() int {
	ever := map[types.UID]bool{}
	for _, ch := range s.cluster.Changes(0) {
		if ch.Pod != nil {
			ever[ch.Pod.UID] = true
		}
	}
	return len(ever)
}

func (s *story) wantPodsEver(n int) {
	s.t.Helper()
	if got := s.podsEver(); got != n {
		s.t.Errorf("%d pods were made, want %d; told so far:\n%s", got, n, s.told.String())
	}
}

// k#70251: 64 pods of a Job with parallelism 10 and backoffLimit 10 failed before it did.
func TestAJobWhosePodsAllFailMakesManyMorePodsThanItsBackoffLimit(t *testing.T) {
	t.Run("the first wave exceeds the limit", func(t *testing.T) {
		s := newStory(t, JobConfig{})
		s.turn("a user creates a Job", func() {
			s.submit(func(j *batchv1.Job) {
				j.Spec.Parallelism, j.Spec.Completions, j.Spec.BackoffLimit = ptr.To[int32](4), ptr.To[int32](4), ptr.To[int32](2)
			})
		})
		s.turn("all its pods fail", func() { s.finishAll(1) })
		s.after(time.Hour)
		s.want("active=0 succeeded=0 failed=4 FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded")
		s.wantPodsEver(4)
		s.checkInvariants()
	})
	t.Run("the second wave exceeds the limit", func(t *testing.T) {
		s := newStory(t, JobConfig{})
		s.turn("a user creates a Job", func() {
			s.submit(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.BackoffLimit = ptr.To[int32](10), ptr.To[int32](10) })
		})
		s.turn("all its pods fail", func() { s.finishAll(1) })
		s.after(9 * time.Minute)
		s.want("active=0 succeeded=0 failed=10")
		s.after(2 * time.Minute) // ten failures in a row wait for ten minutes
		s.want("active=10 succeeded=0 failed=10")
		s.turn("all its pods fail again", func() { s.finishAll(1) })
		s.after(time.Hour)
		s.want("active=0 succeeded=0 failed=20 FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded")
		s.wantPodsEver(20)
		s.checkInvariants()
	})
}

// k#74848, k#54870: restarts in place were not counted, or the Job failed one too late.
func TestAPodThatIsRestartedInPlaceForEverNeverFailsItsJob(t *testing.T) {
	for name, tc := range map[string]struct{ limit, restarts int32 }{
		"a backoffLimit of 2 is reached by the second restart": {2, 2},
		"a backoffLimit of 0 is reached by the first restart":  {0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, JobConfig{})
			s.turn("a user creates a Job", func() {
				s.submit(func(j *batchv1.Job) {
					j.Spec.BackoffLimit, j.Spec.Template.Spec.RestartPolicy = &tc.limit, corev1.RestartPolicyOnFailure
				})
			})
			s.turn("its pod runs", func() { s.cluster.Start(s.firstPod(), false) })
			s.after(time.Second)
			for range tc.restarts - 1 {
				s.turn("the container fails and is restarted", func() { s.cluster.Restart(s.firstPod()) })
				s.after(time.Minute)
			}
			s.want("active=1 succeeded=0 failed=0")
			s.turn("the container fails and is restarted", func() { s.cluster.Restart(s.firstPod()) })
			s.after(time.Second)
			s.want("active=0 terminating=1 succeeded=0 failed=1 FailureTarget=True/BackoffLimitExceeded")
			s.turn("the pod ends by the signal", func() {
				for _, p := range s.cluster.Pods() {
					s.cluster.Finish(p, 143)
				}
			})
			s.after(time.Second)
			s.want("active=0 succeeded=0 failed=1 FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded")
			s.wantPodsEver(1)
			s.checkInvariants()
		})
	}
	t.Run("with restartPolicy Never the failed pods stay", func(t *testing.T) {
		s := newStory(t, JobConfig{})
		s.turn("a user creates a Job", func() { s.submit(func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }) })
		s.turn("its pod fails", func() { s.finishAll(1) })
		s.after(time.Hour)
		if pods := s.cluster.Pods(); len(pods) != 1 || pods[0].Status.Phase != corev1.PodFailed {
			t.Errorf("the failed pod is gone: there are %d pods", len(pods))
		}
	})
}

// k#62134: after a restart of the controller a deadline was noticed only when the pod ended by itself.
func TestAJobOutlivesItsDeadlineBecauseTheControllerWasRestarted(t *testing.T) {
	for name, back := range map[string]time.Duration{
		"the controller is back before the deadline": 10 * time.Second,
		"the controller is back after the deadline":  40 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, JobConfig{})
			began := s.clock.Now()
			s.turn("a user creates a Job with 20 s to run", func() { s.submit(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](20) }) })
			s.turn("its pod runs", func() { s.cluster.Start(s.firstPod(), true) })
			s.after(5 * time.Second)
			s.setTime(began.Add(back)) // nobody works meanwhile
			s.turn("the controller is restarted", s.start)
			if due := began.Add(20 * time.Second); s.clock.Now().Before(due) {
				s.after(due.Add(-time.Second).Sub(s.clock.Now()))
				s.want("active=1 ready=1 succeeded=0 failed=0")
				s.after(time.Second)
			}
			s.want("active=0 terminating=1 succeeded=0 failed=1 FailureTarget=True/DeadlineExceeded")
			if grace := s.cluster.Pods()[0].DeletionGracePeriodSeconds; grace == nil || *grace == 0 {
				t.Error("the pod has no time to end")
			}
			s.turn("the pod ends by the signal", func() {
				for _, p := range s.cluster.Pods() {
					s.cluster.Finish(p, 143)
				}
			})
			s.after(time.Second)
			s.want("active=0 succeeded=0 failed=1 FailureTarget=True/DeadlineExceeded Failed=True/DeadlineExceeded")
			s.wantPodsEver(1)
			s.checkInvariants()
		})
	}
}

// k#73118: a Job never completed because of a container that runs beside the one that works.
func TestAJobWithASidecarNeverCompletes(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job with a sidecar, which fails on every exit code", func() {
		s.submit(func(j *batchv1.Job) {
			j.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:      batchv1.PodFailurePolicyActionFailJob,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{0}},
			}}}
		})
	})
	s.turn("its pod runs", func() { s.cluster.Start(s.firstPod(), true) })
	s.after(3 * time.Second)
	s.want("active=1 ready=1 succeeded=0 failed=0")
	s.turn("the container that works ends well, and then the node ends the proxy by a signal", func() {
		p := s.firstPod()
		s.cluster.EditPod(p, func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}},
			}}
		})
		s.cluster.Finish(p, 0)
	})
	s.after(time.Second)
	s.want("active=0 succeeded=1 failed=0 SuccessCriteriaMet=True/CompletionsReached Complete=True/CompletionsReached")
	s.checkInvariants()
}

// k#105200: a pod was counted twice from a stale cache, and the Job was complete too early.
func TestAJobIsCompleteBeforeAllItsPodsAreBecauseTheControllerWasRestarted(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.submit(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](20), ptr.To[int32](100) })
	s.settle()
	for turn := 0; s.cluster.FindJob("default", "j").Status.CompletionTime == nil; turn++ {
		if turn == 300 {
			t.Fatalf("the Job does not end: %s", s.status("j"))
		}
		for n, p := range s.activePods() {
			if n%3 == turn%3 { // some now, some later
				s.cluster.Finish(p, 0)
			}
		}
		if turn%5 == 1 { // the pods' watch is behind, and then everything is forgotten
			s.tellJobs(math.MaxInt)
			s.work(2)
			s.tellPods(3)
			s.work(2)
			s.start()
		}
		s.pass(700 * time.Millisecond)
	}
	s.pass(time.Minute)
	s.want("active=0 succeeded=100 failed=0 SuccessCriteriaMet=True/CompletionsReached Complete=True/CompletionsReached")
	s.wantPodsEver(100)
	s.checkInvariants()
}

// k#111646: a pod was booked as failed, then as succeeded, and the API server refused every status after that.
func TestAPodThatEndsWellAfterItsJobHasFailedIsListedTwice(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job of two that may not fail", func() {
		s.submit(func(j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.Completions, j.Spec.BackoffLimit = ptr.To[int32](2), ptr.To[int32](2), ptr.To[int32](0)
		})
	})
	s.turn("both pods run", func() {
		for _, p := range s.activePods() {
			s.cluster.Start(p, true)
		}
	})
	s.after(2 * time.Second)
	s.turn("one fails", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(2 * time.Second)
	s.turn("the other traps the signal and ends well", func() {
		for _, p := range s.cluster.Pods() {
			s.cluster.Finish(p, 0)
		}
	})
	s.after(time.Minute)
	s.want("active=0 succeeded=0 failed=2 FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded")
	for _, p := range s.cluster.Pods() {
		if job.IsTracked(p) {
			t.Errorf("pod %s keeps the tracking finalizer", p.Name)
		}
	}
	s.wantPodsEver(2)
	s.checkInvariants() // a status that the API server refuses is a violation
}

// k#139281: what places the pods of a suspended Job could not be changed before its condition said that it is suspended.
func TestAJobThatWasChangedBeforeItWasSeenSuspendedRunsWithItsOldTemplate(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.submit(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })
	s.edit(func(j *batchv1.Job) { j.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "a"} })
	s.turn("the controller starts", s.start)
	s.want("active=0 succeeded=0 failed=0 Suspended=True/JobSuspended")
	s.turn("the user resumes the Job", func() { s.edit(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) }) })
	if got := s.firstPod().Spec.NodeSelector; got["pool"] != "a" {
		t.Errorf("the pod's node selector is %v, want that of the changed template", got)
	}
	s.checkInvariants()
}

// k#134521: the API server refused the start time of a Job that was resumed, and its status stood still.
func TestAJobThatWasResumedHasTheStatusOfBefore(t *testing.T) {
	s := newStory(t, JobConfig{})
	began := s.clock.Now()
	s.turn("a user creates a Job with 60 s to run", func() { s.submit(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) }) })
	s.turn("its pod runs", func() { s.cluster.Start(s.firstPod(), true) })
	s.after(10 * time.Second)
	s.turn("the user suspends it", func() { s.edit(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }) })
	s.turn("the pod ends by the signal", func() {
		for _, p := range s.cluster.Pods() {
			s.cluster.Finish(p, 143)
		}
	})
	s.after(20 * time.Second)
	s.want("active=0 succeeded=0 failed=0 Suspended=True/JobSuspended")
	if start := s.cluster.FindJob("default", "j").Status.StartTime; start != nil {
		t.Errorf("the suspended Job has the start time %v, want none", start)
	}
	s.turn("the user resumes it", func() { s.edit(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) }) })
	s.after(time.Second)
	s.want("active=1 succeeded=0 failed=0 Suspended=False/JobResumed")
	if start := s.cluster.FindJob("default", "j").Status.StartTime; start == nil || !start.Time.Equal(began.Add(30*time.Second)) {
		t.Errorf("the resumed Job has the start time %v, want the time of its resumption", start)
	}
	s.after(58 * time.Second) // 89 s after the creation
	s.want("active=1 succeeded=0 failed=0 Suspended=False/JobResumed")
	s.after(time.Second)
	if got := s.status("j"); !strings.Contains(got, "FailureTarget=True/DeadlineExceeded") && !strings.Contains(got, "Failed=True/DeadlineExceeded") {
		t.Errorf("60 s after its resumption the Job's status is %s, want that its deadline is over", got)
	}
	var told []string
	for _, e := range s.world.events {
		if strings.Contains(e, "Suspended") || strings.Contains(e, "Resumed") {
			told = append(told, e)
		}
	}
	if diff := cmp.Diff([]string{"j Normal Suspended: Job suspended", "j Normal Resumed: Job resumed"}, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.checkInvariants()
}

func TestAPodOfAnEndedJobIsLetGoTwiceBecauseTheWatchOfPodsIsBehind(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job of two", func() {
		s.submit(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](2) })
	})
	s.after(time.Second)
	s.finishAll(0)
	s.tellPods(math.MaxInt)
	for range 10 { // the worker ends the Job, and the watch of Jobs is the first to tell
		s.work(1)
		s.tellJobs(math.MaxInt)
	}
	s.want("active=0 succeeded=2 failed=0 SuccessCriteriaMet=True/CompletionsReached Complete=True/CompletionsReached")
	if n := s.cluster.Requests()["PATCH pod"]; n != 2 {
		s.t.Errorf("two pods have lost their finalizers in %d requests: %v", n, s.cluster.Requests())
	}
	s.pass(time.Minute)
	if n := len(s.c.freed.uids); n != 0 {
		s.t.Errorf("%d pods are remembered for ever", n)
	}
	s.checkInvariants()
}

// newStoryInARush begins a story whose controller is busy with other Jobs.
func newStoryInARush(t *testing.T) *story {
	t.Helper()
	s := newStory(t, JobConfig{})
	for range calmSyncs {
		s.c.rush.enter()
	}
	return s
}

func TestInARushAQuickJobIsToldOfInOneWrite(t *testing.T) {
	s := newStoryInARush(t)
	s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
	s.after(5 * time.Second)
	s.turn("its pod ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.after(time.Second)
	s.want("active=0 succeeded=1 failed=0 SuccessCriteriaMet=True/CompletionsReached Complete=True/CompletionsReached")
	if n := s.cluster.Requests()["PUT status"]; n != 1 {
		s.t.Errorf("its status is written %d times", n)
	}
	s.checkInvariants()
}

func TestInARushTheStartOfAJobWithADeadlineIsToldOfAtOnce(t *testing.T) {
	s := newStoryInARush(t)
	s.turn("a user creates a Job that may take a minute", func() { s.submit(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) }) })
	s.after(time.Second)
	s.want("active=1 succeeded=0 failed=0")
	s.checkInvariants()
}

func TestInARushAJobThatGoesOnIsToldOfInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(s *story)
		wait time.Duration
	}{
		"at the end of the rush":    {func(s *story) { s.c.rush.leave(); s.c.rush.leave(); s.c.queue.Add("default/j") }, time.Second},
		"before the rush has ended": {func(*story) {}, longestRush},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStoryInARush(t)
			s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
			s.after(time.Second)
			s.want("active=0 succeeded=0 failed=0")
			tc.end(s)
			s.after(tc.wait)
			s.want("active=1 succeeded=0 failed=0")
		})
	}
}
