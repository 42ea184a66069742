// SPDX-License-Identifier: Apache-2.0

package cores

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheCoresFollowTheWork(t *testing.T) {
	rounds := func(percent, n int) []int { return slices.Repeat([]int{percent}, n) }
	cases := map[string]struct {
		most int
		used []int // percent of one core in each round
		want []int // each change
	}{
		"an idle process stays on one":            {8, rounds(1, 100), nil},
		"one that is busy at times, too":          {8, slices.Concat(rounds(70, 50), rounds(5, 50), rounds(79, 50)), nil},
		"one that needs all gets all, in steps":   {8, []int{99, 190, 390, 800, 800, 800}, []int{2, 4, 8}},
		"an odd number is reached":                {3, []int{99, 190, 300}, []int{2, 3}},
		"there are no more than there are":        {1, rounds(100, 10), nil},
		"what is calm for long enough gives back": {4, slices.Concat([]int{95, 195}, rounds(50, 75)), []int{2, 4, 2, 1}},
		"a pause is not the end":                  {4, slices.Concat([]int{95}, rounds(10, calmRounds-1), []int{90}, rounds(10, calmRounds-1)), []int{2}},
		"what half could hardly bear stays":       {2, slices.Concat([]int{95}, rounds(65, 100)), []int{2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := pacer{cores: 1, most: tc.most}
			var got []int
			for _, percent := range tc.used {
				if n := p.round(time.Duration(percent)*time.Millisecond, 100*time.Millisecond); n != 0 {
					got = append(got, n)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheUsersNumberOfCoresStays(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	before := runtime.GOMAXPROCS(0)
	Run(context.Background())
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("GOMAXPROCS is %d, was %d", got, before)
	}
}
