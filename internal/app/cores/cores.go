// SPDX-License-Identifier: Apache-2.0

// Package cores lets a process whose work is many short requests use one core for as long as one is enough. Go wakes a thread of
// another core for nearly each answer that arrives, and for a controller these wakes cost a quarter of its CPU time.
//
// Start reading at Run.
package cores

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	every = 200 * time.Millisecond
	// fullPercent is the use of the cores in a round that asks for more of them.
	fullPercent = 80
	// calmPercent is the use of half of the cores that half of them bears with ease, and calmRounds how many such rounds in a row give
	// the other half back: five seconds.
	calmPercent, calmRounds = 60, 25
)

// Run sets how many cores Go uses at once (runtime.GOMAXPROCS), from one to what it would use by itself, until ctx ends. It does
// nothing in a process whose user has set GOMAXPROCS.
func Run(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	most := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(1)
	defer runtime.SetDefaultGOMAXPROCS()
	p := pacer{cores: 1, most: most}
	tick := time.NewTicker(every)
	defer tick.Stop()
	lastUsed, lastTime := used(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		nowUsed, now := used(), time.Now()
		if n := p.round(nowUsed-lastUsed, now.Sub(lastTime)); n != 0 {
			runtime.GOMAXPROCS(n)
		}
		lastUsed, lastTime = nowUsed, now
	}
}

// used returns the CPU time of this process.
func used() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pacer decides, a round at a time.
type pacer struct {
	cores, most int
	calm        int // rounds in a row for which half of the cores would have been enough
}

// round returns the new number of cores, or 0 if it stays; the process has used so much CPU time in so much time.
func (p *pacer) round(used, took time.Duration) int {
	whole := time.Duration(p.cores) * took
	p.calm++
	if p.cores == 1 || used > whole/2*calmPercent/100 {
		p.calm = 0
	}
	switch {
	case used >= whole*fullPercent/100 && p.cores < p.most:
		p.cores = min(2*p.cores, p.most)
	case p.calm >= calmRounds:
		p.cores = max(p.cores/2, 1)
	default:
		return 0
	}
	p.calm = 0
	return p.cores
}
