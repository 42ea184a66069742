// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
