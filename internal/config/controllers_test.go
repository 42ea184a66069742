// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
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

func TestNamespacesAreNames(t *testing.T) {
	cases := map[string]struct {
		namespaces []string
		wrong      []string // that are named in the error
	}{
		"all":                      {nil, nil},
		"some":                     {[]string{"a", "team-b", "0"}, nil},
		"two that are none":        {[]string{"a", "Team_B", "*"}, []string{`"Team_B"`, `"*"`}},
		"one that is empty":        {[]string{"a", ""}, []string{`""`}},
		"one with another's parts": {[]string{"a/b"}, []string{`"a/b"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Controllers{Namespaces: tc.namespaces}.Validate()
			if len(tc.wrong) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.wrong) {
				t.Errorf("error has %d lines, want %d:\n%v", len(lines), len(tc.wrong), err)
			}
			for i, wrong := range tc.wrong {
				if !strings.HasPrefix(lines[i], "--namespaces: "+wrong+" ") {
					t.Errorf("%q does not name flag and value %s", lines[i], wrong)
				}
			}
		})
	}
}
