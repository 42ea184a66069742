// SPDX-License-Identifier: Apache-2.0

// Command volcano measures drover-controller with Volcano's Jobs on a plane with simulated nodes: one large Job beside an Indexed Job
// of as many pods; many gangs queued at once (--gang=native), beside the same pods and PodGroups of Kubernetes made by a client that
// does nothing else, which is what kube-scheduler can do at best; and what gangs cost that wait in a full queue. It reports and judges
// nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
	"github.com/drover-dev/drover/test/bench/usage"
)

const (
	namespace = metav1.NamespaceDefault
	simulated = "drover.dev/simulated" // label of the nodes that nobody runs
	limit     = 15 * time.Minute       // for anything that is awaited
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var b bench
	flag.StringVar(&b.drover, "drover", "bin/drover", "the drover whose plane is used")
	flag.StringVar(&b.binary, "controller", "bin/drover-controller", "the controller to measure")
	flag.IntVar(&b.large, "large", 2000, "pods of the large Job, in four tasks; 0: there is none")
	flag.IntVar(&b.rounds, "rounds", 3, "how often it runs, and the Indexed Job beside it")
	flag.IntVar(&b.nodes, "nodes", 100, "simulated nodes, of 40 CPUs each")
	flag.IntVar(&b.gangs, "gangs", 1000, "gangs that are queued at once")
	flag.IntVar(&b.size, "size", 4, "pods of a gang, of 1 CPU each")
	flag.IntVar(&b.queued, "queued", 10_000, "gangs that wait in a full queue")
	flag.DurationVar(&b.idle, "idle", 30*time.Second, "how long these are watched")
	flag.Parse()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "volcano:", err)
		os.Exit(1)
	}
}

type bench struct {
	drover, binary             string
	large, rounds              int
	nodes, gangs, size, queued int
	idle                       time.Duration

	dir, kubeconfig   string
	plane, controller *exec.Cmd
	kube              kubernetes.Interface
	kinds             *client.Client
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "drover-volcano."); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	defer func() { err = errors.Join(err, b.down()) }()

	if b.large > 0 {
		if err := b.compareLarge(ctx); err != nil {
			return err
		}
	}
	floor, err := b.schedule(ctx, "the scheduler alone", b.makeNatively)
	if err != nil {
		return err
	}
	if err := b.down(); err != nil {
		return err
	}
	if err := b.up(ctx, "gangs"); err != nil {
		return err
	}
	if err := b.control(ctx, "--gang=native"); err != nil {
		return err
	}
	ours, err := b.schedule(ctx, "Volcano's Jobs", b.makeJobs)
	if err != nil {
		return err
	}
	fmt.Printf("%d gangs of %d on %d nodes: %s; the scheduler alone: %s; %.2f of its rate\n", b.gangs, b.size, b.nodes, ours, floor, ours.rate()/floor.rate())
	fmt.Printf("controller CPU a gang: %v\n", (ours.controller / time.Duration(b.gangs)).Round(10*time.Microsecond))
	return b.wait(ctx)
}

// outcome is what placing all gangs took.
type outcome struct {
	pods                    int
	wall, plane, controller time.Duration
	scheduling              time.Duration // that the scheduler's attempts took
}

func (o outcome) rate() float64 { return float64(o.pods) / o.wall.Seconds() }

func (o outcome) String() string {
	return fmt.Sprintf("%.1f s, %.0f pods/s, scheduling attempts took %.0f %% of the time, plane CPU a pod %v",
		o.wall.Seconds(), o.rate(), 100*o.scheduling.Seconds()/o.wall.Seconds(), (o.plane / time.Duration(o.pods)).Round(10*time.Microsecond))
}

// schedule makes the gangs and waits until each pod has a node.
func (b *bench) schedule(ctx context.Context, what string, makeAll func(ctx context.Context) error) (outcome, error) {
	if b.plane == nil {
		if err := b.up(ctx, "floor"); err != nil {
			return outcome{}, err
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %d gangs of %d\n", what, b.gangs, b.size)
	o := outcome{pods: b.gangs * b.size}
	placed, end, err := b.followPods(ctx)
	if err != nil {
		return o, err
	}
	defer end()
	begin, plane, controller, scheduling := time.Now(), usage.CPU(b.plane.Process.Pid), b.controllerCPU(), b.attempts(ctx)
	if err := makeAll(ctx); err != nil {
		return o, err
	}
	if err := await(ctx, func(context.Context) (bool, error) { return int(placed.Load()) >= o.pods, nil }); err != nil {
		return o, fmt.Errorf("waiting for %d pods, %d have a node: %w", o.pods, placed.Load(), err)
	}
	o.wall, o.plane, o.controller = time.Since(begin), usage.CPU(b.plane.Process.Pid)-plane, b.controllerCPU()-controller
	o.scheduling = b.attempts(ctx) - scheduling
	return o, nil
}

// wait measures what waiting PodGroups cost.
func (b *bench) wait(ctx context.Context) error {
	before := usage.Resident(b.controller.Process.Pid)
	_, err := b.kinds.Queues().Create(ctx, &scheduling.Queue{
		TypeMeta:   metav1.TypeMeta{APIVersion: scheduling.GroupVersion.String(), Kind: "Queue"},
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       scheduling.QueueSpec{Weight: 1, Capability: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a queue: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%d gangs in a queue that has no room for them\n", b.queued)
	if err := b.makeJobsIn(ctx, "full", "waiting-", b.queued); err != nil {
		return err
	}
	err = await(ctx, func(ctx context.Context) (bool, error) {
		l, err := b.kinds.PodGroups(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, err
		}
		return 1+int(*orZero(l.RemainingItemCount)) >= b.gangs+b.queued, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the PodGroups: %w", err)
	}
	// Their Jobs get a first status each, and then nothing happens.
	for quiet := 0; quiet < 5; {
		used := b.controllerCPU()
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		quiet++
		if b.controllerCPU()-used > 50*time.Millisecond {
			quiet = 0
		}
	}
	begin, controller, plane := time.Now(), b.controllerCPU(), usage.CPU(b.plane.Process.Pid)
	if err := pause(ctx, b.idle); err != nil {
		return err
	}
	share := func(used time.Duration) float64 { return 100 * used.Seconds() / time.Since(begin).Seconds() }
	fmt.Printf("%d gangs wait: controller %.2f %% of one core, %.0f MiB (%.0f before); plane %.1f %%\n", b.queued,
		share(b.controllerCPU()-controller), usage.Resident(b.controller.Process.Pid), before, share(usage.CPU(b.plane.Process.Pid)-plane))
	return nil
}

func orZero(n *int64) *int64 {
	if n == nil {
		return new(int64)
	}
	return n
}

// up starts a plane without controllers of its own, and makes the nodes.
func (b *bench) up(ctx context.Context, name string) error {
	dir := filepath.Join(b.dir, name)
	b.kubeconfig = filepath.Join(dir, "kubeconfig")
	cmd := exec.CommandContext(ctx, b.drover, "up", "--data-dir", dir, "--controllers=-*")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the plane: %w", err)
	}
	b.plane = cmd
	err := await(ctx, func(context.Context) (bool, error) {
		_, err := os.Stat(b.kubeconfig)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the plane: %w", err)
	}
	rc, err := clientcmd.BuildConfigFromFlags("", b.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the plane's kubeconfig: %w", err)
	}
	rc.QPS = -1
	if b.kube, err = kubernetes.NewForConfig(rc); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if b.kinds, err = client.New(rc); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return inParallel(b.nodes, func(i int) error {
		name := fmt.Sprintf("simulated-%03d", i)
		room := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("40"), corev1.ResourceMemory: resource.MustParse("160Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
		_, err := b.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{simulated: "true", corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{
				Capacity: room, Allocatable: room,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// control starts the controller and waits for its kinds.
func (b *bench) control(ctx context.Context, gang string) error {
	cmd := exec.CommandContext(ctx, b.binary, "--kubeconfig", b.kubeconfig, gang, "--install-crds", "--leader-elect=false",
		"--controllers=job,vcjob,queue,podgroup")
	log, err := os.Create(filepath.Join(b.dir, "controller.log"))
	if err != nil {
		return fmt.Errorf("making a log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the controller: %w", err)
	}
	b.controller = cmd
	err = await(ctx, func(ctx context.Context) (bool, error) {
		q, err := b.kinds.Queues().Get(ctx, "default", metav1.GetOptions{})
		return err == nil && q.Status.State != "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the controller: %w", err)
	}
	return nil
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		NodeSelector:  map[string]string{simulated: "true"},
		Containers: []corev1.Container{{
			Name: "main", Image: "busybox", Command: []string{"true"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}},
	}
}

// makeNatively makes the gangs as Kubernetes has them.
func (b *bench) makeNatively(ctx context.Context) error {
	return inParallel(b.gangs, func(i int) error {
		name := "gang-" + strconv.Itoa(i)
		_, err := b.kube.SchedulingV1beta1().PodGroups(namespace).Create(ctx, &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: schedulingv1beta1.PodGroupSpec{
				SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(b.size)}},
			},
		}, metav1.CreateOptions{})
		for n := 0; n < b.size && err == nil; n++ {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + strconv.Itoa(n)}, Spec: podSpec()}
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
			_, err = b.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		}
		return err
	})
}

func (b *bench) makeJobs(ctx context.Context) error {
	return b.makeJobsIn(ctx, "default", "gang-", b.gangs)
}

func (b *bench) makeJobsIn(ctx context.Context, queue, prefix string, n int) error {
	return inParallel(n, func(i int) error {
		_, err := b.kinds.Jobs(namespace).Create(ctx, &batch.Job{
			TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"},
			ObjectMeta: metav1.ObjectMeta{Name: prefix + strconv.Itoa(i)},
			Spec: batch.JobSpec{
				Queue: queue, MinAvailable: int32(b.size), SchedulerName: corev1.DefaultSchedulerName,
				Tasks: []batch.TaskSpec{{Name: "main", Replicas: int32(b.size), Template: corev1.PodTemplateSpec{Spec: podSpec()}}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// followPods counts the pods that have a node, until end is called.
func (b *bench) followPods(ctx context.Context) (placed *atomic.Int64, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(b.kube, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	placed = new(atomic.Int64)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { placed.Add(1) }})
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("following pods: %w", err)
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	return placed, func() { cancel(); factory.Shutdown() }, nil
}

// attempts is the time that kube-scheduler has spent on attempts to place pods and groups of pods, from its metrics.
func (b *bench) attempts(ctx context.Context) time.Duration {
	text, err := b.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0
	}
	var sum float64
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "scheduler_scheduling_algorithm_duration_seconds_sum") || strings.HasPrefix(line, "scheduler_podgroup_scheduling_algorithm_duration_seconds_sum") {
			f := strings.Fields(line)
			v, _ := strconv.ParseFloat(f[len(f)-1], 64)
			sum += v
		}
	}
	return time.Duration(sum * float64(time.Second))
}

func (b *bench) controllerCPU() time.Duration {
	if b.controller == nil {
		return 0
	}
	return usage.CPU(b.controller.Process.Pid)
}

// inParallel calls f for 0 to n-1, sixteen at a time, and returns the first error.
func inParallel(n int, f func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func await(ctx context.Context, done func(ctx context.Context) (bool, error)) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, limit, true, done)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bench) down() error {
	err := errors.Join(stop(b.controller), stop(b.plane))
	b.controller, b.plane = nil, nil
	return err
}

func stop(cmd *exec.Cmd) error {
	if cmd == nil || cmd.ProcessState != nil {
		return nil
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping %s: %w", cmd.Path, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("stopping %s: %w", cmd.Path, err)
	}
	return nil
}
