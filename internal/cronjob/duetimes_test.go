// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The vectors of the specification's section 5.5, where T is 2016-05-19 10:00, a Thursday.
func TestTheMostRecentDueTimeAndTheNext(t *testing.T) {
	T := at(created)
	type found struct {
		Recent string
		Count  int
		Many   bool
		Next   string // from now
	}
	for name, tc := range map[string]struct {
		schedule string
		created  time.Duration // from T, as are the others
		last     time.Duration
		deadline int64
		now      time.Duration
		want     found
	}{
		"nothing has come due":                  {schedule: "0 * * * *", now: 30 * time.Second, want: found{Next: "59m30s"}},
		"the first has":                         {schedule: "0 * * * *", now: 61 * time.Minute, want: found{Recent: "05-19 11:00:00", Count: 1, Next: "59m0s"}},
		"five have":                             {schedule: "0 * * * *", created: 10 * time.Second, now: 301 * time.Minute, want: found{Recent: "05-19 15:00:00", Count: 5, Next: "59m0s"}},
		"weekdays, a day after the last":        {schedule: "30 6-16/4 * * 1-5", last: 30 * time.Minute, now: 24*time.Hour + 31*time.Minute, want: found{Recent: "05-20 10:30:00", Count: 3, Next: "3h59m0s"}},
		"over a weekend":                        {schedule: "30 6-16/4 * * 1-5", last: 30 * time.Minute, now: 96*time.Hour + 31*time.Minute, want: found{Recent: "05-23 10:30:00", Count: 6, Next: "3h59m0s"}},
		"weekdays, a day after the creation":    {schedule: "30 6-16/4 * * 1-5", now: 24*time.Hour + 31*time.Minute, want: found{Recent: "05-20 10:30:00", Count: 4, Next: "3h59m0s"}},
		"every hour, in phase for a week":       {schedule: "@every 1h", last: time.Minute, now: 7 * 24 * time.Hour, want: found{Recent: "05-26 09:01:00", Count: 167, Many: true, Next: "1m0s"}},
		"a deadline does not move the search":   {schedule: "*/5 * * * *", last: 30 * time.Minute, deadline: 60, now: 32 * time.Minute, want: found{Next: "3m0s"}},
		"Thursdays at noon, nineteen days on":   {schedule: "0 12 * * 4", last: 2 * time.Hour, now: 19*24*time.Hour + 90*time.Minute, want: found{Recent: "06-02 12:00:00", Count: 2, Next: "48h30m0s"}},
		"Fridays at noon, from the creation":    {schedule: "0 12 * * 5", now: 6 * time.Hour, want: found{Next: "20h0m0s"}},
		"a deadline that hides all but a few":   {schedule: "* * * * *", deadline: 600, now: 5 * time.Hour, want: found{Recent: "05-19 15:00:00", Count: 300, Next: "1m0s"}},
		"a deadline that hides nothing":         {schedule: "* * * * *", deadline: 18000, now: 5 * time.Hour, want: found{Recent: "05-19 15:00:00", Count: 300, Many: true, Next: "1m0s"}},
		"an hourly one from eight years before": {schedule: "0 * * * *", created: -8 * 365 * 24 * time.Hour, now: time.Second, want: found{Recent: "05-19 10:00:00", Count: 8 * 365 * 24, Many: true, Next: "59m59s"}},
		// Upstream estimates the number of missed times from the first two, steps too far, and finds none.
		"irregular hours, the next day": {schedule: "30 10,11,12 * * 1-5", last: 30 * time.Minute, now: 30*time.Hour + 30*time.Minute, want: found{Recent: "05-20 12:30:00", Count: 5, Next: "66h0m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			cron := newCronJob(tc.schedule)
			cron.CreationTimestamp = metav1.NewTime(T.Add(tc.created))
			if tc.last != 0 {
				lastScheduled(T.Add(tc.last))(cron)
			}
			if tc.deadline != 0 {
				deadline(tc.deadline)(cron)
			}
			o := Observed{CronJob: FromBatch(cron), Now: T.Add(tc.now), Options: DefaultOptions()}
			o.Rules = Read(o.CronJob, time.LoadLocation, time.UTC)
			d := begin(o)
			d.reap()
			run := d.passed()
			d.wakeAtNext()
			got := found{short(run.Last), run.Count, d.manyMissed(run.Count), d.plan.Wake.Sub(o.Now).String()}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("due times (-want +got):\n%s", diff)
			}
		})
	}
}
