// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

const plainWorkers = 5

// PlainPodConfig says for which pods a PlainPodController makes PodGroups.
type PlainPodConfig struct {
	// Schedulers are the schedulers whose pods are meant; default volcano.
	Schedulers []string
	// KeepAnnotations leaves the annotations of the pods' owners alone.
	KeepAnnotations bool
	// Own says that PodGroups are admitted by package gang. It cannot hold back pods that are there already: so it counts them.
	Own bool
}

// plainAPI is what a PlainPodController asks of the API server.
type plainAPI interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Annotations returns those of an owner of pods.
	Annotations(ctx context.Context, namespace string, ref *metav1.OwnerReference) (map[string]string, error)
	Group(ctx context.Context, namespace, name string) (*scheduling.PodGroup, error)
	CreateGroup(ctx context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error)
	UpdateGroup(ctx context.Context, g *scheduling.PodGroup) (*scheduling.PodGroup, error)
	DeleteGroup(ctx context.Context, g *scheduling.PodGroup) error
	// Join notes on one pod which PodGroup it belongs to.
	Join(ctx context.Context, p *corev1.Pod, group string) error
}

type plainClient struct{ vcjobClient }

func (c plainClient) Annotations(ctx context.Context, namespace string, ref *metav1.OwnerReference) (map[string]string, error) {
	var o metav1.Object
	var err error
	switch ref.Kind {
	case "ReplicaSet":
		o, err = c.kube.AppsV1().ReplicaSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	case "DaemonSet":
		o, err = c.kube.AppsV1().DaemonSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	case "StatefulSet":
		o, err = c.kube.AppsV1().StatefulSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	case "Job":
		o, err = c.kube.BatchV1().Jobs(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	default:
		return nil, nil
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return o.GetAnnotations(), nil
}

func (c plainClient) Join(ctx context.Context, p *corev1.Pod, group string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "annotations": map[string]string{batch.GroupNameKey: group}}})
	if err != nil {
		return fmt.Errorf("writing the PodGroup of pod %q: %w", p.Name, err)
	}
	return c.kube.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).Namespace(p.Namespace).Resource("pods").Name(p.Name).
		SetHeader("Accept", onlyMetadata).Body(body).Do(ctx).Error()
}

// PlainPodController makes PodGroups for pods that name a scheduler of Volcano and belong to none: pods without an owner, and those
// of Deployments, StatefulSets, DaemonSets and Jobs of Kubernetes.
type PlainPodController struct {
	cfg  PlainPodConfig
	api  plainAPI
	log  *slog.Logger
	pods cache.Indexer
	sets map[string]cache.Indexer // ReplicaSets and StatefulSets, slim, by kind

	synced []cache.InformerSynced
	caches *VolcanoCaches
	own    *KubeCaches // of sets: nobody else follows them, and only where there are Volcano's kinds
	queue  keyQueue    // pods by "namespace/name"
	empty  keyQueue    // sets without pods by "kind/namespace/name"
	ready  chan struct{}
}

// NewPlainPodController returns a controller that follows pods and their owners through kinds. It starts nothing.
func NewPlainPodController(cfg PlainPodConfig, kube kubernetes.Interface, vc *client.Client, kinds *KubeCaches, caches *VolcanoCaches, c clock.WithTicker, log *slog.Logger) (*PlainPodController, error) {
	p := newPlainPodController(cfg, plainClient{vcjobClient{kube, vc}}, c, log)
	p.caches = caches
	pods := kinds.pods()
	p.own = kinds.anew()
	replicaSets, statefulSets := p.own.replicaSets(), p.own.statefulSets()
	p.pods = pods.GetIndexer()
	p.sets = map[string]cache.Indexer{"ReplicaSet": replicaSets.GetIndexer(), "StatefulSet": statefulSets.GetIndexer()}
	var slim slimmer
	errs := []error{pods.SetTransform(slim.pod), replicaSets.SetTransform(slimSet), statefulSets.SetTransform(slimSet)}
	watch := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		if err == nil {
			p.synced = append(p.synced, registration.HasSynced)
		}
		errs = append(errs, err)
	}
	watch(pods, handlerOf(p.podChanged, func(_, pod *corev1.Pod) { p.podChanged(pod) }, func(*corev1.Pod) {}))
	watch(replicaSets, handlerOf(func(s *appsv1.ReplicaSet) { p.setChanged("ReplicaSet", s, s.Spec.Replicas) },
		func(_, s *appsv1.ReplicaSet) { p.setChanged("ReplicaSet", s, s.Spec.Replicas) }, func(*appsv1.ReplicaSet) {}))
	watch(statefulSets, handlerOf(func(s *appsv1.StatefulSet) { p.setChanged("StatefulSet", s, s.Spec.Replicas) },
		func(_, s *appsv1.StatefulSet) { p.setChanged("StatefulSet", s, s.Spec.Replicas) }, func(*appsv1.StatefulSet) {}))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("watching for the controller of plain pods: %w", err)
	}
	return p, nil
}

func newPlainPodController(cfg PlainPodConfig, api plainAPI, c clock.WithTicker, log *slog.Logger) *PlainPodController {
	if len(cfg.Schedulers) == 0 {
		cfg.Schedulers = []string{batch.DefaultSchedulerName}
	}
	return &PlainPodController{
		cfg: cfg, api: api, log: log, ready: make(chan struct{}),
		queue: newLazyQueue("podgroup", retryDelays(), c), empty: newLazyQueue("podgroup_sets", retryDelays(), c),
	}
}

// slimSet keeps of a set whose it is and how many pods it wants.
func slimSet(obj any) (any, error) {
	switch s := obj.(type) {
	case *appsv1.ReplicaSet:
		s.ObjectMeta = slimMeta(s)
		s.Spec, s.Status = appsv1.ReplicaSetSpec{Replicas: s.Spec.Replicas}, appsv1.ReplicaSetStatus{}
	case *appsv1.StatefulSet:
		s.ObjectMeta = slimMeta(s)
		s.Spec, s.Status = appsv1.StatefulSetSpec{Replicas: s.Spec.Replicas}, appsv1.StatefulSetStatus{}
	}
	return obj, nil
}

func slimMeta(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// Run works until ctx ends, and returns when everything it started has ended.
func (c *PlainPodController) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	c.caches.run(ctx, &running)
	c.own.Start(ctx.Done())
	defer c.own.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	close(c.ready)
	c.log.Info("Controller of plain pods started", "schedulers", strings.Join(c.cfg.Schedulers, ","))
	for range plainWorkers {
		running.Go(func() { work(ctx, c.queue, c.syncPod, c.log) })
	}
	running.Go(func() { work(ctx, c.empty, c.syncEmpty, c.log) })
	<-ctx.Done()
	c.queue.ShutDown()
	c.empty.ShutDown()
	return nil
}

// Ready is closed once the controller knows the cluster and works.
func (c *PlainPodController) Ready() <-chan struct{} { return c.ready }

func (c *PlainPodController) podChanged(p *corev1.Pod) {
	if c.concerns(p) {
		c.queue.Add(keyOf(p))
	}
}

// concerns reports whether p is to get a PodGroup.
func (c *PlainPodController) concerns(p *corev1.Pod) bool {
	return slices.Contains(c.cfg.Schedulers, p.Spec.SchedulerName) && groupOfPod(p) == "" && p.DeletionTimestamp == nil
}

func (c *PlainPodController) setChanged(kind string, s metav1.Object, replicas *int32) {
	if ptr.Deref(replicas, 1) == 0 {
		c.empty.Add(kind + "/" + keyOf(s))
	}
}

// syncPod has one pod join its PodGroup, which is made or brought up to date first.
func (c *PlainPodController) syncPod(ctx context.Context, key string) error {
	o, exists, err := c.pods.GetByKey(key)
	if err != nil || !exists || !c.concerns(o.(*corev1.Pod)) {
		return err
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("reading the key %q of a pod: %w", key, err)
	}
	p, err := c.api.Pod(ctx, namespace, name) // the cache has only part of it
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading pod %s: %w", key, err)
	}
	if !c.concerns(p) {
		return nil
	}
	var inherited map[string]string
	if ref := metav1.GetControllerOfNoCopy(p); !c.cfg.KeepAnnotations && gang.HasMembers(ref) {
		if inherited, err = c.api.Annotations(ctx, namespace, ref); err != nil {
			return fmt.Errorf("reading %s %q: %w", ref.Kind, ref.Name, err)
		}
	}
	want := gang.PlainGroup(p, inherited)
	if c.cfg.Own {
		want.Status.Phase = scheduling.GroupInqueue
	}
	if err := c.ensure(ctx, want); err != nil {
		return err
	}
	if err := c.api.Join(ctx, p, want.Name); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("noting the PodGroup of pod %s: %w", key, err)
	}
	c.log.Debug("Pod has joined its PodGroup", "pod", key, "podGroup", want.Name)
	return nil
}

func (c *PlainPodController) ensure(ctx context.Context, want *scheduling.PodGroup) error {
	_, err := c.api.CreateGroup(ctx, want.DeepCopy())
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodGroup %q: %w", want.Name, err)
	}
	have, err := c.api.Group(ctx, want.Namespace, want.Name)
	if err != nil {
		return fmt.Errorf("reading PodGroup %q: %w", want.Name, err)
	}
	if next := gang.UpdatedPlain(have, want); next != nil {
		if _, err := c.api.UpdateGroup(ctx, next); err != nil {
			return fmt.Errorf("updating PodGroup %q: %w", want.Name, err)
		}
	}
	return nil
}

// syncEmpty deletes the PodGroup of a set that wants no pods.
func (c *PlainPodController) syncEmpty(ctx context.Context, key string) error {
	kind, rest, _ := strings.Cut(key, "/")
	o, exists, err := c.sets[kind].GetByKey(rest)
	if err != nil || !exists {
		return err
	}
	var replicas *int32
	var set metav1.Object
	switch s := o.(type) {
	case *appsv1.ReplicaSet:
		replicas, set = s.Spec.Replicas, s
	case *appsv1.StatefulSet:
		replicas, set = s.Spec.Replicas, s
	}
	if ptr.Deref(replicas, 1) != 0 {
		return nil
	}
	name := gang.PlainNameOf(set.GetUID())
	if c.caches != nil {
		if _, exists, err := c.caches.groups.GetIndexer().GetByKey(set.GetNamespace() + "/" + name); err == nil && !exists {
			return nil
		}
	}
	g, err := c.api.Group(ctx, set.GetNamespace(), name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading PodGroup %q: %w", name, err)
	}
	if err := c.api.DeleteGroup(ctx, g); err != nil && !isGone(err) {
		return fmt.Errorf("deleting PodGroup %q: %w", name, err)
	}
	return nil
}
