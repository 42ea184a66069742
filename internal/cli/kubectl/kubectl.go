// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the command that is kubectl itself, pointed at the same cluster as all other commands. Flags,
// output and exit codes are kubectl's own. Start reading at Run.
package kubectl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/target"
)

// Name is the command's name.
const Name = "kubectl"

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Args    []string // for kubectl, untouched
}

// NewCommand returns the kubectl command, which calls run with everything that follows its name.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	return &cobra.Command{
		Use:                Name + " ...",
		Short:              "Run kubectl against the same cluster",
		Long:               "Run kubectl, which is built in, against the same cluster. All flags after the word are kubectl's own.",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), &Options{Factory: f, Args: args})
		},
	}
}

// Run runs kubectl and returns its exit code, if that is not 0, as a *command.Exit. It changes the environment and the
// signal handling of the process as kubectl needs them, so it must be the last thing that the process does.
func Run(_ context.Context, o *Options) (err error) {
	f := o.Factory
	args, err := aim(f.Target, o.Args)
	if err != nil {
		return err
	}
	// kubectl counts on signals to end it, or handles them itself.
	signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// In its own binary there are no flags of a control plane, which would be added to its commands here.
	foreign := pflag.CommandLine
	defer func() { pflag.CommandLine = foreign }()
	pflag.CommandLine = pflag.NewFlagSet(Name, pflag.ContinueOnError)

	defer func() {
		switch ended := recover().(type) {
		case nil:
		case *command.Exit:
			err = ended
		default:
			panic(ended)
		}
	}()
	cmdutil.BehaviorOnFatal(func(message string, code int) {
		if message != "" {
			f.Printf("%s\n", strings.TrimSuffix(message, "\n"))
		}
		panic(&command.Exit{Code: command.ExitCode(code)})
	})
	_, _ = logs.GlogSetter(kubectlcmd.GetLogVerbosity(args)) // as kubectl's own main does; "0" is always valid
	kubectl := kubectlcmd.NewDefaultKubectlCommandWithArgs(kubectlcmd.KubectlOptions{
		PluginHandler: kubectlcmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     append([]string{Name}, args...),
		ConfigFlags:   configFlags(f),
		IOStreams:     f.Streams,
	})
	kubectl.SetArgs(args)
	kubectl.SetIn(f.Streams.In)
	kubectl.SetOut(f.Streams.Out)
	kubectl.SetErr(f.Streams.ErrOut)
	if err := cli.RunNoErrOutput(kubectl); err != nil {
		cmdutil.CheckErr(err)
	}
	return nil
}

// configFlags returns kubectl's connection flags. While no plane is running, everything that would reach for a cluster
// fails and says so, instead of looking for one on localhost or around the pod in which the process runs.
func configFlags(f *command.Factory) *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().
		WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(f.Streams)
	return flags.WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		chosen := target.Target{DataDir: f.Target.DataDir, Kubeconfig: *flags.KubeConfig, Context: *flags.Context}
		if !chosen.IsPlane() || *flags.APIServer != "" {
			return c
		}
		if _, err := chosen.Resolve(); err != nil {
			if noPlane, ok := errors.AsType[*target.NoPlaneError](err); ok {
				c.Wrap(func(http.RoundTripper) http.RoundTripper { return refuse{noPlane} })
			}
		}
		return c
	})
}

// refuse is a transport that answers every request with an error.
type refuse struct{ err error }

func (r refuse) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%w; try drover up, or --kubeconfig FILE for another cluster", r.err)
}

// aim points kubectl at the cluster of t and returns the arguments to run it with. A plane becomes $KUBECONFIG, so that
// "kubectl config" and plugins see it too, and --kubeconfig among the arguments still wins. If they contain --context
// without a kubeconfig, kubectl's own rules say where it is looked up.
func aim(t *target.Target, args []string) ([]string, error) {
	var flags []string
	if t.Namespace != "" {
		flags = append(flags, "--namespace="+t.Namespace)
	}
	if !t.IsPlane() {
		if t.DataDir != "" {
			_, err := t.Resolve() // says which flags exclude each other
			return nil, err
		}
		if t.Kubeconfig != "" {
			flags = append(flags, "--kubeconfig="+t.Kubeconfig)
		}
		if t.Context != "" {
			flags = append(flags, "--context="+t.Context)
		}
		return insert(flags, args), nil
	}
	if names(args, "--context") && !names(args, "--kubeconfig") {
		return insert(flags, args), nil
	}
	dir, err := t.PlaneDir()
	if err != nil {
		return nil, err
	}
	for key, value := range map[string]string{
		"KUBECONFIG":   dir + "/" + target.KubeconfigName,
		"KUBECACHEDIR": target.PlaneCacheDir(dir),
	} {
		if err := os.Setenv(key, value); err != nil {
			return nil, fmt.Errorf("pointing kubectl at the plane: %w", err)
		}
	}
	return insert(flags, args), nil
}

// insert puts flags behind the arguments that are kubectl's commands, or rather before the first that is not: a plugin
// is only found if no flag precedes its name, and nothing may be put behind "--".
func insert(flags, args []string) []string {
	if len(flags) == 0 {
		return args
	}
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") })
	if at < 0 {
		at = len(args)
	}
	return slices.Concat(args[:at], flags, args[at:])
}

// names reports whether the flag is among the arguments, before any "--".
func names(args []string, flag string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if arg == flag || strings.HasPrefix(arg, flag+"=") {
			return true
		}
	}
	return false
}
