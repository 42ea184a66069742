// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
)

// parseArgs returns the options that a command line gives, and the bench of their factory.
func parseArgs(args ...string) (*Options, *Bench, error) {
	bench := New()
	var got *Options
	cmd := NewCommand(bench.Factory, func(_ context.Context, o *Options) error {
		got = o
		return nil
	})
	cmd.SetArgs(append([]string{}, args...))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors = true
	err := cmd.Execute()
	return got, bench, err
}

func TestManifests(t *testing.T) {
	t.Setenv("FROM_HERE", "a value")
	cases := map[string][]string{
		"command":        {"hello", "--", "echo", "hello", "world"},
		"without-a-name": {"--", "/usr/bin/make", "all"},
		"everything": {
			"render", "--completions", "20", "--parallelism=5", "--indexed", "--backoff-limit", "0", "--image", "busybox",
			"--restart", "OnFailure", "-e", "A=1", "-e", "B=x=y", "--env", "FROM_HERE", "--label", "batch=nightly", "--", "./render.sh",
		},
		"image-only": {"probe", "--image", "probe:1"},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			o, bench, err := parseArgs(append([]string{"--dry-run=client", "-o", "yaml"}, args...)...)
			if err != nil {
				t.Fatalf("parsing: %v", err)
			}
			if err := Run(t.Context(), o); err != nil {
				t.Fatalf("running: %v", err)
			}
			if n := len(bench.Client.Actions()); n > 0 {
				t.Errorf("a dry run sent %d requests", n)
			}
			Golden(t, "manifest-"+name, bench.Out.String())
		})
	}
}

func TestWrongCommandLines(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"nothing":                        {nil, "run what? Write -- and the command: drover run NAME -- COMMAND"},
		"a name alone":                   {[]string{"pi"}, "run what? Write -- and the command: drover run NAME -- COMMAND"},
		"a command without dashes":       {[]string{"pi", "echo", "hi"}, `["pi" "echo" "hi"]: write -- between the name and the command: drover run pi -- echo hi`},
		"an image without a name":        {[]string{"--image", "x"}, "without a command, the Job needs a NAME"},
		"indexes without a number":       {[]string{"--indexed", "--", "true"}, "--indexed needs --completions, the number of indexes"},
		"fewer than no completions":      {[]string{"--completions=-1", "--", "true"}, "--completions -1: it cannot be negative"},
		"a policy that Jobs do not know": {[]string{"--restart=Always", "--", "true"}, "--restart Always: a Job knows Never and OnFailure"},
		"a variable that is nowhere set": {[]string{"-e", "SURELY_NOT_SET_ANYWHERE", "--", "true"}, "--env SURELY_NOT_SET_ANYWHERE: it has no value, and is not set here either"},
		"a variable without a name":      {[]string{"-e", "=x", "--", "true"}, `--env "=x": it has no name`},
		"waiting for a dry run":          {[]string{"--dry-run=client", "--rm", "--", "true"}, "a dry run has nothing to wait for: leave out --wait, --logs and --rm"},
		"an unknown dry run":             {[]string{"--dry-run=maybe", "--", "true"}, "--dry-run=maybe: known are none, client and server"},
		"a limit for not waiting":        {[]string{"--timeout=1s", "--", "true"}, "--timeout limits waiting: add --wait"},
		"logs and an object":             {[]string{"--logs", "-o", "yaml", "--", "true"}, "--logs and --output both want standard output: leave out one"},
		"an unknown format":              {[]string{"-o", "xml", "--", "true"}, `unknown output format "xml": known are go-template, go-template-file, json, jsonpath, jsonpath-as-json, jsonpath-file, kyaml, name, template, templatefile, yaml`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := parseArgs(tc.args...)
			if err == nil || err.Error() != tc.want || command.CodeOf(err) != command.ExitUsage {
				t.Errorf("error %v, exit code %d; want %s, %d", err, command.CodeOf(err), tc.want, command.ExitUsage)
			}
		})
	}
}

func TestGenerateName(t *testing.T) {
	cases := map[string]string{
		"make":                     "make-",
		"/usr/bin/env":             "env-",
		"./Render_All.sh":          "render-all-sh-",
		"_":                        "job-",
		"/":                        "job-",
		"größe":                    "gr--e-",
		strings.Repeat("long", 20): strings.Repeat("long", 10) + "-",
	}
	for commandName, want := range cases {
		t.Run(commandName, func(t *testing.T) {
			if got := generateName(&Options{Command: []string{commandName}}); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// cluster gives created Jobs what a server would: a UID, and a name where one is to be made.
func cluster(b *Bench) {
	b.Client.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		job := action.(clienttesting.CreateAction).GetObject().(*batchv1.Job)
		if job.Name == "" {
			job.Name = job.GenerateName + "x7k2p"
		}
		*job = *Job(job.Name, func(j *batchv1.Job) { j.TypeMeta = job.TypeMeta })
		return false, nil, nil // the tracker goes on with it
	})
}

func becomes(t *testing.T, b *Bench, job *batchv1.Job) {
	t.Helper()
	if _, err := b.Client.BatchV1().Jobs(Namespace).Update(t.Context(), job, metav1.UpdateOptions{}); err != nil {
		t.Errorf("updating job %q: %v", job.Name, err)
	}
}

// verbs returns the requests sent, as "verb resource". Updates are the tests' own.
func verbs(b *Bench) []string {
	var out []string
	for _, a := range b.Client.Actions() {
		if a.GetVerb() == "update" {
			continue
		}
		out = append(out, a.GetVerb()+" "+a.GetResource().Resource)
	}
	return out
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		args     []string
		ends     *batchv1.Job // nil: it goes on
		out      string
		err      string
		code     command.ExitCode
		requests []string
	}{
		"returns once the Job is accepted": {
			args: []string{"pi", "--", "true"},
			out:  "job.batch/pi created\n", requests: []string{"create jobs"},
		},
		"makes a name": {
			args: []string{"--", "true"},
			out:  "job.batch/true-x7k2p created\n", requests: []string{"create jobs"},
		},
		"prints the object that was created": {
			args: []string{"pi", "-o", "name", "--", "true"},
			out:  "job.batch/pi\n", requests: []string{"create jobs"},
		},
		"has the server check": {
			args: []string{"pi", "--dry-run=server", "--", "true"},
			out:  "job.batch/pi created (server dry run)\n", requests: []string{"create jobs"},
		},
		"waits with one more request": {
			args: []string{"pi", "--wait", "--", "true"}, ends: Job("pi", Complete(time.Second)),
			out: "job.batch/pi created\njob.batch/pi Complete\n", requests: []string{"create jobs", "watch jobs"},
		},
		"tells a failure by its exit code": {
			args: []string{"pi", "--wait", "--", "false"}, ends: Job("pi", Failed(time.Second)),
			out: "job.batch/pi created\njob.batch/pi Failed: BackoffLimitExceeded\n",
			err: "job.batch/pi: Job has reached the specified backoff limit\nTry: drover logs pi --failed\n", code: command.ExitFailed,
			requests: []string{"create jobs", "watch jobs"},
		},
		"prints the object that ended": {
			args: []string{"pi", "--wait", "-o", "jsonpath={.status.succeeded}", "--", "true"}, ends: Job("pi", Complete(time.Second)),
			out: "1", err: "job.batch/pi created\njob.batch/pi Complete\n", requests: []string{"create jobs", "watch jobs"},
		},
		"gives up in time": {
			args: []string{"pi", "--timeout", "3s", "--wait", "--", "true"},
			out:  "job.batch/pi created\n",
			err: "waiting for job.batch/pi (Pending, 0/1 done), 2s so far\n" +
				"Error: waiting for job.batch/pi (Pending, 0/1 done): not ended after 3s\n", code: command.ExitTimeout,
			requests: []string{"create jobs", "watch jobs"},
		},
		"removes the Job in the end": {
			args: []string{"pi", "--rm", "--", "true"}, ends: Job("pi", Complete(time.Second)),
			out: "job.batch/pi created\njob.batch/pi Complete\n", err: "job.batch/pi deleted\n",
			requests: []string{"create jobs", "watch jobs", "delete jobs"},
		},
		"removes a Job that failed, with its exit code": {
			args: []string{"pi", "--rm", "--", "true"}, ends: Job("pi", Failed(time.Second)),
			out: "job.batch/pi created\njob.batch/pi Failed: BackoffLimitExceeded\n",
			err: "job.batch/pi: Job has reached the specified backoff limit\njob.batch/pi deleted\n", code: command.ExitFailed,
			requests: []string{"create jobs", "watch jobs", "delete jobs"},
		},
		"removes a Job that took too long": {
			args: []string{"pi", "--rm", "--timeout", "1s", "--", "true"},
			out:  "job.batch/pi created\n",
			err: "job.batch/pi deleted\n" +
				"Error: waiting for job.batch/pi (Pending, 0/1 done): not ended after 1s\n", code: command.ExitTimeout,
			requests: []string{"create jobs", "watch jobs", "delete jobs"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, bench, err := parseArgs(tc.args...)
				if err != nil {
					t.Fatalf("parsing: %v", err)
				}
				cluster(bench)
				done := make(chan error)
				go func() { done <- Run(t.Context(), o) }()
				synctest.Wait()
				if tc.ends != nil {
					becomes(t, bench, tc.ends)
				}
				got := bench.Transcript(<-done)
				want := fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", tc.out, tc.err, tc.code)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("transcript (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.requests, verbs(bench)); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRunIsInterrupted(t *testing.T) {
	cases := map[string]struct {
		flag string
		err  string
		left bool
	}{
		"the Job goes on":            {"--wait", "job.batch/pi goes on. Try: drover wait pi, or drover delete pi\n", true},
		"unless it is to be removed": {"--rm", "job.batch/pi deleted\n", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, bench, err := parseArgs("pi", tc.flag, "--", "sleep", "1h")
				if err != nil {
					t.Fatalf("parsing: %v", err)
				}
				cluster(bench)
				ctx, interrupt := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- Run(ctx, o) }()
				synctest.Wait()
				interrupt()
				want := fmt.Sprintf("-- standard output --\njob.batch/pi created\n-- standard error --\n%s-- exit code %d --\n", tc.err, command.ExitInterrupted)
				if diff := cmp.Diff(want, bench.Transcript(<-done)); diff != "" {
					t.Errorf("transcript (-want +got):\n%s", diff)
				}
				_, err = bench.Client.BatchV1().Jobs(Namespace).Get(t.Context(), "pi", metav1.GetOptions{})
				if apierrors.IsNotFound(err) == tc.left {
					t.Errorf("looking for the job: %v; want it to be there: %t", err, tc.left)
				}
			})
		})
	}
}

func TestRunDeletesOnlyTheJobThatItHasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, bench, err := parseArgs("pi", "--rm", "--", "true")
		if err != nil {
			t.Fatalf("parsing: %v", err)
		}
		cluster(bench)
		var options *metav1.DeleteOptions
		bench.Client.PrependReactor("delete", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			o := action.(clienttesting.DeleteActionImpl).DeleteOptions
			options = &o
			return true, nil, apierrors.NewConflict(schema.GroupResource{Group: "batch", Resource: "jobs"}, "pi", errors.New("another one"))
		})
		done := make(chan error)
		go func() { done <- Run(t.Context(), o) }()
		synctest.Wait()
		becomes(t, bench, Job("pi", Complete(time.Second)))
		if err := <-done; err != nil {
			t.Errorf("running: %v", err)
		}
		background, uid := metav1.DeletePropagationBackground, Job("pi").UID
		want := &metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}}
		if diff := cmp.Diff(want, options); diff != "" {
			t.Errorf("delete options (-want +got):\n%s", diff)
		}
	})
}

func TestRunExplainsWhyAJobCannotBeMade(t *testing.T) {
	o, bench, err := parseArgs("pi", "--", "true")
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	if err := bench.Client.Tracker().Add(Job("pi")); err != nil {
		t.Fatalf("adding a job: %v", err)
	}
	want := "-- standard output --\n-- standard error --\n" +
		"Error: creating job \"pi\" in namespace \"default\": there is one of that name\n" +
		"Try: another name, none to have one made, or first: drover delete pi\n-- exit code 1 --\n"
	if diff := cmp.Diff(want, bench.Transcript(Run(t.Context(), o))); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
}

func TestRunShowsLogsUntilTheJobHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, bench, err := parseArgs("pi", "--logs", "--", "echo", "3.14")
		if err != nil {
			t.Fatalf("parsing: %v", err)
		}
		cluster(bench)
		done := make(chan error)
		go func() { done <- Run(t.Context(), o) }()
		synctest.Wait()
		job := Job("pi", Complete(time.Second))
		pod := Pod(job, "pi-abcde", Ended(0))
		if _, err := bench.Client.CoreV1().Pods(Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatalf("creating the pod: %v", err)
		}
		synctest.Wait()
		becomes(t, bench, job)
		// "fake logs" is what client-go's fake answers.
		want := "-- standard output --\nfake logs-- standard error --\njob.batch/pi created\n-- exit code 0 --\n"
		if diff := cmp.Diff(want, bench.Transcript(<-done)); diff != "" {
			t.Errorf("transcript (-want +got):\n%s", diff)
		}
	})
}
