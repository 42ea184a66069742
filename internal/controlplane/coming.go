// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"net/http"
	"slices"
	"strings"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// comingLimit is how long a client may have to wait for kinds that are coming. After that it gets the answer that there is.
const comingLimit = 20 * time.Second

// awaitComing keeps clients that have a certificate of their own from seeing a plane without the kinds that are coming: their
// questions for what there is, and for those kinds, are answered once coming is closed. Everything else, such as a Job, goes through at
// once. The parts of this process, which make those kinds, have no certificate.
func awaitComing(next http.Handler, coming <-chan struct{}, groups []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 && dependsOn(req.URL.Path, groups) {
			select {
			case <-coming:
			case <-req.Context().Done():
			case <-time.After(comingLimit):
			}
		}
		next.ServeHTTP(w, req)
	})
}

// dependsOn reports whether the answer to a request for path would be another one without the groups.
func dependsOn(path string, groups []string) bool {
	path = strings.TrimSuffix(path, "/")
	if path == "/api" || path == "/apis" || path == "/openapi" || strings.HasPrefix(path, "/openapi/") {
		return true
	}
	rest, ok := strings.CutPrefix(path, "/apis/")
	group, _, _ := strings.Cut(rest, "/")
	return ok && slices.Contains(groups, group)
}

// holdForComing puts awaitComing before everything else that the API server does with a request.
func holdForComing(config *genericapiserver.Config, coming <-chan struct{}, groups []string) {
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return awaitComing(build(api, c), coming, groups)
	}
}
