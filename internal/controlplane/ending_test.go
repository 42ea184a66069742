// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAStopEndsRequestsThatHang: a plane that was stopped while the first Service was made took more than ten seconds.
func TestAStopEndsRequestsThatHang(t *testing.T) {
	cases := map[string]struct {
		url  string
		want time.Duration // after the stop
	}{
		"a watch":                {"/api/v1/pods?watch=true", 0},
		"a watch, the short way": {"/api/v1/pods?watch=1", 0},
		"a list":                 {"/api/v1/pods?watch=false", lastRequests},
		"anything else":          {"/api/v1/namespaces/a/pods/b/log?follow=true", lastRequests},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnding()
				ctx, stop := context.WithCancel(t.Context())
				e.with(ctx)
				var took time.Duration
				var request sync.WaitGroup
				request.Go(func() {
					begin := time.Now()
					e.of(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })).
						ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), http.MethodGet, tc.url, nil))
					took = time.Since(begin)
				})
				time.Sleep(time.Hour)
				stop()
				request.Wait()
				if want := time.Hour + tc.want; took != want {
					t.Errorf("it ended after %v, want %v", took, want)
				}
				<-e.others.Done() // nothing is left in the bubble
			})
		})
	}
}

// TestRequestsEndByThemselves has a request end before the server does.
func TestRequestsEndByThemselves(t *testing.T) {
	e := newEnding()
	w := httptest.NewRecorder()
	e.of(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := req.Context().Err(); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot)
	})).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
	if w.Code != http.StatusTeapot {
		t.Errorf("code %d", w.Code)
	}
}
