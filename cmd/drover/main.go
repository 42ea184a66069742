// SPDX-License-Identifier: Apache-2.0

// Command drover runs Kubernetes Jobs, CronJobs and Volcano Jobs on one machine, and talks to where they run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drover-dev/drover/internal/cli/down"
	"github.com/drover-dev/drover/internal/cli/status"
	"github.com/drover-dev/drover/internal/cli/up"
	"github.com/drover-dev/drover/internal/controlplane"
	"github.com/drover-dev/drover/internal/standalone"
	"github.com/drover-dev/drover/internal/standalone/pki"
)

// version is set by the linker.
var version string

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	stopSignals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		stopSignals = append(stopSignals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals...)
	// The second signal does what signals do: end the process.
	context.AfterFunc(ctx, stop)

	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	root := newRoot(streams)
	root.SetArgs(args)
	return exitCode(root.ExecuteContext(ctx), streams.ErrOut)
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:           "drover",
		Short:         "Kubernetes Jobs, CronJobs and Volcano Jobs on one machine or in a cluster",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	var flag string
	root.PersistentFlags().StringVar(&flag, "data-dir", "",
		"data directory (default $DROVER_DATA_DIR, else /var/lib/drover for root, else $XDG_STATE_HOME/drover or ~/.local/state/drover)")
	named := func() (dir string, named bool, err error) {
		for _, dir := range []string{flag, os.Getenv("DROVER_DATA_DIR")} {
			if dir != "" {
				dir, err = filepath.Abs(dir)
				return dir, true, err
			}
		}
		standard, err := standalone.DefaultDir(os.Geteuid(), os.Getenv)
		return string(standard), false, err
	}
	dataDir := func() (string, error) {
		dir, _, err := named()
		return dir, err
	}
	root.AddCommand(
		up.NewCommand(streams, version, named, up.Run(parts())),
		down.NewCommand(streams, dataDir, down.Run),
		status.NewCommand(streams, dataDir, status.Run),
	)
	return root
}

// parts are what a standalone plane consists of.
func parts() standalone.Parts {
	return standalone.Parts{
		ControlPlane: func(_ context.Context, env *standalone.Env) (standalone.ControlPlane, error) {
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
		},
	}
}

// exitCode prints err for a person and returns the status for it.
func exitCode(err error, w io.Writer) int {
	if err == nil {
		return 0
	}
	code := 1
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		code = coded.ExitCode()
	}
	if silent, ok := errors.AsType[interface {
		error
		Silent() bool
	}](err); ok && silent.Silent() {
		return code
	}
	fmt.Fprintf(w, "Error: %v\n", err)
	if advised, ok := errors.AsType[interface {
		error
		Advice() []string
	}](err); ok {
		for _, try := range advised.Advice() {
			fmt.Fprintf(w, "Try: %s\n", try)
		}
	}
	return code
}
