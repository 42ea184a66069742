// SPDX-License-Identifier: Apache-2.0

package ls_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/ls"
	"github.com/drover-dev/drover/internal/cronjob"
)

// parse returns the options that a command line gives.
func parse(b *Bench, args ...string) (*ls.Options, error) {
	var got *ls.Options
	cmd := ls.NewCommand(b.Factory, func(_ context.Context, o *ls.Options) error {
		got = o
		return nil
	})
	cmd.SetArgs(append([]string{}, args...))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors = true
	err := cmd.Execute()
	return got, err
}

func world() []runtime.Object {
	created := func(d time.Duration) JobOption {
		return func(j *batchv1.Job) { j.CreationTimestamp = metav1.NewTime(Epoch.Add(d)) }
	}
	return []runtime.Object{
		Job("render", Wanting(20, 5), Indexed(), Running(5, 3, 1), func(j *batchv1.Job) { j.Labels = map[string]string{"batch": "nightly"} }),
		Job("a-later-one", created(50*time.Minute)),
		Job("pi", Complete(90*time.Second)),
		Job("broken", Failed(5*time.Minute)),
		Job("paused", Suspended()),
		Job("queue", Wanting(1, 3), func(j *batchv1.Job) { j.Spec.Completions = nil }, Running(3, 0, 0)),
		Job("elsewhere", Running(1, 0, 0), func(j *batchv1.Job) { j.Namespace = "team" }),
	}
}

func cronWorld() []runtime.Object {
	return []runtime.Object{
		CronJob("backup", "30 2 * * *", InZone("Europe/Berlin")),
		CronJob("paused", "* * * * *", func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) }),
		CronJob("minutely", "* * * * *", LastScheduled(59*time.Minute), Ledger(
			cronjob.Tick{Due: Epoch.Add(58 * time.Minute), Outcome: cronjob.Started, Result: cronjob.Failed},
			cronjob.Tick{Due: Epoch.Add(59 * time.Minute), Outcome: cronjob.Started, Result: cronjob.Complete},
		)),
		CronJob("long", "@every 90m", LastScheduled(30*time.Minute), Ledger(
			cronjob.Tick{Due: Epoch.Add(30 * time.Minute), Outcome: cronjob.Started},
		), func(c *batchv1.CronJob) { c.Status.Active = make([]corev1.ObjectReference, 1) }),
		CronJob("never", "0 0 31 2 *"),
		CronJob("odd", "* * * *"),
	}
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		world []runtime.Object
		args  []string
	}{
		"table":                 {world(), nil},
		"one-kind":              {world(), []string{"jobs"}},
		"wide":                  {world(), []string{"-o", "wide"}},
		"all-namespaces":        {world(), []string{"-A"}},
		"selector":              {world(), []string{"-l", "batch=nightly", "--no-headers"}},
		"names":                 {world(), []string{"jobs", "render", "broken"}},
		"typed-name":            {world(), []string{"job/pi", "-o", "jsonpath={.kind}/{.metadata.name}"}},
		"output-name":           {world(), []string{"-o", "name"}},
		"output-yaml":           {[]runtime.Object{Job("pi", Complete(time.Minute))}, []string{"-o", "yaml"}},
		"output-json-of-one":    {[]runtime.Object{Job("pi", Complete(time.Minute))}, []string{"jobs", "pi", "-o", "json"}},
		"empty":                 {nil, nil},
		"empty-everywhere":      {nil, []string{"-A"}},
		"empty-output-json":     {nil, []string{"-o", "json"}},
		"mistyped-name":         {world(), []string{"jobs", "brokn"}},
		"control-characters":    {[]runtime.Object{Job("pi", Running(0, 0, 1), Condition(batchv1.JobFailed, "Evil\x1b[2J", "", 0))}, nil},
		"cronjobs":              {cronWorld(), []string{"cronjobs"}},
		"cronjobs-wide":         {cronWorld(), []string{"cj", "-o", "wide", "--no-headers"}},
		"cronjobs-and-jobs":     {append(cronWorld(), Job("pi", Complete(90*time.Second))), nil},
		"labels-match-nothing":  {world(), []string{"-l", "batch=x"}},
		"output-name-in-a-team": {world(), []string{"-A", "-o", "name", "-l", "batch"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New(tc.world...)
			bench.Clock = clocktesting.NewFakeClock(Epoch.Add(time.Hour))
			o, err := parse(bench, tc.args...)
			if err != nil {
				t.Fatalf("parsing: %v", err)
			}
			Golden(t, name, bench.Transcript(ls.Run(t.Context(), o)))
		})
	}
}

func TestWrongCommandLines(t *testing.T) {
	cases := map[string]struct {
		args  []string
		want  string
		meant []string
		try   []string
	}{
		"a mistyped type":           {args: []string{"jbos"}, want: `unknown type "jbos": known are jobs, cronjobs, vcjobs, cronvcjobs, jobflows`, meant: []string{"jobs"}},
		"a name where a type is":    {args: []string{"render"}, want: `unknown type "render": known are jobs, cronjobs, vcjobs, cronvcjobs, jobflows`, try: []string{"drover ls jobs render   if that is a name"}},
		"names everywhere":          {args: []string{"jobs", "pi", "-A"}, want: "names are looked up in one namespace: leave out --all-namespaces"},
		"names and labels":          {args: []string{"jobs", "pi", "-l", "x"}, want: "names and --selector exclude each other"},
		"watching several names":    {args: []string{"jobs", "a", "b", "-w"}, want: "--watch follows one name or all: leave out the names or all but one"},
		"an unknown format":         {args: []string{"-o", "xml"}, want: `unknown output format "xml": known are go-template, go-template-file, json, jsonpath, jsonpath-as-json, jsonpath-file, kyaml, name, template, templatefile, wide, yaml`},
		"a selector that is none":   {args: []string{"-l", "=x"}, want: `--selector "=x": found '=', expected: !, identifier, or 'end of string'`},
		"names of several types":    {args: []string{"jobs,jobs", "pi"}, want: "names need exactly one type before them"},
		"a typed name without name": {args: []string{"job/"}, want: `"job/" is not a name: write NAME or TYPE/NAME`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parse(New(), tc.args...)
			problem, ok := errors.AsType[*command.Error](err)
			if !ok {
				t.Fatalf("error %v, want one for people", err)
			}
			want := &command.Error{Meant: tc.meant, Try: tc.try, Code: command.ExitUsage}
			got := &command.Error{Meant: problem.Meant, Try: problem.Try, Code: problem.Code}
			if diff := cmp.Diff(want, got); diff != "" || err.Error() != tc.want {
				t.Errorf("error %v, want %s; rest (-want +got):\n%s", err, tc.want, diff)
			}
		})
	}
}

func TestRunReportsWhatTheServerRefuses(t *testing.T) {
	bench := New()
	bench.Client.PrependReactor("list", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "", errors.New("not yours"))
	})
	o, err := parse(bench)
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	want := "-- standard output --\n-- standard error --\n" +
		"Error: listing jobs in namespace \"default\": jobs.batch is forbidden: not yours\n" +
		"Try: drover kubectl auth can-i --list   shows what you may do in the namespace\n-- exit code 1 --\n"
	if diff := cmp.Diff(want, bench.Transcript(ls.Run(t.Context(), o))); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
}

func TestWatch(t *testing.T) {
	cases := map[string][]string{
		"watch":       {"-w"},
		"watch-one":   {"jobs", "pi", "-w"},
		"watch-names": {"-w", "-o", "name"},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bench := New(Job("pi", Running(1, 0, 0)), Job("e"))
				o, err := parse(bench, args...)
				if err != nil {
					t.Fatalf("parsing: %v", err)
				}
				ctx, interrupt := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- ls.Run(ctx, o) }()
				jobs := bench.Client.BatchV1().Jobs(Namespace)
				for _, change := range []func() error{
					func() error {
						_, err := jobs.Update(ctx, Job("e", Running(1, 0, 0)), metav1.UpdateOptions{})
						return err
					},
					func() error { // nothing that a table shows
						_, err := jobs.Update(ctx, Job("pi", Running(1, 0, 0), func(j *batchv1.Job) {
							j.Labels = map[string]string{"new": "label"}
						}), metav1.UpdateOptions{})
						return err
					},
					func() error {
						_, err := jobs.Create(ctx, Job("a-name-that-is-longer-than-those-before"), metav1.CreateOptions{})
						return err
					},
					func() error {
						_, err := jobs.Update(ctx, Job("pi", Complete(time.Second)), metav1.UpdateOptions{})
						return err
					},
					func() error { return jobs.Delete(ctx, "e", metav1.DeleteOptions{}) },
				} {
					synctest.Wait()
					if err := change(); err != nil {
						t.Errorf("changing the world: %v", err)
					}
				}
				synctest.Wait()
				interrupt()
				Golden(t, name, bench.Transcript(<-done))
			})
		})
	}
}
