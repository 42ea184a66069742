// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// What there is for CronJobs: the requests of their controller, and what users and Jobs do.

var cronJobResource = schema.GroupResource{Group: "batch", Resource: "cronjobs"}

// cronAudit remembers what must not happen a second time.
type cronAudit struct {
	started map[string]string       // by CronJob and due time, the Job that was created for it
	newest  map[types.UID]time.Time // of each CronJob, the newest due time that was started
}

// CronJobs returns copies of all CronJobs, by name.
func (c *Cluster) CronJobs() []*batchv1.CronJob {
	var all []*batchv1.CronJob
	for _, k := range sortedKeys(c.crons) {
		all = append(all, c.crons[k].DeepCopy())
	}
	return all
}

// FindCronJob returns a copy of a CronJob, or nil.
func (c *Cluster) FindCronJob(namespace, name string) *batchv1.CronJob {
	return c.crons[namespace+"/"+name].DeepCopy()
}

// SubmitCronJob stores a new CronJob with the defaults of the API server, and returns it.
func (c *Cluster) SubmitCronJob(cron *batchv1.CronJob) *batchv1.CronJob {
	cron = cron.DeepCopy()
	cron.UID = c.nextUID("cronjob")
	cron.Generation = 1
	cron.CreationTimestamp = metav1.NewTime(c.Now.Truncate(time.Second))
	cron.Status = batchv1.CronJobStatus{}
	if cron.Spec.ConcurrencyPolicy == "" {
		cron.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	setDefault(&cron.Spec.Suspend, false)
	setDefault(&cron.Spec.SuccessfulJobsHistoryLimit, 3)
	setDefault(&cron.Spec.FailedJobsHistoryLimit, 1)
	c.storeCronJob(cron)
	return cron.DeepCopy()
}

// EditCronJob changes the spec or metadata of a CronJob as a user may. It does nothing when the CronJob is gone.
func (c *Cluster) EditCronJob(namespace, name string, change func(*batchv1.CronJob)) {
	stored := c.crons[namespace+"/"+name]
	if stored == nil {
		return
	}
	cron := stored.DeepCopy()
	change(cron)
	cron.Status = stored.Status
	cron.Generation++
	c.storeCronJob(cron)
}

// EditCronJobStatus changes the status of a CronJob as an administrator may.
func (c *Cluster) EditCronJobStatus(namespace, name string, change func(*batchv1.CronJobStatus)) {
	if stored := c.crons[namespace+"/"+name]; stored != nil {
		cron := stored.DeepCopy()
		change(&cron.Status)
		c.storeCronJob(cron)
		if cron.Status.LastScheduleTime != nil { // due times after it may be started again
			c.cron.newest[cron.UID] = cron.Status.LastScheduleTime.Time
		}
	}
}

// RemoveCronJob deletes a CronJob and its Jobs, as the garbage collector does.
func (c *Cluster) RemoveCronJob(namespace, name string) {
	cron := c.crons[namespace+"/"+name]
	if cron == nil {
		return
	}
	c.version++
	delete(c.crons, key(cron))
	last := cron.DeepCopy()
	last.ResourceVersion = strconv.FormatInt(c.version, 10)
	c.log = append(c.log, Change{Version: c.version, CronJob: last, Deleted: true})
	for _, j := range c.Jobs() {
		if metav1.IsControlledBy(j, cron) {
			c.removeJob(c.jobs[key(j)])
		}
	}
}

// EndJob gives a Job that goes on the condition Complete or Failed.
func (c *Cluster) EndJob(namespace, name string, how batchv1.JobConditionType) {
	stored := c.jobs[namespace+"/"+name]
	if stored == nil || isFinished(&stored.Status) {
		return
	}
	j := stored.DeepCopy()
	now := metav1.NewTime(c.Now.Truncate(time.Second))
	j.Status.Active = 0
	j.Status.StartTime = ptr.To(j.CreationTimestamp)
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: now})
	if how == batchv1.JobComplete {
		j.Status.CompletionTime, j.Status.Succeeded = &now, 1
	}
	c.storeJob(j)
}

func (c *Cluster) storeCronJob(cron *batchv1.CronJob) {
	c.version++
	cron.ResourceVersion = strconv.FormatInt(c.version, 10)
	c.crons[key(cron)] = cron
	c.log = append(c.log, Change{Version: c.version, CronJob: cron.DeepCopy()})
}

// GetCronJob returns the stored CronJob.
func (c *Cluster) GetCronJob(namespace, name string) (*batchv1.CronJob, error) {
	lost, err := c.request("GET cronjob")
	if err != nil {
		return nil, err
	}
	cron := c.crons[namespace+"/"+name]
	if cron == nil {
		return nil, apierrors.NewNotFound(cronJobResource, name)
	}
	return cron.DeepCopy(), lost()
}

// PutCronJobStatus stores the status and the metadata of next.
func (c *Cluster) PutCronJobStatus(next *batchv1.CronJob) (resourceVersion string, err error) {
	lost, err := c.request("PUT cronjob status")
	if err != nil {
		return "", err
	}
	stored := c.crons[key(next)]
	switch {
	case stored == nil || stored.UID != next.UID:
		return "", apierrors.NewNotFound(cronJobResource, next.Name)
	case stored.ResourceVersion != next.ResourceVersion:
		return "", apierrors.NewConflict(cronJobResource, next.Name, fmt.Errorf("version %s is stored", stored.ResourceVersion))
	}
	cron := stored.DeepCopy()
	cron.Annotations = next.DeepCopy().Annotations
	cron.Status = *next.Status.DeepCopy()
	if before, after := stored.Status.LastScheduleTime, cron.Status.LastScheduleTime; before != nil && (after == nil || after.Before(before)) {
		c.violate("lastScheduleTime of %s went back from %v to %v", key(cron), before, after)
	}
	c.storeCronJob(cron)
	return cron.ResourceVersion, lost()
}

// PostJob stores a new Job.
func (c *Cluster) PostJob(j *batchv1.Job) (*batchv1.Job, error) {
	lost, err := c.request("POST job")
	if err != nil {
		return nil, err
	}
	if c.jobs[key(j)] != nil {
		return nil, apierrors.NewAlreadyExists(jobResource, j.Name)
	}
	if c.JobQuota > 0 && len(c.jobs) >= c.JobQuota {
		return nil, apierrors.NewForbidden(jobResource, j.Name, fmt.Errorf("exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=%d, limited: count/jobs.batch=%d", c.JobQuota, c.JobQuota))
	}
	c.auditStart(j)
	return c.Submit(j), lost()
}

// auditStart checks that no due time is started a second time, and that they come in order.
func (c *Cluster) auditStart(j *batchv1.Job) {
	ref := metav1.GetControllerOf(j)
	due, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if ref == nil || err != nil {
		return
	}
	if due.After(c.Now) {
		c.violate("%s was started before its time %v", j.Name, due)
	}
	tick := string(ref.UID) + " " + due.UTC().Format(time.RFC3339)
	if first, twice := c.cron.started[tick]; twice {
		c.violate("%s was started again for %v, after %s", j.Name, due, first)
	}
	c.cron.started[tick] = j.Name
	if newest := c.cron.newest[ref.UID]; !due.After(newest) {
		c.violate("%s was started for %v after %v", j.Name, due, newest)
	}
	c.cron.newest[ref.UID] = due
}

// Started returns how many due times were started.
func (c *Cluster) Started() int { return len(c.cron.started) }

// DeleteJobBackground removes a Job; the garbage collector removes its pods afterwards.
func (c *Cluster) DeleteJobBackground(namespace, name string, uid types.UID) error {
	lost, err := c.request("DELETE job")
	if err != nil {
		return err
	}
	j := c.jobs[namespace+"/"+name]
	if j == nil {
		return apierrors.NewNotFound(jobResource, name)
	}
	if j.UID != uid {
		return apierrors.NewConflict(jobResource, name, fmt.Errorf("UID is %s", j.UID))
	}
	if ref := metav1.GetControllerOf(j); ref == nil || ref.Kind != "CronJob" {
		c.violate("%s is no Job of a CronJob and was deleted by its controller", j.Name)
	}
	c.removeJob(j)
	return lost()
}
