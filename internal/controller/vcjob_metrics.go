// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// The metrics of Volcano's Job controller, by the same names and with the same labels.
var (
	vcjobsCompleted = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "volcano", Name: "job_completed_phase_count", Help: "How often a Job has come to the phase Completed", StabilityLevel: metrics.ALPHA,
	}, []string{"job_name", "queue_name"})
	vcjobsFailed = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "volcano", Name: "job_failed_phase_count", Help: "How often a Job has come to the phase Failed", StabilityLevel: metrics.ALPHA,
	}, []string{"job_name", "queue_name"})
	vcjobPodLatency = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: "volcano", Name: "controller_job_to_pod_creation_latency_milliseconds", Help: "Time from the creation of a Job to that of each of its pods",
		Buckets: metrics.ExponentialBucketsRange(50, 60000, 30), StabilityLevel: metrics.ALPHA,
	})
)

var registerVCJobMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(vcjobsCompleted, vcjobsFailed, vcjobPodLatency)
})

// measurePhase counts a Job that has come to a new phase.
func measurePhase(j *batch.Job, before batch.JobPhase) {
	if j.Status.State.Phase == before {
		return
	}
	switch j.Status.State.Phase {
	case batch.Completed:
		vcjobsCompleted.WithLabelValues(keyOf(j), j.Spec.Queue).Inc()
	case batch.Failed:
		vcjobsFailed.WithLabelValues(keyOf(j), j.Spec.Queue).Inc()
	default: // the others are not counted
	}
}

// dropJobMetrics forgets what was counted for a Job that is gone.
func dropJobMetrics(j *batch.Job) {
	labels := map[string]string{"job_name": keyOf(j), "queue_name": j.Spec.Queue}
	vcjobsCompleted.Delete(labels)
	vcjobsFailed.Delete(labels)
}
