// SPDX-License-Identifier: Apache-2.0

package down

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

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
