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

// cronIndexers are for batch/v1.
var cronIndexers = batchCronKind().indexers()

func (k cronKind[C, J]) indexers() cache.Indexers {
	return cache.Indexers{jobsOfCronJob: func(o any) ([]string, error) {
		if ref := k.cronJobOf(o.(J)); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return nil, nil
	}}
}

// cronJobOf returns the reference to the CronJob that controls j, or nil.
func (k *cronKind[C, J]) cronJobOf(j J) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(j); ref != nil && ref.Kind == "CronJob" && ref.APIVersion == k.apiVersion {
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

func (c *cronController[C, J]) cronAdded(cron C) {
	key := keyOf(cron)
	c.states.of(key, cron.GetUID()) // known from now on, for the case that the clock is set
	c.queue.LookIfNewer(key, cron.GetResourceVersion())
}

func (c *cronController[C, J]) cronUpdated(before, after C) {
	if sameVersion(before, after) {
		return
	}
	key := keyOf(after)
	if state := c.states.get(key); state == nil || state.uid != after.GetUID() || state.isNews(after.GetResourceVersion()) {
		c.queue.LookIfNewer(key, after.GetResourceVersion())
	}
}

func (c *cronController[C, J]) cronDeleted(cron C) { c.queue.Look(keyOf(cron)) }

func (c *cronController[C, J]) childAdded(j J) {
	if ref := c.kind.cronJobOf(j); ref != nil {
		state := c.states.get(j.GetNamespace() + "/" + ref.Name)
		if state != nil && state.uid == ref.UID && state.expected(j.GetName()) && c.isJustBegun(j) {
			return
		}
	}
	c.wakeOwner(j)
}

// isJustBegun reports whether nothing has become of a Job yet. A watch that was broken off for a while may tell of a Job for the first
// time when it has ended, and then tells nothing more.
func (c *cronController[C, J]) isJustBegun(j J) bool {
	child := c.kind.child(j)
	return child.Result == cronjob.Running && !child.Deleting
}

func (c *cronController[C, J]) childUpdated(before, after J) {
	if sameVersion(before, after) {
		return
	}
	oldRef, ref := c.kind.cronJobOf(before), c.kind.cronJobOf(after)
	switch {
	case oldRef != nil && (ref == nil || oldRef.UID != ref.UID):
		c.wakeOwner(before)
		c.wakeOwner(after)
	case ref != nil && (oldRef == nil || c.matters(before, after)):
		c.wakeOwner(after)
	}
}

func (c *cronController[C, J]) childDeleted(j J) { c.wakeOwner(j) }

// matters reports whether a change of a Job may change what its CronJob needs.
//
// Differs: upstream looks at the CronJob whenever a Job's counters move.
func (c *cronController[C, J]) matters(before, after J) bool {
	b, a := c.kind.child(before), c.kind.child(after)
	b.ResourceVersion, b.Started = a.ResourceVersion, a.Started // these only tell of the Job
	return a != b
}

// wakeOwner has the CronJob that controls j looked at.
func (c *cronController[C, J]) wakeOwner(j J) {
	ref := c.kind.cronJobOf(j)
	if ref == nil {
		return
	}
	cron, exists, err := c.cached(j.GetNamespace() + "/" + ref.Name)
	if err != nil || !exists || cron.GetUID() != ref.UID {
		return // it is not known yet, and is looked at when it is; or no more
	}
	c.queue.Look(keyOf(cron))
}
