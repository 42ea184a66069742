// SPDX-License-Identifier: Apache-2.0

package pick_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/workload"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		pick  pick.Pick
		args  []string
		refs  []string
		kinds []string
		err   string
	}{
		"names":                               {args: []string{"a", "job/b"}, refs: []string{"job.batch/a", "job.batch/b"}},
		"labels choose of all kinds":          {pick: pick.Pick{Selector: "x=y"}, kinds: []string{"job", "cronjob", "vcjob", "cronvcjob", "jobflow"}},
		"or of one":                           {pick: pick.Pick{All: true}, args: []string{"jobs"}, kinds: []string{"job"}},
		"nothing is a mistake, not all":       {err: "which one? Give NAME or TYPE/NAME, --selector or --all"},
		"labels and all":                      {pick: pick.Pick{Selector: "x", All: true}, err: "--selector and --all exclude each other"},
		"a name beside labels is no type":     {pick: pick.Pick{Selector: "x"}, args: []string{"pi"}, err: `unknown type "pi": known are jobs, cronjobs, vcjobs, cronvcjobs, jobflows`},
		"a selector that cannot be read":      {pick: pick.Pick{Selector: "=x"}, err: `--selector "=x": found '=', expected: !, identifier, or 'end of string'`},
		"a name that cannot be one":           {args: []string{"job/"}, err: `"job/" is not a name: write NAME or TYPE/NAME`},
		"types may be separated by commas":    {pick: pick.Pick{All: true}, args: []string{"jobs,job"}, kinds: []string{"job", "job"}},
		"a mistyped type beside labels":       {pick: pick.Pick{All: true}, args: []string{"jbos"}, err: `unknown type "jbos": known are jobs, cronjobs, vcjobs, cronvcjobs, jobflows`},
		"an unknown type before a slash":      {args: []string{"pod/a"}, err: `"pod/a" has an unknown type "pod": known are jobs, cronjobs, vcjobs, cronvcjobs, jobflows`},
		"the same object under two spellings": {args: []string{"a", "jobs/a"}, refs: []string{"job.batch/a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := tc.pick
			err := p.Parse(tc.args)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err || command.CodeOf(err) != command.ExitUsage {
					t.Errorf("error %v, exit code %d; want %s, %d", err, command.CodeOf(err), tc.err, command.ExitUsage)
				}
				return
			}
			if err != nil {
				t.Fatalf("parsing: %v", err)
			}
			var refs, kinds []string
			for _, r := range p.Refs {
				refs = append(refs, r.String())
			}
			for _, k := range p.Kinds {
				kinds = append(kinds, k.Name)
			}
			if diff := cmp.Diff(tc.refs, refs); diff != "" {
				t.Errorf("refs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.kinds, kinds); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: "batch", Resource: "jobs"}, "x")
	cases := map[string]struct {
		bench *Bench
		name  string
		err   error
		want  string
	}{
		"a mistyped name": {
			New(Job("render"), Job("pi")), "rendr", notFound,
			"Error: eating job.batch/rendr in namespace \"default\": not found\nDid you mean render?\n",
		},
		"a name like no other": {
			New(Job("render")), "xyz", notFound,
			"Error: eating job.batch/xyz in namespace \"default\": not found\nTry: drover ls jobs\n",
		},
		"an empty namespace": {
			New(), "pi", notFound,
			"Error: eating job.batch/pi in namespace \"default\": not found\nTry: drover ls -A   as there are no jobs in this namespace\n",
		},
		"another error": {
			New(Job("pj")), "pi", errors.New("no appetite"),
			"Error: eating job.batch/pi in namespace \"default\": no appetite\n",
		},
		"an error that knows what to try": {
			New(), "pi", &command.Error{Err: errors.New("too hot"), Try: []string{"wait"}},
			"Error: eating job.batch/pi in namespace \"default\": too hot\nTry: wait\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ref := workload.Ref{Kind: workload.Lookup("job"), Name: tc.name}
			command.Print(tc.bench.Factory, pick.Explain(t.Context(), tc.bench.Factory, ref, "eating", tc.err))
			if got := tc.bench.Err.String(); got != tc.want {
				t.Errorf("printed\n%swant\n%s", got, tc.want)
			}
		})
	}
}

func refsOf(names ...string) []workload.Ref {
	var refs []workload.Ref
	for _, name := range names {
		refs = append(refs, workload.Ref{Kind: workload.Lookup("job"), Name: name})
	}
	return refs
}

func TestEachPrintsInOrderAndReportsEveryFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bench := New()
		took := map[string]time.Duration{"a": 3 * time.Second, "b": 2 * time.Second, "c": time.Second, "d": 0}
		err := pick.Each(t.Context(), bench.Factory, refsOf("a", "b", "c", "d"), func(_ context.Context, ref workload.Ref) (string, error) {
			time.Sleep(took[ref.Name])
			if ref.Name == "b" || ref.Name == "d" {
				return "", &command.Error{Err: fmt.Errorf("%s is bad", ref.Name), Code: command.ExitDeleted}
			}
			return ref.Name + " done", nil
		})
		want := "-- standard output --\na done\nc done\n-- standard error --\nError: b is bad\nError: d is bad\n-- exit code 3 --\n"
		if diff := cmp.Diff(want, bench.Transcript(err)); diff != "" {
			t.Errorf("transcript (-want +got):\n%s", diff)
		}
	})
}

func TestEachLimitsHowManyAreWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprint(i))
		}
		var now, most atomic.Int32
		err := pick.Each(t.Context(), New().Factory, refsOf(names...), func(context.Context, workload.Ref) (string, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return "", nil
		})
		if err != nil || most.Load() != 8 {
			t.Errorf("%d at once and error %v, want 8 and none", most.Load(), err)
		}
	})
}
