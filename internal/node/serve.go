// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/drover-dev/drover/internal/node/kubeletapi"
	"github.com/drover-dev/drover/internal/node/logs"
	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/process"
)

const (
	// logPoll is how often a log that is followed is looked at.
	logPoll = 100 * time.Millisecond
	// shutdownTime is what requests get that are under way when the node ends.
	shutdownTime = time.Second
)

// servingConfig returns the TLS configuration of the node's API: only the clients by these names, with a certificate of one of base's
// authorities, get in.
func servingConfig(base *tls.Config, clients []string) (*tls.Config, error) {
	if base.ClientCAs == nil {
		return nil, errors.New("configuring the node's API: no authorities for client certificates")
	}
	if len(base.Certificates) == 0 && base.GetCertificate == nil {
		return nil, errors.New("configuring the node's API: no certificate to serve with")
	}
	c := base.Clone()
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades, which exec needs
	c.VerifyPeerCertificate = func(_ [][]byte, chains [][]*x509.Certificate) error {
		for _, chain := range chains {
			if len(chain) > 0 && slices.Contains(clients, chain[0].Subject.CommonName) {
				return nil
			}
		}
		return errors.New("this client may not use the node's API")
	}
	return c, nil
}

// serve serves the node's API until ctx ends.
func (n *Node) serve(ctx context.Context) {
	server := &http.Server{
		Handler:           kubeletapi.New(n, n.log),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          nil,
	}
	var stop sync.WaitGroup
	stop.Go(func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if err := server.Shutdown(limited); err != nil {
			_ = server.Close() // what is still streaming is cut off
		}
	})
	err := server.Serve(tls.NewListener(n.listener, n.tls))
	if !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		n.log.Error("The node's API has stopped", "err", err)
	}
	stop.Wait()
}

// Pods returns the pods of the node with the statuses that their workers know. It is part of the node's API.
func (n *Node) Pods() []*corev1.Pod {
	var list []*corev1.Pod
	for _, obj := range n.informer.GetStore().List() {
		list = append(list, n.current(obj.(*corev1.Pod)))
	}
	return list
}

// Pod returns a pod by its name. It is part of the node's API.
func (n *Node) Pod(namespace, name string) (*corev1.Pod, bool) {
	obj, ok, err := n.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil, false
	}
	return n.current(obj.(*corev1.Pod)), true
}

// current returns the pod with what its worker knows of its containers, which is ahead of the API server.
func (n *Node) current(pod *corev1.Pod) *corev1.Pod {
	n.mu.Lock()
	w := n.workers[pod.UID]
	n.mu.Unlock()
	if w == nil {
		return pod
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	facts := w.factsLocked(n.clock.Now())
	now := *w.pod
	now.Status = podlife.Status(facts, podlife.Decide(facts))
	return &now
}

// Log writes the log of a container. It is part of the node's API.
func (n *Node) Log(ctx context.Context, pod *corev1.Pod, container string, o *corev1.PodLogOptions, stdout, stderr io.Writer) error {
	if findContainer(&pod.Spec, container) == nil {
		return fmt.Errorf("container %q not found in pod %q", container, pod.Name)
	}
	id, err := loggedContainer(pod, container, o.Previous)
	if err != nil {
		return err
	}
	attempt, ok := attemptOf(id)
	if !ok {
		return fmt.Errorf("container %q in pod %q was not started by this node", container, pod.Name)
	}
	options := logs.Options{Tail: o.TailLines, Timestamps: o.Timestamps, LimitBytes: o.LimitBytes, Poll: logPoll, Clock: n.clock}
	switch {
	case o.SinceTime != nil:
		options.Since = o.SinceTime.Time
	case o.SinceSeconds != nil:
		options.Since = n.clock.Now().Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	if o.Follow {
		options.Done = n.rt.Done(strings.TrimPrefix(id, idPrefix))
	}
	if stdout != nil {
		// The answer begins at once, though the container may not say anything for long.
		if _, err := stdout.Write(nil); err != nil {
			return err
		}
	}
	return logs.Read(ctx, logs.Path(logs.PodDir(n.logDir, pod), container, attempt), options, stdout, stderr)
}

// loggedContainer returns the ID of the attempt whose log is asked for, or says in kubelet's words why there is none.
func loggedContainer(pod *corev1.Pod, name string, previous bool) (string, error) {
	var s *corev1.ContainerStatus
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				s = &list[i]
			}
		}
	}
	if s == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", name, pod.Name)
	}
	last := s.LastTerminationState.Terminated
	switch {
	case previous && (last == nil || last.ContainerID == ""):
		return "", fmt.Errorf("previous terminated container %q in pod %q not found", name, pod.Name)
	case previous:
		return last.ContainerID, nil
	case s.State.Running != nil:
		return s.ContainerID, nil
	case s.State.Terminated != nil && s.State.Terminated.ContainerID != "":
		return s.State.Terminated.ContainerID, nil
	case last != nil && last.ContainerID != "":
		return last.ContainerID, nil
	case s.State.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", name, pod.Name)
	case s.State.Waiting != nil && s.State.Waiting.Reason == reasonErrImagePull:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: image can't be pulled", name, pod.Name)
	case s.State.Waiting != nil && s.State.Waiting.Reason == reasonImagePullBackOff:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: trying and failing to pull image", name, pod.Name)
	case s.ContainerID != "":
		return s.ContainerID, nil // it runs, but its postStart hook has not returned
	case s.State.Waiting != nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod.Name, s.State.Waiting.Reason)
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, pod.Name)
}

// runningID returns the runtime's ID of a container that runs.
func (n *Node) runningID(pod *corev1.Pod, container string) (string, error) {
	n.mu.Lock()
	w := n.workers[pod.UID]
	n.mu.Unlock()
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if c := w.containers[container]; c != nil && runs(c) {
			return strings.TrimPrefix(c.Latest().ID, idPrefix), nil
		}
	}
	return "", fmt.Errorf("container not found (%q)", container)
}

// Exec runs a command in a container. It is part of the node's API.
func (n *Node) Exec(ctx context.Context, pod *corev1.Pod, container string, command []string, s kubeletapi.Streams) error {
	id, err := n.runningID(pod, container)
	if err != nil {
		return err
	}
	e := process.Exec{Args: command, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, TTY: s.TTY}
	if s.Resize != nil {
		sizes := make(chan process.WindowSize)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		e.Resize = sizes
		go func() {
			defer close(sizes)
			for size := range orDone(ctx, s.Resize) {
				select {
				case sizes <- windowSize(size):
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	code, err := n.rt.Exec(ctx, id, e)
	if err == nil && code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return err
}

func windowSize(s remotecommand.TerminalSize) process.WindowSize {
	return process.WindowSize{Rows: s.Height, Columns: s.Width}
}

// orDone passes on what comes from in until that or ctx ends.
func orDone[T any](ctx context.Context, in <-chan T) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for {
			select {
			case v, ok := <-in:
				if !ok || !yield(v) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// probeExec runs the command of a probe or hook.
func (n *Node) probeExec(ctx context.Context, id string, command []string, out io.Writer) (int, error) {
	both := &shared{w: out}
	return n.rt.Exec(ctx, id, process.Exec{Args: command, Stdout: both, Stderr: both})
}

// shared is a writer for two streams.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// inputs is what a Runtime may offer for a container whose standard input or terminal somebody attaches to.
type inputs interface {
	Stdin(id string) (io.WriteCloser, error)
	CloseStdin(id string) error
	Resize(id string, size process.WindowSize) error
}

// Attach connects to the main process of a container: what it says from now on, and its standard input if it has one. It is part of the
// node's API.
func (n *Node) Attach(ctx context.Context, pod *corev1.Pod, container string, s kubeletapi.Streams) error {
	id, err := n.runningID(pod, container)
	if err != nil {
		return err
	}
	spec := findContainer(&pod.Spec, container)
	attempt, _ := attemptOf(idPrefix + id)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if rt, ok := n.rt.(inputs); ok {
		if s.Resize != nil {
			go func() {
				for size := range orDone(ctx, s.Resize) {
					if err := rt.Resize(id, windowSize(size)); err != nil {
						n.log.Debug("Resizing a terminal did not work", "id", id, "err", err)
					}
				}
			}()
		}
		if s.Stdin != nil && spec.Stdin {
			in, err := rt.Stdin(id)
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }() // closed already, unless the container has ended first
			go func() {
				_, err := io.Copy(in, s.Stdin)
				_ = in.Close() // while it is open, the container's input does not end
				if err == nil && spec.StdinOnce {
					err = rt.CloseStdin(id)
				}
				if err != nil {
					n.log.Debug("Passing on standard input has ended", "id", id, "err", err)
				}
			}()
		}
	}
	none := int64(0)
	stderr := s.Stderr
	if s.TTY {
		stderr = s.Stdout
	}
	return logs.Read(ctx, logs.Path(logs.PodDir(n.logDir, pod), container, attempt),
		logs.Options{Tail: &none, Done: n.rt.Done(id), Poll: logPoll / 5, Clock: n.clock}, s.Stdout, stderr)
}

// Forward carries bytes between a stream and a port of the pod, which is a port of this machine. It is part of the node's API.
func (n *Node) Forward(ctx context.Context, pod *corev1.Pod, port int32, stream io.ReadWriteCloser) error {
	ip := pod.Status.PodIP
	if ip == "" {
		ip = n.cfg.IPs[0]
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("connecting to port %d of pod %s: %w", port, podKey(pod), err)
	}
	defer func() { _ = conn.Close() }() // what is lost with it, the two sides find out
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	go func() {
		_, _ = io.Copy(conn, stream) // when one side goes, the other learns it by the end of its input
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	}()
	// The other direction ends when the client closes its stream; waiting for that would keep a dead connection.
	if _, err := io.Copy(stream, conn); err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading from port %d of pod %s: %w", port, podKey(pod), err)
	}
	return nil
}
