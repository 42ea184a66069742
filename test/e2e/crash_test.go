// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

var (
	killsFlag = flag.Int("kills", 50, "how often the crash test kills the whole process; the one with SIGTERM ends it a third as often")
	seedFlag  = flag.Uint64("seed", 0, "of the moments at which they do; 0: a new one")
)

// TestKillingEverythingAtAnyMomentLosesAndDoublesNothing kills the whole of drover again and again while an Indexed and a
// NonIndexed Job run real processes, and then counts.
func TestKillingEverythingAtAnyMomentLosesAndDoublesNothing(t *testing.T) {
	t.Parallel() // like the others it waits more than it works
	crash(t, "kill -9", *killsFlag, (*plane.Plane).Kill)
}

// TestStoppingAtAnyMomentLosesAndDoublesNothing does the same with SIGTERM.
func TestStoppingAtAnyMomentLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	crash(t, "SIGTERM", (*killsFlag+2)/3, func(p *plane.Plane) {
		if err := p.Stop(); err != nil {
			t.Errorf("stopping: %v\n%s", err, p.Output())
		}
	})
}

// crash ends the process that many times while two Jobs have work for as long: about six pods end from one time to the next.
func crash(t *testing.T, how string, times int, end func(*plane.Plane)) {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	options := plane.Options{Dir: filepath.Join(t.TempDir(), "plane"), Durable: true}
	out := t.TempDir()
	p := plane.Start(t, options)
	ctx := t.Context()
	jobs := p.Client().BatchV1().Jobs("default")
	indexes, pods := int32(4*times), int32(2*times)
	for _, j := range []*batchv1.Job{
		countingJob("indexed", out, func(s *batchv1.JobSpec) {
			s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), &indexes, ptr.To[int32](2)
		}),
		countingJob("plain", out, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = &pods, ptr.To[int32](1) }),
	} {
		if _, err := jobs.Create(ctx, j, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kills := 0
	for ; kills < times; kills++ {
		// Some fall into the start of the next run, most into its work.
		pause := time.Duration(rng.IntN(1500)) * time.Millisecond
		pass(t, pause)
		end(p)
		if rng.IntN(5) == 0 {
			p = plane.Launch(t, options) // killed while it starts
			pass(t, time.Duration(rng.IntN(2000))*time.Millisecond)
			p.Kill()
		}
		p = plane.Start(t, options)
		if finished(t, p.Client(), "indexed") && finished(t, p.Client(), "plain") {
			break
		}
	}
	t.Logf("%d times %s while pods were at work", kills, how)
	for name, want := range map[string]int32{"indexed": indexes, "plain": pods} {
		j := awaitFinished(t, p, name)
		if j.Status.Succeeded != want || j.Status.Active != 0 || len(uncounted(j)) > 0 {
			t.Errorf("Job %s: succeeded %d of %d, failed %d, active %d, uncounted %v", name, j.Status.Succeeded, want, j.Status.Failed, j.Status.Active, uncounted(j))
		}
		await(t, p, "the finalizers of Job "+name+" to go", func(client kubernetes.Interface) (bool, error) {
			pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + name})
			return err == nil && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
				return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
			}), err
		})
		checkPods(t, p.Client(), j, out)
	}
	if j := awaitFinished(t, p, "indexed"); j.Status.CompletedIndexes != fmt.Sprintf("0-%d", indexes-1) {
		t.Errorf("completed indexes %s", j.Status.CompletedIndexes)
	}
	for _, name := range []string{"indexed", "plain"} {
		if err := jobs.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
			t.Error(err)
		}
		await(t, p, "the end of Job "+name, func(client kubernetes.Interface) (bool, error) {
			_, err := client.BatchV1().Jobs("default").Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stopping: %v\n%s", err, p.Output())
	}
	checkNothingIsLeft(t, options.Dir)
}

// countingJob returns a Job whose pods write a line when they begin and one when they end: pod, index, begin or end, and the
// time in nanoseconds.
func countingJob(name, out string, change func(*batchv1.JobSpec)) *batchv1.Job {
	const script = `echo "$POD ${JOB_COMPLETION_INDEX:--} begin $(date +%s%N)" >> /out/$JOB
sleep 1
echo "$POD ${JOB_COMPLETION_INDEX:--} end $(date +%s%N)" >> /out/$JOB`
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](1000),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Volumes:       []corev1.Volume{{Name: "out", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: out}}}},
				Containers: []corev1.Container{{
					Name: "work", Image: "busybox", Command: []string{"sh", "-c", script},
					VolumeMounts: []corev1.VolumeMount{{Name: "out", MountPath: "/out"}},
					Env: []corev1.EnvVar{
						{Name: "JOB", Value: name},
						{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					},
				}},
			}},
		},
	}
	change(&j.Spec)
	return j
}

// pass lets time pass while the processes work: nothing is waited for.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func finished(t *testing.T, client kubernetes.Interface, name string) bool {
	t.Helper()
	j, err := client.BatchV1().Jobs("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return isFinished(j)
}

func isFinished(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

func awaitFinished(t *testing.T, p *plane.Plane, name string) *batchv1.Job {
	t.Helper()
	var j *batchv1.Job
	await(t, p, "Job "+name, func(client kubernetes.Interface) (done bool, err error) {
		j, err = client.BatchV1().Jobs("default").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && isFinished(j), err
	})
	return j
}

func await(t *testing.T, p *plane.Plane, what string, done func(kubernetes.Interface) (bool, error)) {
	t.Helper()
	client := p.Client()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) { return done(client) }); err != nil {
		t.Fatalf("waiting for %s: %v\n%s", what, err, p.Output())
	}
}

func uncounted(j *batchv1.Job) []string {
	var uids []string
	if u := j.Status.UncountedTerminatedPods; u != nil {
		for _, uid := range slices.Concat(u.Succeeded, u.Failed) {
			uids = append(uids, string(uid))
		}
	}
	return uids
}

// checkPods compares the pods of a finished Job with what their processes have written down.
func checkPods(t *testing.T, client kubernetes.Interface, j *batchv1.Job, out string) {
	t.Helper()
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + j.Name})
	if err != nil {
		t.Fatal(err)
	}
	succeeded, failed := 0, 0
	runs := readRuns(t, filepath.Join(out, j.Name))
	known := map[string]bool{}
	for _, p := range pods.Items {
		known[p.Name] = true
		r := runs[p.Name]
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			succeeded++
			if r.begins != 1 || r.ends != 1 {
				t.Errorf("pod %s has succeeded, and its process began %d and ended %d times", p.Name, r.begins, r.ends)
			}
		case corev1.PodFailed:
			failed++
			if r.begins > 1 {
				t.Errorf("pod %s has failed, and its process began %d times", p.Name, r.begins)
			}
		default:
			t.Errorf("pod %s is %s", p.Name, p.Status.Phase)
		}
	}
	for pod := range runs {
		if !known[pod] {
			t.Errorf("pod %s has run and is not known", pod)
		}
	}
	if succeeded != int(j.Status.Succeeded) || failed != int(j.Status.Failed) {
		t.Errorf("Job %s counts %d succeeded and %d failed pods; there are %d and %d", j.Name, j.Status.Succeeded, j.Status.Failed, succeeded, failed)
	}
	checkOverlaps(t, runs)
	t.Logf("Job %s: %d pods have succeeded, %d have failed", j.Name, succeeded, failed)
}

// run is what the process of one pod has written.
type run struct {
	index        string
	begins, ends int
	begin, end   int64 // nanoseconds
}

func readRuns(t *testing.T, path string) map[string]run {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	runs := map[string]run{}
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) != 4 {
			t.Fatalf("line %q of %s", s.Text(), path)
		}
		at, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := runs[fields[0]]
		r.index = fields[1]
		if fields[2] == "begin" {
			r.begins++
			r.begin = at
		} else {
			r.ends++
			r.end = at
		}
		runs[fields[0]] = r
	}
	return runs
}

// checkOverlaps checks that no index was worked on by two processes at once.
func checkOverlaps(t *testing.T, runs map[string]run) {
	t.Helper()
	byIndex := map[string][]run{}
	for _, r := range runs {
		if r.index != "-" {
			byIndex[r.index] = append(byIndex[r.index], r)
		}
	}
	for index, rs := range byIndex {
		slices.SortFunc(rs, func(a, b run) int { return int(a.begin - b.begin) })
		for i := 1; i < len(rs); i++ {
			if rs[i-1].end > rs[i].begin {
				t.Errorf("two processes worked on index %s at once", index)
			}
		}
	}
}

// checkNothingIsLeft looks for processes, mounts and cgroups of a plane that has stopped.
func checkNothingIsLeft(t *testing.T, dir string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		cmdline, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil {
			continue // it has ended meanwhile
		}
		if pid, _ := strconv.Atoi(filepath.Base(p)); pid != syscall.Getpid() && strings.Contains(string(cmdline), dir) {
			t.Errorf("process %d is left: %q", pid, cmdline)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			t.Errorf("a mount is left: %s", line)
		}
	}
	lock, err := os.Open(filepath.Join(dir, "node", "runtime"))
	if err != nil {
		return
	}
	defer lock.Close()
	left, err := lock.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		t.Logf("node/runtime holds %s", name)
	}
}
