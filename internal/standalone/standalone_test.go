// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRunStartsInOrderAndStopsInReverse(t *testing.T) {
	p := newPlane(t)
	p.client("controllers", nil)
	p.client("node", nil)
	p.untilReady()
	p.cancel()
	if err := p.wait(); err != nil {
		t.Errorf("Run returned %v, want nil after a stop that was asked for", err)
	}
	p.wantStory(
		"opened", "step data directory", "build control plane", "run control plane",
		"build controllers", "build node", "run controllers", "run node", "ready",
		"stopping", "end node", "end controllers", "end control plane", "stopped 0",
	)
}

func TestRunLeavesAKubeconfigAndWhatStatusNeeds(t *testing.T) {
	p := newPlane(t)
	running := p.untilReady()
	config, err := clientcmd.BuildConfigFromFlags("", p.config.Dir.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != running.Server || len(config.CAData) == 0 || len(config.CertData) == 0 || len(config.KeyData) == 0 {
		t.Errorf("kubeconfig for %q, want %q with all certificates in it", config.Host, running.Server)
	}
	assertPrivate(t, string(p.config.Dir))
	found, err := Inspect(p.config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	want := Found{Exists: true, Running: true, PID: os.Getpid(), State: State{
		Phase: Ready, PID: os.Getpid(), Version: "v1", Started: start, Server: running.Server,
		Port: found.State.Port, NodeName: "machine",
	}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	p.cancel()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	if found, err = Inspect(p.config.Dir); err != nil {
		t.Fatal(err)
	}
	want.Running, want.PID, want.State.Phase = false, 0, Stopped
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

func TestTheNextRunHasTheSamePort(t *testing.T) {
	p := newPlane(t)
	first := p.untilReady()
	p.cancel()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	p.again()
	if second := p.untilReady(); second.Server != first.Server {
		t.Errorf("second run on %s, want %s as before", second.Server, first.Server)
	}
	p.wantWarnings()
}

func TestRunSaysThatTheLastOneWasKilled(t *testing.T) {
	p := newPlane(t)
	o := mustOpen(t, p.config.Dir, false)
	if err := o.writeState(State{Phase: Ready, PID: 4711}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, o)
	p.untilReady()
	p.wantWarnings("the last run, process 4711, has not ended well (Ready)")
}

func TestRunSaysThatTheKeysAreRenewed(t *testing.T) {
	p := newPlane(t)
	p.untilReady()
	p.cancel()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	p.again()
	p.clock.SetTime(start.Add(350 * 24 * time.Hour))
	p.untilReady()
	p.wantWarnings(`"apiserver": it expires`, `"apiserver-kubelet": it expires`, `"node": it expires`, `"admin": it expires`)
}

func TestAPlaneThatRunsForAYearRenewsItsKeys(t *testing.T) {
	p := newPlane(t)
	p.untilReady()
	before, err := os.ReadFile(p.config.Dir.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	p.tick(340 * 24 * time.Hour)
	p.eventually("warnings", func() bool { return len(p.warnings()) == 4 })
	p.tick(lookEvery) // the one before has been dealt with when this one is taken
	p.eventually("a new kubeconfig", func() bool {
		after, err := os.ReadFile(p.config.Dir.Kubeconfig())
		return err == nil && string(after) != string(before)
	})
}

func TestAPartThatFailsStopsTheOthersAndIsNamed(t *testing.T) {
	broken := errors.New("no cgroups")
	cases := map[string]struct {
		node  *fakePart
		want  string
		story []string
	}{
		"while it starts": {
			node: &fakePart{fail: broken, failAtOnce: true},
			want: "the node has failed: no cgroups",
		},
		"later": {
			node: &fakePart{fail: broken},
			want: "the node has failed: no cgroups",
		},
		"without an error": {
			node: &fakePart{failAtOnce: true},
			want: "the node has stopped by itself",
		},
		"when it is built": {
			node: &fakePart{build: broken},
			want: "building the node: no cgroups",
		},
		"when it is stopped": {
			node: &fakePart{stopErr: broken},
			want: "stopping the node: no cgroups",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			p.client("controllers", nil)
			p.client("node", tc.node)
			p.start()
			if !tc.node.failAtOnce && tc.node.build == nil {
				<-p.readyCh
				close(tc.node.breakNow)
				if tc.node.stopErr != nil {
					p.cancel()
				}
			}
			err := p.wait()
			if err == nil || err.Error() != tc.want {
				t.Errorf("Run returned %v, want %q", err, tc.want)
			}
			story := p.story()
			tail := story[max(0, len(story)-3):]
			if diff := cmp.Diff([]string{"end controllers", "end control plane", "stopped 0"}, tail); diff != "" {
				t.Errorf("end of the story (-want +got):\n%s", diff)
			}
			if found, err := Inspect(p.config.Dir); err != nil || found.Running {
				t.Errorf("afterwards: running %v, error %v", found.Running, err)
			}
		})
	}
}

func TestAControlPlaneThatFailsEndsTheStart(t *testing.T) {
	p := newPlane(t)
	p.plane.fail, p.plane.failAtOnce = errors.New("etcd is damaged"), true
	p.client("node", nil)
	p.start()
	if err := p.wait(); err == nil || err.Error() != "the control plane has failed: etcd is damaged" {
		t.Errorf("Run returned %v", err)
	}
	for _, line := range p.story() {
		if strings.Contains(line, "node") {
			t.Errorf("%q although there was no control plane", line)
		}
	}
}

func TestAStopWhileStartingIsNoError(t *testing.T) {
	p := newPlane(t)
	p.client("node", &fakePart{neverReady: true})
	p.start()
	p.eventually("the node runs", func() bool { return p.told("run node") })
	p.cancel()
	if err := p.wait(); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	if _, err := os.Stat(p.config.Dir.Kubeconfig()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a kubeconfig of a plane that was never ready (%v)", err)
	}
}

func TestAPartThatDoesNotStopIsLeftBehind(t *testing.T) {
	p := newPlane(t)
	p.config.StopTimeout = 200 * time.Millisecond
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	p.client("controllers", nil)
	p.client("node", &fakePart{hang: hang})
	p.untilReady()
	p.cancel()
	err := p.wait()
	if err == nil || err.Error() != "the node has not stopped in time" {
		t.Errorf("Run returned %v", err)
	}
	if !p.told("end controllers") || !p.told("end control plane") {
		t.Errorf("the other parts were not stopped: %q", p.story())
	}
}

func TestPodsThatGoOnRunningAreCounted(t *testing.T) {
	p := newPlane(t)
	p.client("node", &fakePart{survivors: 3})
	p.untilReady()
	p.cancel()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	found, err := Inspect(p.config.Dir)
	if err != nil || found.State.Survivors != 3 {
		t.Errorf("noted %d survivors, error %v, want 3", found.State.Survivors, err)
	}
	if !p.told("stopped 3") {
		t.Errorf("story %q, want one that ends with three survivors", p.story())
	}
}

func TestAnEphemeralPlaneLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p := newPlane(t)
	p.config.Dir, p.config.Ephemeral = "", true
	running := p.untilReady()
	if !running.Ephemeral || !strings.HasPrefix(string(running.Dir), os.Getenv("TMPDIR")) {
		t.Errorf("running %+v, want an ephemeral one in a temporary directory", running)
	}
	p.cancel()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	if left := tree(t, os.Getenv("TMPDIR")); len(left) != 1 {
		t.Errorf("left %q", left)
	}
}

func TestValidateReportsEverything(t *testing.T) {
	err := (&Config{Port: 70000, Verbosity: -1}).Validate()
	for _, want := range []string{"no data directory", "port 70000: must be 0 to 65535", "verbosity -1: must be 0 to 10"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// plane is a plane of fake parts.
type plane struct {
	t       *testing.T
	config  Config
	clock   *clocktesting.FakeClock
	parts   Parts
	plane   *fakePart
	cancel  context.CancelFunc
	done    chan error
	readyCh chan Running

	mu    sync.Mutex
	lines []string
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{t: t, clock: clocktesting.NewFakeClock(start)}
	p.config = Config{Dir: Dir(t.TempDir()), Version: "v1", HostName: "machine", Clock: p.clock}
	p.plane = p.prepare("control plane", &fakePart{})
	p.parts.ControlPlane = func(_ context.Context, env *Env) (ControlPlane, error) {
		p.tell("build control plane")
		p.plane.listener = env.Listener
		return p.plane, nil
	}
	t.Cleanup(func() {
		if p.cancel != nil {
			p.cancel()
			<-p.done
		}
	})
	return p
}

func (p *plane) prepare(name string, part *fakePart) *fakePart {
	part.name, part.tell = name, p.tell
	part.ready, part.breakNow = make(chan struct{}), make(chan struct{})
	return part
}

// client adds a part; nil is one without surprises.
func (p *plane) client(name string, part *fakePart) {
	if part == nil {
		part = &fakePart{}
	}
	p.prepare(name, part)
	p.parts.Clients = append(p.parts.Clients, Builder{Name: name, Build: func(_ context.Context, env *Env) (Part, error) {
		p.tell("build " + name)
		if env.ClientConfig == nil {
			return nil, errors.New("there is no client configuration")
		}
		return part, part.build
	}})
}

func (p *plane) start() {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	p.cancel, p.done, p.readyCh = cancel, done, make(chan Running, 1)
	go func() { done <- Run(ctx, p.config, p.parts, p); close(done) }()
}

func (p *plane) untilReady() Running {
	p.t.Helper()
	p.start()
	select {
	case r := <-p.readyCh:
		return r
	case err := <-p.done:
		p.t.Fatalf("Run returned %v instead of becoming ready", err)
	case <-time.After(10 * time.Second):
		p.t.Fatalf("not ready after ten seconds; so far: %q", p.story())
	}
	panic("not reached")
}

// again prepares a second run in the same directory.
func (p *plane) again() {
	p.prepare("control plane", p.plane)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = nil
}

func (p *plane) wait() error {
	p.t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(10 * time.Second):
		p.t.Fatalf("Run has not returned after ten seconds; so far: %q", p.story())
		return nil
	}
}

// tick lets the clock jump, once somebody waits for it.
func (p *plane) tick(d time.Duration) {
	p.t.Helper()
	p.eventually("a ticker", p.clock.HasWaiters)
	p.clock.Step(d)
}

func (p *plane) eventually(what string, done func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("still waiting for %s after ten seconds; so far: %q", what, p.story())
		}
	}
}

func (p *plane) tell(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

func (p *plane) story() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

func (p *plane) told(line string) bool {
	for _, have := range p.story() {
		if have == line {
			return true
		}
	}
	return false
}

// wantStory compares the story, in which parts that start together are put in order.
func (p *plane) wantStory(want ...string) {
	p.t.Helper()
	got := p.story()
	for i := 1; i < len(got); i++ {
		if strings.HasPrefix(got[i], "run ") && strings.HasPrefix(got[i-1], "run ") && got[i] < got[i-1] {
			got[i], got[i-1] = got[i-1], got[i]
		}
		got[i], _, _ = strings.Cut(got[i], " "+string(p.config.Dir))
	}
	// "run controllers" may come before "build node": both are right.
	if diff := cmp.Diff(sortedRuns(want), sortedRuns(got)); diff != "" {
		p.t.Errorf("story (-want +got):\n%s", diff)
	}
}

// sortedRuns moves the starts of clients behind everything that is built.
func sortedRuns(story []string) []string {
	var out, runs []string
	for _, line := range story {
		switch line {
		case "run controllers", "run node":
			runs = append(runs, line)
		case "ready":
			if len(runs) == 2 && runs[0] > runs[1] {
				runs[0], runs[1] = runs[1], runs[0]
			}
			out = append(append(out, runs...), line)
		default:
			out = append(out, line)
		}
	}
	return out
}

func (p *plane) warnings() []string {
	var found []string
	for _, line := range p.story() {
		if text, ok := strings.CutPrefix(line, "warn "); ok {
			found = append(found, text)
		}
	}
	return found
}

// wantWarnings checks that each warning holds the text that is wanted in its place.
func (p *plane) wantWarnings(want ...string) {
	p.t.Helper()
	got := p.warnings()
	if len(got) != len(want) {
		p.t.Fatalf("warnings %q, want %d", got, len(want))
	}
	for i := range got {
		if !strings.Contains(got[i], want[i]) {
			p.t.Errorf("warning %q, want one with %q", got[i], want[i])
		}
	}
}

func (p *plane) Opened(Dir)        { p.tell("opened") }
func (p *plane) Step(text string)  { p.tell("step " + text) }
func (p *plane) Warn(text string)  { p.tell("warn " + text) }
func (p *plane) Ready(r Running)   { p.tell("ready"); p.readyCh <- r }
func (p *plane) Stopping()         { p.tell("stopping") }
func (p *plane) Stopped(count int) { p.tell(fmt.Sprintf("stopped %d", count)) }

// fakePart is a part that does as it is told.
type fakePart struct {
	build      error // of its builder
	fail       error // with which Run ends by itself, once breakNow is closed
	failAtOnce bool  // before it is ready
	neverReady bool
	hang       chan struct{} // does not stop until this is closed
	stopErr    error         // with which Run ends when it is asked to
	survivors  int

	name     string
	tell     func(string)
	ready    chan struct{}
	breakNow chan struct{}
	listener net.Listener
}

func (f *fakePart) Run(ctx context.Context) error {
	f.tell("run " + f.name)
	if f.listener != nil {
		defer f.listener.Close()
	}
	if f.failAtOnce {
		return f.fail
	}
	if !f.neverReady {
		close(f.ready)
	}
	broken := f.breakNow
	if f.fail == nil {
		broken = nil
	}
	select {
	case <-ctx.Done():
	case <-broken:
		return f.fail
	}
	if f.hang != nil {
		<-f.hang
		return nil
	}
	f.tell("end " + f.name)
	return f.stopErr
}

func (f *fakePart) Ready() <-chan struct{} { return f.ready }

func (f *fakePart) Survivors() int { return f.survivors }

func (f *fakePart) ClientConfig(user string, _ ...string) *rest.Config {
	return &rest.Config{Impersonate: rest.ImpersonationConfig{UserName: user}}
}
