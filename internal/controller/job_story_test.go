// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/job"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// story tells the life of a Job turn by turn: what users and nodes do, and what can be seen then.
type story struct {
	*world
	told    strings.Builder
	version int64
	events  int
	began   time.Time
}

func newStory(t *testing.T, cfg JobConfig) *story {
	t.Helper()
	w := newWorld(t, cfg)
	return &story{world: w, began: w.clock.Now()}
}

// turn says what happens, lets it happen and the controller react, and tells what has changed.
func (s *story) turn(what string, happen func()) {
	fmt.Fprintf(&s.told, "%s\n", what)
	happen()
	s.settle()
	s.tell()
}

// after lets time pass.
func (s *story) after(d time.Duration) {
	fmt.Fprintf(&s.told, "%v pass\n", d)
	s.pass(d)
	s.tell()
}

func (s *story) tell() {
	for _, ch := range s.cluster.Changes(s.version) {
		s.version = ch.Version
		switch {
		case ch.Job != nil && ch.Deleted:
			fmt.Fprintf(&s.told, "    job %s is gone\n", ch.Job.Name)
		case ch.Job != nil:
			fmt.Fprintf(&s.told, "    job %s: %s\n", ch.Job.Name, statusLine(ch.Job))
		case ch.Deleted:
			fmt.Fprintf(&s.told, "    pod %s is gone\n", ch.Pod.Name)
		default:
			fmt.Fprintf(&s.told, "    pod %s: %s\n", ch.Pod.Name, podLine(ch.Pod))
		}
	}
	for _, e := range s.world.events[s.events:] {
		fmt.Fprintf(&s.told, "    event on %s\n", e)
	}
	s.events = len(s.world.events)
}

func podLine(p *corev1.Pod) string {
	words := []string{string(p.Status.Phase)}
	for _, key := range []string{batchv1.JobCompletionIndexAnnotation, batchv1.JobIndexFailureCountAnnotation} {
		if v, ok := p.Annotations[key]; ok {
			words = append(words, strings.TrimPrefix(key, "batch.kubernetes.io/job-")+"="+v)
		}
	}
	if p.DeletionTimestamp != nil {
		words = append(words, "going")
	}
	if len(p.Finalizers) > 0 {
		words = append(words, "tracked")
	}
	return strings.Join(words, " ")
}

// end compares the story with its golden file, and checks what must hold in every story.
func (s *story) end() {
	s.t.Helper()
	s.checkInvariants()
	path := filepath.Join("testdata", strings.ReplaceAll(strings.TrimPrefix(s.t.Name(), "TestStory"), "/", "")+".golden")
	if *update {
		must(s.t, os.MkdirAll("testdata", 0o755))
		must(s.t, os.WriteFile(path, []byte(s.told.String()), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(s.t, err)
	if diff := cmp.Diff(string(want), s.told.String()); diff != "" {
		s.t.Errorf("story (-%s +told), rewrite with -update:\n%s", path, diff)
	}
}

func (s *story) submit(change func(*batchv1.Job)) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default"}}
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	change(j)
	s.cluster.Submit(j)
}

func (s *story) edit(change func(*batchv1.Job)) { s.cluster.Edit("default", "j", change) }

// podAt returns the newest pod of an index that has not ended.
func (s *story) podAt(index string) *corev1.Pod {
	s.t.Helper()
	for _, p := range s.activePods() {
		if p.Annotations[batchv1.JobCompletionIndexAnnotation] == index {
			return p
		}
	}
	s.t.Fatalf("no pod is at work on index %s; told so far:\n%s", index, s.told.String())
	return nil
}

func (s *story) firstPod() *corev1.Pod {
	s.t.Helper()
	active := s.activePods()
	if len(active) == 0 {
		s.t.Fatalf("no pod is at work; told so far:\n%s", s.told.String())
	}
	return active[0]
}

func TestStorySinglePod(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
	s.after(100 * time.Millisecond)
	s.turn("its pod ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.after(time.Hour)
	s.end()
}

func TestStoryFailsTwiceThenSucceeds(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
	s.turn("its pod runs and is ready", func() { s.cluster.Start(s.firstPod(), true) })
	s.after(2 * time.Second)
	s.turn("it fails", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(11 * time.Second)
	s.turn("the next one fails too", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(21 * time.Second)
	s.turn("the third ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.end()
}

func TestStoryBackoffLimit(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job that may fail once", func() { s.submit(func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](1) }) })
	s.turn("its pod fails", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(11 * time.Second)
	s.turn("the next one fails too", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(time.Minute)
	s.end()
}

func TestStoryBackoffOutlivesTheController(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
	s.turn("its pod fails", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(11 * time.Second)
	s.turn("the next one fails too", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(2 * time.Second)
	s.turn("the controller is restarted", s.start)
	s.after(17 * time.Second)
	s.after(2 * time.Second)
	s.end()
}

func TestStorySuspendAndResume(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a suspended Job", func() {
		s.submit(func(j *batchv1.Job) {
			j.Spec.Suspend, j.Spec.Parallelism, j.Spec.Completions = ptr.To(true), ptr.To[int32](2), ptr.To[int32](2)
			j.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
		})
	})
	s.after(time.Hour)
	s.turn("the user resumes it", func() { s.edit(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) }) })
	s.turn("one pod runs", func() { s.cluster.Start(s.firstPod(), true) })
	s.after(2 * time.Second)
	s.turn("the user suspends it", func() { s.edit(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }) })
	s.after(time.Minute)
	s.turn("the pod that ran ends by the signal", func() {
		for _, p := range s.cluster.Pods() {
			s.cluster.Finish(p, 143)
		}
	})
	s.after(2 * time.Second)
	s.turn("the user resumes it again", func() { s.edit(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) }) })
	s.after(59 * time.Second)
	s.after(2 * time.Second)
	s.end()
}

func TestStoryIndexed(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates an Indexed Job of four, two at a time", func() {
		s.submit(func(j *batchv1.Job) {
			j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](4)
		})
	})
	s.turn("index 1 ends well", func() { s.cluster.Finish(s.podAt("1"), 0) })
	s.turn("index 0 fails", func() { s.cluster.Finish(s.podAt("0"), 1) })
	s.turn("index 2 ends well", func() { s.cluster.Finish(s.podAt("2"), 0) })
	s.after(15 * time.Second)
	s.turn("the others end well", func() {
		s.cluster.Finish(s.podAt("0"), 0)
		s.cluster.Finish(s.podAt("3"), 0)
	})
	s.end()
}

func TestStoryBackoffLimitPerIndex(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates an Indexed Job of three whose indexes may fail once each", func() {
		s.submit(func(j *batchv1.Job) {
			j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](3)
			j.Spec.BackoffLimitPerIndex, j.Spec.BackoffLimit = ptr.To[int32](1), ptr.To[int32](1<<31-1)
		})
	})
	s.turn("index 0 fails", func() { s.cluster.Finish(s.podAt("0"), 1) })
	s.turn("index 1 ends well", func() { s.cluster.Finish(s.podAt("1"), 0) })
	s.turn("index 2 ends well", func() { s.cluster.Finish(s.podAt("2"), 0) })
	s.after(12 * time.Second)
	s.turn("index 0 fails again", func() { s.cluster.Finish(s.podAt("0"), 1) })
	s.after(2 * time.Second)
	s.end()
}

func TestStoryEviction(t *testing.T) {
	for name, policy := range map[string]batchv1.PodReplacementPolicy{"AtOnce": batchv1.TerminatingOrFailed, "OnceFailed": batchv1.Failed} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, JobConfig{})
			s.turn("a user creates a Job", func() { s.submit(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = &policy }) })
			s.turn("its pod runs", func() { s.cluster.Start(s.firstPod(), true) })
			s.after(2 * time.Second)
			s.turn("it is evicted", func() { s.cluster.EvictPod(s.firstPod(), 30) })
			s.after(2 * time.Second)
			s.turn("its process ends by the signal", func() {
				for _, p := range s.cluster.Pods() {
					if p.DeletionTimestamp != nil {
						s.cluster.Finish(p, 143)
					}
				}
			})
			s.after(12 * time.Second)
			s.turn("the new one ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
			s.after(2 * time.Second)
			s.end()
		})
	}
}

func TestStoryQuota(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.cluster.Quota = 1
	s.turn("a user creates a Job of three where only one pod may be", func() {
		s.submit(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](3), ptr.To[int32](3) })
	})
	s.after(10 * time.Minute)
	s.turn("the pod ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.turn("the quota is raised", func() { s.cluster.Quota = 0 })
	s.after(31 * time.Second)
	s.turn("the others end well", func() {
		for _, p := range s.activePods() {
			s.cluster.Finish(p, 0)
		}
	})
	s.end()
}

func TestStoryPodWebhookDown(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.cluster.PodWebhookDown = true
	s.turn("a user creates a Job while nobody answers for the webhook of pods", func() { s.submit(func(*batchv1.Job) {}) })
	s.after(10 * time.Minute)
	s.turn("somebody does", func() { s.cluster.PodWebhookDown = false })
	s.after(31 * time.Second)
	s.turn("the pod ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.end()
}

func TestStoryForegroundDeletion(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
	s.turn("its pod runs", func() { s.cluster.Start(s.firstPod(), true) })
	s.after(2 * time.Second)
	s.turn("the user deletes it, pods first", func() { s.cluster.RemoveForeground("default", "j") })
	s.turn("the garbage collector deletes the pod", s.cluster.CollectGarbage)
	s.after(2 * time.Second)
	s.turn("its process ends by the signal", func() {
		for _, p := range s.cluster.Pods() {
			s.cluster.Finish(p, 143)
		}
	})
	s.turn("the garbage collector looks again", s.cluster.CollectGarbage)
	s.after(2 * time.Second)
	s.end()
}

func TestStoryDeletedInTheBackground(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
	s.turn("its pod runs", func() { s.cluster.Start(s.firstPod(), true) })
	s.turn("the user deletes it", func() { s.cluster.Remove("default", "j") })
	s.turn("the garbage collector deletes the pod", s.cluster.CollectGarbage)
	s.turn("its process ends by the signal", func() {
		for _, p := range s.cluster.Pods() {
			s.cluster.Finish(p, 143)
		}
	})
	s.end()
}

func TestStoryTimeToLive(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job that is kept for a minute", func() { s.submit(func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = ptr.To[int32](60) }) })
	s.turn("its pod ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.after(59 * time.Second)
	s.after(2 * time.Second)
	s.turn("the garbage collector deletes the pod", s.cluster.CollectGarbage)
	s.end()
}

func TestStoryWorkQueue(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a work-queue Job of three", func() { s.submit(func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](3) }) })
	s.turn("the first finds the queue empty", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.after(2 * time.Second)
	s.turn("the second fails", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(20 * time.Second)
	s.turn("the third ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.end()
}

func TestStoryBackoffOfOnesOwn(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job that is to be tried again after 2 s, then 4 s", func() {
		s.submit(func(j *batchv1.Job) { j.Annotations = map[string]string{job.BackoffAnnotation: "base=2s,max=4s"} })
	})
	for range 3 {
		s.turn("its pod fails", func() { s.cluster.Finish(s.firstPod(), 1) })
		s.after(2100 * time.Millisecond)
		s.after(2 * time.Second)
	}
	s.turn("its pod ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.end()
}

func TestStoryAPodThatDoesNotStartCountsAsFailed(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job whose pods must start within a minute, and that may fail once", func() {
		s.submit(func(j *batchv1.Job) {
			j.Annotations = map[string]string{job.StartTimeoutAnnotation: "1m"}
			j.Spec.BackoffLimit = ptr.To[int32](1)
		})
	})
	s.after(59 * time.Second)
	s.after(2 * time.Second)
	s.after(11 * time.Second)
	s.turn("the next pod runs in time", func() { s.cluster.Start(s.firstPod(), true) })
	s.after(time.Hour)
	s.turn("it ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.end()
}

func TestStoryAnAnnotationThatCannotBeReadIsToldOnce(t *testing.T) {
	s := newStory(t, JobConfig{})
	s.turn("a user creates a Job with an annotation that makes no sense", func() {
		s.submit(func(j *batchv1.Job) { j.Annotations = map[string]string{job.BackoffAnnotation: "soon"} })
	})
	s.turn("its pod fails", func() { s.cluster.Finish(s.firstPod(), 1) })
	s.after(11 * time.Second)
	s.turn("its pod ends well", func() { s.cluster.Finish(s.firstPod(), 0) })
	s.end()
}
