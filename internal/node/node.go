// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/eventqueue"
	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/node/machine"
	"github.com/drover-dev/drover/internal/node/objects"
	"github.com/drover-dev/drover/internal/node/probe"
	"github.com/drover-dev/drover/internal/node/process"
	"github.com/drover-dev/drover/internal/node/retain"
	"github.com/drover-dev/drover/internal/node/volume"
)

// Node is the node daemon.
type Node struct {
	cfg    Config
	client kubernetes.Interface
	rt     Runtime
	tls    *tls.Config
	clock  clock.WithTicker
	log    *slog.Logger

	podsDir, logDir string
	machine         machine.Facts
	features        process.Features
	allocatable     corev1.ResourceList
	serviceEnv      map[string]string
	images          image.Table
	accounts        accounts
	objects         *objects.Store
	volumes         *volume.Manager
	prober          *probe.Prober
	broadcaster     record.EventBroadcaster
	events          events
	retained        *retain.Store
	neighbours      *neighbours
	prepares        *tickets
	starts          *tickets
	queued          atomic.Int64 // when pods were last seen to queue up, in Unix nanoseconds
	informer        cache.SharedIndexInformer
	listener        net.Listener // of the node's API; nil without one
	ready           chan struct{}
	began           time.Time // of Run

	tasks sync.WaitGroup // everything that Run has started

	mu       sync.Mutex
	workers  map[types.UID]*worker
	finished map[types.UID]string // resource versions of final statuses that the informer may not have seen yet
	deleting map[types.UID]bool   // finished pods whose objects are being deleted
	found    map[types.UID][]process.Status
	node     *corev1.Node // as the API server has it
}

// retainMost and retainFor bound what is kept of failed pods whose Jobs ask for it.
const (
	retainMost = 500
	retainFor  = 7 * 24 * time.Hour
)

// New returns a node that does nothing yet. It listens already, so that its port is known. serving has the certificate of the node's API
// and the authorities of its clients' certificates; without it (nil) the node serves no API, and logs and exec do not work.
func New(cfg Config, client kubernetes.Interface, rt Runtime, serving *tls.Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the node: %w", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, client: client, rt: rt, clock: cfg.Clock, log: cfg.Log.With("node", cfg.Name),
		podsDir:    filepath.Join(cfg.Dir, "pods"),
		logDir:     filepath.Join(cfg.Dir, "logs"),
		features:   rt.Features(),
		serviceEnv: serviceEnv(cfg.APIServer),
		images:     append(append(image.Table(nil), cfg.Images...), image.Defaults()...),
		prepares:   newTickets(cfg.StartConcurrency),
		starts:     newTickets(cfg.StartConcurrency),
		ready:      make(chan struct{}),
		workers:    map[types.UID]*worker{},
		finished:   map[types.UID]string{},
		deleting:   map[types.UID]bool{},
	}
	for _, dir := range []string{cfg.Dir, n.podsDir, n.logDir, cfg.FilesDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making the node's directory: %w", err)
		}
	}
	if n.machine, err = machine.Measure(cfg.Dir); err != nil {
		return nil, err
	}
	_, n.allocatable = resources(n.machine, cfg.MaxPods)
	n.objects = objects.New(client, n.clock)
	n.volumes = volume.New(n.podsDir, cfg.FilesDir, cfg.Name, n.objects, n.clock, n.log)
	n.neighbours = newNeighbours(n.cfg.IPs, func(id types.UID) string { return filepath.Join(n.volumes.PodDir(id), hostsFile) }, n.clock, n.log)
	n.prober = probe.New(n.probeExec, n.clock)
	if n.retained, err = retain.New(cfg.Dir, retainMost, retainFor); err != nil {
		return nil, err
	}
	n.informer = n.newInformer()
	n.broadcaster = record.NewBroadcaster()
	n.events = events{n.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: cfg.Name})}
	if serving != nil {
		if n.tls, err = servingConfig(serving, cfg.APIClients); err != nil {
			return nil, err
		}
		if n.listener, err = net.Listen("tcp", cfg.Bind); err != nil {
			return nil, fmt.Errorf("listening for the node's API: %w", err)
		}
	}
	return n, nil
}

// Close lets go of what New has taken hold of, for a node that is not going to run. It is harmless after Run.
func (n *Node) Close() error {
	if n.listener == nil {
		return nil
	}
	if err := n.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing the node's API: %w", err)
	}
	return nil
}

// Name returns the name of the node object.
func (n *Node) Name() string { return n.cfg.Name }

// Ready is closed when the node is registered and says that it is ready for pods.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Run runs the node until ctx ends. Then it stops looking and leaves all containers running; a later Run on the same directory goes on
// with them. It returns an error when it cannot begin; what goes wrong later is logged and tried again. It can be called once.
func (n *Node) Run(ctx context.Context) error {
	n.began = n.clock.Now()
	// Writes that are under way when ctx ends are let finish; everything else ends with ctx.
	defer n.broadcaster.Shutdown()
	defer n.tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := eventqueue.New(&typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")}, n.log)
	n.tasks.Go(func() { told.Run(ctx) })
	n.broadcaster.StartRecordingToSink(told)
	if n.listener != nil {
		n.tasks.Go(func() { n.serve(ctx) })
	}
	n.tasks.Go(func() { n.objects.Run(ctx) })
	n.tasks.Go(func() { n.neighbours.run(ctx) })
	n.tasks.Go(func() { n.informer.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "", n.informer.HasSyncedChecker()) {
		return nil // ctx has ended
	}
	n.findContainers()
	handler, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.saw(ctx, obj) },
		UpdateFunc: func(_, obj any) { n.saw(ctx, obj) },
		DeleteFunc: func(obj any) { n.lost(ctx, obj) },
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if !cache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
		return nil
	}
	n.tasks.Go(func() { n.clearOrphans(ctx) })
	if err := n.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	close(n.ready)
	n.log.Info("Node is ready", "api", n.address(), "pods", len(n.informer.GetStore().List()))
	n.tasks.Go(func() { n.renewLease(ctx) })
	n.tasks.Go(func() { n.keepHouse(ctx) })
	<-ctx.Done()
	return nil
}

func (n *Node) address() string {
	if n.listener == nil {
		return ""
	}
	return n.listener.Addr().String()
}

// newInformer returns an informer of the pods that are bound to this node.
func (n *Node) newInformer() cache.SharedIndexInformer {
	here := fields.OneTermEqualSelector("spec.nodeName", n.cfg.Name).String()
	pods := n.client.CoreV1().Pods(metav1.NamespaceAll)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = here
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = here
			return pods.Watch(ctx, o)
		},
	}, n.client)
	informer := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	// Nobody here reads them, and they are a good part of a pod's memory.
	_ = informer.SetTransform(func(obj any) (any, error) {
		if pod, ok := obj.(*corev1.Pod); ok {
			pod.ManagedFields = nil
		}
		return obj, nil
	})
	return informer
}
