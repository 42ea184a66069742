// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// limited returns a Runtime that can enforce limits, or skips the test.
func limited(t *testing.T, isolation Isolation) *world {
	t.Helper()
	needsRoot(t)
	w := newWorld(t, Config{Isolation: isolation, Accounting: true})
	if f := w.Features(); !f.Memory.Available || !f.PIDs.Available || !f.CPU.Available {
		t.Skipf("this machine offers no cgroup controllers: %+v", f)
	}
	return w
}

func TestMemoryLimit(t *testing.T) {
	for _, isolation := range []Isolation{Full, None} {
		t.Run(string(isolation), func(t *testing.T) {
			w := limited(t, isolation)
			limit := func(s *Spec) { s.Limits.MemoryBytes = 32 << 20 }
			t.Run("a command that goes beyond it is killed and that is told", func(t *testing.T) {
				s := w.shell("hog", "", limit)
				s.Args = []string{"tail", "/dev/zero"}
				if st := w.run(s); st.State != Exited || st.Exit.Code != 137 || st.Exit.Signal != 9 || !st.Exit.OOMKilled {
					t.Errorf("status %+v, exit %+v", st, st.Exit)
				}
			})
			t.Run("so is one whose child goes beyond it", func(t *testing.T) {
				st := w.run(w.shell("child", "tail /dev/zero; exit $?", limit))
				if st.State != Exited || st.Exit.Code != 137 || !st.Exit.OOMKilled {
					t.Errorf("status %+v, exit %+v", st, st.Exit)
				}
			})
			t.Run("an ordinary SIGKILL below it is not", func(t *testing.T) {
				if st := w.run(w.shell("kill", "kill -KILL $$", limit)); st.Exit.Signal != 9 || st.Exit.OOMKilled {
					t.Errorf("exit %+v", st.Exit)
				}
			})
			t.Run("success is success", func(t *testing.T) {
				if st := w.run(w.shell("fine", "tail /dev/zero; exit 0", limit)); st.Exit.OOMKilled && st.Exit.Code == 0 {
					t.Errorf("exit %+v", st.Exit)
				}
			})
		})
	}
}

func TestProcessLimit(t *testing.T) {
	for _, isolation := range []Isolation{Full, None} {
		t.Run(string(isolation), func(t *testing.T) {
			w := limited(t, isolation)
			st := w.run(w.shell("a", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; echo all", func(s *Spec) { s.Limits.PIDs = 8 }))
			out, errOut := w.streams("a")
			if st.Exit.Code == 0 || strings.Contains(out, "all") || !strings.Contains(strings.ToLower(errOut), "fork") {
				t.Errorf("exit %+v, output %q, %q", st.Exit, out, errOut)
			}
		})
	}
}

func TestForkBombEnds(t *testing.T) {
	for _, isolation := range []Isolation{Full, None} {
		t.Run(string(isolation), func(t *testing.T) {
			w := limited(t, isolation)
			st := w.run(w.shell("a", "b() { b | b & }; b 2>/dev/null; b 2>/dev/null; sleep 0.2; exit 3", func(s *Spec) { s.Limits.PIDs = 100 }))
			if st.State != Exited {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func TestCPULimitIsWritten(t *testing.T) {
	w := limited(t, Full)
	st := w.start(w.shell("a", "sleep 1000", func(s *Spec) { s.Limits = Limits{CPUMillis: 250, CPUShares: 512} }))
	g := w.containers["a"].rec.Cgroup
	want := map[string]string{"cpu.cfs_quota_us": "25000", "cpu.cfs_period_us": "100000", "cpu.shares": "512"}
	dir := g.Dirs[controllerCPU]
	if g.Version == 2 {
		want, dir = map[string]string{"cpu.max": "25000 100000", "cpu.weight": "20"}, g.Dirs[unified]
	}
	got := map[string]string{}
	for name := range want {
		got[name] = strings.TrimSpace(readFile(t, filepath.Join(dir, name)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if procs := processesIn(dir); len(procs) != 1 || procs[0] == st.PID {
		t.Errorf("processes %v in the cgroup, want the command and not its init %d", procs, st.PID)
	}
}

func TestStats(t *testing.T) {
	w := limited(t, Full)
	w.start(w.shell("a", "i=0; while test $i -lt 100000; do i=$((i+1)); done; x=$(head -c 8000000 /dev/zero | tr '\\0' x); echo ready; sleep 1000"))
	w.awaitLog("a", "ready")
	s, err := w.Stats("a")
	if err != nil || !s.HasCPU || !s.HasMemory || s.CPU <= 0 || s.MemoryBytes < 8_000_000 || s.WorkingSetBytes > s.MemoryBytes || s.WorkingSetBytes < 8_000_000 {
		t.Errorf("statistics %+v, %v", s, err)
	}
}

func TestCPUWeight(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 1024: 39, 262144: 10000} {
		if got := cpuWeight(shares); got != want {
			t.Errorf("weight %d for %d shares, want %d", got, shares, want)
		}
	}
}

func TestUnenforcedLimitsAreNamed(t *testing.T) {
	f := Features{CPU: Feature{Available: true}, Memory: Feature{Reason: "no controller"}, PIDs: Feature{Reason: "no permission"}}
	got := f.Unenforced(Limits{CPUMillis: 1, MemoryBytes: 1, PIDs: 1})
	want := []string{"the limit of memory is not enforced: no controller", "the limit of processes is not enforced: no permission"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sentences (-want +got):\n%s", diff)
	}
	if got := f.Unenforced(Limits{}); got != nil {
		t.Errorf("sentences %q without limits", got)
	}
}

// TestLimitFilesOfVersion2 uses a directory that looks like a cgroup, because controllers may all belong to version 1 here.
func TestLimitFilesOfVersion2(t *testing.T) {
	dir := tempDir(t)
	for _, name := range []string{"cpu.max", "cpu.weight", "memory.max", "memory.oom.group", "pids.max", "memory.events", "cgroup.kill"} {
		writeFile(t, filepath.Join(dir, name), "")
	}
	g := cgroup{Version: 2, Dirs: map[string]string{unified: dir}}
	if err := g.create(Limits{CPUMillis: 1500, CPUShares: 1024, MemoryBytes: 1 << 20, PIDs: 7}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cpu.max": "150000 100000", "cpu.weight": "39", "memory.max": "1048576", "memory.oom.group": "1", "pids.max": "7"}
	got := map[string]string{}
	for name := range want {
		got[name] = readFile(t, filepath.Join(dir, name))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if g.killFile() != dir+"/cgroup.kill" || g.oomFile() != dir+"/memory.events" {
		t.Errorf("files %q and %q", g.killFile(), g.oomFile())
	}
}

// TestRealVersion2 lets containers be grouped and killed by a cgroup of version 2 where there is a hierarchy of it, with
// or without controllers.
func TestRealVersion2(t *testing.T) {
	needsRoot(t)
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	top := ""
	for _, m := range mounts {
		if m.fsType == "cgroup2" {
			top = m.point
		}
	}
	if top == "" {
		t.Skip("no cgroup2 is mounted on this machine")
	}
	w := newWorld(t, Config{Isolation: None})
	c := &cgroups{parents: map[string]string{}, missing: map[string]string{}}
	c.useV2(top, w.cgroupParent()+"-v2", true)
	w.cgroups.leave(false)
	w.cgroups = c
	if c.version != 2 {
		t.Fatalf("cgroups %+v", c)
	}
	w.output("warm", "true")
	kill(t, w.spawner.pid)
	eventually(t, "the notice that the spawner is gone", func() bool { return !w.spawner.alive() }, func() string { return "" })

	script := "f=" + w.dir + "/never; (setsid sh -c \"(setsid sh -c 'sleep 1000; echo $f') & sleep 1000; echo $f\" &) ; sleep 0.1; cat /proc/self/cgroup; exit 3"
	st := w.run(w.shell("a", script))
	if out, _ := w.streams("a"); st.Exit.Code != 3 || !strings.Contains(out, "0::/"+w.cgroupParent()+"-v2/a\n") {
		t.Errorf("exit %+v, cgroups:\n%s", st.Exit, out)
	}
	lost := w.start(w.shell("b", "f="+w.dir+"/never; setsid sh -c \"sleep 1000; echo $f\" & echo ready; wait"))
	w.awaitLog("b", "ready")
	kill(t, lost.PID)
	if st := w.await("b"); st.State != Lost {
		t.Errorf("status %+v", st)
	}
	eventually(t, "the end of all processes", func() bool { return len(processesOf(w.dir+"/never")) == 0 }, func() string { return "" })
	if b, err := os.ReadFile(filepath.Join(top, w.cgroupParent()+"-v2", initsCgroup, "cgroup.procs")); err != nil || len(b) == 0 {
		t.Errorf("the spawner is not in the inits' cgroup: %q, %v", b, err)
	}
}
