// SPDX-License-Identifier: Apache-2.0

package next_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/next"
	"github.com/drover-dev/drover/internal/cronjob"
)

func world() []runtime.Object {
	return []runtime.Object{
		CronJob("backup", "30 2 * * *", InZone("Europe/Berlin")),
		CronJob("paused", "0 3 * * *", InZone("UTC"), func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) }),
		CronJob("spread", "0 3 * * *", InZone("UTC"), Annotated(cronjob.AnnotationSpread, "10m")),
		CronJob("chained", "@every 7h", LastScheduled(5*time.Hour)),
		CronJob("leap", "0 0 29 2 *", InZone("UTC")),
		CronJob("never", "0 0 31 2 *"),
		CronJob("odd", "* * * *"),
		CronJob("elsewhere", "@daily", InZone("America/New_York"), func(c *batchv1.CronJob) { c.Namespace = "team" }),
	}
}

func TestCommand(t *testing.T) {
	cases := map[string][]string{
		"all":              {"-c", "6"},
		"one":              {"cronjob/backup", "-c", "2"},
		"all-namespaces":   {"-A", "-c", "4"},
		"summer-time":      {"backup", "--from", "2000-03-25", "--to", "2000-03-28"},
		"winter-time":      {"backup", "--from", "2000-10-28", "--to", "2000-10-30"},
		"chained":          {"chained", "-c", "3"},
		"of-the-past":      {"chained", "-c", "2", "--from", "-5h"},
		"due-at-from":      {"backup", "--from", "2000-01-02T02:30:00+01:00", "-c", "1"},
		"json":             {"spread", "-c", "1", "-o", "json"},
		"names":            {"leap", "-c", "2", "-o", "name"},
		"mistyped":         {"bakup"},
		"to-before-from":   {"--from", "2h", "--to", "1h"},
		"a-time-like-none": {"--from", "tomorrow"},
		"too-many":         {"-c", "10001"},
		"name-and-all":     {"backup", "-A"},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New(world()...)
			bench.Target.Kubeconfig = "a cluster"
			bench.Clock = clocktesting.NewFakeClock(Epoch.Add(12*time.Hour + 30*time.Second))
			cmd := next.NewCommand(bench.Factory, next.Run)
			cmd.SetArgs(args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			Golden(t, name, bench.Transcript(cmd.ExecuteContext(t.Context())))
		})
	}
}

func TestWithoutCronJobs(t *testing.T) {
	bench := New()
	cmd := next.NewCommand(bench.Factory, next.Run)
	cmd.SetArgs([]string{})
	Golden(t, "none", bench.Transcript(cmd.ExecuteContext(t.Context())))
}
