// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/schedule"
)

// LedgerAnnotation is where a CronJob keeps its ledger. The API server lets a write to /status change it, so that the ledger
// travels with the status at no cost of its own.
const LedgerAnnotation = "drover.dev/ledger"

// Ledger is the record of a CronJob's due times: what became of each, and what must be remembered across restarts to go on with
// it.
type Ledger struct {
	// Until says that every due time up to here is in Ticks, or was until it grew too old for them.
	Until time.Time
	// Origin is after when due times follow from Key; what lies before stems from other schedules. Zero: from the beginning.
	Origin time.Time
	// Floor is when the schedule was last seen to be edited or resumed under on-edit: future-only; zero: never.
	Floor time.Time
	// Suspended is since when the CronJob is known to be suspended; zero: it is not.
	Suspended time.Time
	// Key stands for the schedule that due times after Until follow from.
	Key string
	// Edge says that the next entry is the first of another schedule than those before.
	Edge bool
	// Generation is that of the CronJob when the ledger was last changed.
	Generation int64

	Ticks []Tick // by due time, none twice
}

// Tick is what became of a due time, or of several in a row to which the same happened.
type Tick struct {
	Due     time.Time
	Through time.Time // the last of Count due times, the same as Due where that is 1
	Count   int
	Edge    bool // not to be joined with the entry before: the schedule has changed, or a due time of another one may come between

	Outcome Outcome
	Detail  string // of the outcome, see there; at most maxDetail bytes

	// Where the outcome is Started:
	Late   time.Duration // from when the start was wanted; negative: unknown
	Result Result        // of the Job
	Took   time.Duration // from the Job's creation to its end, in whole seconds
}

// Outcome says what became of a due time.
type Outcome byte

// The outcomes. Only Started is final for ever; the others can still become Started while theirs is the newest due time or they
// wait in a queue.
const (
	Started          Outcome = 'S' // Detail: the Job's name where it is not the usual one
	Waiting          Outcome = 'W' // to be started; Detail: the name of a Job that is in the way
	SkippedActive    Outcome = 'A' // Detail: the name of the Job that was still active
	SkippedSuspended Outcome = 'P'
	SkippedEdited    Outcome = 'E' // the schedule was edited before the start
	SkippedMinute    Outcome = 'M' // a Job was started for another due time of the same minute
	SkippedLimit     Outcome = 'Q' // too many due times were waiting
	SkippedElsewhere Outcome = 'X' // the status says that it was dealt with, and the ledger knows nothing of it
	MissedAway       Outcome = 'O' // the controller was away
	MissedDeadline   Outcome = 'D' // startingDeadlineSeconds was over
	MissedLate       Outcome = 'L' // the next due time came before the start
	FailedStart      Outcome = 'F' // Detail: the error
)

// open reports whether the due time is still to be started.
func (o Outcome) open() bool { return o == Waiting }

// maxDetail bounds what an entry can say beyond its outcome.
const maxDetail = 96

// at returns the index of the entry that holds the due time, or where it belongs, and whether it is there.
func (l *Ledger) at(due time.Time) (int, bool) {
	return slices.BinarySearchFunc(l.Ticks, due, func(t Tick, due time.Time) int {
		switch {
		case t.Through.Before(due):
			return -1
		case t.Due.After(due):
			return 1
		}
		return 0
	})
}

// find returns the entry that holds the due time, or nil. For an entry of several due times it is right by range only.
func (l *Ledger) find(due time.Time) *Tick {
	if i, ok := l.at(due); ok {
		return &l.Ticks[i]
	}
	return nil
}

// started reports whether a Job was started for the due time.
func (l *Ledger) started(due time.Time) bool {
	t := l.find(due)
	return t != nil && t.Outcome == Started
}

// lastStart returns the newest due time that was started, or the zero time.
func (l *Ledger) lastStart() time.Time {
	for i := len(l.Ticks) - 1; i >= 0; i-- {
		if l.Ticks[i].Outcome == Started {
			return l.Ticks[i].Due
		}
	}
	return time.Time{}
}

// isolate makes an entry of its own for a due time that is part of one of several, and returns it, or nil if the ledger does not
// have the due time. s is the schedule from which due times follow at present.
func (l *Ledger) isolate(s *schedule.Schedule, due time.Time) *Tick {
	i, ok := l.at(due)
	if !ok {
		return nil
	}
	if !due.After(l.Origin) {
		s = nil
	}
	l.cut(s, i, due)
	i, ok = l.at(due)
	if !ok {
		return nil // not a due time of that entry
	}
	l.cut(s, i, due.Add(-1))
	if i, ok = l.at(due); !ok || l.Ticks[i].Count != 1 {
		return nil
	}
	return &l.Ticks[i]
}

// cut divides entry i into the due times up to at and those after it, where there are both.
func (l *Ledger) cut(s *schedule.Schedule, i int, at time.Time) {
	t := l.Ticks[i]
	if s == nil || t.Count == 1 || at.Before(t.Due) || !at.Before(t.Through) {
		return
	}
	last, n := t.Due, 1
	if head := s.Between(t.Due, at); head.Count > 0 {
		last, n = head.Last, 1+head.Count
	}
	next := s.Next(last)
	if n >= t.Count || next.IsZero() || next.After(t.Through) {
		return // the entry stems from another schedule
	}
	head, tail := t, t
	head.Through, head.Count = last, n
	tail.Due, tail.Count, tail.Edge = next, t.Count-n, false
	l.Ticks[i] = head
	l.Ticks = slices.Insert(l.Ticks, i+1, tail)
}

// set records an outcome for a due time, in place of what is known of it. It never takes back that a Job was started.
func (l *Ledger) set(s *schedule.Schedule, t Tick) {
	t.Count, t.Through = 1, t.Due
	t.Detail = clip(t.Detail)
	if old := l.isolate(s, t.Due); old != nil {
		if old.Outcome == Started && t.Outcome != Started {
			return
		}
		t.Edge = old.Edge
		*old = t
		return
	}
	i, taken := l.at(t.Due)
	if taken {
		i = l.wedge(i, t.Due)
	}
	l.Ticks = slices.Insert(l.Ticks, i, t)
}

// wedge makes room for a due time inside entry i, which stems from another schedule that is not known any more, and returns its
// place. The due times of the entry are shared out by the time they cover, and a second is left on both sides.
func (l *Ledger) wedge(i int, due time.Time) int {
	t := l.Ticks[i]
	head, tail := t, t
	tail.Edge = false
	head.Through, tail.Due = due.Add(-time.Second), due.Add(time.Second)
	hasHead, hasTail := !head.Through.Before(t.Due), !tail.Due.After(t.Through)
	part := float64(due.Sub(t.Due)) / float64(t.Through.Sub(t.Due))
	head.Count = min(max(1, int(float64(t.Count)*part)), t.Count-1)
	tail.Count = t.Count - head.Count
	switch {
	case !hasHead:
		tail.Count = t.Count - 1
		l.Ticks[i] = tail.sound()
		return i
	case !hasTail:
		head.Count = t.Count - 1
		l.Ticks[i] = head.sound()
		return i + 1
	}
	l.Ticks[i] = head.sound()
	l.Ticks = slices.Insert(l.Ticks, i+1, tail.sound())
	return i + 1
}

// sound returns t with bounds that fit its count.
func (t Tick) sound() Tick {
	if t.Count == 1 {
		t.Through = t.Due
	} else if t.Through.Equal(t.Due) {
		t.Count = 1
	}
	return t
}

// add records a run of due times that are later than all others.
func (l *Ledger) add(run schedule.Run, o Outcome, detail string) {
	if run.Count > 0 {
		l.Ticks = append(l.Ticks, Tick{
			Due: run.First, Through: run.Last, Count: run.Count, Edge: l.Edge, Outcome: o, Detail: clip(detail),
		})
		l.Edge = false
	}
}

// noteGone records that a Job was deleted by somebody before it ended.
func (l *Ledger) noteGone(cronJob, job string) {
	for i := range l.Ticks {
		if t := &l.Ticks[i]; t.Outcome == Started && t.Result == Running && JobName(cronJob, t.Due) == job {
			t.Result = Gone
		}
	}
}

func clip(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	return strings.ToValidUTF8(text[:maxDetail-len("…")], "") + "…"
}

// trim joins neighbours with the same outcome, and drops the oldest entries beyond size.
func (l *Ledger) trim(size int) {
	kept := l.Ticks[:0]
	for _, t := range l.Ticks {
		if n := len(kept); n > 0 && kept[n-1].joins(t) {
			kept[n-1].Through = t.Through
			kept[n-1].Count += t.Count
			continue
		}
		kept = append(kept, t)
	}
	l.Ticks = kept
	for i := 0; len(l.Ticks) > size && i < len(l.Ticks); {
		if l.Ticks[i].Outcome.open() {
			i++ // what is still to be started is not forgotten
			continue
		}
		l.Ticks = slices.Delete(l.Ticks, i, i+1)
	}
}

func (t Tick) joins(next Tick) bool {
	return !next.Edge && t.Outcome == next.Outcome && t.Detail == next.Detail && t.Outcome != Started
}

// merge takes over entries of another record of the same CronJob: those it lacks, and starts that it does not know of.
func (l *Ledger) merge(other Ledger) {
	for _, t := range other.Ticks {
		i, ok := l.at(t.Due)
		switch {
		case ok && t.Outcome == Started && l.Ticks[i].Count == 1 && l.Ticks[i].Outcome != Started:
			l.Ticks[i] = t
		case ok, i < len(l.Ticks) && !t.Through.Before(l.Ticks[i].Due):
			// Known, or overlapping what is known.
		default:
			l.Ticks = slices.Insert(l.Ticks, i, t)
		}
	}
	if l.Until.Before(other.Until) {
		l.Until = other.Until
	}
	l.Origin, l.Floor = later(l.Origin, other.Origin), later(l.Floor, other.Floor)
}

// bare reports whether the ledger says nothing that does not follow from the CronJob and its Jobs as they are stored, so that it
// need not be written for its own sake.
func (l *Ledger) bare(c *CronJob) bool {
	return l.Origin.IsZero() && l.Floor.IsZero() && l.Suspended.IsZero() && !slices.ContainsFunc(l.Ticks, func(t Tick) bool {
		return t.Outcome != Started || t.Due.After(c.Status.LastSchedule)
	})
}

// clone returns a copy that shares nothing.
func (l Ledger) clone() Ledger {
	l.Ticks = slices.Clone(l.Ticks)
	return l
}

// errLedger says that a text is not the ledger of the CronJob in question.
var errLedger = errors.New("no ledger of this CronJob")

// ledgerVersion is the first word of the text. Another version is not read.
const ledgerVersion = "1"

// Encode returns the ledger as text, about a dozen bytes for an ordinary entry: words with blanks between them. The first two
// are the version and the first characters of the CronJob's UID. Those of the head follow, then a semicolon and the entries. A
// word of the head is a letter and a value: A Until, B Origin, C Suspended, F Floor,
// G Generation, K Key, E Edge. An entry is the seconds from the
// last due time before, the outcome's letter, and parts that are a letter and a value each, left out where they say nothing: E
// Edge, N Count less one and U the seconds from Due to Through, L Late in milliseconds, R the first letter of Result, T Took in seconds,
// and last a colon and Detail, escaped as in a URL. Numbers are in base 36; times are seconds since 1970.
func (l Ledger) Encode(uid types.UID) string {
	b := make([]byte, 0, 64+16*len(l.Ticks))
	word := func(letter byte, v int64) {
		b = append(b, ' ', letter)
		b = strconv.AppendInt(b, v, 36)
	}
	b = append(b, ledgerVersion+" "...)
	b = append(b, mark(uid)...)
	for _, h := range [...]struct {
		letter byte
		at     time.Time
	}{{'A', l.Until}, {'B', l.Origin}, {'C', l.Suspended}, {'F', l.Floor}} {
		if !h.at.IsZero() {
			word(h.letter, h.at.Unix())
		}
	}
	if l.Key != "" {
		b = append(b, " K"+l.Key...)
	}
	if l.Generation != 0 {
		word('G', l.Generation)
	}
	if l.Edge {
		word('E', 1)
	}
	b = append(b, " ;"...)
	last := int64(0)
	part := func(letter byte, v int64) {
		if v != 0 {
			b = append(b, letter)
			b = strconv.AppendInt(b, v, 36)
		}
	}
	for _, t := range l.Ticks {
		b = append(b, ' ')
		b = strconv.AppendInt(b, t.Due.Unix()-last, 36)
		b = append(b, byte(t.Outcome))
		if t.Edge {
			part('E', 1)
		}
		part('N', int64(t.Count)-1)
		part('U', t.Through.Unix()-t.Due.Unix())
		part('L', t.Late.Milliseconds())
		if t.Result != Running {
			b = append(b, 'R', resultLetter(t.Result))
		}
		part('T', int64(t.Took/time.Second))
		if t.Detail != "" {
			b = append(b, ':')
			b = append(b, url.QueryEscape(t.Detail)...)
		}
		last = t.Through.Unix()
	}
	return string(b)
}

// mark tells ledgers of different CronJobs apart, should one be copied with all its annotations.
func mark(uid types.UID) string {
	text := strings.ReplaceAll(string(uid), " ", "-")
	return text[:min(len(text), 8)]
}

func resultLetter(r Result) byte {
	if r == Replaced {
		return 'N' // for the next one
	}
	return r[0]
}

func resultOf(letter byte) (Result, bool) {
	for _, r := range [...]Result{Complete, Failed, Replaced, Gone} {
		if resultLetter(r) == letter {
			return r, true
		}
	}
	return Running, false
}

// DecodeLedger reads what Encode wrote for the CronJob with that UID. It fails for every other text, and never with part of a
// ledger.
func DecodeLedger(text string, uid types.UID) (Ledger, error) {
	version, rest, _ := strings.Cut(text, " ")
	owner, rest, _ := strings.Cut(rest, " ")
	if version != ledgerVersion || owner != mark(uid) {
		return Ledger{}, errLedger
	}
	var l Ledger
	for {
		word, after, more := strings.Cut(rest, " ")
		rest = after
		if word == ";" {
			break
		}
		if err := l.decodeHead(word); err != nil {
			return Ledger{}, err
		}
		if !more {
			return Ledger{}, fmt.Errorf("reading a ledger: %w: it has no entries", errLedger)
		}
	}
	if rest == "" {
		return l, nil
	}
	last := int64(0)
	l.Ticks = make([]Tick, 0, 1+strings.Count(rest, " "))
	for rest != "" {
		word, after, _ := strings.Cut(rest, " ")
		rest = after
		t, err := decodeTick(word, last)
		if err != nil {
			return Ledger{}, err
		}
		last = t.Through.Unix()
		l.Ticks = append(l.Ticks, t)
	}
	return l, nil
}

func (l *Ledger) decodeHead(word string) error {
	if len(word) < 2 {
		return fmt.Errorf("reading %q of a ledger: %w", word, errLedger)
	}
	letter, value := word[0], word[1:]
	if letter == 'K' {
		l.Key = value
		return nil
	}
	n, err := strconv.ParseInt(value, 36, 64)
	if err != nil || n > maxUnix || n < 0 {
		return fmt.Errorf("reading %q of a ledger: %w", word, errLedger)
	}
	switch letter {
	case 'A':
		l.Until = time.Unix(n, 0).UTC()
	case 'B':
		l.Origin = time.Unix(n, 0).UTC()
	case 'C':
		l.Suspended = time.Unix(n, 0).UTC()
	case 'F':
		l.Floor = time.Unix(n, 0).UTC()
	case 'G':
		l.Generation = n
	case 'E':
		l.Edge = n == 1
	default:
		return fmt.Errorf("reading %q of a ledger: %w", word, errLedger)
	}
	return nil
}

// maxUnix bounds times in a ledger: the end of the year 9999.
const maxUnix = 253402300799

// decodeTick reads an entry; last is the due time before it.
func decodeTick(word string, last int64) (Tick, error) {
	bad := func() (Tick, error) { return Tick{}, fmt.Errorf("reading entry %q of a ledger: %w", word, errLedger) }
	head, detail, _ := strings.Cut(word, ":")
	delta, head, err := leadingNumber(head)
	if err != nil || head == "" || delta < 0 || delta > maxUnix || last+delta > maxUnix || last > 0 && delta == 0 {
		return bad()
	}
	t := Tick{Due: time.Unix(last+delta, 0).UTC(), Count: 1, Outcome: Outcome(head[0])}
	t.Through = t.Due
	if strings.IndexByte("SWAPEMQXODLF", head[0]) < 0 {
		return bad()
	}
	for head = head[1:]; head != ""; {
		letter := head[0]
		head = head[1:]
		if letter == 'R' {
			var ok bool
			if head == "" {
				return bad()
			}
			if t.Result, ok = resultOf(head[0]); !ok {
				return bad()
			}
			head = head[1:]
			continue
		}
		var v int64
		if v, head, err = leadingNumber(head); err != nil || v > maxUnix || v < 0 && letter != 'L' {
			return bad()
		}
		switch letter {
		case 'E':
			t.Edge = v == 1
		case 'N':
			t.Count = int(v) + 1
		case 'U':
			t.Through = time.Unix(min(last+delta+v, maxUnix), 0).UTC()
		case 'L':
			t.Late = time.Duration(max(v, -1000)) * time.Millisecond
		case 'T':
			t.Took = time.Duration(min(v, int64(1e9))) * time.Second
		default:
			return bad()
		}
	}
	if (t.Count > 1) != t.Through.After(t.Due) {
		return bad()
	}
	if detail == "" {
		return t, nil
	}
	if t.Detail, err = url.QueryUnescape(detail); err != nil || len(t.Detail) > maxDetail {
		return bad()
	}
	return t, nil
}

// leadingNumber reads the number in base 36, in lower case, that a text begins with.
func leadingNumber(text string) (n int64, rest string, err error) {
	i, sign := 0, int64(1)
	if text != "" && text[0] == '-' {
		i, sign = 1, -1
	}
	digits := i
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			n = n*36 + int64(c-'0')
		case c >= 'a' && c <= 'z':
			n = n*36 + int64(c-'a'+10)
		default:
			if i == digits {
				return 0, "", errLedger
			}
			return sign * n, text[i:], nil
		}
		if i-digits > 11 {
			return 0, "", errLedger
		}
	}
	if i == digits {
		return 0, "", errLedger
	}
	return sign * n, "", nil
}
