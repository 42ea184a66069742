// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/job"
)

// jobAPI is what a JobController asks of the API server. Errors are those of client-go.
type jobAPI interface {
	// Job reads a Job from the API server itself.
	Job(ctx context.Context, namespace, name string) (*batchv1.Job, error)
	// StoreStatus writes j.Status, provided that the stored Job has j's resource version, and returns the new version.
	StoreStatus(ctx context.Context, j *batchv1.Job) (resourceVersion string, err error)
	// DeleteJob deletes a finished Job and waits for nothing; its pods go first.
	DeleteJob(ctx context.Context, j *batchv1.Job) error

	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error)
	// DeletePod asks for one pod, and no other of its name, to be deleted with its own grace period.
	DeletePod(ctx context.Context, namespace string, pod job.PodKey) error
	// Untrack takes the tracking finalizer off one pod, provided that it has that resource version where one is given.
	Untrack(ctx context.Context, namespace string, pod job.PodKey, resourceVersion string) error
	// Adopt makes j the controller of an ownerless pod, and has it tracked if so asked.
	Adopt(ctx context.Context, j *batchv1.Job, a job.Adoption) (*corev1.Pod, error)
	// Release takes j's owner reference and the tracking finalizer off a pod.
	Release(ctx context.Context, j *batchv1.Job, pod job.PodKey) (*corev1.Pod, error)
}

// jobClient is the jobAPI of a real API server.
type jobClient struct{ client kubernetes.Interface }

func (c jobClient) Job(ctx context.Context, namespace, name string) (*batchv1.Job, error) {
	return c.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

// StoreStatus sends no spec: the API server takes the stored one.
func (c jobClient) StoreStatus(ctx context.Context, j *batchv1.Job) (string, error) {
	stored, err := c.client.BatchV1().Jobs(j.Namespace).UpdateStatus(ctx, &batchv1.Job{ObjectMeta: j.ObjectMeta, Status: j.Status}, metav1.UpdateOptions{})
	if err != nil {
		return "", err
	}
	return stored.ResourceVersion, nil
}

func (c jobClient) DeleteJob(ctx context.Context, j *batchv1.Job) error {
	return c.client.BatchV1().Jobs(j.Namespace).Delete(ctx, j.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: &j.UID},
	})
}

func (c jobClient) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c jobClient) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return c.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
}

func (c jobClient) DeletePod(ctx context.Context, namespace string, pod job.PodKey) error {
	return c.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}

// podPatch is the part of a strategic merge patch that changes whose a pod is. Its UID makes the API server refuse it for
// another pod of the same name.
type podPatch struct {
	Metadata struct {
		UID              types.UID `json:"uid"`
		ResourceVersion  string    `json:"resourceVersion,omitempty"`
		OwnerReferences  []any     `json:"ownerReferences,omitempty"`
		Finalizers       []string  `json:"finalizers,omitempty"`
		DeleteFinalizers []string  `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
	} `json:"metadata"`
}

func (c jobClient) Untrack(ctx context.Context, namespace string, pod job.PodKey, resourceVersion string) error {
	var p podPatch
	p.Metadata.ResourceVersion = resourceVersion
	p.Metadata.DeleteFinalizers = []string{batchv1.JobTrackingFinalizer}
	_, err := c.patch(ctx, namespace, pod, p)
	return err
}

func (c jobClient) Adopt(ctx context.Context, j *batchv1.Job, a job.Adoption) (*corev1.Pod, error) {
	var p podPatch
	p.Metadata.OwnerReferences = []any{metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	p.Metadata.ResourceVersion = a.ResourceVersion
	if a.Track {
		p.Metadata.Finalizers = []string{batchv1.JobTrackingFinalizer}
	}
	return c.patch(ctx, j.Namespace, a.Pod, p)
}

func (c jobClient) Release(ctx context.Context, j *batchv1.Job, pod job.PodKey) (*corev1.Pod, error) {
	var p podPatch
	p.Metadata.OwnerReferences = []any{map[string]any{"$patch": "delete", "uid": j.UID}}
	p.Metadata.DeleteFinalizers = []string{batchv1.JobTrackingFinalizer}
	return c.patch(ctx, j.Namespace, pod, p)
}

func (c jobClient) patch(ctx context.Context, namespace string, pod job.PodKey, p podPatch) (*corev1.Pod, error) {
	p.Metadata.UID = pod.UID
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("writing the patch of pod %q: %w", pod.Name, err)
	}
	return c.client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
}
