// SPDX-License-Identifier: Apache-2.0

package inprocess_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/controlplane/inprocess"
)

const (
	podsPath  = "/api/v1/namespaces/a/pods"
	watchPath = podsPath + "?watch=true"
	root      = "Bearer of somebody who may do everything"
	worker    = "system:serviceaccount:kube-system:worker"
)

// server is a real API server whose pods are answered by a function.
type server struct {
	http.Handler
	config *genericapiserver.Config
	pods   http.HandlerFunc
}

// newServer returns a server that knows whoever sends root, where worker may do everything but delete.
func newServer(tb testing.TB, change ...func(*genericapiserver.Config)) *server {
	tb.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	scheme.AddUnversionedTypes(metav1.Unversioned, &metav1.Status{})
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	config.ExternalAddress = "plane:6443"
	config.LoopbackClientConfig = &rest.Config{}
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.SkipOpenAPIInstallation = true
	config.Authentication.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if req.Header.Get("Authorization") != root {
			return nil, false, nil
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}}, true, nil
	})
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == worker && a.GetVerb() == "delete" {
			return authorizer.DecisionNoOpinion, "", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
	s := &server{config: config}
	for _, change := range change {
		change(config)
	}
	inprocess.ShortenChain(config)
	built, err := config.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(built.Destroy)
	built.Handler.NonGoRestfulMux.HandleFunc(podsPath, func(w http.ResponseWriter, req *http.Request) { s.pods(w, req) })
	s.Handler = built.Handler
	return s
}

// answer is what a server says.
type answer struct {
	code   int
	header http.Header
	text   string
}

// send asks s by way of a Transport that sends for u.
func (s *server) send(t *testing.T, u user.Info, method, path string, header http.Header) answer {
	t.Helper()
	return send(t, t.Context(), &inprocess.Transport{Handler: s, User: u}, method, "https://plane"+path, header)
}

func send(t *testing.T, ctx context.Context, by http.RoundTripper, method, url string, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	got, err := by.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil && got.StatusCode != http.StatusInternalServerError { // after a panic, the text is broken off
		t.Fatal(err)
	}
	return answer{got.StatusCode, got.Header, string(text)}
}

func TestAPartIsWhoImpersonationWouldMakeOfIt(t *testing.T) {
	for name, groups := range map[string][]string{
		worker:                  nil,
		"system:node:machine":   {"system:nodes"},
		"system:kube-scheduler": nil,
		"drover:controllers":    {"a", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			var seen []user.Info
			var agents []string
			s.pods = func(_ http.ResponseWriter, req *http.Request) {
				u, _ := request.UserFrom(req.Context())
				seen, agents = append(seen, u), append(agents, req.UserAgent())
			}
			agent := []string{"drover/" + name}
			s.send(t, nil, http.MethodGet, podsPath, http.Header{
				"Authorization": {root}, "Impersonate-User": {name}, "Impersonate-Group": groups, "User-Agent": agent,
			})
			s.send(t, inprocess.User(name, groups...), http.MethodGet, podsPath, http.Header{"User-Agent": agent})
			if len(seen) != 2 {
				t.Fatalf("the server has seen %d requests, want 2", len(seen))
			}
			if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
				t.Errorf("user (-impersonated +sent for):\n%s", diff)
			}
			if agents[0] != agents[1] { // it names who manages a field
				t.Errorf("user agents %q", agents)
			}
		})
	}
}

// forged is what a request from outside can say of itself.
var forged = http.Header{
	"Impersonate-User": {"system:admin"}, "Impersonate-Group": {user.SystemPrivilegedGroup}, "X-Remote-User": {worker},
	"X-Remote-Group": {user.SystemPrivilegedGroup}, "Sender": {worker}, "User-Agent": {"drover/" + worker}, "X-Forwarded-For": {"127.0.0.1"},
	"Authorization": {"Bearer " + worker},
}

func TestARequestFromOutsideIsAskedWhoSendsIt(t *testing.T) {
	s := newServer(t)
	s.pods = func(_ http.ResponseWriter, req *http.Request) {
		u, _ := request.UserFrom(req.Context())
		t.Errorf("the server works for %v", u)
	}
	plain, encrypted := httptest.NewServer(s), httptest.NewTLSServer(s)
	t.Cleanup(plain.Close)
	t.Cleanup(encrypted.Close)
	// Whoever has the context of a request that a part has sent can do no more with it than with another.
	var known context.Context
	send(t, t.Context(), &inprocess.Transport{User: inprocess.User(worker), Handler: http.HandlerFunc(
		func(_ http.ResponseWriter, req *http.Request) { known = context.WithoutCancel(req.Context()) },
	)}, http.MethodGet, "https://plane/", nil)
	for name, c := range map[string]struct {
		by  http.RoundTripper
		url string
	}{
		"over a connection":           {plain.Client().Transport, plain.URL},
		"over an encrypted one":       {encrypted.Client().Transport, encrypted.URL},
		"by a transport without user": {&inprocess.Transport{Handler: s}, "https://plane"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, header := range []http.Header{nil, forged} {
				if got := send(t, known, c.by, http.MethodGet, c.url+podsPath, header); got.code != http.StatusUnauthorized {
					t.Errorf("with %v the server answers %d", header, got.code)
				}
			}
		})
	}
}

func TestAPartCanSendForNobodyElse(t *testing.T) {
	s := newServer(t)
	var seen string
	s.pods = func(_ http.ResponseWriter, req *http.Request) {
		u, _ := request.UserFrom(req.Context())
		seen = u.GetName()
	}
	for _, authorization := range []string{root, "Bearer of nobody"} {
		header := forged.Clone()
		header.Set("Authorization", authorization)
		if s.send(t, inprocess.User(worker), http.MethodGet, podsPath, header); seen != worker {
			t.Errorf("with %q the server works for %q", authorization, seen)
		}
	}
}

func TestAPartIsAnsweredLikeEverybody(t *testing.T) {
	s := newServer(t)
	s.pods = func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPut {
			panic("out of paper")
		}
		fmt.Fprint(w, "pods")
	}
	for name, tc := range map[string]struct {
		method, path string
		code         int
		text         string
	}{
		"what it may do is done":                     {http.MethodGet, podsPath, http.StatusOK, "pods"},
		"what it may not do is refused":              {http.MethodDelete, podsPath + "/b", http.StatusForbidden, `"reason":"Forbidden"`},
		"what there is not is not found":             {http.MethodGet, "/api/v1/nothing", http.StatusNotFound, "paths"},
		"what goes wrong is the server's fault":      {http.MethodPut, podsPath, http.StatusInternalServerError, ""},
		"a timeout that is none is a bad request":    {http.MethodGet, podsPath + "?timeout=soon", http.StatusBadRequest, "invalid timeout"},
		"the server's own answers are there as well": {http.MethodGet, "/version", http.StatusOK, "major"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.send(t, inprocess.User(worker), tc.method, tc.path, http.Header{"Accept": {"application/json"}})
			if got.code != tc.code || !strings.Contains(got.text, tc.text) {
				t.Errorf("the server answers %d, %q", got.code, got.text)
			}
			if tc.code == http.StatusForbidden {
				var status metav1.Status
				if err := json.Unmarshal([]byte(got.text), &status); err != nil || !strings.Contains(status.Message, worker) {
					t.Errorf("it does not say who may not: %q, %v", got.text, err)
				}
			}
		})
	}
}

func TestOnlyWatchesHaveNoDeadline(t *testing.T) {
	s := newServer(t)
	var left time.Duration
	var bounded bool
	s.pods = func(_ http.ResponseWriter, req *http.Request) {
		var deadline time.Time
		deadline, bounded = req.Context().Deadline()
		left = time.Until(deadline)
	}
	for path, limit := range map[string]time.Duration{
		watchPath:                0,
		podsPath:                 s.config.RequestTimeout,
		podsPath + "?timeout=9s": 9 * time.Second,
		podsPath + "?timeout=9h": s.config.RequestTimeout,
	} {
		s.send(t, inprocess.User(worker), http.MethodGet, path, nil)
		if bounded != (limit != 0) || bounded && (left > limit || left < limit/2) {
			t.Errorf("%s: bounded %v, %v left, want %v", path, bounded, left, limit)
		}
	}
}

// A patch ends in a panic without one.
func TestThereIsARecordAndNothingIsWrittenToIt(t *testing.T) {
	s := newServer(t)
	var record *audit.AuditContext
	s.pods = func(_ http.ResponseWriter, req *http.Request) {
		audit.LogRequestPatch(req.Context(), []byte("a patch"))
		audit.AddAuditAnnotation(req.Context(), "example.com/a", "b")
		record = audit.AuditContextFrom(req.Context())
	}
	if got := s.send(t, inprocess.User(worker), http.MethodPatch, podsPath, nil); got.code != http.StatusOK || record == nil {
		t.Fatalf("the server answers %d, %q", got.code, got.text)
	}
	if record.Enabled() || len(record.GetEventAnnotations()) > 0 {
		t.Errorf("there are annotations in the record: %v", record.GetEventAnnotations())
	}
}

func TestAStopWaitsForWhatIsInFlight(t *testing.T) {
	s := newServer(t)
	arrived, finish := make(chan string), make(chan struct{})
	s.pods = func(w http.ResponseWriter, req *http.Request) {
		w.(http.Flusher).Flush()
		arrived <- req.URL.RawQuery
		if req.URL.Query().Has("watch") {
			<-req.Context().Done()
		} else {
			<-finish
		}
	}
	client := &http.Client{Transport: &inprocess.Transport{Handler: s, User: inprocess.User(worker)}}
	begin := func(path string) *http.Response {
		answer, err := client.Get("https://plane" + path)
		if err != nil {
			t.Fatal(err)
		}
		<-arrived
		return answer
	}
	list, watch := begin(podsPath), begin(watchPath)
	defer list.Body.Close()
	stopped := make(chan struct{})
	go func() {
		s.config.NonLongRunningRequestWaitGroup.Wait()
		close(stopped)
	}()
	late := answer{code: http.StatusOK}
	for late.code == http.StatusOK { // until the stop has come so far
		late = s.send(t, inprocess.User(worker), http.MethodGet, "/version", nil)
	}
	if late.code != http.StatusServiceUnavailable || late.header.Get("Retry-After") == "" {
		t.Errorf("during a stop the server answers %d with %v", late.code, late.header)
	}
	select {
	case <-stopped:
		t.Error("the server stops in the middle of a request")
	default:
	}
	close(finish)
	<-stopped // although somebody still watches
	if err := watch.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestWarningsReachTheClient(t *testing.T) {
	s := newServer(t)
	s.pods = func(w http.ResponseWriter, req *http.Request) {
		var others sync.WaitGroup
		for range 4 {
			others.Go(func() { warning.AddWarning(req.Context(), "", "old") })
		}
		w.Header().Set("X-Answer", "yes") // while they warn
		others.Wait()
		warning.AddWarning(req.Context(), "", "")
		warning.AddWarning(req.Context(), "", "two\nlines")
		warning.AddWarning(req.Context(), "agent", `a "word"`)
		w.WriteHeader(http.StatusOK)
		warning.AddWarning(req.Context(), "", "too late")
	}
	got := s.send(t, inprocess.User(worker), http.MethodGet, podsPath, nil)
	want := []string{`299 - "old"`, `299 agent "a \"word\""`}
	if diff := cmp.Diff(want, got.header["Warning"]); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// records is an audit backend that keeps nothing.
type records struct{}

func (records) ProcessEvents(...*auditinternal.Event) bool { return true }
func (records) Run(<-chan struct{}) error                  { return nil }
func (records) Shutdown()                                  {}
func (records) String() string                             { return "records" }

func TestWhoeverKeepsRecordsGetsAll(t *testing.T) {
	s := newServer(t, func(c *genericapiserver.Config) { c.AuditBackend = records{} })
	s.pods = func(http.ResponseWriter, *http.Request) { t.Error("a request has gone past the record") }
	if got := s.send(t, inprocess.User(worker), http.MethodGet, podsPath, nil); got.code != http.StatusUnauthorized {
		t.Errorf("the server answers %d", got.code)
	}
}

// BenchmarkRequest compares the way of everybody, without API Priority and Fairness, with the short one.
func BenchmarkRequest(b *testing.B) {
	for name, sender := range map[string]user.Info{"everybody": nil, "part": inprocess.User(worker)} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b)
			s.pods = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
			t := &inprocess.Transport{Handler: s, User: sender}
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://plane"+podsPath, http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			if sender == nil {
				req.Header = http.Header{"Authorization": {root}, "Impersonate-User": {worker}}
			}
			b.ReportAllocs()
			for b.Loop() {
				answer, err := t.RoundTrip(req)
				if err != nil || answer.StatusCode != http.StatusOK {
					b.Fatal(answer, err)
				}
				answer.Body.Close()
			}
		})
	}
}
