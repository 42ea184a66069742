// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/drover-dev/drover/internal/jobflow"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// flowWorld is an API server with one JobFlow, and a controller on it that a test moves by hand.
type flowWorld struct {
	t       *testing.T
	c       *JobFlowController
	clock   *clocktesting.FakeClock
	version int64
	flow    *flow.JobFlow
	jobs    map[string]*batch.Job
	dead    map[string]*batch.Job // as they were when they were deleted
	created []string
	up      bool // pods answer
	events  []string
	// trouble says what becomes of the next write of that name: nil, or an error; lost ones are carried out all the same.
	trouble func(verb string) (err error, lost bool)
	before  func(verb string) // is called before each request
}

func newFlowWorld(t *testing.T, entries ...flow.Flow) *flowWorld {
	t.Helper()
	w := &flowWorld{
		t: t, clock: clocktesting.NewFakeClock(worldBegin), jobs: map[string]*batch.Job{}, dead: map[string]*batch.Job{},
		trouble: func(string) (error, bool) { return nil, false }, before: func(string) {},
	}
	w.flow = &flow.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: "flow", ResourceVersion: w.next()}, Spec: flow.JobFlowSpec{Flows: entries}}
	w.start()
	return w
}

func (w *flowWorld) next() string {
	w.version++
	return strconv.FormatInt(w.version, 10)
}

// start begins a controller that knows nothing yet, and lets it list everything.
func (w *flowWorld) start() {
	w.c = newJobFlowController(JobFlowConfig{}, w, w, w, w.clock, slog.New(slog.DiscardHandler))
	for _, q := range []*keyQueue{&w.c.queue, &w.c.status} {
		(*q).ShutDown()
		*q = &handQueue{clock: w.clock, due: map[string]time.Time{}, tries: map[string]int{}}
	}
	w.c.flows = cache.NewIndexer(cache.MetaNamespaceKeyFunc, flowIndexers)
	w.c.templates = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.c.jobs = cache.NewIndexer(cache.MetaNamespaceKeyFunc, templateIndexers)
	w.c.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, podIndexers)
	for _, e := range w.flow.Spec.Flows {
		must(w.t, w.c.templates.Add(&flow.JobTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: e.Name},
			Spec:       batch.JobSpec{Tasks: []batch.TaskSpec{{Name: "t", Replicas: 1}}},
		}))
	}
	w.tellFlow()
	w.tellJobs()
}

func (w *flowWorld) tellFlow() {
	before, known, err := w.c.flows.Get(w.flow)
	must(w.t, err)
	must(w.t, w.c.flows.Update(w.flow))
	if known {
		w.c.flowUpdated(before.(*flow.JobFlow), w.flow)
	} else {
		w.c.flowAdded(w.flow)
	}
}

func (w *flowWorld) tellJobs() {
	for _, o := range w.c.jobs.List() {
		before := o.(*batch.Job)
		if now := w.jobs[before.Name]; now == nil || now.UID != before.UID {
			must(w.t, w.c.jobs.Delete(before))
			w.c.jobDeleted(w.dead[before.Name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		j := w.jobs[name]
		before, known, err := w.c.jobs.Get(j)
		must(w.t, err)
		must(w.t, w.c.jobs.Update(j))
		if known {
			w.c.jobUpdated(before.(*batch.Job), j)
		} else {
			w.c.jobAdded(j)
		}
	}
	w.c.jobs.Bookmark(fmt.Sprint(w.version))
}

func (w *flowWorld) sync() error { return w.c.syncFlow(w.t.Context(), "ns/f") }

func (w *flowWorld) setPhase(name string, phase batch.JobPhase) {
	j := w.jobs[name].DeepCopy()
	j.ResourceVersion, j.Status.State = w.next(), batch.JobState{Phase: phase, LastTransitionTime: metav1.NewTime(w.clock.Now().Truncate(time.Second))}
	w.jobs[name] = j
}

func (w *flowWorld) remove(name string) {
	w.next()
	w.dead[name] = w.jobs[name]
	delete(w.jobs, name)
}

// Event implements eventSink.
func (w *flowWorld) Event(_ runtime.Object, eventType, reason, message string) {
	w.events = append(w.events, eventType+" "+reason+": "+message)
}

// Ask implements prober.
func (w *flowWorld) Ask(context.Context, jobflow.Question) bool { return w.up }

// The methods that follow implement flowAPI.

func (w *flowWorld) Flow(context.Context, string, string) (*flow.JobFlow, error) { return w.flow, nil }

func (w *flowWorld) StoreFlowStatus(_ context.Context, f *flow.JobFlow) (*flow.JobFlow, error) {
	w.before("status")
	err, lost := w.trouble("status")
	if err != nil && !lost {
		return nil, err
	}
	if f.ResourceVersion != w.flow.ResourceVersion {
		return nil, apierrors.NewConflict(flow.GroupVersion.WithResource("jobflows").GroupResource(), "f", nil)
	}
	next := w.flow.DeepCopy()
	next.Status, next.ResourceVersion = *f.Status.DeepCopy(), w.next()
	w.flow = next
	return next, err
}

func (w *flowWorld) StoreTemplateStatus(context.Context, *flow.JobTemplate) error { return nil }

func (w *flowWorld) Job(_ context.Context, _, name string) (*batch.Job, error) {
	if j := w.jobs[name]; j != nil {
		return j, nil
	}
	return nil, apierrors.NewNotFound(batch.GroupVersion.WithResource("jobs").GroupResource(), name)
}

func (w *flowWorld) CreateJob(_ context.Context, j *batch.Job) (*batch.Job, error) {
	w.before("create")
	err, lost := w.trouble("create")
	if err != nil && !lost {
		return nil, err
	}
	if w.jobs[j.Name] != nil {
		return nil, apierrors.NewAlreadyExists(batch.GroupVersion.WithResource("jobs").GroupResource(), j.Name)
	}
	j = j.DeepCopy()
	j.ResourceVersion, j.CreationTimestamp = w.next(), metav1.NewTime(w.clock.Now().Truncate(time.Second))
	j.UID = types.UID("job-" + j.ResourceVersion)
	w.jobs[j.Name], w.created = j, append(w.created, j.Name)
	return j, err
}

func (w *flowWorld) DeleteJob(_ context.Context, _ string, k jobflow.JobKey) error {
	if err, _ := w.trouble("delete"); err != nil {
		return err
	}
	j := w.jobs[k.Name]
	if j == nil {
		return apierrors.NewNotFound(batch.GroupVersion.WithResource("jobs").GroupResource(), k.Name)
	}
	if j.UID != k.UID {
		return apierrors.NewConflict(batch.GroupVersion.WithResource("jobs").GroupResource(), k.Name, nil)
	}
	w.remove(k.Name)
	return nil
}

func (w *flowWorld) expect(created []string, phase flow.Phase) {
	w.t.Helper()
	if diff := cmp.Diff(created, w.created); diff != "" {
		w.t.Errorf("created (-want +got):\n%s", diff)
	}
	if got := w.flow.Status.State.Phase; got != phase {
		w.t.Errorf("the flow is %q, want %q", got, phase)
	}
}

func dependent(name string, on ...string) flow.Flow {
	return flow.Flow{Name: name, DependsOn: &flow.DependsOn{Targets: on}}
}

var errAway = apierrors.NewTimeoutError("away", 1)

func TestAJobOfAFlowIsMadeOnceWhileTheCacheIsBehind(t *testing.T) {
	w := newFlowWorld(t, flow.Flow{Name: "a"}, dependent("b", "a"))
	for range 3 {
		must(t, w.sync())
	}
	w.expect([]string{"f-a"}, flow.Pending)
	if diff := cmp.Diff([]string{"f-a"}, w.flow.Status.PendingJobs); diff != "" {
		t.Errorf("pending Jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal Created: create a job named f-a!"}, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestALostAnswerMakesNoSecondJobOfAFlow(t *testing.T) {
	w := newFlowWorld(t, flow.Flow{Name: "a"})
	w.trouble = func(verb string) (error, bool) {
		if verb == "create" && len(w.created) == 0 {
			return errAway, true
		}
		return nil, false
	}
	if err := w.sync(); err == nil {
		t.Error("the lost answer is no error")
	}
	must(t, w.sync())
	w.setPhase("f-a", batch.Completed)
	w.tellJobs()
	must(t, w.sync())
	w.expect([]string{"f-a"}, flow.Succeed)
}

func TestAConflictOverAFlowIsResolvedOnWhatIsStored(t *testing.T) {
	w := newFlowWorld(t, flow.Flow{Name: "a"})
	w.before = func(verb string) {
		if verb == "status" {
			w.before = func(string) {}
			w.flow = w.flow.DeepCopy() // somebody adds an entry
			w.flow.ResourceVersion, w.flow.Spec.Flows = w.next(), append(w.flow.Spec.Flows, flow.Flow{Name: "b"})
			must(t, w.c.templates.Add(&flow.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}))
		}
	}
	must(t, w.sync())
	w.expect([]string{"f-a", "f-b"}, flow.Pending)
}

func TestARefusedJobIsToldOnceAndTriedAgain(t *testing.T) {
	cases := map[string]struct {
		refusal error
		told    string
	}{
		"by admission":                    {apierrors.NewForbidden(batch.GroupVersion.WithResource("jobs").GroupResource(), "f-a", fmt.Errorf("no such queue")), `jobs.batch.volcano.sh "f-a" is forbidden: no such queue`},
		"as nobody answers for a webhook": {apierrors.NewInternalError(errors.New(`failed calling webhook "mutatejob.volcano.sh"`)), `Internal error occurred: failed calling webhook "mutatejob.volcano.sh"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newFlowWorld(t, flow.Flow{Name: "a"})
			w.trouble = func(verb string) (error, bool) {
				if verb == "create" {
					return tc.refusal, false
				}
				return nil, false
			}
			for range 3 {
				if err := w.sync(); err == nil {
					t.Error("the refusal is no error")
				}
			}
			want := []string{"Warning FailedCreate: job f-a could not be created: " + tc.told}
			if diff := cmp.Diff(want, w.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			w.trouble = func(string) (error, bool) { return nil, false }
			must(t, w.sync())
			w.expect([]string{"f-a"}, flow.Pending)
		})
	}
}

func TestAJobThatIsGoneAtOnceAfterItsEndHasCompleted(t *testing.T) {
	w := newFlowWorld(t, flow.Flow{Name: "a"}, dependent("b", "a"))
	must(t, w.sync())
	w.tellJobs()
	w.setPhase("f-a", batch.Completed)
	w.remove("f-a")
	w.tellJobs()
	must(t, w.sync())
	w.expect([]string{"f-a", "f-b"}, flow.Running)
}

func TestPodsAreAskedUntilTheyAnswer(t *testing.T) {
	second := dependent("b", "a")
	second.DependsOn.Probe = &flow.Probe{TCPSocketList: []flow.TCPSocket{{Port: 80}}}
	w := newFlowWorld(t, flow.Flow{Name: "a"}, second)
	must(t, w.sync())
	w.setPhase("f-a", batch.Running)
	w.tellJobs()
	must(t, w.c.pods.Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "f-a-t-0", Labels: map[string]string{batch.TaskKey: "t"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.jobs["f-a"], batch.GroupVersion.WithKind("Job"))},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1"},
	}))
	must(t, w.sync())
	w.expect([]string{"f-a"}, flow.Running)
	w.up = true
	must(t, w.sync())
	w.expect([]string{"f-a", "f-b"}, flow.Running)
}

func TestQuestionsAreAskedOverTheNetwork(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ready" && r.Header.Get("X-From") == "flow":
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/nowhere", http.StatusFound)
		case r.Host == "name":
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().(*net.TCPAddr)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	free := closed.Addr().(*net.TCPAddr).Port
	must(t, closed.Close())
	cases := map[string]struct {
		q    jobflow.Question
		want bool
	}{
		"a good answer":           {jobflow.Question{HTTP: true, Path: "/ready", HeaderName: "X-From", HeaderValue: "flow"}, true},
		"a bad answer":            {jobflow.Question{HTTP: true, Path: "/ready"}, false},
		"a redirection is good":   {jobflow.Question{HTTP: true, Path: "/moved"}, true},
		"a host of its own":       {jobflow.Question{HTTP: true, Path: "/", HeaderName: "Host", HeaderValue: "name"}, true},
		"a connection":            {jobflow.Question{}, true},
		"nobody listens":          {jobflow.Question{Port: free}, false},
		"nobody listens for HTTP": {jobflow.Question{Port: free, HTTP: true, Path: "/"}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.q.Address = address.IP.String()
			if tc.q.Port == 0 {
				tc.q.Port = address.Port
			}
			if got := newHTTPProber().Ask(t.Context(), tc.q); got != tc.want {
				t.Errorf("answer %t, want %t", got, tc.want)
			}
		})
	}
}

// FuzzJobFlowController has a controller run a flow while requests fail, answers are lost, caches are behind and processes end. No
// Job is made twice or before its targets have completed, and the flow succeeds in the end.
func FuzzJobFlowController(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		var entries []flow.Flow
		for i := range 2 + r.IntN(4) {
			e := flow.Flow{Name: fmt.Sprintf("e%d", i)}
			for k := range i {
				if r.IntN(2) == 0 {
					if e.DependsOn == nil {
						e.DependsOn = &flow.DependsOn{}
					}
					e.DependsOn.Targets = append(e.DependsOn.Targets, fmt.Sprintf("e%d", k))
				}
			}
			entries = append(entries, e)
		}
		w := newFlowWorld(t, entries...)
		completed := map[string]bool{}
		w.trouble = func(string) (error, bool) {
			switch r.IntN(6) {
			case 0:
				return errAway, true
			case 1:
				return errAway, false
			}
			return nil, false
		}
		for range 300 {
			before := len(w.created)
			switch r.IntN(8) {
			case 0:
				w.tellFlow()
			case 1:
				w.tellJobs()
			case 2:
				if r.IntN(4) == 0 {
					w.start()
				}
			case 3, 4:
				names := slices.Sorted(maps.Keys(w.jobs))
				if len(names) == 0 {
					break
				}
				name := names[r.IntN(len(names))]
				if phase := w.jobs[name].Status.State.Phase; phase == batch.Running {
					w.setPhase(name, batch.Completed)
					completed[name] = true
				} else if phase != batch.Completed {
					w.setPhase(name, batch.Running)
				}
			default:
				_ = w.sync() // it is tried again
			}
			for _, name := range w.created[before:] {
				i := slices.IndexFunc(entries, func(e flow.Flow) bool { return jobflow.JobName("f", e.Name) == name })
				if on := entries[i].DependsOn; on != nil {
					for _, target := range on.Targets {
						if !completed[jobflow.JobName("f", target)] {
							t.Fatalf("%s is made before %s has completed", name, target)
						}
					}
				}
			}
		}
		w.trouble = func(string) (error, bool) { return nil, false }
		for range len(entries) + 1 {
			for name := range w.jobs {
				w.setPhase(name, batch.Completed)
			}
			w.tellFlow()
			w.tellJobs()
			must(t, w.sync())
		}
		if n := len(slices.Compact(slices.Sorted(slices.Values(w.created)))); n != len(w.created) || n != len(entries) {
			t.Errorf("%d Jobs are made for %d entries: %v", len(w.created), len(entries), w.created)
		}
		if got := w.flow.Status.State.Phase; got != flow.Succeed {
			t.Errorf("the flow is %s in the end", got)
		}
	})
}
