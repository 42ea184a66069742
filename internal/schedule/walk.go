// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/bits"
	"time"
)

// walk is a search for the next due time as the built-in controller does it: it moves a local clock forward, coarse hand first,
// and starts over whenever a hand passes its end. From the first time that a hand has to move, all finer ones have been set
// back once, and only once; that, and where a clock ends up when its hands are set to a time that does not exist, is why the
// result near a change of the clocks depends on the start.
//
// Between two changes of the clocks the steps of a hand are all alike and are taken in one stride.
//
// Source: robfig/cron v3.0.1, the behaviour of SpecSchedule.Next.
type walk struct {
	s    *Schedule
	zone *time.Location
	t    time.Time // always in zone
	set  bool      // the finer hands have been set back

	from, to time.Time // the stretch around t without a change of the clocks; to is zero where it does not end
	known    bool
}

// run returns the first due time after w.t, or the zero time.
func (w *walk) run() time.Time {
	w.t = w.t.Add(time.Second - time.Duration(w.t.Nanosecond()))
	lastYear := w.t.Year() + searchYears
	for w.t.Year() <= lastYear {
		if w.months() && w.days() && w.hours() && w.minutes() && w.seconds() {
			return w.t
		}
	}
	return time.Time{}
}

// months moves to a month that is wanted. Like those below it returns false when the hand has passed its end, and everything
// must be looked at again.
func (w *walk) months() bool {
	for w.s.month>>uint(w.t.Month())&1 == 0 {
		if !w.set {
			w.set = true
			w.t = time.Date(w.t.Year(), w.t.Month(), 1, 0, 0, 0, 0, w.zone)
		}
		w.t = w.t.AddDate(0, 1, 0)
		if w.t.Month() == time.January {
			return false
		}
	}
	return true
}

func (w *walk) days() bool {
	for !w.s.dayMatches(w.t.Day(), int(w.t.Weekday())) {
		if !w.set {
			w.set = true
			w.t = time.Date(w.t.Year(), w.t.Month(), w.t.Day(), 0, 0, 0, 0, w.zone)
		}
		if w.t.Hour() != 0 || !w.stride(w.daysToGo(), 24*time.Hour, safeDays) {
			w.nextDay()
		}
		if w.t.Day() == 1 {
			return false
		}
	}
	return true
}

// daysToGo returns in how many days comes one that is wanted or the first of a month; 1 at least.
func (w *walk) daysToGo() int {
	year, month, day := w.t.Date()
	n := 1
	for last := daysIn(year, month); day+n <= last; n++ {
		if w.s.dayMatches(day+n, (int(w.t.Weekday())+n)%7) {
			break
		}
	}
	return n
}

// nextDay moves to the same time of the next day, and to midnight if that is no longer the case there.
func (w *walk) nextDay() {
	before := w.t
	w.t = w.t.AddDate(0, 0, 1)
	switch h := w.t.Hour(); {
	case h > 12:
		w.t = w.t.Add(time.Duration(24-h) * time.Hour)
	case h > 0:
		w.t = w.t.Add(-time.Duration(h) * time.Hour)
	}
	if !w.t.After(before) {
		// The next day does not exist, as when Samoa crossed the date line.
		//
		// Differs: upstream never comes back from such a search.
		_, w.t = zoneBounds(before)
	}
}

func (w *walk) hours() bool {
	for w.s.hour>>uint(w.t.Hour())&1 == 0 {
		if !w.set {
			w.set = true
			w.t = time.Date(w.t.Year(), w.t.Month(), w.t.Day(), w.t.Hour(), 0, 0, 0, w.zone)
		}
		if !w.stride(handToGo(w.s.hour, w.t.Hour(), 24), time.Hour, 0) {
			w.t = w.t.Add(time.Hour)
		}
		if w.t.Hour() == 0 {
			return false
		}
	}
	return true
}

func (w *walk) minutes() bool {
	for w.s.minute>>uint(w.t.Minute())&1 == 0 {
		if !w.set {
			w.set = true
			w.t = w.t.Truncate(time.Minute)
		}
		if !w.stride(handToGo(w.s.minute, w.t.Minute(), 60), time.Minute, 0) {
			w.t = w.t.Add(time.Minute)
		}
		if w.t.Minute() == 0 {
			return false
		}
	}
	return true
}

func (w *walk) seconds() bool {
	for w.t.Second() != 0 {
		w.set = true
		if !w.stride(60-w.t.Second(), time.Second, 0) {
			w.t = w.t.Add(time.Second)
		}
		if w.t.Second() == 0 {
			return false
		}
	}
	return true
}

// handToGo returns in how many steps a hand that stands at v comes to a wanted value or passes its end.
func handToGo(wanted uint64, v, end int) int {
	if later := wanted >> uint(v+1) << uint(v+1); later != 0 {
		return bits.TrailingZeros64(later) - v
	}
	return end - v
}

// safeDays is how far from a change of the clocks a midnight certainly comes once only, so that setting the hands to it leads to
// the same instant as waiting for it. No zone has ever been turned back by more than a day.
const safeDays = 25 * time.Hour

// stride takes n steps at once if the clocks do not change on the way nor for some time after it; else it stays where it is and
// returns false.
func (w *walk) stride(n int, step, after time.Duration) bool {
	if !w.known || !w.to.IsZero() && !w.t.Before(w.to) || w.t.Before(w.from) {
		w.from, w.to = zoneBounds(w.t)
		w.known = true
	}
	target := w.t.Add(time.Duration(n) * step)
	if !w.to.IsZero() && !target.Add(after).Before(w.to) {
		return false
	}
	w.t = target
	return true
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case time.April, time.June, time.September, time.November:
		return 30
	default:
		return 31
	}
}
