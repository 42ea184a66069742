// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/drover-dev/drover/internal/schedule"
)

// asRead is what became of a CronJob's annotations.
type asRead struct {
	DST         schedule.DST
	Offset      time.Duration
	Concurrency Concurrency
	MaxActive   int
	CatchUp     CatchUp
	Limit       int
	FutureOnly  bool
	Bad         []string
}

func TestAnnotationsAreReadOrRefusedInWords(t *testing.T) {
	plain := func(change func(*asRead)) asRead {
		r := asRead{Concurrency: Allow, MaxActive: 1, CatchUp: CatchUpLatest, Limit: 100}
		change(&r)
		return r
	}
	for name, tc := range map[string]struct {
		cron *batchv1.CronJob
		want asRead
	}{
		"none: as upstream": {newCronJob(hourly), plain(func(*asRead) {})},
		"dst":               {newCronJob(hourly, annotated(AnnotationDST, "both")), plain(func(r *asRead) { r.DST = schedule.Both })},
		"dst upstream":      {newCronJob(hourly, annotated(AnnotationDST, "upstream")), plain(func(*asRead) {})},
		"dst unknown": {newCronJob(hourly, annotated(AnnotationDST, "Once")), plain(func(r *asRead) {
			r.Bad = []string{`annotation drover.dev/dst is ignored: "Once" is not known: use upstream, once, skip or both`}
		})},
		"catch-up all with a limit": {newCronJob(hourly, annotated(AnnotationCatchUp, "all", AnnotationCatchUpLimit, "7")), plain(func(r *asRead) {
			r.CatchUp, r.Limit = CatchUpAll, 7
		})},
		"catch-up none": {newCronJob(hourly, annotated(AnnotationCatchUp, "none")), plain(func(r *asRead) { r.CatchUp = CatchUpNone })},
		"catch-up unknown": {newCronJob(hourly, annotated(AnnotationCatchUp, "some")), plain(func(r *asRead) {
			r.Bad = []string{`annotation drover.dev/catch-up is ignored: "some" is not known: use latest, none or all`}
		})},
		"a limit of nothing to catch up": {newCronJob(hourly, annotated(AnnotationCatchUpLimit, "7")), plain(func(r *asRead) {
			r.Bad = []string{"annotation drover.dev/catch-up-limit is ignored: it needs the annotation drover.dev/catch-up with the value all, or drover.dev/concurrency with the value Enqueue"}
		})},
		"a limit beyond bounds": {newCronJob(hourly, annotated(AnnotationCatchUp, "all", AnnotationCatchUpLimit, "10001")), plain(func(r *asRead) {
			r.CatchUp = CatchUpAll
			r.Bad = []string{`annotation drover.dev/catch-up-limit is ignored: "10001" is no whole number from 1 to 10000`}
		})},
		"spread": {newCronJob(hourly, annotated(AnnotationSpread, "10m")), plain(func(r *asRead) { r.Offset = 118 * time.Second })},
		"spread that is no duration": {newCronJob(hourly, annotated(AnnotationSpread, "10")), plain(func(r *asRead) {
			r.Bad = []string{`annotation drover.dev/spread is ignored: "10" is no duration: write one such as 90s, 10m or 1h30m`}
		})},
		"spread beyond bounds": {newCronJob(hourly, annotated(AnnotationSpread, "25h")), plain(func(r *asRead) {
			r.Bad = []string{"annotation drover.dev/spread is ignored: 25h is out of range: use 1s to 24h"}
		})},
		"on-edit": {newCronJob(hourly, annotated(AnnotationOnEdit, "future-only")), plain(func(r *asRead) { r.FutureOnly = true })},
		"on-edit unknown": {newCronJob(hourly, annotated(AnnotationOnEdit, "")), plain(func(r *asRead) {
			r.Bad = []string{`annotation drover.dev/on-edit is ignored: "" is not known: use future-only or upstream`}
		})},
		"Enqueue": {newCronJob(hourly, annotated(AnnotationConcurrency, "Enqueue", AnnotationMaxActive, "3", AnnotationCatchUpLimit, "5")), plain(func(r *asRead) {
			r.Concurrency, r.MaxActive, r.Limit = Enqueue, 3, 5
		})},
		"Enqueue beside Forbid": {newCronJob(hourly, policy(batchv1.ForbidConcurrent), annotated(AnnotationConcurrency, "Enqueue")), plain(func(r *asRead) {
			r.Concurrency = Enqueue
		})},
		"Enqueue against Replace": {newCronJob(hourly, policy(batchv1.ReplaceConcurrent), annotated(AnnotationConcurrency, "Enqueue", AnnotationMaxActive, "2")), plain(func(r *asRead) {
			r.Concurrency = Replace
			r.Bad = []string{
				"annotation drover.dev/concurrency is ignored: Enqueue contradicts spec.concurrencyPolicy Replace: remove one of them",
				"annotation drover.dev/max-active is ignored: it needs the annotation drover.dev/concurrency with the value Enqueue",
			}
		})},
		"another policy as annotation": {newCronJob(hourly, annotated(AnnotationConcurrency, "Forbid")), plain(func(r *asRead) {
			r.Bad = []string{`annotation drover.dev/concurrency is ignored: "Forbid" is not known: use Enqueue; other policies belong in spec.concurrencyPolicy`}
		})},
		"max-active of nothing": {newCronJob(hourly, annotated(AnnotationConcurrency, "Enqueue", AnnotationMaxActive, "0")), plain(func(r *asRead) {
			r.Concurrency = Enqueue
			r.Bad = []string{`annotation drover.dev/max-active is ignored: "0" is no whole number from 1 to 2147483647`}
		})},
		"a queue for a schedule of seconds": {newCronJob("@every 10s", annotated(AnnotationConcurrency, "Enqueue")), plain(func(r *asRead) {
			r.Bad = []string{`annotations drover.dev/catch-up and drover.dev/concurrency are ignored: the schedule "@every 10s" is due more than once a minute, and only one Job a minute can be started: use @every 1m or more`}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			r := Read(FromBatch(tc.cron), time.LoadLocation, time.UTC)
			got := asRead{Offset: r.Offset(), Concurrency: r.concurrency, MaxActive: r.maxActive, CatchUp: r.catchUp, Limit: r.limit, FutureOnly: r.futureOnly}
			got.DST = r.dst
			for _, err := range r.badNotes {
				got.Bad = append(got.Bad, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheZoneOfASchedule(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	summer := at("2024-07-01 12:00:00")
	for name, tc := range map[string]struct {
		cron      *batchv1.CronJob
		next      string // in UTC
		timestamp string // of its Job
	}{
		"none: that of the process, told in UTC":     {newCronJob("0 20 * * *"), "07-01 18:00:00", "2024-07-01T18:00:00Z"},
		"timeZone":                                   {newCronJob("0 20 * * *", inZone("Asia/Tokyo")), "07-02 11:00:00", "2024-07-02T20:00:00+09:00"},
		"timeZone, around blanks":                    {newCronJob("  @daily ", inZone("Asia/Tokyo")), "07-01 15:00:00", "2024-07-02T00:00:00+09:00"},
		"one in the schedule":                        {newCronJob("TZ=Asia/Tokyo 0 20 * * *"), "07-02 11:00:00", "2024-07-02T11:00:00Z"},
		"one in the schedule that is the process's":  {newCronJob("TZ=Local 0 20 * * *"), "07-01 18:00:00", "2024-07-01T18:00:00Z"},
		"both: the schedule's, told in the timeZone": {newCronJob("CRON_TZ=UTC 0 20 * * *", inZone("Asia/Tokyo")), "07-01 20:00:00", "2024-07-02T05:00:00+09:00"},
	} {
		t.Run(name, func(t *testing.T) {
			c := FromBatch(tc.cron)
			r := Read(c, time.LoadLocation, berlin)
			due := r.Schedule().Next(summer)
			start := Start{Name: JobName(c.Name, due), Due: due.In(r.zone)}
			stamp := JobFor(tc.cron, start).Annotations[batchv1.CronJobScheduledTimestampAnnotation]
			if short(due) != tc.next || stamp != tc.timestamp {
				t.Errorf("got %s, %s", short(due), stamp)
			}
		})
	}
}
