// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Trap is a kind of surprise that an expression can hold. Its text is stable, for machines.
type Trap string

// The traps that Lint knows.
const (
	TrapNever       Trap = "never"         // no day of the calendar fits
	TrapDayOrDay    Trap = "day-or-day"    // both day fields are restricted, and either is enough
	TrapHerd        Trap = "herd"          // due at the full hour, like most of the world
	TrapUnevenStep  Trap = "uneven-step"   // a step that does not divide its field
	TrapShortMonths Trap = "short-months"  // a day that not every month has
	TrapGap         Trap = "clock-gap"     // local times that a change of the clocks removes
	TrapRepeat      Trap = "clock-repeat"  // local times that a change of the clocks repeats
	TrapLost        Trap = "clock-lost"    // times that exist, and are lost near a change of the clocks
	TrapAstray      Trap = "clock-astray"  // runs at times that the schedule does not name, near a change of the clocks
	TrapSubMinute   Trap = "sub-minute"    // more often than once a minute
	TrapElapsed     Trap = "elapsed-time"  // "@every" follows the last run, not the clock
	TrapIgnored     Trap = "ignored-text"  // part of the expression has no effect
	TrapZoneInside  Trap = "zone-in-field" // a prefix TZ= or CRON_TZ=
)

// Warning is a trap that an expression runs into.
type Warning struct {
	Trap Trap
	Text string // one or two sentences: what happens, and what to write instead where that can be said
}

// Lint returns the traps that the schedule holds; those that lie in changes of the clocks from from on until until, in its own
// zone or, without one, in from's. The order is fixed: grammar first, then by date.
func (s *Schedule) Lint(from, until time.Time) []Warning {
	var l lint
	if s.zoneName != "" {
		l.warn(TrapZoneInside, "%s in a schedule is refused by the API server; set spec.timeZone instead.", s.zoneName)
	}
	if s.every > 0 {
		l.every(s)
		return l.found
	}
	fields := strings.Fields(s.expr)
	if len(fields) == 5 {
		l.ignored(fields)
		l.steps(fields)
	}
	if !s.possible() || s.neverComes() {
		l.warn(TrapNever, "No day of the calendar fits: this never runs, and is reported as an invalid schedule.")
		return l.found
	}
	if len(fields) == 5 {
		l.dayOrDay(s, fields)
	}
	l.shortMonths(s)
	l.herd(s)
	l.clocks(s, from, until)
	return l.found
}

type lint struct{ found []Warning }

func (l *lint) warn(t Trap, format string, args ...any) {
	l.found = append(l.found, Warning{t, fmt.Sprintf(format, args...)})
}

func (l *lint) every(s *Schedule) {
	l.warn(TrapElapsed, "Counted from the run before, or from the creation, and not by the clock: the runs keep no time of day.")
	if s.every < time.Minute {
		l.warn(TrapSubMinute, "Jobs are named by the minute they are due in, so at most one a minute starts.")
	}
	if text := strings.TrimPrefix(s.expr, everyPrefix); text != "" {
		if asked, err := time.ParseDuration(text); err == nil && asked != s.every {
			l.warn(TrapIgnored, "%s is taken as %s: whole seconds, and one at least.", text, shortDuration(s.every))
		}
	}
}

var fieldNames = [...]string{"minute", "hour", "day of month", "month", "day of week"}

// ignored finds what stands behind a star's hyphen, which nobody reads.
func (l *lint) ignored(fields []string) {
	for i, field := range fields {
		for text := range strings.SplitSeq(field, ",") {
			head, _, _ := strings.Cut(text, "/")
			star, tail, hyphen := strings.Cut(head, "-")
			if hyphen && (star == "*" || star == "?") {
				l.warn(TrapIgnored, "In the field %s, %q is read as %q: what follows the hyphen, %q, has no effect.", fieldNames[i], text, star, tail)
			}
		}
		if strings.Trim(field, ",") == "" {
			l.warn(TrapIgnored, "The field %s has no value.", fieldNames[i])
		}
	}
}

// steps finds steps that do not divide their field, so that the last interval is shorter than the others.
func (l *lint) steps(fields []string) {
	for i, b := range [...]bounds{{0, 59, nil}, {0, 23, nil}, {1, 31, nil}, {1, 12, monthNames[:]}, {0, 6, dayNames[:]}} {
		size := b.max - b.min + 1
		for text := range strings.SplitSeq(fields[i], ",") {
			it, err := readItem(text, b)
			if err != nil || it.step == 1 || !it.wild && !it.open {
				continue
			}
			last := it.first + (it.last-it.first)/it.step*it.step
			rest := b.max - last + 1 + it.first - b.min
			switch {
			case last == it.first && it.step >= size:
				l.warn(TrapUnevenStep, "In the field %s, %q steps beyond the end: it means just %d.", fieldNames[i], text, it.first)
			case i == 2:
				l.warn(TrapUnevenStep, "In the field %s, %q starts again on day %d of every month: intervals differ with the length of the month.", fieldNames[i], text, it.first)
			case rest != it.step:
				l.warn(TrapUnevenStep, "In the field %s, %q starts again at %d: from %d to %d it is %d, not %d.", fieldNames[i], text, it.first, last, it.first, rest, it.step)
			}
		}
	}
}

func (l *lint) dayOrDay(s *Schedule, fields []string) {
	if s.anyDOM || s.anyDOW {
		return
	}
	text := "Both day fields are restricted, and a day that fits either of them is due: " + strings.TrimSpace(s.daysInWords()) + "."
	if s.everyDay() {
		text = "Both day fields are restricted, a day that fits either of them is due, and together that is every day."
	}
	if strings.Contains(fields[2], "*/") || strings.Contains(fields[4], "*/") {
		text += " A star with a step above 1 counts as a restriction."
	}
	l.warn(TrapDayOrDay, "%s For days that fit both, test for one of them in the Job itself.", text)
}

func (l *lint) shortMonths(s *Schedule) {
	if s.dom == fullDOM || !s.anyDOM && !s.anyDOW && s.dow != 0 {
		return // other days make up for it
	}
	first := bits.TrailingZeros64(s.dom)
	if first < 29 {
		return
	}
	var without []string
	for _, m := range values(s.month) {
		if days := daysIn(2024, time.Month(m)); days < first {
			without = append(without, time.Month(m).String())
		} else if m == 2 {
			without = append(without, "February of ordinary years")
		}
	}
	if len(without) > 0 {
		l.warn(TrapShortMonths, "No run in %s: there is no day %d. For the last day of each month run on days 28 to 31 and test for it in the Job itself.", joined(without), first)
	}
}

func (l *lint) herd(s *Schedule) {
	if s.minute != 1 {
		return
	}
	when := "every full hour"
	if s.hour == 1 {
		when = "midnight"
	} else if !s.everyHour() {
		when = "a full hour"
	}
	l.warn(TrapHerd, "Due at %s, when most schedules of the world are. Another minute, or the annotation drover.dev/spread, keeps this out of the crowd.", when)
}

// clocks goes through the changes of the clocks.
func (l *lint) clocks(s *Schedule, from, until time.Time) {
	if s.everyHour() && s.everyDay() {
		return
	}
	zone := s.zoneOf(from)
	for u := from.Unix(); u < until.Unix(); {
		st := stretchAt(u, zone)
		if st.from >= from.Unix() && st.before != st.offset {
			l.change(s, st, zone)
		}
		u = st.to
	}
}

// change says what one change of the clocks does to the schedule.
func (l *lint) change(s *Schedule, st stretch, zone *time.Location) {
	const shortly, soon = 26 * time.Hour, 50 * time.Hour
	change := time.Unix(st.from, 0).In(zone)
	before, after := civil(st.from+st.before), civil(st.from+st.offset)
	on := fmt.Sprintf("On %s the clocks of %s go from %s to %s", change.Add(-1).Format(time.DateOnly), zone, before.hhmm(), after.hhmm())

	start := change.Add(-shortly) // or the due time before, from which the search goes on
	if r := s.Between(change.Add(-40*24*time.Hour), start); r.Count > 0 {
		start = r.Last
	}
	due := s.chain(start, change.Add(soon))
	shown := s.WithDST(asShown).chain(start, change.Add(soon))

	if first := s.first(before, after); first != none && !s.everyHour() {
		times := s.listed(before, after)
		switch {
		case s.dst.makesUp():
			l.warn(TrapGap, "%s: %s does not exist, and the run starts at %s instead.", on, times, after.hhmm())
		default:
			l.warn(TrapGap, "%s: %s does not exist, and there is no run.", on, times)
		}
	}
	if s.first(after, before) != none && !s.everyHour() {
		times := s.listed(after, before)
		window := before - after
		n := s.count(after, before)
		twice := 0
		for _, t := range due {
			if t.Unix() >= st.from-int64(window) && t.Unix() < st.from+int64(window) {
				twice++
			}
		}
		if twice > n {
			l.warn(TrapRepeat, "%s: %s comes twice, and runs twice.", on, times)
		} else {
			l.warn(TrapRepeat, "%s: %s comes twice, and runs once.", on, times)
		}
	}
	if s.dst != Upstream {
		return
	}
	for _, t := range shown {
		isRepeat := t.Unix() >= st.from && st.local(t.Unix()) < before
		if !isRepeat && !slices.ContainsFunc(due, t.Equal) {
			l.warn(TrapLost, "%s: upstream's search skips over %s.", on, t.In(zone).Format("2006-01-02 15:04"))
		}
	}
	for _, t := range due {
		if !slices.ContainsFunc(shown, t.Equal) {
			l.warn(TrapAstray, "%s: upstream's search goes astray and runs at %s.", on, t.In(zone).Format("2006-01-02 15:04"))
		}
	}
}

// chain returns the due times after after until until, at most some thousand of them.
func (s *Schedule) chain(after, until time.Time) []time.Time {
	var due []time.Time
	for t := s.Next(after); !t.IsZero() && !t.After(until) && len(due) < 6000; t = s.Next(t) {
		due = append(due, t)
	}
	return due
}

// listed tells the wanted local times from c to before end, the first of many.
func (s *Schedule) listed(c, end civil) string {
	var times []string
	for c = s.first(c, end); c != none && len(times) < 3; c = s.first(c+1, end) {
		times = append(times, c.hhmm())
	}
	if c != none {
		return times[0] + " (one of several)"
	}
	return joined(times)
}

func (c civil) hhmm() string {
	clock := c.clock()
	return fmt.Sprintf("%02d:%02d", clock/hourSeconds, clock%hourSeconds/minuteSeconds)
}
