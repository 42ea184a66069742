// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/internal/schedule"
)

func mustSchedule(tb testing.TB, expr string) *schedule.Schedule {
	tb.Helper()
	s, err := schedule.Parse(expr, time.LoadLocation)
	if err != nil {
		tb.Fatal(err)
	}
	return s.In(time.UTC)
}

// one is an entry of one due time, and several an entry of more.
func one(due string, o Outcome) Tick { return several(due, due, 1, o) }

func several(from, through string, n int, o Outcome) Tick {
	return Tick{Due: at("2024-05-16 " + from), Through: at("2024-05-16 " + through), Count: n, Outcome: o}
}

func TestALedgerIsTheSameWhenItIsReadAgain(t *testing.T) {
	started := one("10:04:00", Started)
	started.Late, started.Result, started.Took = 1234*time.Millisecond, Replaced, 90*time.Second
	failed := one("10:05:00", FailedStart)
	failed.Detail = "jobs.batch \"cj-…\" is forbidden: 100% of the quota; used"
	edge := several("10:06:00", "10:09:00", 4, MissedAway)
	edge.Edge = true
	for name, tc := range map[string]struct {
		ledger Ledger
		text   string
	}{
		"with nothing in it": {Ledger{}, "1 3f2a9c1e ;"},
		"with everything in it": {
			Ledger{
				Until: at("2024-05-16 10:09:00"), Origin: at("2024-05-16 09:00:00"), Suspended: at("2024-05-16 10:10:00"),
				Floor: at("2024-05-16 09:30:00"), Key: "k3y", Generation: 41, Edge: true,
				Ticks: []Tick{several("10:00:00", "10:02:00", 3, SkippedSuspended), one("10:03:00", Waiting), started, failed, edge},
			},
			"1 3f2a9c1e Asdkpj0 Bsdkmc0 Csdkpko Fsdknq0 Kk3y G15 E1 ; sdkp40PN2U3c 1oW 1oSLyaRNT2i " +
				"1oF:jobs.batch+%22cj-%E2%80%A6%22+is+forbidden%3A+100%25+of+the+quota%3B+used 1oOE1N3U50",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := tc.ledger.Encode(uid)
			back, err := DecodeLedger(text, uid)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if diff := cmp.Diff(tc.ledger, back); diff != "" {
				t.Errorf("read again from %q (-want +got):\n%s", text, diff)
			}
			if text != tc.text {
				t.Errorf("text: got %q, want %q", text, tc.text)
			}
		})
	}
}

func TestWhatIsNoLedgerIsNotRead(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":               "",
		"another version":       "2 3f2a9c1e ;",
		"another CronJob's":     "1 ffffffff ;",
		"no entries":            "1 3f2a9c1e A1",
		"an unknown head":       "1 3f2a9c1e Z1 ;",
		"a head with no value":  "1 3f2a9c1e A ;",
		"a time beyond bounds":  "1 3f2a9c1e Azzzzzzzzzzz ;",
		"an unknown outcome":    "1 3f2a9c1e ; 1oY",
		"no outcome":            "1 3f2a9c1e ; 1o",
		"no due time":           "1 3f2a9c1e ; S",
		"a due time twice":      "1 3f2a9c1e ; 1oS 0S",
		"a due time going back": "1 3f2a9c1e ; 1oS -1S",
		"an unknown part":       "1 3f2a9c1e ; 1oSX1",
		"an unknown result":     "1 3f2a9c1e ; 1oSRX",
		"a result cut off":      "1 3f2a9c1e ; 1oSR",
		"a count without end":   "1 3f2a9c1e ; 1oON3",
		"a bad escape":          "1 3f2a9c1e ; 1oF:%zz",
		"a long detail":         "1 3f2a9c1e ; 1oF:" + strings.Repeat("x", 200),
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := DecodeLedger(text, uid); !errors.Is(err, errLedger) {
				t.Errorf("got %+v, %v", l, err)
			}
		})
	}
}

func FuzzDecodeLedger(f *testing.F) {
	f.Add("1 3f2a9c1e Asdkjto Bsdkgmo Csdkjvc Fsdki00 Kk3y G15 E1 ; sdkjeoPN2U3c 1oW 1oSLyaRNT2i 1oF:x 1oOE1N3U50")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := DecodeLedger(text, uid)
		if err != nil {
			return
		}
		again, err := DecodeLedger(l.Encode(uid), uid)
		if err != nil {
			t.Fatalf("%q encodes as %q: %v", text, l.Encode(uid), err)
		}
		if diff := cmp.Diff(l, again); diff != "" {
			t.Fatalf("%q (-first +second):\n%s", text, diff)
		}
	})
}

func TestOutcomesAreRevisedInPlace(t *testing.T) {
	every := mustSchedule(t, "* * * * *")
	run := several("10:00:00", "10:04:00", 5, MissedAway)
	for name, tc := range map[string]struct {
		before []Tick
		set    Tick
		want   []Tick
		origin string
	}{
		"the last of several": {
			before: []Tick{run},
			set:    one("10:04:00", Started),
			want:   []Tick{several("10:00:00", "10:03:00", 4, MissedAway), one("10:04:00", Started)},
		},
		"the first of several": {
			before: []Tick{run},
			set:    one("10:00:00", Started),
			want:   []Tick{one("10:00:00", Started), several("10:01:00", "10:04:00", 4, MissedAway)},
		},
		"one among several": {
			before: []Tick{run},
			set:    one("10:02:00", Waiting),
			want:   []Tick{several("10:00:00", "10:01:00", 2, MissedAway), one("10:02:00", Waiting), several("10:03:00", "10:04:00", 2, MissedAway)},
		},
		"one that is new": {
			before: []Tick{run}, set: one("10:05:00", Waiting), want: []Tick{run, one("10:05:00", Waiting)},
		},
		"a start is never taken back": {
			before: []Tick{one("10:05:00", Started)}, set: one("10:05:00", MissedLate), want: []Tick{one("10:05:00", Started)},
		},
		"one of the present schedule where it fits between others": {
			before: []Tick{run}, set: one("10:01:30", Started),
			want: []Tick{several("10:00:00", "10:01:00", 2, MissedAway), one("10:01:30", Started), several("10:02:00", "10:04:00", 3, MissedAway)},
		},
		"one among several of a schedule that is forgotten: they are shared out": {
			before: []Tick{run}, set: one("10:02:30", Started), origin: "10:04:00",
			want: []Tick{several("10:00:00", "10:02:29", 3, MissedAway), one("10:02:30", Started), several("10:02:31", "10:04:00", 2, MissedAway)},
		},
		"one at the beginning of several of a schedule that is forgotten": {
			before: []Tick{run}, set: one("10:00:00", Started), origin: "10:04:00",
			want: []Tick{one("10:00:00", Started), several("10:00:01", "10:04:00", 4, MissedAway)},
		},
		"one at the end of several of a schedule that is forgotten": {
			before: []Tick{run}, set: one("10:04:00", Started), origin: "10:04:00",
			want: []Tick{several("10:00:00", "10:03:59", 4, MissedAway), one("10:04:00", Started)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := Ledger{Ticks: append([]Tick(nil), tc.before...)}
			if tc.origin != "" {
				l.Origin = at("2024-05-16 " + tc.origin)
			}
			l.set(every, tc.set)
			if diff := cmp.Diff(tc.want, l.Ticks); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALedgerStaysSmall(t *testing.T) {
	l := Ledger{Ticks: []Tick{
		one("10:00:00", Started), one("10:01:00", Waiting), one("10:02:00", Started), one("10:03:00", MissedAway), one("10:04:00", MissedAway),
		one("10:05:00", MissedLate), one("10:06:00", Started), one("10:07:00", Started),
	}}
	l.trim(4)
	want := []Tick{one("10:01:00", Waiting), one("10:05:00", MissedLate), one("10:06:00", Started), one("10:07:00", Started)}
	if diff := cmp.Diff(want, l.Ticks); diff != "" {
		t.Errorf("what is waiting stays, neighbours alike are joined, the oldest go (-want +got):\n%s", diff)
	}

	l = Ledger{Until: at("2024-05-16 10:00:00"), Key: "abcdefgh"}
	for due := at("2024-05-16 10:00:00"); len(l.Ticks) < 50; due = due.Add(time.Minute) {
		l.Ticks = append(l.Ticks, Tick{Due: due, Through: due, Count: 1, Outcome: Started, Late: 21 * time.Millisecond, Result: Complete, Took: 75 * time.Second})
	}
	if n := len(l.Encode(uid)); n > 700 {
		t.Errorf("50 ordinary entries take %d bytes", n)
	}
}

func TestTwoRecordsOfOneCronJobAreMerged(t *testing.T) {
	ours := Ledger{Until: at("2024-05-16 10:05:00"), Ticks: []Tick{one("10:03:00", MissedAway), one("10:05:00", Started)}}
	theirs := Ledger{Until: at("2024-05-16 10:06:00"), Ticks: []Tick{
		one("10:02:00", Started), one("10:03:00", Started), one("10:05:00", MissedLate), one("10:06:00", Waiting),
	}}
	ours.merge(theirs)
	want := Ledger{Until: at("2024-05-16 10:06:00"), Ticks: []Tick{
		one("10:02:00", Started), one("10:03:00", Started), one("10:05:00", Started), one("10:06:00", Waiting),
	}}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
}

func BenchmarkLedger(b *testing.B) {
	l := Ledger{Until: at("2024-05-16 10:00:00"), Key: "abcdefgh"}
	for due := at("2024-05-16 10:00:00"); len(l.Ticks) < 50; due = due.Add(time.Minute) {
		l.Ticks = append(l.Ticks, Tick{Due: due, Through: due, Count: 1, Outcome: Started, Late: 21 * time.Millisecond, Result: Complete, Took: 75 * time.Second})
	}
	text := l.Encode(uid)
	b.Run("Encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Encode(uid)
		}
	})
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeLedger(text, uid); err != nil {
				b.Fatal(err)
			}
		}
	})
}
