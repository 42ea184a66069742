// SPDX-License-Identifier: Apache-2.0

package again_test

import (
	"context"
	"testing"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/cli/again"
	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
)

func TestCommands(t *testing.T) {
	type makeCommand func(*command.Factory, func(context.Context, *again.Options) error) *cobra.Command
	half := func(j *batchv1.Job) {
		j.Status.CompletedIndexes, j.Status.Succeeded = "0,2-3", 3
	}
	cases := map[string]struct {
		command makeCommand
		args    []string
		out     string
		err     string
		code    command.ExitCode
		made    string // the new Job and what its status and suspension have come to
	}{
		"retry": {
			again.NewRetry,
			[]string{"half", "--failed"},
			"job.batch/half-retry-1 created: index 1 of half\n", "", command.ExitOK, "half-retry-1 0,2,3 false",
		},
		"rerun, under a name that is free": {
			again.NewRerun,
			[]string{"job/done"},
			"job.batch/done-rerun-2 created: everything of done\n", "", command.ExitOK, "done-rerun-2  false",
		},
		"retry of a success": {
			again.NewRetry,
			[]string{"done", "--failed"},
			"", "Error: retrying job.batch/done in namespace \"default\": nothing of it has failed\nTry: drover rerun done   does all of it again\n", command.ExitFailed, "",
		},
		"retry of what goes on": {
			again.NewRetry,
			[]string{"running", "--failed"},
			"", "Error: retrying job.batch/running in namespace \"default\": it has not ended yet\nTry: drover wait running\n", command.ExitFailed, "",
		},
		"retry of everything": {
			again.NewRetry,
			[]string{"half"},
			"", "Error: retry needs --failed; to do all of the work again: drover rerun half\n", command.ExitUsage, "",
		},
		"a CronJob": {
			again.NewRerun,
			[]string{"cronjob/nightly"},
			"", "Error: rerun takes a Job: NAME or job/NAME; cronjob.batch/nightly is none\n", command.ExitUsage, "",
		},
		"no Job of that name": {
			again.NewRerun,
			[]string{"hal"},
			"", "Error: rerunning job.batch/hal in namespace \"default\": not found\nDid you mean half?\n", command.ExitDeleted, "",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New(
				Job("half", Indexed(), Wanting(4, 4), Failed(time.Minute), half), Job("done", Complete(time.Minute)),
				Job("done-rerun-1", Complete(time.Minute)), Job("running", Running(1, 0, 0)),
			)
			before := names(t, bench)
			cmd := c.command(bench.Factory, again.Run)
			cmd.SetArgs(c.args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			command.Print(bench.Factory, err)
			if code := command.CodeOf(err); code != c.code || bench.Out.String() != c.out || bench.Err.String() != c.err {
				t.Errorf("exit code %d, output\n%s%swant %d,\n%s%s", code, bench.Out.String(), bench.Err.String(), c.code, c.out, c.err)
			}
			made := ""
			for name, is := range names(t, bench) {
				if before[name] == "" {
					made = name + " " + is
				}
			}
			if made != c.made {
				t.Errorf("made %q, want %q", made, c.made)
			}
		})
	}
}

// names returns of each Job which indexes it has done and whether it is suspended.
func names(t *testing.T, b *Bench) map[string]string {
	t.Helper()
	client, err := b.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, j := range list.Items {
		suspended := "false"
		if s := j.Spec.Suspend; s != nil && *s {
			suspended = "true"
		}
		all[j.Name] = j.Status.CompletedIndexes + " " + suspended
	}
	return all
}
