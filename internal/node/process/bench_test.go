// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

func BenchmarkStartExitFull(b *testing.B) { benchmarkStartExit(b, Full, Limits{}) }
func BenchmarkStartExitNone(b *testing.B) { benchmarkStartExit(b, None, Limits{}) }
func BenchmarkStartExitFullLimits(b *testing.B) {
	benchmarkStartExit(b, Full, Limits{CPUMillis: 1000, CPUShares: 100, MemoryBytes: 100 << 20, PIDs: 100})
}

// BenchmarkPlain is what the others are to be compared with: the same command without anything around it.
func BenchmarkPlain(b *testing.B) {
	var runs []time.Duration
	for b.Loop() {
		t := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		runs = append(runs, time.Since(t))
	}
	b.ReportMetric(median(runs), "ms-to-exit")
}

// benchmarkStartExit measures one container after the other, from Start to the end of a command that does nothing, and its
// removal.
func benchmarkStartExit(b *testing.B, isolation Isolation, limits Limits) {
	b.Helper()
	dir := b.TempDir()
	r, err := New(Config{Dir: filepath.Join(dir, "state"), Isolation: isolation})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	var starts, runs, removals []time.Duration
	before := usedCPU()
	for i := 0; b.Loop(); i++ {
		s := Spec{ID: fmt.Sprintf("c%d", i), Args: []string{"/bin/true"}, LogPath: filepath.Join(dir, "log"), Limits: limits}
		t := time.Now()
		if _, err := r.Start(context.Background(), s); err != nil {
			b.Fatal(err)
		}
		starts = append(starts, time.Since(t))
		<-r.Done(s.ID)
		runs = append(runs, time.Since(t))
		t = time.Now()
		if err := r.Remove(context.Background(), s.ID); err != nil {
			b.Fatal(err)
		}
		removals = append(removals, time.Since(t))
	}
	cpu := usedCPU() - before
	b.ReportMetric(median(starts), "ms-to-running")
	b.ReportMetric(median(runs), "ms-to-exit")
	b.ReportMetric(median(removals), "ms-to-remove")
	b.ReportMetric(cpu.Seconds()*1000/float64(len(runs)), "own-cpu-ms")
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

func usedCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
