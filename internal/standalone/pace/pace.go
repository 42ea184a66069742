// SPDX-License-Identifier: Apache-2.0

// Package pace lets the garbage collector of Go run less often while a process works hard, at the price of memory that it gives back
// once it is idle again.
//
// Start reading at Run.
package pace

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	every = time.Second
	// busyBytes is how much memory a process at work asks for in a second; an idle plane asks for a tenth of it.
	busyBytes = 40 << 20
	// busyPercent is Go's GOGC while the process is at work, idlePercent what it is otherwise.
	busyPercent, idlePercent = 250, 100
	// calmRounds is how many idle seconds in a row end the work.
	calmRounds = 5
)

// Run sets the pace until ctx ends. It does nothing in a process whose user has set GOGC.
func Run(ctx context.Context) {
	if before := debug.SetGCPercent(idlePercent); before != idlePercent {
		debug.SetGCPercent(before)
		return
	}
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	p := pacer{last: sample[0].Value.Uint64(), calm: calmRounds}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(sample)
		percent := p.round(sample[0].Value.Uint64())
		if percent != 0 {
			debug.SetGCPercent(percent)
		}
		if percent == idlePercent {
			debug.FreeOSMemory()
		}
	}
}

// pacer decides, a round at a time.
type pacer struct {
	last uint64 // bytes asked for up to the last round
	calm int    // idle rounds since the last busy one, calmRounds at most
}

// round returns the new pace, or 0 if it stays; allocated is how many bytes the process has asked for since it began.
func (p *pacer) round(allocated uint64) (percent int) {
	busy := allocated-p.last > busyBytes
	p.last = allocated
	before := p.calm
	p.calm = min(p.calm+1, calmRounds)
	if busy {
		p.calm = 0
	}
	switch {
	case busy && before == calmRounds:
		return busyPercent
	case p.calm == calmRounds && before < calmRounds:
		return idlePercent
	}
	return 0
}
