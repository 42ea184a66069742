// SPDX-License-Identifier: Apache-2.0

// Package volcano holds, in the packages below it, the API types that Volcano's users write: batch (Job, CronJob), bus (Command),
// scheduling (PodGroup, Queue) and flow (JobFlow, JobTemplate). They are our own Go types for the same wire format: the JSON
// names, defaults and enumerations are those of Volcano, the texts are ours.
//
// Deep copies and the CustomResourceDefinitions in deploy/crds are generated from them. Nothing here decides anything: what a
// Job needs next is the matter of package vcjob.
//
// Start reading at batch.Job, keys in package batch, and Scheme.
package volcano

//go:generate go run ../../hack/crds

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/flow"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// AddToScheme makes s know every kind of the packages below.
func AddToScheme(s *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{batch.AddToScheme, bus.AddToScheme, scheduling.AddToScheme, flow.AddToScheme} {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// NewScheme returns a scheme that knows the kinds of the packages below and no others.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(AddToScheme(s))
	return s
}
