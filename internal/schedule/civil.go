// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/bits"
	"time"
)

// civil is a local time as if there were no zones: the seconds from 1970-01-01 00:00 to what the clock shows. Where the clocks
// do not change, it is Unix time plus a constant, and due times can be found and counted a month at a time.
type civil int64

const (
	daySeconds    = 24 * 60 * 60
	hourSeconds   = 60 * 60
	minuteSeconds = 60
)

// none is later than every local time that is searched for.
const none civil = 1<<63 - 1

// date is a day of the calendar.
type date struct {
	year, month, day int
}

// date returns the day of c. It is the civil-from-days algorithm for years from 1 March, in which a leap day comes last.
func (c civil) date() date {
	days := c.days() + 719468 // since 0000-03-01
	era := floorDiv(days, 146097)
	dayOfEra := days - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	m := (5*dayOfYear + 2) / 153 // 0: March
	d := date{year: int(yearOfEra + era*400), month: int(m) + 3, day: int(dayOfYear-(153*m+2)/5) + 1}
	if d.month > 12 {
		d.month -= 12
		d.year++
	}
	return d
}

// midnight returns the beginning of the day d.
func (d date) midnight() civil {
	year, month := int64(d.year), int64(d.month)
	if month <= 2 {
		year--
		month += 12
	}
	era := floorDiv(year, 400)
	yearOfEra := year - era*400
	dayOfYear := (153*(month-3)+2)/5 + int64(d.day) - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return civil((era*146097 + dayOfEra - 719468) * daySeconds)
}

func (d date) nextMonth() date {
	if d.month == 12 {
		return date{d.year + 1, 1, 1}
	}
	return date{d.year, d.month + 1, 1}
}

func (d date) lastMonth() date {
	if d.month == 1 {
		return date{d.year - 1, 12, 1}
	}
	return date{d.year, d.month - 1, 1}
}

func (c civil) days() int64 { return floorDiv(int64(c), daySeconds) }

// clock returns the seconds since midnight.
func (c civil) clock() int { return int(floorMod(int64(c), daySeconds)) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

// wantedDays returns the days that are wanted in d's month, as a set of bits; bit n is day n.
func (s *Schedule) wantedDays(d date) uint64 {
	if s.month>>uint(d.month)&1 == 0 {
		return 0
	}
	first := d.midnightOfFirst()
	weekday := uint(floorMod(first.days()+4, 7)) // 1970-01-01 was a Thursday
	week := s.dow>>weekday | s.dow<<(7-weekday)  // bit 0: the weekday of the first
	week &= fullDOW
	week |= week<<7 | week<<14 | week<<21 | week<<28
	byWeekday, byDay := week<<1, s.dom
	wanted := byWeekday | byDay
	if s.anyDOM || s.anyDOW {
		wanted = byWeekday & byDay
	}
	return wanted & (1<<uint(daysIn(d.year, time.Month(d.month))+1) - 1) &^ 1
}

func (d date) midnightOfFirst() civil { return date{d.year, d.month, 1}.midnight() }

// timeFrom returns the first wanted time of day, in seconds since midnight, that is clock or later; ok is false when the day
// has none.
func (s *Schedule) timeFrom(clock int) (t int, ok bool) {
	minutes := (clock + minuteSeconds - 1) / minuteSeconds
	hour, minute := minutes/60, minutes%60
	if hour < 24 && s.hour>>uint(hour)&1 != 0 {
		if later := s.minute >> uint(minute) << uint(minute); later != 0 {
			return hour*hourSeconds + bits.TrailingZeros64(later)*minuteSeconds, true
		}
	}
	later := s.hour >> uint(hour+1) << uint(hour+1)
	if later == 0 {
		return 0, false
	}
	return bits.TrailingZeros64(later)*hourSeconds + bits.TrailingZeros64(s.minute)*minuteSeconds, true
}

// timeBefore returns the last wanted time of day before clock; ok is false when the day has none.
func (s *Schedule) timeBefore(clock int) (t int, ok bool) {
	minutes := (clock + minuteSeconds - 1) / minuteSeconds // the first that is too late
	hour, minute := minutes/60, minutes%60
	if s.hour>>uint(hour)&1 != 0 && hour < 24 {
		if earlier := s.minute & (1<<uint(minute) - 1); earlier != 0 {
			return hour*hourSeconds + (bits.Len64(earlier)-1)*minuteSeconds, true
		}
	}
	earlier := s.hour & (1<<uint(hour) - 1)
	if earlier == 0 {
		return 0, false
	}
	return (bits.Len64(earlier)-1)*hourSeconds + (bits.Len64(s.minute)-1)*minuteSeconds, true
}

// timesBefore returns how many wanted times of day lie before clock, which is at most a whole day.
func (s *Schedule) timesBefore(clock int) int {
	minutes := (clock + minuteSeconds - 1) / minuteSeconds
	hour, minute := minutes/60, minutes%60
	n := bits.OnesCount64(s.hour&(1<<uint(hour)-1)) * bits.OnesCount64(s.minute)
	if hour < 24 && s.hour>>uint(hour)&1 != 0 {
		n += bits.OnesCount64(s.minute & (1<<uint(minute) - 1))
	}
	return n
}

// first returns the first wanted local time from c to before end, or none.
func (s *Schedule) first(c, end civil) civil {
	if c >= end {
		return none
	}
	d, clock := c.date(), c.clock()
	for {
		monthStart := d.midnightOfFirst()
		if monthStart >= end {
			return none
		}
		days := s.wantedDays(d)
		days = days >> uint(d.day) << uint(d.day)
		if days>>uint(d.day)&1 != 0 {
			if t, ok := s.timeFrom(clock); ok {
				return within(monthStart+civil((d.day-1)*daySeconds+t), end)
			}
			days &^= 1 << uint(d.day)
		}
		if days != 0 {
			t, _ := s.timeFrom(0)
			return within(monthStart+civil((bits.TrailingZeros64(days)-1)*daySeconds+t), end)
		}
		d, clock = d.nextMonth(), 0
	}
}

func within(c, end civil) civil {
	if c < end {
		return c
	}
	return none
}

// last returns the last wanted local time from c to before end, or none.
func (s *Schedule) last(c, end civil) civil {
	if c >= end {
		return none
	}
	d, clock := end.date(), end.clock()
	for {
		monthStart := d.midnightOfFirst()
		days := s.wantedDays(d)
		days &= 1<<uint(d.day+1) - 1
		if days>>uint(d.day)&1 != 0 {
			if t, ok := s.timeBefore(clock); ok {
				return notBefore(monthStart+civil((d.day-1)*daySeconds+t), c)
			}
			days &^= 1 << uint(d.day)
		}
		if days != 0 {
			t, _ := s.timeBefore(daySeconds)
			return notBefore(monthStart+civil((bits.Len64(days)-2)*daySeconds+t), c)
		}
		if monthStart <= c {
			return none
		}
		d = d.lastMonth()
		d.day, clock = 31, daySeconds
	}
}

func notBefore(c, start civil) civil {
	if c >= start {
		return c
	}
	return none
}

// count returns how many wanted local times there are from c to before end.
func (s *Schedule) count(c, end civil) int {
	if c >= end {
		return 0
	}
	return s.countSince(end, c.date()) - s.countSince(c, c.date())
}

// countSince returns how many wanted local times there are from the beginning of d's month to before end.
func (s *Schedule) countSince(end civil, d date) int {
	perDay := bits.OnesCount64(s.hour) * bits.OnesCount64(s.minute)
	to := end.date()
	n := 0
	for m := (date{d.year, d.month, 1}); m.year < to.year || m.month < to.month; m = m.nextMonth() {
		n += bits.OnesCount64(s.wantedDays(m)) * perDay
	}
	days := s.wantedDays(to)
	n += bits.OnesCount64(days&(1<<uint(to.day)-1)) * perDay
	if days>>uint(to.day)&1 != 0 {
		n += s.timesBefore(end.clock())
	}
	return n
}
