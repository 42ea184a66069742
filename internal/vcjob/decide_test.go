// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

var testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scene is what one decision looks at, built up step by step.
type scene struct{ o Observed }

// newScene returns a Job in a phase, admitted and prepared, with the given changes and no pods.
func newScene(phase batch.JobPhase, changes ...func(*batch.Job)) *scene {
	j := newJob(changes...)
	Default(j, "")
	j.CreationTimestamp = metav1.NewTime(testNow.Add(-time.Hour))
	since := metav1.NewTime(testNow.Add(-time.Minute))
	j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: since}
	if phase != "" {
		j.Status.Conditions = []batch.JobCondition{{Status: batch.Pending, LastTransitionTime: &since}, {Status: phase, LastTransitionTime: &since}}
	}
	j.Status.Version = 1
	s := &scene{Observed{Job: j, Prepared: true, Now: testNow, Options: DefaultOptions()}}
	if phase != "" && !IsFinal(phase) && phase != batch.Aborted {
		s.o.Group = &scheduling.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: GroupName(j), Annotations: map[string]string{RoundKey: "1"}},
			Status:     scheduling.PodGroupStatus{Phase: scheduling.GroupRunning},
		}
		t := newTurn(s.o)
		s.o.Group.Spec = t.groupSpec()
	}
	return s
}

// pod adds a pod of the present version.
func (s *scene) pod(task string, index int, phase corev1.PodPhase, changes ...func(*corev1.Pod)) *scene {
	name := PodName("j", task, index)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uidOf(name), CreationTimestamp: metav1.NewTime(testNow.Add(-30 * time.Second)),
			Labels:      map[string]string{batch.TaskKey: task, batch.IndexKey: strconv.Itoa(index)},
			Annotations: map[string]string{batch.VersionKey: "1"},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	if phase == corev1.PodFailed {
		exit(3)(p)
	}
	for _, change := range changes {
		change(p)
	}
	s.o.Pods = append(s.o.Pods, p)
	return s
}

func (s *scene) with(change func(*Observed)) *scene { change(&s.o); return s }

func old(p *corev1.Pod)   { p.Annotations[batch.VersionKey] = "0" }
func going(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testNow} }
func marked(restart string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[batch.OutOfSyncKey] = "true"
		if restart != "" {
			p.Annotations[RestartKey] = restart
		}
	}
}

func exit(codes ...int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = nil
		for _, code := range codes {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(testNow.Add(-10 * time.Second))},
			}})
		}
	}
}

func restarts(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
}

func inPartition(id string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[batch.PartitionKey] = id }
}

func uidOf(name string) (id types.UID) { return types.UID("uid-" + name) }

func command(action batch.Action) func(*Observed) {
	return func(o *Observed) {
		o.Commands = append(o.Commands, &bus.Command{
			ObjectMeta: metav1.ObjectMeta{Name: "c" + strconv.Itoa(len(o.Commands))}, Action: string(action), TargetObject: &metav1.OwnerReference{UID: "uid-j"},
		})
	}
}

// line sums a plan up.
func line(p Plan) string {
	var b []byte
	add := func(format string, args ...any) {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = fmt.Appendf(b, format, args...)
	}
	for _, m := range p.Mark {
		add("mark:%s(%s)", m.Pod.Name, m.Restart)
	}
	if s := p.Status; s != nil && p.Now {
		add("%s v%d r%d", s.State.Phase, s.Version, s.RetryCount)
	}
	for range p.Commands {
		add("done")
	}
	for _, d := range p.Delete {
		add("delete:%s", d.Pod.Name)
	}
	if p.DropGroup != nil {
		add("dropGroup")
	}
	if p.DropObjects {
		add("dropObjects")
	}
	if p.Prepare {
		add("prepare")
	}
	if p.Group != nil {
		add("group")
	}
	for _, c := range p.Create {
		add("create:%s", c.Name)
	}
	if p.After > 0 {
		add("after:%v", p.After)
	}
	if p.Over {
		add("over")
	}
	return string(b)
}

// TestActionsInEveryPhase is the table of section 2.2: for each phase what each action does. The Job has the pods t-0 running,
// t-1 failed and t-2 succeeded, of the present version and without policies; the action comes by a Command.
func TestActionsInEveryPhase(t *testing.T) {
	all := []batch.Action{"RestartJob", "RestartTask", "RestartPod", "RestartPartition", "AbortJob", "CompleteJob", "TerminateJob", "ResumeJob", "SyncJob", "EnqueueJob", "", "Nonsense"}
	none := func(a ...batch.Action) map[batch.Action]string {
		m := map[batch.Action]string{}
		for _, each := range a {
			m[each] = "done"
		}
		return m
	}
	working := none("RestartPartition", "ResumeJob", "SyncJob", "EnqueueJob", "", "Nonsense")
	working["RestartJob"] = "Restarting v2 r1"
	working["RestartTask"] = "Restarting v1 r1" // a Command names no task: nothing is killed, and the status changes all the same
	working["RestartPod"] = "Restarting v1 r1"
	working["AbortJob"] = "Aborting v2 r0"
	working["CompleteJob"] = "Completing v2 r0"
	working["TerminateJob"] = "Terminating v2 r0"
	restarting := none("RestartTask", "RestartPod", "RestartPartition", "ResumeJob", "SyncJob", "EnqueueJob", "", "Nonsense")
	restarting["RestartJob"] = "mark:j-t-0(0/pod) mark:j-t-1(0/pod) mark:j-t-2(0/pod) Restarting v2 r0"
	restarting["AbortJob"] = "Aborting v2 r0"
	restarting["CompleteJob"] = "Completing v2 r0"
	restarting["TerminateJob"] = "Terminating v2 r0"
	stopped := none(all...)
	stopped["ResumeJob"] = "Restarting v2 r1"
	for phase, want := range map[batch.JobPhase]map[batch.Action]string{
		batch.Pending: working, batch.Running: working, batch.Restarting: restarting,
		batch.Aborting: stopped, batch.Aborted: stopped,
		batch.Completing: none(all...), batch.Terminating: none(all...),
		batch.Completed: none(all...), batch.Terminated: none(all...), batch.Failed: none(all...),
	} {
		for _, action := range all {
			t.Run(fmt.Sprintf("%s and %s", phase, action), func(t *testing.T) {
				s := newScene(phase, task("t", 3)).with(command(action)).
					pod("t", 0, corev1.PodRunning).pod("t", 1, corev1.PodFailed).pod("t", 2, corev1.PodSucceeded)
				if got := line(Decide(s.o)); got != want[action] {
					t.Errorf("plan %q, want %q", got, want[action])
				}
			})
		}
	}
}

func TestWhatIsDoneInEachPhaseWithoutOrders(t *testing.T) {
	elastic := []func(*batch.Job){task("t", 3, atLeast(1))}
	fromAbort := func(o *Observed) {
		c := metav1.NewTime(testNow)
		o.Job.Status.Conditions = []batch.JobCondition{{Status: batch.Aborted, LastTransitionTime: &c}, {Status: batch.Restarting, LastTransitionTime: &c}}
	}
	retries := func(n int32) func(*Observed) { return func(o *Observed) { o.Job.Status.RetryCount = n } }
	cases := map[string]struct {
		s    *scene
		want string
	}{
		"a new Job gets its PodGroup at once":       {newScene("", task("t", 1)), "group"},
		"what goes with a new Job is noted first":   {newScene("", task("t", 1), plugins("svc")), "Pending v1 r0"},
		"a new Job obeys a Command":                 {newScene("", task("t", 1)).with(command("AbortJob")), "Aborting v2 r0"},
		"a new Job whose pods run is Running":       {newScene("", task("t", 1)).pod("t", 0, "Running"), "Running v1 r0"},
		"an unknown phase is Pending":               {newScene("Nonsense", task("t", 1)).with(func(o *Observed) { o.Group = nil }), "group"},
		"a Job that is being deleted is left alone": {newScene(batch.Running, task("t", 1)).with(func(o *Observed) { o.Job.DeletionTimestamp = &metav1.Time{Time: testNow} }), ""},
		"claims and objects come before the PodGroup": {newScene(batch.Pending, task("t", 1), plugins("svc")).with(func(o *Observed) {
			o.Group, o.Prepared = nil, false
			o.Job.Status.ControlledResources = map[string]string{"plugin-svc": "svc"}
		}), "prepare"},
		"where there are none, the PodGroup comes first":    {newScene(batch.Pending, task("t", 1)).with(func(o *Observed) { o.Group, o.Prepared = nil, false }), "group"},
		"the PodGroup comes before pods":                    {newScene(batch.Pending, task("t", 1)).with(func(o *Observed) { o.Group = nil }), "group"},
		"pods wait for the PodGroup":                        {newScene(batch.Pending, task("t", 1)).with(func(o *Observed) { o.Group.Status.Phase = "Pending" }), ""},
		"a PodGroup without a phase is not admitted":        {newScene(batch.Pending, task("t", 1)).with(func(o *Observed) { o.Group.Status.Phase = "" }), ""},
		"a PodGroup of an earlier round goes":               {newScene(batch.Pending, task("t", 1)).with(func(o *Observed) { o.Group.Annotations[RoundKey] = "0" }), "dropGroup"},
		"a missing queue is waited for":                     {newScene(batch.Pending, task("t", 1)).with(func(o *Observed) { o.Group, o.QueueMissing = nil, true }), "after:5s"},
		"what is missing is made, the minimum first":        {newScene(batch.Pending, task("a", 2, atLeast(1)), task("b", 1)), "create:j-a-0 create:j-b-0 create:j-a-1"},
		"a name that another pod has is waited for":         {newScene(batch.Pending, task("t", 2)).with(func(o *Observed) { o.Taken = map[string]bool{"j-t-0": true} }), "create:j-t-1 after:1s"},
		"a pod on its way out has its name":                 {newScene(batch.Running, elastic...).pod("t", 0, "Running", going).pod("t", 1, "Running").pod("t", 2, "Running"), ""},
		"surplus goes":                                      {newScene(batch.Running, elastic...).pod("t", 0, "Running").pod("t", 1, "Running").pod("t", 2, "Running").pod("t", 3, "Running"), "delete:j-t-3"},
		"a marked pod goes":                                 {newScene(batch.Running, elastic...).pod("t", 0, "Running", marked("")).pod("t", 1, "Running").pod("t", 2, "Running"), "delete:j-t-0"},
		"ended pods are not made again":                     {newScene(batch.Running, elastic...).pod("t", 0, "Failed").pod("t", 1, "Succeeded").pod("t", 2, "Running"), ""},
		"Pending becomes Running with enough pods":          {newScene(batch.Pending, elastic...).pod("t", 0, "Running").pod("t", 1, "Pending").pod("t", 2, "Pending"), "Running v1 r0"},
		"Pending becomes Completed when all have ended":     {newScene(batch.Pending, elastic...).pod("t", 0, "Succeeded").pod("t", 1, "Succeeded").pod("t", 2, "Succeeded"), "Completed v1 r0"},
		"Running becomes Pending with too few pods":         {newScene(batch.Running, task("t", 2)).pod("t", 0, "Running").pod("t", 1, "Pending"), "Pending v1 r0"},
		"objects of plugins go before a Job ends by itself": {newScene(batch.Running, task("t", 1), plugins("svc")).with(func(o *Observed) { o.Job.Status.ControlledResources = map[string]string{"plugin-svc": "svc"} }).pod("t", 0, "Succeeded"), "dropObjects"},
		"and then it ends": {newScene(batch.Running, task("t", 1), plugins("svc")).with(func(o *Observed) {
			o.Job.Status.ControlledResources = map[string]string{"plugin-svc": "svc"}
			o.Dropped = true
		}).pod("t", 0, "Succeeded"), "Completed v1 r0"},
		"what goes with a Job is noted first":                        {newScene(batch.Pending, task("t", 1), plugins("svc")), "Pending v1 r0"},
		"Restarting ends pods of earlier versions":                   {newScene(batch.Restarting, elastic...).pod("t", 0, "Running", old).pod("t", 1, "Failed", old).pod("t", 2, "Running"), "delete:j-t-0 delete:j-t-1"},
		"Restarting has the old PodGroup deleted":                    {newScene(batch.Restarting, elastic...).with(func(o *Observed) { o.Group.Annotations[RoundKey] = "0" }).pod("t", 0, "Running", old), "delete:j-t-0 dropGroup"},
		"Restarting waits while too many pods are ending":            {newScene(batch.Restarting, task("t", 2)).pod("t", 0, "Running", old, going).pod("t", 1, "Running", old, going), ""},
		"Restarting goes on when enough places are free":             {newScene(batch.Restarting, elastic...).pod("t", 0, "Running", old, going), "Pending v1 r0"},
		"Restarting fails with the last retry":                       {newScene(batch.Restarting, elastic...).with(retries(3)).pod("t", 0, "Running", old, going), "Failed v1 r3"},
		"the last retry keeps what has ended":                        {newScene(batch.Restarting, elastic...).with(retries(3)).pod("t", 0, "Running", old).pod("t", 1, "Failed", old).pod("t", 2, "Succeeded", old), "delete:j-t-0"},
		"a resume keeps what has ended":                              {newScene(batch.Restarting, elastic...).with(fromAbort).pod("t", 1, "Failed", old).pod("t", 2, "Succeeded", old), "Pending v1 r0"},
		"Aborting ends what has not ended":                           {newScene(batch.Aborting, elastic...).pod("t", 0, "Running", old).pod("t", 1, "Failed", old).pod("t", 2, "Pending"), "delete:j-t-0 delete:j-t-2 dropGroup"},
		"Aborting waits for pods":                                    {newScene(batch.Aborting, elastic...).with(func(o *Observed) { o.Group = nil }).pod("t", 0, "Running", old, going), ""},
		"Aborting becomes Aborted":                                   {newScene(batch.Aborting, elastic...).with(func(o *Observed) { o.Group = nil }).pod("t", 1, "Failed", old), "Aborted v1 r0"},
		"Completing becomes Completed":                               {newScene(batch.Completing, elastic...).with(func(o *Observed) { o.Group = nil }), "Completed v1 r0"},
		"Terminating becomes Terminated":                             {newScene(batch.Terminating, elastic...).with(func(o *Observed) { o.Group = nil }), "Terminated v1 r0"},
		"Completed ends pods that are left":                          {newScene(batch.Completed, elastic...).pod("t", 0, "Running").pod("t", 1, "Succeeded"), "delete:j-t-0"},
		"Completed is over when nothing is left":                     {newScene(batch.Completed, elastic...).pod("t", 1, "Succeeded"), "over"},
		"Failed is over when nothing is left":                        {newScene(batch.Failed, elastic...), "over"},
		"an interrupted restart of a pod goes on":                    {newScene(batch.Running, elastic...).pod("t", 0, "Running", marked("1/pod")).pod("t", 1, "Running").pod("t", 2, "Running"), "Restarting v1 r1"},
		"an interrupted restart of a task goes on with all its pods": {newScene(batch.Running, elastic...).pod("t", 0, "Running", marked("1/task")).pod("t", 1, "Running").pod("t", 2, "Running"), "mark:j-t-1(1/task) mark:j-t-2(1/task) Restarting v1 r1"},
		"a restart that the status tells of is not counted again":    {newScene(batch.Running, elastic...).with(retries(1)).pod("t", 0, "Running", marked("1/pod")).pod("t", 1, "Running").pod("t", 2, "Running"), "delete:j-t-0"},
		"a Command for an earlier Job of the name is dropped":        {newScene(batch.Running, task("t", 1)).pod("t", 0, "Running").with(command("AbortJob")).with(func(o *Observed) { o.Commands[0].TargetObject.UID = "other" }), "done"},
		"a Command with a blank UID is obeyed":                       {newScene(batch.Running, task("t", 1)).pod("t", 0, "Running").with(command("AbortJob")).with(func(o *Observed) { o.Commands[0].TargetObject.UID = "00000000-0000-0000-0000-000000000000" }), "Aborting v2 r0"},
		"Commands are obeyed one after the other":                    {newScene(batch.Running, task("t", 1)).pod("t", 0, "Running").with(command("ResumeJob")).with(command("AbortJob")), "done"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := line(Decide(tc.s.o)); got != tc.want {
				t.Errorf("plan %q, want %q", got, tc.want)
			}
		})
	}
}

// TestVerdict is the list of section 2.3.
func TestVerdict(t *testing.T) {
	minSuccess := func(n int32) func(*batch.Job) { return spec(func(s *batch.JobSpec) { s.MinSuccess = &n }) }
	needs := func(n int32) func(*batch.Job) { return spec(func(s *batch.JobSpec) { s.MinAvailable = n }) }
	cases := map[string]struct {
		job  []func(*batch.Job)
		pods string // a letter for each pod of each task: p r s f, in the order of tasks
		want batch.JobPhase
	}{
		"no replicas change nothing":                             {[]func(*batch.Job){task("a", 0)}, "", ""},
		"minSuccess ends a Job whose pods still run":             {[]func(*batch.Job){task("a", 3, atLeast(1)), minSuccess(2)}, "ssr", batch.Completed},
		"minSuccess not reached goes on":                         {[]func(*batch.Job){task("a", 3, atLeast(1)), minSuccess(2)}, "srr", ""},
		"minSuccess not reached at the end fails":                {[]func(*batch.Job){task("a", 3, atLeast(0)), minSuccess(2)}, "sff", batch.Failed},
		"a task below its minimum fails":                         {[]func(*batch.Job){task("a", 1), task("b", 2, atLeast(1))}, "fss", batch.Failed},
		"a task below its minimum, the Job below their sum":      {[]func(*batch.Job){task("a", 1), task("b", 1), needs(1)}, "sf", batch.Completed},
		"all succeeded":                                          {[]func(*batch.Job){task("a", 2), task("b", 1)}, "sss", batch.Completed},
		"eight of ten":                                           {[]func(*batch.Job){task("a", 10, atLeast(8))}, "ssssssssff", batch.Completed},
		"seven of ten":                                           {[]func(*batch.Job){task("a", 10, atLeast(8))}, "sssssssfff", batch.Failed},
		"all failed":                                             {[]func(*batch.Job){task("a", 2), needs(1)}, "ff", batch.Failed},
		"a failed pod while others run":                          {[]func(*batch.Job){task("a", 2, atLeast(1))}, "fr", ""},
		"a gang that is not complete any more":                   {[]func(*batch.Job){task("a", 3)}, "rrp", batch.Pending},
		"a gang that is complete without the one that waits":     {[]func(*batch.Job){task("a", 3, atLeast(2))}, "rrp", ""},
		"a task that nobody has made pods for is skipped":        {[]func(*batch.Job){task("a", 2), task("b", 0)}, "ss", batch.Completed},
		"minSuccess with all succeeded beyond the minimum":       {[]func(*batch.Job){task("a", 2), minSuccess(2)}, "ss", batch.Completed},
		"minSuccess over minAvailable: enough have succeeded":    {[]func(*batch.Job){task("a", 3), minSuccess(1)}, "sff", batch.Completed},
		"a task's minimum of zero asks for nothing of that task": {[]func(*batch.Job){task("a", 1, atLeast(0)), task("b", 1)}, "fs", batch.Completed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(batch.Running, tc.job...)
			n := 0
			for _, task := range s.o.Job.Spec.Tasks {
				for i := range int(task.Replicas) {
					s.pod(task.Name, i, map[byte]corev1.PodPhase{'p': "Pending", 'r': "Running", 's': "Succeeded", 'f': "Failed"}[tc.pods[n]])
					n++
				}
			}
			got := batch.JobPhase("")
			if p := Decide(s.o); p.Now {
				got = p.Status.State.Phase
			}
			if got != tc.want {
				t.Errorf("phase %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPoliciesFire(t *testing.T) {
	later := func(e batch.Event, a batch.Action, d time.Duration) batch.LifecyclePolicy {
		return batch.LifecyclePolicy{Event: e, Action: a, Timeout: &metav1.Duration{Duration: d}}
	}
	events := func(a batch.Action, e ...batch.Event) batch.LifecyclePolicy {
		return batch.LifecyclePolicy{Action: a, Events: e}
	}
	goneAt := func(d time.Duration) func(*Observed) {
		return func(o *Observed) {
			o.Gone = append(o.Gone, Gone{Task: "t", Index: 0, Version: 1, At: testNow.Add(-d)})
		}
	}
	two := func(p ...batch.LifecyclePolicy) *scene {
		return newScene(batch.Running, task("t", 2, atLeast(1)), policies(p...))
	}
	unknown := func(d time.Duration) func(*Observed) {
		return func(o *Observed) {
			o.Group.Status.Phase, o.GroupUnknownSince = scheduling.GroupUnknown, testNow.Add(-d)
		}
	}
	size := func(p ...batch.LifecyclePolicy) *scene {
		return newScene(batch.Running, task("t", 4, atLeast(2), partitions(batch.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 2})), policies(p...))
	}
	cases := map[string]struct {
		s    *scene
		want string
	}{
		"PodFailed restarts the Job":                    {two(on("PodFailed", "RestartJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Restarting v2 r1"},
		"PodFailed restarts the pod":                    {two(on("PodFailed", "RestartPod")).pod("t", 0, "Failed").pod("t", 1, "Running"), "mark:j-t-0(1/pod) Restarting v1 r1"},
		"PodFailed restarts the task, its cause last":   {two(on("PodFailed", "RestartTask")).pod("t", 0, "Failed").pod("t", 1, "Running"), "mark:j-t-1(1/task) mark:j-t-0(1/task) Restarting v1 r1"},
		"PodFailed restarts the partition":              {size(on("PodFailed", "RestartPartition")).pod("t", 0, "Running", inPartition("0")).pod("t", 1, "Running", inPartition("0")).pod("t", 2, "Running", inPartition("1")).pod("t", 3, "Failed", inPartition("1")), "mark:j-t-2(1/partition) mark:j-t-3(1/partition) Restarting v1 r1"},
		"a partition where there are none is no target": {two(on("PodFailed", "RestartPartition")).pod("t", 0, "Failed").pod("t", 1, "Running"), ""},
		"an evicted pod restarts its partition":         {size(on("PodEvicted", "RestartPartition")).with(goneAt(time.Second)).pod("t", 1, "Running", inPartition("0")).pod("t", 2, "Running", inPartition("1")).pod("t", 3, "Running", inPartition("1")), "mark:j-t-1(1/partition) Restarting v1 r1"},
		"PodFailed terminates":                          {two(on("PodFailed", "TerminateJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Terminating v2 r0"},
		"PodFailed aborts":                              {two(on("PodFailed", "AbortJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Aborting v2 r0"},
		"PodFailed completes":                           {two(on("PodFailed", "CompleteJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Completing v2 r0"},
		"* matches PodFailed":                           {two(on("*", "RestartJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Restarting v2 r1"},
		"* without a timeout does not match PodPending": {two(on("*", "RestartJob")).pod("t", 0, "Pending").pod("t", 1, "Running"), ""},
		"a list of events matches each":                 {two(events("TerminateJob", "PodEvicted", "PodFailed")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Terminating v2 r0"},
		"an exit code matches":                          {two(onCode(3, "AbortJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Aborting v2 r0"},
		"another exit code does not":                    {two(onCode(4, "AbortJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), ""},
		"the exit code of the second container matches": {two(onCode(42, "AbortJob")).pod("t", 0, "Failed", exit(0, 42)).pod("t", 1, "Running"), "Aborting v2 r0"},
		"the exit code of an init container matches": {two(onCode(42, "AbortJob")).pod("t", 0, "Failed", exit(42), func(p *corev1.Pod) {
			p.Status.InitContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses, nil
		}).pod("t", 1, "Running"), "Aborting v2 r0"},
		"the first policy that matches is taken":             {two(on("PodFailed", "RestartJob"), onCode(3, "AbortJob")).pod("t", 0, "Failed").pod("t", 1, "Running"), "Restarting v2 r1"},
		"a policy of the task comes before one of the Job":   {newScene(batch.Running, task("t", 2, atLeast(1), taskPolicies(on("PodFailed", "RestartJob"))), policies(on("PodFailed", "AbortJob"))).pod("t", 0, "Failed").pod("t", 1, "Running"), "Restarting v2 r1"},
		"a policy of another task is not asked":              {newScene(batch.Running, task("t", 2, atLeast(1)), task("u", 1, taskPolicies(on("PodFailed", "RestartJob")))).pod("t", 0, "Failed").pod("t", 1, "Running").pod("u", 0, "Running"), ""},
		"a pod of an earlier version has nothing to say":     {two(on("PodFailed", "RestartJob")).pod("t", 0, "Failed", old).pod("t", 1, "Running"), ""},
		"a pod that is being deleted has not failed":         {two(on("PodFailed", "RestartJob")).pod("t", 0, "Failed", going).pod("t", 1, "Running"), ""},
		"a pod that we delete has nothing to say":            {two(on("PodFailed", "RestartJob")).pod("t", 0, "Failed", marked("")).pod("t", 1, "Running"), "delete:j-t-0"},
		"a pod that others have deleted is evicted":          {two(on("PodEvicted", "RestartJob")).with(goneAt(time.Second)).pod("t", 1, "Running"), "Restarting v2 r1"},
		"an evicted pod restarts itself":                     {two(on("PodEvicted", "RestartPod")).with(goneAt(time.Second)).pod("t", 1, "Running"), "Restarting v1 r1"},
		"an evicted pod without a policy is made again":      {newScene(batch.Running, task("t", 2, atLeast(1))).with(goneAt(time.Second)).pod("t", 1, "Running"), "create:j-t-0"},
		"an evicted pod of an earlier version is made again": {two(on("PodEvicted", "RestartJob")).with(goneAt(time.Second)).with(func(o *Observed) { o.Gone[0].Version = 0 }).pod("t", 1, "Running"), "create:j-t-0"},
		"an evicted pod that is not wanted any more":         {two(on("PodEvicted", "RestartJob")).with(func(o *Observed) { o.Gone = []Gone{{Task: "t", Index: 2, Version: 1, At: testNow}} }).pod("t", 0, "Running").pod("t", 1, "Running"), ""},
		"a pod ended by its node fails first": {two(on("PodEvicted", "AbortJob"), on("PodFailed", "RestartJob")).pod("t", 0, "Failed", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: "True"}}
		}).pod("t", 1, "Running"), "Restarting v2 r1"},
		"and is evicted where nothing is said of failures": {two(on("PodEvicted", "AbortJob")).pod("t", 0, "Failed", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: "True"}}
		}).pod("t", 1, "Running"), "Aborting v2 r0"},
		"a task that is complete":                           {newScene(batch.Running, task("t", 1, taskPolicies(on("TaskCompleted", "CompleteJob"))), task("u", 1)).pod("t", 0, "Succeeded").pod("u", 0, "Running"), "Completing v2 r0"},
		"a task that is not complete":                       {newScene(batch.Running, task("t", 2, taskPolicies(on("TaskCompleted", "CompleteJob"))), task("u", 1)).pod("t", 0, "Succeeded").pod("t", 1, "Running").pod("u", 0, "Running"), ""},
		"a task that was complete before the present round": {newScene(batch.Running, task("t", 1, taskPolicies(on("TaskCompleted", "CompleteJob"))), task("u", 1)).pod("t", 0, "Succeeded", old).pod("u", 0, "Running"), ""},
		"restarts up to the limit are a failed task":        {two(on("TaskFailed", "TerminateJob")).pod("t", 0, "Running", restarts(1)).pod("t", 1, "Running", restarts(2)), "Terminating v2 r0"},
		"restarts below it are not":                         {two(on("TaskFailed", "TerminateJob")).pod("t", 0, "Running", restarts(1)).pod("t", 1, "Running", restarts(1)), ""},
		"restarts of ended pods do not count":               {two(on("TaskFailed", "TerminateJob")).pod("t", 0, "Succeeded", restarts(3)).pod("t", 1, "Running", restarts(1)), ""},
		"a failed task restarts the pod with most restarts": {two(on("TaskFailed", "RestartPod")).pod("t", 0, "Running", restarts(1)).pod("t", 1, "Running", restarts(2)), "mark:j-t-1(1/pod) Restarting v1 r1"},
		"a group that is Unknown":                           {two(on("Unknown", "RestartJob")).with(unknown(time.Second)).pod("t", 0, "Running").pod("t", 1, "Running"), "Restarting v2 r1"},
		"a group of an earlier round that is Unknown":       {two(on("Unknown", "RestartJob")).with(unknown(time.Second)).with(func(o *Observed) { o.Group.Annotations[RoundKey] = "0" }).pod("t", 0, "Running").pod("t", 1, "Running"), "dropGroup"},
		"a policy of a task is not about the group":         {newScene(batch.Running, task("t", 1, taskPolicies(on("Unknown", "RestartJob")))).with(unknown(time.Second)).pod("t", 0, "Running"), ""},
		"PodPending waits for its time":                     {two(later("PodPending", "AbortJob", 40*time.Second)).pod("t", 0, "Pending").pod("t", 1, "Running"), "after:10s"},
		"PodPending fires in time":                          {two(later("PodPending", "AbortJob", 30*time.Second)).pod("t", 0, "Pending").pod("t", 1, "Running"), "Aborting v2 r0"},
		"a pod that runs does not wait":                     {two(later("PodPending", "AbortJob", 30*time.Second)).pod("t", 0, "Running").pod("t", 1, "Running"), ""},
		"a PodPending policy without a timeout is skipped":  {two(on("PodPending", "AbortJob"), later("*", "RestartJob", 30*time.Second)).pod("t", 0, "Pending").pod("t", 1, "Running"), "Restarting v2 r1"},
		"PodFailed with a timeout waits from its end":       {two(later("PodFailed", "AbortJob", 15*time.Second)).pod("t", 0, "Failed").pod("t", 1, "Running"), "after:5s"},
		"PodFailed with a timeout fires from its end":       {two(later("PodFailed", "AbortJob", 10*time.Second)).pod("t", 0, "Failed").pod("t", 1, "Running"), "Aborting v2 r0"},
		"PodEvicted with a timeout makes the pod again":     {two(later("PodEvicted", "AbortJob", time.Minute)).with(goneAt(20*time.Second)).pod("t", 1, "Running"), "create:j-t-0 after:40s"},
		"which remembers when":                              {two(later("PodEvicted", "AbortJob", time.Minute)).pod("t", 0, "Pending", func(p *corev1.Pod) { p.Annotations[EvictedKey] = "2026-03-01T11:59:30Z" }).pod("t", 1, "Running"), "after:30s"},
		"and fires if it does not run in time":              {two(later("PodEvicted", "AbortJob", time.Minute)).pod("t", 0, "Pending", func(p *corev1.Pod) { p.Annotations[EvictedKey] = "2026-03-01T11:59:00Z" }).pod("t", 1, "Running"), "Aborting v2 r0"},
		"and not once it runs":                              {two(later("PodEvicted", "AbortJob", time.Minute)).pod("t", 0, "Running", func(p *corev1.Pod) { p.Annotations[EvictedKey] = "2026-03-01T11:59:00Z" }).pod("t", 1, "Running"), ""},
		"an action without an effect lets the next speak":   {two(onCode(3, "ResumeJob"), on("PodEvicted", "AbortJob")).with(goneAt(time.Second)).pod("t", 1, "Failed"), "Aborting v2 r0"},
		"a pod that fails while the Job restarts":           {newScene(batch.Restarting, task("t", 2), policies(on("PodFailed", "RestartPod"))).pod("t", 0, "Running", old, going).pod("t", 1, "Failed"), "delete:j-t-1"},
		"an abort while the Job restarts":                   {newScene(batch.Restarting, task("t", 2), policies(on("PodFailed", "AbortJob"))).pod("t", 0, "Running", old, going).pod("t", 1, "Failed"), "Aborting v2 r0"},
		"nothing fires once the Job ends":                   {newScene(batch.Completing, task("t", 2), policies(on("PodFailed", "RestartJob"))).with(func(o *Observed) { o.Group = nil }).pod("t", 0, "Running", going).pod("t", 1, "Failed"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := line(Decide(tc.s.o)); got != tc.want {
				t.Errorf("plan %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDependencies(t *testing.T) {
	either := func(names ...string) func(*batch.TaskSpec) {
		return func(t *batch.TaskSpec) { t.DependsOn = &batch.DependsOn{Name: names, Iteration: batch.IterationAny} }
	}
	ready := func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: true}} }
	unready := func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: true}, {}} }
	job := func(last func(*batch.TaskSpec), a, b int32) *scene {
		return newScene(batch.Running, task("a", 1, atLeast(a)), task("b", 1, atLeast(b)), task("c", 1, atLeast(0), last))
	}
	cases := map[string]struct {
		s    *scene
		made bool
	}{
		"one that runs and is ready":              {job(after("a"), 1, 0).pod("a", 0, "Running", ready), true},
		"one that runs and is not ready":          {job(after("a"), 1, 0).pod("a", 0, "Running", unready), false},
		"one that has succeeded":                  {job(after("a"), 1, 0).pod("a", 0, "Succeeded"), true},
		"one that waits":                          {job(after("a"), 1, 0).pod("a", 0, "Pending"), false},
		"one that has failed":                     {job(after("a"), 1, 0).pod("a", 0, "Failed"), false},
		"one that is going":                       {job(after("a"), 1, 0).pod("a", 0, "Running", ready, going), false},
		"one that needs no pods":                  {job(after("b"), 1, 0).pod("a", 0, "Running", ready), true},
		"both, and one is ready":                  {job(after("a", "b"), 1, 1).pod("a", 0, "Running", ready).pod("b", 0, "Pending"), false},
		"both, and both are":                      {job(after("a", "b"), 1, 1).pod("a", 0, "Running", ready).pod("b", 0, "Succeeded"), true},
		"any, and one is ready":                   {job(either("a", "b"), 1, 1).pod("a", 0, "Running", ready).pod("b", 0, "Pending"), true},
		"any, and none is":                        {job(either("a", "b"), 1, 1).pod("a", 0, "Pending").pod("b", 0, "Pending"), false},
		"any of one":                              {job(either("a"), 1, 1).pod("a", 0, "Pending").pod("b", 0, "Running", ready), false},
		"one that is not there, beyond admission": {job(after("x"), 1, 1).pod("a", 0, "Running", ready), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.s.o)
			made := slices.ContainsFunc(p.Create, func(c Creation) bool { return c.Name == "j-c-0" })
			if made != tc.made {
				t.Errorf("made: %t, want %t; because %q", made, tc.made, p.Because)
			}
		})
	}
	fallen := job(after("a"), 1, 0).pod("a", 0, "Pending").pod("c", 0, "Running")
	if got := line(Decide(fallen.o)); got != "create:j-b-0" {
		t.Errorf("plan after a dependency has fallen back: %q, want the dependent left alone", got)
	}
}

func TestLost(t *testing.T) {
	counted := func(phase batch.JobPhase, n int32) *scene {
		s := newScene(phase, task("t", 3))
		s.o.Job.Status.TaskStatusCount = map[string]batch.TaskState{"t": {Phase: map[corev1.PodPhase]int32{"Running": n}}}
		return s
	}
	gone := func(indexes ...int) (list []Gone) {
		for _, i := range indexes {
			list = append(list, Gone{Task: "t", Index: i, Version: 1, At: testNow})
		}
		return list
	}
	cases := map[string]struct {
		s    *scene
		want []Gone
	}{
		"all are there":                     {counted(batch.Running, 2).pod("t", 0, "Running").pod("t", 1, "Running"), nil},
		"one is missing":                    {counted(batch.Running, 3).pod("t", 0, "Running").pod("t", 2, "Running"), gone(1)},
		"two are":                           {counted(batch.Pending, 3).pod("t", 1, "Running"), gone(0, 2)},
		"more are there than were counted":  {counted(batch.Running, 1).pod("t", 0, "Running").pod("t", 2, "Running"), nil},
		"nothing is made in other phases":   {counted(batch.Restarting, 3), nil},
		"one is on its way out, not gone":   {counted(batch.Running, 3).pod("t", 0, "Running").pod("t", 1, "Running", going).pod("t", 2, "Running"), nil},
		"a status that has counted nothing": {newScene(batch.Running, task("t", 3)), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Lost(tc.s.o.Job, tc.s.o.Pods, testNow)); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditionsKeepEachPhaseOnceTheLatestLast(t *testing.T) {
	s := newScene(batch.Running, task("t", 1), policies(on("PodFailed", "RestartJob"))).pod("t", 0, "Failed")
	before := s.o.Job.Status.Conditions[0].LastTransitionTime
	s.o.Job.Status.Conditions = []batch.JobCondition{{Status: batch.Restarting, LastTransitionTime: before}, {Status: batch.Pending, LastTransitionTime: before}, {Status: batch.Running, LastTransitionTime: before}}
	got := Decide(s.o).Status
	now := metav1.NewTime(testNow)
	want := []batch.JobCondition{{Status: batch.Pending, LastTransitionTime: before}, {Status: batch.Running, LastTransitionTime: before}, {Status: batch.Restarting, LastTransitionTime: &now}}
	if diff := cmp.Diff(want, got.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if got.State.LastTransitionTime != now || got.RunningDuration == nil || got.RunningDuration.Duration != time.Hour {
		t.Errorf("time %v, duration %v, want now and an hour", got.State.LastTransitionTime, got.RunningDuration)
	}
}

func TestANewJobIsPendingSinceItsCreation(t *testing.T) {
	s := newScene("", task("t", 1)).with(func(o *Observed) { o.Job.Status = batch.JobStatus{} })
	made, now := metav1.NewTime(testNow.Add(-time.Hour)), metav1.NewTime(testNow)
	s.o.Job.CreationTimestamp = made
	p := Decide(s.o)
	if p.Status == nil || p.Now || p.Group == nil || p.Status.State.Phase != batch.Pending || p.Status.State.LastTransitionTime != made {
		t.Errorf("plan %+v, want a PodGroup, and Pending since the creation, which may wait to be stored", p)
	}

	p = Decide(s.pod("t", 0, "Succeeded").o) // what was to be stored later never was
	want := []batch.JobCondition{{Status: batch.Pending, LastTransitionTime: &made}, {Status: batch.Running, LastTransitionTime: &now}, {Status: batch.Completed, LastTransitionTime: &now}}
	if p.Status == nil || !p.Now {
		t.Fatalf("plan %+v, want a status that is stored now", p)
	}
	if diff := cmp.Diff(want, p.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestANumberOfItsOwnDoesNotMoveTheTimeOfThePhase(t *testing.T) {
	s := newScene(batch.Running, task("t", 2, atLeast(1))).pod("t", 0, "Running").pod("t", 1, "Succeeded")
	p := Decide(s.o)
	if p.Status == nil || p.Now || p.Status.State.LastTransitionTime != s.o.Job.Status.State.LastTransitionTime {
		t.Errorf("plan %+v, want a status with new numbers, which may wait, and the old time", p)
	}
}

func TestExpiry(t *testing.T) {
	for phase, limited := range map[batch.JobPhase]bool{
		batch.Completed: true, batch.Failed: true, batch.Terminated: true, batch.Aborted: true, batch.Running: false, batch.Aborting: false,
	} {
		s := newScene(phase, task("t", 1), spec(func(s *batch.JobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](60) }))
		at, got := Expiry(s.o.Job)
		if got != limited || limited && !at.Equal(testNow) {
			t.Errorf("%s expires: %t at %v, want %t at %v", phase, got, at, limited, testNow)
		}
	}
}
