// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Zones finds a time zone by its name in the IANA database, as time.LoadLocation does: "" and "UTC" are UTC, "Local" is the zone
// of the process.
type Zones func(name string) (*time.Location, error)

// ErrNoZones says that an expression names a time zone where none can be looked up.
var ErrNoZones = errors.New("schedule: no time zones are known here")

// Parse reads an expression of five fields or a descriptor, with an optional prefix TZ=<zone> or CRON_TZ=<zone>, which zones
// looks up; with nil zones such a prefix is an error that wraps ErrNoZones. The result is read in the zone of the instants given
// to it unless the prefix, or In, names one.
//
// Texts of errors are those of robfig/cron v3.0.1, which the API server shows its users, where that package has one; its panic
// on a prefix without a blank is an ordinary error here.
func Parse(expr string, zones Zones) (*Schedule, error) {
	if expr == "" {
		return nil, errors.New("empty spec string")
	}
	s := &Schedule{expr: expr}
	if strings.HasPrefix(expr, "TZ=") || strings.HasPrefix(expr, "CRON_TZ=") {
		prefix, rest, ok := strings.Cut(expr, " ")
		if !ok {
			return nil, fmt.Errorf("invalid schedule format: %q names a time zone and nothing after it", expr)
		}
		_, name, _ := strings.Cut(prefix, "=")
		zone, err := load(zones, name)
		if err != nil {
			return nil, fmt.Errorf("provided bad location %s: %w", name, err)
		}
		if zone.String() != "Local" { // the only zone of that name is the one that the process is in
			s.zone, s.ownZone = zone, true
		}
		s.zoneName = prefix
		s.expr = strings.TrimSpace(rest)
	}
	if strings.HasPrefix(s.expr, "@") {
		return s, s.describedBy(s.expr)
	}
	fields := strings.Fields(s.expr)
	if len(fields) != 5 {
		return nil, fmt.Errorf("expected exactly 5 fields, found %d: %s", len(fields), fields)
	}
	var err error
	for i, f := range [5]struct {
		bits *uint64
		star *bool
		b    bounds
	}{
		{&s.minute, nil, bounds{0, 59, nil}},
		{&s.hour, nil, bounds{0, 23, nil}},
		{&s.dom, &s.anyDOM, bounds{1, 31, nil}},
		{&s.month, nil, bounds{1, 12, monthNames[:]}},
		{&s.dow, &s.anyDOW, bounds{0, 6, dayNames[:]}},
	} {
		var star bool
		if *f.bits, star, err = list(fields[i], f.b); err != nil {
			return nil, err
		}
		if f.star != nil {
			*f.star = star
		}
	}
	return s, nil
}

func load(zones Zones, name string) (*time.Location, error) {
	if zones == nil {
		return nil, ErrNoZones
	}
	return zones(name)
}

// descriptors are short names for expressions.
var descriptors = [...]struct{ name, fields string }{
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
}

// everyPrefix begins a descriptor that counts elapsed time.
const everyPrefix = "@every "

func (s *Schedule) describedBy(name string) error {
	for _, d := range descriptors {
		if d.name == name {
			same, err := Parse(d.fields, nil)
			if err != nil {
				return err
			}
			same.expr, same.zone, same.ownZone, same.zoneName = s.expr, s.zone, s.ownZone, s.zoneName
			*s = *same
			return nil
		}
	}
	if text, ok := strings.CutPrefix(name, everyPrefix); ok {
		period, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("failed to parse duration %s: %w", name, err)
		}
		s.every = max(period.Truncate(time.Second), time.Second)
		return nil
	}
	return fmt.Errorf("unrecognized descriptor: %s", name)
}

// bounds is what one field may hold.
type bounds struct {
	min, max int
	names    []string // of the values from min on, in lower case
}

var (
	monthNames = [...]string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	dayNames   = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// list reads a field: items with commas between them, where empty items are passed over. star says that one of them carries
// the star mark.
func list(field string, b bounds) (bits uint64, star bool, err error) {
	for text := range strings.SplitSeq(field, ",") {
		if text == "" {
			continue
		}
		i, err := readItem(text, b)
		if err != nil {
			return 0, false, err
		}
		bits |= i.bits()
		star = star || i.star
	}
	return bits, star, nil
}

// item is one entry of a field: the values from first to last, step apart.
type item struct {
	first, last, step int
	star              bool // "*" or "?" without a step above 1
	wild              bool // "*" or "?"
	open              bool // "N/S": last is the field's greatest value
}

func (i item) bits() uint64 {
	var bits uint64
	for v := i.first; v <= i.last; v += i.step {
		bits |= 1 << v
	}
	return bits
}

// readItem reads "*", "?", "N" or "A-B", each with or without "/S". What stands after a hyphen behind a star is not looked at.
func readItem(text string, b bounds) (item, error) {
	parts := strings.Split(text, "/")
	ends := strings.Split(parts[0], "-")
	var i item
	var err error
	if ends[0] == "*" || ends[0] == "?" {
		i.first, i.last = b.min, b.max
		i.star, i.wild = true, true
	} else {
		if i.first, err = value(ends[0], b); err != nil {
			return item{}, err
		}
		switch len(ends) {
		case 1:
			i.last = i.first
		case 2:
			if i.last, err = value(ends[1], b); err != nil {
				return item{}, err
			}
		default:
			return item{}, fmt.Errorf("too many hyphens: %s", text)
		}
	}
	switch len(parts) {
	case 1:
		i.step = 1
	case 2:
		if i.step, err = number(parts[1]); err != nil {
			return item{}, err
		}
		if len(ends) == 1 {
			i.last = b.max
			i.open = !i.wild
		}
		if i.step > 1 {
			i.star = false
		}
	default:
		return item{}, fmt.Errorf("too many slashes: %s", text)
	}
	switch {
	case i.first < b.min:
		return item{}, fmt.Errorf("beginning of range (%d) below minimum (%d): %s", i.first, b.min, text)
	case i.last > b.max:
		return item{}, fmt.Errorf("end of range (%d) above maximum (%d): %s", i.last, b.max, text)
	case i.first > i.last:
		return item{}, fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", i.first, i.last, text)
	case i.step == 0:
		return item{}, fmt.Errorf("step of range should be a positive number: %s", text)
	}
	i.step = min(i.step, b.max+1) // so that adding it cannot overflow
	return i, nil
}

func value(text string, b bounds) (int, error) {
	lower := strings.ToLower(text)
	for n, name := range b.names {
		if name == lower {
			return b.min + n, nil
		}
	}
	return number(text)
}

// number reads a whole number; like its model it takes a leading plus sign.
func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s: %w", text, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, text)
	}
	return n, nil
}
