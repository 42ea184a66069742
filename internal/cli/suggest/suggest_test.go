// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNear(t *testing.T) {
	cases := map[string]struct {
		word       string
		candidates []string
		want       []string
	}{
		"a letter too many":                          {"pii", []string{"pi", "render"}, []string{"pi"}},
		"a letter too few":                           {"rendr", []string{"pi", "render"}, []string{"render"}},
		"two letters swapped":                        {"aplha", []string{"alpha"}, []string{"alpha"}},
		"case does not matter":                       {"RENDER", []string{"render"}, []string{"render"}},
		"the beginning of a long name":               {"night", []string{"nightly-report-29021"}, []string{"nightly-report-29021"}},
		"a single letter begins too many names":      {"n", []string{"nightly"}, nil},
		"the nearest comes first":                    {"render2", []string{"render12", "render", "render2x"}, []string{"render", "render12", "render2x"}},
		"three at most":                              {"job-0", []string{"job-5", "job-4", "job-3", "job-2", "job-1"}, []string{"job-1", "job-2", "job-3"}},
		"a different word is not near":               {"alpha", []string{"omega"}, nil},
		"short words must differ in one letter only": {"pi", []string{"po", "xy"}, []string{"po"}},
		"a single letter is near to no other":        {"a", []string{"b"}, nil},
		"nothing to choose from":                     {"pi", nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Near(tc.word, tc.candidates)); diff != "" {
				t.Errorf("Near(%q) (-want +got):\n%s", tc.word, diff)
			}
		})
	}
}
