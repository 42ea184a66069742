// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
)

// vcCronStore is a cronAPI of Volcano in memory.
type vcCronStore struct {
	clock *clocktesting.FakeClock
	cron  *batch.CronJob
	jobs  []*batch.Job
}

func (s *vcCronStore) CronJob(context.Context, string, string) (*batch.CronJob, error) {
	return s.cron, nil
}

func (s *vcCronStore) StoreCronStatus(_ context.Context, _, after *batch.CronJob) (string, error) {
	n, err := strconv.Atoi(s.cron.ResourceVersion)
	s.cron = after.DeepCopy()
	s.cron.ResourceVersion = strconv.Itoa(n + 1)
	return s.cron.ResourceVersion, err
}

func (s *vcCronStore) Job(context.Context, string, string) (*batch.Job, error) { return s.jobs[0], nil }

func (s *vcCronStore) CreateJob(_ context.Context, j *batch.Job) (*batch.Job, error) {
	j = j.DeepCopy()
	j.UID, j.CreationTimestamp, j.ResourceVersion = types.UID(j.Name), metav1.NewTime(s.clock.Now()), "1"
	s.jobs = append(s.jobs, j)
	return j, nil
}

func (s *vcCronStore) DeleteJobWithPods(context.Context, string, string, types.UID) error { return nil }

func TestACronJobOfVolcanoStartsAJobWhenItIsDue(t *testing.T) {
	clock := clocktesting.NewFakeClock(worldBegin)
	api := &vcCronStore{clock: clock, cron: &batch.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "cron", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(worldBegin)},
		Spec:       batch.CronJobSpec{Schedule: "* * * * *", JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{MinAvailable: 1}}},
	}}
	c := newCronController(volcanoCronKind(), CronJobConfig{}, api, noEvents{}, clock, slog.New(slog.DiscardHandler))
	defer c.queue.ShutDown()
	c.crons, c.jobs = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, volcanoCronKind().indexers())
	must(t, c.crons.Add(api.cron))
	c.cronAdded(api.cron)
	must(t, c.sync(t.Context(), "ns/c", cronAsk{Look: true}))
	if len(api.jobs) > 0 {
		t.Fatalf("%s is started before it is due", api.jobs[0].Name)
	}
	due := worldBegin.Truncate(time.Minute).Add(time.Minute)
	clock.SetTime(due)
	must(t, c.sync(t.Context(), "ns/c", cronAsk{Look: true, Due: true}))
	must(t, c.sync(t.Context(), "ns/c", cronAsk{Look: true}))
	must(t, c.sync(t.Context(), "ns/c", cronAsk{Store: true}))
	if len(api.jobs) != 1 || api.jobs[0].Name != cronjob.JobName("c", due) {
		t.Fatalf("Jobs %v", api.jobs)
	}
	s := api.cron.Status
	if len(s.Active) != 1 || s.Active[0].APIVersion != "batch.volcano.sh/v1alpha1" || !s.LastScheduleTime.Time.Equal(due) {
		t.Errorf("status %+v", s)
	}
	ledger, err := cronjob.DecodeLedger(api.cron.Annotations[cronjob.LedgerAnnotation], "cron")
	must(t, err)
	if len(ledger.Ticks) != 1 || ledger.Ticks[0].Outcome != cronjob.Started {
		t.Errorf("ledger %+v", ledger.Ticks)
	}

	// Its end is seen, and the Job of another owner is not.
	done := api.jobs[0].DeepCopy()
	done.Status.State = batch.JobState{Phase: batch.Completed, LastTransitionTime: metav1.NewTime(due.Add(20 * time.Second))}
	must(t, c.jobs.Add(done))
	clock.SetTime(due.Add(20 * time.Second))
	must(t, c.sync(t.Context(), "ns/c", cronAsk{Look: true}))
	must(t, c.sync(t.Context(), "ns/c", cronAsk{Store: true}))
	if s := api.cron.Status; len(s.Active) != 0 || !s.LastSuccessfulTime.Time.Equal(due.Add(20*time.Second)) {
		t.Errorf("status %+v", s)
	}
}

// TestTheLedgerOfACronJobOfVolcanoIsARequestOfItsOwn shows which requests the store sends, and that it sends none for what is stored.
func TestTheLedgerOfACronJobOfVolcanoIsARequestOfItsOwn(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Metadata struct {
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("reading the request: %v", err)
		}
		requests = append(requests, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+" on "+body.Metadata.ResourceVersion)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&batch.CronJob{
			TypeMeta:   metav1.TypeMeta{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "CronJob"},
			ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: body.Metadata.ResourceVersion + "1"},
		})
	}))
	defer server.Close()
	vc, err := client.New(&rest.Config{Host: server.URL})
	must(t, err)
	before := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}}}
	with := func(status, ledger bool) *batch.CronJob {
		after := before.DeepCopy()
		if status {
			after.Status.LastScheduleTime = &metav1.Time{Time: worldBegin}
		}
		if ledger {
			after.Annotations = maps.Clone(after.Annotations)
			after.Annotations[cronjob.LedgerAnnotation] = "{}"
		}
		return after
	}
	cases := map[string]struct {
		after   *batch.CronJob
		want    []string
		version string
	}{
		"nothing": {with(false, false), nil, "7"},
		"status":  {with(true, false), []string{"PUT status on 7"}, "71"},
		"ledger":  {with(false, true), []string{"PATCH c on 7"}, "71"},
		"both":    {with(true, true), []string{"PUT status on 7", "PATCH c on 71"}, "711"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			requests = nil
			version, err := vcCronClient{vc}.StoreCronStatus(t.Context(), before, tc.after)
			must(t, err)
			if diff := cmp.Diff(tc.want, requests); diff != "" || version != tc.version {
				t.Errorf("version %s, want %s; requests (-want +got):\n%s", version, tc.version, diff)
			}
		})
	}
}
