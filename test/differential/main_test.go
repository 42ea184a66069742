// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/drover-dev/drover/internal/app"
	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/controlplane"
	"github.com/drover-dev/drover/internal/standalone"
	"github.com/drover-dev/drover/internal/standalone/pki"
)

// The test binary runs as several processes, because control planes and controllers keep global state. roleVariable says
// what this one is; without it, it is the test.
const (
	roleVariable = "DROVER_DIFFERENTIAL_ROLE"
	dirVariable  = "DROVER_DIFFERENTIAL_DIR" // data directory of the plane
	// groupsVariable is set where the gate WorkloadWithJob is on.
	groupsVariable = "DROVER_DIFFERENTIAL_GROUPS"

	rolePlane    = "plane"
	roleUpstream = "upstream"
	roleDrover   = "drover"
)

// readyLine begins the line that a process prints once it works. What follows is the address of its metrics, if it has any.
const readyLine = "ready "

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		// Histories wait more than they work, and those that a restart belongs to wait for each other.
		flag.Parse()
		if err := flag.Set("test.parallel", "1000"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	// A process ends with the test: then its standard input does.
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := play(ctx, role, standalone.Dir(os.Getenv(dirVariable))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(ctx context.Context, role string, dir standalone.Dir) error {
	if role == rolePlane {
		return standalone.Run(ctx, standalone.Config{Dir: dir, Ephemeral: true, Version: "differential", FeatureGates: gates()},
			standalone.Parts{ControlPlane: newPlane}, progress{})
	}
	config, err := clientcmd.BuildConfigFromFlags("", dir.Kubeconfig())
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	metrics, err := serveMetrics()
	if err != nil {
		return err
	}
	ready := func() { fmt.Println(readyLine + metrics) }
	if role == roleUpstream {
		return runUpstream(ctx, config, ready)
	}
	return runDrover(ctx, config, ready)
}

// gates returns the feature gates of this process.
func gates() map[string]bool {
	return map[string]bool{config.GateWorkloadWithJob: os.Getenv(groupsVariable) != ""}
}

// runDrover runs our controllers as the product does.
func runDrover(ctx context.Context, rc *rest.Config, ready func()) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	controllers, err := app.NewControllers(config.Controllers{Manage: config.ManageAll, Groups: gates()[config.GateWorkloadWithJob]}, rc, log)
	if err != nil {
		return err
	}
	go func() {
		<-controllers.Ready()
		ready()
	}()
	return controllers.Run(ctx)
}

// newPlane makes the control plane that the product has.
func newPlane(_ context.Context, env *standalone.Env) (standalone.ControlPlane, error) {
	klog.SetOutput(io.Discard)
	keys := env.Dir.PKI()
	return controlplane.New(controlplane.Config{
		EtcdDir: env.Dir.Etcd(), EtcdSocket: env.Dir.EtcdSocket(), NoSync: true,
		Listener: env.Listener, ServiceCIDR: standalone.ServiceCIDR,
		Certs: controlplane.Certs{
			CA:         pki.CAPath(keys),
			ServerCert: pki.Server.CertPath(keys), ServerKey: pki.Server.KeyPath(keys),
			KubeletClient: pki.KubeletClient.CertPath(keys), KubeletClientKey: pki.KubeletClient.KeyPath(keys),
			ServiceAccount: pki.ServiceAccountPath(keys),
		},
		FeatureGates: env.FeatureGates,
		Log:          env.Log, Step: env.Step, Exiting: env.Fatal,
	})
}

// serveMetrics serves what the process measures, and returns where.
func serveMetrics() (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = http.Serve(listener, legacyregistry.Handler()) }() // ends with the process
	return listener.Addr().String(), nil
}

// progress tells the test when the plane is ready.
type progress struct{}

func (progress) Opened(standalone.Dir)    {}
func (progress) Step(string)              {}
func (progress) Warn(text string)         { fmt.Fprintln(os.Stderr, text) }
func (progress) Ready(standalone.Running) { fmt.Println(readyLine) }
func (progress) Stopping()                {}
func (progress) Stopped(int)              {}
