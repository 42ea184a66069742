// SPDX-License-Identifier: Apache-2.0

package cron_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	clocktesting "k8s.io/utils/clock/testing"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/cron"
)

func TestLint(t *testing.T) {
	cases := map[string][]string{
		"plain":         {"17 4 * * 1-5"},
		"gap":           {"30 2 * * *", "--tz", "Europe/Berlin"},
		"gap-once":      {"30 2 * * *", "--tz", "Europe/Berlin", "--dst", "once"},
		"day-or-day":    {"0 0 */2 * 1"},
		"never":         {"59 23 31 2 *"},
		"every":         {"@every 10s"},
		"strict":        {"0 * * * *", "--strict"},
		"unquoted":      {"5", "4", "1", "1", "0"},
		"unreadable":    {"* * * * 7"},
		"unknown-zone":  {"* * * * *", "--tz", "Europe/Atlantis"},
		"unknown-rule":  {"* * * * *", "--dst", "twice"},
		"no-expression": {},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New()
			bench.Clock = clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
			cmd := cron.NewCommand(bench.Factory, cron.RunLint)
			cmd.SetArgs(append([]string{"lint"}, args...))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			Golden(t, name, bench.Transcript(cmd.ExecuteContext(t.Context())))
		})
	}
}
