// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// cronAPI is what a controller of CronJobs asks of the API server. Errors are those of client-go.
type cronAPI[C, J apiObject] interface {
	// CronJob reads a CronJob from the API server itself.
	CronJob(ctx context.Context, namespace, name string) (C, error)
	// StoreCronStatus writes status and annotations of after, provided that the stored CronJob has its resource version, and returns
	// the new version. before is what is stored as far as is known.
	StoreCronStatus(ctx context.Context, before, after C) (resourceVersion string, err error)

	// Job reads a Job from the API server itself.
	Job(ctx context.Context, namespace, name string) (J, error)
	// CreateJob creates a Job and returns at least its metadata. It does not change j.
	CreateJob(ctx context.Context, j J) (J, error)
	// DeleteJobWithPods deletes one Job, and no other of its name, and lets the garbage collector delete its pods.
	DeleteJobWithPods(ctx context.Context, namespace, name string, uid types.UID) error
}

// cronClient is the cronAPI of batch/v1 on a real API server.
type cronClient struct{ client kubernetes.Interface }

func (c cronClient) CronJob(ctx context.Context, namespace, name string) (*batchv1.CronJob, error) {
	return c.client.BatchV1().CronJobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

// StoreCronStatus sends no spec: the API server takes the stored one.
func (c cronClient) StoreCronStatus(ctx context.Context, _, cron *batchv1.CronJob) (string, error) {
	stored, err := metadataOf(ctx, c.client.BatchV1().RESTClient().Put().Namespace(cron.Namespace).Resource("cronjobs").Name(cron.Name).SubResource("status").
		Body(&batchv1.CronJob{ObjectMeta: cron.ObjectMeta, Status: cron.Status}))
	if err != nil {
		return "", err
	}
	return stored.ResourceVersion, nil
}

func (c cronClient) Job(ctx context.Context, namespace, name string) (*batchv1.Job, error) {
	return c.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c cronClient) CreateJob(ctx context.Context, j *batchv1.Job) (*batchv1.Job, error) {
	stored, err := metadataOf(ctx, c.client.BatchV1().RESTClient().Post().Namespace(j.Namespace).Resource("jobs").Body(j))
	if err != nil {
		return nil, err
	}
	return &batchv1.Job{ObjectMeta: stored.ObjectMeta}, nil
}

func (c cronClient) DeleteJobWithPods(ctx context.Context, namespace, name string, uid types.UID) error {
	return c.client.BatchV1().Jobs(namespace).Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions:     &metav1.Preconditions{UID: &uid},
	})
}
