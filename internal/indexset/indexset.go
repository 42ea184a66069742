// SPDX-License-Identifier: Apache-2.0

// Package indexset holds sets of completion indexes and reads and writes the text form in which a Job's status keeps them,
// such as "0,2-4,7,8".
//
// A set is kept as ascending runs, so that its cost follows the number of gaps and not the number of indexes: a Job that has
// completed 0 to 99,999 is one run. The package decides nothing; start reading at Set.
//
// Source of the text form: Kubernetes v1.37, status.completedIndexes and status.failedIndexes of batch/v1 Job.
package indexset

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Set is a set of non-negative indexes. The zero value is empty and ready to use. It is not safe for concurrent use when one
// of the users changes it.
type Set struct {
	runs  []run // ascending, never touching each other
	count int
}

// run is the indexes first to last, both included.
type run struct{ first, last int }

func (r run) length() int { return r.last - r.first + 1 }

// Of returns the set of the given indexes.
func Of(indexes ...int) Set {
	var s Set
	for _, i := range indexes {
		s.Add(i)
	}
	return s
}

// Range returns the set of first to last, both included; it is empty when last is below first.
func Range(first, last int) Set {
	var s Set
	s.AddRange(first, last)
	return s
}

// Parse reads a set from its text form and keeps only indexes below limit.
//
// It is as tolerant as Kubernetes: a fragment that is no number or no ascending interval is passed over, reading stops at the
// first interval that begins at limit or beyond, and intervals that touch are joined.
func Parse(text string, limit int) Set {
	var s Set
	for text != "" {
		var fragment string
		fragment, text, _ = strings.Cut(text, ",")
		first, last, ok := parseInterval(fragment)
		if !ok {
			continue
		}
		if first >= limit {
			break
		}
		s.AddRange(first, min(last, limit-1))
	}
	return s
}

// ParseStrict reads a set from its text form and reports whether every fragment of it was well formed. An empty text is an
// empty set and well formed.
func ParseStrict(text string) (Set, bool) {
	var s Set
	for text != "" {
		fragment, rest, _ := strings.Cut(text, ",")
		first, last, ok := parseInterval(fragment)
		if !ok {
			return Set{}, false
		}
		s.AddRange(first, last)
		text = rest
	}
	return s, true
}

func parseInterval(fragment string) (first, last int, ok bool) {
	from, to, isInterval := strings.Cut(fragment, "-")
	first, err := strconv.Atoi(from)
	if err != nil || first < 0 {
		return 0, 0, false
	}
	if !isInterval {
		return first, first, true
	}
	last, err = strconv.Atoi(to)
	if err != nil || last < first {
		return 0, 0, false
	}
	return first, last, true
}

// String returns the text form: ascending, a run of three or more as "a-b", two neighbours as "a,b", "" for an empty set.
func (s *Set) String() string {
	var b []byte
	for n, r := range s.runs {
		if n > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(r.first), 10)
		switch {
		case r.length() == 2:
			b = append(b, ',')
		case r.length() > 2:
			b = append(b, '-')
		default:
			continue
		}
		b = strconv.AppendInt(b, int64(r.last), 10)
	}
	return string(b)
}

// Len returns the number of indexes in s.
func (s *Set) Len() int { return s.count }

// Has reports whether i is in s.
func (s *Set) Has(i int) bool {
	n := s.runEndingAtOrAfter(i)
	return n < len(s.runs) && s.runs[n].first <= i
}

// Add puts i into s and reports whether it was missing. Negative indexes are passed over.
func (s *Set) Add(i int) bool {
	if i < 0 {
		return false
	}
	n := s.runEndingAtOrAfter(i - 1) // the first run that holds i, touches it, or lies beyond it
	if n < len(s.runs) && s.runs[n].first <= i && i <= s.runs[n].last {
		return false
	}
	touchesLeft := n < len(s.runs) && s.runs[n].last == i-1
	right := n
	if touchesLeft {
		right++
	}
	touchesRight := right < len(s.runs) && s.runs[right].first == i+1
	switch {
	case touchesLeft && touchesRight:
		s.runs[n].last = s.runs[right].last
		s.runs = slices.Delete(s.runs, right, right+1)
	case touchesLeft:
		s.runs[n].last = i
	case touchesRight:
		s.runs[right].first = i
	default:
		s.runs = slices.Insert(s.runs, n, run{i, i})
	}
	s.count++
	return true
}

// AddRange puts first to last, both included, into s.
func (s *Set) AddRange(first, last int) {
	first = max(first, 0)
	if last < first {
		return
	}
	from := s.runEndingAtOrAfter(first - 1)
	to := from
	for to < len(s.runs) && s.runs[to].first <= satInc(last) {
		first, last = min(first, s.runs[to].first), max(last, s.runs[to].last)
		s.count -= s.runs[to].length()
		to++
	}
	s.runs = slices.Replace(s.runs, from, to, run{first, last})
	s.count += last - first + 1
}

// satInc returns i+1, or i where that would overflow.
func satInc(i int) int {
	if i == math.MaxInt {
		return i
	}
	return i + 1
}

// Remove takes i out of s and reports whether it was there.
func (s *Set) Remove(i int) bool {
	n := s.runEndingAtOrAfter(i)
	if n == len(s.runs) || i < s.runs[n].first {
		return false
	}
	r := s.runs[n]
	var left []run
	if r.first < i {
		left = append(left, run{r.first, i - 1})
	}
	if i < r.last {
		left = append(left, run{i + 1, r.last})
	}
	s.runs = slices.Replace(s.runs, n, n+1, left...)
	s.count--
	return true
}

// Clip takes every index at or above limit out of s.
func (s *Set) Clip(limit int) {
	n := s.runEndingAtOrAfter(limit)
	if n == len(s.runs) {
		return
	}
	for _, r := range s.runs[n:] {
		s.count -= r.length()
	}
	kept := run{s.runs[n].first, limit - 1}
	s.runs = s.runs[:n]
	if kept.first <= kept.last {
		s.runs = append(s.runs, kept)
		s.count += kept.length()
	}
}

// AddSet puts every index of other into s, in time linear in the runs of both.
func (s *Set) AddSet(other *Set) {
	if len(other.runs) == 0 {
		return
	}
	merged := Set{runs: make([]run, 0, len(s.runs)+len(other.runs))}
	a, b := s.runs, other.runs
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].first < b[0].first {
			merged.joinRun(a[0])
			a = a[1:]
		} else {
			merged.joinRun(b[0])
			b = b[1:]
		}
	}
	*s = merged
}

// joinRun adds a run that begins at or beyond the first index of the last one.
func (s *Set) joinRun(r run) {
	if n := len(s.runs) - 1; n >= 0 && r.first <= satInc(s.runs[n].last) {
		if r.last > s.runs[n].last {
			s.count += r.last - s.runs[n].last
			s.runs[n].last = r.last
		}
		return
	}
	s.appendRun(r.first, r.last)
}

// RemoveSet takes every index of other out of s.
func (s *Set) RemoveSet(other *Set) {
	if len(other.runs) == 0 || len(s.runs) == 0 {
		return
	}
	var kept Set
	o := 0
	for _, r := range s.runs {
		for o < len(other.runs) && other.runs[o].last < r.first {
			o++
		}
		first := r.first
		for k := o; k < len(other.runs) && other.runs[k].first <= r.last; k++ {
			kept.appendRun(first, other.runs[k].first-1)
			first = other.runs[k].last + 1
		}
		kept.appendRun(first, r.last)
	}
	*s = kept
}

// appendRun adds a run beyond every other one.
func (s *Set) appendRun(first, last int) {
	if first <= last {
		s.runs = append(s.runs, run{first, last})
		s.count += last - first + 1
	}
}

// Clone returns a copy that shares nothing with s.
func (s *Set) Clone() Set { return Set{runs: slices.Clone(s.runs), count: s.count} }

// Equal reports whether both sets hold the same indexes.
func (s *Set) Equal(other *Set) bool { return slices.Equal(s.runs, other.runs) }

// Intersects reports whether an index is in both sets.
func (s *Set) Intersects(other *Set) bool {
	a, b := s.runs, other.runs
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].last < b[0].first:
			a = a[1:]
		case b[0].last < a[0].first:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

// CountIn returns how many indexes of other are in s.
func (s *Set) CountIn(other *Set) int {
	n := 0
	a, b := s.runs, other.runs
	for len(a) > 0 && len(b) > 0 {
		n += max(0, min(a[0].last, b[0].last)-max(a[0].first, b[0].first)+1)
		if a[0].last < b[0].last {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return n
}

// All calls yield for every index in ascending order until it returns false.
func (s *Set) All(yield func(int) bool) {
	for _, r := range s.runs {
		for i := r.first; i <= r.last; i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// Missing calls yield for every index from 0 to below limit that is not in s, in ascending order, until it returns false.
func (s *Set) Missing(limit int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		next := 0
		for n := 0; n <= len(s.runs); n++ {
			end := limit
			if n < len(s.runs) {
				end = min(limit, s.runs[n].first)
			}
			for ; next < end; next++ {
				if !yield(next) {
					return
				}
			}
			if n < len(s.runs) {
				next = s.runs[n].last + 1
			}
		}
	}
}

// runEndingAtOrAfter returns the position of the first run whose last index is i or more, or len(s.runs).
func (s *Set) runEndingAtOrAfter(i int) int {
	n, _ := slices.BinarySearchFunc(s.runs, i, func(r run, i int) int {
		if r.last < i {
			return -1
		}
		if r.last > i {
			return 1
		}
		return 0
	})
	return n
}
