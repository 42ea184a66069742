// SPDX-License-Identifier: Apache-2.0

// Package down is the command that stops a standalone plane. It never touches the data.
package down

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/app/machine"
	"github.com/drover-dev/drover/internal/standalone"
)

// Options are what the command line asks for.
type Options struct {
	Streams genericiooptions.IOStreams
	Clock   clock.WithTicker
	Dir     standalone.Dir
	Timeout time.Duration
}

// NewCommand returns the command. dataDir returns the data directory of the plane.
func NewCommand(streams genericiooptions.IOStreams, dataDir func() (string, error), run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Streams: streams, Clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the plane on this machine",
		Long: `Stop the plane on this machine and wait until it has stopped. Its data stays, and its pods go on running; the next
"drover up" takes both up again.

Exit codes:
    0  no plane is running any more
    1  it could not be stopped`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := dataDir()
			if err != nil {
				return err
			}
			o.Dir = standalone.Dir(dir)
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().DurationVar(&o.Timeout, "timeout", standalone.StopTimeout+5*time.Second, "how long to wait until it has stopped")
	return cmd
}

// Run stops the plane.
func Run(ctx context.Context, o *Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("it has not stopped within %s", o.Timeout))
	defer cancel()
	state, err := standalone.Stop(ctx, o.Dir, o.Clock)
	if errors.Is(err, standalone.ErrNotRunning) {
		return errors.Join(tidy(o.Dir), say(o, "No plane is running in %s\n", o.Dir))
	}
	if err != nil {
		return err
	}
	if err := say(o, "Stopped the plane in %s (process %d)\n", o.Dir, state.PID); err != nil {
		return err
	}
	switch {
	case state.Phase != standalone.Stopped && state.Phase != "":
		return errors.Join(tidy(o.Dir), say(o, "It has not ended well; %s says why\n", o.Dir.Log()))
	case state.Survivors == 1:
		return say(o, "1 pod goes on running. The next \"drover up\" takes it on; to end it, delete it then\n")
	case state.Survivors > 1:
		return say(o, "%d pods go on running. The next \"drover up\" takes them on; to end them, delete them then\n", state.Survivors)
	}
	return nil
}

// tidy takes away what a plane that has not ended well has left mounted, so that its directory can be removed.
func tidy(d standalone.Dir) error {
	if left, err := machine.Mounted(d.Node()); err != nil || !left {
		return err
	}
	return standalone.WhileStopped(d, func() error { return machine.Tidy(d.Node()) })
}

// say prints the result, which is for people: standard error.
func say(o *Options, format string, args ...any) error {
	_, err := fmt.Fprintf(o.Streams.ErrOut, format, args...)
	return err
}
