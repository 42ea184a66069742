// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// expire has a Job that has ended and may not stay for ever looked at.
func (c *VCJobController) expire(j *batch.Job) {
	if _, limited := vcjob.Expiry(j); limited {
		c.expired.Add(keyOf(j))
	}
}

// syncExpired deletes a Job once its time to live is over. It believes only the API server, because the Job may have been resumed.
func (c *VCJobController) syncExpired(ctx context.Context, key string) error {
	cached, err := c.cachedJob(key)
	if err != nil || cached == nil || !c.ttlOver(key, cached) {
		return err
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("reading the key %q of a Job: %w", key, err)
	}
	live, err := c.api.Job(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading expired Job %s: %w", key, err)
	}
	if !c.ttlOver(key, live) {
		return nil
	}
	if err := c.api.DeleteJob(ctx, live); err != nil && !isGone(err) {
		return fmt.Errorf("deleting expired Job %s: %w", key, err)
	}
	c.log.Info("Deleted expired Job", "job", key, "uid", live.UID)
	return nil
}

// ttlOver reports whether j must go now. Where its time comes later, it has j looked at again then.
func (c *VCJobController) ttlOver(key string, j *batch.Job) bool {
	at, limited := vcjob.Expiry(j)
	if !limited {
		return false
	}
	if left := at.Sub(c.clock.Now()); left > 0 {
		c.expired.AddAfter(key, left)
		return false
	}
	return true
}
