// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-dev/drover/internal/config"
)

const (
	// restFor is how long nothing may have changed before a side counts as being at rest. Upstream answers most events after
	// a second.
	restFor = 1700 * time.Millisecond
	// patience is how long both sides must have been at rest before a difference is one.
	patience = 25 * time.Second
	// compareLimit ends the comparison of sides that do not come to rest.
	compareLimit = 2 * time.Minute
	// together is how many histories run at once.
	together = 24
)

// TestHistories runs every history on both sides. One alone: make differential RUN=name-of-the-history
func TestHistories(t *testing.T) {
	histories := histories(t)
	upstream, drover := startBoth(t, nil)
	// Those that end alike come first, since then everything that was measured must be alike too.
	t.Run(alike, func(t *testing.T) { runGroup(t, histories, alike, upstream, drover) })
	if only := flag.Lookup("test.run").Value.String(); !t.Failed() && !strings.Contains(only, "/") {
		t.Run("metrics", func(t *testing.T) { compareMetrics(t, upstream, drover) })
	}
	t.Run(differing, func(t *testing.T) { runGroup(t, histories, differing, upstream, drover) })
	t.Run(crons, func(t *testing.T) { runGroup(t, histories, crons, upstream, drover) })
	t.Run(restarting, func(t *testing.T) { runGroup(t, histories, restarting, upstream, drover) })
}

// TestHistoriesOfGroups runs those for which the gate is on that gives every Job a Workload and a PodGroup.
func TestHistoriesOfGroups(t *testing.T) {
	upstream, drover := startBoth(t, map[string]bool{config.GateWorkloadWithJob: true})
	t.Run(grouped, func(t *testing.T) { runGroup(t, histories(t), grouped, upstream, drover) })
}

func histories(t *testing.T) []history {
	t.Helper()
	all, err := readHistories()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// startBoth starts the two sides, which end with the test.
func startBoth(t *testing.T, gates map[string]bool) (upstream, drover *side) {
	t.Helper()
	dir := workDir(t)
	var starting sync.WaitGroup
	for role, s := range map[string]**side{roleUpstream: &upstream, roleDrover: &drover} {
		starting.Go(func() {
			own := filepath.Join(dir, role)
			if err := os.MkdirAll(own, 0o700); err != nil {
				t.Error(err)
				return
			}
			*s = startSide(t, role, own, gates)
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return upstream, drover
}

// The groups of histories.
const (
	alike      = "alike"
	differing  = "differing" // on purpose
	restarting = "restarting"
	grouped    = "grouped"
)

func (h *history) group() string {
	switch {
	case h.folder == restart:
		return restarting
	case h.folder == groups:
		return grouped
	case h.folder == crons:
		return crons
	case slices.ContainsFunc(intended, func(d difference) bool { return d.history == h.name }):
		return differing
	}
	return alike
}

// workDir returns where logs and data go: a directory that stays if the test fails.
func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "drover-differential.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs are in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// runGroup runs the histories of one group beside each other.
func runGroup(t *testing.T, histories []history, name string, upstream, drover *side) {
	t.Helper()
	group := slices.DeleteFunc(slices.Clone(histories), func(h history) bool { return h.group() != name })
	slots := make(chan struct{}, together)
	meeting := &meeting{done: make(chan struct{})}
	for _, h := range group {
		t.Run(h.name, func(t *testing.T) {
			meeting.join() // before any of those that run goes on
			t.Parallel()
			if h.folder == restart {
				defer meeting.leave()
			} else {
				slots <- struct{}{}
				defer func() { <-slots }()
			}
			base := time.Now().UTC().Truncate(time.Minute)
			r := &run{history: &h, upstream: newActor(upstream, &h, base), drover: newActor(drover, &h, base), meeting: meeting, used: map[int]bool{}}
			if err := r.play(t.Context()); err != nil {
				t.Errorf("%s\n%v\n\nto run only this: make differential RUN=%s", h.about, err, h.name)
			}
		})
	}
}

// run is one history on both sides.
type run struct {
	history          *history
	upstream, drover *actor
	meeting          *meeting
	used             map[int]bool // of intended, by index
}

func (r *run) sides() []*actor { return []*actor{r.upstream, r.drover} }

func (r *run) play(ctx context.Context) error {
	err := r.both(func(a *actor) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
		if _, err := a.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		return a.awaitAccount(ctx)
	})
	if err != nil {
		return err
	}
	commands := r.history.commands
	for len(commands) > 0 {
		c := commands[0]
		switch c.verb {
		case "compare":
			if err := r.compare(ctx, c.rest); err != nil {
				return fmt.Errorf("line %d: %s\n%w", c.line, c, err)
			}
			commands = commands[1:]
		case "controller":
			if err := r.meeting.all(c.rest, r.control); err != nil {
				return fmt.Errorf("line %d: %s: %w", c.line, c, err)
			}
			commands = commands[1:]
		default:
			n := slices.IndexFunc(commands, func(c command) bool { return c.verb == "compare" || c.verb == "controller" })
			stage := commands[:n] // the last command of a history is compare
			if err := r.both(func(a *actor) error { return a.stage(ctx, stage) }); err != nil {
				return err
			}
			commands = commands[n:]
		}
	}
	for n, d := range intended {
		if d.history == r.history.name && !r.used[n] {
			return fmt.Errorf("intended_test.go lists a difference at %q, and the history compares nothing under that name", d.at)
		}
	}
	return nil
}

// both does something on both sides at once.
func (r *run) both(do func(a *actor) error) error {
	errs := make([]error, 2)
	var running sync.WaitGroup
	for n, a := range r.sides() {
		running.Go(func() {
			if err := do(a); err != nil {
				errs[n] = fmt.Errorf("with the controllers of %s: %w", a.role, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// stage runs commands up to the next one that both sides take together.
func (a *actor) stage(ctx context.Context, commands []command) error {
	for _, c := range commands {
		if err := a.do(ctx, c); err != nil {
			return fmt.Errorf("line %d: %s: %w", c.line, c, err)
		}
	}
	return nil
}

// awaitAccount waits for the service account without which no pod can be created in a new namespace.
func (a *actor) awaitAccount(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, pollEvery, awaitLimit, true, func(ctx context.Context) (bool, error) {
		_, err := a.client.CoreV1().ServiceAccounts(a.namespace).Get(ctx, "default", metav1.GetOptions{})
		if isNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// control stops or starts the controllers of both sides.
func (r *run) control(what string) error {
	return r.both(func(a *actor) error {
		if what == "stop" {
			a.stopController()
			return nil
		}
		return a.startController()
	})
}

// compare waits until both sides are at rest and compares them. Where they differ it looks again for a while: on a busy
// machine events come late.
func (r *run) compare(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	for {
		timedOut := r.awaitRest(ctx, restFor) != nil
		var both [2][]string
		for n, a := range r.sides() {
			lines, err := a.snapshot(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			both[n] = lines
		}
		err := r.judge(at, both[0], both[1])
		if err == nil || timedOut || time.Since(r.lastChange()) > patience {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// lastChange returns when something has last changed or been done on either side.
func (r *run) lastChange() time.Time {
	var last time.Time
	for _, a := range r.sides() {
		for _, t := range []time.Time{a.acted, a.record.quietSince(a.namespace)} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// awaitRest waits until nothing has changed on either side for a while.
func (r *run) awaitRest(ctx context.Context, quiet time.Duration) error {
	for {
		left := quiet - time.Since(r.lastChange())
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// judge says what of the differences between the sides is not meant to be, and what that is meant to be is not there.
func (r *run) judge(at string, upstream, drover []string) error {
	onlyUpstream, onlyDrover := without(upstream, drover), without(drover, upstream)
	var vanished []string
	for n, d := range intended {
		if d.history != r.history.name || d.at != at {
			continue
		}
		r.used[n] = true
		for _, pattern := range d.upstream {
			if !takeOut(&onlyUpstream, pattern) {
				vanished = append(vanished, "- "+pattern)
			}
		}
		for _, pattern := range d.drover {
			if !takeOut(&onlyDrover, pattern) {
				vanished = append(vanished, "+ "+pattern)
			}
		}
	}
	var b strings.Builder
	if len(onlyUpstream)+len(onlyDrover) > 0 {
		b.WriteString("the sides differ (- upstream, + drover):\n")
		b.WriteString(merged(onlyUpstream, onlyDrover))
	}
	if len(vanished) > 0 {
		b.WriteString("differences that intended_test.go lists are not there: take them out, there and in docs/differences.md:\n  ")
		b.WriteString(strings.Join(vanished, "\n  ") + "\n")
	}
	if b.Len() == 0 {
		return nil
	}
	return errors.New(b.String())
}

// takeOut removes the lines that match a pattern, in which * stands for any text, and reports whether there are as many as there must
// be.
func takeOut(lines *[]string, pattern string) bool {
	pattern, byChance := strings.CutPrefix(pattern, "?")
	matches := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$").MatchString
	before := len(*lines)
	*lines = slices.DeleteFunc(*lines, matches)
	return byChance || len(*lines) < before
}

// without returns the lines of a that b does not hold as often, in order.
func without(a, b []string) []string {
	have := map[string]int{}
	for _, line := range b {
		have[line]++
	}
	var left []string
	for _, line := range a {
		if have[line] > 0 {
			have[line]--
			continue
		}
		left = append(left, line)
	}
	return left
}

// merged puts what is said about the same thing next to each other.
func merged(minus, plus []string) string {
	var lines []string
	for _, line := range minus {
		lines = append(lines, line+"\x00-")
	}
	for _, line := range plus {
		lines = append(lines, line+"\x00+")
	}
	slices.Sort(lines)
	var b strings.Builder
	for _, line := range lines {
		text, sign, _ := strings.Cut(line, "\x00")
		fmt.Fprintf(&b, "  %s %s\n", sign, text)
	}
	return b.String()
}

// meeting lets histories that run beside each other do something once for all of them.
type meeting struct {
	mu      sync.Mutex
	members int
	arrived int
	what    string
	do      func(what string) error
	done    chan struct{}
	err     error
}

// join adds a member.
func (m *meeting) join() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members++
}

// all waits until every member that is left has come for the same, has it done once, and returns what came of it.
func (m *meeting) all(what string, do func(what string) error) error {
	m.mu.Lock()
	m.arrived++
	m.what, m.do = what, do
	done := m.done
	m.tryLocked()
	m.mu.Unlock()
	<-done
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// leave takes a member away, for whom the others need not wait.
func (m *meeting) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members--
	m.tryLocked()
}

func (m *meeting) tryLocked() {
	if m.arrived == 0 || m.arrived < m.members {
		return
	}
	if err := m.do(m.what); err != nil {
		m.err = err
	}
	m.arrived = 0
	close(m.done)
	m.done = make(chan struct{})
}
