// SPDX-License-Identifier: Apache-2.0

// Package history is the command that tells what became of every due time of a CronJob. Start reading at Run.
package history

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/printer"
	"github.com/drover-dev/drover/internal/cli/workload"
	"github.com/drover-dev/drover/internal/cronjob"
)

// Options is what the command line asks for.
type Options struct {
	Factory *command.Factory
	Ref     workload.Ref
	Last    int  // so many entries; 0: all
	UTC     bool // instead of the schedule's zone
	Output  string
}

// NewCommand returns the history command, which calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "history CRONJOB",
		Short: "Tell what became of every due time of a CronJob",
		Long: `Tell what became of the due times of a CronJob, the oldest first: started, skipped, missed, failed to create or replaced, and why.
The last 50 entries are kept. Due times in a row that fared alike share an entry, with their number in brackets.

LATENESS is from when the start was wanted to the creation of the Job. DURATION is that of the Job.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitDeleted, command.ExitUsage, command.ExitUnreachable),
		Example: `  # Did the backup run last night?
  drover history backup --last 5`,
		ValidArgsFunction: pick.CompleteKind(f, "cronjob"),
		Args:              func(_ *cobra.Command, args []string) error { return o.parse(args) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().IntVar(&o.Last, "last", 0, "only so many entries, the newest (default: all)")
	cmd.Flags().BoolVar(&o.UTC, "utc", false, "tell due times in UTC instead of the schedule's zone")
	printer.AddRecordFlag(cmd, &o.Output)
	return cmd
}

func (o *Options) parse(args []string) error {
	if len(args) != 1 {
		return command.Usagef("history takes one CronJob, but there are %d", len(args))
	}
	var err error
	if o.Ref, err = workload.CronJobName(args[0]); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	if o.Last < 0 {
		return command.Usagef("--last %d: it cannot be negative", o.Last)
	}
	if err := printer.CheckRecord(o.Output); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	return nil
}

// Entry is one line of the history.
type Entry struct {
	Due      time.Time `json:"due"`
	Through  time.Time `json:"through"` // the last of Count due times
	Count    int       `json:"count"`
	Outcome  string    `json:"outcome"`
	Job      string    `json:"job,omitempty"`
	Result   string    `json:"result,omitempty"` // of the Job
	Lateness string    `json:"lateness,omitempty"`
	Duration string    `json:"duration,omitempty"`
	Why      string    `json:"why,omitempty"`
}

// Run tells the history.
func Run(ctx context.Context, o *Options) error {
	f := o.Factory
	client, err := f.Kubernetes()
	if err != nil {
		return err
	}
	namespace, err := f.Namespace()
	if err != nil {
		return err
	}
	observed, _, err := workload.Observe(ctx, client, namespace, o.Ref, f.Clock.Now().In(f.ControllerZone()))
	if err != nil {
		return pick.Explain(ctx, f, o.Ref, "telling the history of", err)
	}
	ticks := cronjob.History(observed)
	if o.Last > 0 {
		ticks = ticks[max(0, len(ticks)-o.Last):]
	}
	zone := time.UTC
	if s := observed.Rules.Schedule(); s != nil && s.Zone() != nil && !o.UTC {
		zone = s.Zone()
	}
	entries := make([]Entry, len(ticks))
	for i, t := range ticks {
		entries[i] = entry(observed.CronJob.Name, t, zone)
	}
	if o.Output != "" {
		return printer.Records(f.Streams.Out, o.Output, entries, func(e Entry) string { return e.Due.UTC().Format(time.RFC3339) })
	}
	if len(entries) == 0 {
		f.Printf("%s has not been due yet.\n", o.Ref)
		return nil
	}
	table := printer.NewTable(f.Streams.Out, []string{"DUE", "OUTCOME", "JOB", "LATENESS", "DURATION", "WHY"})
	for _, e := range entries {
		table.Row(dueCell(e), e.Outcome, e.Job, e.Lateness, e.Duration, e.Why)
	}
	return table.Flush()
}

func entry(name string, t cronjob.Tick, zone *time.Location) Entry {
	e := Entry{
		Due: t.Due.In(zone), Through: t.Through.In(zone), Count: t.Count, Outcome: t.String(), Job: t.Job(name), Why: t.Why(),
	}
	if t.Outcome != cronjob.Started {
		return e
	}
	e.Result = string(t.Result)
	if t.Late >= 0 {
		e.Lateness = t.Late.Round(time.Millisecond).String()
	}
	if t.Result != cronjob.Running {
		e.Duration = t.Took.String()
	}
	return e
}

const dueLayout = "2006-01-02 15:04:05 MST"

func dueCell(e Entry) string {
	if e.Count == 1 {
		return e.Due.Format(dueLayout)
	}
	return fmt.Sprintf("%s … %s (%d)", e.Due.Format(dueLayout), e.Through.Format(dueLayout), e.Count)
}
