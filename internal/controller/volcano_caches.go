// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
)

// VolcanoCaches follow Volcano's kinds for all controllers of them.
type VolcanoCaches struct {
	jobs cache.SharedIndexInformer
	once sync.Once
}

// NewVolcanoCaches returns the caches of the kinds that vc reaches. The first controller that runs starts them.
func NewVolcanoCaches(vc *client.Client) (*VolcanoCaches, error) {
	var slim slimmer
	v := &VolcanoCaches{jobs: client.NewInformer(vc.Jobs(""), &batch.Job{}, vcjobResync, cache.Indexers{})}
	err := errors.Join(v.jobs.SetTransform(slim.vcjob))
	if err != nil {
		return nil, fmt.Errorf("setting up the caches of Volcano's kinds: %w", err)
	}
	return v, nil
}

// run starts the informers until ctx ends, unless another controller has. running then waits for them. All controllers of a process
// have the same ctx.
func (v *VolcanoCaches) run(ctx context.Context, running *sync.WaitGroup) {
	v.once.Do(func() {
		for _, informer := range []cache.SharedIndexInformer{v.jobs} {
			running.Go(func() { informer.RunWithContext(ctx) })
		}
	})
}
