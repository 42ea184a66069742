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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Plane is one control plane.
type Plane struct {
	config Config
	server *apiServer
	ready  chan struct{}
	fatal  chan error // what ends the plane from inside
}

// New builds a plane without starting anything. It sets the feature gates and the loggers of the process.
//
// Building takes most of a second of processor time.
func New(ctx context.Context, config Config) (*Plane, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("checking the control plane's configuration: %w", err)
	}
	config = config.withDefaults()
	if err := setupLogging(config.Log, config.Verbosity); err != nil {
		return nil, fmt.Errorf("setting up the logs of the Kubernetes components: %w", err)
	}
	return &Plane{config: config, ready: make(chan struct{}), fatal: make(chan error, 1)}, nil
}

// Ready is closed once a Job can be created and its pods be scheduled.
func (p *Plane) Ready() <-chan struct{} { return p.ready }

// ClientConfig returns how a part of this process reaches the API server as user, a member of groups, with the rights that
// RBAC gives to that user. It works once Ready is closed, without a limit on its rate.
//
// The configuration carries a secret of this process that can act as anybody: it must not be written anywhere.
func (p *Plane) ClientConfig(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(p.server.loopback)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	config.UserAgent = "drover/" + user
	return config
}

// controllerConfig is ClientConfig for an upstream controller: the service account of that name in kube-system.
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

// Run runs the plane until ctx ends or a component fails, and returns once everything has stopped, the store last.
func (p *Plane) Run(ctx context.Context) error {
	// The store starts while the API server is built: both take about as long, one on the disk, one on the processor.
	storeUp := make(chan error, 1)
	var stopStore func()
	go func() {
		store, err := startEtcd(ctx, &p.config, p.fail)
		if err == nil {
			stopStore = store.Close
			p.config.Step("etcd answers")
		}
		storeUp <- err
	}()
	server, err := newAPIServer(ctx, &p.config, p.fail)
	if storeErr := <-storeUp; storeErr != nil {
		return errors.Join(storeErr, err)
	}
	defer stopStore()
	if err != nil {
		return err
	}
	p.server = server
	return p.serve(ctx)
}

// serve runs everything but the store.
func (p *Plane) serve(ctx context.Context) error {
	ca, err := os.ReadFile(p.config.Certs.CA)
	if err != nil {
		return fmt.Errorf("reading the certificate authority: %w", err)
	}
	// Everybody who talks to the API server stops before it does: first clients, then server.
	serverCtx, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServer()
	clientCtx, stopClients := context.WithCancel(ctx)
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
		if err := p.start(clientCtx, &clients, ca); err != nil && clientCtx.Err() == nil {
			p.fail(err)
		}
	})

	select {
	case <-ctx.Done():
	case err = <-p.fatal:
	}
	stopClients()
	clients.Wait()
	stopServer()
	server.Wait()
	return err
}

// start waits for the API server, then starts the scheduler and the controllers and waits until Jobs can run.
func (p *Plane) start(ctx context.Context, clients *sync.WaitGroup, ca []byte) error {
	client, err := kubernetes.NewForConfig(p.server.loopback)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := waitHealthy(ctx, client); err != nil {
		return err
	}
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

// pollEvery is how often the start looks whether it can go on.
const pollEvery = 10 * time.Millisecond

// waitHealthy waits until the API server says that it is ready.
func waitHealthy(ctx context.Context, client kubernetes.Interface) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		_, last = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for kube-apiserver (last answer: %v): %w", last, err)
	}
	return nil
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
