// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"net/http"
	"strconv"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// lastRequests is how long requests in flight may take when the API server stops. Some would take ten seconds: a Service waits for
// its address, which is another request, and the client that sends it is told to try again until the server is gone.
const lastRequests = time.Second

// ending ends requests when the API server stops: watches at once, as the server waits for their connections, and others a little later.
type ending struct {
	watches, others       context.Context
	endWatches, endOthers context.CancelFunc
}

func newEnding() *ending {
	e := &ending{}
	e.watches, e.endWatches = context.WithCancel(context.Background())
	e.others, e.endOthers = context.WithCancel(context.Background())
	return e
}

// with has the requests end after ctx. It returns at once.
func (e *ending) with(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		e.endWatches()
		time.AfterFunc(lastRequests, e.endOthers)
	})
}

// of has the requests that next answers end in time.
func (e *ending) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		end := e.others
		if watch, err := strconv.ParseBool(req.URL.Query().Get("watch")); err == nil && watch {
			end = e.watches
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(end, cancel)()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// before puts of before everything else that the API server does with a request from outside.
func (e *ending) before(config *genericapiserver.Config) {
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return e.of(build(api, c))
	}
}
