// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"
)

// rush tells whether a controller has its hands full, and keeps what may wait until it has not: a write that only informs takes the API
// server as long as one that starts something. The zero rush is calm. It is safe for concurrent use.
type rush struct {
	mu    sync.Mutex
	busy  int      // syncs under way
	order []string // keys that wait, the first to come first; some may have been forgotten
	held  map[string]bool
}

const (
	// calmSyncs is how many syncs under way leave room for what may wait.
	calmSyncs = 2
	// longestRush is how long something may wait at most.
	longestRush = 10 * time.Second
)

// enter notes that a sync begins.
func (r *rush) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy++
}

// leave notes that a sync has ended. If there is time for it, it returns a key that has waited: one at a time, so that those who wait
// are no rush themselves.
func (r *rush) leave() (key string, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	for r.busy < calmSyncs && len(r.order) > 0 {
		key := r.order[0]
		r.order = r.order[1:]
		if r.held[key] {
			delete(r.held, key)
			return key, true
		}
	}
	return "", false
}

// hold reports whether there is a rush. If so, a later leave returns key.
func (r *rush) hold(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy <= calmSyncs {
		return false
	}
	for len(r.order) > 0 && !r.held[r.order[0]] { // a rush may last for days
		r.order = r.order[1:]
	}
	if !r.held[key] {
		if r.held == nil {
			r.held = map[string]bool{}
		}
		r.held[key] = true
		r.order = append(r.order, key)
	}
	return true
}

// during notes a sync: it begins now, and ends when the returned function is called, which has a key that has waited looked at again.
func (r *rush) during(queue keyQueue) (end func()) {
	r.enter()
	return func() {
		if held, any := r.leave(); any {
			queue.Add(held)
		}
	}
}

// wait returns how long what has waited since then is to wait at most, if there is a rush: a later leave returns key before that, if it
// can. 0: it is time.
func (r *rush) wait(key string, since, now time.Time) time.Duration {
	if left := since.Add(longestRush).Sub(now); left > 0 && r.hold(key) {
		return left
	}
	return 0
}

// forget has key not returned any more.
func (r *rush) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, key)
}
