// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"sort"
	"time"
)

// Run sums up the due times of a window.
type Run struct {
	Count       int
	First, Last time.Time // zero when Count is 0
}

func (r *Run) add(n int, first, last time.Time) {
	if r.Count == 0 {
		r.First = first
	}
	r.Count += n
	r.Last = last
}

// Between sums up the due times after after, until until inclusive: the links of the chain Next(after), Next of that, and so
// on. Its last link is thus the most recent due time at or before until. Times are in after's zone.
//
// Whole stretches between changes of the clocks are counted by the calendar, so that years cost microseconds to a few
// milliseconds, whatever the schedule.
func (s *Schedule) Between(after, until time.Time) Run {
	switch {
	case !after.Before(until):
		return Run{}
	case s.every > 0:
		return s.sumOfEvery(after, until)
	case !s.possible():
		return Run{}
	case s.dst != Upstream:
		return s.sumOfSet(after, until)
	}
	zone := s.zoneOf(after)
	var r Run
	for due := s.Next(after); !due.IsZero() && !due.After(until); due = s.Next(r.Last) {
		r.add(1, due, due)
		st := stretchAt(due.Unix(), zone)
		lo, hi := s.calm(st, zone)
		hi = min(hi, until.Unix()+1)
		if u := due.Unix(); u >= lo && u < hi {
			from, to := st.local(u)+1, st.local(hi)
			if last := s.last(from, to); last != none {
				l := at(st.unix(last), after)
				r.add(s.count(from, to), l, l)
			}
		}
	}
	return r
}

// calm returns the part of a stretch in which a walk from one due time to the next meets no hand setting that a change of the
// clocks disturbs, so that the walk finds what the calendar says. It may be empty.
func (s *Schedule) calm(st stretch, zone *time.Location) (from, to int64) {
	if st.offset%minuteSeconds != 0 {
		return 0, 0 // a walk cuts to minutes of UTC
	}
	if s.continuous() {
		return st.from, st.to
	}
	from, to = lastChange(st, zone), st.to
	if from != beginning {
		day := st.local(from).date()
		calmDay := civil((st.local(from).days() + 2) * daySeconds) // the next midnight may come twice
		if first := time.Date(day.year, time.Month(day.month), 1, 0, 0, 0, 0, zone); first.Day() != 1 || first.Hour() != 0 {
			// The month begins with a midnight that does not exist, and a walk that sets the day to 1 goes astray.
			calmDay = max(calmDay, day.nextMonth().midnight()+daySeconds)
		}
		from = max(st.from, st.unix(calmDay))
	}
	if to != end {
		_, next := time.Unix(to, 0).In(zone).Zone()
		to -= max(0, st.offset-int64(next)) // what comes again after it
	}
	return from, to
}

// calmNext returns what a walk from t comes to, if it is certain not to meet a change of the clocks: not within the month whose
// first day the walk may cut to, nor for a day after the result. It is worth a try: far cheaper than the walk, and mostly right.
func (s *Schedule) calmNext(t time.Time, zone *time.Location) (next time.Time, ok bool) {
	const month, day = 33 * daySeconds, 25 * hourSeconds
	u := t.Unix() + 1
	st := stretchAt(u, zone)
	margin := int64(day)
	if s.continuous() {
		margin = 0
	} else if u-month < st.from {
		return time.Time{}, false
	}
	if st.offset%minuteSeconds != 0 {
		return time.Time{}, false
	}
	c := s.first(st.local(u), min(st.local(st.to-margin), st.local(u+366*daySeconds)))
	if c == none {
		return time.Time{}, false
	}
	return at(st.unix(c), t), true
}

// lastChange returns the last instant at or before the beginning of st at which the clocks have really changed, as far as it lies
// less than about a year back.
func lastChange(st stretch, zone *time.Location) int64 {
	from := st.from
	for range 3 {
		if from == beginning || st.before != st.offset {
			break
		}
		st = stretchAt(from-1, zone)
		from = st.from
	}
	return from
}

func (s *Schedule) sumOfEvery(after, until time.Time) Run {
	first := s.Next(after)
	if first.After(until) {
		return Run{}
	}
	n := until.Sub(first) / s.every
	return Run{Count: int(n) + 1, First: first, Last: first.Add(n * s.every)}
}

// Tail returns the last n due times, or all if there are fewer, after after until until inclusive, in order and in after's
// zone.
func (s *Schedule) Tail(after, until time.Time, n int) []time.Time {
	total := s.Between(after, until).Count
	n = min(n, total)
	if n <= 0 {
		return nil
	}
	from := after
	if skip := total - n; skip > 0 {
		// The shortest window that holds all those to skip ends with the last of them.
		seconds := int(until.Sub(after)/time.Second) + 1
		i := sort.Search(seconds, func(i int) bool {
			return s.Between(after, after.Add(time.Duration(i)*time.Second)).Count >= skip
		})
		from = s.Between(after, after.Add(time.Duration(i)*time.Second)).Last
	}
	due := make([]time.Time, 0, n)
	for range n {
		from = s.Next(from)
		due = append(due, from)
	}
	return due
}
