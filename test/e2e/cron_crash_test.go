// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/testkit/plane"
)

var cronKillsFlag = flag.Int("cron-kills", 30, "how often the crash test of CronJobs kills the whole process")

const (
	cronPeriod = time.Minute // Jobs are named by the minute
	cronCount  = 60          // one is due every second
)

// TestKillingEverythingAroundDueTimesStartsEachOnce kills the whole of drover again and again while one CronJob or another is due
// every second, and then looks for a Job for every due time.
func TestKillingEverythingAroundDueTimesStartsEachOnce(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	options := plane.Options{Dir: filepath.Join(t.TempDir(), "plane"), Durable: true}
	p := plane.Start(t, options)
	ctx := t.Context()
	crons := p.Client().BatchV1().CronJobs("default")
	begin := time.Now().Truncate(time.Second).Add(20*time.Second - cronPeriod) // as if they had started before
	for i := range cronCount {
		name := fmt.Sprintf("c%02d", i)
		if _, err := crons.Create(ctx, restingCronJob(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		// Counted from here, it is due a period later.
		last := fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`, begin.Add(time.Duration(i)*time.Second).UTC().Format(time.RFC3339))
		if _, err := crons.Patch(ctx, name, types.MergePatchType, []byte(last), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, time.Until(begin.Add(cronPeriod-time.Second)))
	kills := 0
	for ; kills < *cronKillsFlag; kills++ {
		pass(t, time.Duration(rng.IntN(1500))*time.Millisecond)
		p.Kill()
		p = plane.Start(t, options)
	}
	until := time.Now().Truncate(time.Second)
	t.Logf("%d times kill -9 in %v", kills, until.Sub(begin.Add(cronPeriod)))

	var missing []string
	await(t, p, "a Job for every due time", func(client kubernetes.Interface) (bool, error) {
		var err error
		missing, err = unstarted(t, client, begin, until)
		return len(missing) == 0 || time.Since(until) > 20*time.Second, err
	})
	if len(missing) > 0 {
		t.Errorf("not started: %v", missing)
	}
	checkCronRecords(t, p.Client(), begin, until)
	if err := p.Stop(); err != nil {
		t.Errorf("stopping: %v\n%s", err, p.Output())
	}
}

// restingCronJob returns a CronJob whose Jobs are suspended, so that each start leaves a trace and costs nothing.
func restingCronJob(name string) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule: "@every " + cronPeriod.String(),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
				Suspend: ptr.To(true),
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"true"}}},
				}},
			}},
		},
	}
}

// dueTimes calls f for every due time up to until, and for the CronJob that is due then.
func dueTimes(begin, until time.Time, f func(name string, due time.Time)) {
	for i := range cronCount {
		for due := begin.Add(time.Duration(i)*time.Second + cronPeriod); !due.After(until); due = due.Add(cronPeriod) {
			f(fmt.Sprintf("c%02d", i), due)
		}
	}
}

// unstarted returns the due times that have no Job, and fails the test for Jobs that nothing was due for.
func unstarted(t *testing.T, client kubernetes.Interface, begin, until time.Time) ([]string, error) {
	t.Helper()
	list, err := client.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	started := map[string]bool{}
	for _, j := range list.Items {
		due, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if err != nil {
			t.Fatalf("Job %s: %v", j.Name, err)
		}
		tick := metav1.GetControllerOf(&j).Name + " " + due.UTC().Format(time.TimeOnly)
		if started[tick] {
			t.Errorf("started twice: %s", tick)
		}
		started[tick] = true
	}
	var missing []string
	dueTimes(begin, until, func(name string, due time.Time) {
		if tick := name + " " + due.UTC().Format(time.TimeOnly); !started[tick] {
			missing = append(missing, tick)
		}
	})
	return missing, nil
}

// checkCronRecords looks for every due time in the records as well.
func checkCronRecords(t *testing.T, client kubernetes.Interface, begin, until time.Time) {
	t.Helper()
	list, err := client.BatchV1().CronJobs("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := client.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]string{}
	for i := range list.Items {
		c := &list.Items[i]
		facts := cronjob.FromBatch(c)
		o := cronjob.Observed{CronJob: facts, Rules: cronjob.Read(facts, time.LoadLocation, time.UTC), Now: time.Now(), Options: cronjob.DefaultOptions()}
		for k := range jobs.Items {
			if metav1.IsControlledBy(&jobs.Items[k], c) {
				o.Children = append(o.Children, cronjob.ChildFromBatch(&jobs.Items[k]))
			}
		}
		for _, tick := range cronjob.History(o) {
			outcomes[c.Name+" "+tick.Due.UTC().Format(time.TimeOnly)] = tick.String()
		}
	}
	due, late := 0, 0
	dueTimes(begin, until, func(name string, at time.Time) {
		due++
		tick := name + " " + at.UTC().Format(time.TimeOnly)
		if outcomes[tick] != "started" {
			late++
			t.Errorf("the record says of %s: %q", tick, outcomes[tick])
		}
	})
	t.Logf("%d due times, each started once and on record", due-late)
}
