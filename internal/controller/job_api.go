// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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

// onlyMetadata asks for no more of a written object than its metadata: the rest is known, and costs both sides time.
const onlyMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// metadataOf carries a write out and returns the metadata of what is stored then.
func metadataOf(ctx context.Context, r *rest.Request) (*metav1.PartialObjectMetadata, error) {
	result := r.SetHeader("Accept", onlyMetadata).Do(ctx)
	if err := result.Error(); err != nil { // unlike that of Raw it carries what the API server has said
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	// The body is a protobuf envelope, runtime.Unknown, behind a fixed prefix of four bytes.
	var envelope runtime.Unknown
	if !bytes.HasPrefix(body, []byte("k8s\x00")) {
		return nil, errors.New("reading the answer of the API server: it is not in protobuf")
	}
	if err := envelope.Unmarshal(body[4:]); err != nil {
		return nil, fmt.Errorf("reading the answer of the API server: %w", err)
	}
	var m metav1.PartialObjectMetadata
	if err := m.Unmarshal(envelope.Raw); err != nil {
		return nil, fmt.Errorf("reading the answer of the API server: %w", err)
	}
	return &m, nil
}

func (c jobClient) Job(ctx context.Context, namespace, name string) (*batchv1.Job, error) {
	return c.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

// StoreStatus sends no spec: the API server takes the stored one.
func (c jobClient) StoreStatus(ctx context.Context, j *batchv1.Job) (string, error) {
	stored, err := metadataOf(ctx, c.client.BatchV1().RESTClient().Put().Namespace(j.Namespace).Resource("jobs").Name(j.Name).SubResource("status").
		Body(&batchv1.Job{ObjectMeta: j.ObjectMeta, Status: j.Status}))
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
	stored, err := metadataOf(ctx, c.pods(p.Namespace, c.client.CoreV1().RESTClient().Post()).Body(p))
	if err != nil {
		return nil, err
	}
	stored.ManagedFields = nil
	return &corev1.Pod{ObjectMeta: stored.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodPending}}, nil
}

func (c jobClient) pods(namespace string, r *rest.Request) *rest.Request {
	return r.Namespace(namespace).Resource("pods")
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

// of returns the patch for one pod, as it is sent.
func (p podPatch) of(pod job.PodKey) ([]byte, error) {
	p.Metadata.UID = pod.UID
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("writing the patch of pod %q: %w", pod.Name, err)
	}
	return body, nil
}

func (c jobClient) Untrack(ctx context.Context, namespace string, pod job.PodKey, resourceVersion string) error {
	var p podPatch
	p.Metadata.ResourceVersion = resourceVersion
	p.Metadata.DeleteFinalizers = []string{batchv1.JobTrackingFinalizer}
	body, err := p.of(pod)
	if err != nil {
		return err
	}
	return c.pods(namespace, c.client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType)).Name(pod.Name).
		SetHeader("Accept", onlyMetadata).Body(body).Do(ctx).Error()
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
	body, err := p.of(pod)
	if err != nil {
		return nil, err
	}
	return c.client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
}
