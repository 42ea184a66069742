// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/workload"
)

func TestParseRefs(t *testing.T) {
	cases := map[string]struct {
		args []string
		want []string
		err  string
	}{
		"a bare name means a Job":                 {args: []string{"pi"}, want: []string{"job.batch/pi"}},
		"types in the singular":                   {args: []string{"job/pi"}, want: []string{"job.batch/pi"}},
		"types in the plural":                     {args: []string{"jobs/pi"}, want: []string{"job.batch/pi"}},
		"types as they are printed":               {args: []string{"job.batch/pi"}, want: []string{"job.batch/pi"}},
		"case of types does not matter":           {args: []string{"Job/pi"}, want: []string{"job.batch/pi"}},
		"kubectl's way of naming several":         {args: []string{"jobs", "pi", "e"}, want: []string{"job.batch/pi", "job.batch/e"}},
		"both ways mixed":                         {args: []string{"jobs", "pi", "job/e"}, want: []string{"job.batch/pi", "job.batch/e"}},
		"a Job may be called like a type":         {args: []string{"jobs"}, want: []string{"job.batch/jobs"}},
		"an object named twice counts once":       {args: []string{"pi", "job/pi"}, want: []string{"job.batch/pi"}},
		"an unknown type is named":                {args: []string{"pod/x"}, err: `"pod/x" has an unknown type "pod": known are jobs, cronjobs, vcjobs, cronvcjobs, jobflows`},
		"a type without a name is no name":        {args: []string{"job/"}, err: `"job/" is not a name: write NAME or TYPE/NAME`},
		"nothing is no name":                      {args: []string{""}, err: `"" is not a name: write NAME or TYPE/NAME`},
		"a name has no second slash":              {args: []string{"job/a/b"}, err: `"job/a/b" is not a name: write NAME or TYPE/NAME`},
		"a later mistake is found as well":        {args: []string{"pi", "job/"}, err: `"job/" is not a name: write NAME or TYPE/NAME`},
		"no arguments are no objects, no mistake": {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refs, err := workload.ParseRefs(tc.args)
			if got := message(err); got != tc.err {
				t.Fatalf("error %q, want %q", got, tc.err)
			}
			var got []string
			for _, ref := range refs {
				got = append(got, ref.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("refs (-want +got):\n%s", diff)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOlder(t *testing.T) {
	in := func(namespace string) JobOption { return func(j *batchv1.Job) { j.Namespace = namespace } }
	at := func(d time.Duration) JobOption {
		return func(j *batchv1.Job) { j.CreationTimestamp = metav1.NewTime(Epoch.Add(d)) }
	}
	jobs := []*batchv1.Job{
		Job("b"), Job("z", in("a"), at(time.Hour)), Job("a"), Job("0", at(time.Minute)),
	}
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int { return workload.Older(a, b) })
	var got []string
	for _, j := range jobs {
		got = append(got, j.Namespace+"/"+j.Name)
	}
	if diff := cmp.Diff([]string{"a/z", "default/a", "default/b", "default/0"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestNoTwoKindsLookTheSame: a list had a Job of Volcano and one of Kubernetes as "Job".
func TestNoTwoKindsLookTheSame(t *testing.T) {
	var shown []string
	for _, k := range workload.Kinds() {
		shown = append(shown, k.Shown())
	}
	if diff := cmp.Diff([]string{"Job", "CronJob", "vcjob", "cronvcjob", "JobFlow"}, shown); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
