// SPDX-License-Identifier: Apache-2.0

// Package ls is the command that lists work. Start reading at Run.
package ls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/feed"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/printer"
	"github.com/drover-dev/drover/internal/cli/wait"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// Options is what the command line asks for.
type Options struct {
	Factory       *command.Factory
	Kinds         []*workload.Kind
	Names         []string // only these; empty means all
	Selector      string
	AllNamespaces bool
	Watch         bool
	NoHeaders     bool
	Output        *printer.Flags
}

// NewCommand returns the ls command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Output: printer.NewFlags(true)}
	cmd := &cobra.Command{
		Use:     "ls [TYPE] [NAME...]",
		Aliases: []string{"list"},
		Short:   "List work: what it is doing, how far it is, why it failed",
		Long: `List work, the oldest first.

TYPE is one of: ` + strings.Join(workload.Names(), ", ") + `. Without it all are listed.
DONE is successes of those wanted. RETRIES counts failed pods that were allowed another try.
DURATION runs from the first start to the end, also for work that failed.
CronJobs alone are listed with their schedules: LAST is how long ago the last due time was that started a Job, RESULT what
became of that Job, NEXT how long it is until the next.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable),
		Example: `  # What is going on, and follow it
  drover ls
  drover ls -w

  # The names of all Jobs of a batch, in all namespaces
  drover ls jobs -A -l batch=nightly -o name`,
		Args: func(_ *cobra.Command, args []string) error { return o.parse(args) },
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 && !strings.Contains(typed, "/") {
				return workload.Names(), cobra.ShellCompDirectiveNoFileComp
			}
			return pick.Complete(f)(cmd, args, typed)
		},
	}
	cmd.Flags().StringVarP(&o.Selector, "selector", "l", "", "only what this label selector matches")
	cmd.Flags().BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "in all namespaces")
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "go on and print every change, until interrupted")
	cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "leave out the line with the names of the columns")
	o.Output.AddFlags(cmd)
	return cmd
}

// parse reads the arguments, after the flags.
func (o *Options) parse(args []string) error {
	if _, err := labels.Parse(o.Selector); err != nil {
		return command.Usagef("--selector %q: %w", o.Selector, err)
	}
	if _, err := o.Output.Printer(); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	if err := o.parseNames(args); err != nil {
		return err
	}
	switch {
	case len(o.Names) > 0 && o.AllNamespaces:
		return command.Usagef("names are looked up in one namespace: leave out --all-namespaces")
	case len(o.Names) > 0 && o.Selector != "":
		return command.Usagef("names and --selector exclude each other")
	case len(o.Names) > 1 && o.Watch:
		return command.Usagef("--watch follows one name or all: leave out the names or all but one")
	}
	return nil
}

func (o *Options) parseNames(args []string) error {
	if len(args) == 0 {
		o.Kinds = workload.Kinds()
		return nil
	}
	if strings.Contains(args[0], "/") {
		refs, err := workload.ParseRefs(args)
		if err != nil {
			return &command.Error{Err: err, Code: command.ExitUsage}
		}
		o.Kinds = []*workload.Kind{refs[0].Kind}
		for _, ref := range refs {
			if ref.Kind.Name != refs[0].Kind.Name {
				return command.Usagef("%s and %s are of different types: list them one after the other", refs[0], ref)
			}
			o.Names = append(o.Names, ref.Name)
		}
		return nil
	}
	kinds, err := pick.Kinds(args[:1])
	if err != nil {
		if problem, ok := errors.AsType[*command.Error](err); ok && len(problem.Meant) == 0 {
			problem.Try = []string{fmt.Sprintf("drover ls %s %s   if that is a name", workload.Kinds()[0].Plural, args[0])}
		}
		return err
	}
	o.Kinds, o.Names = kinds, args[1:]
	if len(o.Names) > 0 && len(kinds) > 1 {
		return command.Usagef("names need exactly one type before them")
	}
	return nil
}

// Run lists, and goes on with every change if o.Watch is set.
func Run(ctx context.Context, o *Options) error {
	l := lister{Options: o}
	var err error
	if l.structured, err = o.Output.Printer(); err != nil {
		return err
	}
	if o.Watch {
		return l.watch(ctx)
	}
	rows, err := l.list(ctx)
	if err != nil {
		return err
	}
	return l.print(rows)
}

// lister is one run of the command.
type lister struct {
	*Options
	structured printers.ResourcePrinter // nil for a table
	table      *printer.Table           // once it has been begun
}

// row is one listed object.
type row struct {
	kind   *workload.Kind
	object runtime.Object
}

func (r row) meta() metav1.Object { return r.object.(metav1.Object) }

func (l *lister) list(ctx context.Context) ([]row, error) {
	f := l.Factory
	client, err := f.Kubernetes()
	if err != nil {
		return nil, err
	}
	namespace, err := l.namespace()
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, kind := range l.Kinds {
		for _, name := range l.Names {
			o, err := kind.Open(client, namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, pick.Explain(ctx, f, workload.Ref{Kind: kind, Name: name}, "listing", err)
			}
			rows = append(rows, row{kind, o})
		}
		if len(l.Names) > 0 {
			continue
		}
		list, err := kind.Open(client, namespace).List(ctx, metav1.ListOptions{LabelSelector: l.Selector})
		if err != nil {
			return nil, fmt.Errorf("listing %s%s: %w", kind.Plural, inNamespace(namespace), err)
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			rows = append(rows, row{kind, o})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing %s%s: %w", kind.Plural, inNamespace(namespace), err)
		}
	}
	if len(l.Names) == 0 {
		slices.SortStableFunc(rows, func(a, b row) int { return workload.Older(a.meta(), b.meta()) })
	}
	return rows, nil
}

func (l *lister) namespace() (string, error) {
	if l.AllNamespaces {
		return metav1.NamespaceAll, nil
	}
	return l.Factory.Namespace()
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return fmt.Sprintf(" in namespace %q", namespace)
}

func (l *lister) print(rows []row) error {
	if l.structured != nil {
		return l.printStructured(rows)
	}
	if len(rows) == 0 {
		namespace, err := l.namespace()
		if err != nil {
			return err
		}
		var plurals []string
		for _, kind := range l.Kinds {
			plurals = append(plurals, kind.Plural)
		}
		l.Factory.Printf("No %s%s.\n", strings.Join(plurals, " or "), inNamespace(namespace))
		return nil
	}
	for _, r := range rows {
		l.addRow(r, "")
	}
	return l.table.Flush()
}

// printStructured prints one object that was asked for by name as itself, names one by one, and all else as a list.
func (l *lister) printStructured(rows []row) error {
	if len(l.Names) == 1 || l.Output.Format() == "name" {
		for _, r := range rows {
			if err := l.printOne(r); err != nil {
				return err
			}
		}
		return nil
	}
	objects := make([]runtime.Object, len(rows))
	for i, r := range rows {
		objects[i] = r.object
	}
	list, err := printer.List(objects)
	if err != nil {
		return err
	}
	return l.structured.PrintObj(list, l.Factory.Streams.Out)
}

func (l *lister) printOne(r row) error {
	o, err := printer.Typed(r.object)
	if err != nil {
		return err
	}
	return l.structured.PrintObj(o, l.Factory.Streams.Out)
}

// addRow adds a line to the table, which it begins if need be. status replaces the object's own if it is not "".
func (l *lister) addRow(r row, status string) {
	wide := l.Output.Format() == printer.Wide
	own := len(l.Kinds) == 1 && l.Kinds[0].Columns != nil
	if l.table == nil {
		var headers []string
		if !l.NoHeaders {
			headers = []string{"NAME", "KIND", "STATUS", "DONE", "RETRIES", "DURATION", "AGE"}
			if l.Watch { // what comes later should stay in line
				headers[0], headers[2] = fmt.Sprintf("%-20s", "NAME"), fmt.Sprintf("%-28s", "STATUS")
				headers[3] = fmt.Sprintf("%-7s", "DONE")
			}
			if own {
				headers = slices.Concat(headers[:1], l.Kinds[0].Columns, []string{"AGE"})
			}
			if l.AllNamespaces {
				headers = slices.Insert(headers, 0, "NAMESPACE")
			}
			switch {
			case wide && own:
				headers = append(headers, "IMAGES")
			case wide:
				headers = append(headers, "ACTIVE", "IMAGES")
			}
		}
		l.table = printer.NewTable(l.Factory.Streams.Out, headers)
	}
	now := l.Factory.Clock.Now().In(l.Factory.ControllerZone())
	s := r.kind.Summarize(r.object)
	cells := []string{r.meta().GetName(), r.kind.Shown(), cmp.Or(status, s.Status), s.Done, strconv.Itoa(s.Retries), ran(s, now), age(r.meta(), now)}
	if r.kind.Endless {
		cells[4] = "" // its pods are those of others
	}
	if own {
		cells = slices.Concat(cells[:1], r.kind.Cells(r.object, now), []string{cmp.Or(status, age(r.meta(), now))})
	}
	if l.AllNamespaces {
		cells = slices.Insert(cells, 0, r.meta().GetNamespace())
	}
	switch {
	case wide && own:
		cells = append(cells, s.Images)
	case wide:
		cells = append(cells, strconv.Itoa(s.Active), s.Images)
	}
	l.table.Row(cells...)
}

func ran(s workload.Summary, now time.Time) string {
	d, started := s.Duration(now)
	if !started {
		return ""
	}
	return duration.HumanDuration(d)
}

func age(o metav1.Object, now time.Time) string {
	created := o.GetCreationTimestamp()
	if created.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(created.Time))
}

// watch prints the present state of all kinds, in the order of lists, then every change that makes a difference to see.
func (l *lister) watch(ctx context.Context) error {
	client, err := l.Factory.Kubernetes()
	if err != nil {
		return err
	}
	namespace, err := l.namespace()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	lost := wait.LostPrinter(l.Factory)
	screen := &screen{lister: l, unsynced: len(l.Kinds), shown: map[string]string{}}
	for _, kind := range l.Kinds {
		news := feed.Feed{
			Source: kind.Open(client, namespace),
			Clock:  l.Factory.Clock,
			Labels: l.Selector,
			Lost:   lost,
		}
		if len(l.Names) == 1 {
			news.Name = l.Names[0]
		}
		wg.Go(func() {
			err := news.Run(ctx, func(e feed.Event) bool {
				if err := screen.show(kind, e); err != nil {
					cancel(err)
					return true
				}
				return false
			})
			if err != nil {
				cancel(fmt.Errorf("watching %s%s: %w", kind.Plural, inNamespace(namespace), err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// screen is what a watching person has seen so far. It is safe for concurrent use.
type screen struct {
	*lister

	mu       sync.Mutex
	unsynced int               // kinds whose present state is not yet complete
	present  []row             // the present state, gathered until all kinds are synced
	shown    map[string]string // by UID, what the last printed line was about
}

func (s *screen) show(kind *workload.Kind, e feed.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.Type == feed.Synced:
		s.unsynced--
		if s.unsynced > 0 {
			return nil
		}
		slices.SortStableFunc(s.present, func(a, b row) int { return workload.Older(a.meta(), b.meta()) })
		for _, r := range s.present {
			if err := s.printLocked(r, ""); err != nil {
				return err
			}
		}
		s.present = nil
		return s.flushLocked()
	case s.unsynced > 0: // an object may change while other kinds are still being listed
		r := row{kind, e.Object}
		s.present = slices.DeleteFunc(s.present, func(old row) bool { return old.meta().GetUID() == r.meta().GetUID() })
		if e.Type == feed.Present {
			s.present = append(s.present, r)
		}
		return nil
	case e.Type == feed.Gone:
		if err := s.printLocked(row{kind, e.Object}, "Deleted"); err != nil {
			return err
		}
		return s.flushLocked()
	}
	if err := s.printLocked(row{kind, e.Object}, ""); err != nil {
		return err
	}
	return s.flushLocked()
}

// printLocked prints an object unless nothing has changed that the table shows; a program sees every change.
func (s *screen) printLocked(r row, status string) error {
	if s.structured != nil {
		return s.printOne(r)
	}
	sum := r.kind.Summarize(r.object)
	about := fmt.Sprint(status, sum.Status, sum.Done, sum.Retries, sum.Started, sum.Ended)
	if s.Output.Format() == printer.Wide || r.kind.Endless {
		about += fmt.Sprint(sum.Active)
	}
	uid := string(r.meta().GetUID())
	if s.shown[uid] == about {
		return nil
	}
	s.shown[uid] = about
	s.addRow(r, status)
	return nil
}

func (s *screen) flushLocked() error {
	if s.table == nil {
		return nil
	}
	return s.table.Flush()
}
