// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/standalone"
)

const (
	startLimit = 2 * time.Minute // machines that run tests are busy
	// machine is the node that the pods of the histories are bound to. No kubelet runs there: the scripts are it.
	machine = "machine"
)

// side is a control plane with one of the two kinds of controllers.
type side struct {
	role   string // roleUpstream or roleDrover
	gates  map[string]bool
	dir    standalone.Dir
	plane  *process
	client kubernetes.Interface
	any    dynamic.Interface
	record *record

	mu         sync.Mutex
	controller *process
	runs       int
}

// startSide starts a control plane and its controllers, which end with the test.
func startSide(t *testing.T, role, dir string, gates map[string]bool) *side {
	t.Helper()
	s := &side{role: role, dir: standalone.Dir(filepath.Join(dir, "data")), gates: gates}
	var err error
	if s.plane, err = startProcess(rolePlane, s.dir, gates, filepath.Join(dir, "plane.log")); err != nil {
		t.Fatalf("starting the control plane for %s: %v", role, err)
	}
	t.Cleanup(func() { s.plane.stop() })
	config, err := clientcmd.BuildConfigFromFlags("", s.dir.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	s.client, s.any = kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)
	if err := s.addMachine(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.record = watch(t, config)
	if err := s.startController(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stopController)
	return s
}

// addMachine makes the node that nobody runs.
func (s *side) addMachine(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine}, Spec: corev1.NodeSpec{Unschedulable: true}}
	_, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

// startController starts the controllers and waits until they work.
func (s *side) startController() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	log := filepath.Join(filepath.Dir(string(s.dir)), fmt.Sprintf("controller-%d.log", s.runs))
	p, err := startProcess(s.role, s.dir, s.gates, log)
	if err != nil {
		return fmt.Errorf("starting the controllers of %s: %w", s.role, err)
	}
	s.controller = p
	return nil
}

// stopController kills the controllers, as kill -9 does.
func (s *side) stopController() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controller.kill()
}

// process is another process of this test binary.
type process struct {
	cmd     *exec.Cmd
	input   io.Closer
	done    chan struct{}
	metrics string // address
	log     string // path
}

// startProcess starts the test binary in a role and waits until it is ready.
func startProcess(role string, dir standalone.Dir, gates map[string]bool, log string) (*process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, dirVariable+"="+string(dir))
	if gates[config.GateWorkloadWithJob] {
		cmd.Env = append(cmd.Env, groupsVariable+"=true")
	}
	cmd.Stderr = output
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, input: input, done: make(chan struct{}), log: log}
	ready := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(printed); lines.Scan(); {
			if address, ok := strings.CutPrefix(lines.Text(), readyLine); ok {
				ready <- address
			}
		}
		_ = cmd.Wait() // that it was killed is no news
		close(p.done)
	}()
	select {
	case p.metrics = <-ready:
		return p, nil
	case <-p.done:
		text, _ := os.ReadFile(log)
		return nil, fmt.Errorf("it has ended: %s", text)
	case <-time.After(startLimit):
		p.kill()
		return nil, fmt.Errorf("it is not ready after %s; %s says more", startLimit, log)
	}
}

// stop asks the process to end and waits for it.
func (p *process) stop() {
	_ = p.input.Close()
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// record follows everything that histories look at, of all namespaces.
type record struct {
	jobs, pods, events, crons cache.Indexer

	mu         sync.Mutex
	lastChange map[string]time.Time                 // by namespace
	everPods   map[string]map[types.UID]*corev1.Pod // by namespace: every pod that ever was, as last seen
	everJob    map[string]map[types.UID]string      // by namespace: the name of every Job that ever was
	seen       map[string]chan struct{}             // by namespace: closed at the next change
}

func watch(t *testing.T, config *rest.Config) *record {
	t.Helper()
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	jobs, crons := factory.Batch().V1().Jobs().Informer(), factory.Batch().V1().CronJobs().Informer()
	pods, events := factory.Core().V1().Pods().Informer(), factory.Core().V1().Events().Informer()
	r := &record{
		jobs: jobs.GetIndexer(), pods: pods.GetIndexer(), events: events.GetIndexer(), crons: crons.GetIndexer(),
		everJob:    map[string]map[types.UID]string{},
		lastChange: map[string]time.Time{}, everPods: map[string]map[types.UID]*corev1.Pod{}, seen: map[string]chan struct{}{},
	}
	for _, informer := range []cache.SharedIndexInformer{jobs, crons, pods, events} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: r.note, UpdateFunc: func(_, after any) { r.note(after) }, DeleteFunc: r.note,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	return r
}

func (r *record) note(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	object, err := meta.Accessor(o)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	namespace := object.GetNamespace()
	r.lastChange[namespace] = time.Now()
	if job, ok := o.(*batchv1.Job); ok {
		if r.everJob[namespace] == nil {
			r.everJob[namespace] = map[types.UID]string{}
		}
		r.everJob[namespace][job.UID] = job.Name
	}
	if pod, ok := o.(*corev1.Pod); ok {
		if r.everPods[namespace] == nil {
			r.everPods[namespace] = map[types.UID]*corev1.Pod{}
		}
		r.everPods[namespace][pod.UID] = pod
	}
	if c := r.seen[namespace]; c != nil {
		close(c)
		delete(r.seen, namespace)
	}
}

// next returns a channel that is closed when something changes in a namespace.
func (r *record) next(namespace string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[namespace] == nil {
		r.seen[namespace] = make(chan struct{})
	}
	return r.seen[namespace]
}

// quietSince returns when something has last changed in a namespace.
func (r *record) quietSince(namespace string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastChange[namespace]
}

// everJobs tells of every Job that there ever was in a namespace.
func (r *record) everJobs(namespace string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{}
	for _, name := range r.everJob[namespace] {
		counts["ever: job "+name]++
	}
	return counted(counts)
}

// ever returns every pod that there ever was in a namespace, as last seen.
func (r *record) ever(namespace string) []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.everPods[namespace]))
}
