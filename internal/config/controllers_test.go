// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"testing"
)

func TestRuns(t *testing.T) {
	cases := map[string]struct {
		manage  Manage
		enabled []string
		want    []string
	}{
		"all by default":                     {ManageAll, nil, []string{"job", "cronjob", "vcjob", "queue", "podgroup", "jobflow", "cronvcjob"}},
		"all":                                {ManageAll, []string{"*"}, []string{"job", "cronjob", "vcjob", "queue", "podgroup", "jobflow", "cronvcjob"}},
		"all but one":                        {ManageAll, []string{"*", "-cronjob"}, []string{"job", "vcjob", "queue", "podgroup", "jobflow", "cronvcjob"}},
		"one":                                {ManageAll, []string{"vcjob"}, []string{"vcjob"}},
		"none":                               {ManageAll, []string{"-*"}, nil},
		"none but one":                       {ManageAll, []string{"-*", "job"}, []string{"job"}},
		"Volcano's are not marked":           {ManageMarked, nil, []string{"job", "cronjob"}},
		"Volcano's beside marked, by a word": {ManageMarked, []string{"job", "vcjob"}, []string{"job", "vcjob"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := Controllers{Manage: tc.manage, Enabled: tc.enabled}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range ControllerNames {
				if c.Runs(n) {
					got = append(got, n)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("runs %q, want %q", got, tc.want)
			}
		})
	}
}
