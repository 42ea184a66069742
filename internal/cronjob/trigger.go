// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"fmt"
)

// ErrBlocked says that a Job may not be started by hand now, because Jobs are active and the concurrency policy does not let
// another start beside them.
var ErrBlocked = errors.New("the concurrency policy lets no other Job start now")

// ErrDeleting says that a CronJob is being deleted and starts nothing any more.
var ErrDeleting = errors.New("the CronJob is being deleted")

// Trigger returns the plan to start a Job by hand now: deletions in Replace, and one creation. It needs no memory, so that a
// command can carry it out beside the controller. A CronJob that is suspended can be triggered, and its due times are not
// concerned.
//
// With respect, the concurrency policy holds for the Job as if it were due now, and later for due times as long as it runs:
// while others are active Forbid and a full Enqueue refuse it with ErrBlocked, and Replace deletes them. Without, it is what
// "kubectl create job --from" makes, which concurrency policies do not regard. History limits count it in both cases.
func Trigger(o Observed, respect bool) (Plan, error) {
	c := o.CronJob
	if c.Deleting {
		return Plan{}, fmt.Errorf("triggering %s/%s: %w", c.Namespace, c.Name, ErrDeleting)
	}
	d := begin(o)
	d.reap()
	d.plan = Plan{Start: []Start{{Name: TriggerName(c.Name, o.Now), RespectConcurrency: respect}}}
	if !respect {
		return d.plan, nil
	}
	if active := len(d.status.Active); d.places() <= 0 {
		return Plan{}, fmt.Errorf("triggering %s/%s: %w: %s is active and the policy is %s", c.Namespace, c.Name, ErrBlocked,
			countedJobs(active, d.status.Active[0].Name), d.r.concurrency)
	}
	if d.r.concurrency == Replace && !d.replace() {
		return Plan{}, fmt.Errorf("triggering %s/%s: %w: its last start is not stored yet, try again in a second", c.Namespace, c.Name,
			ErrBlocked)
	}
	return d.plan, nil
}

func countedJobs(n int, first string) string {
	if n == 1 {
		return first
	}
	return fmt.Sprintf("%s, one of %d Jobs,", first, n)
}
