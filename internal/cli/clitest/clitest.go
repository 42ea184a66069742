// SPDX-License-Identifier: Apache-2.0

// Package clitest helps the tests of commands: a factory whose cluster is client-go's fake, jobs and pods in a given
// state, and golden files. Only tests import it.
package clitest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/target"
)

// Epoch is when things happen in tests unless they say otherwise. It is the time at which a synctest bubble begins.
var Epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Namespace is the namespace in which commands work.
const Namespace = "default"

// Bench is a factory for one command, and what the command has printed. It is safe for concurrent use.
type Bench struct {
	*command.Factory
	Client *fake.Clientset
	Out    *Buffer
	Err    *Buffer
}

// New returns a bench whose cluster holds these objects.
func New(objects ...runtime.Object) *Bench {
	b := &Bench{Client: fake.NewClientset(objects...), Out: &Buffer{}, Err: &Buffer{}}
	b.Factory = command.NewFactory(command.Streams{In: strings.NewReader(""), Out: b.Out, ErrOut: b.Err}, &target.Target{})
	b.Kubernetes = func() (kubernetes.Interface, error) { return b.Client, nil }
	b.Namespace = func() (string, error) { return Namespace, nil }
	return b
}

// Buffer is a bytes.Buffer for several goroutines.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns everything written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// JobOption changes a Job in the making.
type JobOption func(*batchv1.Job)

// Job returns a Job with one completion that was created at Epoch and has not been seen by a controller.
func Job(name string, options ...JobOption) *batchv1.Job {
	one, six := int32(1), int32(6)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: Namespace, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(Epoch),
			ResourceVersion: "1",
		},
		Spec: batchv1.JobSpec{
			Completions: &one, Parallelism: &one, BackoffLimit: &six,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "uid-" + name}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: "busybox"}},
			}},
		},
	}
	for _, option := range options {
		option(job)
	}
	return job
}

// Wanting sets completions and parallelism.
func Wanting(completions, parallelism int32) JobOption {
	return func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = &completions, &parallelism }
}

// Indexed numbers the pods.
func Indexed() JobOption {
	return func(j *batchv1.Job) {
		mode := batchv1.IndexedCompletion
		j.Spec.CompletionMode = &mode
	}
}

// Running starts the Job one second after Epoch, with so many active, succeeded and failed pods.
func Running(active, succeeded, failed int32) JobOption {
	return func(j *batchv1.Job) {
		started := metav1.NewTime(Epoch.Add(time.Second))
		j.Status.StartTime = &started
		j.Status.Active, j.Status.Succeeded, j.Status.Failed = active, succeeded, failed
	}
}

// Complete ends the Job well, so long after Epoch.
func Complete(after time.Duration) JobOption {
	return func(j *batchv1.Job) {
		Running(0, *j.Spec.Completions, j.Status.Failed)(j)
		end := metav1.NewTime(Epoch.Add(after))
		j.Status.CompletionTime = &end
		Condition(batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods", after)(j)
	}
}

// Failed ends the Job with its back-off limit exceeded, so long after Epoch.
func Failed(after time.Duration) JobOption {
	return func(j *batchv1.Job) {
		Running(0, j.Status.Succeeded, *j.Spec.BackoffLimit+1)(j)
		Condition(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", after)(j)
	}
}

// Suspended suspends the Job.
func Suspended() JobOption {
	return func(j *batchv1.Job) {
		yes := true
		j.Spec.Suspend = &yes
	}
}

// Condition adds a true condition that came about so long after Epoch.
func Condition(conditionType batchv1.JobConditionType, reason, message string, after time.Duration) JobOption {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
			Type: conditionType, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(Epoch.Add(after)),
		})
	}
}

// PodOption changes a pod in the making.
type PodOption func(*corev1.Pod)

// Pod returns a pending pod of the Job, with one container, created at Epoch.
func Pod(job *batchv1.Job, name string, options ...PodOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: Namespace, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(Epoch),
			Labels:      map[string]string{batchv1.ControllerUidLabel: string(job.UID), batchv1.JobNameLabel: job.Name},
			Annotations: map[string]string{},
		},
		Spec:   *job.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// Index gives the pod a completion index.
func Index(i int) PodOption {
	return func(p *corev1.Pod) { p.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(i) }
}

// Created sets when the pod was created, so long after Epoch.
func Created(after time.Duration) PodOption {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(Epoch.Add(after)) }
}

// Started makes all containers run, after so many restarts.
func Started(restarts int32) PodOption {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		statuses(p, func(s *corev1.ContainerStatus) {
			s.RestartCount = restarts
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			if restarts > 0 {
				s.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
			}
		})
	}
}

// Ended makes all containers end with this exit code, and the pod with them.
func Ended(code int32) PodOption {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		statuses(p, func(s *corev1.ContainerStatus) {
			s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
		})
	}
}

func statuses(p *corev1.Pod, each func(*corev1.ContainerStatus)) {
	fill := func(containers []corev1.Container, known []corev1.ContainerStatus) []corev1.ContainerStatus {
		for i, c := range containers {
			if i == len(known) {
				known = append(known, corev1.ContainerStatus{Name: c.Name})
			}
			each(&known[i])
		}
		return known
	}
	p.Status.InitContainerStatuses = fill(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	p.Status.ContainerStatuses = fill(p.Spec.Containers, p.Status.ContainerStatuses)
}

var update = flag.Bool("update", false, "rewrite golden files with what the tests got")

// Golden compares got with the file testdata/<name>.golden, or rewrites that file when the test runs with -update.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatalf("making testdata: %v", err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatalf("updating the golden file: %v", err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading the golden file (go test -update writes it): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// Transcript joins what a command printed and its exit code into the text of a golden file.
func (b *Bench) Transcript(err error) string {
	err = command.Classify(err)
	command.Print(b.Factory, err)
	return fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", b.Out, b.Err, command.CodeOf(err))
}
