// SPDX-License-Identifier: Apache-2.0

// Package cron is the command with what there is to say about schedules without a cluster. Start reading at RunLint.
package cron

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/schedule"
)

// LintOptions is what the command line asks for.
type LintOptions struct {
	Factory *command.Factory
	Expr    string
	Zone    string // "": UTC
	DST     schedule.DST
	Strict  bool // warnings are failures
}

// NewCommand returns the cron command, whose lint calls run with its options.
func NewCommand(f *command.Factory, run func(context.Context, *LintOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cron",
		Short: "Look at cron expressions",
		Long: `Look at cron expressions, those of spec.schedule of a CronJob. It needs no cluster.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitUsage),
		Example: `  drover cron lint '30 2 * * *' --tz Europe/Berlin`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLint(f, run))
	return cmd
}

// dstRules are the values of --dst, those of the annotation drover.dev/dst.
var dstRules = map[string]schedule.DST{
	"upstream": schedule.Upstream, "once": schedule.Once, "skip": schedule.Skip, "both": schedule.Both,
}

func newLint(f *command.Factory, run func(context.Context, *LintOptions) error) *cobra.Command {
	o := &LintOptions{Factory: f}
	dst := "upstream"
	cmd := &cobra.Command{
		Use:   "lint EXPR",
		Short: "Say what a cron expression means, and which traps it holds",
		Long: `Say in words when a cron expression is due, warn of traps in it, and list its next due times. It needs no cluster.

Traps are, among others, that a day of the month and a day of the week are both given and either is enough, local times that a change
of the clocks removes or repeats within the next two years, days that no calendar has, and times at the full hour, when most of the
world is due.

` + command.ExitCodesHelp(command.ExitOK, command.ExitFailed, command.ExitUsage),
		Example: `  drover cron lint '30 2 * * *' --tz Europe/Berlin
  drover cron lint '0 0 */2 * 1'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("which expression? Give it in quotes, like '30 2 * * *'")
			}
			o.Expr = strings.Join(args, " ") // unquoted, and no shell has found a file for its stars
			var known bool
			if o.DST, known = dstRules[dst]; !known {
				return command.Usagef("--dst %q: known are upstream, once, skip and both", dst)
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.Zone, "tz", "", "time zone, as in spec.timeZone (default: UTC)")
	cmd.Flags().StringVar(&dst, "dst", dst, "rule for changes of the clocks, as in the annotation drover.dev/dst: upstream, once, skip or both")
	cmd.Flags().BoolVar(&o.Strict, "strict", false, "exit with 1 if there is a warning")
	return cmd
}

// lintYears is how far ahead changes of the clocks are looked at.
const lintYears = 2

// lintNext is how many due times are listed.
const lintNext = 5

// RunLint says what there is to say.
func RunLint(_ context.Context, o *LintOptions) error {
	f := o.Factory
	zone := time.UTC
	if o.Zone != "" {
		var err error
		if zone, err = time.LoadLocation(o.Zone); err != nil || strings.EqualFold(o.Zone, "local") {
			return &command.Error{Doing: "reading --tz " + o.Zone, Err: fmt.Errorf("there is no such time zone"), Try: []string{"a name like Europe/Berlin or UTC"}}
		}
	}
	s, err := schedule.Parse(o.Expr, time.LoadLocation)
	if err != nil {
		return &command.Error{Doing: fmt.Sprintf("reading the expression %q", o.Expr), Err: err, Try: []string{
			"five fields, like '30 2 * * 1-5': minute, hour, day of the month, month, day of the week (0 is Sunday); or @daily, @every 90m",
		}}
	}
	s = s.In(zone).WithDST(o.DST)
	now := f.Clock.Now().In(zone)
	out := f.Streams.Out
	fmt.Fprintf(out, "%s\n    due %s\n", s, s.Describe())
	warnings := s.Lint(now, now.AddDate(lintYears, 0, 0))
	for _, w := range warnings {
		fmt.Fprintf(out, "Warning (%s): %s\n", w.Trap, w.Text)
	}
	fmt.Fprintln(out, "Next:")
	at := s.Next(now)
	if at.IsZero() {
		fmt.Fprintln(out, "    never")
	}
	for n := 0; n < lintNext && !at.IsZero(); n++ {
		fmt.Fprintf(out, "    %s   %s UTC\n", at.In(zone).Format("Mon 2006-01-02 15:04:05 MST"), at.UTC().Format("2006-01-02 15:04:05"))
		at = s.Next(at)
	}
	if o.Strict && len(warnings) > 0 {
		return command.ExitWith(command.ExitFailed)
	}
	return nil
}
