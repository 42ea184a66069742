// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

// BenchmarkAnHourOfManyCronJobs lets a hundred thousand CronJobs pass an hour of a simulated clock, each of them due once in it, at
// different minutes. It reports what each needs in memory, its cached object aside, and what a due time costs but for requests.
func BenchmarkAnHourOfManyCronJobs(b *testing.B) {
	const n = 100_000
	clock := clocktesting.NewFakeClock(worldBegin)
	c := newCronJobController(CronJobConfig{}, &obligingAPI{clock: clock}, noEvents{}, clock, slog.New(slog.DiscardHandler))
	defer c.queue.ShutDown()
	crons := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	jobs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cronIndexers)
	c.crons, c.jobs = crons, jobs
	for i := range n {
		cron := aCronJob(fmt.Sprintf("c%d", i), fmt.Sprintf("%d * * * *", i%60), withLimits(1, 1))
		cron.UID, cron.ResourceVersion = types.UID(fmt.Sprintf("%08d-uid", i)), "1"
		cron.CreationTimestamp = metav1.NewTime(worldBegin)
		if err := crons.Add(cron); err != nil {
			b.Fatal(err)
		}
	}
	before := heapInUse()
	turns := 0
	work := func() {
		for c.queue.Len() > 0 {
			key, _ := c.queue.Get()
			c.turn(context.Background(), key)
			c.queue.Done(key)
			turns++
		}
	}
	for _, o := range crons.List() {
		c.cronAdded(o.(*batchv1.CronJob))
	}
	work()
	b.ReportMetric(float64(heapInUse()-before)/n, "B/cronjob-idle")
	turns = 0
	begin := time.Now()
	for range b.N {
		for end := clock.Now().Add(time.Hour); clock.Now().Before(end); {
			clock.SetTime(clock.Now().Add(time.Second))
			c.advance(clock.Now())
			work()
		}
	}
	b.ReportMetric(float64(time.Since(begin).Microseconds())/float64(b.N)/n, "µs/due")
	b.ReportMetric(float64(turns)/float64(b.N)/n, "turns/due")
	b.ReportMetric(float64(heapInUse()-before)/n, "B/cronjob")
	runtime.KeepAlive(c)
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// obligingAPI does whatever it is asked for, and keeps nothing.
type obligingAPI struct {
	clock   *clocktesting.FakeClock
	version int
}

func (a *obligingAPI) next() string {
	a.version++
	return strconv.Itoa(a.version + 1)
}

func (a *obligingAPI) CronJob(context.Context, string, string) (*batchv1.CronJob, error) {
	panic("nobody else writes")
}

func (a *obligingAPI) StoreCronStatus(context.Context, *batchv1.CronJob, *batchv1.CronJob) (string, error) {
	return a.next(), nil
}

func (a *obligingAPI) Job(_ context.Context, namespace, name string) (*batchv1.Job, error) {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}, nil
}

func (a *obligingAPI) CreateJob(_ context.Context, j *batchv1.Job) (*batchv1.Job, error) {
	meta := j.ObjectMeta
	meta.UID, meta.ResourceVersion, meta.CreationTimestamp = types.UID(j.Name), a.next(), metav1.NewTime(a.clock.Now())
	return &batchv1.Job{ObjectMeta: meta}, nil
}

func (a *obligingAPI) DeleteJobWithPods(context.Context, string, string, types.UID) error { return nil }
