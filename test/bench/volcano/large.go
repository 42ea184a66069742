// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

const tasks = 4 // of the large Job

// compareLarge runs one large Job of Volcano and an Indexed Job of as many pods in turn. The pods succeed as soon as somebody sees them.
func (b *bench) compareLarge(ctx context.Context) error {
	if err := b.up(ctx, "large"); err != nil {
		return err
	}
	if err := b.control(ctx, "--gang=none"); err != nil {
		return err
	}
	end, err := b.finishPods(ctx)
	if err != nil {
		return err
	}
	defer end()
	var indexed, volcano []large
	for i := range b.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d: one Job of %d pods, Indexed and then of Volcano\n", i+1, b.rounds, b.large)
		for _, side := range []struct {
			run func(ctx context.Context, name string) error
			to  *[]large
		}{{b.runIndexed, &indexed}, {b.runVolcano, &volcano}} {
			begin, used := time.Now(), b.controllerCPU()
			if err := side.run(ctx, "large-"+strconv.Itoa(i)); err != nil {
				return err
			}
			*side.to = append(*side.to, large{float64(b.large) / time.Since(begin).Seconds(), (b.controllerCPU() - used) / time.Duration(b.large)})
			if err := b.clear(ctx); err != nil {
				return err
			}
		}
	}
	fmt.Printf("one Job of %d pods in %d tasks: %s; one Indexed Job: %s; %.2f of its rate\n", b.large, tasks, describe(volcano), describe(indexed),
		median(volcano).rate/median(indexed).rate)
	return b.down()
}

// large is what a large Job has cost.
type large struct {
	rate float64 // pods a second
	cpu  time.Duration
}

func median(l []large) large {
	l = slices.SortedFunc(slices.Values(l), func(a, b large) int { return int(a.rate*1000) - int(b.rate*1000) })
	return l[len(l)/2]
}

func describe(l []large) string {
	var rates, costs []string
	for _, one := range l {
		rates, costs = append(rates, fmt.Sprintf("%.0f", one.rate)), append(costs, fmt.Sprintf("%.2f", one.cpu.Seconds()*1000))
	}
	return strings.Join(rates, ", ") + " pods/s, " + strings.Join(costs, ", ") + " ms of controller CPU a pod"
}

// onNode is the spec of a pod that needs no scheduler.
func onNode() corev1.PodSpec {
	s := podSpec()
	s.NodeSelector, s.NodeName = nil, "simulated-000"
	return s
}

func (b *bench) runIndexed(ctx context.Context, name string) error {
	jobs := b.kube.BatchV1().Jobs(namespace)
	n := int32(b.large)
	_, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Completions: &n, Parallelism: &n, CompletionMode: new(batchv1.IndexedCompletion), Template: corev1.PodTemplateSpec{Spec: onNode()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating an Indexed Job: %w", err)
	}
	return await(ctx, func(ctx context.Context) (bool, error) {
		j, err := jobs.Get(ctx, name, metav1.GetOptions{})
		return err == nil && j.Status.CompletionTime != nil, err
	})
}

func (b *bench) runVolcano(ctx context.Context, name string) error {
	j := &batch.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batch.JobSpec{Queue: "default", MinAvailable: int32(b.large), SchedulerName: corev1.DefaultSchedulerName},
	}
	for i := range tasks {
		j.Spec.Tasks = append(j.Spec.Tasks, batch.TaskSpec{
			Name: "task" + strconv.Itoa(i), Replicas: int32(b.large / tasks), Template: corev1.PodTemplateSpec{Spec: onNode()},
		})
	}
	jobs := b.kinds.Jobs(namespace)
	if _, err := jobs.Create(ctx, j, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a Job of Volcano: %w", err)
	}
	return await(ctx, func(ctx context.Context) (bool, error) {
		j, err := jobs.Get(ctx, name, metav1.GetOptions{})
		return err == nil && j.Status.State.Phase == batch.Completed, err
	})
}

// clear deletes all Jobs and their pods.
func (b *bench) clear(ctx context.Context) error {
	all := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if err := b.kube.BatchV1().Jobs(namespace).DeleteCollection(ctx, all, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting Jobs: %w", err)
	}
	if err := b.kinds.Jobs(namespace).DeleteCollection(ctx, all, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting Volcano's Jobs: %w", err)
	}
	return await(ctx, func(ctx context.Context) (bool, error) {
		l, err := b.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(l.Items) == 0, err
	})
}

// finishPods plays the kubelet of the simulated nodes until end is called: pods there succeed at once, and go when they are deleted.
func (b *bench) finishPods(ctx context.Context) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(b.kube, 0, informers.WithNamespace(namespace))
	work := make(chan func(), 100_000)
	look := func(o any) {
		p := o.(*corev1.Pod)
		pods := b.kube.CoreV1().Pods(p.Namespace)
		switch {
		case !strings.HasPrefix(p.Spec.NodeName, "simulated-"):
		case p.DeletionTimestamp != nil:
			work <- func() {
				_ = pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) // or it has gone
			}
		case p.Status.Phase == corev1.PodPending:
			work <- func() {
				// A pod that has been deleted meanwhile needs no status.
				_, _ = pods.Patch(ctx, p.Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
			}
		}
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("following pods: %w", err)
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	for range 16 {
		go func() {
			for {
				select {
				case f := <-work:
					f()
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return func() { cancel(); factory.Shutdown() }, nil
}
