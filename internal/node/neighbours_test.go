// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

func TestNeighboursFollowThePodsOfASubdomain(t *testing.T) {
	const domain = "job.ns.svc.x"
	dir := t.TempDir()
	path := func(id types.UID) string { return filepath.Join(dir, string(id)) }
	n := newNeighbours([]string{"1.2.3.4"}, path, clock.RealClock{}, slog.New(slog.DiscardHandler))
	start := func(id types.UID, domain string) {
		t.Helper()
		err := n.write(id, domain, func(lines []string) error {
			text := "own\n"
			for _, line := range lines {
				text += line + "\n"
			}
			return os.WriteFile(path(id), []byte(text), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// refresh does what run does once it is woken.
	refresh := func() {
		t.Helper()
		select {
		case <-n.wake:
		default:
			t.Fatal("nobody is woken")
		}
		n.refresh()
	}
	line := func(host string) string {
		return "1.2.3.4\t" + host + "job.ns.svc.x\t" + host + "job.ns.svc\t" + host + "job.ns\t" + host + "job\n"
	}
	check := func(when string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got[e.Name()] = string(text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files %s (-want +got):\n%s", when, diff)
		}
	}
	all := line("")
	n.join("a", "a-0", domain, false)
	n.join("other", "a-0", "elsewhere.ns.svc.x", false)
	start("a", domain)
	start("plain", "")
	n.join("b", "a-1", domain, false)
	refresh()
	check("when b is here and has not started", map[string]string{"a": "own\n" + all + line("a-0.") + line("a-1."), "plain": "own\n"})

	start("b", domain)
	n.join("b2", "a-1", domain, false) // that replaces b
	n.leave("b", domain)
	refresh()
	check("when b was replaced", map[string]string{
		"a": "own\n" + all + line("a-0.") + line("a-1."), "b": "own\n" + all + line("a-0.") + line("a-1."), "plain": "own\n",
	})

	n.leave("b2", domain)
	refresh()
	check("when its replacement is gone too", map[string]string{
		"a": "own\n" + all + line("a-0.") + "#" + line("a-1.")[1:], "b": "own\n" + all + line("a-0.") + line("a-1."), "plain": "own\n",
	})

	n.leave("a", domain)
	n.leave("other", "elsewhere.ns.svc.x")
	if len(n.domains) > 0 {
		t.Errorf("domains are remembered: %v", n.domains)
	}
	// A pod whose file an earlier run of the node has written, in a directory that is gone.
	n.join("c", "a-2", domain, true)
	n.update(domain)
}
