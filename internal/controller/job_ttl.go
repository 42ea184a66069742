// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/job"
)

// expire has a Job that has ended and may not stay for ever looked at.
func (c *JobController) expire(j *batchv1.Job) {
	if j.DeletionTimestamp == nil && j.Spec.TTLSecondsAfterFinished != nil && job.Finished(j) != nil {
		c.expired.Add(keyOf(j))
	}
}

// syncExpired deletes a finished Job once its time to live is over. It believes only the API server, because the time may
// have been changed.
func (c *JobController) syncExpired(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("reading the key %q of a Job: %w", key, err)
	}
	cached, err := c.jobs.Jobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Job %s from the cache: %w", key, err)
	}
	if over, err := c.ttlOver(key, cached); err != nil || !over {
		return err
	}
	live, err := c.api.Job(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading expired Job %s: %w", key, err)
	}
	if over, err := c.ttlOver(key, live); err != nil || !over {
		return err
	}
	if err := c.api.DeleteJob(ctx, live); err != nil && !isGone(err) {
		return fmt.Errorf("deleting expired Job %s: %w", key, err)
	}
	at, _, _ := job.Expiry(live)
	ttlDeletionDuration.Observe(c.clock.Since(at).Seconds())
	c.log.Info("Deleted expired Job", "job", key, "uid", live.UID)
	return nil
}

// ttlOver reports whether j must go now. Where its time comes later, it has j looked at again then.
func (c *JobController) ttlOver(key string, j *batchv1.Job) (bool, error) {
	at, limited, err := job.Expiry(j)
	if err != nil || !limited {
		return false, err
	}
	if left := at.Sub(c.clock.Now()); left > 0 {
		c.expired.AddAfter(key, left)
		return false, nil
	}
	return true, nil
}
