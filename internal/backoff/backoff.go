// SPDX-License-Identifier: Apache-2.0

// Package backoff says how long to wait after failures. It reads no clock: every function is given the instants it needs.
package backoff

import "time"

// Default base and cap of the delay before a failed pod is replaced.
//
// Source: Kubernetes v1.37 Job controller.
const (
	DefaultBase = 10 * time.Second
	DefaultMax  = 10 * time.Minute
)

// Policy says how the delay grows with the number of consecutive failures. The zero value never waits.
type Policy struct {
	Base   time.Duration // delay after the first failure
	Max    time.Duration // no delay is longer
	Factor float64       // growth with each further failure; 0 means 2
}

// Default is the policy of Kubernetes: 10 s, 20 s, 40 s, … 10 min.
func Default() Policy { return Policy{Base: DefaultBase, Max: DefaultMax} }

// Delay returns how long a replacement must wait after that many consecutive failures: Base, multiplied by Factor for each
// failure after the first, at most Max. It is 0 when failures < 1.
func (p Policy) Delay(failures int) time.Duration {
	if failures < 1 || p.Base <= 0 {
		return 0
	}
	factor := p.Factor
	if factor == 0 {
		factor = 2
	}
	delay := float64(p.Base)
	for range failures - 1 {
		delay *= factor
		if delay >= float64(p.Max) {
			return p.Max
		}
	}
	return min(time.Duration(delay), p.Max)
}

// Remaining returns how long a replacement must still wait at now, when the last of that many consecutive failures happened at
// last. It is 0 when the wait is over.
func (p Policy) Remaining(failures int, last, now time.Time) time.Duration {
	return max(0, p.Delay(failures)-now.Sub(last))
}

// Record counts consecutive failures.
type Record struct {
	Failures int
	Last     time.Time // when the latest of them happened; zero without failures
}

// After returns the record once the given outcomes, all seen together, have been added: only successes end the streak, only
// failures lengthen it, and where both are new, the failures strictly after the latest success make a new one.
//
// Source: Kubernetes v1.37 Job controller.
func (r Record) After(successes, failures []time.Time) Record {
	var lastSuccess time.Time
	for _, t := range successes {
		if t.After(lastSuccess) {
			lastSuccess = t
		}
	}
	if len(successes) > 0 {
		r = Record{}
	}
	for _, t := range failures {
		if len(successes) > 0 && !t.After(lastSuccess) {
			continue
		}
		r.Failures++
		if t.After(r.Last) {
			r.Last = t
		}
	}
	return r
}
