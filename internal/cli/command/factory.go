// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"sync"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/cli/target"
)

// FieldManager is the name under which the API server notes which fields commands have set.
const FieldManager = "drover"

// Streams are standard input, output and error of a command. The result goes to Out, everything else to ErrOut.
type Streams = genericiooptions.IOStreams

// Factory gives commands what they work with. Commands take everything from here, so that a test can hand them fakes.
// What costs something is made at first use and once. It is safe for concurrent use after flags have been parsed.
type Factory struct {
	Streams Streams
	Clock   clock.WithTickerAndDelayedExecution
	Target  *target.Target
	Version string // of drover, for the user agent; "" for a development build

	// Kubernetes returns the client of the target's cluster. NewFactory sets it; tests replace it.
	Kubernetes func() (kubernetes.Interface, error)
	// Namespace returns the namespace to work in. NewFactory sets it; tests replace it.
	Namespace func() (string, error)

	cluster func() (*target.Cluster, error)
}

// NewFactory returns a factory that talks to the cluster of t. It contacts nobody.
func NewFactory(streams Streams, t *target.Target) *Factory {
	f := &Factory{Streams: streams, Clock: clock.RealClock{}, Target: t}
	f.cluster = sync.OnceValues(func() (*target.Cluster, error) {
		cluster, err := t.Resolve()
		if err != nil {
			return nil, err
		}
		cluster.Config.UserAgent = userAgent(f.Version)
		cluster.Config.WarningHandler = rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{
			Deduplicate: true,
			Color:       f.Colour(streams.ErrOut),
		})
		return cluster, nil
	})
	f.Kubernetes = sync.OnceValues(func() (kubernetes.Interface, error) {
		cluster, err := f.cluster()
		if err != nil {
			return nil, err
		}
		client, err := kubernetes.NewForConfig(cluster.Config)
		if err != nil {
			return nil, fmt.Errorf("using the kubeconfig %s: %w", cluster.Source, err)
		}
		return client, nil
	})
	f.Namespace = func() (string, error) {
		cluster, err := f.cluster()
		if err != nil {
			return "", err
		}
		return cluster.Namespace, nil
	}
	return f
}

// Cluster returns the cluster to talk to.
func (f *Factory) Cluster() (*target.Cluster, error) { return f.cluster() }

// Printf writes a message for the person at the terminal to standard error. A broken standard error is no reason to
// stop working, so nothing is reported.
func (f *Factory) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(f.Streams.ErrOut, format, args...)
}

// Colour reports whether w is a terminal that wants colours: not "dumb", and NO_COLOR not set.
func (f *Factory) Colour(w io.Writer) bool { return printers.AllowsColorOutput(w) }

func userAgent(version string) string {
	if version == "" {
		version = "dev"
	}
	return "drover/" + version
}
