// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"context"
	"net/http"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/warning"
)

// ShortenChain gives the requests of Transports a short way through the server that is built of config. All others go the way that they
// went before.
//
// It is to be called after everything else that wraps BuildHandlerChainFunc, and requests may come once the server is ready.
func ShortenChain(config *genericapiserver.Config) {
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		full := build(api, c)
		if c.AuditBackend != nil {
			return full // whoever keeps a record wants all of it
		}
		short := shortChain(api, c)
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if _, ok := senderOf(req.Context()); ok {
				short.ServeHTTP(w, req)
				return
			}
			full.ServeHTTP(w, req)
		})
	}
}

// shortChain returns what stands before api for requests that a Transport brings. It is what is left of Kubernetes' own chain
// (DefaultBuildHandlerChain in k8s.io/apiserver, v1.37) without what such a request has no use for:
//
//   - Authentication and impersonation: the Transport knows who sends it, and cannot send for anybody else.
//   - API Priority and Fairness: it shares the server out among clients of which there can be any number, each asking for any amount. The
//     parts of the process are few, and each has so many workers and no more. The seats are left to those outside.
//   - The timeout handler, which answers in the place of a handler that does not look at its deadline and buffers every answer for that:
//     what reads or writes objects ends with the context, and a client that goes away leaves at once, whatever the handler does.
//   - Audit, whose policy is not set. What is left is a record of nothing, as patches cannot do without one.
//   - CORS, HSTS, Cache-Control and GOAWAY, which are for browsers, caches and connections.
//   - Tracing, HTTP logging and latency trackers. Request counts and durations are taken behind the chain; only those without the time of
//     webhooks and queues (apiserver_request_sli_duration_seconds) are of the requests from outside alone.
//   - Retry-After from the moment on when the server is told to stop: withWaitGroup says the same from when it waits for the requests
//     in flight, and the parts of the process stop before.
//   - The mark of requests that come before every path is known: Transports are used once the server is ready.
func shortChain(api http.Handler, c *genericapiserver.Config) http.Handler {
	h := filters.WithAuthorization(api, c.Authorization.Authorizer, c.Serializer)
	h = withSenderAsUser(h)
	h = filters.WithRequestDeadline(h, c.AuditBackend, c.AuditPolicyRuleEvaluator, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	h = serverfilters.WithWaitGroup(h, c.LongRunningFunc, c.NonLongRunningRequestWaitGroup)
	h = filters.WithRequestInfo(h, c.RequestInfoResolver)
	h = filters.WithRequestReceivedTimestamp(h)
	return serverfilters.WithPanicRecovery(h, c.RequestInfoResolver)
}

// withSenderAsUser makes the sender of a request the one on whose behalf next works, and takes the warnings for it.
func withSenderAsUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		sender, ok := senderOf(ctx)
		if !ok {
			http.Error(w, "the request has no sender", http.StatusUnauthorized)
			return
		}
		ctx = withoutRecord(request.WithUser(ctx, sender))
		if recorder, ok := w.(warning.Recorder); ok {
			ctx = warning.WithWarningRecorder(ctx, recorder)
		}
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// withoutRecord returns ctx with an audit record to which nothing is written.
func withoutRecord(ctx context.Context) context.Context {
	ctx = audit.WithAuditContext(ctx)
	// The error would say that it has been done before.
	_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelNone}, nil)
	return ctx
}
