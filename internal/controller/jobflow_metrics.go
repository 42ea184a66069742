// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/drover-dev/drover/internal/volcano/flow"
)

// The metrics of Volcano's JobFlow controller, by the same names and with the same labels.
var (
	flowsSucceeded = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "volcano", Name: "jobflow_succeed_phase_count", Help: "How many JobFlows have come to the phase Succeed", StabilityLevel: metrics.ALPHA,
	}, []string{"jobflow_namespace"})
	flowsFailed = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "volcano", Name: "jobflow_failed_phase_count", Help: "How many JobFlows have come to the phase Failed", StabilityLevel: metrics.ALPHA,
	}, []string{"jobflow_namespace"})
)

var registerFlowMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(flowsSucceeded, flowsFailed) })

// measureFlow counts a JobFlow that has come to a new phase.
func measureFlow(f *flow.JobFlow, before flow.Phase) {
	if f.Status.State.Phase == before {
		return
	}
	switch f.Status.State.Phase {
	case flow.Succeed:
		flowsSucceeded.WithLabelValues(f.Namespace).Inc()
	case flow.Failed:
		flowsFailed.WithLabelValues(f.Namespace).Inc()
	default: // the others are not counted
	}
}
