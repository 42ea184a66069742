// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func times(seconds ...int) []time.Time {
	var ts []time.Time
	for _, s := range seconds {
		ts = append(ts, at(s))
	}
	return ts
}

func TestDelayDoublesUpToItsCap(t *testing.T) {
	cases := map[string]struct {
		policy Policy
		want   []time.Duration // after 0, 1, 2, … failures
	}{
		"Kubernetes waits 10 s to 10 min": {
			Default(),
			[]time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 600 * time.Second, 600 * time.Second},
		},
		"base 5 s, cap 700 s": {
			Policy{Base: 5 * time.Second, Max: 700 * time.Second},
			[]time.Duration{0, 5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 640 * time.Second, 700 * time.Second},
		},
		"a factor of one does not grow": {
			Policy{Base: 2 * time.Second, Max: time.Minute, Factor: 1},
			[]time.Duration{0, 2 * time.Second, 2 * time.Second, 2 * time.Second},
		},
		"the zero policy never waits": {Policy{}, []time.Duration{0, 0, 0}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for n, want := range tc.want {
				if got := tc.policy.Delay(n); got != want {
					t.Errorf("Delay(%d) = %v, want %v", n, got, want)
				}
			}
		})
	}
	if got := Default().Delay(1 << 30); got != DefaultMax {
		t.Errorf("Delay of very many failures = %v, want %v", got, DefaultMax)
	}
}

func TestRemainingCountsFromTheLastFailure(t *testing.T) {
	p := Policy{Base: 5 * time.Second, Max: 700 * time.Second}
	for elapsed, want := range map[int]time.Duration{0: 5 * time.Second, 1: 4 * time.Second, 5: 0, 6: 0} {
		if got := p.Remaining(1, t0, at(elapsed)); got != want {
			t.Errorf("after %d s: %v, want %v", elapsed, got, want)
		}
	}
	if got := p.Remaining(0, t0, t0); got != 0 {
		t.Errorf("without failures: %v, want 0", got)
	}
}

func TestRecord(t *testing.T) {
	cases := map[string]struct {
		before              Record
		successes, failures []time.Time
		want                Record
	}{
		"failures add up, the latest counts":              {Record{}, nil, times(1, 2), Record{2, at(2)}},
		"order of the failures does not matter":           {Record{}, nil, times(2, 1), Record{2, at(2)}},
		"a success after the failures ends the streak":    {Record{}, times(3), times(1, 2), Record{}},
		"failures after a success make a new streak":      {Record{}, times(3), times(1, 2, 4, 5), Record{2, at(5)}},
		"one more failure lengthens the streak":           {Record{2, at(5)}, nil, times(9), Record{3, at(9)}},
		"a success at the instant of a failure wins":      {Record{}, times(4), times(4), Record{}},
		"a success ends an earlier streak":                {Record{4, at(1)}, times(2), nil, Record{}},
		"nothing new changes nothing":                     {Record{4, at(1)}, nil, nil, Record{4, at(1)}},
		"a late failure does not move the instant back":   {Record{1, at(9)}, nil, times(3), Record{2, at(9)}},
		"a success ends the streak before new failures":   {Record{4, at(1)}, times(2), times(3), Record{1, at(3)}},
		"a failure before the new success is not counted": {Record{4, at(1)}, times(5), times(3), Record{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.before.After(tc.successes, tc.failures)); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}
