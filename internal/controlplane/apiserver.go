// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"

	"github.com/drover-dev/drover/internal/controlplane/inprocess"
)

// serviceAccountIssuer is what kubeadm and most clusters have; service account tokens carry it.
const serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

// offPlugins are admission plugins that are on in Kubernetes and off here, because the controller that they count on does
// not run in a plane of one machine.
var offPlugins = []string{
	// It taints every new Node until the node lifecycle controller has seen it ready.
	"TaintNodesByCondition",
}

// setGates applies the feature gates, which are global to the process. An error means that one is unknown, fixed, or needs
// another that is off.
func setGates(c *Config) error {
	registry := compatibility.DefaultComponentGlobalsRegistry
	_, gate := registry.ComponentGlobalsOrRegister(basecompatibility.DefaultKubeComponent,
		compatibility.DefaultBuildEffectiveVersion(), utilfeature.DefaultMutableFeatureGate)
	if err := registry.Set(); err != nil {
		return fmt.Errorf("setting the emulated version: %w", err)
	}
	if err := gate.SetFromMap(c.FeatureGates); err != nil {
		return fmt.Errorf("setting feature gates: %w", err)
	}
	gate.AddMetrics()
	registry.AddMetrics()
	return nil
}

func gateEnabled(name string) bool {
	return utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
}

// keptPast is for how long, and up to twice as long, the store keeps what has been overwritten.
const keptPast = time.Minute

// apiServer is kube-apiserver, built and not yet serving.
type apiServer struct {
	chain    *aggregatorapiserver.APIAggregator
	loopback *rest.Config // may do everything, over a connection; its token is known to this process alone
	ending   *ending
}

// serverOptions returns the options of kube-apiserver for c.
func serverOptions(c *Config) (*options.ServerRunOptions, error) {
	socket, err := socketURL(c.EtcdSocket)
	if err != nil {
		return nil, err
	}
	o := options.NewServerRunOptions()
	o.Etcd.StorageConfig.Transport.ServerList = []string{socket.String()}
	// Batch work writes much that is soon written again. What the store keeps of the past is one to two of these, which at a
	// thousand writes a second is a few hundred megabytes; with five minutes it would be a gigabyte and more. Watches are
	// taken up again from the API server's memory, so only a list that is read page by page for longer than that notices.
	o.Etcd.StorageConfig.CompactionInterval = keptPast

	addr := c.Listener.Addr().(*net.TCPAddr) // checked by Validate
	o.SecureServing.Listener = c.Listener
	o.SecureServing.BindAddress = addr.IP
	o.SecureServing.BindPort = addr.Port
	o.SecureServing.ServerCert.CertKey.CertFile = c.Certs.ServerCert
	o.SecureServing.ServerCert.CertKey.KeyFile = c.Certs.ServerKey
	o.GenericServerRunOptions.AdvertiseAddress = c.AdvertiseIP

	o.ServiceClusterIPRanges = c.ServiceCIDR
	// The kubernetes Service exists, but nothing on a standalone machine routes its address, so nobody keeps endpoints for
	// it. Endpoints could not hold a loopback address anyway.
	o.EndpointReconcilerType = string(reconcilers.NoneEndpointReconcilerType)
	o.AllowPrivileged = true

	o.Authentication.ClientCert.ClientCA = c.Certs.CA
	o.Authentication.ServiceAccounts.KeyFiles = []string{c.Certs.ServiceAccount}
	o.Authentication.ServiceAccounts.Issuers = []string{serviceAccountIssuer}
	o.ServiceAccountSigningKeyFile = c.Certs.ServiceAccount
	o.Authorization.Modes = []string{modes.ModeRBAC}
	o.Admission.GenericAdmission.DisablePlugins = offPlugins

	o.KubeletConfig.TLSClientConfig.CAFile = c.Certs.CA
	o.KubeletConfig.TLSClientConfig.CertFile = c.Certs.KubeletClient
	o.KubeletConfig.TLSClientConfig.KeyFile = c.Certs.KubeletClientKey
	// The address comes first: the name of a machine need not resolve on it.
	o.KubeletConfig.PreferredAddressTypes = []string{"InternalIP", "Hostname"}

	o.APIEnablement.RuntimeConfig = c.apis(gateEnabled)
	// Nobody waits for a load balancer here, and everything that watches is stopped before the server.
	o.GenericServerRunOptions.ShutdownDelayDuration = 0
	o.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = 0
	// In this mode a connection that is made at the moment of the stop, and never told to go away, holds the stop up for two
	// seconds and not for sixty.
	o.GenericServerRunOptions.ShutdownSendRetryAfter = true
	return o, nil
}

// newAPIServer builds kube-apiserver, which waits for store to be opened before it is complete. fail gets the error if the objects
// cannot be written that must exist before anybody may do anything.
func newAPIServer(ctx context.Context, c *Config, store *localStore, fail func(error)) (*apiServer, error) {
	o, err := serverOptions(c)
	if err != nil {
		return nil, err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return nil, fmt.Errorf("completing the options of kube-apiserver: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, fmt.Errorf("checking the options of kube-apiserver: %w", errors.Join(errs...))
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, fmt.Errorf("configuring kube-apiserver: %w", err)
	}
	loopback := rest.CopyConfig(config.KubeAPIs.ControlPlane.Generic.LoopbackClientConfig)
	loopback.QPS, loopback.Burst = -1, 0 // every client of this process is bounded by its workers
	if err := replaceHooks(config.KubeAPIs.ControlPlane.Generic, loopback, fail); err != nil {
		return nil, err
	}
	store.serve(config)
	config.KubeAPIs.RepairServicesInterval = time.Hour // two lists each; there is one writer, so little can need repair
	if c.Coming != nil {
		holdForComing(&config.Aggregator.GenericConfig.Config, c.Coming, c.ComingGroups)
	}
	ending := newEnding()
	ending.before(&config.Aggregator.GenericConfig.Config)
	inprocess.ShortenChain(&config.Aggregator.GenericConfig.Config)
	ready, err := config.Complete()
	if err != nil {
		return nil, fmt.Errorf("completing the configuration of kube-apiserver: %w", err)
	}
	chain, err := app.CreateServerChain(ready)
	if err != nil {
		return nil, fmt.Errorf("building kube-apiserver: %w", err)
	}
	return &apiServer{chain: chain, loopback: loopback, ending: ending}, nil
}

// replaceHooks puts bootstrap in the place of replacedHooks.
func replaceHooks(config *genericapiserver.Config, loopback *rest.Config, fail func(error)) error {
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return fmt.Errorf("making the client of %s: %w", bootstrapHook, err)
	}
	config.DisabledPostStartHooks.Insert(replacedHooks...)
	return config.AddPostStartHook(bootstrapHook, func(ctx genericapiserver.PostStartHookContext) error {
		if err := bootstrap(ctx, client); err != nil {
			fail(fmt.Errorf("writing the first objects: %w", err))
			<-ctx.Done() // returning the error would end the process on the spot
		}
		return nil
	})
}

// run serves until ctx ends and every request in flight has been answered or cut off.
func (s *apiServer) run(ctx context.Context) error {
	prepared, err := s.chain.PrepareRun()
	if err != nil {
		return fmt.Errorf("preparing kube-apiserver: %w", err)
	}
	s.ending.with(ctx)
	return prepared.Run(ctx)
}
