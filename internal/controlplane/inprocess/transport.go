// SPDX-License-Identifier: Apache-2.0

// Package inprocess lets the parts of one process reach an HTTP server of the same process without a connection: a request is a
// call of its handler. Encryption, framing and system calls fall away, which for an API server are a good part of what a small
// request costs.
//
// A Transport is the client's side. It can send for one user alone, and the server needs no proof of that: ShortenChain lets requests of
// Transports past what an API server does to find out who asks, and to guard itself against strangers. What the user may do is looked at
// as for everybody else.
package inprocess

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Transport hands requests to Handler. It is an http.RoundTripper for many goroutines. Requests cannot take the connection over,
// since there is none, and trailers are not passed on.
type Transport struct {
	// Handler serves the requests. It sees them as HTTP/2 over TLS, from a loopback address, without a client certificate.
	Handler http.Handler
	// User is who sends them, see User; nil: they have to say so themselves, like those from outside.
	User user.Info
	// Yield holds events back in a rush; nil: they go through like everything else.
	Yield *Yield
}

// remoteAddr is where requests seem to come from.
const remoteAddr = "127.0.0.1:0"

// RoundTrip implements http.RoundTripper. The server's side ends when the request's context does, or when the body of the answer is closed.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	end := t.Yield.pass(req)
	// What the client's context carries is not for the server.
	ctx := context.Background()
	if t.User != nil {
		ctx = withSender(ctx, t.User)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &response{header: http.Header{}, ready: make(chan struct{}), ended: ctx.Done(), body: newPipe()}
	forget := context.AfterFunc(req.Context(), func() {
		cancel()
		w.body.close(context.Cause(req.Context()))
	})
	go t.serve(w, serverRequest(ctx, req), func() {
		end()
		forget()
		cancel()
	})
	select {
	case <-w.ready:
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
	if w.failed != nil {
		return nil, w.failed
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", w.code, http.StatusText(w.code)),
		StatusCode:    w.code,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        w.sent,
		Body:          &body{pipe: w.body, cancel: cancel},
		ContentLength: contentLength(w.sent),
		Request:       req,
	}, nil
}

// serverRequest is what a server makes of a request that a client sends.
func serverRequest(ctx context.Context, req *http.Request) *http.Request {
	in := (&http.Request{
		Method:        req.Method,
		URL:           &url.URL{Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery, ForceQuery: req.URL.ForceQuery},
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        req.Header.Clone(),
		Body:          req.Body,
		ContentLength: req.ContentLength,
		Host:          req.Host,
		RemoteAddr:    remoteAddr,
		RequestURI:    req.URL.RequestURI(),
		TLS:           &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true},
	}).WithContext(ctx)
	if in.Header == nil {
		in.Header = http.Header{}
	}
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	return in
}

// serve runs the handler to its end, and tells the client about it.
func (t *Transport) serve(w *response, req *http.Request, end func()) {
	defer end()
	defer func() { _ = req.Body.Close() }() // nobody is left to hear of it
	defer func() {
		switch p := recover(); p {
		case nil:
			w.WriteHeader(http.StatusOK) // if it has written nothing
			w.body.close(io.EOF)
		default:
			err := errors.New("the server has broken the answer off")
			if cause, ok := p.(error); !ok || !errors.Is(cause, http.ErrAbortHandler) {
				err = fmt.Errorf("the server has broken the answer off: %v", p)
			}
			w.fail(err)
			w.body.close(err)
		}
	}()
	t.Handler.ServeHTTP(w, req)
}

func contentLength(h http.Header) int64 {
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// response is the server's side of an answer: what http.ResponseWriter, and those who look closer, expect.
type response struct {
	header http.Header
	body   *pipe
	ended  <-chan struct{} // closed when the client is gone or the handler has returned

	once   sync.Once
	ready  chan struct{} // closed once the fields below are set
	code   int
	sent   http.Header
	failed error

	warnings warnings
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(code int) {
	if code >= 100 && code < 200 {
		return // more is to come
	}
	w.once.Do(func() {
		w.code, w.sent = code, maps.Clone(w.header)
		for name, values := range w.sent {
			w.sent[name] = slices.Clone(values)
		}
		w.warnings.writeTo(w.sent)
		close(w.ready)
	})
}

// fail makes err the answer, if there is none yet.
func (w *response) fail(err error) {
	w.once.Do(func() {
		w.failed = err
		close(w.ready)
	})
}

func (w *response) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(data)
}

// Flush implements http.Flusher. Whatever is written can be read at once; only the header may have to be sent.
func (w *response) Flush() { w.WriteHeader(http.StatusOK) }

// FlushError is what http.ResponseController asks for.
func (w *response) FlushError() error {
	w.Flush()
	return nil
}

// CloseNotify implements http.CloseNotifier, by which servers tell HTTP/2 from other writers.
func (w *response) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	go func() {
		<-w.ended
		gone <- true
	}()
	return gone
}

// SetReadDeadline has nothing to bound: the body of the request is in memory.
func (w *response) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline has nothing to bound: a client that does not read is a part of this process.
func (w *response) SetWriteDeadline(time.Time) error { return nil }

// body is the client's side of an answer.
type body struct {
	pipe   *pipe
	cancel context.CancelFunc
}

func (b *body) Read(data []byte) (int, error) { return b.pipe.Read(data) }

func (b *body) Close() error {
	b.cancel()
	b.pipe.close(errClosed)
	return nil
}

var errClosed = errors.New("reading the answer: its body is closed")

// maxBuffered is how many bytes an answer may be ahead of its reader.
const maxBuffered = 256 << 10

// pipe takes bytes from a writer to a reader in another goroutine.
type pipe struct {
	mu   sync.Mutex
	more sync.Cond // something was written, read or closed
	data []byte
	err  error // why nothing more is written; io.EOF after the last byte
}

func newPipe() *pipe {
	p := &pipe{}
	p.more.L = &p.mu
	return p
}

// Write implements io.Writer. It waits while the reader is far behind, and fails once the pipe is closed.
func (p *pipe) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) >= maxBuffered && p.err == nil {
		p.more.Wait()
	}
	if p.err != nil {
		return 0, io.ErrClosedPipe
	}
	p.data = append(p.data, data...)
	p.more.Broadcast()
	return len(data), nil
}

// Read implements io.Reader.
func (p *pipe) Read(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) == 0 && p.err == nil {
		p.more.Wait()
	}
	if len(p.data) == 0 {
		return 0, p.err
	}
	n := copy(data, p.data)
	if p.data = p.data[n:]; len(p.data) == 0 {
		p.data = nil // what an idle watch has once needed is not kept
	}
	p.more.Broadcast()
	return n, nil
}

// close ends the pipe. What was written before io.EOF can still be read; after another error it cannot.
func (p *pipe) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	if err != io.EOF { //nolint:errorlint // it is the very value that serve passes
		p.err, p.data = err, nil
	}
	p.more.Broadcast()
}
