// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/volcano/client"
)

func TestControllersOfVolcanosKindsStartOnceTheAPIServerAnswers(t *testing.T) {
	cases := map[string]struct {
		trouble int // status code of the first answer to each question; 0: there is none
		want    string
	}{
		"though it is not reached at first":         {0, ""},
		"though it asks to wait":                    {http.StatusTooManyRequests, ""},
		"though it meets an error of its own":       {http.StatusInternalServerError, ""},
		"though it cannot be reached by a proxy":    {http.StatusServiceUnavailable, ""},
		"though it takes too long for a proxy":      {http.StatusGatewayTimeout, ""},
		"but not where they lack the rights for it": {http.StatusForbidden, "asking the API server for the kinds of scheduling.k8s.io/v1beta1: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rc := &rest.Config{Host: "http://api.test", QPS: -1, Transport: &troubled{code: tc.trouble, asked: map[string]bool{}}}
				kube, err := kubernetes.NewForConfig(rc)
				if err != nil {
					t.Fatal(err)
				}
				vc, err := client.New(rc)
				if err != nil {
					t.Fatal(err)
				}
				v := &volcanoPart{
					kube: kube, vc: vc, part: idle{}, kinds: kindsServed, install: true, native: true, queues: true,
					log: slog.New(slog.DiscardHandler), ready: make(chan struct{}), served: make(chan struct{}),
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan error, 1)
				go func() { ended <- v.Run(ctx) }()
				select {
				case <-v.Served():
					if tc.want != "" {
						t.Errorf("they work, want an error that begins with %q", tc.want)
					}
					stop()
					if err := <-ended; err != nil {
						t.Errorf("stopping: %v", err)
					}
				case err := <-ended:
					if tc.want == "" || !strings.HasPrefix(err.Error(), tc.want) {
						t.Errorf("ended with %v, want %q", err, tc.want)
					}
				}
			})
		})
	}
}

// idle is a part that has nothing to do.
type idle struct{}

func (idle) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

func (idle) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// troubled is an API server that has Volcano's kinds and PodGroups of its own. What it is asked for the first time meets trouble. Its
// client asks one thing after the other, but for the definitions of kinds.
type troubled struct {
	code  int
	mu    sync.Mutex
	asked map[string]bool
}

func (s *troubled) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte("{}")
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	question := r.Method + " " + r.URL.Path + " " + string(body)
	known := s.asked[question]
	s.asked[question] = true
	s.mu.Unlock()
	code := http.StatusOK
	switch lists := map[string]string{"jobs": "JobList", "podgroups": "PodGroupList", "commands": "CommandList", "queues": "QueueList"}; {
	case !known && s.code == 0:
		return nil, errors.New("connection refused")
	case !known:
		code, body = s.code, nil
	case path.Base(r.URL.Path) == "v1beta1" && r.Method == http.MethodGet:
		body = []byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"scheduling.k8s.io/v1beta1","resources":[{"name":"podgroups"}]}`)
	case r.Method == http.MethodGet && lists[path.Base(r.URL.Path)] != "":
		version := strings.Join(strings.Split(r.URL.Path, "/")[2:4], "/")
		body = []byte(`{"kind":"` + lists[path.Base(r.URL.Path)] + `","apiVersion":"` + version + `","items":[]}`)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}
