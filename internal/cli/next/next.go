// SPDX-License-Identifier: Apache-2.0

// Package next is the command that lists the coming due times of CronJobs. Start reading at Run; coming is the part that computes.
package next

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/printer"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/schedule"
)

// Bounds of what is listed.
const (
	defaultCount = 20
	maxCount     = 10_000
)

// Options is what the command line asks for.
type Options struct {
	Factory       *command.Factory
	Refs          []workload.Ref // none: all
	AllNamespaces bool
	Count         int
	From, To      time.Time // zero: now; no end
	Output        string    // "", name, json or yaml
}

// NewCommand returns the next command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Count: defaultCount}
	var from, to string
	cmd := &cobra.Command{
		Use:   "next [CRONJOB...]",
		Short: "List when CronJobs are due next",
		Long: `List the coming due times of CronJobs, all in one timeline, in the zone of each schedule and in UTC. Without a name all CronJobs of
the namespace are listed.

NOTE marks days on which the clocks change, and times that this removes, CronJobs that are suspended, and starts that a spread window moves.
A time for --from and --to is 2026-03-29, "2026-03-29 02:30", both in UTC, 2026-03-29T02:30:00+02:00, or a span from now, like 48h.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable),
		Example: `  # The next five runs of the CronJob backup
  drover next backup -c 5

  # Everything that is due in the night of the change to summer time
  drover next -A --from "2026-03-28 22:00" --to "2026-03-29 06:00"`,
		ValidArgsFunction: pick.CompleteKind(f, "cronjob"),
		Args: func(cmd *cobra.Command, args []string) error {
			return o.parse(args, from, to, cmd.Flags().Changed("count"))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().IntVarP(&o.Count, "count", "c", o.Count, "how many due times, all CronJobs together")
	cmd.Flags().StringVar(&from, "from", "", "list from this time on (default: now)")
	cmd.Flags().StringVar(&to, "to", "", "list up to this time; without -c as many as there are, 10000 at most")
	cmd.Flags().BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "CronJobs of all namespaces")
	printer.AddRecordFlag(cmd, &o.Output)
	return cmd
}

func (o *Options) parse(args []string, from, to string, counted bool) error {
	for _, arg := range args {
		ref, err := workload.CronJobName(arg)
		if err != nil {
			return &command.Error{Err: err, Code: command.ExitUsage}
		}
		o.Refs = append(o.Refs, ref)
	}
	now := o.Factory.Clock.Now()
	var err error
	if o.From, err = parseTime(from, now); err != nil {
		return command.Usagef("--from %q: %w", from, err)
	}
	if o.To, err = parseTime(to, now); err != nil {
		return command.Usagef("--to %q: %w", to, err)
	}
	if o.From.IsZero() {
		o.From = now
	}
	if to != "" && !counted {
		o.Count = maxCount
	}
	switch {
	case len(args) > 0 && o.AllNamespaces:
		return command.Usagef("names are looked up in one namespace: leave out --all-namespaces")
	case o.Count < 1 || o.Count > maxCount:
		return command.Usagef("--count %d: use 1 to %d", o.Count, maxCount)
	case !o.To.IsZero() && !o.To.After(o.From):
		return command.Usagef("--to lies before --from")
	}
	if err := printer.CheckRecord(o.Output); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	return nil
}

// parseTime reads a time of the command line; "" is the zero time.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(`write 2026-03-29, "2026-03-29 02:30", 2026-03-29T02:30:00+02:00 or a span like 48h`)
}

// Due is one line of the list.
type Due struct {
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind,omitempty"` // cronvcjob for a CronJob of Volcano
	CronJob   string    `json:"cronJob"`
	Due       time.Time `json:"due"` // in the zone of the schedule
	UTC       time.Time `json:"utc"`
	Start     time.Time `json:"start"` // Due, moved within the spread window
	Notes     []string  `json:"notes,omitempty"`
}

func (d Due) name() string {
	if d.Kind == "" {
		return d.CronJob
	}
	return d.Kind + "/" + d.CronJob
}

// Run lists the due times.
func Run(ctx context.Context, o *Options) error {
	crons, err := o.find(ctx)
	if err != nil {
		return err
	}
	f := o.Factory
	if len(crons) == 0 {
		f.Printf("No cronjobs.\n")
		return nil
	}
	var all []Due
	for i := range crons {
		c := crons[i]
		due, problem := o.coming(c.CronJob)
		if problem != "" {
			f.Printf("%s/%s: %s\n", c.Namespace, c.Name, problem)
		}
		for i := range due {
			due[i].Kind = c.kind
		}
		all = append(all, due...)
	}
	slices.SortStableFunc(all, func(a, b Due) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.CronJob, b.CronJob))
	})
	all = all[:min(len(all), o.Count)]
	if o.Output != "" {
		return printer.Records(f.Streams.Out, o.Output, all, func(d Due) string { return d.UTC.Format(time.RFC3339) })
	}
	headers := []string{"CRONJOB", "DUE", "UTC", "IN", "NOTE"}
	if o.AllNamespaces {
		headers = slices.Insert(headers, 0, "NAMESPACE")
	}
	table := printer.NewTable(f.Streams.Out, headers)
	now := f.Clock.Now()
	for _, d := range all {
		cells := []string{
			d.name(), d.Due.Format("Mon 2006-01-02 15:04:05 MST"), d.UTC.Format("2006-01-02 15:04:05"), in(d.Start.Sub(now)), strings.Join(d.Notes, "; "),
		}
		if o.AllNamespaces {
			cells = slices.Insert(cells, 0, d.Namespace)
		}
		table.Row(cells...)
	}
	return table.Flush()
}

func in(d time.Duration) string {
	if d < 0 {
		return "-" + duration.HumanDuration(-d)
	}
	return duration.HumanDuration(d)
}

// found is a CronJob of any kind.
type found struct {
	*cronjob.CronJob
	kind string // "" for batch/v1
}

func foundOf(kind *workload.Kind, o runtime.Object) found {
	f := found{CronJob: kind.Cron.Facts(o), kind: kind.Name}
	if kind.GroupVersionKind.Group == batchv1.GroupName {
		f.kind = ""
	}
	return f
}

func (o *Options) find(ctx context.Context) ([]found, error) {
	f := o.Factory
	client, err := f.Kubernetes()
	if err != nil {
		return nil, err
	}
	namespace := metav1.NamespaceAll
	if !o.AllNamespaces {
		if namespace, err = f.Namespace(); err != nil {
			return nil, err
		}
	}
	var crons []found
	for _, ref := range o.Refs {
		c, err := ref.Kind.Open(client, namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, pick.Explain(ctx, f, ref, "finding the due times of", err)
		}
		crons = append(crons, foundOf(ref.Kind, c))
	}
	if len(o.Refs) > 0 {
		return crons, nil
	}
	for _, kind := range workload.Kinds() {
		if kind.Cron == nil {
			continue
		}
		list, err := kind.Open(client, namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.Plural, err)
		}
		err = meta.EachListItem(list, func(c runtime.Object) error {
			crons = append(crons, foundOf(kind, c))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.Plural, err)
		}
	}
	return crons, nil
}

// coming returns the due times of one CronJob, o.Count at most, or why there are none.
func (o *Options) coming(facts *cronjob.CronJob) (due []Due, problem string) {
	rules := cronjob.Read(facts, time.LoadLocation, o.Factory.ControllerZone())
	s := rules.Schedule()
	if s == nil {
		return nil, fmt.Sprintf("the schedule %q cannot be read", facts.Spec.Schedule)
	}
	zone := s.Zone()
	at := workload.NextDue(facts, rules, o.From.Add(-rules.Offset()-1)) // what is due at From belongs to it
	if at.IsZero() {
		return nil, "it is never due"
	}
	before := o.From
	for ; len(due) < o.Count && !at.IsZero(); before, at = at, s.Next(at) {
		start := at.Add(rules.Offset())
		if !o.To.IsZero() && start.After(o.To) {
			break
		}
		local := at.In(zone)
		d := Due{Namespace: facts.Namespace, CronJob: facts.Name, Due: local, UTC: at.UTC(), Start: start.In(zone)}
		if lost := lostBetween(s, before, local); lost != "" {
			d.Notes = append(d.Notes, lost)
		}
		if note := clockChange(local); note != "" {
			d.Notes = append(d.Notes, note)
		}
		if facts.Spec.Suspend {
			d.Notes = append(d.Notes, "suspended")
		}
		if off := rules.Offset(); off > 0 {
			d.Notes = append(d.Notes, "starts "+off.String()+" later")
		}
		due = append(due, d)
	}
	return due, ""
}

// lostBetween says which due times a change of the clocks has removed between two that it has left, "" where none.
func lostBetween(s *schedule.Schedule, before, at time.Time) string {
	if _, change := before.In(at.Location()).ZoneBounds(); change.IsZero() || change.After(at) {
		return ""
	}
	for _, w := range s.Lint(before.In(at.Location()), at) {
		if w.Trap == schedule.TrapGap {
			return w.Text
		}
	}
	return ""
}

// clockChange says what the clocks of t's zone do on t's day, "" where they just run.
func clockChange(t time.Time) string {
	midnight := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location())
	_, change := midnight.Add(-time.Second).ZoneBounds() // a change may come at midnight itself
	if change.IsZero() || !change.Before(midnight.AddDate(0, 0, 1)) || change.In(t.Location()).Day() != t.Day() {
		return ""
	}
	_, before := change.Add(-time.Second).In(t.Location()).Zone()
	_, after := change.In(t.Location()).Zone()
	wall := change.UTC().Add(time.Duration(before) * time.Second).Format("15:04")
	switch shift := time.Duration(after-before) * time.Second; {
	case shift > 0:
		return fmt.Sprintf("clocks go forward %s at %s", shortSpan(shift), wall)
	case shift < 0:
		return fmt.Sprintf("clocks go back %s at %s", shortSpan(-shift), wall)
	}
	return ""
}

func shortSpan(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}
