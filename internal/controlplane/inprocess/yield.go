// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Yield lets events wait while there is work to do: telling of a Job takes the API server as long as running it does. Events go through
// at once when the server is calm, and in a rush some seconds late. The zero Yield is ready for use, by several Transports and many
// goroutines.
type Yield struct {
	mu   sync.Mutex
	busy int           // writes in flight that cannot wait
	calm chan struct{} // closed when there are few again; nil while there are
	open time.Time     // until then nothing waits
}

const (
	// calmWrites is how many writes in flight leave room for events.
	calmWrites = 2
	// longestYield is how long an event waits at most; then all go through for openAfter, however busy the server is.
	longestYield = 10 * time.Second
	openAfter    = 5 * time.Second
)

// pass lets req through, when it is time for it, and returns what must be called at its end.
func (y *Yield) pass(req *http.Request) (end func()) {
	switch {
	case y == nil, req.Method == http.MethodGet, req.Method == http.MethodHead:
		return func() {}
	case isEvent(req.URL.Path):
		y.wait(req.Context())
		return func() {}
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.busy++; y.busy == calmWrites+1 {
		y.calm = make(chan struct{})
	}
	return y.end
}

func (y *Yield) end() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.busy--; y.busy == calmWrites {
		close(y.calm)
		y.calm = nil
	}
}

func (y *Yield) wait(ctx context.Context) {
	limit := time.NewTimer(longestYield)
	defer limit.Stop()
	for {
		y.mu.Lock()
		calm := y.calm
		if time.Now().Before(y.open) {
			calm = nil
		}
		y.mu.Unlock()
		if calm == nil {
			return
		}
		select {
		case <-calm:
		case <-ctx.Done():
			return
		case <-limit.C:
			y.mu.Lock()
			y.open = time.Now().Add(openAfter)
			y.mu.Unlock()
			return
		}
	}
}

// isEvent reports whether path is that of events: /api/v1/namespaces/a/events, /apis/events.k8s.io/v1/namespaces/a/events/b.
func isEvent(path string) bool {
	if !strings.HasPrefix(path, "/api/v1/namespaces/") && !strings.HasPrefix(path, "/apis/events.k8s.io/") {
		return false
	}
	_, rest, _ := strings.Cut(path, "/namespaces/")
	_, resource, _ := strings.Cut(rest, "/")
	return resource == "events" || strings.HasPrefix(resource, "events/")
}
