// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
)

// Config says where the control plane keeps its data, where it listens and what it switches on.
type Config struct {
	// EtcdDir is the directory of the store; it is made if it is missing, and holds nothing else.
	EtcdDir string
	// EtcdSocket is the path of the unix socket between the API server and the store. Its directory must exist and be
	// private: whoever can open the socket can read every Secret.
	EtcdSocket string
	// NoSync leaves out every fsync. What was written survives the end of the process, not the end of the machine.
	NoSync bool

	// Listener is where the API server listens. It must be a TCP listener; the plane closes it.
	Listener net.Listener
	// AdvertiseIP is the address under which others reach the API server; nil: the one that Listener is bound to.
	AdvertiseIP net.IP
	// ServiceCIDR is the range from which Services get their addresses. Nothing routes them on a standalone machine.
	// "" means 10.96.0.0/12.
	ServiceCIDR string

	// Coming is closed once the API groups ComingGroups are served, which other parts of this process define; nil: there are none.
	// Until then clients with a certificate wait for answers that would be others without them.
	Coming       <-chan struct{}
	ComingGroups []string

	// Certs are the files that the API server needs. They are read again when they change on disk.
	Certs Certs

	// FeatureGates override Kubernetes' defaults and ours (see defaultGates). A name that Kubernetes does not know is an
	// error of New.
	FeatureGates map[string]bool
	// RuntimeConfig switches API groups and versions, in kube-apiserver's notation: "batch/v1beta1" → true.
	RuntimeConfig map[string]bool

	// TerminatedPods is how many finished pods may stay before pod garbage collection deletes the oldest. 0 means 12500,
	// which is what kube-controller-manager has.
	TerminatedPods int

	// Log takes what etcd and the Kubernetes components log; nil: nothing is logged. The components share one logger for
	// the whole process.
	Log *slog.Logger
	// Verbosity is klog's: 0 is quiet, 2 is what clusters run with, 4 is for debugging. Info records of verbosity v arrive
	// at Log with the level slog.LevelInfo-v.
	Verbosity int

	// Exiting is called when a Kubernetes component is about to end the process, as they do when they cannot go on. It has
	// logged why. nil: nobody is told.
	Exiting func()
	// Step is told what has just been reached, from any goroutine; nil: nobody listens.
	Step func(text string)
}

// Certs names the PEM files of the API server.
type Certs struct {
	CA               string // signs every client and serving certificate here
	ServerCert       string // what the API server shows its clients
	ServerKey        string
	KubeletClient    string // what the API server shows the node for logs and exec
	KubeletClientKey string
	ServiceAccount   string // private key that signs service account tokens
}

const (
	defaultServiceCIDR    = "10.96.0.0/12"
	defaultTerminatedPods = 12500
)

// defaultGates are the gates on which one machine differs from Kubernetes' defaults.
var defaultGates = map[string]bool{
	// Gangs are scheduled by kube-scheduler itself, through scheduling.k8s.io/v1beta1.
	"GenericWorkload": true,
	// Both exist to tell several API servers apart. With one, they cost a write every ten seconds.
	"APIServerIdentity":                   false,
	"UnknownVersionInteroperabilityProxy": false,
}

// gatedAPIs are the API versions without which a gate is of no use. They are on whenever the gate is.
var gatedAPIs = map[string]string{
	"GenericWorkload": "scheduling.k8s.io/v1beta1",
}

// Validate reports everything that New would refuse, joined.
func (c *Config) Validate() error {
	var errs []error
	need := func(field string, set bool) {
		if !set {
			errs = append(errs, fmt.Errorf("%s is not set", field))
		}
	}
	need("EtcdDir", c.EtcdDir != "")
	need("EtcdSocket", c.EtcdSocket != "")
	need("Certs.CA", c.Certs.CA != "")
	need("Certs.ServerCert", c.Certs.ServerCert != "")
	need("Certs.ServerKey", c.Certs.ServerKey != "")
	need("Certs.KubeletClient", c.Certs.KubeletClient != "")
	need("Certs.KubeletClientKey", c.Certs.KubeletClientKey != "")
	need("Certs.ServiceAccount", c.Certs.ServiceAccount != "")
	need("Listener", c.Listener != nil)
	if c.Listener != nil {
		if _, ok := c.Listener.Addr().(*net.TCPAddr); !ok {
			errs = append(errs, fmt.Errorf("the network of Listener is %s, not TCP", c.Listener.Addr().Network()))
		}
	}
	if c.ServiceCIDR != "" {
		if _, _, err := net.ParseCIDR(c.ServiceCIDR); err != nil {
			errs = append(errs, fmt.Errorf("reading ServiceCIDR: %w", err))
		}
	}
	if c.TerminatedPods < 0 {
		errs = append(errs, fmt.Errorf("TerminatedPods is %d; it cannot be negative", c.TerminatedPods))
	}
	return errors.Join(errs...)
}

// withDefaults returns a copy in which every zero value that has a default carries it.
func (c Config) withDefaults() Config {
	if c.ServiceCIDR == "" {
		c.ServiceCIDR = defaultServiceCIDR
	}
	if c.TerminatedPods == 0 {
		c.TerminatedPods = defaultTerminatedPods
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Step == nil {
		c.Step = func(string) {}
	}
	if c.Exiting == nil {
		c.Exiting = func() {}
	}
	if c.AdvertiseIP == nil {
		if addr, ok := c.Listener.Addr().(*net.TCPAddr); ok && !addr.IP.IsUnspecified() {
			c.AdvertiseIP = addr.IP
		}
	}
	gates := maps.Clone(defaultGates)
	maps.Copy(gates, c.FeatureGates)
	c.FeatureGates = gates
	return c
}

// apis returns RuntimeConfig with the versions added that the gates need. What the caller has said stays.
func (c *Config) apis(enabled func(gate string) bool) map[string]string {
	out := map[string]string{}
	for gate, api := range gatedAPIs {
		if enabled(gate) {
			out[api] = "true"
		}
	}
	for api, on := range c.RuntimeConfig {
		out[api] = fmt.Sprint(on)
	}
	return out
}
