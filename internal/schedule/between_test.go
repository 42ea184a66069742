// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBetweenSumsUpTheChainOfNext(t *testing.T) {
	r, zones := seeded(t), allZones(t)
	for range rounds(t, 600) {
		z := zones[r.IntN(len(zones))]
		after := randomInstant(r, z)
		if dayLost(z, after) && r.IntN(10) > 0 {
			continue
		}
		s := mustParse(t, randomExpr(r)).In(z).WithDST(DST(r.IntN(4)))
		if r.IntN(10) == 0 {
			s = mustParse(t, "@every "+(time.Duration(r.Int64N(1e6))*time.Second).String())
		}
		compareBetween(t, s, r, after)
	}
}

// compareBetween follows the chain link by link, at most some thousand of them.
func compareBetween(t *testing.T, s *Schedule, r *rand.Rand, after time.Time) {
	t.Helper()
	length := time.Duration(r.Int64N(40*86400)) * time.Second
	if r.IntN(3) == 0 {
		length *= 30
	}
	until := after.Add(length)
	var chain []time.Time
	for at := s.Next(after); !at.IsZero() && !at.After(until); at = s.Next(at) {
		if chain = append(chain, at); len(chain) == 5000 {
			until = at.Add(time.Duration(r.Int64N(1e9)))
			break
		}
	}
	var want Run
	if len(chain) > 0 {
		want = Run{len(chain), chain[0], chain[len(chain)-1]}
	}
	if diff := cmp.Diff(want, s.Between(after, until)); diff != "" {
		t.Fatalf("%q in %v, %v: Between(%v, %v) (-chain +got):\n%s", s, s.Zone(), s.dst, after, until, diff)
	}
	n := r.IntN(30)
	if diff := cmp.Diff(chain[max(0, len(chain)-n):], s.Tail(after, until, n), cmp.Transformer("empty", func(ts []time.Time) []time.Time {
		return append([]time.Time{}, ts...)
	})); diff != "" {
		t.Fatalf("%q in %v, %v: Tail(%v, %v, %d) (-chain +got):\n%s", s, s.Zone(), s.dst, after, until, n, diff)
	}
}

func TestTenYearsOfEveryMinuteAreCountedExactly(t *testing.T) {
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	until := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for expr, perDay := range map[string]int{"* * * * *": 1440, "*/7 * * * *": 9 * 24, "0 1-22 * * *": 22, "* 3 * * *": 60} {
		want := 3653 * perDay
		if got := mustParse(t, expr).Between(from.Add(-1), until.Add(-1)).Count; got != want {
			t.Errorf("%q in UTC: got %d, want %d", expr, got, want)
		}
		if got := mustParse(t, expr).In(zone(t, "Asia/Tokyo")).Between(from.Add(-1), until.Add(-1)).Count; got != want {
			t.Errorf("%q in Tokyo: got %d, want %d", expr, got, want)
		}
	}
	// Berlin gains and loses an hour each year: every local minute of ten years, by the real clock.
	if got, want := mustParse(t, "* * * * *").In(zone(t, "Europe/Berlin")).Between(from.Add(-1), until.Add(-1)).Count, 3653*1440; got != want {
		t.Errorf("every minute in Berlin: got %d, want %d", got, want)
	}
}
