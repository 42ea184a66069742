// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

// proxy stands between clients and the API server of a plane, and does at command what networks and busy servers do. Who a client is
// goes through it with its token.
type proxy struct {
	server  *httptest.Server
	door    *door
	forward *httputil.ReverseProxy

	mu      sync.Mutex
	rng     *rand.Rand
	delay   time.Duration // of each request
	share   float64       // of the requests that are answered with an error
	watches map[*cutWatch]bool
	did     map[string]int // what was done how often
}

// cutWatch is a watch that can be cut.
type cutWatch struct {
	cut     context.CancelFunc
	cleanly bool // it looks as if the server had ended it
}

func newProxy(t *testing.T, p *plane.Plane, rng *rand.Rand) *proxy {
	t.Helper()
	upstream, err := url.Parse(p.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(p.Config))
	if err != nil {
		t.Fatal(err)
	}
	x := &proxy{rng: rng, watches: map[*cutWatch]bool{}, did: map[string]int{}}
	quiet := log.New(io.Discard, "", 0)
	x.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) }, Transport: transport, FlushInterval: -1, ErrorLog: quiet,
		ModifyResponse: func(r *http.Response) error {
			if f, ok := r.Request.Context().Value(lostAnswer{}).(*fault); ok {
				return f
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			f, ok := errors.AsType[*fault](err)
			if !ok {
				panic(http.ErrAbortHandler) // as if there were no proxy
			}
			f.answer(w)
		},
	}
	x.server = httptest.NewUnstartedServer(x)
	x.door = &door{Listener: x.server.Listener, inside: map[net.Conn]bool{}}
	x.server.Listener, x.server.EnableHTTP2, x.server.Config.ErrorLog = x.door, true, quiet
	x.server.StartTLS()
	t.Cleanup(func() {
		x.door.setOpen(false)
		x.server.Close()
	})
	return x
}

// through returns a copy of a kubeconfig whose cluster is reached through the proxy.
func (x *proxy) through(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = x.server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.server.Certificate().Raw})
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// slowDown delays each request from now on.
func (x *proxy) slowDown(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.delay = d
}

// disturb answers that share of requests with errors from now on, some of them after the API server has done what was asked.
func (x *proxy) disturb(share float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.share = share
}

// cutWatches ends all watches that run, half of them as if the connection had broken, and returns how many there were.
func (x *proxy) cutWatches() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.watches)
	for w := range x.watches {
		w.cleanly = x.rng.IntN(2) == 0
		w.cut()
		delete(x.watches, w)
	}
	x.did["cut"] += n
	return n
}

// has returns how often the proxy has done that: "429", "500 lost", "cut", "request".
func (x *proxy) has(done string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.did[done]
}

func (x *proxy) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []string
	for _, done := range slices.Sorted(maps.Keys(x.did)) {
		all = append(all, fmt.Sprintf("%s: %d", done, x.did[done]))
	}
	return strings.Join(all, ", ")
}

// ServeHTTP hands a request to the API server, or not.
func (x *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	watches := r.URL.Query().Has("watch")
	delay, f := x.meet(watches)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case f != nil && !f.lost:
		_, _ = io.Copy(io.Discard, r.Body) // an answer before the end of the request would break the connection
		f.answer(w)
	case f != nil:
		x.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), lostAnswer{}, f)))
	case watches:
		x.watch(w, r)
	default:
		x.forward.ServeHTTP(w, r)
	}
}

func (x *proxy) watch(w http.ResponseWriter, r *http.Request) {
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	mine := &cutWatch{cut: cut}
	x.mu.Lock()
	x.watches[mine] = true
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(x.watches, mine)
		cleanly := mine.cleanly
		x.mu.Unlock()
		if broken := recover(); broken != nil && !cleanly {
			panic(broken) // ends the stream of this request
		}
	}()
	x.forward.ServeHTTP(w, r.WithContext(ctx))
}

// meet says what a request meets with.
func (x *proxy) meet(watches bool) (delay time.Duration, f *fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.did["request"]++
	if x.share > 0 && x.rng.Float64() < x.share {
		chosen := faults[x.rng.IntN(len(faults))]
		f = &chosen
		f.lost = f.mayBeLate && !watches && x.rng.IntN(2) == 0
		x.did[f.Error()]++
	}
	return x.delay, f
}

// lostAnswer is the key under which the context of a request holds the fault that its answer is replaced by.
type lostAnswer struct{}

// fault is an answer that is not that of the API server.
type fault struct {
	code      int
	reason    metav1.StatusReason // "": the text of a proxy that knows nothing of Kubernetes
	mayBeLate bool
	lost      bool // the API server has done what was asked
}

var faults = []fault{
	{code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests}, // which says that nothing was done
	{code: http.StatusInternalServerError, reason: metav1.StatusReasonInternalError, mayBeLate: true},
	{code: http.StatusServiceUnavailable, reason: metav1.StatusReasonServiceUnavailable, mayBeLate: true},
	{code: http.StatusServiceUnavailable, mayBeLate: true},
	{code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout, mayBeLate: true},
	{code: http.StatusBadGateway, mayBeLate: true},
}

func (f *fault) Error() string {
	if f.lost {
		return fmt.Sprintf("%d lost", f.code)
	}
	return fmt.Sprint(f.code)
}

func (f *fault) answer(w http.ResponseWriter) {
	if f.code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if f.reason == "" {
		http.Error(w, "upstream connect error or disconnect", f.code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // who does not take it is gone
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(f.code), Reason: f.reason,
		Message: "a fault of the test: " + string(f.reason),
	})
}

// door is a listener that lets nobody in while it is shut, and throws out who is inside.
type door struct {
	net.Listener

	mu     sync.Mutex
	shut   bool
	inside map[net.Conn]bool
}

func (d *door) setOpen(open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = !open
	if d.shut {
		for c := range d.inside {
			_ = c.Close() // it may have ended already
		}
	}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if d.enter(c) {
			return &guest{Conn: c, leave: func() { d.left(c) }}, nil
		}
		_ = c.Close()
	}
}

func (d *door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.inside[c] = true
	}
	return !d.shut
}

func (d *door) left(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.inside, c)
}

// guest is a connection that says when it is closed.
type guest struct {
	net.Conn

	leave func()
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}
