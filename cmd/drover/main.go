// SPDX-License-Identifier: Apache-2.0

// Command drover runs Kubernetes Jobs, CronJobs and Volcano Jobs on one machine, and talks to where they run.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // schedules name zones, and a bare machine need not have them

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/cli"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/down"
	"github.com/drover-dev/drover/internal/cli/status"
	"github.com/drover-dev/drover/internal/cli/up"
)

// version is set by the linker.
var version string

func main() {
	stopSignals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		stopSignals = append(stopSignals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals...)
	// The second signal does what signals do: end the process.
	context.AfterFunc(ctx, stop)

	streams := command.Streams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(int(cli.MainAs(ctx, os.Args[0], os.Args[1:], streams, cli.Deps{
		Version: version,
		Plane: []func(*command.Factory) *cobra.Command{
			func(f *command.Factory) *cobra.Command {
				return up.NewCommand(f.Streams, version, func() (string, bool, error) {
					dir, err := f.Target.PlaneDir()
					return dir, f.Target.Named(), err
				}, up.Run(parts()))
			},
			func(f *command.Factory) *cobra.Command {
				return down.NewCommand(f.Streams, f.Target.PlaneDir, down.Run)
			},
			func(f *command.Factory) *cobra.Command {
				return status.NewCommand(f.Streams, f.Target.PlaneDir, status.Run)
			},
		},
	})))
}
