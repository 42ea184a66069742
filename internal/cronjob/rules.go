// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/schedule"
)

// The annotations that ask for more than upstream does. Without them a CronJob behaves as under the built-in controller.
const (
	// AnnotationDST says what becomes of local times that a change of the clocks removes or repeats: upstream, once, skip or
	// both, as schedule.DST explains them.
	AnnotationDST = "drover.dev/dst"
	// AnnotationCatchUp says which due times that could not be started when they were due are started later: latest, none or
	// all.
	AnnotationCatchUp = "drover.dev/catch-up"
	// AnnotationCatchUpLimit bounds how many due times wait to be started, from 1 to 10000; the newest stay.
	AnnotationCatchUpLimit = "drover.dev/catch-up-limit"
	// AnnotationSpread moves every start by a fixed time inside this window, from 1s to 24h, so that objects with the same
	// schedule do not all start at once. Due times themselves, and with them the names of Jobs, stay.
	AnnotationSpread = "drover.dev/spread"
	// AnnotationOnEdit with the value future-only keeps an edited or resumed schedule from starting due times of before.
	AnnotationOnEdit = "drover.dev/on-edit"
	// AnnotationConcurrency with the value Enqueue lets due times wait for a free place, in order.
	AnnotationConcurrency = "drover.dev/concurrency"
	// AnnotationMaxActive is how many Jobs may be active at a time under Enqueue, from 1 on.
	AnnotationMaxActive = "drover.dev/max-active"
)

// Bounds and defaults of annotations.
const (
	defaultCatchUpLimit = 100
	maxCatchUpLimit     = 10_000
	maxSpread           = 24 * time.Hour
)

// CatchUp says which due times that could not be started when they were due are started later.
type CatchUp string

// The values of AnnotationCatchUp.
const (
	CatchUpLatest CatchUp = "latest" // the newest, as upstream does
	CatchUpNone   CatchUp = "none"
	CatchUpAll    CatchUp = "all" // each, in order
)

// Rules are a CronJob's schedule and the policies that apply to it, read once for each version of it. They are immutable.
type Rules struct {
	schedule *schedule.Schedule // nil: it cannot be read
	zone     *time.Location     // in which due times are told
	offset   time.Duration      // how long after a due time its start is: the place in the spread window

	concurrency Concurrency
	maxActive   int
	catchUp     CatchUp
	limit       int
	futureOnly  bool
	dst         schedule.DST

	key      string // stands for what the due times follow from
	zoneErr  error
	parseErr error
	badNotes []error // annotations that are not understood, and therefore ignored

	unsupported bool // the schedule names a zone itself
}

// Read returns the rules of a CronJob. zones finds the time zones that it names; local is the zone of schedules that name none.
// What is wrong with a CronJob is part of its rules: Decide tells it.
func Read(c *CronJob, zones schedule.Zones, local *time.Location) *Rules {
	r := &Rules{zone: time.UTC, concurrency: c.Spec.Concurrency, maxActive: 1, catchUp: CatchUpLatest, limit: defaultCatchUpLimit}
	r.badNotes = r.annotations(c)

	text := c.Spec.Schedule
	zone := local
	r.unsupported = strings.Contains(text, "TZ")
	if c.Spec.TimeZone != nil {
		named, err := zones(*c.Spec.TimeZone)
		if err != nil {
			r.zoneErr = err
		} else {
			r.zone = named
			if !r.unsupported {
				zone = named
				text = strings.TrimSpace(text) // upstream puts the zone in front, and its parser trims what follows
			}
		}
	}
	r.key = fingerprint(c.Spec, r.dst)
	s, err := schedule.Parse(text, zones)
	if err != nil {
		r.parseErr = err
		return r
	}
	r.schedule = s.In(zone).WithDST(r.dst)
	if r.queues() && s.Every() > 0 && s.Every() < time.Minute {
		// Jobs are named by the minute: a queue could not start them all.
		r.badNotes = append(r.badNotes, fmt.Errorf("annotations %s and %s are ignored: the schedule %q is due more than once a minute, "+
			"and only one Job a minute can be started: use @every 1m or more", AnnotationCatchUp, AnnotationConcurrency, s))
		r.concurrency, r.catchUp = c.Spec.Concurrency, CatchUpLatest
	}
	return r
}

// fingerprint returns a short text that changes whenever the due times may, but for the zone of schedules that name none: who
// reads a record need not know it.
func fingerprint(s Spec, dst schedule.DST) string {
	h := fnv.New64a()
	zone := "local"
	if s.TimeZone != nil {
		zone = *s.TimeZone
	}
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%s", s.Schedule, zone, dst) // never fails
	return strconv.FormatUint(h.Sum64()>>24, 36)
}

// Schedule returns the schedule in its zone and under its rule for changes of the clocks, or nil when it cannot be read.
func (r *Rules) Schedule() *schedule.Schedule { return r.schedule }

// Key returns a short text that stands for what the due times follow from: see Ledger.Key.
func (r *Rules) Key() string { return r.key }

// Offset returns how long after a due time its start is.
func (r *Rules) Offset() time.Duration { return r.offset }

// queues reports whether more than one due time can wait to be started.
func (r *Rules) queues() bool {
	return r.concurrency == Enqueue || r.catchUp == CatchUpAll && r.concurrency != Replace
}

// catchesUpAll reports whether every missed due time is started. Where each start would end the one before, only the last makes
// sense.
func (r *Rules) catchesUpAll() bool { return r.catchUp == CatchUpAll && r.concurrency != Replace }

// ValidateAnnotations returns what is wrong with the annotations of a CronJob, each with the annotation's name and what to do
// about it. A controller ignores such annotations; admission may refuse them.
func ValidateAnnotations(c *CronJob) []error {
	return new(Rules).annotations(c)
}

// annotations reads the annotations into r and returns what is wrong with them.
func (r *Rules) annotations(c *CronJob) []error {
	n := notes{of: c.Annotations}
	n.oneOf(AnnotationDST, map[string]func(){
		"upstream": func() {},
		"once":     func() { r.dst = schedule.Once },
		"skip":     func() { r.dst = schedule.Skip },
		"both":     func() { r.dst = schedule.Both },
	}, "upstream, once, skip or both")
	n.oneOf(AnnotationCatchUp, map[string]func(){
		"latest": func() { r.catchUp = CatchUpLatest },
		"none":   func() { r.catchUp = CatchUpNone },
		"all":    func() { r.catchUp = CatchUpAll },
	}, "latest, none or all")
	n.oneOf(AnnotationOnEdit, map[string]func(){
		"future-only": func() { r.futureOnly = true },
		"upstream":    func() {},
	}, "future-only or upstream")
	n.oneOf(AnnotationConcurrency, map[string]func(){"Enqueue": func() {
		if c.Spec.Concurrency == Replace {
			n.bad(AnnotationConcurrency, "Enqueue contradicts spec.concurrencyPolicy Replace: remove one of them")
			return
		}
		r.concurrency = Enqueue
	}}, "Enqueue; other policies belong in spec.concurrencyPolicy")
	n.number(AnnotationMaxActive, 1, 1<<31-1, func(v int) {
		if r.concurrency != Enqueue {
			n.bad(AnnotationMaxActive, "it needs the annotation %s with the value Enqueue", AnnotationConcurrency)
			return
		}
		r.maxActive = v
	})
	n.number(AnnotationCatchUpLimit, 1, maxCatchUpLimit, func(v int) {
		if r.catchUp != CatchUpAll && r.concurrency != Enqueue {
			n.bad(AnnotationCatchUpLimit, "it needs the annotation %s with the value all, or %s with the value Enqueue",
				AnnotationCatchUp, AnnotationConcurrency)
			return
		}
		r.limit = v
	})
	if text, ok := n.of[AnnotationSpread]; ok {
		window, err := time.ParseDuration(text)
		switch {
		case err != nil:
			n.bad(AnnotationSpread, "%q is no duration: write one such as 90s, 10m or 1h30m", text)
		case window < time.Second || window > maxSpread:
			n.bad(AnnotationSpread, "%s is out of range: use 1s to 24h", text)
		default:
			r.offset = schedule.Spread(c.Namespace+"/"+c.Name, window)
		}
	}
	return n.errs
}

// notes reads annotations and collects what is wrong with them.
type notes struct {
	of   map[string]string
	errs []error
}

func (n *notes) bad(key, format string, args ...any) {
	n.errs = append(n.errs, fmt.Errorf("annotation %s is ignored: "+format, append([]any{key}, args...)...))
}

func (n *notes) oneOf(key string, values map[string]func(), choice string) {
	text, ok := n.of[key]
	if !ok {
		return
	}
	if apply, known := values[text]; known {
		apply()
		return
	}
	n.bad(key, "%q is not known: use %s", text, choice)
}

func (n *notes) number(key string, low, high int, apply func(int)) {
	text, ok := n.of[key]
	if !ok {
		return
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < low || v > high {
		n.bad(key, "%q is no whole number from %d to %d", text, low, high)
		return
	}
	apply(v)
}

// errNoDueTime is upstream's text for a schedule without due times, whose first two are the same.
var errNoDueTime = errors.New("time difference between two schedules is less than 1 second")
