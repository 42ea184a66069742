// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// volcanoFloor is the floor of Volcano's Jobs with one task of one pod: a PodGroup for each, its pod once the PodGroup is admitted, one
// status when the pod has succeeded, and the PodGroup is deleted.
type volcanoFloor struct {
	floor
	kinds *client.Client
	mu    sync.Mutex
	jobs  map[types.UID]*batch.Job
}

func runVolcano(ctx context.Context, kubeconfig string) error {
	kube, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	rc.QPS = -1
	kinds, err := client.New(rc)
	if err != nil {
		return err
	}
	f := &volcanoFloor{floor: floor{client: kube, requests: make(chan func(context.Context) error, 100_000)}, kinds: kinds, jobs: map[types.UID]*batch.Job{}}
	factory := informers.NewSharedInformerFactory(kube, 0)
	pods := factory.Core().V1().Pods().Informer()
	jobs := client.NewInformer(kinds.Jobs(""), &batch.Job{}, 0, cache.Indexers{})
	groups := client.NewInformer(kinds.PodGroups(""), &scheduling.PodGroup{}, 0, cache.Indexers{})
	_, err1 := jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { f.begin(o.(*batch.Job)) }})
	_, err2 := groups.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(was, is any) {
		f.admitted(was.(*scheduling.PodGroup), is.(*scheduling.PodGroup))
	}})
	_, err3 := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(was, is any) {
		f.ended(was.(*corev1.Pod), is.(*corev1.Pod))
	}})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { jobs.RunWithContext(ctx) })
	wg.Go(func() { groups.RunWithContext(ctx) })
	for range workers {
		wg.Go(func() { f.work(ctx) })
	}
	wg.Wait()
	factory.Shutdown()
	return nil
}

func ownedBy(j *batch.Job) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(j, batch.GroupVersion.WithKind("Job"))}
}

// begin makes the PodGroup of a new Job.
func (f *volcanoFloor) begin(j *batch.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if j.Status.State.Phase != "" || f.jobs[j.UID] != nil {
		return
	}
	f.jobs[j.UID] = j
	f.requests <- func(ctx context.Context) error {
		_, err := f.kinds.PodGroups(j.Namespace).Create(ctx, &scheduling.PodGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: scheduling.GroupVersion.String(), Kind: "PodGroup"},
			ObjectMeta: metav1.ObjectMeta{Name: j.Name, OwnerReferences: ownedBy(j)},
			Spec:       scheduling.PodGroupSpec{MinMember: j.Spec.MinAvailable, Queue: j.Spec.Queue},
		}, metav1.CreateOptions{})
		return err
	}
}

// admitted makes the pod of a Job whose PodGroup has just been admitted.
func (f *volcanoFloor) admitted(was, is *scheduling.PodGroup) {
	if was.Status.Phase == is.Status.Phase || len(is.OwnerReferences) == 0 {
		return
	}
	f.mu.Lock()
	j := f.jobs[is.OwnerReferences[0].UID]
	f.mu.Unlock()
	if j == nil {
		return
	}
	f.requests <- func(ctx context.Context) error {
		t := j.Spec.Tasks[0].Template
		p := &corev1.Pod{Spec: t.Spec, ObjectMeta: metav1.ObjectMeta{
			Name: j.Name + "-" + j.Spec.Tasks[0].Name + "-0", Labels: t.Labels, Annotations: t.Annotations, OwnerReferences: ownedBy(j),
		}}
		return f.client.CoreV1().RESTClient().Post().Namespace(j.Namespace).Resource("pods").Body(p).Do(ctx).Error()
	}
}

// ended finishes the Job of a pod that has just succeeded.
func (f *volcanoFloor) ended(was, is *corev1.Pod) {
	if is.Status.Phase != corev1.PodSucceeded || was.Status.Phase == corev1.PodSucceeded || len(is.OwnerReferences) == 0 {
		return
	}
	f.mu.Lock()
	j := f.jobs[is.OwnerReferences[0].UID]
	delete(f.jobs, is.OwnerReferences[0].UID)
	f.mu.Unlock()
	if j == nil {
		return
	}
	f.requests <- func(ctx context.Context) error {
		done := j.DeepCopy()
		done.Status.State.Phase = batch.Completed
		done.Status.Succeeded = 1
		_, err := f.kinds.StoreJobStatus(ctx, done)
		return errors.Join(err, f.kinds.PodGroups(j.Namespace).Delete(ctx, j.Name, metav1.DeleteOptions{}))
	}
}
