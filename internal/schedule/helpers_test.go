// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine
)

// zoneNames are those of the IANA database as Go ships it.
//
//go:embed testdata/zones.txt
var zoneNames string

// restlessZones change their clocks at odd times or by odd amounts: half an hour, a day, at midnight, on the first of a month,
// twice a year around Ramadan, or with offsets that are no whole hours.
var restlessZones = []string{
	"Australia/Lord_Howe", "Asia/Beirut", "America/Sao_Paulo", "Pacific/Apia", "Africa/Casablanca", "Africa/El_Aaiun",
	"America/Havana", "America/Asuncion", "America/Santiago", "Asia/Amman", "Asia/Damascus", "Asia/Gaza", "Asia/Tehran",
	"Africa/Cairo", "America/St_Johns", "Asia/Kathmandu", "America/Caracas", "Asia/Pyongyang", "Antarctica/Troll",
	"Europe/Dublin", "Europe/Volgograd", "America/Scoresbysund", "America/Nuuk", "Pacific/Kiritimati", "Pacific/Kwajalein",
	"Pacific/Norfolk", "Pacific/Chatham", "Atlantic/Azores", "Africa/Monrovia", "Asia/Dhaka", "Europe/London",
}

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return z
}

// allZones returns every zone of the database, restless ones several times.
func allZones(tb testing.TB) []*time.Location {
	tb.Helper()
	names := strings.Fields(zoneNames)
	for range 8 {
		names = append(names, restlessZones...)
	}
	zones := make([]*time.Location, len(names))
	for i, name := range names {
		zones[i] = zone(tb, name)
	}
	return zones
}

func mustParse(tb testing.TB, expr string) *Schedule {
	tb.Helper()
	s, err := Parse(expr, time.LoadLocation)
	if err != nil {
		tb.Fatalf("parsing %q: %v", expr, err)
	}
	return s
}

// seeded returns a source whose seed is told when the test fails, and taken from DROVER_SEED when that is set.
func seeded(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("DROVER_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			tb.Fatalf("reading DROVER_SEED: %v", err)
		}
		seed = n
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("run again with DROVER_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// rounds returns how often a random test goes round: n, or as often as DROVER_ROUNDS says.
func rounds(tb testing.TB, n int) int {
	tb.Helper()
	if text := os.Getenv("DROVER_ROUNDS"); text != "" {
		many, err := strconv.Atoi(text)
		if err != nil {
			tb.Fatalf("reading DROVER_ROUNDS: %v", err)
		}
		return many
	}
	return n
}

// randomField makes up one field of an expression; most are plain, some odd.
func randomField(r *rand.Rand, b bounds) string {
	n := func() int { return b.min + r.IntN(b.max-b.min+1) }
	one := func() string {
		switch r.IntN(10) {
		case 0, 1, 2:
			return strconv.Itoa(n())
		case 3:
			return fmt.Sprintf("%d/%d", n(), 1+r.IntN(b.max))
		case 4:
			lo, hi := n(), n()
			return fmt.Sprintf("%d-%d", min(lo, hi), max(lo, hi))
		case 5:
			lo, hi := n(), n()
			return fmt.Sprintf("%d-%d/%d", min(lo, hi), max(lo, hi), 1+r.IntN(7))
		case 6:
			return fmt.Sprintf("*/%d", 1+r.IntN(b.max+5))
		case 7:
			if b.names != nil {
				return strings.ToUpper(b.names[r.IntN(len(b.names))])
			}
			return strconv.Itoa(n())
		case 8:
			return fmt.Sprintf("%d-%d", b.min, b.max)
		}
		return [...]string{"*", "?", "*/1", "?-9"}[r.IntN(4)]
	}
	if r.IntN(3) == 0 {
		return "*"
	}
	items := make([]string, 1+r.IntN(3)*r.IntN(2))
	for i := range items {
		items[i] = one()
	}
	return strings.Join(items, ",")
}

// randomExpr makes up a valid expression of five fields.
func randomExpr(r *rand.Rand) string {
	fields := []string{
		randomField(r, bounds{0, 59, nil}),
		randomField(r, bounds{0, 23, nil}),
		randomField(r, bounds{1, 31, nil}),
		randomField(r, bounds{1, 12, monthNames[:]}),
		randomField(r, bounds{0, 6, dayNames[:]}),
	}
	if r.IntN(2) == 0 {
		fields[3] = "*" // otherwise most schedules are far too sparse to meet a change of the clocks
	}
	if r.IntN(2) == 0 {
		fields[0] = strconv.Itoa(r.IntN(60))
		fields[1] = strconv.Itoa(r.IntN(5)) // clocks mostly change at night
	}
	return strings.Join(fields, " ")
}

// randomInstant makes up an instant from 1970 to 2060, one in ten from 1850 on; half of them lie within some days before or one
// after a change of the clocks.
func randomInstant(r *rand.Rand, z *time.Location) time.Time {
	sec := r.Int64N(90 * 365 * 86400)
	if r.IntN(10) == 0 {
		sec -= r.Int64N(120 * 365 * 86400)
	}
	t := time.Unix(sec, r.Int64N(2)*r.Int64N(1e9)).In(z)
	if _, change := t.ZoneBounds(); !change.IsZero() && r.IntN(2) == 0 {
		t = change.Add(time.Duration(r.Int64N(4*86400)-3*86400) * time.Second)
	}
	if r.IntN(4) == 0 {
		t = t.Truncate(time.Minute)
	}
	return t
}

// dayLost reports whether z has lost a day, or the better part of one, in the seven years from t on: in Samoa, say, or when an
// Antarctic station opened. Upstream's search may never come back from that.
func dayLost(z *time.Location, t time.Time) bool {
	last := t.AddDate(7, 0, 0).Unix()
	for u := t.AddDate(0, -1, 0).Unix(); u < last; {
		st := stretchAt(u, z)
		if st.offset-st.before >= 6*hourSeconds {
			return true
		}
		u = st.to
	}
	return false
}
