// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// vcjobAPI is what a VCJobController asks of the API server. Errors are those of client-go.
type vcjobAPI interface {
	// Job reads a Job from the API server itself.
	Job(ctx context.Context, namespace, name string) (*batch.Job, error)
	// StoreStatus writes j.Status, provided that the stored Job has j's resource version, and returns the new version.
	StoreStatus(ctx context.Context, j *batch.Job) (resourceVersion string, err error)
	// Store writes metadata and spec of j in the same way, and returns what is stored then.
	Store(ctx context.Context, j *batch.Job) (*batch.Job, error)
	// DeleteJob deletes a Job and waits for nothing; what belongs to it goes first.
	DeleteJob(ctx context.Context, j *batch.Job) error
	// DeleteCommand deletes one Command and no other of its name.
	DeleteCommand(ctx context.Context, c *bus.Command) error

	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error)
	// MarkPod notes on one pod that it is about to be deleted, and for which restart; "" for none.
	MarkPod(ctx context.Context, namespace string, pod vcjob.PodKey, restart string) error
	// DeletePod asks for one pod, and no other of its name, to be deleted with its own grace period.
	DeletePod(ctx context.Context, namespace string, pod vcjob.PodKey) error

	Group(ctx context.Context, namespace, name string) (*scheduling.PodGroup, error)
	CreateGroup(ctx context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error)
	UpdateGroup(ctx context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error)
	DeleteGroup(ctx context.Context, g *scheduling.PodGroup) error

	// Native, CreateNative and ResizeNative are for the PodGroups of Kubernetes. ResizeNative writes minCount, provided that the
	// stored one has g's resource version.
	Native(ctx context.Context, namespace, name string) (*schedulingv1beta1.PodGroup, error)
	CreateNative(ctx context.Context, g *schedulingv1beta1.PodGroup) (*schedulingv1beta1.PodGroup, error)
	ResizeNative(ctx context.Context, g *schedulingv1beta1.PodGroup) (*schedulingv1beta1.PodGroup, error)

	// Get, Create, Update and Delete are for the objects beside the pods: claims, ConfigMaps, Services, Secrets and NetworkPolicies.
	Get(ctx context.Context, like metav1.Object) (metav1.Object, error)
	Create(ctx context.Context, o metav1.Object) error
	Update(ctx context.Context, o metav1.Object) error
	Delete(ctx context.Context, o metav1.Object, uid types.UID) error
}

// vcjobClient is the vcjobAPI of a real API server.
type vcjobClient struct {
	kube kubernetes.Interface
	vc   *client.Client
}

func (c vcjobClient) Job(ctx context.Context, namespace, name string) (*batch.Job, error) {
	return c.vc.Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c vcjobClient) StoreStatus(ctx context.Context, j *batch.Job) (string, error) {
	return c.vc.StoreJobStatus(ctx, j)
}

func (c vcjobClient) Store(ctx context.Context, j *batch.Job) (*batch.Job, error) {
	j = j.DeepCopy()
	j.APIVersion, j.Kind = batch.GroupVersion.String(), "Job"
	return c.vc.Jobs(j.Namespace).Update(ctx, j, metav1.UpdateOptions{})
}

func (c vcjobClient) DeleteJob(ctx context.Context, j *batch.Job) error {
	return c.vc.Jobs(j.Namespace).Delete(ctx, j.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground), Preconditions: &metav1.Preconditions{UID: &j.UID},
	})
}

func (c vcjobClient) DeleteCommand(ctx context.Context, cmd *bus.Command) error {
	return c.vc.Commands(cmd.Namespace).Delete(ctx, cmd.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cmd.UID}})
}

func (c vcjobClient) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c vcjobClient) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	stored, err := metadataOf(ctx, c.kube.CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Body(p))
	if err != nil {
		return nil, err
	}
	stored.ManagedFields = nil
	return &corev1.Pod{ObjectMeta: stored.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodPending}}, nil
}

func (c vcjobClient) MarkPod(ctx context.Context, namespace string, pod vcjob.PodKey, restart string) error {
	annotations := map[string]string{batch.OutOfSyncKey: "true"}
	if restart != "" {
		annotations[vcjob.RestartKey] = restart
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("writing the mark of pod %q: %w", pod.Name, err)
	}
	return c.kube.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("pods").Name(pod.Name).
		SetHeader("Accept", onlyMetadata).Body(body).Do(ctx).Error()
}

func (c vcjobClient) DeletePod(ctx context.Context, namespace string, pod vcjob.PodKey) error {
	return c.kube.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}

func (c vcjobClient) Group(ctx context.Context, namespace, name string) (*scheduling.PodGroup, error) {
	return c.vc.PodGroups(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c vcjobClient) CreateGroup(ctx context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error) {
	g.APIVersion, g.Kind = scheduling.GroupVersion.String(), "PodGroup"
	return c.vc.PodGroups(g.Namespace).Create(ctx, g, metav1.CreateOptions{})
}

func (c vcjobClient) UpdateGroup(ctx context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error) {
	g.APIVersion, g.Kind = scheduling.GroupVersion.String(), "PodGroup"
	return c.vc.PodGroups(g.Namespace).Update(ctx, g, metav1.UpdateOptions{})
}

func (c vcjobClient) DeleteGroup(ctx context.Context, g *scheduling.PodGroup) error {
	return c.vc.PodGroups(g.Namespace).Delete(ctx, g.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &g.UID}})
}

func (c vcjobClient) Native(ctx context.Context, namespace, name string) (*schedulingv1beta1.PodGroup, error) {
	return c.kube.SchedulingV1beta1().PodGroups(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c vcjobClient) CreateNative(ctx context.Context, g *schedulingv1beta1.PodGroup) (*schedulingv1beta1.PodGroup, error) {
	return c.kube.SchedulingV1beta1().PodGroups(g.Namespace).Create(ctx, g, metav1.CreateOptions{})
}

func (c vcjobClient) ResizeNative(ctx context.Context, g *schedulingv1beta1.PodGroup) (*schedulingv1beta1.PodGroup, error) {
	patch, err := patchOf(g, map[string]any{"schedulingPolicy": g.Spec.SchedulingPolicy})
	if err != nil {
		return nil, fmt.Errorf("writing the size of PodGroup %q: %w", g.Name, err)
	}
	return c.kube.SchedulingV1beta1().PodGroups(g.Namespace).Patch(ctx, g.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// The objects beside the pods are of few kinds, each with a client of its own type.

func (c vcjobClient) Get(ctx context.Context, like metav1.Object) (metav1.Object, error) {
	namespace, name := like.GetNamespace(), like.GetName()
	switch like.(type) {
	case *corev1.PersistentVolumeClaim:
		return c.kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	case *corev1.ConfigMap:
		return c.kube.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	case *corev1.Service:
		return c.kube.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	case *corev1.Secret:
		return c.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	case *networkingv1.NetworkPolicy:
		return c.kube.NetworkingV1().NetworkPolicies(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return nil, unknownKind(like)
}

func unknownKind(o metav1.Object) error { return fmt.Errorf("objects of type %T are not known", o) }

func (c vcjobClient) Create(ctx context.Context, o metav1.Object) (err error) {
	namespace := o.GetNamespace()
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		_, err = c.kube.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, o, metav1.CreateOptions{})
	case *corev1.ConfigMap:
		_, err = c.kube.CoreV1().ConfigMaps(namespace).Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Service:
		_, err = c.kube.CoreV1().Services(namespace).Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Secret:
		_, err = c.kube.CoreV1().Secrets(namespace).Create(ctx, o, metav1.CreateOptions{})
	case *networkingv1.NetworkPolicy:
		_, err = c.kube.NetworkingV1().NetworkPolicies(namespace).Create(ctx, o, metav1.CreateOptions{})
	default:
		err = unknownKind(o)
	}
	return err
}

func (c vcjobClient) Update(ctx context.Context, o metav1.Object) (err error) {
	namespace := o.GetNamespace()
	switch o := o.(type) {
	case *corev1.ConfigMap:
		_, err = c.kube.CoreV1().ConfigMaps(namespace).Update(ctx, o, metav1.UpdateOptions{})
	case *corev1.Secret:
		_, err = c.kube.CoreV1().Secrets(namespace).Update(ctx, o, metav1.UpdateOptions{})
	default:
		err = unknownKind(o)
	}
	return err
}

func (c vcjobClient) Delete(ctx context.Context, o metav1.Object, uid types.UID) error {
	namespace, name := o.GetNamespace(), o.GetName()
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	switch o.(type) {
	case *corev1.ConfigMap:
		return c.kube.CoreV1().ConfigMaps(namespace).Delete(ctx, name, only)
	case *corev1.Service:
		return c.kube.CoreV1().Services(namespace).Delete(ctx, name, only)
	case *corev1.Secret:
		return c.kube.CoreV1().Secrets(namespace).Delete(ctx, name, only)
	case *networkingv1.NetworkPolicy:
		return c.kube.NetworkingV1().NetworkPolicies(namespace).Delete(ctx, name, only)
	}
	return unknownKind(o)
}
