// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // the metrics workqueue_*, by the names of the queues
)

// The metrics of the Job and TTL controllers of Kubernetes v1.37, by the same names and with the same labels.
var (
	jobSyncDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: jobSubsystem, Name: "job_sync_duration_seconds",
		Help:    "Time that one look at a Job took, by what it came to",
		Buckets: metrics.ExponentialBuckets(0.004, 2, 15), StabilityLevel: metrics.STABLE,
	}, []string{"completion_mode", "result", "action"})
	jobSyncs = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "job_syncs_total",
		Help: "Looks at Jobs, by what they came to", StabilityLevel: metrics.STABLE,
	}, []string{"completion_mode", "result", "action"})
	jobsFinished = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "jobs_finished_total",
		Help: "Jobs that have ended, by how and why", StabilityLevel: metrics.STABLE,
	}, []string{"completion_mode", "result", "reason"})
	jobPodsFinished = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "job_pods_finished_total",
		Help: "Pods counted as ended, by how", StabilityLevel: metrics.STABLE,
	}, []string{"completion_mode", "result"})
	podFailuresHandled = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "pod_failures_handled_by_failure_policy_total",
		Help: "Failed pods that a rule of their Job's podFailurePolicy has matched, by its action", StabilityLevel: metrics.BETA,
	}, []string{"action"})
	terminatedPodsTracked = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "terminated_pods_tracking_finalizer_total",
		Help: "Pods that have ended while they carry the tracking finalizer (add), and that have lost it or gone (delete)", StabilityLevel: metrics.BETA,
	}, []string{"event"})
	jobsByExternalController = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "jobs_by_external_controller_total",
		Help: "Jobs that another controller looks after, by its name", StabilityLevel: metrics.ALPHA,
	}, []string{"controller_name"})
	jobFinishedIndexes = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "job_finished_indexes_total",
		Help: "Indexes that have succeeded or failed for good, by whether each has a back-off limit of its own", StabilityLevel: metrics.ALPHA,
	}, []string{"status", "backoffLimit"})
	jobPodsCreation = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "job_pods_creation_total",
		Help: "Creations of pods, by why and with what success", StabilityLevel: metrics.ALPHA,
	}, []string{"reason", "status"})
	staleSyncSkips = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: jobSubsystem, Name: "stale_sync_skips_total",
		Help: "Looks at Jobs that were put off because the outcome of an earlier write was not known yet", StabilityLevel: metrics.ALPHA,
	}, []string{"group", "resource"})
	ttlDeletionDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: "ttl_after_finished_controller", Name: "job_deletion_duration_seconds",
		Help:    "Time between a Job's expiry and its deletion",
		Buckets: metrics.ExponentialBuckets(0.1, 2, 14), StabilityLevel: metrics.ALPHA,
	})
)

const jobSubsystem = "job_controller"

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(
		jobSyncDuration, jobSyncs, jobsFinished, jobPodsFinished, podFailuresHandled, terminatedPodsTracked,
		jobsByExternalController, jobFinishedIndexes, jobPodsCreation, staleSyncSkips, ttlDeletionDuration,
	)
})
