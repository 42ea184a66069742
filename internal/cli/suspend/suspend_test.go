// SPDX-License-Identifier: Apache-2.0

package suspend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/suspend"
)

func TestCommands(t *testing.T) {
	type makeCommand func(*command.Factory, func(context.Context, *suspend.Options) error) *cobra.Command
	cases := map[string]struct {
		command makeCommand
		args    []string
		out     string
		err     string
		code    command.ExitCode
		after   string // name and suspend of each Job
		writes  int
	}{
		"suspend": {
			suspend.NewCommand,
			[]string{"running", "job/pending"},
			"job.batch/running suspended\njob.batch/pending suspended\n", "", command.ExitOK,
			"done:false pending:true running:true stopped:true ", 2,
		},
		"resume": {
			suspend.NewResumeCommand,
			[]string{"stopped"},
			"job.batch/stopped resumed\n", "", command.ExitOK,
			"done:false pending:false running:false stopped:false ", 1,
		},
		"what is suspended already stays so without a write": {
			suspend.NewCommand,
			[]string{"stopped"},
			"job.batch/stopped already suspended\n", "", command.ExitOK,
			"done:false pending:false running:false stopped:true ", 0,
		},
		"what is not suspended need not be resumed": {
			suspend.NewResumeCommand,
			[]string{"running"},
			"job.batch/running not suspended\n", "", command.ExitOK,
			"done:false pending:false running:false stopped:true ", 0,
		},
		"what has ended cannot be suspended": {
			suspend.NewCommand,
			[]string{"done"},
			"", "Error: suspending job.batch/done in namespace \"default\": it has already ended (Complete)\n", command.ExitFailed,
			"done:false pending:false running:false stopped:true ", 0,
		},
		"a mistyped name does not keep the others from being suspended": {
			suspend.NewCommand,
			[]string{"runing", "pending"},
			"job.batch/pending suspended\n", "Error: suspending job.batch/runing in namespace \"default\": not found\nDid you mean running?\n", command.ExitDeleted,
			"done:false pending:true running:false stopped:true ", 1,
		},
		"labels choose": {
			suspend.NewCommand,
			[]string{"-l", "x=none"},
			"", "Nothing matches in namespace \"default\".\n", command.ExitOK,
			"done:false pending:false running:false stopped:true ", 0,
		},
		"all": {
			suspend.NewResumeCommand,
			[]string{"--all"},
			"job.batch/pending not suspended\njob.batch/running not suspended\njob.batch/stopped resumed\n",
			"Error: resuming job.batch/done in namespace \"default\": it has already ended (Complete)\n", command.ExitFailed,
			"done:false pending:false running:false stopped:false ", 1,
		},
		"nobody": {
			suspend.NewCommand, nil,
			"", "Error: which one? Give NAME or TYPE/NAME, --selector or --all\n", command.ExitUsage,
			"done:false pending:false running:false stopped:true ", 0,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New(Job("running", Running(1, 0, 0)), Job("pending"), Job("stopped", Suspended()), Job("done", Complete(time.Second)))
			cmd := tc.command(bench.Factory, suspend.Run)
			cmd.SetArgs(append([]string{}, tc.args...))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			got := bench.Transcript(cmd.ExecuteContext(t.Context()))
			want := fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", tc.out, tc.err, tc.code)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
			writes := 0
			for _, a := range bench.Client.Actions() {
				if a.GetVerb() == "patch" {
					writes++
				}
			}
			if writes != tc.writes {
				t.Errorf("%d writes, want %d", writes, tc.writes)
			}
			jobs, err := bench.Client.BatchV1().Jobs(Namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing: %v", err)
			}
			after := ""
			for _, j := range jobs.Items {
				after += fmt.Sprintf("%s:%t ", j.Name, j.Spec.Suspend != nil && *j.Spec.Suspend)
			}
			if diff := cmp.Diff(tc.after, after); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
		})
	}
}
