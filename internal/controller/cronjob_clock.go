// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"
)

// Every longestNap the clock is looked at, whatever is due, because a timer does not run while the machine sleeps, and does not
// know when the clock is set.
const longestNap = time.Second

// How much a clock may differ from what was to be expected.
const (
	smallStep  = 500 * time.Millisecond // against the time that really has passed, before the clock counts as set
	smallDelay = 5 * time.Second        // of a process that has much to do, before it counts as having been stopped
)

// jump says what is odd about the time between two looks at the clock.
type jump int

const (
	noJump  jump = iota
	forward      // due times may have passed unnoticed: the machine slept, the process was stopped, or the clock was set forward
	back         // the clock was set back
)

// jumpBetween compares two looks at the clock of which the second was meant to come at most longestNap after the first. Instants
// that carry no monotonic reading tell only of what shows in their distance.
func jumpBetween(before, after time.Time) jump {
	shown := after.Round(0).Sub(before.Round(0))
	switch passed := after.Sub(before); {
	case shown < 0, shown-passed < -smallStep:
		return back
	case shown-passed > smallStep, shown > longestNap+smallDelay:
		return forward
	}
	return noJump
}

// keepTime hands out CronJobs when their time comes, until ctx ends.
func (c *cronController[C, J]) keepTime(ctx context.Context) {
	before := c.clock.Now()
	timer := c.clock.NewTimer(longestNap)
	defer timer.Stop()
	for {
		now := c.clock.Now()
		c.noticeJump(before, now)
		before = now
		nap := longestNap
		if next := c.advance(now); !next.IsZero() {
			nap = min(nap, next.Sub(now))
		}
		timer.Reset(nap)
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		case <-c.queue.Kick:
		}
	}
}

// advance hands out the CronJobs whose time has come, and returns when it comes for the next; the zero time: never.
func (c *cronController[C, J]) advance(now time.Time) time.Time {
	due, next := c.queue.Advance(now)
	c.crowd.add(now, due)
	return next
}

// noticeJump has every CronJob looked at again when the clock was set or the machine slept.
func (c *cronController[C, J]) noticeJump(before, now time.Time) {
	switch jumpBetween(before, now) {
	case noJump:
		return
	case forward:
		c.setAwake(now)
		c.log.Warn("Time has passed unnoticed: the machine slept, this process was stopped, or the clock was set", "from", before.Round(0), "to", now.Round(0))
	case back:
		c.log.Warn("The clock was set back", "from", before.Round(0), "to", now.Round(0))
	}
	for _, key := range c.states.keys() {
		c.queue.Look(key)
	}
}
