// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/utils/exec"
)

// host has one pod, "ns/p" with UID "u", and answers by rote.
type host struct{}

var thePod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}

func (host) Pods() []*corev1.Pod { return []*corev1.Pod{thePod} }

func (host) Pod(namespace, name string) (*corev1.Pod, bool) {
	return thePod, namespace == "ns" && name == "p"
}

func (host) Log(ctx context.Context, _ *corev1.Pod, container string, o *corev1.PodLogOptions, stdout, stderr io.Writer) error {
	switch container {
	case "none":
		return errors.New(`container "none" in pod "p" is not available`)
	case "breaks":
		fmt.Fprintln(stdout, "half")
		return errors.New("disk is gone")
	case "follows":
		fmt.Fprintln(stdout, "one")
		<-ctx.Done()
		return ctx.Err()
	}
	if stdout != nil {
		b, err := json.Marshal(o)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s\n", b)
	}
	if stderr != nil {
		fmt.Fprintln(stderr, "stderr")
	}
	return nil
}

func (host) Exec(_ context.Context, _ *corev1.Pod, container string, command []string, s Streams) error {
	switch command[0] {
	case "fail":
		return utilexec.CodeExitError{Err: errors.New("exit 7"), Code: 7}
	case "missing":
		return errors.New("no such command")
	case "size":
		size := <-s.Resize
		fmt.Fprintf(s.Stdout, "%dx%d tty=%t", size.Width, size.Height, s.TTY)
		return nil
	}
	in, err := io.ReadAll(s.Stdin)
	fmt.Fprintf(s.Stdout, "%s %v %s", container, command, in)
	fmt.Fprint(s.Stderr, "err")
	return err
}

func (host) Attach(_ context.Context, _ *corev1.Pod, container string, s Streams) error {
	fmt.Fprint(s.Stdout, "attached to "+container)
	return nil
}

func (host) Forward(_ context.Context, _ *corev1.Pod, port int32, stream io.ReadWriteCloser) error {
	b := make([]byte, 5)
	if _, err := io.ReadFull(stream, b); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stream, "%d: %s", port, b)
	return err
}

func serve(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(New(host{}, slog.New(slog.DiscardHandler)))
	t.Cleanup(server.Close)
	return server
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, string(body) + "<cut off>"
	}
	return response.StatusCode, string(body)
}

func TestRequests(t *testing.T) {
	server := serve(t)
	cases := map[string]struct {
		path string
		code int
		body string
	}{
		"health": {"/healthz", 200, "ok"},
		"a log":  {"/containerLogs/ns/p/c", 200, `{"stream":"All"}` + "\nstderr\n"},
		"a log with options": {
			"/containerLogs/ns/p/c?follow=true&previous=true&timestamps=1&tailLines=3&limitBytes=9&sinceSeconds=4&stream=Stdout", 200,
			`{"follow":true,"previous":true,"sinceSeconds":4,"timestamps":true,"tailLines":3,"limitBytes":9,"stream":"Stdout"}` + "\n",
		},
		"since a time":        {"/containerLogs/ns/p/c?sinceTime=2026-01-02T03:04:05Z&stream=Stderr", 200, "stderr\n"},
		"bad options":         {"/containerLogs/ns/p/c?tailLines=x&follow=maybe", 400, "follow: \"maybe\" is neither true nor false\ntailLines: \"x\" is no number of at least 0\n"},
		"no such container":   {"/containerLogs/ns/p/none", 400, "container \"none\" in pod \"p\" is not available\n"},
		"no such pod":         {"/containerLogs/ns/q/c", 404, "pod \"q\" does not exist\n"},
		"another pod's UID":   {"/exec/ns/p/x/c?command=ls&output=1", 404, "pod \"p\" does not exist\n"},
		"exec of nothing":     {"/exec/ns/p/c?output=1", 400, "you must specify a command\n"},
		"exec without output": {"/exec/ns/p/c?command=ls", 400, "you must specify at least 1 of stdin, stdout, stderr\n"},
		"unknown paths":       {"/run/ns/p/c", 404, "404 page not found\n"},
		"a log that breaks":   {"/containerLogs/ns/p/breaks", 200, "half\n<cut off>"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, body := get(t, server.URL+tc.path)
			if diff := cmp.Diff(tc.body, body); code != tc.code || diff != "" {
				t.Errorf("code %d, want %d; body (-want +got):\n%s", code, tc.code, diff)
			}
		})
	}
	code, body := get(t, server.URL+"/pods")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); code != 200 || err != nil || len(list.Items) != 1 || list.Items[0].Name != "p" {
		t.Errorf("pods: code %d, error %v, %+v", code, err, list)
	}
}

func TestAFollowedLogArrivesAtOnceAndEndsWithItsReader(t *testing.T) {
	server := serve(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/containerLogs/ns/p/follows?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line := make([]byte, 4)
	if _, err := io.ReadFull(response.Body, line); err != nil || string(line) != "one\n" {
		t.Errorf("first line %q, %v", line, err)
	}
	cancel() // Close of the server waits for its handlers
}

// executors are the two ways in which the API server reaches a node.
func executors(t *testing.T, server *httptest.Server, query string) map[string]remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(server.URL + query)
	if err != nil {
		t.Fatal(err)
	}
	overSPDY, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, http.MethodGet, u.String(), "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": overSPDY, "WebSocket": overWebSocket}
}

func stream(t *testing.T, e remotecommand.Executor, o remotecommand.StreamOptions) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return e.StreamWithContext(ctx, o)
}

func TestExec(t *testing.T) {
	server := serve(t)
	for name, e := range executors(t, server, "/exec/ns/p/c?command=echo&command=x&input=1&output=1&error=1") {
		if name == "WebSocket" {
			continue // its old protocol cannot end standard input
		}
		var out, errOut bytes.Buffer
		err := stream(t, e, remotecommand.StreamOptions{Stdin: strings.NewReader("typed"), Stdout: &out, Stderr: &errOut})
		if err != nil || out.String() != "c [echo x] typed" || errOut.String() != "err" {
			t.Errorf("over %s: %v, stdout %q, stderr %q", name, err, out.String(), errOut.String())
		}
	}
	for name, e := range executors(t, server, "/exec/ns/p/u/c?command=fail&output=1") {
		err := stream(t, e, remotecommand.StreamOptions{Stdout: io.Discard})
		var exit utilexec.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 7 {
			t.Errorf("over %s: error = %v, want exit code 7", name, err)
		}
	}
	for name, e := range executors(t, server, "/exec/ns/p/c?command=missing&output=1") {
		if err := stream(t, e, remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || !strings.Contains(err.Error(), "no such command") {
			t.Errorf("over %s: error = %v", name, err)
		}
	}
}

type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestExecWithATerminal(t *testing.T) {
	server := serve(t)
	for name, e := range executors(t, server, "/exec/ns/p/c?command=size&output=1&tty=1") {
		if name == "WebSocket" {
			continue // only the protocol that the API server translates has sizes
		}
		queue := make(sizes, 1)
		queue <- remotecommand.TerminalSize{Width: 80, Height: 25}
		var out bytes.Buffer
		err := stream(t, e, remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: queue})
		close(queue)
		if err != nil || out.String() != "80x25 tty=true" {
			t.Errorf("over %s: %v, %q", name, err, out.String())
		}
	}
}

func TestAttach(t *testing.T) {
	server := serve(t)
	for name, e := range executors(t, server, "/attach/ns/p/c?output=1") {
		var out bytes.Buffer
		if err := stream(t, e, remotecommand.StreamOptions{Stdout: &out}); err != nil || out.String() != "attached to c" {
			t.Errorf("over %s: %v, %q", name, err, out.String())
		}
	}
}

func TestPortForward(t *testing.T) {
	server := serve(t)
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL + "/portForward/ns/p")
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	<-ready
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	answer := dialAndSay(t, fmt.Sprintf("127.0.0.1:%d", ports[0].Local), "hello")
	if answer != "8080: hello" {
		t.Errorf("answer = %q", answer)
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func dialAndSay(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
