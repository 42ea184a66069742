// SPDX-License-Identifier: Apache-2.0

package jobflow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

var t0 = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

func newFlow(entries ...flow.Flow) *flow.JobFlow {
	return &flow.JobFlow{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: "flow-uid", CreationTimestamp: metav1.NewTime(t0)},
		Spec:       flow.JobFlowSpec{Flows: entries},
	}
}

func after(name string, targets ...string) flow.Flow {
	return flow.Flow{Name: name, DependsOn: &flow.DependsOn{Targets: targets}}
}

func newTemplate(name string) *flow.JobTemplate {
	return &flow.JobTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: batch.JobSpec{
			Queue: "prod", MinAvailable: 1,
			Tasks: []batch.TaskSpec{{Name: "t", Replicas: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "busybox", Command: []string{"true"}, Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}},
			}}}},
		},
	}
}

func templates(names ...string) map[string]*flow.JobTemplate {
	all := map[string]*flow.JobTemplate{}
	for _, name := range names {
		all[name] = newTemplate(name)
	}
	return all
}

// jobIn returns the Job of an entry of f in a phase.
func jobIn(f *flow.JobFlow, entry string, phase batch.JobPhase) *batch.Job {
	j, err := jobFor(f, &flow.Flow{Name: entry}, newTemplate(entry))
	if err != nil {
		panic(err)
	}
	j.UID, j.CreationTimestamp = types.UID(j.Name+"-uid"), metav1.NewTime(t0)
	if phase != "" {
		j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: metav1.NewTime(t0.Add(time.Minute))}
	}
	return j
}

func jobs(all ...*batch.Job) map[string]*batch.Job {
	m := map[string]*batch.Job{}
	for _, j := range all {
		m[j.Name] = j
	}
	return m
}

// digest is what tests look at of a plan.
type digest struct {
	Create []string
	Delete []string
	Ask    []Question
	Phase  flow.Phase // of the status that is written; "": none is
	Waits  map[string]string
	Events []string
	After  time.Duration
}

func digestOf(p Plan) digest {
	d := digest{Ask: p.Ask, After: p.After}
	for _, j := range p.Create {
		d.Create = append(d.Create, j.Name)
	}
	for _, k := range p.Delete {
		d.Delete = append(d.Delete, k.Name)
	}
	if p.Status != nil {
		d.Phase = p.Status.State.Phase
	}
	for _, e := range p.Entries {
		if e.Waits != "" {
			if d.Waits == nil {
				d.Waits = map[string]string{}
			}
			d.Waits[e.Name] = e.Waits
		}
	}
	for _, e := range p.Events {
		d.Events = append(d.Events, e.Reason+": "+e.Message)
	}
	return d
}

func withPhase(f *flow.JobFlow, p flow.Phase) *flow.JobFlow {
	f.Status.State.Phase = p
	return f
}

func TestDecide(t *testing.T) {
	diamond := func() *flow.JobFlow {
		return newFlow(flow.Flow{Name: "a"}, after("b", "a"), after("c", "a"), after("d", "b", "c"))
	}
	all := templates("a", "b", "c", "d")
	probed := func(p flow.Probe) *flow.JobFlow {
		f := withPhase(newFlow(flow.Flow{Name: "a"}, after("b", "a")), flow.Running)
		f.Spec.Flows[1].DependsOn.Probe = &p
		return f
	}
	running := func(f *flow.JobFlow, count map[corev1.PodPhase]int32) map[string]*batch.Job {
		j := jobIn(f, "a", batch.Running)
		j.Spec.Tasks[0].Replicas, j.Spec.Tasks[0].MinAvailable = 3, ptr.To[int32](2)
		j.Status.TaskStatusCount = map[string]batch.TaskState{"t": {Phase: count}}
		return jobs(j)
	}
	pod := func(name string, phase corev1.PodPhase, ip string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{batch.TaskKey: "t"}},
			Status:     corev1.PodStatus{Phase: phase, PodIP: ip},
		}
	}
	get := func(name string) Question {
		return Question{Pod: name, UID: types.UID(name), Address: "10.0.0.1", Port: 8080, HTTP: true, Path: "/ready", HeaderName: "X", HeaderValue: "y"}
	}
	http := flow.Probe{HTTPGetList: []flow.HTTPGet{{TaskName: "t", Port: 8080, Path: "ready", HTTPHeader: corev1.HTTPHeader{Name: "X", Value: "y"}}}}
	pods := map[string][]*corev1.Pod{"f-a": {pod("p0", corev1.PodRunning, "10.0.0.1"), pod("p1", corev1.PodRunning, "10.0.0.1"), pod("p2", corev1.PodPending, "")}}

	cases := map[string]struct {
		o    Observed
		want digest
	}{
		"a new flow makes the jobs that depend on nothing": {
			Observed{Flow: diamond(), Templates: all},
			digest{Create: []string{"f-a"}, Phase: flow.Pending, Waits: map[string]string{
				"b": "waits for f-a to complete", "c": "waits for f-a to complete", "d": "waits for f-b, f-c to complete",
			}},
		},
		"a job that runs makes the flow run, and nothing depends on that": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}, after("b", "a")), flow.Pending), Templates: all, Jobs: jobs(jobIn(diamond(), "a", batch.Running))},
			digest{Phase: flow.Running, Waits: map[string]string{"b": "waits for f-a to complete"}},
		},
		"both sides of a diamond begin together": {
			Observed{Flow: withPhase(diamond(), flow.Running), Templates: all, Jobs: jobs(jobIn(diamond(), "a", batch.Completed))},
			digest{Create: []string{"f-b", "f-c"}, Phase: flow.Running, Waits: map[string]string{"d": "waits for f-b, f-c to complete"}},
		},
		"the last of two targets is waited for": {
			Observed{Flow: withPhase(diamond(), flow.Running), Templates: all, Jobs: jobs(
				jobIn(diamond(), "a", batch.Completed), jobIn(diamond(), "b", batch.Completed), jobIn(diamond(), "c", batch.Running),
			)},
			digest{Phase: flow.Running, Waits: map[string]string{"d": "waits for f-c to complete"}},
		},
		"a job that failed fails the flow, and no more jobs are made": {
			Observed{Flow: withPhase(diamond(), flow.Running), Templates: all, Jobs: jobs(
				jobIn(diamond(), "a", batch.Completed), jobIn(diamond(), "b", batch.Failed),
			)},
			digest{Phase: flow.Failed},
		},
		"a job that was terminated fails a flow that is pending": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}, flow.Flow{Name: "b"}), flow.Pending), Templates: all, Jobs: jobs(jobIn(diamond(), "a", batch.Terminated))},
			digest{Phase: flow.Failed},
		},
		"a job that is aborted is waited for": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}, after("b", "a")), flow.Running), Templates: all, Jobs: jobs(jobIn(diamond(), "a", batch.Aborted))},
			digest{Phase: flow.Running, Waits: map[string]string{"b": "waits for f-a to complete"}},
		},
		"a flow whose jobs have all completed succeeds": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}), flow.Running), Templates: all, Jobs: jobs(jobIn(diamond(), "a", batch.Completed))},
			digest{Phase: flow.Succeed},
		},
		"jobs are deleted once it is stored that the flow has succeeded": {
			Observed{
				Flow: func() *flow.JobFlow {
					f := withPhase(newFlow(flow.Flow{Name: "a"}), flow.Succeed)
					f.Spec.JobRetainPolicy = flow.Delete
					return f
				}(), Jobs: jobs(jobIn(diamond(), "a", batch.Completed)),
			},
			digest{Delete: []string{"f-a"}},
		},
		"jobs are kept unless it is said otherwise": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}), flow.Succeed), Jobs: jobs(jobIn(diamond(), "a", batch.Completed))},
			digest{},
		},
		"a job whose time to live is over has completed all the same": {
			Observed{
				Flow: withPhase(newFlow(flow.Flow{Name: "a"}, after("b", "a")), flow.Running), Templates: all,
				Gone: jobs(jobIn(diamond(), "a", batch.Completed)),
			},
			digest{Create: []string{"f-b"}, Phase: flow.Running},
		},
		"a job that was deleted while it ran is made again": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}), flow.Running), Templates: all, Gone: jobs(jobIn(diamond(), "a", batch.Running))},
			digest{Create: []string{"f-a"}},
		},
		"another's job of the name is left alone": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}), flow.Pending), Templates: all, Jobs: jobs(func() *batch.Job {
				j := jobIn(diamond(), "a", batch.Completed)
				j.OwnerReferences = nil
				return j
			}())},
			digest{
				Waits:  map[string]string{"a": "another job has the name f-a"},
				Events: []string{"NameTaken: f-a: there is a job of that name that is not of this flow"},
			},
		},
		"a missing template is waited for": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}, flow.Flow{Name: "x"}), flow.Pending), Templates: all},
			digest{
				Create: []string{"f-a"}, Waits: map[string]string{"x": "there is no jobtemplate x"},
				Events: []string{`TemplateNotFound: f-x waits: there is no jobtemplate "x" in namespace "ns"`},
			},
		},
		"a cycle that has slipped through makes nothing": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}, after("b", "c"), after("c", "b")), flow.Pending), Templates: all},
			digest{Events: []string{"InvalidFlow: jobflow Flow is not DAG: b depends on c depends on b"}},
		},
		"a name that is given twice counts once": {
			Observed{Flow: withPhase(newFlow(flow.Flow{Name: "a"}, flow.Flow{Name: "a"}), flow.Running), Jobs: jobs(jobIn(diamond(), "a", batch.Completed))},
			digest{Phase: flow.Succeed},
		},
		"a flow without entries waits for some": {
			Observed{Flow: withPhase(newFlow(), flow.Pending)},
			digest{},
		},
		"a flow that is being deleted makes nothing": {
			Observed{Flow: func() *flow.JobFlow {
				f := diamond()
				f.DeletionTimestamp = &metav1.Time{Time: t0}
				return f
			}(), Templates: all},
			digest{},
		},

		"a probe of a task waits for as many pods as the task needs": func() struct {
			o    Observed
			want digest
		} {
			f := probed(flow.Probe{TaskStatusList: []flow.TaskStatus{{TaskName: "t", Phase: "Running"}}})
			return struct {
				o    Observed
				want digest
			}{
				Observed{Flow: f, Templates: all, Jobs: running(f, map[corev1.PodPhase]int32{corev1.PodRunning: 1, corev1.PodPending: 2})},
				digest{Phase: flow.Running, Waits: map[string]string{"b": "waits for task t of f-a: 1 of 2 pods are Running"}},
			}
		}(),
		"a pod that has succeeded has been running": func() struct {
			o    Observed
			want digest
		} {
			f := probed(flow.Probe{TaskStatusList: []flow.TaskStatus{{TaskName: "t", Phase: "Running"}}})
			return struct {
				o    Observed
				want digest
			}{
				Observed{Flow: f, Templates: all, Jobs: running(f, map[corev1.PodPhase]int32{corev1.PodRunning: 1, corev1.PodSucceeded: 1})},
				digest{Create: []string{"f-b"}, Phase: flow.Running},
			}
		}(),
		"pods that run are asked": {
			Observed{Flow: probed(http), Templates: all, Jobs: running(probed(http), nil), Pods: pods},
			digest{
				Ask: []Question{get("p0"), get("p1")}, Phase: flow.Running, After: ProbePeriod,
				Waits: map[string]string{"b": "waits for task t of f-a: 0 of 2 pods answer GET /ready on port 8080"},
			},
		},
		"a pod that does not answer is asked again later": {
			Observed{Flow: probed(http), Templates: all, Jobs: running(probed(http), nil), Pods: pods, Answers: map[Question]bool{get("p0"): true, get("p1"): false}},
			digest{
				Phase: flow.Running, After: ProbePeriod,
				Waits: map[string]string{"b": "waits for task t of f-a: 1 of 2 pods answer GET /ready on port 8080"},
			},
		},
		"a job is made when enough pods answer": {
			Observed{Flow: probed(http), Templates: all, Jobs: running(probed(http), nil), Pods: pods, Answers: map[Question]bool{get("p0"): true, get("p1"): true}},
			digest{Create: []string{"f-b"}, Phase: flow.Running},
		},
		"a target that has completed need not answer": {
			Observed{Flow: probed(http), Templates: all, Jobs: jobs(jobIn(diamond(), "a", batch.Completed)), Pods: pods},
			digest{Create: []string{"f-b"}, Phase: flow.Running},
		},
		"a task that no target has is told": {
			Observed{
				Flow:      probed(flow.Probe{TCPSocketList: []flow.TCPSocket{{TaskName: "x", Port: 80}}}),
				Templates: all, Jobs: jobs(jobIn(diamond(), "a", batch.Running)),
			},
			digest{
				Phase: flow.Running, Waits: map[string]string{"b": `asks for task "x", which a does not have`},
				Events: []string{`ProbeNotPossible: f-b waits for ever: its probe asks for task "x", which a does not have`},
			},
		},
		"a target is made before it is probed": {
			Observed{Flow: withPhase(probed(http), flow.Pending), Templates: all},
			digest{Create: []string{"f-a"}, Waits: map[string]string{"b": "waits for f-a to be made"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.o.Now = t0.Add(time.Hour)
			if diff := cmp.Diff(tc.want, digestOf(Decide(tc.o))); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusTellsTheLifeOfEachJob(t *testing.T) {
	f := withPhase(newFlow(flow.Flow{Name: "a"}, flow.Flow{Name: "b"}, flow.Flow{Name: "c"}), flow.Running)
	at := func(s int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(s) * time.Second)) }
	a := jobIn(f, "a", batch.Completed)
	a.Status = batch.JobStatus{
		State: batch.JobState{Phase: batch.Completed, LastTransitionTime: at(9)}, RetryCount: 1, RunningDuration: &metav1.Duration{Duration: 9 * time.Second},
		Conditions: []batch.JobCondition{
			{Status: batch.Pending, LastTransitionTime: ptr.To(at(1))},
			{Status: batch.Running, LastTransitionTime: ptr.To(at(3))},
			{Status: batch.Completed, LastTransitionTime: ptr.To(at(9))},
		},
		TaskStatusCount: map[string]batch.TaskState{"t": {Phase: map[corev1.PodPhase]int32{corev1.PodSucceeded: 1}}},
	}
	b := jobIn(f, "b", batch.Restarting)
	b.Status.State.LastTransitionTime = at(20)
	f.Status.JobStatusList = []flow.JobStatus{{
		Name: "f-b", State: batch.Running, StartTimestamp: at(0), RunningHistories: []flow.RunningHistory{{State: batch.Running, StartTimestamp: at(5)}},
	}}
	want := &flow.JobFlowStatus{
		State: flow.State{Phase: flow.Running}, CompletedJobs: []string{"f-a"}, UnKnowJobs: []string{"f-b"}, PendingJobs: []string{"f-c"},
		JobStatusList: []flow.JobStatus{
			{Name: "f-a", State: batch.Completed, StartTimestamp: at(0), EndTimestamp: at(9), RestartCount: 1, RunningHistories: []flow.RunningHistory{
				{State: batch.Pending, StartTimestamp: at(1), EndTimestamp: at(3)},
				{State: batch.Running, StartTimestamp: at(3), EndTimestamp: at(9)},
				{State: batch.Completed, StartTimestamp: at(9)},
			}},
			{Name: "f-b", State: batch.Restarting, StartTimestamp: at(0), RunningHistories: []flow.RunningHistory{
				{State: batch.Running, StartTimestamp: at(5), EndTimestamp: at(20)}, {State: batch.Restarting, StartTimestamp: at(20)},
			}},
			{Name: "f-c", StartTimestamp: at(0)},
		},
		Conditions: map[string]flow.Condition{
			"f-a": {Phase: batch.Completed, CreateTimestamp: at(0), RunningDuration: a.Status.RunningDuration, TaskStatusCount: a.Status.TaskStatusCount},
			"f-b": {Phase: batch.Restarting, CreateTimestamp: at(0)},
			"f-c": {CreateTimestamp: at(0)},
		},
	}
	got := Decide(Observed{Flow: f, Jobs: jobs(a, b, jobIn(f, "c", ""))}).Status
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestJobsAreMadeFromTemplateAndPatch(t *testing.T) {
	f, template := newFlow(), newTemplate("a")
	plain, err := jobFor(f, &flow.Flow{Name: "a"}, template)
	if err != nil {
		t.Fatal(err)
	}
	origin := map[string]string{batch.TemplateOfKey: "ns.a", batch.FlowOfKey: "ns.f"}
	want := &batch.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "f-a", Labels: origin, Annotations: origin,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "flow.volcano.sh/v1alpha1", Kind: "JobFlow", Name: "f", UID: "flow-uid", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: template.Spec,
	}
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}

	patch := &flow.Patch{JobSpec: batch.JobSpec{
		Queue: "default", MaxRetry: 3, // filled in by the definition of the kind
		TTLSecondsAfterFinished: ptr.To[int32](9),
		Plugins:                 map[string][]string{"svc": nil},
		Tasks: []batch.TaskSpec{
			{Name: "t", Replicas: 4, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Command: []string{"false"}, Env: []corev1.EnvVar{{Name: "B", Value: "3"}}}},
			}}},
			{Name: "u", Replicas: 1},
		},
	}}
	got, err := jobFor(f, &flow.Flow{Name: "a", Patch: patch}, template)
	if err != nil {
		t.Fatal(err)
	}
	changed := *template.Spec.Tasks[0].DeepCopy()
	changed.Replicas = 4
	c := &changed.Template.Spec.Containers[0]
	c.Command, c.Env[1].Value = []string{"false"}, "3"
	var names []string
	for _, task := range got.Spec.Tasks {
		names = append(names, task.Name)
	}
	if diff := cmp.Diff([]string{"t", "u"}, names); diff != "" && cmp.Diff([]string{"u", "t"}, names) != "" {
		t.Fatalf("tasks (-want +got):\n%s", diff)
	}
	for _, task := range got.Spec.Tasks {
		if task.Name == "t" {
			if diff := cmp.Diff(changed, task); diff != "" {
				t.Errorf("patched task (-want +got):\n%s", diff)
			}
		}
	}
	if got.Spec.Queue != "prod" || got.Spec.MaxRetry != 0 || *got.Spec.TTLSecondsAfterFinished != 9 {
		t.Errorf("queue %q, maxRetry %d, ttl %v", got.Spec.Queue, got.Spec.MaxRetry, got.Spec.TTLSecondsAfterFinished)
	}
	if diff := cmp.Diff(newTemplate("a"), template); diff != "" {
		t.Errorf("the template was changed (-before +after):\n%s", diff)
	}
}

func TestLabelsThatAreTooLongAreLeftOut(t *testing.T) {
	f, template := newFlow(), newTemplate("a")
	f.Namespace = "a-namespace-with-a-name-that-is-as-long-as-names-of-namespaces-"
	j, err := jobFor(f, &flow.Flow{Name: "a"}, template)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{batch.TemplateOfKey: "ns.a"}, j.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if j.Annotations[batch.FlowOfKey] != f.Namespace+".f" {
		t.Errorf("annotations %v", j.Annotations)
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		flow *flow.JobFlow
		want []string
	}{
		"a diamond is fine":                 {newFlow(flow.Flow{Name: "a"}, after("b", "a"), after("c", "a"), after("d", "b", "c")), nil},
		"no entries and the same twice are": {newFlow(flow.Flow{Name: "a"}, flow.Flow{Name: "a"}), nil},
		"targets must exist": {
			newFlow(flow.Flow{Name: "a"}, after("b", "a", "x")),
			[]string{`spec.flows[1].dependsOn.targets[1]: vertex is not defined: the flow has no entry "x"`},
		},
		"a cycle is named": {
			newFlow(after("a", "c"), after("b", "a"), after("c", "b")),
			[]string{"jobflow Flow is not DAG: a depends on c depends on b depends on a"},
		},
		"an entry may not depend on itself": {newFlow(after("a", "a")), []string{"jobflow Flow is not DAG: a depends on a"}},
		"a name must be one that a job can have": {
			newFlow(flow.Flow{Name: "a b"}),
			[]string{"spec.flows[0].name: no job can be named f-a b: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		},
		"probes must be possible": {
			func() *flow.JobFlow {
				f := newFlow(flow.Flow{Name: "a"}, after("b", "a"))
				f.Spec.Flows[1].DependsOn.Probe = &flow.Probe{
					HTTPGetList:    []flow.HTTPGet{{Port: 70000}, {Path: "/a b"}},
					TCPSocketList:  []flow.TCPSocket{{}},
					TaskStatusList: []flow.TaskStatus{{Phase: "Happy"}},
				}
				return f
			}(),
			[]string{
				"spec.flows[1].dependsOn.probe.httpGetList[0].port: 70000 is no port: use 1 to 65535",
				`spec.flows[1].dependsOn.probe.httpGetList[1].path: "/a b" has blanks`,
				"spec.flows[1].dependsOn.probe.tcpSocketList[0].port: 0 is no port: use 1 to 65535",
				`spec.flows[1].dependsOn.probe.taskStatusList[0].phase: "Happy" is not known: use Pending, Running, Succeeded, Failed, Unknown`,
			},
		},
		"a patch must say which task it means": {
			newFlow(flow.Flow{Name: "a", Patch: &flow.Patch{JobSpec: batch.JobSpec{Tasks: []batch.TaskSpec{{Replicas: 2}}}}}),
			[]string{"spec.flows[0].patch.jobSpec: tasks[0].name: which task of the template is meant? One without a name is called default and its position"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Validate(tc.flow)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateStatusListsItsJobs(t *testing.T) {
	template := newTemplate("a")
	got := TemplateStatus(template, []*batch.Job{jobIn(newFlow(), "b", ""), jobIn(newFlow(), "a", "")})
	if diff := cmp.Diff(&flow.JobTemplateStatus{JobDependsOnList: []string{"f-a", "f-b"}}, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	template.Status = *got
	if again := TemplateStatus(template, []*batch.Job{jobIn(newFlow(), "a", ""), jobIn(newFlow(), "b", "")}); again != nil {
		t.Errorf("it is to be written again: %v", again)
	}
}
