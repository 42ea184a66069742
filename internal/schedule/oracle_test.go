// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// oracle says, minute by minute of real time and knowing nothing of calendars but what package time tells, when a schedule is
// due under a mode in which due times are a set; and under Upstream, when the clock shows a wanted time. It holds for zones
// whose clocks differ from UTC by whole minutes.
type oracle struct {
	s    *Schedule
	zone *time.Location
}

// between returns the due times after after until until inclusive.
func (o oracle) between(after, until time.Time) []time.Time {
	var due []time.Time
	// What the clock has shown before it was turned back: up to here, local times are repeats.
	var shown time.Time
	start := after.Add(-49 * time.Hour).Truncate(time.Minute)
	last := wallOf(start.In(o.zone))
	for at := start.Add(time.Minute); !at.After(until); at = at.Add(time.Minute) {
		wall := wallOf(at.In(o.zone))
		madeUp := false
		switch step := wall.Sub(last); {
		case step < time.Minute:
			shown = last.Add(time.Minute)
		case step > time.Minute:
			shown = time.Time{}
			for gone := last.Add(time.Minute); gone.Before(wall); gone = gone.Add(time.Minute) {
				madeUp = madeUp || o.wants(gone)
			}
		}
		last = wall
		isRepeat := wall.Before(shown)
		everyHour := o.s.hour == fullHours
		wanted := o.wants(wall) && (everyHour || o.s.dst.repeats() || !isRepeat) || madeUp && o.s.dst.makesUp() && !everyHour
		if wanted && at.After(after) {
			due = append(due, at.In(after.Location()))
		}
	}
	return due
}

// wants looks at what the clock shows, field by field.
func (o oracle) wants(wall time.Time) bool {
	has := func(bits uint64, v int) bool { return bits&(1<<uint(v)) != 0 }
	day, weekday := has(o.s.dom, wall.Day()), has(o.s.dow, int(wall.Weekday()))
	days := day || weekday
	if o.s.anyDOM || o.s.anyDOW {
		days = day && weekday
	}
	return has(o.s.minute, wall.Minute()) && has(o.s.hour, wall.Hour()) && has(o.s.month, int(wall.Month())) && days
}

// wallOf returns what the clock shows at t as if it were UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

func TestDueTimesAreThoseOfAClockWatchedMinuteByMinute(t *testing.T) {
	r, zones := seeded(t), allZones(t)
	for range rounds(t, 300) {
		z := zones[r.IntN(len(zones))]
		after := randomInstant(r, z)
		if after.Year() < 1973 { // Monrovia was the last to keep odd seconds
			continue
		}
		until := after.Add(time.Duration(r.Int64N(6*86400)) * time.Second)
		s := mustParse(t, randomExpr(r)).In(z).WithDST(DST(1 + r.IntN(3)))
		if r.IntN(4) == 0 { // no change of the clocks nearby: the built-in controller agrees with everybody
			if changesNear(z, after.AddDate(0, 0, -32), until) {
				continue
			}
			s = s.WithDST(Upstream)
		}
		want := oracle{s, z}.between(after, until)
		var got []time.Time
		for at := s.Next(after); !at.IsZero() && !at.After(until); at = s.Next(at) {
			got = append(got, at)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q in %v, %v, from %v to %v (-watched +got):\n%s", s, z, s.dst, after, until, diff)
		}
		if got := s.Between(after, until).Count; got != len(want) {
			t.Fatalf("%q in %v, %v, from %v to %v: counted %d, watched %d", s, z, s.dst, after, until, got, len(want))
		}
	}
}

func changesNear(z *time.Location, from, until time.Time) bool {
	for u := from.Unix(); u < until.Unix(); {
		st := stretchAt(u, z)
		if st.from > from.Unix() && st.before != st.offset {
			return true
		}
		u = st.to
	}
	return false
}
