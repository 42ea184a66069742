// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-dev/drover/internal/cronjob"
)

// apiObject is a pointer to an API object.
type apiObject interface {
	comparable
	metav1.Object
	runtime.Object
}

// cronKind is what a controller of CronJobs must know of the kind C of its CronJobs and the kind J of their Jobs.
type cronKind[C, J apiObject] struct {
	apiVersion  string // of the CronJobs
	crons, jobs schema.GroupResource
	queue       string // name of the work queue, for metrics
	options     cronjob.Options
	facts       func(C) *cronjob.CronJob
	child       func(J) cronjob.Child
	jobFor      func(C, cronjob.Start) J
	// withStatus returns the CronJob with another status and other annotations; the rest may be shared.
	withStatus func(C, cronjob.Status, map[string]string) C
	// observeSkew measures how late a Job was created.
	observeSkew func(time.Duration)
}

// batchCronKind is that of batch/v1.
func batchCronKind() cronKind[*batchv1.CronJob, *batchv1.Job] {
	return cronKind[*batchv1.CronJob, *batchv1.Job]{
		apiVersion: batchv1.SchemeGroupVersion.String(), crons: batchv1.Resource("cronjobs"), jobs: batchv1.Resource("jobs"),
		queue: "cronjob", options: cronjob.DefaultOptions(),
		facts: cronjob.FromBatch, child: cronjob.ChildFromBatch, jobFor: cronjob.JobFor,
		withStatus: func(c *batchv1.CronJob, s cronjob.Status, annotations map[string]string) *batchv1.CronJob {
			next := &batchv1.CronJob{ObjectMeta: c.ObjectMeta, Spec: c.Spec, Status: s.ToBatch()}
			next.Annotations = annotations
			return next
		},
		observeSkew: func(d time.Duration) { cronSkew.Observe(d.Seconds()) },
	}
}
