// SPDX-License-Identifier: Apache-2.0

// Package up is the command that runs a standalone plane, in the foreground or as a process of its own. It turns flags into
// a configuration and tells the person at the terminal how the start goes; package standalone does the work. It does not
// link what a plane is made of: main hands that in.
//
// Start reading at Run.
package up

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/cli/flag"

	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/standalone"
)

// Options are what the command line asks for.
type Options struct {
	Streams genericiooptions.IOStreams
	Version string
	// Dir is the data directory; "" for a temporary one.
	Dir standalone.Dir
	// DefaultDir: Dir is what commands take that name none.
	DefaultDir   bool
	BindAddress  net.IP
	Port         int
	Ephemeral    bool
	Detach       bool
	FeatureGates map[string]bool
	Controllers  []string // of Drover's
	Verbosity    int
	// Images is the path of a table of images; "": ImagesFile in the data directory, if it is there.
	Images string
}

// ImagesFile is the name of the table of images in a data directory.
const ImagesFile = "images.yaml"

// NewCommand returns the command. dataDir returns the absolute path of the data directory that the root's --data-dir, the environment and the
// default come to, and whether it was named by one of the first two.
func NewCommand(
	streams genericiooptions.IOStreams, version string, dataDir func() (dir string, named bool, err error),
	run func(context.Context, *Options) error,
) *cobra.Command {
	o := &Options{Streams: streams, Version: version}
	bind := "127.0.0.1"
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a Kubernetes plane on this machine",
		Long: `Run a Kubernetes plane on this machine: etcd, kube-apiserver, kube-scheduler, the controllers for Jobs, CronJobs and
Volcano Jobs, and a node that runs pods as processes. It needs no other software and leaves nothing outside its data
directory. Stop it with Ctrl-C, SIGTERM or "drover down"; a second Ctrl-C ends it at once. Pods go on running while it is
down, and the next start takes them on.

Exit codes:
    0  the plane was asked to stop and has stopped; with --detach: it is ready
    1  it could not start, or has failed`,
		Example: `  drover up                      # in the foreground, with data that stays
  drover up --detach             # in the background
  drover up --ephemeral          # in a temporary directory that goes when it stops`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, named, err := dataDir()
			if err != nil {
				return err
			}
			o.Dir, o.DefaultDir = standalone.Dir(dir), !named
			if o.Ephemeral && !named {
				o.Dir, o.DefaultDir = "", false
			}
			if o.BindAddress = net.ParseIP(bind); o.BindAddress == nil {
				return &standalone.Error{
					Doing: "reading --bind-address", Err: fmt.Errorf("%q is not an IP address", bind),
					Try: []string{"--bind-address 127.0.0.1 for this machine alone", "--bind-address 0.0.0.0 for everybody"},
				}
			}
			if err := (config.Controllers{Enabled: o.Controllers}).Validate(); err != nil {
				return err
			}
			if o.Images, err = imagesPath(o); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&bind, "bind-address", bind, "IP address to listen on; anything but loopback lets other machines in")
	flags.IntVar(&o.Port, "port", 0, "port of the API server (0: the one of the last start if it is free, else a free one)")
	flags.BoolVar(&o.Ephemeral, "ephemeral", false,
		"remove the data directory when the plane stops, and write to it without waiting for the disk; without --data-dir it is a temporary one")
	flags.BoolVar(&o.Detach, "detach", false, "go on in the background, and return once the plane is ready")
	flags.Var(flag.NewMapStringBool(&o.FeatureGates), "feature-gates", "Kubernetes feature gates, as NAME=true,NAME=false")
	flags.StringSliceVar(&o.Controllers, "controllers", []string{"*"},
		"Drover's controllers to run, by name ("+strings.Join(config.ControllerNames, ", ")+"); * is all, -name takes one away, -* leaves all of them to a drover-controller beside the plane")
	flags.StringVar(&o.Images, "images", "",
		"table of what images stand for on this machine, in YAML; without it "+ImagesFile+" in the data directory, if it is there")
	flags.IntVarP(&o.Verbosity, "v", "v", 0, "how much goes to the log file, 0 to 10")
	return cmd
}

// Run returns the function that runs a plane of parts until ctx ends, or starts one in the background.
func Run(parts standalone.Parts) func(context.Context, *Options) error {
	return func(ctx context.Context, o *Options) error {
		child := inheritedPipe()
		if o.Detach && child == nil {
			return detach(ctx, o.Streams.ErrOut)
		}
		if child != nil {
			// A process in the background must not hold a file system that somebody wants to unmount.
			if err := os.Chdir("/"); err != nil {
				return fmt.Errorf("leaving the current directory: %w", err)
			}
		}
		images, err := loadImages(o.Images)
		if err != nil {
			return err
		}
		t, err := newTerminal(o, child)
		if err != nil {
			return err
		}
		defer t.close()
		t.printf("Starting drover%s\n", versionText(o.Version))
		if gates := slices.Sorted(maps.Keys(o.FeatureGates)); len(gates) > 0 {
			t.printf("  feature gates changed: %v\n", gates)
		}
		return standalone.Run(ctx, standalone.Config{
			Dir: o.Dir, BindAddress: o.BindAddress, Port: o.Port, Ephemeral: o.Ephemeral, FeatureGates: o.FeatureGates, Controllers: o.Controllers,
			Verbosity: o.Verbosity, Version: o.Version, Images: images,
		}, parts, t)
	}
}

// imagesPath returns the absolute path of the table of images; "" if there is none.
func imagesPath(o *Options) (string, error) {
	if o.Images == "" {
		if o.Dir == "" {
			return "", nil
		}
		file := filepath.Join(string(o.Dir), ImagesFile)
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		return file, nil
	}
	file, err := filepath.Abs(o.Images)
	if err != nil {
		return "", fmt.Errorf("finding --images: %w", err)
	}
	return file, nil
}

func loadImages(file string) (image.Table, error) {
	if file == "" {
		return nil, nil
	}
	table, err := image.Load(file)
	if err != nil {
		return nil, &standalone.Error{
			Doing: "starting the plane", Err: err,
			Try: []string{"a file like this:  images: [{names: [team/tool], entrypoint: [/opt/tool/bin/tool]}]"},
		}
	}
	return table, nil
}

func versionText(version string) string {
	if version == "" {
		return " (development build)"
	}
	return " " + version
}

// inheritedPipe returns the pipe to the process that has started this one in the background, or nil.
func inheritedPipe() *os.File {
	if os.Getenv(detachedEnv) == "" {
		return nil
	}
	// Processes that this one starts are not detached planes.
	if err := os.Unsetenv(detachedEnv); err != nil {
		return nil
	}
	syscall.CloseOnExec(readyFD)
	return os.NewFile(readyFD, "ready")
}
