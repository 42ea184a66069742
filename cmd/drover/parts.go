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
)

// parts are what a standalone plane consists of. Clients stop in reverse order: first what makes pods, then what runs them.
func parts() standalone.Parts {
	return standalone.Parts{
		ControlPlane: controlPlane,
		Clients: []standalone.Builder{
			{Name: "node", Build: node},
			{Name: "controllers", Build: controllers},
			{Name: "webhooks", Build: webhooks},
		},
	}
}

func controlPlane(_ context.Context, env *standalone.Env) (standalone.ControlPlane, error) {
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

func controllers(_ context.Context, env *standalone.Env) (standalone.Part, error) {
	cfg := config.Controllers{Manage: config.ManageAll, Gang: config.GangNone, InstallKinds: true, Groups: env.FeatureGates[config.GateWorkloadWithJob]}
	return app.NewControllers(cfg, env.ClientConfig(controlplane.ControllersUser), env.Log)
}

func webhooks(_ context.Context, env *standalone.Env) (standalone.Part, error) {
	cfg := config.Admission{Listen: net.JoinHostPort(env.BindIP.String(), "0"), KindsComing: true}
	return app.NewAdmission(cfg, env.ClientConfig(controlplane.ControllersUser), env.Log)
}
