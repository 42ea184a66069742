// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/wait"
	"github.com/drover-dev/drover/internal/cli/workload"
)

func TestFlags(t *testing.T) {
	cases := map[string]struct {
		args []string
		want wait.Options
		err  string
	}{
		"a name":              {args: []string{"pi"}, want: wait.Options{Pick: pick.Pick{Refs: refs("pi")}}},
		"names and a timeout": {args: []string{"job/a", "b", "--timeout", "90s"}, want: wait.Options{Pick: pick.Pick{Refs: refs("a", "b")}, Timeout: 90 * time.Second}},
		"labels":              {args: []string{"-l", "x=y"}, want: wait.Options{Pick: pick.Pick{Kinds: []*workload.Kind{workload.Lookup("job"), workload.Lookup("vcjob"), workload.Lookup("jobflow")}, Selector: "x=y"}}},
		"a CronJob":           {args: []string{"cronjob/backup"}, err: "cronjob.batch/backup never ends: wait for one of its Jobs, which drover history cronjob/backup lists"},
		"CronJobs":            {args: []string{"cronjobs", "--all"}, err: "cronjobs never end: wait for Jobs"},
		"nothing":             {err: "which one? Give NAME or TYPE/NAME, --selector or --all"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got *wait.Options
			cmd := wait.NewCommand(New().Factory, func(_ context.Context, o *wait.Options) error {
				got = o
				return nil
			})
			cmd.SetArgs(append([]string{}, tc.args...))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.Execute()
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("executing: %v", err)
			}
			if diff := cmp.Diff(&tc.want, got, cmpopts.IgnoreFields(wait.Options{}, "Factory"), sameKinds); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

var sameKinds = cmp.Comparer(func(a, b *workload.Kind) bool { return a.Name == b.Name })

func refs(names ...string) []workload.Ref {
	out, err := workload.ParseRefs(names)
	if err != nil {
		panic(err)
	}
	return out
}

// scene is something that happens while a command waits.
type scene func(t *testing.T, b *Bench)

func after(d time.Duration) scene {
	return func(*testing.T, *Bench) { time.Sleep(d) }
}

func becomes(job *batchv1.Job) scene {
	return func(t *testing.T, b *Bench) {
		if _, err := b.Client.BatchV1().Jobs(Namespace).Update(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Errorf("updating job %q: %v", job.Name, err)
		}
	}
}

func vanishes(name string) scene {
	return func(t *testing.T, b *Bench) {
		if err := b.Client.BatchV1().Jobs(Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting job %q: %v", name, err)
		}
	}
}

func appears(job *batchv1.Job) scene {
	return func(t *testing.T, b *Bench) {
		if _, err := b.Client.BatchV1().Jobs(Namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Errorf("creating job %q: %v", job.Name, err)
		}
	}
}

func TestRun(t *testing.T) {
	const limit = "Job has reached the specified backoff limit"
	stuck := Pod(Job("pi"), "pi-1", func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available",
		}}
	})
	cases := map[string]struct {
		world   []runtime.Object
		targets []string
		all     bool
		timeout time.Duration
		scenes  []scene
		out     string
		err     string
		code    command.ExitCode
	}{
		"a Job that has completed long ago": {
			world: []runtime.Object{Job("pi", Complete(time.Minute))}, targets: []string{"pi"},
			out: "job.batch/pi Complete\n", code: command.ExitOK,
		},
		"a Job that completes": {
			world: []runtime.Object{Job("pi")}, targets: []string{"pi"},
			scenes: []scene{becomes(Job("pi", Running(1, 0, 0))), becomes(Job("pi", Complete(time.Second)))},
			out:    "job.batch/pi Complete\n", code: command.ExitOK,
		},
		"a Job that fails, with the reason and where to look": {
			world: []runtime.Object{Job("pi")}, targets: []string{"job/pi"},
			scenes: []scene{becomes(Job("pi", Failed(time.Second)))},
			out:    "job.batch/pi Failed: BackoffLimitExceeded\n",
			err:    "job.batch/pi: " + limit + "\nTry: drover logs pi --failed\n", code: command.ExitFailed,
		},
		"a Job that is suspended": {
			world: []runtime.Object{Job("pi", Suspended())}, targets: []string{"pi"},
			out: "job.batch/pi Suspended\n", code: command.ExitStopped,
		},
		"a Job that gets suspended": {
			world: []runtime.Object{Job("pi")}, targets: []string{"pi"},
			scenes: []scene{becomes(Job("pi", Suspended()))},
			out:    "job.batch/pi Suspended\n", code: command.ExitStopped,
		},
		"a Job that is deleted": {
			world: []runtime.Object{Job("pi")}, targets: []string{"pi"},
			scenes: []scene{vanishes("pi")},
			out:    "job.batch/pi Deleted\n", code: command.ExitDeleted,
		},
		"a Job that is deleted and created again is another one": {
			world: []runtime.Object{Job("pi")}, targets: []string{"pi"},
			scenes: []scene{vanishes("pi"), appears(Job("pi", Complete(time.Second)))},
			out:    "job.batch/pi Deleted\n", code: command.ExitDeleted,
		},
		"a Job that was never there": {
			world: []runtime.Object{Job("pi")}, targets: []string{"pj"},
			err:  "Error: waiting for job.batch/pj in namespace \"default\": not found\nDid you mean pi?\n",
			code: command.ExitDeleted,
		},
		"a Job that takes too long": {
			world: []runtime.Object{Job("pi", Wanting(5, 1), Running(1, 3, 0))}, targets: []string{"pi"}, timeout: time.Second,
			scenes: []scene{after(time.Second)},
			err:    "Error: waiting for job.batch/pi (Running, 3/5 done): not ended after 1s\n", code: command.ExitTimeout,
		},
		"several Jobs are told as they end, and the worst makes the exit code": {
			world: []runtime.Object{Job("a"), Job("b"), Job("c"), Job("d", Suspended())}, targets: []string{"a", "b", "c", "d"},
			scenes: []scene{
				becomes(Job("c", Complete(time.Second))), after(time.Second),
				vanishes("b"), after(time.Second), becomes(Job("a", Failed(time.Second))),
			},
			out:  "job.batch/d Suspended\njob.batch/c Complete\njob.batch/b Deleted\njob.batch/a Failed: BackoffLimitExceeded\n",
			err:  "waiting for job.batch/a (Pending, 0/1 done), 2s so far\njob.batch/a: " + limit + "\nTry: drover logs a --failed\n",
			code: command.ExitFailed,
		},
		"one of several that is not there does not keep the others from being awaited": {
			world: []runtime.Object{Job("a")}, targets: []string{"a", "z"},
			scenes: []scene{becomes(Job("a", Complete(time.Second)))},
			out:    "job.batch/a Complete\n",
			err:    "Error: waiting for job.batch/z in namespace \"default\": not found\nTry: drover ls jobs\n", code: command.ExitDeleted,
		},
		"all that there are": {
			world: []runtime.Object{Job("a", Complete(time.Second)), Job("b")}, all: true,
			scenes: []scene{becomes(Job("b", Complete(time.Second)))},
			out:    "job.batch/a Complete\njob.batch/b Complete\n", code: command.ExitOK,
		},
		"all, but there are none": {
			all: true,
			err: "Error: waiting in namespace \"default\": nothing matches\n", code: command.ExitDeleted,
		},
		"progress is told after two seconds, when it changes, and every half minute": {
			world: []runtime.Object{Job("pi", Wanting(2, 1), Running(1, 0, 0))}, targets: []string{"pi"},
			scenes: []scene{
				after(3 * time.Second), becomes(Job("pi", Wanting(2, 1), Running(1, 1, 0))), after(37 * time.Second),
				becomes(Job("pi", Wanting(2, 1), Complete(time.Minute))),
			},
			out: "job.batch/pi Complete\n",
			err: "waiting for job.batch/pi (Running, 0/2 done), 2s so far\n" +
				"waiting for job.batch/pi (Running, 1/2 done), 4s so far\n" +
				"waiting for job.batch/pi (Running, 1/2 done), 34s so far\n", code: command.ExitOK,
		},
		"progress tells why a pod does not start": {
			world: []runtime.Object{Job("pi", Running(1, 0, 0)), stuck}, targets: []string{"pi"},
			scenes: []scene{after(3 * time.Second), becomes(Job("pi", Complete(time.Minute)))},
			out:    "job.batch/pi Complete\n",
			err:    "waiting for job.batch/pi (Running, 0/1 done) (pod pi-1: Unschedulable: 0/1 nodes are available), 2s so far\n",
			code:   command.ExitOK,
		},
		"progress on many names only some": {
			world: []runtime.Object{Job("a"), Job("b"), Job("c"), Job("d"), Job("e"), Job("f")}, all: true, timeout: 3 * time.Second,
			scenes: []scene{after(3 * time.Second)},
			err: "waiting for job.batch/a (Pending, 0/1 done), job.batch/b (Pending, 0/1 done), job.batch/c (Pending, 0/1 done), job.batch/d (Pending, 0/1 done) and 2 more, 2s so far\n" +
				"Error: waiting for job.batch/a (Pending, 0/1 done), job.batch/b (Pending, 0/1 done), job.batch/c (Pending, 0/1 done), job.batch/d (Pending, 0/1 done) and 2 more: not ended after 3s\n",
			code: command.ExitTimeout,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bench := New(tc.world...)
				o := &wait.Options{Factory: bench.Factory, Timeout: tc.timeout, Pick: pick.Pick{All: tc.all}}
				if err := o.Pick.Parse(tc.targets); err != nil {
					t.Fatalf("parsing: %v", err)
				}
				done := make(chan error)
				go func() { done <- wait.Run(t.Context(), o) }()
				for _, happen := range tc.scenes {
					synctest.Wait()
					happen(t, bench)
				}
				want := fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", tc.out, tc.err, tc.code)
				if diff := cmp.Diff(want, bench.Transcript(<-done)); diff != "" {
					t.Errorf("transcript (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRunIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bench := New(Job("pi"))
		ctx, interrupt := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- wait.Run(ctx, &wait.Options{Factory: bench.Factory, Pick: pick.Pick{Refs: refs("pi")}})
		}()
		synctest.Wait()
		interrupt()
		if err := <-done; command.CodeOf(err) != command.ExitInterrupted {
			t.Errorf("error %v, exit code %d, want %d", err, command.CodeOf(err), command.ExitInterrupted)
		}
	})
}

// TestRunSurvivesABrokenConnection is about what the user sees; the feed's own tests say how it goes on.
func TestRunSurvivesABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bench := New(Job("pi"))
		watches := 0
		var current *watch.FakeWatcher
		bench.Client.PrependWatchReactor("jobs", func(clienttesting.Action) (bool, watch.Interface, error) {
			watches++
			if watches == 2 || watches == 3 {
				return true, nil, errors.New("connection refused")
			}
			current = watch.NewFake()
			return true, current, nil
		})
		done := make(chan error)
		go func() {
			done <- wait.Run(t.Context(), &wait.Options{Factory: bench.Factory, Pick: pick.Pick{Refs: refs("pi")}})
		}()
		synctest.Wait()
		current.Stop()
		time.Sleep(time.Second)
		synctest.Wait()
		current.Modify(Job("pi", Complete(time.Second)))
		want := "-- standard output --\njob.batch/pi Complete\n-- standard error --\n" +
			"Lost the server, trying again: connection refused\n-- exit code 0 --\n"
		if diff := cmp.Diff(want, bench.Transcript(<-done)); diff != "" {
			t.Errorf("transcript (-want +got):\n%s", diff)
		}
	})
}

func TestRunNoticesADeletionThatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bench := New(Job("pi"))
		var current *watch.FakeWatcher
		bench.Client.PrependWatchReactor("jobs", func(clienttesting.Action) (bool, watch.Interface, error) {
			current = watch.NewFake()
			return true, current, nil
		})
		done := make(chan error)
		go func() {
			done <- wait.Run(t.Context(), &wait.Options{Factory: bench.Factory, Pick: pick.Pick{Refs: refs("pi")}})
		}()
		synctest.Wait()
		vanishes("pi")(t, bench) // unseen: the watch below tells nothing of it
		expired := apierrors.NewResourceExpired("too old").Status()
		current.Error(&expired)
		if err := <-done; command.CodeOf(err) != command.ExitDeleted {
			t.Errorf("error %v, exit code %d, want %d", err, command.CodeOf(err), command.ExitDeleted)
		}
	})
}

func TestWorse(t *testing.T) {
	order := []command.ExitCode{command.ExitOK, command.ExitStopped, command.ExitDeleted, command.ExitFailed, command.ExitTimeout}
	for i, a := range order {
		for j, b := range order {
			want := order[max(i, j)]
			if got := wait.Worse(a, b); got != want {
				t.Errorf("Worse(%d, %d) = %d, want %d", a, b, got, want)
			}
		}
	}
}
