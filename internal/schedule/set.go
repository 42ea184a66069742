// SPDX-License-Identifier: Apache-2.0

package schedule

import "time"

// stretch is the time between two changes of a zone's clocks.
type stretch struct {
	from, to int64 // Unix seconds; to is not part of it
	offset   int64 // local minus UTC, in seconds
	before   int64 // the offset of the stretch before; the same as offset where there is none
}

// The ends of time for a zone that never changes.
const (
	beginning = -1 << 62
	end       = 1<<62 - 1
)

// stretchAt returns the stretch that holds the instant. A stretch may end where nothing changes, as at the end of a year.
func stretchAt(unix int64, zone *time.Location) stretch {
	t := time.Unix(unix, 0).In(zone)
	_, offset := t.Zone()
	from, to := zoneBounds(t)
	st := stretch{from: beginning, to: end, offset: int64(offset), before: int64(offset)}
	if !from.IsZero() {
		st.from = from.Unix()
		_, before := from.Add(-1).Zone()
		st.before = int64(before)
	}
	if !to.IsZero() {
		st.to = to.Unix()
	}
	return st
}

// zoneBounds is t.ZoneBounds, whose end is always after t. The one of the standard library ends a zone that is described by a
// rule with the 365th day of the year, so that for the last day of leap years it lies in the past (Go 1.26).
func zoneBounds(t time.Time) (from, to time.Time) {
	from, to = t.ZoneBounds()
	if !to.IsZero() && !to.After(t) {
		to = time.Unix(t.Unix()-floorMod(t.Unix(), daySeconds)+daySeconds, 0).In(t.Location())
	}
	return from, to
}

// local returns what the clock shows at an instant of the stretch.
func (st stretch) local(unix int64) civil { return civil(unix + st.offset) }

// unix is the inverse of local.
func (st stretch) unix(c civil) int64 { return int64(c) - st.offset }

// opens returns from which instant of the stretch on local times count: its beginning, or when the clock has caught up with
// what it has shown before.
func (s *Schedule) opens(st stretch) int64 {
	if repeated := st.before - st.offset; repeated > 0 && !s.dst.repeats() && !s.everyHour() {
		return st.from + repeated
	}
	return st.from
}

// makesUpAt reports whether the beginning of the stretch is due because it removes local times that were.
func (s *Schedule) makesUpAt(st stretch) bool {
	if st.before >= st.offset || !s.dst.makesUp() || s.everyHour() {
		return false
	}
	return s.first(civil(st.from+st.before), civil(st.from+st.offset)) != none
}

// setYears is for how many calendar years a set is searched: the longest gap is that of 29 February around 2100.
const setYears = 8

// nextInSet is Next under the modes in which due times are a set.
func (s *Schedule) nextInSet(t time.Time, zone *time.Location) time.Time {
	limit := date{t.In(zone).Year() + setYears + 1, 1, 1}.midnight()
	for u := t.Unix() + 1; ; {
		st := stretchAt(u, zone)
		if u == st.from && s.makesUpAt(st) {
			return at(u, t)
		}
		if c := s.first(st.local(max(u, s.opens(st))), min(st.local(st.to), limit)); c != none {
			return at(st.unix(c), t)
		}
		if st.local(st.to) >= limit {
			return time.Time{}
		}
		u = st.to
	}
}

// sumOfSet is Between under the modes in which due times are a set.
func (s *Schedule) sumOfSet(after, until time.Time) Run {
	zone := s.zoneOf(after)
	var r Run
	stop := until.Unix() + 1
	for u := after.Unix() + 1; u < stop; {
		st := stretchAt(u, zone)
		lo, hi := max(u, s.opens(st)), min(st.to, stop)
		if u == st.from && s.makesUpAt(st) {
			r.add(1, at(u, after), at(u, after))
			lo = max(lo, u+1) // it may be due by itself too, which is the same due time
		}
		if c := s.first(st.local(lo), st.local(hi)); c != none {
			last := s.last(c, st.local(hi))
			r.add(s.count(c, st.local(hi)), at(st.unix(c), after), at(st.unix(last), after))
		}
		u = st.to
	}
	return r
}

// at returns the instant in the zone of t.
func at(unix int64, t time.Time) time.Time { return time.Unix(unix, 0).In(t.Location()) }
