// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/drover-dev/drover/internal/node/process"
)

// fakeRuntime runs nothing. What a container does is said by its arguments:
//
//	exit N            it ends at once with code N
//	sleep D [code N]  it ends after D
//	run               it ends when it is asked to, with code 143
//	stubborn          it ends only when it is killed
//	slow D            it is asked to, and ends D later with code 0
//	nocommand         there is no such command
//
// It can fail on demand, and remembers what it was asked for, with the seconds since it was made.
type fakeRuntime struct {
	mu         sync.Mutex
	began      time.Time
	containers map[string]*fakeContainer
	journal    []string
	starting   int
	most       int           // starts at the same time
	delay      time.Duration // of every start
	failStarts []error       // of the next starts
	execs      map[string]func() (int, error)
	features   process.Features
}

type fakeContainer struct {
	status process.Status
	done   chan struct{}
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{
		began: time.Now(), containers: map[string]*fakeContainer{}, execs: map[string]func() (int, error){},
		features: process.Features{Isolation: process.Full},
	}
}

func (r *fakeRuntime) note(format string, args ...any) {
	r.journal = append(r.journal, fmt.Sprintf("%gs ", time.Since(r.began).Round(100*time.Millisecond).Seconds())+fmt.Sprintf(format, args...))
}

// short names a container without the UID of its pod.
func short(id string) string {
	_, name, _ := strings.Cut(id, ".")
	return name
}

func (r *fakeRuntime) Start(_ context.Context, spec process.Spec) (process.Status, error) {
	r.mu.Lock()
	r.starting++
	r.most = max(r.most, r.starting)
	delay := r.delay
	r.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	if len(r.failStarts) > 0 {
		err := r.failStarts[0]
		r.failStarts = r.failStarts[1:]
		return process.Status{}, err
	}
	if r.containers[spec.ID] != nil {
		return process.Status{}, fmt.Errorf("starting container %q: %w", spec.ID, process.ErrExists)
	}
	if spec.Args[0] == "nocommand" {
		return process.Status{}, errors.Join(&process.StartError{Step: "executing", Errno: syscall.ENOENT}, process.ErrCommandNotFound)
	}
	r.note("start %s", short(spec.ID))
	c := &fakeContainer{status: process.Status{Spec: spec, State: process.Running, PID: 1, StartedAt: time.Now()}, done: make(chan struct{})}
	r.containers[spec.ID] = c
	switch spec.Args[0] {
	case "exit":
		code, _ := strconv.Atoi(spec.Args[1])
		r.endLocked(c, code, 0)
	case "sleep":
		d, _ := time.ParseDuration(spec.Args[1])
		code := 0
		if len(spec.Args) > 3 {
			code, _ = strconv.Atoi(spec.Args[3])
		}
		time.AfterFunc(d, func() { r.end(spec.ID, code, 0) })
	}
	return c.status, nil
}

// end ends a container as the kernel would.
func (r *fakeRuntime) end(id string, code, signal int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil && c.status.State == process.Running {
		r.endLocked(c, code, signal)
	}
}

func (r *fakeRuntime) endLocked(c *fakeContainer, code, signal int) {
	c.status.State, c.status.PID = process.Exited, 0
	c.status.Exit = &process.Exit{Code: code, Signal: signal, FinishedAt: time.Now()}
	close(c.done)
}

// lose makes a container one of which nobody knows how it ended.
func (r *fakeRuntime) lose(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	c.status.State, c.status.PID, c.status.Reason = process.Lost, 0, "its init was killed"
	close(c.done)
}

func (r *fakeRuntime) Status(id string) (process.Status, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c.status, true
	}
	return process.Status{}, false
}

func (r *fakeRuntime) Done(id string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c.done
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

func (r *fakeRuntime) Signal(id string, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return process.ErrNotFound
	}
	if c.status.State != process.Running {
		return process.ErrNotRunning
	}
	r.note("%s %s", sig, short(id))
	args := c.status.Spec.Args
	switch {
	case sig == syscall.SIGKILL:
		r.endLocked(c, 137, 9)
	case args[0] == "run" || args[0] == "sleep":
		r.endLocked(c, 128+int(sig), int(sig))
	case args[0] == "slow":
		d, _ := time.ParseDuration(args[1])
		time.AfterFunc(d, func() { r.end(id, 0, 0) })
	}
	return nil
}

func (r *fakeRuntime) Exec(ctx context.Context, id string, e process.Exec) (int, error) {
	r.mu.Lock()
	answer := r.execs[e.Args[0]]
	if e.Args[0] == "preStop" || e.Args[0] == "postStart" {
		r.note("exec %s in %s", e.Args[0], short(id))
	}
	r.mu.Unlock()
	if e.Args[0] == "hang" {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if answer == nil {
		return 0, nil
	}
	return answer()
}

func (r *fakeRuntime) Remove(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, id)
	return nil
}

func (r *fakeRuntime) List() []process.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []process.Status
	for _, c := range r.containers {
		list = append(list, c.status)
	}
	return list
}

func (r *fakeRuntime) Features() process.Features { return r.features }

// story returns what the runtime was asked for, in order.
func (r *fakeRuntime) story() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.journal)
}

// world is a node with an API server and a runtime that exist in memory, in virtual time.
type world struct {
	t      *testing.T
	client *fake.Clientset
	rt     *fakeRuntime
	dir    string
	cfg    Config
	node   *Node
	stop   func()
}

// inWorld runs a test in a world of its own, in which a node runs.
func inWorld(t *testing.T, edit func(*world), test func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, client: fake.NewClientset(), rt: newFakeRuntime(), dir: dir, cfg: Config{
			Name: "n", Dir: dir, FilesDir: filepath.Join(dir, "files"), APIClients: []string{"x"},
			Heartbeat:    time.Hour, // a renewal is slow in the API server of tests
			RoutineAfter: -1,
		}}
		numberVersions(w.client)
		if edit != nil {
			edit(w)
		}
		w.stop = func() {}
		defer func() { w.stop() }()
		w.start()
		test(w)
	})
}

// numberVersions gives objects the resource versions that a real API server gives them.
func numberVersions(client *fake.Clientset) {
	var mu sync.Mutex
	version := 0
	client.PrependReactor("*", "*", func(action ktesting.Action) (bool, runtime.Object, error) {
		var obj runtime.Object
		if a, ok := action.(ktesting.CreateAction); ok { // an update is one, too
			obj = a.GetObject()
		}
		if o, ok := obj.(metav1.Object); ok {
			mu.Lock()
			version++
			o.SetResourceVersion(strconv.Itoa(version))
			if _, event := obj.(*corev1.Event); event {
				// They are named after the time, which does not pass here.
				o.SetName(fmt.Sprintf("%s-%d", o.GetName(), version))
			}
			mu.Unlock()
		}
		return false, nil, nil
	})
}

// start starts a node on what is there; stop ends it and leaves everything as it is.
func (w *world) start() {
	w.t.Helper()
	n, err := New(w.cfg, w.client, w.rt, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	w.node = n
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	select {
	case <-n.Ready():
	default:
		w.stop()
		w.t.Fatal("the node is not ready")
	}
}

// restart is what a kill and a new start are for a node.
func (w *world) restart(meanwhile func()) {
	w.t.Helper()
	w.stop()
	if meanwhile != nil {
		meanwhile()
	}
	w.start()
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// newPod returns a pod whose containers are given as "name: arguments". Names that begin with "init" are init containers, those with
// "side" sidecars.
func newPod(name string, policy corev1.RestartPolicy, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Generation: 1}}
	pod.Spec.NodeName, pod.Spec.RestartPolicy = "n", policy
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	pod.Status.Phase = corev1.PodPending
	for _, text := range containers {
		cname, args, _ := strings.Cut(text, ": ")
		c := corev1.Container{Name: cname, Image: "busybox", Command: strings.Fields(args), TerminationMessagePath: "/dev/termination-log"}
		switch {
		case strings.HasPrefix(cname, "init"):
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case strings.HasPrefix(cname, "side"):
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

func (w *world) create(pod *corev1.Pod) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Pods(pod.Namespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods("ns").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// deletePod is what the API server does with a request to delete a pod that is not finished.
func (w *world) deletePod(name string, grace int64) {
	w.t.Helper()
	pod := w.pod(name)
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	w.update(pod)
}

func (w *world) update(pod *corev1.Pod) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Pods(pod.Namespace).Update(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// statusWrites returns the phases that were written for a pod, one for each write.
func (w *world) statusWrites(name string) []string {
	var phases []string
	for _, a := range w.client.Actions() {
		u, ok := a.(ktesting.UpdateAction)
		if !ok || a.GetSubresource() != "status" || a.GetResource().Resource != "pods" {
			continue
		}
		if pod := u.GetObject().(*corev1.Pod); pod.Name == name {
			phases = append(phases, string(pod.Status.Phase))
		}
	}
	return phases
}

// events returns the events about a pod, "reason: message".
func (w *world) events(name string) []string {
	w.t.Helper()
	list, err := w.client.CoreV1().Events("ns").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name {
			lines = append(lines, e.Reason+": "+e.Message)
		}
	}
	slices.Sort(lines)
	return lines
}

// files lists what the node has of pods on disk.
func (w *world) files() []string {
	var found []string
	for _, dir := range []string{"pods", "files", "logs"} {
		entries, err := os.ReadDir(filepath.Join(w.dir, dir))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			found = append(found, dir+"/"+e.Name())
		}
	}
	return found
}

func state(pod *corev1.Pod, name string) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			if s.Name != name {
				continue
			}
			switch {
			case s.State.Running != nil:
				return "running"
			case s.State.Waiting != nil:
				return "waiting: " + s.State.Waiting.Reason
			case s.State.Terminated != nil:
				return fmt.Sprintf("%s %d", s.State.Terminated.Reason, s.State.Terminated.ExitCode)
			}
		}
	}
	return "unknown"
}
