// SPDX-License-Identifier: Apache-2.0

// Command bench measures the standalone plane as a user has it: the built binary, real processes, durable data. It reports and
// judges nothing. The controllers beside upstream's are measured by hack/bench.sh.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/test/bench/usage"
)

const (
	namespace = metav1.NamespaceDefault
	poll      = 10 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := bench{show: os.Stderr}
	flag.StringVar(&b.binary, "binary", "bin/drover", "the drover to measure")
	flag.IntVar(&b.starts, "starts", 3, "how many times the plane is started on an empty directory")
	flag.IntVar(&b.single, "single", 40, "Jobs that run one after the other")
	flag.IntVar(&b.many, "many", 500, "Jobs that run at once")
	flag.IntVar(&b.kept, "kept", 1000, "finished Jobs that a restarted plane finds")
	flag.DurationVar(&b.rest, "rest", time.Minute, "how long the plane comes to rest before it is watched")
	flag.DurationVar(&b.idle, "idle", 20*time.Second, "how long the idle plane is watched")
	flag.StringVar(&b.profile, "profile", "", "write a CPU profile of the plane, taken while the many Jobs run, to this file, and do nothing else")
	flag.Parse()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one measurement and what it is made with.
type bench struct {
	binary             string
	starts             int
	single, many, kept int
	rest, idle         time.Duration
	profile            string
	show               io.Writer // progress

	dir    string
	cmd    *exec.Cmd
	client kubernetes.Interface
	rows   [][2]string
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "drover-bench."); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	defer func() { err = errors.Join(err, b.down()) }()

	if b.profile != "" {
		return b.takeProfile(ctx)
	}
	var accepted []time.Duration
	for i := range b.starts {
		took, err := b.up(ctx, strconv.Itoa(i))
		if err != nil {
			return err
		}
		if err := b.runJobs(ctx, "first", 1, 1, nil); err != nil {
			return err
		}
		accepted = append(accepted, took)
		if i < b.starts-1 {
			if err := b.down(); err != nil {
				return err
			}
		}
	}
	b.row("start on an empty directory, to the first Job accepted", "%s", spread(accepted))

	var took []time.Duration
	if err := b.runJobs(ctx, "single", b.single, 1, &took); err != nil {
		return err
	}
	b.row(fmt.Sprintf("one Job at a time, from create to Complete, %d Jobs", b.single), "%s", spread(took))

	begin, cpu := time.Now(), b.cpu()
	if err := b.runJobs(ctx, "many", b.many, b.many, nil); err != nil {
		return err
	}
	wall, used := time.Since(begin), b.cpu()-cpu
	b.row(fmt.Sprintf("%d Jobs of one process at once", b.many), "%.0f Jobs/s, %s of CPU a Job in the plane",
		float64(b.many)/wall.Seconds(), (used / time.Duration(b.many)).Round(100*time.Microsecond))

	if more := b.kept - b.many - b.single - 1; more > 0 {
		if err := b.runJobs(ctx, "more", more, more, nil); err != nil {
			return err
		}
	}
	if err := b.down(); err != nil {
		return err
	}
	again, err := b.up(ctx, strconv.Itoa(b.starts-1))
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("restart with %d finished Jobs, to the next Job accepted", b.kept), "%s", again.Round(10*time.Millisecond))
	if err := b.down(); err != nil {
		return err
	}

	if _, err := b.up(ctx, "idle"); err != nil {
		return err
	}
	if err := b.runJobs(ctx, "settle", 1, 1, nil); err != nil {
		return err
	}
	fmt.Fprintf(b.show, "letting the plane rest for %s, and watching it for %s\n", b.rest, b.idle)
	if err := pause(ctx, b.rest); err != nil {
		return err
	}
	cpu, begin = b.cpu(), time.Now()
	if err := pause(ctx, b.idle); err != nil {
		return err
	}
	b.row("idle plane", "%.0f MiB resident, %.1f %% of one core", usage.Resident(b.cmd.Process.Pid), 100*(b.cpu()-cpu).Seconds()/time.Since(begin).Seconds())
	return b.print(os.Stdout)
}

// takeProfile writes a profile of the plane at work.
func (b *bench) takeProfile(ctx context.Context) error {
	if _, err := b.up(ctx, "profile"); err != nil {
		return err
	}
	if err := b.runJobs(ctx, "warm", 20, 20, nil); err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		data, err := b.client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", "8").DoRaw(ctx)
		if err == nil {
			err = os.WriteFile(b.profile, data, 0o600)
		}
		written <- err
	}()
	if err := b.runJobs(ctx, "many", b.many, b.many, nil); err != nil {
		return err
	}
	return <-written
}

func (b *bench) row(what, format string, args ...any) {
	b.rows = append(b.rows, [2]string{what, fmt.Sprintf(format, args...)})
	fmt.Fprintf(b.show, "%s: %s\n", what, b.rows[len(b.rows)-1][1])
}

func (b *bench) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| work\t| measured\t|")
	fmt.Fprintln(t, "|--\t|--\t|")
	for _, row := range b.rows {
		fmt.Fprintf(t, "| %s\t| %s\t|\n", row[0], row[1])
	}
	return t.Flush()
}

// up starts a plane on the named directory and returns how long it took until a Job was accepted there.
func (b *bench) up(ctx context.Context, name string) (time.Duration, error) {
	dir := filepath.Join(b.dir, name)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.Remove(kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("clearing the way: %w", err)
	}
	var said bytes.Buffer
	cmd := exec.Command(b.binary, "up", "--data-dir", dir)
	cmd.Stdout, cmd.Stderr = &said, &said
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the plane: %w", err)
	}
	b.cmd = cmd
	for {
		if _, err := os.Stat(kubeconfig); err == nil {
			break
		}
		if err := syscall.Kill(cmd.Process.Pid, 0); err != nil || time.Since(begin) > 5*time.Minute {
			return 0, fmt.Errorf("the plane has not come up:\n%s", said.String())
		}
		if err := pause(ctx, poll); err != nil {
			return 0, err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return 0, fmt.Errorf("reading the plane's kubeconfig: %w", err)
	}
	config.QPS = -1
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		return 0, fmt.Errorf("making a client: %w", err)
	}
	suspended := job("accepted")
	suspended.Spec.Suspend = new(true)
	for {
		_, err := b.client.BatchV1().Jobs(namespace).Create(ctx, suspended, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			break
		}
		if err := pause(ctx, poll); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	return took, b.client.BatchV1().Jobs(namespace).Delete(ctx, suspended.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
}

// down stops the plane, if one runs.
func (b *bench) down() error {
	if b.cmd == nil {
		return nil
	}
	cmd := b.cmd
	b.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the plane: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("stopping the plane: %w", err)
	}
	return nil
}

// runJobs creates n Jobs, at most so many at once, and waits until each is Complete. It appends to took how long each has needed.
func (b *bench) runJobs(ctx context.Context, name string, n, atOnce int, took *[]time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	fmt.Fprintf(b.show, "running %d Jobs, %d at once\n", n, atOnce)
	jobs := b.client.BatchV1().Jobs(namespace)
	watch, err := jobs.Watch(ctx, metav1.ListOptions{LabelSelector: "bench=" + name})
	if err != nil {
		return fmt.Errorf("watching Jobs: %w", err)
	}
	defer func() { watch.Stop() }()
	var mu sync.Mutex
	begun := map[string]time.Time{}
	start := make(chan string, n)
	failed := make(chan error, 1)
	for range min(atOnce, 16) {
		go func() {
			for name := range start {
				mu.Lock()
				begun[name] = time.Now()
				mu.Unlock()
				if _, err := jobs.Create(ctx, labelled(job(name), name), metav1.CreateOptions{}); err != nil {
					select {
					case failed <- fmt.Errorf("creating Job %s: %w", name, err):
					default:
					}
				}
			}
		}()
	}
	defer close(start)
	next := 0
	for ; next < min(n, atOnce); next++ {
		start <- fmt.Sprintf("%s-%d", name, next)
	}
	done := map[string]bool{}
	for len(done) < n {
		select {
		case err := <-failed:
			return err
		case event, open := <-watch.ResultChan():
			if !open { // the API server does so with clients that are slow; it begins with what there is
				if watch, err = jobs.Watch(ctx, metav1.ListOptions{LabelSelector: "bench=" + name}); err != nil {
					return fmt.Errorf("watching Jobs, with %d of %d done: %w", len(done), n, err)
				}
				continue
			}
			j, ok := event.Object.(*batchv1.Job)
			if !ok || done[j.Name] {
				continue
			}
			for _, c := range j.Status.Conditions {
				if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
					return fmt.Errorf("job %s failed: %s: %s", j.Name, c.Reason, c.Message)
				}
				if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
					done[j.Name] = true
					mu.Lock()
					if took != nil {
						*took = append(*took, time.Since(begun[j.Name]))
					}
					mu.Unlock()
					if next < n {
						start <- fmt.Sprintf("%s-%d", name, next)
						next++
					}
				}
			}
		}
	}
	return nil
}

func job(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"true"}}},
		}}},
	}
}

// labelled marks the Job as one of the group whose name stands before the number in its own.
func labelled(j *batchv1.Job, name string) *batchv1.Job {
	j.Labels = map[string]string{"bench": name[:strings.LastIndexByte(name, '-')]}
	return j
}

// cpu is what the plane has used of the processors so far, without the processes that it has started.
func (b *bench) cpu() time.Duration { return usage.CPU(b.cmd.Process.Pid) }

func spread(took []time.Duration) string {
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p95 %s, most %s", at(0.5), at(0.95), at(1))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
