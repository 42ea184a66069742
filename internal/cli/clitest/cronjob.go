// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/cronjob"
)

// CronJobOption changes a CronJob in the making.
type CronJobOption func(*batchv1.CronJob)

// CronJob returns a CronJob with that schedule that was created at Epoch and has not been seen by a controller.
func CronJob(name, schedule string, options ...CronJobOption) *batchv1.CronJob {
	c := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: Namespace, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(Epoch), ResourceVersion: "1",
		},
		Spec: batchv1.CronJobSpec{
			Schedule: schedule, ConcurrencyPolicy: batchv1.AllowConcurrent, Suspend: ptr.To(false),
			SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](1),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: "busybox"}},
			}}}},
		},
	}
	for _, option := range options {
		option(c)
	}
	return c
}

// InZone sets the time zone of the schedule.
func InZone(zone string) CronJobOption { return func(c *batchv1.CronJob) { c.Spec.TimeZone = &zone } }

// LastScheduled sets the newest due time that was started, so long after Epoch.
func LastScheduled(after time.Duration) CronJobOption {
	return func(c *batchv1.CronJob) { c.Status.LastScheduleTime = ptr.To(metav1.NewTime(Epoch.Add(after))) }
}

// Annotated sets an annotation.
func Annotated(key, value string) CronJobOption {
	return func(c *batchv1.CronJob) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value) }
}

// Ledger gives the CronJob the record of these due times, as its controller stores it.
func Ledger(ticks ...cronjob.Tick) CronJobOption {
	return func(c *batchv1.CronJob) {
		for i := range ticks {
			t := &ticks[i]
			if t.Count == 0 {
				t.Count, t.Through = 1, t.Due
			}
		}
		l := cronjob.Ledger{Until: ticks[len(ticks)-1].Through, Ticks: ticks, Key: cronjob.Read(cronjob.FromBatch(c), time.LoadLocation, time.UTC).Key()}
		Annotated(cronjob.LedgerAnnotation, l.Encode(c.UID))(c)
	}
}

// DueAt returns the Job that a CronJob has started for a due time, so long after Epoch.
func DueAt(c *batchv1.CronJob, after time.Duration, options ...JobOption) *batchv1.Job {
	j := cronjob.JobFor(c, cronjob.Start{Name: cronjob.JobName(c.Name, Epoch.Add(after)), Due: Epoch.Add(after)})
	made := Job(j.Name, options...)
	made.OwnerReferences, made.Annotations = j.OwnerReferences, j.Annotations
	made.CreationTimestamp = metav1.NewTime(Epoch.Add(after))
	return made
}
