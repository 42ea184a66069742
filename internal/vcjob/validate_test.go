// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// newJob returns a Job called "j" with the given changes and without defaults.
func newJob(changes ...func(*batch.Job)) *batch.Job {
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j", UID: "uid-j"}}
	for _, change := range changes {
		change(j)
	}
	return j
}

// task adds a task.
func task(name string, replicas int32, changes ...func(*batch.TaskSpec)) func(*batch.Job) {
	return func(j *batch.Job) {
		t := batch.TaskSpec{Name: name, Replicas: replicas}
		t.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox"}}
		for _, change := range changes {
			change(&t)
		}
		j.Spec.Tasks = append(j.Spec.Tasks, t)
	}
}

func atLeast(n int32) func(*batch.TaskSpec) { return func(t *batch.TaskSpec) { t.MinAvailable = &n } }

func after(names ...string) func(*batch.TaskSpec) {
	return func(t *batch.TaskSpec) { t.DependsOn = &batch.DependsOn{Name: names} }
}

func partitions(p batch.PartitionPolicySpec) func(*batch.TaskSpec) {
	return func(t *batch.TaskSpec) { t.PartitionPolicy = &p }
}

func taskPolicies(list ...batch.LifecyclePolicy) func(*batch.TaskSpec) {
	return func(t *batch.TaskSpec) { t.Policies = list }
}

func spec(change func(*batch.JobSpec)) func(*batch.Job) {
	return func(j *batch.Job) { change(&j.Spec) }
}

func policies(list ...batch.LifecyclePolicy) func(*batch.Job) {
	return spec(func(s *batch.JobSpec) { s.Policies = list })
}

func on(e batch.Event, a batch.Action) batch.LifecyclePolicy {
	return batch.LifecyclePolicy{Event: e, Action: a}
}

func onCode(code int32, a batch.Action) batch.LifecyclePolicy {
	return batch.LifecyclePolicy{ExitCode: &code, Action: a}
}

func plugins(names ...string) func(*batch.Job) {
	return spec(func(s *batch.JobSpec) {
		s.Plugins = map[string][]string{}
		for _, name := range names {
			s.Plugins[name] = []string{}
		}
	})
}

func TestDefault(t *testing.T) {
	cases := map[string]struct {
		job  *batch.Job
		want func(*batch.JobSpec)
	}{
		"an empty Job gets queue, scheduler and retries": {
			newJob(task("a", 2, atLeast(1), func(t *batch.TaskSpec) { t.MaxRetry = 7 }), spec(func(s *batch.JobSpec) { s.MinAvailable = 2 })),
			func(s *batch.JobSpec) { s.Queue, s.SchedulerName, s.MaxRetry = "default", "volcano", 3 },
		},
		"minAvailable is the sum of the tasks' minima": {
			newJob(task("a", 3, atLeast(2)), task("b", 4)),
			func(s *batch.JobSpec) {
				s.Queue, s.SchedulerName, s.MaxRetry, s.MinAvailable = "default", "volcano", 3, 6
				s.Tasks[0].MaxRetry, s.Tasks[1].MaxRetry, s.Tasks[1].MinAvailable = 3, 3, ptr.To[int32](4)
			},
		},
		"a task's minimum is that of its partitions": {
			newJob(task("a", 8, partitions(batch.PartitionPolicySpec{TotalPartitions: 4, PartitionSize: 2, MinPartitions: 3}))),
			func(s *batch.JobSpec) {
				s.Queue, s.SchedulerName, s.MaxRetry, s.MinAvailable = "default", "volcano", 3, 6
				s.Tasks[0].MaxRetry, s.Tasks[0].MinAvailable = 3, ptr.To[int32](6)
			},
		},
		"tasks get names by their position, and a DNS policy on the host's network": {
			newJob(task("", 1), task("", 1, func(t *batch.TaskSpec) { t.Template.Spec.HostNetwork = true })),
			func(s *batch.JobSpec) {
				s.Queue, s.SchedulerName, s.MaxRetry, s.MinAvailable = "default", "volcano", 3, 2
				for i, name := range []string{"default0", "default1"} {
					s.Tasks[i].Name, s.Tasks[i].MaxRetry, s.Tasks[i].MinAvailable = name, 3, ptr.To[int32](1)
				}
				s.Tasks[1].Template.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
			},
		},
		"what is given stays": {
			newJob(task("a", 2, atLeast(0), func(t *batch.TaskSpec) {
				t.MaxRetry = 1
				t.Template.Spec.HostNetwork, t.Template.Spec.DNSPolicy = true, corev1.DNSDefault
			}), spec(func(s *batch.JobSpec) {
				s.Queue, s.SchedulerName, s.MaxRetry, s.MinAvailable = "q", "other", 5, 1
			})),
			func(*batch.JobSpec) {},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := tc.job.Spec.DeepCopy()
			tc.want(want)
			Default(tc.job, "")
			if diff := cmp.Diff(*want, tc.job.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultAddsThePluginsThatOthersNeed(t *testing.T) {
	cases := map[string]struct{ given, want map[string][]string }{
		"none stay none":                  {nil, nil},
		"env needs nothing":               {map[string][]string{"env": {}}, map[string][]string{"env": {}}},
		"tensorflow needs svc":            {map[string][]string{"tensorflow": {"--ps=p"}}, map[string][]string{"tensorflow": {"--ps=p"}, "svc": {}}},
		"pytorch needs svc":               {map[string][]string{"pytorch": {}}, map[string][]string{"pytorch": {}, "svc": {}}},
		"ray needs svc":                   {map[string][]string{"ray": {}}, map[string][]string{"ray": {}, "svc": {}}},
		"mpi needs svc and ssh":           {map[string][]string{"mpi": {}}, map[string][]string{"mpi": {}, "svc": {}, "ssh": {}}},
		"arguments that are given stay":   {map[string][]string{"mpi": {}, "ssh": {"--ssh-port=23"}}, map[string][]string{"mpi": {}, "svc": {}, "ssh": {"--ssh-port=23"}}},
		"other plugins are left as given": {map[string][]string{"ray": {}, "env": {"x"}}, map[string][]string{"ray": {}, "svc": {}, "env": {"x"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := newJob(task("a", 1), spec(func(s *batch.JobSpec) { s.Plugins = tc.given }))
			Default(j, "")
			if diff := cmp.Diff(tc.want, j.Spec.Plugins); diff != "" {
				t.Errorf("plugins (-want +got):\n%s", diff)
			}
		})
	}
}

func openQueue() Surroundings {
	return Surroundings{Queue: &scheduling.Queue{Status: scheduling.QueueStatus{State: scheduling.QueueOpen}}}
}

func TestValidateRefuses(t *testing.T) {
	pod := func(change func(*corev1.PodSpec)) func(*batch.TaskSpec) {
		return func(t *batch.TaskSpec) { change(&t.Template.Spec) }
	}
	tier := func(s *batch.NetworkTopologySpec) *batch.NetworkTopologySpec { return s }
	both := tier(&batch.NetworkTopologySpec{HighestTierAllowed: ptr.To(1), HighestTierName: "rack"})
	numa := func(t *batch.TaskSpec) { t.TopologyPolicy = "restricted" }
	cpu := func(request, limit string) func(*batch.TaskSpec) {
		return pod(func(p *corev1.PodSpec) {
			list := func(q string) corev1.ResourceList {
				if q == "" {
					return nil
				}
				return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
			}
			p.Containers[0].Resources = corev1.ResourceRequirements{Requests: list(request), Limits: list(limit)}
		})
	}
	mount := func(list ...batch.VolumeSpec) func(*batch.Job) {
		return spec(func(s *batch.JobSpec) { s.Volumes = list })
	}
	cases := map[string]struct {
		job  *batch.Job
		in   func(*Surroundings)
		want []string // fragments, one for each problem; none: accepted
	}{
		"no tasks":               {newJob(), nil, []string{"No task specified in job spec"}},
		"mpi without its master": {newJob(task("a", 1), plugins("mpi")), nil, []string{"The specified mpi master task was not found"}},
		"mpi whose master is named by an argument":   {newJob(task("boss", 1), spec(func(s *batch.JobSpec) { s.Plugins = map[string][]string{"mpi": {"--master=boss"}} })), nil, nil},
		"tier and tier name of a Job":                {newJob(task("a", 1), spec(func(s *batch.JobSpec) { s.NetworkTopology = both })), nil, []string{"must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"}},
		"tier and tier name of partitions":           {newJob(task("a", 2, partitions(batch.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 1, NetworkTopology: both}))), nil, []string{"must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"}},
		"minAvailable of a task beyond its replicas": {newJob(task("a", 1, atLeast(2)), task("b", 3, atLeast(1))), nil, []string{"'minAvailable' is greater than 'replicas' in task: a, job: j"}},
		"the same name twice":                        {newJob(task("a", 1), task("a", 1)), nil, []string{"duplicated task name a"}},
		"a bad policy of a task":                     {newJob(task("a", 1, taskPolicies(on("OutOfSync", "RestartJob")))), nil, []string{"spec.tasks.policies: invalid policy event OutOfSync; valid events are ["}},
		"a bad policy of the Job":                    {newJob(task("a", 1), policies(on("PodFailed", "SyncJob"))), nil, []string{"spec.policies: invalid policy action SyncJob; valid events are [*, PodFailed"}},
		"a name of pods that is too long":            {newJob(task(strings.Repeat("t", 59), 11)), nil, []string{"create pod with name j-" + strings.Repeat("t", 59) + "-10 validate failed"}},
		"a name of pods that just fits":              {newJob(task(strings.Repeat("t", 59), 10)), nil, nil},
		"a template that the API server refuses":     {newJob(task("a", 1)), func(s *Surroundings) { s.Templates = [][]string{{"template.spec.containers: Required value"}} }, []string{"spec.task[0].template.spec.containers: Required value"}},
		"half a CPU aligned with NUMA nodes":         {newJob(task("a", 1, numa, cpu("1500m", ""))), nil, []string{"the cpu request isn't an integer in spec.task[0] container[0]."}},
		"no CPU aligned with NUMA nodes":             {newJob(task("a", 1, numa)), nil, []string{"the cpu request isn't an integer in spec.task[0] container[0]."}},
		"a whole CPU by its limit":                   {newJob(task("a", 1, numa, cpu("", "2"))), nil, nil},
		"no partitions":                              {newJob(task("a", 0, partitions(batch.PartitionPolicySpec{PartitionSize: 1}))), nil, []string{"'TotalPartitions' must be greater than 0"}},
		"empty partitions":                           {newJob(task("a", 0, partitions(batch.PartitionPolicySpec{TotalPartitions: 1}))), nil, []string{"'PartitionSize' must be greater than 0"}},
		"partitions that do not add up":              {newJob(task("a", 7, partitions(batch.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 4}))), nil, []string{"'Replicas' are not equal to TotalPartitions*PartitionSize"}},
		"minAvailable that is not whole partitions":  {newJob(task("a", 8, atLeast(5), partitions(batch.PartitionPolicySpec{TotalPartitions: 2, PartitionSize: 4, MinPartitions: 1}))), nil, []string{"'MinAvailable' is not equal to MinPartitions*PartitionSize"}},
		"a name of the Job that is no name":          {newJob(task("a", 1), func(j *batch.Job) { j.Name = "-" }), nil, []string{"create pod with name --a-0 validate failed", "create job with name - validate failed"}},
		"partitions whose product does not fit":      {newJob(task("a", 0, partitions(batch.PartitionPolicySpec{TotalPartitions: 1 << 16, PartitionSize: 1 << 16}))), nil, []string{"'Replicas' are not equal to TotalPartitions*PartitionSize"}},
		"more pods than a cluster can hold":          {newJob(task("a", 1_000_001)), nil, []string{"spec.tasks: 1000001 pods are more than the 1000000 that a job may have"}},
		"pods whose sum does not fit":                {newJob(task("a", math.MaxInt32, atLeast(0)), task("b", math.MaxInt32, atLeast(0)), task("c", 3, atLeast(1))), nil, []string{"spec.tasks: 2147483647 pods are more than"}},
		"minAvailable beyond all replicas":           {newJob(task("a", 2), task("b", 2), spec(func(s *batch.JobSpec) { s.MinAvailable = 5 })), nil, []string{"job 'minAvailable' should not be greater than total replicas in tasks"}},
		"ray without its head":                       {newJob(task("worker", 1), plugins("ray")), nil, []string{"plugin ray: The specified ray head task was not found: head"}},
		"ray whose head is named by an argument":     {newJob(task("boss", 1), spec(func(s *batch.JobSpec) { s.Plugins = map[string][]string{"ray": {"--head=boss"}} })), nil, nil},
		"ports that no container can have": {newJob(task("master", 1), spec(func(s *batch.JobSpec) {
			s.Plugins = map[string][]string{"mpi": {"--port=0"}, "pytorch": {"--port", "65536"}, "ssh": {"--ssh-port=0"}}
		})), nil, []string{"plugin mpi: --port: 0 is not a port, which is 1 to 65535", "plugin pytorch: --port: 65536 is not a port, which is 1 to 65535"}},
		"arguments that are unknown, or no numbers": {newJob(task("master", 1), spec(func(s *batch.JobSpec) {
			s.Plugins = map[string][]string{"ssh": {"--no-root"}, "mpi": {"--port=x", "--port=0"}}
		})), nil, nil},
		"an unknown plugin":                           {newJob(task("a", 1), plugins("env", "nope")), nil, []string{"unable to find job plugin: nope"}},
		"a volume without a path":                     {newJob(task("a", 1), mount(batch.VolumeSpec{VolumeClaimName: "c"})), nil, []string{"mountPath is required"}},
		"a path twice":                                {newJob(task("a", 1), mount(batch.VolumeSpec{MountPath: "/d", VolumeClaimName: "c"}, batch.VolumeSpec{MountPath: "/d", VolumeClaimName: "e"})), nil, []string{"duplicated mountPath: /d"}},
		"a volume of nothing":                         {newJob(task("a", 1), mount(batch.VolumeSpec{MountPath: "/d"})), nil, []string{"either VolumeClaim or VolumeClaimName must be specified"}},
		"a volume of two claims":                      {newJob(task("a", 1), mount(batch.VolumeSpec{MountPath: "/d", VolumeClaimName: "c", VolumeClaim: &corev1.PersistentVolumeClaimSpec{}})), nil, []string{"conflict: If you want to use an existing PVC, "}},
		"a bad name of a claim":                       {newJob(task("a", 1), mount(batch.VolumeSpec{MountPath: "/d", VolumeClaimName: "C_"})), nil, []string{"invalid VolumeClaimName C_"}},
		"a queue that is not there":                   {newJob(task("a", 1), spec(func(s *batch.JobSpec) { s.Queue = "q" })), func(s *Surroundings) { s.Queue = nil }, []string{"unable to find job queue: "}},
		"a queue that is closing":                     {newJob(task("a", 1), spec(func(s *batch.JobSpec) { s.Queue = "q" })), func(s *Surroundings) { s.Queue.Status.State = "Closing" }, []string{"can only submit job to queue with state `Open`, queue `q` status is `Closing`"}},
		"a queue that nobody has looked at":           {newJob(task("a", 1)), func(s *Surroundings) { s.Queue.Status.State = "" }, nil},
		"the root queue":                              {newJob(task("a", 1), spec(func(s *batch.JobSpec) { s.Queue = "root" })), nil, []string{"can not submit job to root queue"}},
		"a queue with queues below it":                {newJob(task("a", 1), spec(func(s *batch.JobSpec) { s.Queue = "q" })), func(s *Surroundings) { s.Children = 2 }, []string{"can only submit job to leaf queue, queue `q` has 2 child queues"}},
		"tasks that wait for each other":              {newJob(task("a", 1, after("b")), task("b", 1, after("a"))), nil, []string{"job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG): a needs b needs a"}},
		"a task that waits for one that is not there": {newJob(task("a", 1, after("x"))), nil, []string{"doesn't form a directed acyclic graph(DAG): a needs x, which is not there"}},
		"tasks that wait for others in order":         {newJob(task("c", 1, after("a", "b")), task("b", 1, after("a")), task("a", 1)), nil, nil},
		"negative numbers of the Job": {newJob(task("a", 1), spec(func(s *batch.JobSpec) {
			s.MinAvailable, s.MaxRetry, s.TTLSecondsAfterFinished = -1, -1, ptr.To[int32](-1)
		})), nil, []string{"spec.minAvailable in body should be greater than or equal to 0", "spec.maxRetry in body should be greater than or equal to 0", "spec.ttlSecondsAfterFinished in body should be greater than or equal to 0"}},
		"a name of a task that is none": {newJob(task("A", 1)), nil, []string{"spec.tasks[0].name in body should match"}},
		"a privileged container, which the webhook lets": {newJob(task("a", 1, pod(func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}))), nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			around := openQueue()
			if tc.in != nil {
				tc.in(&around)
			}
			j := tc.job.DeepCopy()
			if len(j.Spec.Tasks) > 0 && j.Spec.MinAvailable == 0 {
				Default(j, "")
			}
			wantFragments(t, tc.want, Validate(j, around))
		})
	}
}

func TestValidateNamesNegativeNumbersOfTasks(t *testing.T) {
	j := newJob(task("a", -1, atLeast(-1)), task("b", 2))
	wantFragments(t, []string{
		"spec.tasks[0].replicas in body should be greater than or equal to 0",
		"spec.tasks[0].minAvailable in body should be greater than or equal to 0",
	}, Validate(j, openQueue()))
}

func wantFragments(t *testing.T, want, got []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d problems, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("problem %d is %q, want it to contain %q", i, got[i], want[i])
		}
	}
}

func TestPolicyProblem(t *testing.T) {
	several := func(a batch.Action, events ...batch.Event) batch.LifecyclePolicy {
		return batch.LifecyclePolicy{Action: a, Events: events}
	}
	cases := map[string]struct {
		list []batch.LifecyclePolicy
		want string
	}{
		"event and exit code together":         {[]batch.LifecyclePolicy{{Event: "PodFailed", ExitCode: ptr.To[int32](1), Action: "RestartJob"}}, "must not specify event and exitCode simultaneously"},
		"neither":                              {[]batch.LifecyclePolicy{{Action: "RestartJob"}}, "either event and exitCode should be specified"},
		"an event that is not for policies":    {[]batch.LifecyclePolicy{on("PodRunning", "RestartJob")}, "invalid policy event"},
		"a command's event":                    {[]batch.LifecyclePolicy{on("CommandIssued", "RestartJob")}, "invalid policy event"},
		"an action that is not for policies":   {[]batch.LifecyclePolicy{on("PodFailed", "EnqueueJob")}, "invalid policy action"},
		"an action of queues":                  {[]batch.LifecyclePolicy{on("PodFailed", "OpenQueue")}, "invalid policy action"},
		"an unknown action on an exit code":    {[]batch.LifecyclePolicy{onCode(3, "Nope")}, "invalid policy action"},
		"an event in two policies":             {[]batch.LifecyclePolicy{on("PodFailed", "RestartJob"), on("PodFailed", "AbortJob")}, "duplicate event PodFailed  across different policy"},
		"an event twice in one policy":         {[]batch.LifecyclePolicy{several("TerminateJob", "PodEvicted", "PodFailed", "PodEvicted")}, ""},
		"an event as event and among events":   {[]batch.LifecyclePolicy{{Event: "PodFailed", Events: []batch.Event{"PodFailed"}, Action: "AbortJob"}}, ""},
		"the exit code 0":                      {[]batch.LifecyclePolicy{onCode(0, "RestartJob")}, "0 is not a valid error code"},
		"an exit code twice":                   {[]batch.LifecyclePolicy{onCode(3, "RestartJob"), onCode(3, "AbortJob")}, "duplicate exitCode 3"},
		"* and another event":                  {[]batch.LifecyclePolicy{on("*", "RestartJob"), on("PodFailed", "AbortJob")}, "if there's * here, no other policy should be here"},
		"* and another event in one policy":    {[]batch.LifecyclePolicy{several("RestartJob", "*", "PodFailed")}, "if there's * here, no other policy should be here"},
		"* and an exit code":                   {[]batch.LifecyclePolicy{on("*", "RestartJob"), onCode(3, "AbortJob")}, ""},
		"every event that is for policies":     {[]batch.LifecyclePolicy{several("RestartJob", policyEvents[1:]...)}, ""},
		"every action, each on its exit code":  {[]batch.LifecyclePolicy{onCode(1, "AbortJob"), onCode(2, "RestartJob"), onCode(3, "RestartTask"), onCode(4, "RestartPod"), onCode(5, "RestartPartition"), onCode(6, "TerminateJob"), onCode(7, "CompleteJob"), onCode(8, "ResumeJob")}, ""},
		"the first problem of two is reported": {[]batch.LifecyclePolicy{on("Nope", "RestartJob"), onCode(0, "RestartJob")}, "invalid policy event Nope"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := policyProblem(tc.list)
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("problem %q, want %q", got, tc.want)
			}
		})
	}
}

func TestValidateUpdate(t *testing.T) {
	old := func() *batch.Job {
		j := newJob(task("a", 2), task("b", 2, atLeast(1)), spec(func(s *batch.JobSpec) {
			s.Volumes = []batch.VolumeSpec{{MountPath: "/d", VolumeClaim: &corev1.PersistentVolumeClaimSpec{}}, {MountPath: "/e", VolumeClaimName: "mine"}}
		}))
		Default(j, "")
		return j
	}
	cases := map[string]struct {
		change func(*batch.JobSpec)
		want   string // "": accepted
	}{
		"nothing": {func(*batch.JobSpec) {}, ""},
		"replicas and minima": {func(s *batch.JobSpec) {
			s.MinAvailable, s.Tasks[0].Replicas, s.Tasks[0].MinAvailable = 4, 4, ptr.To[int32](3)
		}, ""},
		"everything to zero": {func(s *batch.JobSpec) {
			s.MinAvailable = 0
			s.Tasks[0].Replicas, s.Tasks[0].MinAvailable = 0, ptr.To[int32](0)
		}, ""},
		"the priority class":                {func(s *batch.JobSpec) { s.PriorityClassName = "high" }, ""},
		"the name of a claim that is made":  {func(s *batch.JobSpec) { s.Volumes[0].VolumeClaimName = "j-pvc-x" }, ""},
		"the name of a claim that is given": {func(s *batch.JobSpec) { s.Volumes[1].VolumeClaimName = "x" }, "job updates may not change fields other than"},
		"negative replicas":                 {func(s *batch.JobSpec) { s.Tasks[0].Replicas = -1; s.Tasks[0].MinAvailable = nil; s.MinAvailable = 0 }, "'replicas' must be >= 0 in task: a"},
		"a negative minimum":                {func(s *batch.JobSpec) { s.Tasks[0].MinAvailable = ptr.To[int32](-1) }, "'minAvailable' must be >= 0 in task: a"},
		"a minimum beyond the replicas":     {func(s *batch.JobSpec) { s.Tasks[0].MinAvailable = ptr.To[int32](3) }, "'minAvailable' must be <= 'replicas' in task: a"},
		"more pods than a cluster can hold": {func(s *batch.JobSpec) { s.Tasks[0].Replicas = 1_000_001 }, "spec.tasks: 100000"},
		"minAvailable beyond all replicas":  {func(s *batch.JobSpec) { s.MinAvailable = 5 }, "job 'minAvailable' must not be greater than total replicas"},
		"negative minAvailable":             {func(s *batch.JobSpec) { s.MinAvailable = -1 }, "job 'minAvailable' must be >= 0"},
		"another task":                      {func(s *batch.JobSpec) { s.Tasks = append(s.Tasks, batch.TaskSpec{Name: "c"}) }, "job updates may not add or remove tasks"},
		"a task less":                       {func(s *batch.JobSpec) { s.Tasks = s.Tasks[:1]; s.MinAvailable = 1 }, "job updates may not add or remove tasks"},
		"the queue":                         {func(s *batch.JobSpec) { s.Queue = "other" }, "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`"},
		"the policies":                      {func(s *batch.JobSpec) { s.Policies = []batch.LifecyclePolicy{on("PodFailed", "AbortJob")} }, "job updates may not change fields other than"},
		"the time to live":                  {func(s *batch.JobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](1) }, "job updates may not change fields other than"},
		"a template":                        {func(s *batch.JobSpec) { s.Tasks[0].Template.Spec.Containers[0].Image = "x" }, "job updates may not change fields other than"},
		"the replicas of a task with partitions": {func(s *batch.JobSpec) {
			s.Tasks[0].PartitionPolicy = &batch.PartitionPolicySpec{TotalPartitions: 1, PartitionSize: 1}
		}, "'Replicas' are not equal to TotalPartitions*PartitionSize"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := old()
			next := before.DeepCopy()
			tc.change(&next.Spec)
			var want []string
			if tc.want != "" {
				want = []string{tc.want}
			}
			wantFragments(t, want, ValidateUpdate(next, before))
		})
	}
}
