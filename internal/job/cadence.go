// SPDX-License-Identifier: Apache-2.0

package job

import "time"

// Cadence bounds how often the status of one Job is written.
type Cadence struct {
	// Batch is the shortest time between two writes that tell of ended pods.
	Batch time.Duration
	// Gauge is how long a mere number may be behind.
	Gauge time.Duration
}

// Wait returns how long, from now, a status of that urgency should wait for more changes to share its write; 0: write it. last
// is when the status was written before, since is when it began to say less than it should.
func (c Cadence) Wait(u Urgency, now, last, since time.Time) time.Duration {
	switch u {
	case Gauges:
		return max(0, since.Add(c.Gauge).Sub(now), last.Add(c.Batch).Sub(now))
	case Counts:
		return max(0, last.Add(c.Batch).Sub(now))
	default: // there is nothing to write, or no time to lose
		return 0
	}
}
