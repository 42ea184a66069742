// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/drover-dev/drover/internal/queue"
)

// The metrics of Volcano's queue controller, by the same names and with the same labels.
var (
	queueInqueue   = queueGauge("inqueue", "PodGroups of a queue whose pods may be placed")
	queuePending   = queueGauge("pending", "PodGroups of a queue that wait for room")
	queueRunning   = queueGauge("running", "PodGroups of a queue that run")
	queueUnknown   = queueGauge("unknown", "PodGroups of a queue of which some pods run and others cannot be placed")
	queueCompleted = queueGauge("completed", "PodGroups of a queue that have ended")
)

func queueGauge(phase, help string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "volcano", Name: "queue_pod_group_" + phase + "_count", Help: help, StabilityLevel: metrics.ALPHA,
	}, []string{"queue_name"})
}

var registerQueueMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(queueInqueue, queuePending, queueRunning, queueUnknown, queueCompleted)
})

// measureQueue tells how many PodGroups a queue has.
func measureQueue(name string, n queue.Counts) {
	queueInqueue.WithLabelValues(name).Set(float64(n.Inqueue))
	queuePending.WithLabelValues(name).Set(float64(n.Pending))
	queueRunning.WithLabelValues(name).Set(float64(n.Running))
	queueUnknown.WithLabelValues(name).Set(float64(n.Unknown))
	queueCompleted.WithLabelValues(name).Set(float64(n.Completed))
}

// dropQueueMetrics forgets a queue that is gone.
func dropQueueMetrics(name string) {
	for _, gauge := range []*metrics.GaugeVec{queueInqueue, queuePending, queueRunning, queueUnknown, queueCompleted} {
		gauge.Delete(map[string]string{"queue_name": name})
	}
}
