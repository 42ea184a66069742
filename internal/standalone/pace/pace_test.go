// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestThePaceFollowsTheWork(t *testing.T) {
	const idle, busy = busyBytes / 10, busyBytes + 1
	cases := map[string]struct{ asked, want []int }{
		"an idle process changes nothing":      {[]int{idle, idle, idle}, []int{0, 0, 0}},
		"work begins":                          {[]int{idle, busy, busy}, []int{0, busyPercent, 0}},
		"work ends":                            {[]int{busy, idle, idle, idle, idle, idle, idle}, []int{busyPercent, 0, 0, 0, 0, idlePercent, 0}},
		"a pause is not the end":               {[]int{busy, idle, idle, busy, idle, idle, idle}, []int{busyPercent, 0, 0, 0, 0, 0, 0}},
		"work comes back after the end of all": {[]int{busy, idle, idle, idle, idle, idle, busy}, []int{busyPercent, 0, 0, 0, 0, idlePercent, busyPercent}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := pacer{calm: calmRounds}
			var allocated uint64
			var got []int
			for _, n := range tc.asked {
				allocated += uint64(n)
				got = append(got, p.round(allocated))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
