// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
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
	"an ordinary half hour": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", history(1, 1)))
		w.start()
		w.forward(30 * time.Minute)
		return w
	},
	"runs longer than the interval under Forbid": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:17:00"), newCronJob("*/2 * * * *", policy(batchv1.ForbidConcurrent)))
		w.run = lasting(200 * time.Second)
		w.start()
		w.forward(8 * time.Minute)
		return w
	},
	"runs longer than the interval under Replace": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:17:00"), newCronJob("*/2 * * * *", policy(batchv1.ReplaceConcurrent), history(3, 3)))
		w.run = lasting(1000 * time.Second)
		w.start()
		w.forward(6 * time.Minute)
		return w
	},
	"runs longer than the interval under Enqueue": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:17:00"), newCronJob("*/2 * * * *", annotated(AnnotationConcurrency, "Enqueue", AnnotationMaxActive, "2",
			AnnotationCatchUpLimit, "3")))
		w.run = lasting(1000 * time.Second)
		w.start()
		w.forward(20 * time.Minute)
		return w
	},
	"an outage, and only the latest is caught up": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *"))
		w.outage(42 * time.Minute)
		return w
	},
	"an outage, and all are caught up in order": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", policy(batchv1.ForbidConcurrent), annotated(AnnotationCatchUp, "all")))
		w.outage(42 * time.Minute)
		return w
	},
	"an outage, and none is caught up": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", annotated(AnnotationCatchUp, "none")))
		w.outage(42 * time.Minute)
		return w
	},
	"the machine sleeps with its lid closed": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", deadline(60)))
		w.start()
		w.forward(10 * time.Minute)
		w.sleep(25 * time.Minute)
		w.forward(5 * time.Minute)
		return w
	},
	"a place in a spread window": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", annotated(AnnotationSpread, "10m")))
		w.start()
		w.forward(30 * time.Minute)
		return w
	},
	"the process ends between the creation and the write": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", policy(batchv1.ForbidConcurrent)))
		w.run = lasting(15 * time.Minute)
		w.start()
		w.until(at("2024-05-16 10:10:00"))
		w.kill()
		w.until(at("2024-05-16 10:12:00"))
		w.start()
		w.forward(15 * time.Minute)
		return w
	},
	"the answer to a creation is lost": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *"))
		w.lag = time.Second
		w.fault = once("POST", true)
		w.start()
		w.forward(12 * time.Minute)
		return w
	},
	"the API server refuses a creation for a while": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *"))
		w.fault = func(request string) (error, bool) {
			if strings.HasPrefix(request, "POST") && w.now.Before(at("2024-05-16 10:21:00")) {
				return errRefused, false
			}
			return nil, true
		}
		w.start()
		w.forward(30 * time.Minute)
		return w
	},
	"a user edits while the status is written": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *"))
		w.lag = 500 * time.Millisecond
		w.start()
		w.until(at("2024-05-16 10:10:00"))
		w.at(at("2024-05-16 10:10:00").Add(900*time.Millisecond), func() {
			next := w.cron.DeepCopy()
			next.Labels = map[string]string{"a": "b"}
			w.tell("user: sets a label")
			w.store(next)
		})
		w.forward(2 * time.Minute)
		return w
	},
	"history limits of zero": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", history(0, 0)))
		w.run = lasting(300 * time.Millisecond)
		w.start()
		w.forward(20 * time.Minute)
		return w
	},
	"triggered by hand under Forbid": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", policy(batchv1.ForbidConcurrent)))
		w.run = lasting(4 * time.Minute)
		w.start()
		w.until(at("2024-05-16 10:08:00"))
		w.trigger(true)
		w.forward(3 * time.Minute)
		w.trigger(true)
		w.forward(4 * time.Minute)
		return w
	},
	"resumed within the deadline": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/2 * * * *", suspended(true), deadline(300)))
		w.start()
		w.until(at("2024-05-16 10:11:00"))
		w.edit("resumes", suspended(false))
		w.forward(3 * time.Minute)
		return w
	},
	"an old Job cannot be deleted for a while": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("0 0 1 1 *", history(0, 0)))
		w.start()
		w.trigger(true)
		back := w.now.Add(time.Minute)
		w.fault = func(request string) (error, bool) {
			if w.now.Before(back) && strings.HasPrefix(request, "DELETE") {
				return errors.New("connection refused"), false
			}
			return nil, true
		}
		w.forward(10 * time.Minute)
		return w
	},
	"annotations that are not understood": func(t *testing.T) *world {
		w := newWorld(t, at("2024-05-16 10:00:30"), newCronJob("*/10 * * * *", annotated(AnnotationDST, "never", AnnotationSpread, "ten minutes")))
		w.start()
		w.forward(11 * time.Minute)
		return w
	},
}

// lasting makes every Job succeed after that time.
func lasting(d time.Duration) func(*batchv1.Job) (time.Duration, batchv1.JobConditionType) {
	return func(*batchv1.Job) (time.Duration, batchv1.JobConditionType) { return d, batchv1.JobComplete }
}

// once makes the first request of a kind fail, and says whether it is carried out all the same.
func once(kind string, carriedOut bool) func(string) (error, bool) {
	done := false
	return func(request string) (error, bool) {
		if done || !strings.HasPrefix(request, kind) {
			return nil, true
		}
		done = true
		return errors.New("connection reset by peer"), carriedOut
	}
}

// outage lets a controller run for a quarter of an hour, be away, and run again.
func (w *world) outage(d time.Duration) {
	w.start()
	w.forward(15 * time.Minute)
	w.kill()
	w.forward(d)
	w.start()
	w.forward(6 * time.Minute)
}

// sleep stops the controller's process, and nothing else, for a time.
func (w *world) sleep(d time.Duration) {
	ctl := w.ctl
	w.tell("the machine falls asleep")
	w.ctl = nil
	w.forward(d)
	w.ctl = ctl
	ctl.cron = w.cron.DeepCopy()
	ctl.jobs = map[string]*batchv1.Job{}
	for name, j := range w.jobs {
		ctl.jobs[name] = j.DeepCopy()
	}
	ctl.awake = w.now
	w.read()
	w.tell("the machine wakes")
	w.sync()
	if !ctl.writeAt.IsZero() {
		ctl.writeAt = time.Time{}
		w.planWrite()
	}
}

// trigger starts a Job by hand, as a command does.
func (w *world) trigger(respect bool) {
	p, err := Trigger(w.observe(), respect)
	if err != nil {
		w.tell("user: triggers: %v", err)
		return
	}
	w.tell("user: triggers")
	w.act(p)
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
