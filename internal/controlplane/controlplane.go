// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs etcd, kube-apiserver, kube-scheduler and the upstream controllers that everything in the API
// relies on, all real and all in this process.
//
// It is the only package that links them, so the only one that takes minutes to compile. It knows nothing of Jobs: the
// controllers of this project, like the node, are clients of what runs here. It must never link Kubernetes' own loops for
// Jobs, CronJobs and finished Jobs.
//
// The components keep global state (feature gates, logging, metrics, storage), so a process can run one Plane, once.
//
// Start reading at Plane.Run.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/controlplane/inprocess"
)

// Plane is one control plane.
type Plane struct {
	config Config
	server *apiServer
	up     chan struct{} // closed when the API server has done everything that it does at its start
	ready  chan struct{}
	fatal  chan error // what ends the plane from inside
	yield  inprocess.Yield
}

// New returns a plane of which nothing runs yet. It sets the feature gates and the loggers of the process.
func New(config Config) (*Plane, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("checking the control plane's configuration: %w", err)
	}
	config = config.withDefaults()
	if err := setupLogging(&config); err != nil {
		return nil, fmt.Errorf("setting up the logs of the Kubernetes components: %w", err)
	}
	if err := setGates(&config); err != nil {
		return nil, err
	}
	return &Plane{config: config, up: make(chan struct{}), ready: make(chan struct{}), fatal: make(chan error, 1)}, nil
}

// Ready is closed once a Job can be created and its pods be scheduled.
func (p *Plane) Ready() <-chan struct{} { return p.ready }

// ClientConfig returns how a part of this process reaches the API server as user, a member of groups, with the rights that
// RBAC gives to that user. It works once Ready is closed, without a limit on its rate and without a connection, and speaks
// protobuf: clients of kinds that are defined in the cluster must set another content type.
//
// The configuration carries no secret: it is of no use outside this process, and inside it acts as user and nobody else.
func (p *Plane) ClientConfig(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(p.server.loopback)
	config.BearerToken = ""
	config.UserAgent = "drover/" + user
	config.TLSClientConfig = rest.TLSClientConfig{}
	config.Transport = &inprocess.Transport{
		Handler: p.server.chain.GenericAPIServer.Handler, User: inprocess.User(user, groups...), Yield: &p.yield,
	}
	return config
}

// controllerConfig returns how an upstream controller acts: as the service account of that name in kube-system.
func (p *Plane) controllerConfig(name string) *rest.Config {
	return p.ClientConfig("system:serviceaccount:kube-system:" + name)
}

// fail ends the plane with err. Only the first error counts.
func (p *Plane) fail(err error) {
	select {
	case p.fatal <- err:
	default:
	}
}

// stopTimeout is how long a plane that has failed may take to stop. A store that has given up answers no request, so the
// API server could wait for minutes.
const stopTimeout = 3 * time.Second

// Run runs the plane until ctx ends or a component fails, and returns once everything has stopped, the store last. Only a
// plane that has failed may leave something behind; the process is of no use then.
func (p *Plane) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	done := make(chan error, 1)
	go func() { done <- p.run(ctx, failed) }()
	select {
	case err := <-done:
		return err
	case err := <-failed:
		select {
		case err = <-done: // the same error, and everything has stopped
		case <-time.After(stopTimeout):
		}
		return err
	}
}

// run is Run without a limit. failed gets the error of a component before anything is stopped because of it.
func (p *Plane) run(ctx context.Context, failed chan<- error) error {
	// The store starts while the API server is built: both take about as long, one on the disk, one on the processor.
	// Neither can be stopped half way, so the end of ctx is looked at afterwards. On a machine that is too busy to build the
	// server soon after that, it is left to the end of the process: nothing has asked it for anything yet.
	var store *embed.Etcd
	local := newLocalStore(keptPast)
	storeUp := make(chan error, 1)
	go func() {
		var err error
		if store, err = startEtcd(&p.config, p.fail); err != nil {
			local.open(nil, err)
		} else {
			p.config.Step("etcd answers")
			local.open(store.Server, nil)
		}
		storeUp <- err
	}()
	if err := waitListening(p.config.EtcdSocket, storeUp, p.fatal); err != nil {
		return storeError(p.config.EtcdDir, err)
	}
	var server *apiServer
	var err error
	built := make(chan struct{})
	go func() {
		defer close(built)
		server, err = newAPIServer(context.WithoutCancel(ctx), &p.config, local, p.fail)
	}()
	if !awaitFor(ctx, built, buildGrace) {
		select {
		case storeErr := <-storeUp:
			if storeErr == nil {
				store.Close()
			}
			return storeErr
		case fatal := <-p.fatal:
			return storeError(p.config.EtcdDir, fatal)
		}
	}
	select {
	case storeErr := <-storeUp:
		if storeErr != nil {
			return errors.Join(storeErr, err)
		}
	case fatal := <-p.fatal: // the store has given up while it started, and will not answer
		return storeError(p.config.EtcdDir, fatal)
	}
	defer store.Close()
	defer local.close()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	p.server = server
	return p.serve(ctx, failed)
}

// buildGrace is how long a plane that is asked to stop goes on building its API server.
const buildGrace = 3 * time.Second

// awaitFor waits for done to be closed, but no longer than grace from the end of ctx on, and reports whether it is.
func awaitFor(ctx context.Context, done <-chan struct{}, grace time.Duration) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	case <-time.After(grace):
		return false
	}
}

// serve runs everything but the store.
func (p *Plane) serve(ctx context.Context, failed chan<- error) error {
	ca, err := os.ReadFile(p.config.Certs.CA)
	if err != nil {
		return fmt.Errorf("reading the certificate authority: %w", err)
	}
	client, err := kubernetes.NewForConfig(p.server.loopback)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	// Everybody who talks to the API server stops before it does: first clients, then server.
	serverCtx, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServer()
	clientCtx, stopClients := context.WithCancel(serverCtx)
	defer stopClients()

	var server, clients sync.WaitGroup
	server.Go(func() {
		if err := p.server.run(serverCtx); err != nil {
			p.fail(fmt.Errorf("running kube-apiserver: %w", err))
		} else if serverCtx.Err() == nil {
			p.fail(errors.New("kube-apiserver has stopped by itself"))
		}
	})
	clients.Go(func() {
		if waitHealthy(clientCtx, client) != nil {
			return // asked to stop
		}
		close(p.up)
		if ctx.Err() != nil {
			return
		}
		if err := p.start(clientCtx, client, &clients, ca); err != nil && clientCtx.Err() == nil {
			p.fail(err)
		}
	})

	select {
	case <-ctx.Done():
		p.waitUp()
	case err = <-p.fatal:
		failed <- err
	}
	stopClients()
	clients.Wait()
	stopServer()
	server.Wait()
	return err
}

// startTimeout is how long a plane that is asked to stop while it starts may take to get that far.
const startTimeout = 5 * time.Second

// waitUp waits for the API server to finish its start. If it is stopped before, it ends the process: it takes a hook that
// is cut off for one that has failed.
func (p *Plane) waitUp() {
	select {
	case <-p.up:
	case err := <-p.fatal:
		p.fail(err) // for whoever looks next
	case <-time.After(startTimeout):
	}
}

// start starts the scheduler and the controllers and waits until Jobs can run.
func (p *Plane) start(ctx context.Context, client kubernetes.Interface, clients *sync.WaitGroup, ca []byte) error {
	p.config.Step("kube-apiserver answers")
	synced := make(chan struct{})
	clients.Go(func() {
		if err := runScheduler(ctx, p.ClientConfig("system:kube-scheduler"), synced); err != nil {
			p.fail(fmt.Errorf("running kube-scheduler: %w", err))
		}
	})
	clients.Go(func() {
		c := controllers{
			clientConfig: p.controllerConfig,
			informer:     p.ClientConfig("system:kube-controller-manager"),
			ca:           ca,
			pods:         p.config.TerminatedPods,
		}
		if err := runControllers(ctx, &c); err != nil {
			p.fail(fmt.Errorf("running the controllers: %w", err))
		}
	})
	select {
	case <-synced:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := waitDefaults(ctx, client); err != nil {
		return err
	}
	p.config.Step("kube-scheduler and controllers run")
	close(p.ready)
	return nil
}

// pollEvery is how often the start looks whether it can go on. Each look makes the API server check everything it has.
const pollEvery = 25 * time.Millisecond

// waitHealthy waits until the API server says that it is ready, or ctx ends.
func waitHealthy(ctx context.Context, client kubernetes.Interface) error {
	return wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
}

// waitDefaults waits for the objects without which no pod can be created in the default namespace.
func waitDefaults(ctx context.Context, client kubernetes.Interface) error {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the default service account: %w", err)
	}
	return nil
}
