// SPDX-License-Identifier: Apache-2.0

// Package controllercmd is the command line of drover-controller: the controllers alone, for a cluster that somebody else runs.
package controllercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"github.com/drover-dev/drover/internal/app"
	"github.com/drover-dev/drover/internal/app/cores"
	"github.com/drover-dev/drover/internal/config"
)

// Exit codes of drover-controller.
const (
	exitOK    = 0 // ended because it was asked to
	exitError = 1 // could not start, or had to stop
	exitUsage = 2 // flags that make no sense
)

// Options are what the flags say.
type Options struct {
	Kubeconfig, Context string
	Controllers         config.Controllers
	Admission           config.Admission
	LeaderElect         bool
	Lease               app.Lease
	MetricsAddress      string
	Profiling           bool
	Verbose             bool
}

// Main runs drover-controller with the given arguments and returns its exit code.
func Main(args []string, out, errOut io.Writer) int {
	cmd := NewCommand(errOut, run)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := cmd.ExecuteContext(ctx); {
	case err == nil:
		return exitOK
	case errors.As(err, new(usageError)):
		fmt.Fprintf(errOut, "drover-controller: %v\nTry drover-controller --help.\n", err)
		return exitUsage
	default:
		fmt.Fprintf(errOut, "drover-controller: %v\n", err)
		return exitError
	}
}

type usageError struct{ error }

// NewCommand returns the command; run is called with what the flags say.
func NewCommand(logTo io.Writer, run func(ctx context.Context, o *Options, log *slog.Logger) error) *cobra.Command {
	o := &Options{Lease: app.DefaultLease("kube-system")}
	var gates map[string]bool
	cmd := &cobra.Command{
		Use:   "drover-controller",
		Short: "Run Drover's controllers against a Kubernetes API server",
		Long: `Runs Drover's controllers against the API server of a kubeconfig, or of the cluster it runs in.

With --manage=all it takes the place of the cluster's own loops, which must be off
(kube-controller-manager --controllers=*,-job-controller,-cronjob-controller,-ttl-after-finished-controller).
With --manage=marked it looks after Jobs whose spec.managedBy is ` + config.MarkedManager + ` only.
With --namespaces it works in these namespaces only, and needs rights in these only.

Exit codes: 0 asked to stop, 1 could not start or had to stop, 2 wrong usage.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q: everything is set by flags", args[0])}
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.Controllers.SetGates(gates), o.Controllers.Validate()); err != nil {
				return usageError{err}
			}
			if len(o.Controllers.Namespaces) == 0 && cmd.Flags().Changed("namespaces") {
				return usageError{errors.New("--namespaces: names none; leave the flag out to work in all")}
			}
			level := slog.LevelInfo
			if o.Verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(logTo, &slog.HandlerOptions{Level: level}))
			klog.SetLogger(logr.FromSlogHandler(log.With("from", "client-go").Handler()))
			return run(cmd.Context(), o, log)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; without it $KUBECONFIG, then the cluster this process runs in")
	f.StringVar(&o.Context, "context", "", "context of the kubeconfig")
	f.StringVar((*string)(&o.Controllers.Manage), "manage", string(config.ManageAll), "which Jobs to look after: all, or marked (spec.managedBy: "+config.MarkedManager+")")
	f.StringSliceVar(&o.Controllers.Enabled, "controllers", []string{"*"}, "controllers to run, by name; * is all, -name takes one away")
	f.StringSliceVar(&o.Controllers.Namespaces, "namespaces", nil, "namespaces to work in, such as a,b (default all); queues, priority classes and nodes have none, and are read all the same")
	f.IntVar(&o.Controllers.JobWorkers, "concurrent-job-syncs", 0, "Jobs looked at at once (default 16)")
	f.DurationVar(&o.Controllers.JobBatchPeriod, "job-batch-period", 0, "shortest time between two status writes of one Job that tell of ended pods (default 1s)")
	f.IntVar(&o.Controllers.CronJobWorkers, "concurrent-cron-job-syncs", 0, "CronJobs looked at at once (default 16)")
	f.IntVar(&o.Controllers.VCJobWorkers, "concurrent-vcjob-syncs", 0, "Jobs of Volcano looked at at once (default 16)")
	f.StringVar((*string)(&o.Controllers.Gang), "gang", string(config.GangVolcano), "who admits the PodGroups of Volcano's Jobs: volcano (its scheduler), native (we do, and kube-scheduler places gangs by its own PodGroups: gate GenericWorkload), or none (we do, and pods are placed one by one)")
	f.BoolVar(&o.Controllers.InstallKinds, "install-crds", false, "make the definitions of Volcano's kinds that are not there, and the queues root and default")
	f.StringVar(&o.Admission.Listen, "webhook-bind-address", "", "address to serve the webhooks of Volcano's kinds on; empty means none")
	f.StringVar(&o.Admission.Service, "webhook-service", "", "namespace/name of the Service by which the API server reaches the webhooks; empty: it reaches the address itself")
	f.StringVar(&o.Admission.Secret, "webhook-secret", "", "namespace/name of the Secret for the webhooks' certificates (default kube-system/drover-volcano-webhook)")
	f.StringVar(&o.Admission.Name, "webhook-name", "", "name of the webhook configurations (default "+config.WebhooksName+"); where several of these serve webhooks for namespaces of their own, each needs another")
	f.StringVar(&o.Admission.SchedulerName, "scheduler-name", "", "scheduler of Volcano's Jobs that name none (default volcano)")
	f.Float32Var(&o.Controllers.QPS, "kube-api-qps", 0, "limit of requests a second to the API server; 0: none, API Priority and Fairness protects it")
	f.Var(flag.NewMapStringBool(&gates), "feature-gates", "feature gates of the cluster that concern its Job controller: "+config.GateWorkloadWithJob+"=true makes a Workload and a PodGroup for each Job")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "work only while holding a lease, so that several of these can stand by for each other")
	f.StringVar(&o.Lease.Namespace, "leader-elect-namespace", o.Lease.Namespace, "namespace of the lease")
	f.StringVar(&o.Lease.Name, "leader-elect-name", o.Lease.Name, "name of the lease")
	f.DurationVar(&o.Lease.Duration, "leader-elect-lease-duration", o.Lease.Duration, "a leader silent for so long has lost its place")
	f.DurationVar(&o.Lease.Renew, "leader-elect-renew-deadline", o.Lease.Renew, "a leader that cannot renew for so long stops")
	f.DurationVar(&o.Lease.Retry, "leader-elect-retry-period", o.Lease.Retry, "time between two tries for the lease")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "127.0.0.1:0", "address of /metrics, /healthz and /readyz; port 0 is a free one, empty means none")
	f.BoolVar(&o.Profiling, "profiling", false, "serve /debug/pprof beside /metrics")
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "say also why nothing is done")
	return cmd
}

func run(ctx context.Context, o *Options, log *slog.Logger) error {
	rc, err := restConfig(o)
	if err != nil {
		return err
	}
	health, err := app.NewHealth(o.MetricsAddress, o.Profiling, log)
	if err != nil {
		return err
	}
	defer health.Close()
	go cores.Run(ctx)
	work := func(ctx context.Context) error {
		return app.RunControllers(ctx, o.Controllers, rc, log, func(c *app.Controllers) {
			health.SetCheck("controllers", awaits(c.Ready(), "the caches are not filled yet"))
		})
	}
	lead := func(ctx context.Context) error { return app.RunAsLeader(ctx, o.Lease, rc, log, work) }
	if !o.LeaderElect {
		lead = work
	}
	if o.Admission.Listen == "" {
		return lead(ctx)
	}
	o.Admission.KindsComing, o.Admission.Namespaces = o.Controllers.InstallKinds, o.Controllers.Namespaces
	hooks, err := app.NewAdmission(o.Admission, rc, log)
	if err != nil {
		return err
	}
	health.SetCheck("webhooks", awaits(hooks.Ready(), "the API server does not know of them yet"))
	return both(ctx, hooks.Run, lead)
}

// awaits returns a check that fails until ready is closed.
func awaits(ready <-chan struct{}, until string) func() error {
	return func() error {
		select {
		case <-ready:
			return nil
		default:
			return errors.New(until)
		}
	}
}

// both runs two things until one of them ends, and then the other.
func both(ctx context.Context, a, b func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var errs [2]error
	var running sync.WaitGroup
	for i, run := range []func(ctx context.Context) error{a, b} {
		running.Go(func() {
			defer cancel()
			errs[i] = run(ctx)
		})
	}
	running.Wait()
	return errors.Join(errs[:]...)
}

func restConfig(o *Options) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w (give --kubeconfig)", err)
	}
	return rc, nil
}
