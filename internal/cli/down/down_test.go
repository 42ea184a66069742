// SPDX-License-Identifier: Apache-2.0

package down

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/node/memory"
	"github.com/drover-dev/drover/internal/standalone"
)

// A plane that runs is stopped in the integration tests.
func TestDownWithoutAPlaneIsNoError(t *testing.T) {
	cases := map[string]map[string]string{
		"in a directory that is not there": nil,
		"in one whose plane was killed":    {"drover.json": `{"version": 1}`, "lock": "1 1\n", "state.json": `{"phase": "Ready", "pid": 1}`},
	}
	for name, files := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			if files != nil {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for file, content := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			err := Run(t.Context(), &Options{Streams: streams, Clock: clock.RealClock{}, Dir: standalone.Dir(dir), Timeout: time.Minute})
			if want := "No plane is running in " + dir + "\n"; err != nil || errOut.String() != want {
				t.Errorf("said %q, error %v, want %q", errOut, err, want)
			}
		})
	}
}

func TestDownTakesAwayWhatAKilledPlaneHasLeftMounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	mounted := filepath.Join(dir, "node", "memory")
	if _, err := memory.Mount(mounted); errors.Is(err, os.ErrPermission) {
		t.Skip("mounting needs root")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := memory.Unmount(mounted); err != nil {
			t.Error(err)
		}
	})
	// A container that runs: its first process holds a lock.
	record := filepath.Join(dir, "node", "runtime", "containers", "c", "record")
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	down := func() bool {
		t.Helper()
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		if err := Run(t.Context(), &Options{Streams: streams, Clock: clock.RealClock{}, Dir: standalone.Dir(dir), Timeout: time.Minute}); err != nil {
			t.Error(err)
		}
		_, err := os.Stat(mounted)
		return errors.Is(err, os.ErrNotExist)
	}
	if down() {
		t.Error("it took away the files of a pod that runs")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !down() {
		t.Error("it left them although no pod runs")
	}
}
