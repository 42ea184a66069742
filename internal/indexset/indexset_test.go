// SPDX-License-Identifier: Apache-2.0

package indexset

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTextForm(t *testing.T) {
	cases := map[string]struct {
		text  string
		limit int
		want  string
		count int
	}{
		"an empty text is an empty set":                     {"", 10, "", 0},
		"single indexes stay single":                        {"0,2,4", 10, "0,2,4", 3},
		"two neighbours are listed":                         {"1,2", 10, "1,2", 2},
		"three neighbours become an interval":               {"1,2,3", 10, "1-3", 3},
		"an interval of two is written as two":              {"4-5", 10, "4,5", 2},
		"touching intervals are joined":                     {"0-2,3-4", 10, "0-4", 5},
		"what lies at or beyond the limit is cut":           {"0,2-3,5,6", 4, "0,2,3", 3},
		"an interval over the limit is cut at it":           {"0,2-8", 4, "0,2,3", 3},
		"a fragment that is no number is passed over":       {"1,foo,3", 10, "1,3", 2},
		"a descending interval is passed over":              {"1,5-3,7", 10, "1,7", 2},
		"a negative number is passed over":                  {"-1,2", 10, "2", 1},
		"an interval without an end is passed over":         {"1,3-,6", 10, "1,6", 2},
		"reading stops at the first start beyond the limit": {"0,12,3", 10, "0", 1},
		"a limit of zero leaves nothing":                    {"0-5", 0, "", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := Parse(tc.text, tc.limit)
			if got := s.String(); got != tc.want {
				t.Errorf("Parse(%q, %d) = %q, want %q", tc.text, tc.limit, got, tc.want)
			}
			if s.Len() != tc.count {
				t.Errorf("Len = %d, want %d", s.Len(), tc.count)
			}
		})
	}
}

func TestParseStrictRefusesWhatParsePassesOver(t *testing.T) {
	for _, text := range []string{"x", "1,,2", "3-1", "1-", "-1", " 1"} {
		if _, ok := ParseStrict(text); ok {
			t.Errorf("ParseStrict(%q) took it", text)
		}
	}
	s, ok := ParseStrict("0-9")
	if !ok || s.Len() != 10 {
		t.Errorf("ParseStrict(0-9) = %d indexes, %v", s.Len(), ok)
	}
}

// TestAgainstAMap compares every operation with a plain map over random steps.
func TestAgainstAMap(t *testing.T) {
	const space = 60
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s, other Set
		want, wantOther := map[int]bool{}, map[int]bool{}
		for step := range 120 {
			i, j := rng.IntN(space), rng.IntN(space)
			switch rng.IntN(9) {
			case 0, 1:
				if got := s.Add(i); got == want[i] {
					t.Fatalf("seed %d step %d: Add(%d) = %v", seed, step, i, got)
				}
				want[i] = true
			case 2, 3:
				if got := s.Remove(i); got != want[i] {
					t.Fatalf("seed %d step %d: Remove(%d) = %v", seed, step, i, got)
				}
				delete(want, i)
			case 4:
				s.AddRange(i, j)
				for k := i; k <= j; k++ {
					want[k] = true
				}
			case 5:
				other.Add(j)
				wantOther[j] = true
			case 6:
				s.AddSet(&other)
				for k := range wantOther {
					want[k] = true
				}
			case 7:
				s.RemoveSet(&other)
				for k := range wantOther {
					delete(want, k)
				}
			case 8:
				s.Clip(max(i, j))
				for k := range want {
					if k >= max(i, j) {
						delete(want, k)
					}
				}
			}
			check(t, seed, step, &s, want)
			check(t, seed, step, &other, wantOther)
			both := 0
			for k := range want {
				if wantOther[k] {
					both++
				}
			}
			if got := s.CountIn(&other); got != both {
				t.Fatalf("seed %d step %d: CountIn = %d, want %d", seed, step, got, both)
			}
			if got := s.Intersects(&other); got != (both > 0) {
				t.Fatalf("seed %d step %d: Intersects = %v, want %v", seed, step, got, both > 0)
			}
		}
	}
}

func check(t *testing.T, seed uint64, step int, s *Set, want map[int]bool) {
	t.Helper()
	var all, missing, wantAll, wantMissing []int
	for i := range s.All {
		all = append(all, i)
	}
	for i := range s.Missing(70) {
		missing = append(missing, i)
	}
	for i := range 70 {
		if want[i] {
			wantAll = append(wantAll, i)
		} else {
			wantMissing = append(wantMissing, i)
		}
		if s.Has(i) != want[i] {
			t.Fatalf("seed %d step %d: Has(%d) = %v", seed, step, i, s.Has(i))
		}
	}
	if diff := cmp.Diff(wantAll, all); diff != "" {
		t.Fatalf("seed %d step %d: indexes (-want +got):\n%s", seed, step, diff)
	}
	if diff := cmp.Diff(wantMissing, missing); diff != "" {
		t.Fatalf("seed %d step %d: missing (-want +got):\n%s", seed, step, diff)
	}
	if s.Len() != len(want) {
		t.Fatalf("seed %d step %d: Len = %d, want %d", seed, step, s.Len(), len(want))
	}
	again := Parse(s.String(), 1000)
	if !again.Equal(s) {
		t.Fatalf("seed %d step %d: %q reads back as %q", seed, step, s.String(), again.String())
	}
}

func TestMissingStopsWhenAsked(t *testing.T) {
	s := Of(1, 3)
	var got []int
	for i := range s.Missing(1 << 30) {
		if got = append(got, i); len(got) == 3 {
			break
		}
	}
	if want := []int{0, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("first three missing = %v, want %v", got, want)
	}
}

func TestACloneSharesNothing(t *testing.T) {
	s := Range(0, 9)
	c := s.Clone()
	c.Remove(5)
	if !s.Has(5) || c.Has(5) {
		t.Errorf("removing from the clone changed the original: %s, %s", s.String(), c.String())
	}
}
