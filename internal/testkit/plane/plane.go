// SPDX-License-Identifier: Apache-2.0

// Package plane runs the built drover binary as a child process for tests: a whole plane, as users have it.
//
// Nothing here links a control plane, so tests that use it build in seconds. The binary must have been built before.
//
// Start reading at Start.
package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startLimit is how long a plane may take to become ready. It is generous: machines that run tests are busy.
	startLimit = 90 * time.Second
	// stopLimit is how long one may take to stop: what drover promises, and a little for the test.
	stopLimit = 15 * time.Second
)

// Binary returns the path of the built drover binary. The test is skipped if there is none.
func Binary(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("the test does not run inside the module")
		}
	}
	path := filepath.Join(dir, "bin", "drover")
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("%s is missing: run make build", path)
	}
	return path
}

// Command returns a command that runs the binary with args and not with the environment's own data directory.
func Command(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(Binary(tb), args...)
	cmd.Env = append(os.Environ(), "DROVER_DATA_DIR=", "KUBECONFIG=")
	return cmd
}

// Options say which plane to start.
type Options struct {
	Dir     string   // data directory; "": a temporary one of the test
	Durable bool     // without --ephemeral
	Args    []string // more for "drover up"
}

// Plane is a running plane.
type Plane struct {
	Dir        string
	Kubeconfig string       // path
	Config     *rest.Config // of the administrator, without a limit on its rate
	Took       time.Duration

	tb     testing.TB
	cmd    *exec.Cmd
	output output
	done   chan struct{} // closed when the process has ended
	err    error         // of its end; valid once done is closed
	seen   atomic.Bool   // the test knows how it has ended
}

// Start starts a plane and waits until it is ready. It is stopped when the test ends, if it still runs then; that it does
// not stop well fails the test.
func Start(tb testing.TB, o Options) *Plane {
	tb.Helper()
	p := Launch(tb, o)
	if err := p.waitReady(); err != nil {
		tb.Fatalf("starting a plane: %v\n%s", err, p.Output())
	}
	return p
}

// Launch starts a plane and does not wait.
func Launch(tb testing.TB, o Options) *Plane {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(tb.TempDir(), "plane")
	}
	args := []string{"--data-dir", o.Dir, "up"}
	if !o.Durable {
		args = append(args, "--ephemeral", "--port", "0")
	}
	p := &Plane{
		Dir: o.Dir, Kubeconfig: filepath.Join(o.Dir, "kubeconfig"), tb: tb,
		cmd: Command(tb, append(args, o.Args...)...), done: make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	// That of an earlier run is removed by this one, but not before it has begun.
	if err := os.Remove(p.Kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	// A test that is cut off must not leave a plane behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread ends that has started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if p.seen.Load() {
			return
		}
		if err := p.Stop(); err != nil {
			tb.Errorf("stopping the plane: %v\n%s", err, p.Output())
		}
	})
	return p
}

// waitReady waits for the kubeconfig, and reads it.
func (p *Plane) waitReady() error {
	started := time.Now()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		if _, err := os.Stat(p.Kubeconfig); err == nil {
			break
		}
		select {
		case <-ticks.C:
		case <-p.done:
			return fmt.Errorf("it has ended: %w", p.err)
		case <-limit.C:
			return fmt.Errorf("it is not ready after %s", startLimit)
		}
	}
	p.Took = time.Since(started)
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	p.Config = config
	return nil
}

// Client returns a client of the administrator.
func (p *Plane) Client() kubernetes.Interface {
	p.tb.Helper()
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		p.tb.Fatal(err)
	}
	return client
}

// PID returns the number of the process.
func (p *Plane) PID() int { return p.cmd.Process.Pid }

// Output returns what the process has printed so far.
func (p *Plane) Output() string { return p.output.String() }

// Stop asks the plane to stop as Ctrl-C does, and waits for its end. It returns nil if the plane has been killed before.
func (p *Plane) Stop() error {
	return p.end(syscall.SIGTERM)
}

// Kill ends the process at once, as kill -9 does.
func (p *Plane) Kill() {
	p.tb.Helper()
	if err := p.end(syscall.SIGKILL); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *Plane) end(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait(stopLimit)
}

// Wait waits until the process has ended, for no longer than limit. The error is an *exec.ExitError if it has not ended
// well; having been killed is well enough.
func (p *Plane) Wait(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("process %d has not ended within %s", p.PID(), limit)
	}
	p.seen.Store(true)
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return p.err
}

// output is a bytes.Buffer for a process that writes and a test that reads.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
