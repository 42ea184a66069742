// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// cronSkew is the metric of the CronJob controller of Kubernetes v1.37, cronjob.SkewMetric. Those of its queue are
// workqueue_*{name="cronjob"}.
var cronSkew = metrics.NewHistogram(&metrics.HistogramOpts{
	Subsystem: "cronjob_controller", Name: "job_creation_skew_duration_seconds",
	Help:    "Time from when a CronJob was due to the creation of its Job",
	Buckets: metrics.ExponentialBuckets(1, 2, 10), StabilityLevel: metrics.STABLE,
})

var registerCronMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(cronSkew) })
