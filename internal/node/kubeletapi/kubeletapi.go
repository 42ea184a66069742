// SPDX-License-Identifier: Apache-2.0

// Package kubeletapi serves the part of a kubelet's API that the API server asks nodes for: logs, exec, attach and port-forward,
// besides the list of pods.
//
// It knows the protocols and nothing else; what is asked for comes from a Host. Who may ask is decided before, by the TLS
// configuration of the listener. Start reading at New.
package kubeletapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	// idleTimeout ends a stream on which nothing happens, creationTimeout one whose parts do not come. Both are kubelet's.
	idleTimeout     = 4 * time.Hour
	creationTimeout = remotecommand.DefaultStreamCreationTimeout
)

// Host is the node behind the API. Its methods are called from many goroutines.
type Host interface {
	// Pods returns all pods of the node.
	Pods() []*corev1.Pod
	// Pod returns a pod by its name, and false when there is none.
	Pod(namespace, name string) (*corev1.Pod, bool)
	// Log writes the log of a container. An error that comes before the first byte is told to the user.
	Log(ctx context.Context, pod *corev1.Pod, container string, options *corev1.PodLogOptions, stdout, stderr io.Writer) error
	// Exec runs a command in a container and returns when it has ended. An exit code other than 0 is a utilexec.ExitError.
	Exec(ctx context.Context, pod *corev1.Pod, container string, command []string, s Streams) error
	// Attach connects to the running command of a container, until that or the caller ends.
	Attach(ctx context.Context, pod *corev1.Pod, container string, s Streams) error
	// Forward carries bytes between a stream and a port of the pod.
	Forward(ctx context.Context, pod *corev1.Pod, port int32, stream io.ReadWriteCloser) error
}

// Streams are what a user is connected by; those that are not wanted are nil.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	Resize         <-chan remotecommand.TerminalSize
}

// New returns the handler of the API. It outlives no request: what a request has started ends with its context.
func New(host Host, log *slog.Logger) http.Handler {
	s := &server{host: host, log: log}
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /healthz/ping", ok)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /pods/{$}", s.pods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	for path, handle := range map[string]http.HandlerFunc{
		"/exec/{namespace}/{pod}/{container}":         s.exec,
		"/exec/{namespace}/{pod}/{uid}/{container}":   s.exec,
		"/attach/{namespace}/{pod}/{container}":       s.attach,
		"/attach/{namespace}/{pod}/{uid}/{container}": s.attach,
		"/portForward/{namespace}/{pod}":              s.portForward,
		"/portForward/{namespace}/{pod}/{uid}":        s.portForward,
	} {
		mux.HandleFunc("GET "+path, handle)
		mux.HandleFunc("POST "+path, handle)
	}
	return mux
}

type server struct {
	host Host
	log  *slog.Logger
}

// pod returns the pod of a request, or answers that there is none.
func (s *server) pod(w http.ResponseWriter, r *http.Request) (*corev1.Pod, bool) {
	pod, ok := s.host.Pod(r.PathValue("namespace"), r.PathValue("pod"))
	if uid := r.PathValue("uid"); ok && uid != "" && uid != string(pod.UID) {
		ok = false
	}
	if !ok {
		http.Error(w, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")), http.StatusNotFound)
	}
	return pod, ok
}

func (s *server) pods(w http.ResponseWriter, r *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, pod := range s.host.Pods() {
		list.Items = append(list.Items, *pod)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil && r.Context().Err() == nil {
		s.log.Debug("Answering a request for pods did not work", "err", err)
	}
}

func (s *server) logs(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	options, err := logOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := &flushing{w: w}
	stdout, stderr := io.Writer(out), io.Writer(out)
	switch *options.Stream {
	case corev1.LogStreamStdout:
		stderr = nil
	case corev1.LogStreamStderr:
		stdout = nil
	}
	err = s.host.Log(r.Context(), pod, r.PathValue("container"), options, stdout, stderr)
	switch {
	case err == nil || r.Context().Err() != nil:
		out.flush()
	case !out.begun:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		// Part of the log is out already; only a broken answer can tell that it is not all of it.
		s.log.Warn("Reading a log did not work", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		panic(http.ErrAbortHandler)
	}
}

// logOptions reads the options of a request for a log.
func logOptions(query url.Values) (*corev1.PodLogOptions, error) {
	all := corev1.LogStreamAll
	o := &corev1.PodLogOptions{Stream: &all}
	var errs []error
	boolean := func(name string, field *bool) {
		if text := query.Get(name); text != "" {
			b, err := strconv.ParseBool(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %q is neither true nor false", name, text))
			}
			*field = b
		}
	}
	number := func(name string, least int64) *int64 {
		text := query.Get(name)
		if text == "" {
			return nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least {
			errs = append(errs, fmt.Errorf("%s: %q is no number of at least %d", name, text, least))
			return nil
		}
		return &n
	}
	boolean("follow", &o.Follow)
	boolean("previous", &o.Previous)
	boolean("timestamps", &o.Timestamps)
	o.SinceSeconds = number("sinceSeconds", 1)
	o.TailLines = number("tailLines", 0)
	o.LimitBytes = number("limitBytes", 1)
	if text := query.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("sinceTime: %w", err))
		}
		since := metav1.NewTime(t)
		o.SinceTime = &since
	}
	switch stream := query.Get("stream"); stream {
	case "":
	case corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr:
		o.Stream = &stream
	default:
		errs = append(errs, fmt.Errorf("stream: %q is none", stream))
	}
	return o, errors.Join(errs...)
}

// flushing hands on at once what is written to it.
type flushing struct {
	w     http.ResponseWriter
	begun bool
}

func (f *flushing) Write(p []byte) (int, error) {
	f.begun = true
	n, err := f.w.Write(p)
	f.flush()
	return n, err
}

func (f *flushing) flush() {
	if flusher, ok := f.w.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		http.Error(w, "you must specify a command", http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, session{s.host, pod}, pod.Name, string(pod.UID), r.PathValue("container"), command,
		options, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *server) attach(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, session{s.host, pod}, pod.Name, string(pod.UID), r.PathValue("container"),
		options, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *server) portForward(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, session{s.host, pod}, pod.Name, string(pod.UID), options, idleTimeout, creationTimeout, portforward.SupportedProtocols)
}

// session is one request for a pod, in the terms of the streaming library.
type session struct {
	host Host
	pod  *corev1.Pod
}

func (s session) ExecInContainer(ctx context.Context, _ string, _ string, container string, command []string, in io.Reader, out, errOut io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	return s.host.Exec(ctx, s.pod, container, command, streams(in, out, errOut, tty, resize))
}

func (s session) AttachContainer(ctx context.Context, _ string, _ string, container string, in io.Reader, out, errOut io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	return s.host.Attach(ctx, s.pod, container, streams(in, out, errOut, tty, resize))
}

func (s session) PortForward(ctx context.Context, _ string, _ string, port int32, stream io.ReadWriteCloser) error {
	return s.host.Forward(ctx, s.pod, port, stream)
}

// streams makes streams that are not there plain nils.
func streams(in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) Streams {
	s := Streams{Stdin: in, TTY: tty, Resize: resize}
	if out != nil {
		s.Stdout = out
	}
	if errOut != nil {
		s.Stderr = errOut
	}
	return s
}
