// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Precedence lets other controllers of the process wait while CronJobs are being started: what is due now comes first, and what
// follows from it a little later. It is safe for concurrent use.
type Precedence struct {
	clock clock.Clock

	mu      sync.Mutex
	waiting int       // CronJobs whose time has come and whose turn is not over
	since   time.Time // when the first of them came
	over    chan struct{}
}

// maxPrecedence bounds how long others wait: where there is always something to start, all get their share. In half a minute an API
// server that takes 700 writes a second starts 20,000.
const maxPrecedence = 30 * time.Second

// NewPrecedence returns a Precedence on that clock.
func NewPrecedence(c clock.Clock) *Precedence { return &Precedence{clock: c} }

// add notes that n more CronJobs are to be started, or n fewer where n is negative.
func (p *Precedence) add(n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == 0 && n > 0 {
		p.since, p.over = p.clock.Now(), make(chan struct{})
	}
	p.waiting += n
	if p.waiting == 0 && n < 0 {
		close(p.over)
		p.over = nil
	}
}

// GiveWay returns when no CronJob is to be started, when others have waited long enough, or when ctx ends. A nil Precedence lets
// everybody pass.
func (p *Precedence) GiveWay(ctx context.Context) {
	if p == nil {
		return
	}
	p.mu.Lock()
	over, since := p.over, p.since
	p.mu.Unlock()
	if over == nil {
		return
	}
	left := maxPrecedence - p.clock.Since(since)
	if left <= 0 {
		return
	}
	timer := p.clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C():
	case <-ctx.Done():
	}
}
