// SPDX-License-Identifier: Apache-2.0

package delete_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	deletecmd "github.com/drover-dev/drover/internal/cli/delete"
)

// execute runs the command line to its end in the background.
func execute(ctx context.Context, b *Bench, args ...string) <-chan error {
	cmd := deletecmd.NewCommand(b.Factory, deletecmd.Run)
	cmd.SetArgs(append([]string{}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	return done
}

// deletions returns the options of all deletions sent.
func deletions(b *Bench) []metav1.DeleteOptions {
	var out []metav1.DeleteOptions
	for _, a := range b.Client.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			out = append(out, d.DeleteOptions)
		}
	}
	return out
}

func options(policy metav1.DeletionPropagation, uid types.UID) metav1.DeleteOptions {
	o := metav1.DeleteOptions{PropagationPolicy: &policy}
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	return o
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		args      []string
		out       string
		err       string
		code      command.ExitCode
		deletions []metav1.DeleteOptions
	}{
		"pods go in the background": {
			args: []string{"pi"}, out: "job.batch/pi deleted\n",
			deletions: []metav1.DeleteOptions{options(metav1.DeletePropagationBackground, "uid-pi")},
		},
		"or before": {
			args: []string{"pi", "--cascade=foreground"}, out: "job.batch/pi deleted\n",
			deletions: []metav1.DeleteOptions{options(metav1.DeletePropagationForeground, "uid-pi")},
		},
		"or stay": {
			args: []string{"pi", "--cascade", "orphan", "--wait=false"}, out: "job.batch/pi deleted\n",
			deletions: []metav1.DeleteOptions{options(metav1.DeletePropagationOrphan, "")},
		},
		"a mistyped name does not keep the others from being deleted": {
			args: []string{"po", "e"}, out: "job.batch/e deleted\n",
			err: "Error: deleting job.batch/po in namespace \"default\": not found\nDid you mean pi?\n", code: command.ExitDeleted,
			deletions: []metav1.DeleteOptions{options(metav1.DeletePropagationBackground, "uid-e")},
		},
		"what is not there may count as deleted": {
			args: []string{"nothing", "--ignore-not-found"}, out: "job.batch/nothing not found\n",
		},
		"all in order": {
			args: []string{"jobs", "--all", "--wait=false"}, out: "job.batch/e deleted\njob.batch/pi deleted\n",
			deletions: []metav1.DeleteOptions{options(metav1.DeletePropagationBackground, ""), options(metav1.DeletePropagationBackground, "")},
		},
		"nothing named": {
			err: "Error: which one? Give NAME or TYPE/NAME, --selector or --all\n", code: command.ExitUsage,
		},
		"an unknown cascade": {
			args: []string{"pi", "--cascade=sideways"},
			err:  "Error: --cascade \"sideways\": known are background, foreground and orphan\n", code: command.ExitUsage,
		},
		"a manifest and a name": {
			args: []string{"pi", "-f", "x.yaml"},
			err:  "Error: -f and -k name what to delete: leave out pi\n", code: command.ExitUsage,
		},
		"a manifest and all": {
			args: []string{"--all", "-f", "x.yaml"},
			err:  "Error: -f and -k name what to delete: leave out --all\n", code: command.ExitUsage,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bench := New(Job("pi"), Job("e"))
				// client-go's fake watches from now on, not from a version, so the object must vanish after the watch began.
				letGo := make(chan struct{})
				bench.Client.PrependReactor("delete", "jobs", func(a clienttesting.Action) (bool, runtime.Object, error) {
					d := a.(clienttesting.DeleteActionImpl)
					if d.DeleteOptions.Preconditions == nil {
						return false, nil, nil
					}
					go func() {
						<-letGo
						if err := bench.Client.Tracker().Delete(d.GetResource(), d.Namespace, d.Name); err != nil {
							t.Errorf("deleting %q: %v", d.Name, err)
						}
					}()
					return true, nil, nil
				})
				done := execute(t.Context(), bench, tc.args...)
				synctest.Wait()
				close(letGo)
				want := fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", tc.out, tc.err, tc.code)
				if diff := cmp.Diff(want, bench.Transcript(<-done)); diff != "" {
					t.Errorf("transcript (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.deletions, deletions(bench)); diff != "" {
					t.Errorf("deletions (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRunSaysWhatHoldsAnObjectThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bench := New(Job("pi", func(j *batchv1.Job) { j.Finalizers = []string{"foregroundDeletion"} }))
		bench.Client.PrependReactor("delete", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		want := "-- standard output --\n-- standard error --\n" +
			"Error: deleting job.batch/pi in namespace \"default\": still there after 5s, held by foregroundDeletion\n-- exit code 124 --\n"
		if diff := cmp.Diff(want, bench.Transcript(<-execute(t.Context(), bench, "pi", "--timeout=5s"))); diff != "" {
			t.Errorf("transcript (-want +got):\n%s", diff)
		}
	})
}

func TestRunDoesNotWaitForAnotherObjectOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bench := New(Job("pi"))
		bench.Client.PrependReactor("delete", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		done := execute(t.Context(), bench, "pi")
		synctest.Wait()
		another := Job("pi", func(j *batchv1.Job) { j.UID = "another" })
		if _, err := bench.Client.BatchV1().Jobs(Namespace).Update(t.Context(), another, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("replacing the job: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("deleting: %v", err)
		}
	})
}

func TestRunIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bench := New(Job("pi"))
		bench.Client.PrependReactor("delete", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		ctx, interrupt := context.WithTimeout(t.Context(), time.Hour)
		done := execute(ctx, bench, "pi")
		synctest.Wait()
		interrupt()
		if err := <-done; command.CodeOf(err) != command.ExitInterrupted {
			t.Errorf("error %v, exit code %d, want %d", err, command.CodeOf(err), command.ExitInterrupted)
		}
	})
}
