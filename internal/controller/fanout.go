// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"sync/atomic"
)

// gate bounds how many requests are under way at once, over all objects.
type gate chan struct{}

func newGate(n int) gate { return make(gate, n) }

func (g gate) enter() { g <- struct{}{} }
func (g gate) leave() { <-g }

// each calls f for 0 to n-1, as many at once as g lets, and returns when all have returned. A panic of one of them is the
// caller's, and keeps those that have not begun from beginning.
func (g gate) each(n int, f func(i int)) {
	if n == 1 {
		g.enter()
		defer g.leave()
		f(0)
		return
	}
	var wg sync.WaitGroup
	var panicked atomic.Pointer[any]
	for i := range n {
		g.enter()
		if panicked.Load() != nil {
			g.leave()
			break
		}
		wg.Go(func() {
			defer g.leave()
			defer func() {
				if r := recover(); r != nil {
					panicked.Store(&r)
				}
			}()
			f(i)
		})
	}
	wg.Wait()
	if r := panicked.Load(); r != nil {
		panic(*r)
	}
}

// slowly calls f for 0 to n-1 in batches of 1, 2, 4, … and stops after the first batch in which f has returned false.
func (g gate) slowly(n int, f func(i int) bool) {
	var mu sync.Mutex
	good, done := true, 0
	for size := 1; done < n && good; size *= 2 {
		first := done
		done += min(size, n-done)
		g.each(done-first, func(i int) {
			if !f(first + i) {
				mu.Lock()
				defer mu.Unlock()
				good = false
			}
		})
	}
}
