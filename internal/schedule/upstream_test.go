// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
)

// upstreamParse is the parser of the built-in controller; its panics come back as errors.
func upstreamParse(expr string) (s cron.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, errPanic
		}
	}()
	return cron.ParseStandard(expr)
}

var errPanic = cmpError("panic")

type cmpError string

func (e cmpError) Error() string { return string(e) }

func TestNextIsUpstreamsNextInEveryZone(t *testing.T) {
	r, zones := seeded(t), allZones(t)
	for range rounds(t, 8_000) {
		z := zones[r.IntN(len(zones))]
		compareNext(t, randomExpr(r), z, randomInstant(r, z), r.IntN(2) == 0)
	}
}

// compareNext follows both chains of due times for some links.
func compareNext(t *testing.T, expr string, z *time.Location, from time.Time, named bool) {
	t.Helper()
	from = from.In(z)
	if dayLost(z, from) {
		return
	}
	if named { // the zone stands in the expression, and the instants are in another
		expr = "TZ=" + z.String() + " " + expr
		from = from.UTC()
	}
	ours, err := Parse(expr, time.LoadLocation)
	if err != nil {
		t.Fatalf("parsing %q: %v", expr, err)
	}
	theirs, err := upstreamParse(expr)
	if err != nil {
		t.Fatalf("upstream: parsing %q: %v", expr, err)
	}
	at := from
	for range 4 {
		want, got := theirs.Next(at), ours.Next(at)
		if !want.IsZero() && !want.After(at) { // upstream has gone round in a circle
			if !got.After(at) {
				t.Fatalf("%q in %v: Next(%v) is %v, which is not after it", expr, z, at, got)
			}
			return
		}
		if !want.Equal(got) || want.Location() != got.Location() {
			t.Fatalf("%q in %v: Next(%v)\n got %v\nwant %v", expr, z, at, got, want)
		}
		if want.IsZero() {
			return
		}
		at = want
	}
}

func TestParsingRefusesWhatUpstreamRefusesInTheSameWords(t *testing.T) {
	pieces := []string{
		"*", "?", "0", "5", "59", "60", "31", "12", "7", "6", "-", "/", ",", ",,", "*/0", "*/5", "1-5", "5-1", "1-2-3", "1/2/3",
		"L", "W", "#", "jan", "MON", "Dec", "sunday", "+5", "-5", "*-7", "?-x", "*-1-2-3", "5/", "/5", "01", "99999999999999999999",
		"0/9223372036854775807", "@daily", "@every 5m", "@every", "@every 0s", "@every -5s", "@every 1500ms", "@every  5m", "@Daily",
		"@reboot", "TZ=UTC", "CRON_TZ=Europe/Berlin", "TZ=", "TZ=Nowhere/Land", "TZ=Local", "tz=UTC", " ", "\t", "\u2003", "",
		"ſun", "1-", "*/1", "*/61", "0-59", "1-31", "1-12", "0-6", "0-23",
	}
	r := seeded(t)
	for range rounds(t, 20_000) {
		n := 1 + r.IntN(7)
		words := make([]string, n)
		for i := range words {
			words[i] = pieces[r.IntN(len(pieces))]
			if r.IntN(4) == 0 {
				words[i] += pieces[r.IntN(len(pieces))]
			}
			if n == 5 && r.IntN(2) == 0 {
				words[i] = "*"
			}
		}
		compareParse(t, strings.Join(words, " "))
	}
}

func compareParse(t *testing.T, expr string) {
	t.Helper()
	theirs, theirErr := upstreamParse(expr)
	ours, ourErr := Parse(expr, time.LoadLocation)
	if theirErr != nil {
		if ourErr == nil {
			t.Fatalf("%q is accepted; upstream says: %v", expr, theirErr)
		}
		if !errors.Is(theirErr, errPanic) && theirErr.Error() != ourErr.Error() {
			t.Fatalf("%q:\n got %v\nwant %v", expr, ourErr, theirErr)
		}
		return
	}
	if ourErr != nil {
		t.Fatalf("%q is refused: %v", expr, ourErr)
	}
	const starBit = 1 << 63
	type mask struct {
		Minute, Hour, Dom, Month, Dow uint64
		Every                         time.Duration
	}
	var want mask
	switch s := theirs.(type) {
	case *cron.SpecSchedule:
		want = mask{Minute: s.Minute &^ starBit, Hour: s.Hour &^ starBit, Dom: s.Dom, Month: s.Month &^ starBit, Dow: s.Dow}
	case cron.ConstantDelaySchedule:
		want = mask{Every: s.Delay}
	}
	got := mask{ours.minute, ours.hour, ours.dom, ours.month, ours.dow, ours.every}
	if ours.anyDOM {
		got.Dom |= starBit
	}
	if ours.anyDOW {
		got.Dow |= starBit
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q (-upstream +ours):\n%s", expr, diff)
	}
}
