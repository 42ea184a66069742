// SPDX-License-Identifier: Apache-2.0

package controller

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/cronjob"
)

// jobsOfCronJob is the name of the index over the Jobs in the cache by the UID of the CronJob that controls them.
const jobsOfCronJob = "cronJob"

var cronIndexers = cache.Indexers{
	jobsOfCronJob: func(o any) ([]string, error) {
		if ref := cronJobOf(o.(*batchv1.Job)); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return nil, nil
	},
}

// cronJobOf returns the reference to the CronJob that controls j, or nil.
func cronJobOf(j *batchv1.Job) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(j); ref != nil && ref.Kind == "CronJob" && ref.APIVersion == batchv1.SchemeGroupVersion.String() {
		return ref
	}
	return nil
}

// slimCronJob cuts a CronJob down to what goes back with every status. It is a cache.TransformFunc.
func slimCronJob(obj any) (any, error) {
	if c, ok := obj.(*batchv1.CronJob); ok {
		c.TypeMeta = metav1.TypeMeta{}
		c.ManagedFields = nil
	}
	return obj, nil
}

// The handlers do no work: they have those CronJobs looked at for which something has changed that a decision may depend on. Our
// own writes coming back are no news.

func (c *CronJobController) cronAdded(cron *batchv1.CronJob) {
	key := keyOf(cron)
	c.states.of(key, cron.UID) // known from now on, for the case that the clock is set
	c.queue.LookIfNewer(key, cron.ResourceVersion)
}

func (c *CronJobController) cronUpdated(before, after *batchv1.CronJob) {
	if sameVersion(before, after) {
		return
	}
	key := keyOf(after)
	if state := c.states.get(key); state == nil || state.uid != after.UID || state.isNews(after.ResourceVersion) {
		c.queue.LookIfNewer(key, after.ResourceVersion)
	}
}

func (c *CronJobController) cronDeleted(cron *batchv1.CronJob) { c.queue.Look(keyOf(cron)) }

func (c *CronJobController) childAdded(j *batchv1.Job) {
	if ref := cronJobOf(j); ref != nil {
		if state := c.states.get(j.Namespace + "/" + ref.Name); state != nil && state.uid == ref.UID && state.expected(j.Name) {
			return
		}
	}
	c.wakeOwner(j)
}

func (c *CronJobController) childUpdated(before, after *batchv1.Job) {
	if sameVersion(before, after) {
		return
	}
	oldRef, ref := cronJobOf(before), cronJobOf(after)
	switch {
	case oldRef != nil && (ref == nil || oldRef.UID != ref.UID):
		c.wakeOwner(before)
		c.wakeOwner(after)
	case ref != nil && (oldRef == nil || matters(before, after)):
		c.wakeOwner(after)
	}
}

func (c *CronJobController) childDeleted(j *batchv1.Job) { c.wakeOwner(j) }

// matters reports whether a change of a Job may change what its CronJob needs.
//
// Differs: upstream looks at the CronJob whenever a Job's counters move.
func matters(before, after *batchv1.Job) bool {
	b, a := cronjob.ChildFromBatch(before), cronjob.ChildFromBatch(after)
	b.ResourceVersion, b.Started = a.ResourceVersion, a.Started // these only tell of the Job
	return a != b
}

// wakeOwner has the CronJob that controls j looked at.
func (c *CronJobController) wakeOwner(j *batchv1.Job) {
	ref := cronJobOf(j)
	if ref == nil {
		return
	}
	cron, err := c.crons.CronJobs(j.Namespace).Get(ref.Name)
	if err != nil || cron.UID != ref.UID {
		return // it is not known yet, and is looked at when it is; or no more
	}
	c.queue.Look(keyOf(cron))
}
