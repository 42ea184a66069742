// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/url"

	"github.com/drover-dev/drover/internal/app"
	"github.com/drover-dev/drover/internal/app/machine"
	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/controlplane"
	"github.com/drover-dev/drover/internal/standalone"
	"github.com/drover-dev/drover/internal/standalone/pki"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/flow"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// parts are what a standalone plane consists of. Clients stop in reverse order: first what makes pods, then what runs them.
func parts() standalone.Parts {
	b := &builder{volcano: make(chan struct{})}
	return standalone.Parts{
		ControlPlane: b.controlPlane,
		Clients: []standalone.Builder{
			{Name: "node", Build: node},
			{Name: "controllers", Build: b.controllers},
			{Name: "webhooks", Build: b.webhooks},
		},
	}
}

// builder builds the parts of one plane that know of each other.
type builder struct {
	volcano chan struct{} // closed once Volcano's kinds are served and their webhooks are in place
	served  <-chan struct{}
}

func (b *builder) controlPlane(_ context.Context, env *standalone.Env) (standalone.ControlPlane, error) {
	keys := env.Dir.PKI()
	return controlplane.New(controlplane.Config{
		EtcdDir: env.Dir.Etcd(), EtcdSocket: env.Dir.EtcdSocket(), NoSync: env.Ephemeral,
		Listener: env.Listener, ServiceCIDR: standalone.ServiceCIDR,
		Certs: controlplane.Certs{
			CA:         pki.CAPath(keys),
			ServerCert: pki.Server.CertPath(keys), ServerKey: pki.Server.KeyPath(keys),
			KubeletClient: pki.KubeletClient.CertPath(keys), KubeletClientKey: pki.KubeletClient.KeyPath(keys),
			ServiceAccount: pki.ServiceAccountPath(keys),
		},
		Coming: b.volcano, ComingGroups: []string{batch.GroupVersion.Group, bus.GroupVersion.Group, scheduling.GroupVersion.Group, flow.GroupVersion.Group},
		FeatureGates: env.FeatureGates,
		Log:          env.Log, Verbosity: env.Verbosity, Step: env.Step, Exiting: env.Fatal,
	})
}

func node(_ context.Context, env *standalone.Env) (standalone.Part, error) {
	keys := env.Dir.PKI()
	server, err := url.Parse(env.Server)
	if err != nil {
		return nil, err
	}
	return machine.New(machine.Config{
		Name: env.NodeName, Dir: env.Dir.Node(), Hide: []string{string(env.Dir)}, Ephemeral: env.Ephemeral,
		Bind: env.BindIP, APIServer: server.Host,
		Cert: pki.Node.CertPath(keys), Key: pki.Node.KeyPath(keys), CA: pki.CAPath(keys),
		Client: pki.KubeletClientName, Images: env.Images,
	},
		env.ClientConfig(controlplane.NodeUserPrefix+env.NodeName, controlplane.NodesGroup),
		env.ClientConfig(controlplane.ProvisionerUser), env.Log)
}

func (b *builder) controllers(_ context.Context, env *standalone.Env) (standalone.Part, error) {
	gang := config.GangNative // the gate is on unless somebody has switched it off
	if on, said := env.FeatureGates[config.GateGenericWorkload]; said && !on {
		gang = config.GangNone
	}
	cfg := config.Controllers{
		Manage: config.ManageAll, Enabled: env.Controllers, Gang: gang, EventsWait: true, Groups: env.FeatureGates[config.GateWorkloadWithJob],
	}
	cfg.InstallKinds = cfg.Runs("vcjob")
	c, err := app.NewControllers(cfg, env.ClientConfig(controlplane.ControllersUser), env.Log)
	if err != nil {
		return nil, err
	}
	b.served = c.VolcanoServed()
	return c, nil
}

func (b *builder) webhooks(ctx context.Context, env *standalone.Env) (standalone.Part, error) {
	if b.served == nil { // whoever brings the controller of Volcano's Jobs brings the webhooks as well
		close(b.volcano)
		return nothing{}, nil
	}
	cfg := config.Admission{Listen: net.JoinHostPort(env.BindIP.String(), "0"), KindsComing: true}
	a, err := app.NewAdmission(cfg, env.ClientConfig(controlplane.ControllersUser), env.Log)
	if err != nil {
		return nil, err
	}
	go func() {
		for _, served := range []<-chan struct{}{b.served, a.Served()} {
			select {
			case <-served:
			case <-ctx.Done():
				return
			}
		}
		close(b.volcano)
	}()
	return a, nil
}

// nothing is a part that does nothing.
type nothing struct{}

func (nothing) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (nothing) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}
