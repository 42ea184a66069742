// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkFire is everything that a due time costs a controller beside its requests: the decision that starts a Job, the one that
// sees it end, and what is written in between, with a full ledger.
func BenchmarkFire(b *testing.B) {
	for _, expr := range []string{"* * * * *", "30 2 * * *", "@every 1h"} {
		b.Run(expr, func(b *testing.B) {
			w := newWorld(b, at("2024-05-16 10:00:30"), newCronJob(expr, inZone("Europe/Berlin")))
			w.log, w.quiet = nil, true
			w.start()
			for len(w.created) < 60 {
				w.forward(time.Hour)
			}
			o := w.observe()
			idle := Account(o, Decide(o), Outcomes{})
			o.Memory, o.Now = idle.Memory, idle.Wake
			b.ReportAllocs()
			for b.Loop() {
				p := Decide(o)
				if len(p.Start) != 1 {
					b.Fatalf("not due: %v", p.Because)
				}
				a := Account(o, p, succeed(p))
				r := a.Memory.Record(o.CronJob, o.Options)

				then := o
				then.CronJob = ptr(*o.CronJob)
				then.CronJob.Status, then.Memory = r.Status, a.Memory
				then.CronJob.Annotations = map[string]string{LedgerAnnotation: r.Ledger}
				done := succeed(p).Start[0].Job
				done.Result, done.Ended = Complete, o.Now.Add(time.Second)
				then.Children = append(then.Children[:len(then.Children):len(then.Children)], *done)
				then.Now = o.Now.Add(time.Second)
				q := Decide(then)
				a = Account(then, q, succeed(q))
				a.Memory.Record(then.CronJob, then.Options)
			}
		})
	}
}

// BenchmarkIdle is a decision that finds nothing to do.
func BenchmarkIdle(b *testing.B) {
	w := newWorld(b, at("2024-05-16 10:00:30"), newCronJob("* * * * *"))
	w.quiet = true
	w.start()
	w.forward(2 * time.Hour)
	o := w.observe()
	o.Now = o.Now.Add(20 * time.Second)
	b.ReportAllocs()
	for b.Loop() {
		Account(o, Decide(o), Outcomes{})
	}
}

// What a controller keeps for each CronJob must stay small: there may be a hundred thousand. The ledger's text is not counted,
// which the cached CronJob holds already.
func TestMemoryPerCronJob(t *testing.T) {
	const n = 2000
	kept := make([]Memory, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range kept {
		cron := newCronJob("0 * * * *")
		cron.Name, cron.UID = fmt.Sprintf("cj-%d", i), types.UID(fmt.Sprintf("%08d-0000", i))
		w := newWorld(t, at("2024-05-16 10:00:30"), cron)
		w.quiet = true
		w.start()
		w.forward(90 * time.Minute)
		kept[i] = w.ctl.memory
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := int(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%d bytes a CronJob", per)
	if per > 1500 {
		t.Errorf("%d bytes a CronJob", per)
	}
	runtime.KeepAlive(kept)
}
