// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
)

// Health serves /healthz, /readyz and /metrics of a process.
type Health struct {
	server   *http.Server
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	checks map[string]func() error
}

// NewHealth begins to serve on address; "" means not to. /readyz answers 503 until every check that SetCheck has given
// returns nil. With profiling, /debug/pprof is served too.
func NewHealth(address string, profiling bool, log *slog.Logger) (*Health, error) {
	h := &Health{checks: map[string]func() error{}}
	if address == "" {
		return h, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for /metrics and /healthz on %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", legacyregistry.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.ready)
	if profiling {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	h.listener = listener
	h.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	h.done.Go(func() {
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("Health server stopped", "err", err)
		}
	})
	log.Info("Serving /metrics, /healthz and /readyz", "address", listener.Addr().String())
	return h, nil
}

// SetCheck makes /readyz ask check, which returns why the part of that name is not ready, or nil.
func (h *Health) SetCheck(name string, check func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[name] = check
}

func (h *Health) ready(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var problems []error
	for name, check := range h.checks {
		if err := check(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Close stops serving.
func (h *Health) Close() {
	if h.server != nil {
		_ = h.server.Close() // nothing can be done about a listener that does not close
		h.done.Wait()
	}
}
