// SPDX-License-Identifier: Apache-2.0

// Package delete is the command that deletes work together with its pods. Start reading at Run.
package delete

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/dynamic"
	kubectldelete "k8s.io/kubectl/pkg/cmd/delete"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/feed"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/target"
	"github.com/drover-dev/drover/internal/cli/wait"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// Options is what the command line asks for.
type Options struct {
	Factory        *command.Factory
	Pick           pick.Pick
	Files          *genericclioptions.FileNameFlags // delete what these manifests name, instead of Pick
	Cascade        metav1.DeletionPropagation
	Wait           bool
	Timeout        time.Duration // 0: none
	IgnoreNotFound bool
}

// cascades maps the values of --cascade to the API's.
var cascades = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground,
	"foreground": metav1.DeletePropagationForeground,
	"orphan":     metav1.DeletePropagationOrphan,
}

// NewCommand returns the delete command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	var files []string
	var kustomize string
	var recursive bool
	o := &Options{
		Factory: f,
		Files: &genericclioptions.FileNameFlags{
			Usage:     "delete what a manifest names: FILE, DIRECTORY, URL, or - for standard input",
			Filenames: &files, Kustomize: &kustomize, Recursive: &recursive,
		},
	}
	cascade := "background"
	cmd := &cobra.Command{
		Use:     "delete TARGET... | -f FILE | -k DIRECTORY",
		Aliases: []string{"rm"},
		Short:   "Delete work and its pods",
		Long: `Delete work and its pods, and wait until it is gone.

A target is NAME or TYPE/NAME. --cascade says what becomes of the pods: "background" deletes them afterwards,
"foreground" before, so that the work is gone last, and "orphan" leaves them.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable, command.ExitTimeout),
		Example: `  # Delete a Job, and wait until its pods are gone too
  drover delete pi --cascade foreground

  # Delete everything that a directory of manifests has created
  drover delete -f examples/`,
		ValidArgsFunction: pick.Complete(f),
		Args: func(_ *cobra.Command, args []string) error {
			var known bool
			if o.Cascade, known = cascades[cascade]; !known {
				return command.Usagef("--cascade %q: known are background, foreground and orphan", cascade)
			}
			if !o.byManifest() {
				return o.Pick.Parse(args)
			}
			if len(args) > 0 || o.Pick.All {
				return command.Usagef("-f and -k name what to delete: leave out %s", strings.Join(append(slices.Clone(args), "--all")[:max(1, len(args))], " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.Pick.AddFlags(cmd)
	o.Files.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&cascade, "cascade", cascade, "what becomes of the pods: background, foreground or orphan")
	cmd.Flags().BoolVar(&o.Wait, "wait", true, "wait until the object is gone")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "give up waiting after this long (default: never)")
	cmd.Flags().BoolVar(&o.IgnoreNotFound, "ignore-not-found", false, "what is not there counts as deleted")
	return cmd
}

func (o *Options) byManifest() bool { return len(*o.Files.Filenames) > 0 || *o.Files.Kustomize != "" }

// Run deletes every target, and prints each on a line once it is gone or, without waiting, asked to go.
func Run(ctx context.Context, o *Options) error {
	if o.byManifest() {
		return runManifest(o)
	}
	f := o.Factory
	client, err := f.Kubernetes()
	if err != nil {
		return err
	}
	namespace, err := f.Namespace()
	if err != nil {
		return err
	}
	refs, err := o.Pick.Resolve(ctx, f)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		f.Printf("Nothing matches in namespace %q.\n", namespace)
	}
	lost := wait.LostPrinter(f)
	return pick.Each(ctx, f, refs, func(ctx context.Context, ref workload.Ref) (string, error) {
		err := o.delete(ctx, ref.Kind.Open(client, namespace), ref, lost)
		switch {
		case err == nil:
			return ref.String() + " deleted", nil
		case apierrors.IsNotFound(err) && o.IgnoreNotFound:
			return ref.String() + " not found", nil
		default:
			return "", pick.Explain(ctx, f, ref, "deleting", err)
		}
	})
}

// delete deletes one object and waits until it is gone. It looks at the object first, so that another of the same name
// that is created meanwhile is neither deleted nor waited for.
func (o *Options) delete(ctx context.Context, client workload.Client, ref workload.Ref, lost func(error)) error {
	opts := metav1.DeleteOptions{PropagationPolicy: &o.Cascade}
	if !o.Wait {
		return client.Delete(ctx, ref.Name, opts)
	}
	object, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	id, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	uid := id.GetUID()
	opts.Preconditions = &metav1.Preconditions{UID: &uid}
	if err := client.Delete(ctx, ref.Name, opts); err != nil && !replaced(err) {
		return err
	}
	waiting, cancel := wait.WithTimeout(ctx, o.Timeout)
	defer cancel()
	news := feed.Feed{Source: client, Clock: o.Factory.Clock, Name: ref.Name, Known: object, Lost: lost}
	var finalizers []string
	err = news.Run(waiting, func(e feed.Event) bool {
		about, err := meta.Accessor(e.Object)
		if e.Type == feed.Synced || err != nil {
			return false
		}
		finalizers = about.GetFinalizers()
		return about.GetUID() != uid || e.Type == feed.Gone
	})
	if wait.TimedOut(waiting) {
		err = fmt.Errorf("still there after %s", o.Timeout)
		if len(finalizers) > 0 {
			err = fmt.Errorf("%w, held by %s", err, strings.Join(finalizers, ", "))
		}
		return &command.Error{Err: err, Code: command.ExitTimeout}
	}
	return err
}

// replaced reports whether a deletion was refused because the object is already gone and another has its name.
func replaced(err error) bool { return apierrors.IsConflict(err) }

// runManifest deletes what manifests name, of any kind, as kubectl does.
func runManifest(o *Options) error {
	f := o.Factory
	cluster, err := f.Cluster()
	if err != nil {
		return err
	}
	getter := &target.Getter{Cluster: cluster, Warn: func(s string) { f.Printf("Warning: %s\n", s) }}
	factory := cmdutil.NewFactory(getter)
	filenames := o.Files.ToOptions()
	found := factory.NewBuilder().
		Unstructured().
		ContinueOnError().
		NamespaceParam(cluster.Namespace).DefaultNamespace().
		FilenameParam(cluster.Explicit, &filenames).
		LabelSelectorParam(o.Pick.Selector).
		RequireObject(false).
		Flatten().
		Do()
	if err := found.Err(); err != nil {
		return &command.Error{Doing: "reading the manifests", Err: err}
	}
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return fmt.Errorf("using the kubeconfig %s: %w", cluster.Source, err)
	}
	kubectl := kubectldelete.DeleteOptions{
		FilenameOptions:   filenames,
		CascadingStrategy: o.Cascade,
		IgnoreNotFound:    o.IgnoreNotFound,
		WaitForDeletion:   o.Wait,
		Timeout:           o.Timeout,
		GracePeriod:       -1, // the objects' own
		DynamicClient:     client,
		IOStreams:         f.Streams,
		WarningPrinter:    printers.NewWarningPrinter(f.Streams.ErrOut, printers.WarningPrinterOptions{Color: f.Colour(f.Streams.ErrOut)}),
	}
	if err := kubectl.DeleteResult(found); err != nil {
		return &command.Error{Doing: "deleting what the manifests name", Err: err}
	}
	return nil
}
