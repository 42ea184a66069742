// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const ordinaryUser = 65534

// TestAsOrdinaryUser runs the other tests as a user without privileges.
func TestAsOrdinaryUser(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	dir := tempDir(t)
	if err := os.Chown(dir, ordinaryUser, ordinaryUser); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "process.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.run=^Test", "-test.short", "-test.parallel=4"}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	passed, skipped := strings.Count(string(out), "\n--- PASS:"), strings.Count(string(out), "\n--- SKIP:")
	t.Logf("%d tests passed as an ordinary user, %d were skipped", passed, skipped)
	if passed < 40 || !strings.Contains(string(out), "--- PASS: TestOrdinaryUserInAContainer") {
		t.Errorf("%d tests passed, %d were skipped:\n%s", passed, skipped, out)
	}
}

// memoryHelper starts an idle container and waits, so that BenchmarkMemory can look at a spawner and an init that do not share
// this process's pages.
func memoryHelper() {
	r, err := New(Config{Dir: os.Args[1], Isolation: Isolation(os.Args[2])})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	n, _ := strconv.Atoi(os.Args[3])
	for i := range n {
		st, err := r.Start(context.Background(), Spec{ID: "idle" + strconv.Itoa(i), Args: []string{"sleep", "1000"}, LogPath: os.Args[1] + "/log"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, st.PID)
	}
	fmt.Fprintln(os.Stdout, r.spawner.pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, st := range r.List() {
		_ = r.Remove(context.Background(), st.Spec.ID)
	}
	r.Close()
}

// BenchmarkMemory reports what an idle init and the spawner take, in kB.
func BenchmarkMemory(b *testing.B) {
	const n = 20
	for b.Loop() {
		dir := b.TempDir()
		cmd := exec.Command("/proc/self/exe", dir, string(Full), strconv.Itoa(n))
		cmd.Env = append(os.Environ(), helperEnv+"=memory")
		cmd.Stderr = os.Stderr
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		private, rss, pss := 0, 0, 0
		for i := 0; i <= n && lines.Scan(); i++ {
			text, _ := os.ReadFile("/proc/" + lines.Text() + "/smaps_rollup")
			if i == n {
				b.ReportMetric(float64(rollup(string(text), "Private_Dirty")), "spawner-private-dirty-kB")
				b.ReportMetric(float64(rollup(string(text), "Rss")), "spawner-rss-kB")
				continue
			}
			private += rollup(string(text), "Private_Dirty")
			pss += rollup(string(text), "Pss")
			rss += rollup(string(text), "Rss")
		}
		b.ReportMetric(float64(private)/n, "init-private-dirty-kB")
		b.ReportMetric(float64(pss)/n, "init-pss-kB")
		b.ReportMetric(float64(rss)/n, "init-rss-kB")
		in.Close()
		_ = cmd.Wait()
	}
}

func rollup(text, field string) int {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return -1
}
