// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
)

func execProbe(edit func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	p.Exec = &corev1.ExecAction{Command: []string{"check"}}
	if edit != nil {
		edit(p)
	}
	return p
}

// script answers one exec after another; the last answer stays. "ok", "fail", "error" and "hang" are understood.
func script(answers ...string) Exec {
	var mu sync.Mutex
	return func(ctx context.Context, _ string, _ []string, out io.Writer) (int, error) {
		mu.Lock()
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		mu.Unlock()
		switch answer {
		case "ok":
			return 0, nil
		case "fail":
			fmt.Fprint(out, "not well")
			return 1, nil
		case "hang":
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 0, errors.New("no such container")
	}
}

// record runs Watch for a while and returns what it reported, each line with the seconds since the start.
func record(exec Exec, c *corev1.Container, started bool, d time.Duration) []string {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	begin := time.Now()
	var mu sync.Mutex
	var lines []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf("%2.0fs ", time.Since(begin).Seconds())+fmt.Sprintf(format, args...))
	}
	p := New(exec, clock.RealClock{})
	p.Watch(ctx, Target{ID: "id", Container: c, StartedAt: begin}, started, Reporter{
		Verdict: func(kind Kind, ok bool) { note("%s %t", kind, ok) },
		Event:   func(reason, message string) { note("%s: %s", reason, message) },
	})
	return lines
}

func TestWatch(t *testing.T) {
	cases := map[string]struct {
		exec      Exec
		container corev1.Container
		started   bool
		span      time.Duration
		want      []string
	}{
		"readiness follows every threshold": {
			exec:      script("ok", "fail", "fail", "fail", "ok"),
			container: corev1.Container{ReadinessProbe: execProbe(nil)},
			span:      45 * time.Second,
			want: []string{
				" 0s Readiness true",
				"10s Unhealthy: Readiness probe failed: not well",
				"20s Unhealthy: Readiness probe failed: not well",
				"30s Unhealthy: Readiness probe failed: not well",
				"30s Readiness false",
				"40s Readiness true",
			},
		},
		"liveness waits out its initial delay and ends with its failure": {
			exec:      script("fail"),
			container: corev1.Container{LivenessProbe: execProbe(func(p *corev1.Probe) { p.InitialDelaySeconds, p.FailureThreshold = 5, 2 })},
			span:      time.Minute,
			want: []string{
				" 5s Unhealthy: Liveness probe failed: not well",
				"15s Unhealthy: Liveness probe failed: not well",
				"15s Liveness false",
			},
		},
		"liveness and readiness wait for startup": {
			exec: script("fail", "ok", "ok", "ok"),
			container: corev1.Container{
				StartupProbe:   execProbe(func(p *corev1.Probe) { p.PeriodSeconds = 3 }),
				ReadinessProbe: execProbe(func(p *corev1.Probe) { p.PeriodSeconds = 60 }),
			},
			span: 30 * time.Second,
			want: []string{
				" 0s Unhealthy: Startup probe failed: not well",
				" 3s Startup true",
				" 3s Readiness true",
			},
		},
		"a startup that was seen before is not asked again": {
			exec: script("ok"),
			container: corev1.Container{
				StartupProbe:   execProbe(nil),
				ReadinessProbe: execProbe(func(p *corev1.Probe) { p.PeriodSeconds = 60 }),
			},
			started: true,
			span:    30 * time.Second,
			want:    []string{" 0s Readiness true"},
		},
		"a startup that fails ends it all": {
			exec: script("fail"),
			container: corev1.Container{
				StartupProbe:  execProbe(func(p *corev1.Probe) { p.FailureThreshold = 1 }),
				LivenessProbe: execProbe(nil),
			},
			span: time.Minute,
			want: []string{
				" 0s Unhealthy: Startup probe failed: not well",
				" 0s Startup false",
			},
		},
		"a probe that cannot be carried out says nothing about the container": {
			exec:      script("error", "error", "error", "ok"),
			container: corev1.Container{LivenessProbe: execProbe(func(p *corev1.Probe) { p.FailureThreshold = 1 })},
			span:      15 * time.Second,
			want: []string{
				" 0s Unhealthy: Liveness probe errored and resulted in unknown state: no such container",
				"10s Liveness true",
			},
		},
		"a command that hangs has failed": {
			exec:      script("hang"),
			container: corev1.Container{LivenessProbe: execProbe(func(p *corev1.Probe) { p.FailureThreshold = 1 })},
			span:      15 * time.Second,
			want: []string{
				` 1s Unhealthy: Liveness probe failed: command timed out: "check" timed out after 1s`,
				" 1s Liveness false",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(tc.want, record(tc.exec, &tc.container, tc.started, tc.span)); diff != "" {
					t.Errorf("reports (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/well" && r.Header.Get("X-Probe") == "yes":
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
		default:
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := closed.Addr().(*net.TCPAddr).Port
	closed.Close()

	named := intstr.FromString("web")
	get := func(path string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: named, HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Probe", Value: "yes"}}}}
	}
	cases := map[string]struct {
		handler corev1.ProbeHandler
		ok      bool
		warning bool
		output  string // a part of it
		err     string
	}{
		"an answer below 400":               {handler: get("/well"), ok: true},
		"an answer of 500":                  {handler: get("/ill"), output: "HTTP probe failed with statuscode: 500"},
		"a redirect elsewhere is a warning": {handler: get("/moved"), ok: true, warning: true, output: "Probe terminated redirects"},
		"a port that takes connections":     {handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}, ok: true},
		"a port that does not":              {handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(free)}}, output: "connection refused"},
		"grpc on a port that refuses":       {handler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(free)}}, output: "failed to connect"},
		"a port name that is unknown":       {handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("none")}}, err: "none"},
		"no handler":                        {err: "missing probe handler"},
	}
	p := New(script("ok"), clock.RealClock{})
	target := Target{PodIP: "127.0.0.1", Container: &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := p.once(context.Background(), target, &corev1.Probe{ProbeHandler: tc.handler, TimeoutSeconds: 5})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error = %v, want … %s", err, tc.err)
				}
				return
			}
			if err != nil || got.ok != tc.ok || got.warning != tc.warning || !strings.Contains(got.output, tc.output) {
				t.Errorf("outcome = %+v, %v", got, err)
			}
		})
	}
}

func TestHooks(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := intstr.Parse(u.Port())
	target := Target{ID: "id", PodIP: "127.0.0.1", Container: &corev1.Container{Name: "c"}}
	cases := map[string]struct {
		exec  Exec
		hook  corev1.LifecycleHandler
		asked string
		err   string
	}{
		"a command":            {exec: script("ok"), hook: corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}},
		"a command that fails": {exec: script("fail"), hook: corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"x", "y"}}}, err: `Exec lifecycle hook ([x y]) for Container "c" failed - error: command 'x y' exited with 1, message: "not well"`},
		"a request":            {hook: corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: port}}, asked: "/bye"},
		"a request by HTTPS to a server that speaks HTTP": {hook: corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/s", Port: port, Scheme: corev1.URISchemeHTTPS}}, asked: "/s"},
		"a sleep": {hook: corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 0}}},
		"nothing": {err: "the hook has neither exec nor httpGet nor sleep"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := New(tc.exec, clock.RealClock{}).Run(context.Background(), target, &tc.hook)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || err.Error() != tc.err) {
				t.Errorf("error = %v, want %q", err, tc.err)
			}
			if tc.asked != "" {
				if got := <-asked; got != tc.asked {
					t.Errorf("asked for %s", got)
				}
			}
		})
	}
}

func TestASleepingHookEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := New(nil, clock.RealClock{}).Run(ctx, Target{Container: &corev1.Container{}}, &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 60}})
		if err == nil || err.Error() != "container terminated before sleep hook finished" {
			t.Errorf("error = %v", err)
		}
	})
}
