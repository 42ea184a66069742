// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/history"
	"github.com/drover-dev/drover/internal/cronjob"
)

func world() []runtime.Object {
	at := func(d time.Duration) time.Time { return Epoch.Add(d) }
	hourly := CronJob("hourly", "0 * * * *", InZone("Europe/Berlin"), LastScheduled(9*time.Hour), Ledger(
		cronjob.Tick{Due: at(time.Hour), Outcome: cronjob.Started, Late: 12 * time.Millisecond, Result: cronjob.Complete, Took: 63 * time.Second},
		cronjob.Tick{Due: at(2 * time.Hour), Outcome: cronjob.SkippedActive, Detail: "hourly-1"},
		cronjob.Tick{Due: at(3 * time.Hour), Through: at(5 * time.Hour), Count: 3, Outcome: cronjob.MissedAway},
		cronjob.Tick{Due: at(6 * time.Hour), Outcome: cronjob.Started, Late: 20 * time.Minute, Result: cronjob.Failed, Took: time.Second},
		cronjob.Tick{Due: at(7 * time.Hour), Outcome: cronjob.FailedStart, Detail: "exceeded quota"},
		cronjob.Tick{Due: at(8 * time.Hour), Outcome: cronjob.Started, Result: cronjob.Replaced, Took: time.Hour},
		cronjob.Tick{Due: at(9 * time.Hour), Outcome: cronjob.Started, Late: 3 * time.Millisecond},
	))
	return []runtime.Object{
		hourly,
		DueAt(hourly, 9*time.Hour, Running(1, 0, 0)),
		CronJob("new", "@yearly", InZone("UTC")),
		CronJob("paused", "* * * * *", InZone("UTC"), func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) }),
	}
}

func TestCommand(t *testing.T) {
	cases := map[string][]string{
		"table":       {"hourly"},
		"typed":       {"cronjob/hourly", "--last", "1"},
		"utc":         {"cj/hourly", "--utc", "--last", "2"},
		"yaml":        {"hourly", "--last", "2", "-o", "yaml"},
		"not-due":     {"new"},
		"mistyped":    {"hourli"},
		"a-job":       {"job/hourly"},
		"two":         {"a", "b"},
		"odd-output":  {"hourly", "-o", "xml"},
		"count-below": {"hourly", "--last", "-1"},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New(world()...)
			bench.Target.Kubeconfig = "a cluster"
			bench.Clock = clocktesting.NewFakeClock(Epoch.Add(9*time.Hour + 30*time.Minute))
			cmd := history.NewCommand(bench.Factory, history.Run)
			cmd.SetArgs(args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			Golden(t, name, bench.Transcript(cmd.ExecuteContext(t.Context())))
		})
	}
}
