// SPDX-License-Identifier: Apache-2.0

package trigger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/trigger"
)

func TestCommand(t *testing.T) {
	busy := func(name string, policy batchv1.ConcurrencyPolicy) []runtime.Object {
		c := CronJob(name, "0 * * * *", InZone("UTC"), LastScheduled(time.Hour), func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = policy })
		j := DueAt(c, time.Hour, Running(1, 0, 0))
		c.Status.Active = []corev1.ObjectReference{{Namespace: Namespace, Name: j.Name, UID: j.UID}}
		return []runtime.Object{c, j}
	}
	cases := map[string]struct {
		world []runtime.Object
		args  []string
		out   string
		err   string
		code  string
		jobs  string
		note  string // the annotation that makes concurrency policies regard the Job
	}{
		"a Job is started beside others": {
			busy("c", batchv1.ForbidConcurrent),
			[]string{"c"},
			"job.batch/c-NEW\n", "", "0", "c-15778140 c-NEW ", "",
		},
		"under Forbid it is refused if that is asked for": {
			busy("c", batchv1.ForbidConcurrent),
			[]string{"cronjob/c", "--respect-concurrency"},
			"", "Error: triggering default/c: the concurrency policy lets no other Job start now: c-15778140 is active and the policy is Forbid\n" +
				"Try: drover trigger c   without --respect-concurrency, to start it beside the other\n", "1", "c-15778140 ", "",
		},
		"under Replace it takes the other's place": {
			busy("c", batchv1.ReplaceConcurrent),
			[]string{"c", "--respect-concurrency"},
			"job.batch/c-NEW\n", "job.batch/c-15778140 deleted, to be replaced\n", "0", "c-NEW ", "true",
		},
		"a suspended CronJob can be started by hand": {
			[]runtime.Object{CronJob("c", "0 * * * *", InZone("UTC"), func(c *batchv1.CronJob) { c.Spec.Suspend = new(bool); *c.Spec.Suspend = true })},
			[]string{"c", "--respect-concurrency"},
			"job.batch/c-NEW\n", "", "0", "c-NEW ", "true",
		},
		"a mistyped name": {
			busy("backup", batchv1.AllowConcurrent),
			[]string{"bakup"},
			"", "Error: triggering cronjob.batch/bakup in namespace \"default\": not found\nDid you mean backup?\n", "3", "backup-15778140 ", "",
		},
		"nobody": {nil, nil, "", "Error: trigger takes one CronJob, but there are 0\n", "64", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New(tc.world...)
			bench.Target.Kubeconfig = "a cluster"
			bench.Clock = clocktesting.NewFakeClock(Epoch.Add(90 * time.Minute))
			cmd := trigger.NewCommand(bench.Factory, trigger.Run)
			cmd.SetArgs(append([]string{}, tc.args...))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			got := bench.Transcript(cmd.ExecuteContext(t.Context()))
			jobs, err := bench.Client.BatchV1().Jobs(Namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing: %v", err)
			}
			names, note := "", ""
			for _, j := range jobs.Items {
				shown := j.Name
				if j.Annotations["cronjob.kubernetes.io/instantiate"] == "manual" {
					shown = strings.SplitAfter(j.Name, "-m")[0]
					got = strings.ReplaceAll(got, j.Name, "c-NEW")
					shown = strings.ReplaceAll(shown, "-m", "-NEW")
					note = j.Annotations["drover.dev/respect-concurrency"]
				}
				names += shown + " "
			}
			want := "-- standard output --\n" + tc.out + "-- standard error --\n" + tc.err + "-- exit code " + tc.code + " --\n"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.jobs, names); diff != "" {
				t.Errorf("Jobs (-want +got):\n%s", diff)
			}
			if note != tc.note {
				t.Errorf("note %q, want %q", note, tc.note)
			}
		})
	}
}
