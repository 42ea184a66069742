// SPDX-License-Identifier: Apache-2.0

// Package probe asks containers whether they are well, as their startup, liveness and readiness probes say, and runs the hooks of
// their lifecycle, which ask in the same ways.
//
// It decides nothing: it reports when a threshold is reached, and package podlife says what follows. Start reading at Watch.
package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeprobe "k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"k8s.io/utils/clock"
)

// maxOutput bounds what is kept of the output of a probe's command, in bytes.
const maxOutput = 10 << 10

// Exec runs a command in a running container, writes its output, both streams together, to out and returns its exit code. It
// ends the command when ctx ends.
type Exec func(ctx context.Context, containerID string, command []string, out io.Writer) (int, error)

// Prober carries out probes and hooks. It is safe for concurrent use.
type Prober struct {
	exec  Exec
	clock clock.WithTicker
	http  httpprobe.Prober
	tcp   tcpprobe.Prober
	grpc  grpcprobe.Prober
	hooks *http.Client
}

// New returns a Prober that runs commands with exec.
func New(exec Exec, c clock.WithTicker) *Prober {
	return &Prober{
		exec:  exec,
		clock: c,
		http:  httpprobe.New(false),
		tcp:   tcpprobe.New(),
		grpc:  grpcprobe.New(),
		hooks: &http.Client{Transport: hookTransport()},
	}
}

// Target is the container that is asked.
type Target struct {
	ID        string // of the running attempt, as the runtime knows it
	Container *corev1.Container
	PodIP     string
	StartedAt time.Time
}

// outcome is what one probe said.
type outcome struct {
	ok      bool
	warning bool // ok, but with something to tell
	output  string
}

// once asks once. An error means that the probe could not be carried out, which says nothing about the container.
func (p *Prober) once(ctx context.Context, t Target, probe *corev1.Probe) (outcome, error) {
	timeout := time.Duration(max(1, probe.TimeoutSeconds)) * time.Second
	var result kubeprobe.Result
	var output string
	var err error
	switch {
	case probe.Exec != nil:
		return p.command(ctx, t, probe.Exec.Command, timeout)
	case probe.HTTPGet != nil:
		request, reqErr := httpprobe.NewRequestForHTTPGetAction(probe.HTTPGet, t.Container, t.PodIP, "probe")
		if reqErr != nil {
			return outcome{}, reqErr
		}
		result, output, err = p.http.Probe(request.WithContext(ctx), timeout)
	case probe.TCPSocket != nil:
		port, portErr := kubeprobe.ResolveContainerPort(probe.TCPSocket.Port, t.Container)
		if portErr != nil {
			return outcome{}, portErr
		}
		host := probe.TCPSocket.Host
		if host == "" {
			host = t.PodIP
		}
		result, output, err = p.tcp.Probe(host, port, timeout)
	case probe.GRPC != nil:
		service := ""
		if probe.GRPC.Service != nil {
			service = *probe.GRPC.Service
		}
		result, output, err = p.grpc.Probe(t.PodIP, service, int(probe.GRPC.Port), timeout, grpcprobe.ProbeOptions{})
	default:
		return outcome{}, errors.New("missing probe handler")
	}
	return outcome{
		ok:      result == kubeprobe.Success || result == kubeprobe.Warning,
		warning: result == kubeprobe.Warning,
		output:  output,
	}, err
}

func (p *Prober) command(ctx context.Context, t Target, command []string, timeout time.Duration) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var out bounded
	code, err := p.exec(ctx, t.ID, expand(command, t.Container.Env), &out)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return outcome{output: fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout)}, nil
	case err != nil:
		return outcome{}, err
	}
	return outcome{ok: code == 0, output: out.String()}, nil
}

// expand replaces $(NAME) by those variables of the container that are plain text.
func expand(command []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	for _, v := range env {
		if v.ValueFrom == nil {
			values[v.Name] = v.Value
		}
	}
	mapping := expansion.MappingFuncFor(values)
	expanded := make([]string, len(command))
	for i, s := range command {
		expanded[i] = expansion.Expand(s, mapping)
	}
	return expanded
}

// bounded keeps the first bytes that are written to it.
type bounded struct{ buf bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.buf.Len(); room > 0 {
		b.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (b *bounded) String() string { return b.buf.String() }
