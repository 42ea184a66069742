// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

func TestNobodySeesAPlaneWithoutItsKinds(t *testing.T) {
	person := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	cases := map[string]struct {
		path  string
		who   *tls.ConnectionState
		waits bool
	}{
		"a Job goes through":                    {"/apis/batch/v1/namespaces/default/jobs", person, false},
		"what there is waits":                   {"/apis", person, true},
		"so does it in the old form":            {"/api/", person, true},
		"so do descriptions":                    {"/openapi/v3", person, true},
		"a kind that is coming waits":           {"/apis/batch.volcano.sh/v1alpha1/namespaces/a/jobs", person, true},
		"a group of a like name goes through":   {"/apis/batch.volcano.sh.example.com/v1", person, false},
		"a part of this process goes through":   {"/apis/batch.volcano.sh/v1alpha1/jobs", &tls.ConnectionState{}, false},
		"so does one without encryption at all": {"/apis", nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coming, answered := make(chan struct{}), false
				h := awaitComing(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered = true }), coming, []string{"batch.volcano.sh"})
				req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil)
				req.TLS = tc.who
				go h.ServeHTTP(httptest.NewRecorder(), req)
				synctest.Wait()
				if answered == tc.waits {
					t.Errorf("answered before the kinds are there: %v", answered)
				}
				close(coming)
				synctest.Wait()
				if !answered {
					t.Error("not answered once the kinds are there")
				}
			})
		})
	}
}

func TestAClientThatGoesAwayDoesNotWaitForKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		h := awaitComing(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(done) }), nil, nil)
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis", nil)
		req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
		go h.ServeHTTP(httptest.NewRecorder(), req)
		synctest.Wait()
		leave()
		<-done
	})
}
