// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/config"
)

// story is what becomes of a selection of namespaces: where there are rights, and what work was done.
type story struct {
	mu   sync.Mutex
	open map[string]bool
	err  error // of asking for rights
	told []string
}

func (s *story) MayWork(_ context.Context, namespace string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[namespace] && s.err == nil, s.err
}

func (s *story) IsMissing(context.Context, string) bool { return false }

func (s *story) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *story) set(err error, open ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	for _, namespace := range open {
		s.open[namespace] = true
	}
}

func TestWorkIsDoneInTheNamespacesWhereThereAreRights(t *testing.T) {
	errBroken := errors.New("broken")
	cases := map[string]struct {
		open   []string
		err    error
		events func(s *story) // what happens, a minute apart from the end
		breaks bool           // the work ends with an error by itself after 30 s
		want   []string
	}{
		"in all of them": {
			open: []string{"a", "b"}, want: []string{"begins in a,b", "ends in a,b"},
		},
		"in some, and in all as soon as it may": {
			open: []string{"b"}, events: func(s *story) { s.set(nil, "a") },
			want: []string{"begins in b", "ends in b", "begins in a,b", "ends in a,b"},
		},
		"in none, until it may": {
			events: func(s *story) { s.set(nil, "b") },
			want:   []string{"begins in b", "ends in b"},
		},
		"in none where nobody says that it may": {
			open: []string{"a", "b"}, err: errBroken, want: nil,
		},
		"once it is said that it may": {
			open: []string{"a", "b"}, err: errBroken, events: func(s *story) { s.set(nil) },
			want: []string{"begins in a,b", "ends in a,b"},
		},
		"until it fails": {
			open: []string{"a"}, breaks: true, want: []string{"begins in a", "fails in a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &story{open: map[string]bool{}, err: tc.err}
				s.set(tc.err, tc.open...)
				selected := &selection{rights: s, clock: clock.RealClock{}, log: slog.New(slog.DiscardHandler), namespaces: []string{"a", "b"}}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				if tc.events != nil {
					time.AfterFunc(time.Minute, func() { tc.events(s) })
				}
				err := selected.run(ctx, func(ctx context.Context, namespaces []string) error {
					in := strings.Join(namespaces, ",")
					s.note("begins in %s", in)
					if tc.breaks {
						time.Sleep(30 * time.Second)
						s.note("fails in %s", in)
						return errBroken
					}
					<-ctx.Done()
					s.note("ends in %s", in)
					return nil
				})
				if tc.breaks != errors.Is(err, errBroken) {
					t.Errorf("error %v", err)
				}
				if diff := cmp.Diff(tc.want, s.told); diff != "" {
					t.Errorf("what happened (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// recorder is an API server that has nothing and notes what it is asked for.
type recorder struct {
	mu    sync.Mutex
	asked map[string]bool
}

func (r *recorder) paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.asked))
}

// listKinds are the kinds of the lists that are asked for to see whether there are such kinds.
var listKinds = map[string]string{
	"jobs": "JobList", "podgroups": "PodGroupList", "commands": "CommandList", "queues": "QueueList", "cronjobs": "CronJobList", "jobflows": "JobFlowList", "jobtemplates": "JobTemplateList",
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case req.URL.Path == "/apis/scheduling.k8s.io/v1beta1":
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"scheduling.k8s.io/v1beta1","resources":[{"name":"podgroups","namespaced":true,"kind":"PodGroup","verbs":["list"]}]}`)
	case req.Method == http.MethodPost:
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`)
	case req.URL.Query().Get("limit") == "1":
		r.note(req)
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, listKinds[path.Base(req.URL.Path)], parts[1]+"/"+parts[2])
	default:
		r.note(req)
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	}
}

func (r *recorder) note(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[req.URL.Path] = true
}

func TestControllersAskOnlyForTheNamespacesThatAreSelected(t *testing.T) {
	want := []string{"/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/scheduling.volcano.sh/v1beta1/queues"}
	for _, namespace := range []string{"a", "b"} {
		for _, kind := range []string{
			"/api/v1/*/pods", "/apis/batch/v1/*/jobs", "/apis/batch/v1/*/cronjobs", "/apis/apps/v1/*/replicasets", "/apis/apps/v1/*/statefulsets",
			"/apis/scheduling.k8s.io/v1beta1/*/workloads", "/apis/scheduling.k8s.io/v1beta1/*/podgroups",
			"/apis/batch.volcano.sh/v1alpha1/*/jobs", "/apis/batch.volcano.sh/v1alpha1/*/cronjobs", "/apis/bus.volcano.sh/v1alpha1/*/commands",
			"/apis/scheduling.volcano.sh/v1beta1/*/podgroups", "/apis/flow.volcano.sh/v1alpha1/*/jobflows", "/apis/flow.volcano.sh/v1alpha1/*/jobtemplates",
		} {
			want = append(want, strings.Replace(kind, "*", "namespaces/"+namespace, 1))
		}
	}
	slices.Sort(want)
	api := &recorder{asked: map[string]bool{}}
	server := httptest.NewServer(api)
	defer server.Close()
	cfg := config.Controllers{Manage: config.ManageAll, Gang: config.GangNative, Groups: true, Namespaces: []string{"b", "a", "b"}}
	c, err := NewControllers(cfg, &rest.Config{Host: server.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	limit := time.After(20 * time.Second)
	for waiting := true; waiting && len(api.paths()) < len(want); {
		select {
		case <-limit:
			waiting = false
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, api.paths()); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}
