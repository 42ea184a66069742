// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// stories are the lives of CronJobs, told turn by turn in testdata/<name>.golden.
var stories = map[string]func(t *testing.T) *world{
	"an ordinary hour": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *"))
		w.start()
		w.forward(time.Hour)
		return w
	},
}

func TestStories(t *testing.T) {
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			w := tell(t)
			w.tellHistory()
			got := strings.Join(w.log, "\n") + "\n"
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_")+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got); rewrite with -update if it is meant:\n%s", file, diff)
			}
		})
	}
}

var _ = batchv1.JobComplete
