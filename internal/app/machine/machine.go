// SPDX-License-Identifier: Apache-2.0

// Package machine is the node of a standalone plane, put together: what runs pods, what gives claims their volumes, and the runtime
// under both. It is apart from package app so that drover-controller does not link a node.
//
// Start reading at New.
package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/node"
	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/node/memory"
	"github.com/drover-dev/drover/internal/node/process"
	"github.com/drover-dev/drover/internal/node/provision"
)

// Config says where the node of a standalone plane keeps things and whom it talks to.
type Config struct {
	Name string
	Dir  string // its own directory
	Hide []string
	// Ephemeral ends all pods when the node stops, because nothing will take them on.
	Ephemeral bool
	// Bind is the address of its API for logs and exec; a free port is taken.
	Bind net.IP
	// APIServer is the "host:port" under which pods reach the API server.
	APIServer string
	// Cert, Key and CA are files: what the node shows, and who signs the certificates of its clients.
	Cert, Key, CA string
	// Images go before the table that every node has.
	Images image.Table
	// Client is the common name of the one client that may use the node's API.
	Client string
}

// Node is the node of a standalone plane: what runs pods, what gives claims their volumes, and the processes.
type Node struct {
	node    *node.Node
	claims  *provision.Provisioner
	runtime *process.Runtime
	memory  string // where a tmpfs is mounted; "": nowhere
	ending  bool   // everything ends with the node
	log     *slog.Logger
}

// New returns a node that does nothing yet. It finds again the containers that an earlier one has left running. It acts as
// asNode; volumes are made and bound as asProvisioner.
func New(cfg Config, asNode, asProvisioner *rest.Config, log *slog.Logger) (_ *Node, err error) {
	client, err := kubernetes.NewForConfig(clientConfig(asNode))
	if err != nil {
		return nil, fmt.Errorf("connecting the node: %w", err)
	}
	claimsClient, err := kubernetes.NewForConfig(clientConfig(asProvisioner))
	if err != nil {
		return nil, fmt.Errorf("connecting the volume provisioner: %w", err)
	}
	serving, err := servingTLS(cfg)
	if err != nil {
		return nil, err
	}
	inMemory := memoryIn(cfg.Dir)
	made, err := memory.Mount(inMemory)
	if err != nil {
		log.Info("The files that pods are shown lie on disk", "reason", err)
		inMemory = ""
	}
	defer func() {
		if err != nil && made {
			err = errors.Join(err, memory.Unmount(inMemory))
		}
	}()
	runtime, err := process.New(process.Config{
		Dir: runtimeIn(cfg.Dir), MemoryDir: inMemory, Places: node.Places(), Hide: cfg.Hide, Log: log,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, runtime.Close())
		}
	}()
	claims, err := provision.New(provision.Config{Dir: filepath.Join(cfg.Dir, "claims"), Node: cfg.Name, Log: log}, claimsClient)
	if err != nil {
		return nil, err
	}
	n, err := node.New(node.Config{
		Name: cfg.Name, Dir: cfg.Dir, IPs: []string{cfg.Bind.String()}, Bind: net.JoinHostPort(cfg.Bind.String(), "0"),
		APIClients: []string{cfg.Client}, APIServer: cfg.APIServer, Images: cfg.Images, Log: log, FilesDir: filesDir(inMemory),
	}, client, runtime, serving)
	if err != nil {
		return nil, err
	}
	return &Node{node: n, claims: claims, runtime: runtime, memory: inMemory, ending: cfg.Ephemeral, log: log}, nil
}

// Mounted reports whether a node in dir has something mounted there, be it running or not.
func Mounted(dir string) (bool, error) {
	mounted, err := memory.IsMounted(memoryIn(dir))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

// Tidy takes away what a node in dir that was killed has left mounted there, unless containers of it run. None may run there
// meanwhile.
func Tidy(dir string) error {
	alive, err := process.Alive(runtimeIn(dir))
	if alive || err != nil {
		return err
	}
	return memory.Unmount(memoryIn(dir))
}

func runtimeIn(dir string) string { return filepath.Join(dir, "runtime") }
func memoryIn(dir string) string  { return filepath.Join(dir, "memory") }

// filesDir is where the node keeps the small files of pods; "" leaves it to the node.
func filesDir(inMemory string) string {
	if inMemory == "" {
		return ""
	}
	return filepath.Join(inMemory, "pods")
}

func clientConfig(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	rc.QPS, rc.Burst = -1, -1
	rc.DisableCompression = true
	return rest.AddUserAgent(rc, "drover-node")
}

func servingTLS(cfg Config) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the node's certificate: %w", err)
	}
	authorities, err := os.ReadFile(cfg.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the plane's certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("reading the plane's certificate authority: %s holds no certificate", cfg.CA)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// Run works until ctx ends or a part of the node fails. Containers go on running, unless the node is ephemeral. What pods are shown
// goes with the last of them: without one that runs, it is made anew when the node runs again.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var claims sync.WaitGroup
	var claimsErr error
	claims.Go(func() {
		if claimsErr = n.claims.Run(ctx); claimsErr != nil {
			cancel()
		}
	})
	err := n.node.Run(ctx)
	cancel()
	claims.Wait()
	if n.ending {
		err = errors.Join(err, n.endAll())
	}
	if n.memory != "" && n.Survivors() == 0 {
		err = errors.Join(err, memory.Unmount(n.memory))
	}
	return errors.Join(err, claimsErr, n.runtime.Close())
}

// endTimeout bounds how long the end of the last containers is waited for.
const endTimeout = 3 * time.Second

// endAll kills every container and takes away what is left of it.
func (n *Node) endAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	var errs []error
	containers := n.runtime.List()
	for _, c := range containers {
		if c.State == process.Running {
			if err := n.runtime.Signal(c.Spec.ID, syscall.SIGKILL); err != nil && !errors.Is(err, process.ErrNotRunning) && !errors.Is(err, process.ErrNotFound) {
				errs = append(errs, fmt.Errorf("ending container %s: %w", c.Spec.ID, err))
			}
		}
	}
	for _, c := range containers {
		select {
		case <-n.runtime.Done(c.Spec.ID):
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("waiting for the last containers to end: %w", ctx.Err()))...)
		}
		if err := n.runtime.Remove(ctx, c.Spec.ID); err != nil {
			errs = append(errs, fmt.Errorf("clearing up after container %s: %w", c.Spec.ID, err))
		}
	}
	return errors.Join(errs...)
}

// Ready is closed once the node takes pods.
func (n *Node) Ready() <-chan struct{} { return n.node.Ready() }

// Survivors returns how many pods go on running after Run has returned.
func (n *Node) Survivors() int { return node.RunningPods(n.runtime.List()) }
