// SPDX-License-Identifier: Apache-2.0

// Command floor is the least that a Job controller on client-go can do, so that others can be measured against it: it watches Jobs and
// pods, makes the pods, takes the finalizer off those that have succeeded and writes one last status. It keeps no order, takes no
// account of failures, of restarts or of its own mistakes, sends no events and reads no answers. What it costs is the price of the
// requests and the watches themselves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/internal/app/cores"
)

// workers send the requests, each one at a time.
const workers = 16

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	kubeconfig := flag.String("kubeconfig", "", "the API server to work on")
	creates := flag.Int("create", 0, "only create that many suspended Jobs, as fast as it goes, and say how fast that was")
	volcano := flag.Bool("volcano", false, "work on Volcano's Jobs, of one pod each, instead of Kubernetes'")
	flag.Parse()
	go cores.Run(ctx)
	work := run
	if *volcano {
		work = runVolcano
	}
	if *creates > 0 {
		work = func(ctx context.Context, kubeconfig string) error { return create(ctx, kubeconfig, *creates) }
	}
	if err := work(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func connect(kubeconfig string) (*kubernetes.Clientset, error) {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	rc.QPS = -1
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(rc)
}

// create is what starting CronJobs costs the API server at least.
func create(ctx context.Context, kubeconfig string, n int) error {
	client, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	f := &floor{client: client, requests: make(chan func(context.Context) error, n)}
	for i := range n {
		j := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "create-" + strconv.Itoa(i)},
			Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "bench", Command: []string{"true"}}},
			}}},
		}
		f.requests <- func(ctx context.Context) error {
			return client.BatchV1().RESTClient().Post().Namespace(metav1.NamespaceDefault).Resource("jobs").Body(j).Do(ctx).Error()
		}
	}
	close(f.requests)
	began := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { f.work(ctx) })
	}
	wg.Wait()
	took := time.Since(began)
	fmt.Fprintf(os.Stdout, "%d Jobs created in %v: %.0f/s\n", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
	return nil
}

func run(ctx context.Context, kubeconfig string) error {
	client, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	f := &floor{client: client, jobs: map[types.UID]*work{}, requests: make(chan func(context.Context) error, 100_000)}
	factory := informers.NewSharedInformerFactory(client, 0)
	jobs, pods := factory.Batch().V1().Jobs().Informer(), factory.Core().V1().Pods().Informer()
	_, err1 := jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { f.begin(o.(*batchv1.Job)) }})
	_, err2 := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, o any) { f.follow(o.(*corev1.Pod)) }})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { f.work(ctx) })
	}
	wg.Wait()
	factory.Shutdown()
	return nil
}

// work is what is left to do for one Job.
type work struct {
	job         *batchv1.Job
	wanted      int32 // pods in all
	made, ended int32
}

type floor struct {
	client   kubernetes.Interface
	requests chan func(context.Context) error
	mu       sync.Mutex
	jobs     map[types.UID]*work
}

func (f *floor) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r, ok := <-f.requests:
			if !ok {
				return
			}
			if err := r(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "floor:", err)
			}
		}
	}
}

func (f *floor) begin(j *batchv1.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(j.Status.Conditions) > 0 || f.jobs[j.UID] != nil {
		return
	}
	w := &work{job: j, wanted: *j.Spec.Completions}
	f.jobs[j.UID] = w
	for range min(*j.Spec.Parallelism, w.wanted) {
		f.makePod(w)
	}
}

func (f *floor) makePod(w *work) {
	index := strconv.Itoa(int(w.made))
	w.made++
	f.requests <- func(ctx context.Context) error {
		t := w.job.Spec.Template
		p := &corev1.Pod{Spec: t.Spec, ObjectMeta: metav1.ObjectMeta{
			GenerateName: w.job.Name + "-", Labels: t.Labels, Annotations: t.Annotations, Finalizers: []string{batchv1.JobTrackingFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		}}
		if w.job.Spec.CompletionMode != nil && *w.job.Spec.CompletionMode == batchv1.IndexedCompletion {
			p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: index}
		}
		return f.client.CoreV1().RESTClient().Post().Namespace(w.job.Namespace).Resource("pods").Body(p).Do(ctx).Error()
	}
}

func (f *floor) follow(p *corev1.Pod) {
	if p.Status.Phase != corev1.PodSucceeded || len(p.Finalizers) == 0 || len(p.OwnerReferences) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.jobs[p.OwnerReferences[0].UID]
	if w == nil {
		return
	}
	w.ended++
	namespace, name := p.Namespace, p.Name
	f.requests <- func(ctx context.Context) error {
		return f.client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("pods").Name(name).
			Body([]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}`)).Do(ctx).Error()
	}
	switch {
	case w.made < w.wanted:
		f.makePod(w)
	case w.ended == w.wanted:
		delete(f.jobs, w.job.UID)
		f.requests <- func(ctx context.Context) error { return f.finish(ctx, w) }
	}
}

func (f *floor) finish(ctx context.Context, w *work) error {
	now := metav1.NewTime(time.Now())
	status := batchv1.JobStatus{
		StartTime: &now, CompletionTime: &now, Succeeded: w.wanted, Ready: new(int32), Terminating: new(int32),
		UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
	}
	if w.job.Spec.CompletionMode != nil && *w.job.Spec.CompletionMode == batchv1.IndexedCompletion {
		status.CompletedIndexes = "0-" + strconv.Itoa(int(w.wanted)-1)
	}
	for _, c := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{
			Type: c, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached, LastProbeTime: now, LastTransitionTime: now,
		})
	}
	return f.client.BatchV1().RESTClient().Put().Namespace(w.job.Namespace).Resource("jobs").Name(w.job.Name).SubResource("status").
		Body(&batchv1.Job{ObjectMeta: w.job.ObjectMeta, Status: status}).Do(ctx).Error()
}
