// SPDX-License-Identifier: Apache-2.0

// Package vcctl is the command line of Volcano's users: vcctl and the small tools beside it, with Volcano's flags and columns. The
// binary is one of them when it is called by its name. Whatever decides is elsewhere; here is only what they read and print.
//
// Start reading at NewCommand.
package vcctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/target"
	"github.com/drover-dev/drover/internal/volcano/client"
)

// Env is what the tools work with.
type Env struct {
	Streams command.Streams
	Now     func() time.Time
	Getenv  func(string) string
	Version string
	// Config returns how to reach the cluster that the flags --master and --kubeconfig mean; "" for both: nothing was said.
	Config func(master, kubeconfig string) (*rest.Config, error)
}

// Names are the tools.
var Names = []string{"vcctl", "vsub", "vjobs", "vqueues", "vcancel", "vsuspend", "vresume"}

// NewCommand returns the tool of that name, nil if there is none. program may be a path.
func NewCommand(program string, env *Env) *cobra.Command {
	var cmd *cobra.Command
	switch filepath.Base(program) {
	case "vcctl":
		cmd = newVcctl(env)
	case "vsub":
		cmd = newVsub(env)
	case "vjobs":
		cmd = newVjobs(env)
	case "vqueues":
		cmd = newVqueues(env)
	case "vcancel":
		cmd = newVcancel(env)
	case "vsuspend":
		cmd = newCommander(env, "vsuspend", "suspend", single)
	case "vresume":
		cmd = newCommander(env, "vresume", "resume", single)
	default:
		return nil
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetIn(env.Streams.In)
	cmd.SetOut(env.Streams.Out)
	cmd.SetErr(env.Streams.ErrOut)
	return cmd
}

func newVcctl(env *Env) *cobra.Command {
	root := group("vcctl", "vcctl controls jobs, queues and flows of Volcano")
	jobs := group("job", "vcctl command line operation job")
	jobs.AddCommand(
		newRun(env, "run", vcctlFlags), newJobList(env), newJobView(env), newCommander(env, "suspend", "suspend", vcctlFlags),
		newCommander(env, "resume", "resume", vcctlFlags), newJobDelete(env),
	)
	queues := group("queue", "vcctl command line operation queue")
	queues.AddCommand(newQueueCreate(env), newQueueDelete(env), newQueueOperate(env), newQueueList(env, "list"), newQueueGet(env))
	pods := group("pod", "vcctl command line operation pod")
	pods.AddCommand(newPodList(env))
	root.AddCommand(jobs, queues, newFlowGroup(env, jobFlows), newFlowGroup(env, jobTemplates), pods, &cobra.Command{
		Use: "version", Short: "Print the version information", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(env.Streams.Out, "Version: drover %s\n", strings.TrimSpace(env.Version+" (vcctl)"))
			return err
		},
	})
	return root
}

func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// naming says which letters stand for the name of an object and for its namespace: those of vcctl, or of the single-purpose tools.
type naming struct{ name, namespace string }

var (
	vcctlFlags = naming{name: "N", namespace: "n"}
	single     = naming{name: "n", namespace: "N"}
)

const defaultNamespace = "default"

// leaf is a command that talks to the cluster.
type leaf struct {
	*cobra.Command
	env                *Env
	master, kubeconfig string
}

// newLeaf returns a command that calls run. What run returns is told as "Failed to <doing>: …".
func newLeaf(env *Env, use, short, doing string, run func(l *leaf, c *Cluster) error) *leaf {
	l := &leaf{env: env}
	l.Command = &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs, DisableFlagsInUseLine: true,
		RunE: func(*cobra.Command, []string) error {
			err := l.run(run)
			if err != nil {
				return fmt.Errorf("Failed to %s: %w", doing, err) //nolint:staticcheck // these words are Volcano's
			}
			return nil
		},
	}
	l.Use = use + " [flags]"
	l.Flags().StringVarP(&l.master, "master", "s", "", "the address of apiserver")
	l.Flags().StringVarP(&l.kubeconfig, "kubeconfig", "k", "", "(optional) absolute path to the kubeconfig file")
	return l
}

func (l *leaf) run(run func(l *leaf, c *Cluster) error) error {
	config, err := l.env.Config(l.master, l.kubeconfig)
	if err != nil {
		return err
	}
	c, err := newCluster(config)
	if err != nil {
		return err
	}
	return run(l, c)
}

func (l *leaf) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(l.env.Streams.Out, format, args...)
	return err
}

// Cluster reaches Kubernetes' kinds and Volcano's.
type Cluster struct {
	kube kubernetes.Interface
	vc   *client.Client
}

func newCluster(config *rest.Config) (*Cluster, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	vc, err := client.New(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{kube: kube, vc: vc}, nil
}

// Config returns how to reach the cluster: that of the flags; else the standalone plane that $DROVER_DATA_DIR names; else that of
// $KUBECONFIG; else a standalone plane that runs in the default place; else that of ~/.kube/config.
func Config(master, kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if master == "" && kubeconfig == "" {
		plane := &target.Target{}
		if plane.Named() || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
			cluster, err := plane.Resolve()
			switch {
			case err == nil:
				return cluster.Config, nil
			case plane.Named():
				return nil, err
			}
		}
	}
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = master
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}
