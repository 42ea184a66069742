// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"
)

// Schedule is an expression that was read by Parse. It is immutable and may be shared by any number of goroutines.
type Schedule struct {
	expr string // as given, without the prefix that names a zone

	minute, hour, month uint64 // bit n: the value n is wanted
	dom, dow            uint64
	anyDOM, anyDOW      bool // the star mark, which joins the two day fields with "and" instead of "or"

	every time.Duration // whole seconds; not 0: "@every", and nothing above counts

	zone     *time.Location // nil: the zone of the instant that a method is given
	ownZone  bool           // zone was named by the expression
	zoneName string         // the prefix of the expression that names a zone, "" without one
	dst      DST
}

// DST says what becomes of local times that a change of the clocks removes or repeats.
type DST uint8

// The rules for changes of the clocks. Schedules that want every hour of the day follow elapsed time under all of them, and
// "@every" knows no clock at all.
const (
	// Upstream is what the built-in controller does: removed times are skipped, repeated ones mostly fire twice.
	Upstream DST = iota
	// Once fires every local time once: a removed one when the clock has jumped, a repeated one the first time.
	Once
	// Skip fires no local time that does not exist, and a repeated one the first time only.
	Skip
	// Both fires a removed time when the clock has jumped, and a repeated one both times.
	Both

	// asShown is Upstream without the accidents of its search: due is whenever the clock shows a wanted time.
	asShown
)

func (d DST) String() string {
	switch d {
	case Upstream:
		return "upstream"
	case Once:
		return "once"
	case Skip:
		return "skip"
	case Both:
		return "both"
	case asShown:
		return "as shown"
	}
	return "unknown"
}

// repeats reports whether the second occurrence of a local time counts.
func (d DST) repeats() bool { return d == Upstream || d == Both || d == asShown }

// makesUp reports whether a local time that does not exist fires when the clock has jumped.
func (d DST) makesUp() bool { return d == Once || d == Both }

// searchYears is for how many calendar years after its start a search goes on.
//
// Source: robfig/cron v3.0.1.
const searchYears = 5

// In returns the same schedule read in that zone; nil stands for the zone of the instants given to its methods. A zone that
// the expression names itself stays.
func (s *Schedule) In(zone *time.Location) *Schedule {
	if s.ownZone {
		return s
	}
	c := *s
	c.zone = zone
	return &c
}

// WithDST returns the same schedule under another rule for changes of the clocks.
func (s *Schedule) WithDST(d DST) *Schedule {
	c := *s
	c.dst = d
	return &c
}

// String returns the expression without the prefix that names a zone.
func (s *Schedule) String() string { return s.expr }

// Zone returns the zone in which the schedule is read, or nil when it is that of the instants given to its methods.
func (s *Schedule) Zone() *time.Location { return s.zone }

// Every returns the period of an "@every" schedule, in whole seconds, and 0 for every other.
func (s *Schedule) Every() time.Duration { return s.every }

// Next returns the first due time strictly after t, in t's zone. It is the zero time when the five calendar years after t's
// have none.
//
// It does not allocate. Source: robfig/cron v3.0.1, unless the schedule has another rule for changes of the clocks.
func (s *Schedule) Next(t time.Time) time.Time {
	if s.every > 0 {
		return t.Add(s.every - time.Duration(t.Nanosecond()))
	}
	if !s.possible() {
		return time.Time{}
	}
	zone := s.zoneOf(t)
	if s.dst != Upstream {
		return s.nextInSet(t, zone)
	}
	if next, ok := s.calmNext(t, zone); ok {
		return next
	}
	for from := t.In(zone); ; from = from.Add(time.Minute) {
		w := walk{s: s, zone: zone, t: from}
		if next := w.run(); next.IsZero() {
			return time.Time{}
		} else if next.After(t) {
			return next.In(t.Location())
		}
		// A clock that is turned back while the minute hand moves can lead to where the walk began, as in St John's, where it
		// was done at one past midnight until 2011. Within a day the way out is found.
		//
		// Differs: upstream returns t, and its controller then holds the schedule for invalid.
	}
}

func (s *Schedule) zoneOf(t time.Time) *time.Location {
	if s.zone != nil {
		return s.zone
	}
	return t.Location()
}

// possible reports whether each field has a value at all, so that a search need not try every minute of five years. A list of
// nothing but commas has none.
func (s *Schedule) possible() bool {
	return s.minute != 0 && s.hour != 0 && s.month != 0 && s.dom|s.dow != 0
}

// continuous reports whether the schedule wants every hour of every day, so that it never looks further than the minute hand
// and no change of the clocks concerns it.
func (s *Schedule) continuous() bool {
	return s.everyHour() && s.month == fullMonths && s.everyDay()
}

// everyHour reports whether the schedule wants every hour of its days.
func (s *Schedule) everyHour() bool { return s.hour == fullHours }

func (s *Schedule) everyDay() bool {
	if s.anyDOM || s.anyDOW {
		return s.dom == fullDOM && s.dow == fullDOW
	}
	return s.dom == fullDOM || s.dow == fullDOW
}

// dayMatches reports whether a day of the month that falls on that weekday (0: Sunday) is wanted.
func (s *Schedule) dayMatches(day, weekday int) bool {
	dom, dow := s.dom>>day&1 != 0, s.dow>>weekday&1 != 0
	if s.anyDOM || s.anyDOW {
		return dom && dow
	}
	return dom || dow
}

const (
	fullMinutes = 1<<60 - 1
	fullHours   = 1<<24 - 1
	fullDOM     = 1<<32 - 1<<1
	fullMonths  = 1<<13 - 1<<1
	fullDOW     = 1<<7 - 1
)
