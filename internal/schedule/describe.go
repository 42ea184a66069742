// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Describe says in words when the schedule is due, such as "at 02:30 on Monday to Friday, Europe/Berlin time".
func (s *Schedule) Describe() string {
	switch {
	case s.every > 0:
		return fmt.Sprintf("every %s, counted from the run before", shortDuration(s.every))
	case !s.possible() || s.neverComes():
		return "never"
	}
	text := s.timesInWords() + s.daysInWords() + s.monthsInWords()
	if s.zone != nil {
		text += ", " + s.zone.String() + " time"
	}
	return text
}

// shortDuration leaves out the parts that are zero: "1h", not "1h0m0s".
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// neverComes reports whether no day of the calendar is wanted, such as 31 February. Fifty years hold every combination of
// dates, weekdays and leap years that the coming centuries have, a 29 February on each weekday included.
func (s *Schedule) neverComes() bool {
	for d := (date{2000, 1, 1}); d.year < 2050; d = d.nextMonth() {
		if s.wantedDays(d) != 0 {
			return false
		}
	}
	return true
}

// maxTimesListed is up to how many times of day are listed one by one.
const maxTimesListed = 6

func (s *Schedule) timesInWords() string {
	hours, minutes := values(s.hour), values(s.minute)
	step := evenStep(minutes, 60)
	switch {
	case len(minutes) == 60 && len(hours) == 24:
		return "every minute"
	case step > 1 && len(hours) == 24:
		return fmt.Sprintf("every %d minutes", step)
	case len(hours) == 24:
		return fmt.Sprintf("at %s of every hour", counted("minute", minutes))
	case len(hours)*len(minutes) <= maxTimesListed:
		var times []string
		for _, h := range hours {
			for _, m := range minutes {
				times = append(times, fmt.Sprintf("%02d:%02d", h, m))
			}
		}
		return "at " + joined(times)
	}
	within := hourRanges(hours)
	switch {
	case len(minutes) == 60:
		return "every minute " + within
	case step > 1:
		return fmt.Sprintf("every %d minutes %s", step, within)
	}
	return fmt.Sprintf("at %s of every hour %s", counted("minute", minutes), within)
}

// hourRanges says which hours of the day: "from 09:00 to 17:59".
func hourRanges(hours []int) string {
	var parts []string
	for i := 0; i < len(hours); {
		j := i
		for j+1 < len(hours) && hours[j+1] == hours[j]+1 {
			j++
		}
		parts = append(parts, fmt.Sprintf("from %02d:00 to %02d:59", hours[i], hours[j]))
		i = j + 1
	}
	return joined(parts)
}

func (s *Schedule) daysInWords() string {
	if s.everyDay() {
		if s.everyHour() {
			return ""
		}
		return " every day"
	}
	byDay := "on " + counted("day", values(s.dom)) + " of the month"
	byWeekday := "on " + runs(values(s.dow), func(v int) string { return time.Weekday(v).String() })
	switch {
	case s.anyDOM || s.anyDOW:
		if s.dow == fullDOW {
			return " " + byDay
		}
		return " " + byWeekday
	case s.dom == 0:
		return " " + byWeekday
	case s.dow == 0:
		return " " + byDay
	}
	return " " + byDay + " and also " + byWeekday
}

func (s *Schedule) monthsInWords() string {
	if s.month == fullMonths {
		return ""
	}
	return " in " + runs(values(s.month), func(v int) string { return time.Month(v).String() })
}

// values returns the numbers whose bits are set, in order.
func values(set uint64) []int {
	v := make([]int, 0, bits.OnesCount64(set))
	for ; set != 0; set &= set - 1 {
		v = append(v, bits.TrailingZeros64(set))
	}
	return v
}

// evenStep returns n if the values are 0, n, 2n, … and the next would be size; else 0.
func evenStep(v []int, size int) int {
	if len(v) < 2 || v[0] != 0 || size%len(v) != 0 {
		return 0
	}
	step := size / len(v)
	for i, n := range v {
		if n != i*step {
			return 0
		}
	}
	return step
}

// counted returns the values behind a noun: "minute 5", "days 1 to 7 and 15".
func counted(noun string, v []int) string {
	if len(v) > 1 {
		noun += "s"
	}
	return noun + " " + runs(v, strconv.Itoa)
}

// runs lists values by name, three or more in a row as "first to last".
func runs(v []int, name func(int) string) string {
	var parts []string
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		if j-i >= 2 {
			parts = append(parts, name(v[i])+" to "+name(v[j]))
			i = j + 1
			continue
		}
		parts = append(parts, name(v[i]))
		i++
	}
	return joined(parts)
}

func joined(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
