// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Surroundings are what Validate must know beside the Job.
type Surroundings struct {
	// Queue is the Job's queue; nil: there is none of that name.
	Queue *scheduling.Queue
	// Children is how many queues have it as their parent.
	Children int
	// Templates holds, for each task, what the API server finds wrong with its pod template.
	Templates [][]string
}

// Validate returns everything that is wrong with a new Job, after Default; nil: nothing. The texts contain what clients of
// Volcano look for.
//
// Source: Volcano's webhook validatejob.volcano.sh, CREATE.
func Validate(j *batch.Job, s Surroundings) []string {
	spec := &j.Spec
	if len(spec.Tasks) == 0 {
		return []string{"No task specified in job spec"}
	}
	if args, ok := spec.Plugins["mpi"]; ok {
		if master := plugin.MPIMaster(args); !slices.ContainsFunc(spec.Tasks, func(t batch.TaskSpec) bool { return t.Name == master }) {
			return []string{"The specified mpi master task was not found"}
		}
	}
	v := &validator{}
	v.negatives(spec)
	v.topology(spec.NetworkTopology)
	names := map[string]bool{}
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		if names[t.Name] {
			v.add("duplicated task name %s", t.Name)
			break
		}
		names[t.Name] = true
		v.task(j, i, s)
	}
	v.policies("spec.policies", spec.Policies)
	if problems := validation.IsQualifiedName(j.Name); len(problems) > 0 {
		v.add("create job with name %s validate failed %v", j.Name, problems)
	}
	if total(spec) < spec.MinAvailable {
		v.add("job 'minAvailable' should not be greater than total replicas in tasks")
	}
	v.size(spec)
	for _, name := range sortedKeys(spec.Plugins) {
		if !plugin.Known(name) {
			v.add("unable to find job plugin: %s", name)
		}
	}
	v.problems = append(v.problems, plugin.Problems(j)...)
	v.volumes(spec.Volumes)
	v.queue(spec.Queue, s)
	v.dependencies(spec.Tasks)
	return v.problems
}

type validator struct{ problems []string }

func (v *validator) add(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// size refuses Jobs that no cluster can hold.
func (v *validator) size(spec *batch.JobSpec) {
	if n := total(spec); n > MaxPods {
		v.add("spec.tasks: %d pods are more than the %d that a job may have", n, MaxPods)
	}
}

// negatives repeats what the definition of the kind says, for clusters where it has been cut down.
func (v *validator) negatives(spec *batch.JobSpec) {
	number := func(path string, value int32) {
		if value < 0 {
			v.add("%s: Invalid value: %d: %s in body should be greater than or equal to 0", path, value, path)
		}
	}
	number("spec.minAvailable", spec.MinAvailable)
	number("spec.maxRetry", spec.MaxRetry)
	if ttl := spec.TTLSecondsAfterFinished; ttl != nil {
		number("spec.ttlSecondsAfterFinished", *ttl)
	}
	if n := spec.MinSuccess; n != nil && *n < 1 {
		v.add("spec.minSuccess: Invalid value: %d: spec.minSuccess in body should be greater than or equal to 1", *n)
	}
	for i := range spec.Tasks {
		t, path := &spec.Tasks[i], fmt.Sprintf("spec.tasks[%d]", i)
		number(path+".replicas", t.Replicas)
		if t.MinAvailable != nil {
			number(path+".minAvailable", *t.MinAvailable)
		}
		if problems := validation.IsDNS1123Label(t.Name); len(problems) > 0 {
			v.add("%s.name: Invalid value: %q: %s.name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'", path, t.Name, path)
		}
	}
}

func (v *validator) topology(n *batch.NetworkTopologySpec) {
	if n != nil && n.HighestTierAllowed != nil && n.HighestTierName != "" {
		v.add("must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously")
	}
}

func (v *validator) task(j *batch.Job, i int, s Surroundings) {
	t := &j.Spec.Tasks[i]
	if t.MinAvailable != nil && *t.MinAvailable > t.Replicas {
		v.add("'minAvailable' is greater than 'replicas' in task: %s, job: %s", t.Name, j.Name)
	}
	v.policies("spec.tasks.policies", t.Policies)
	// Differs: Volcano tests the name of the pod whose index is the position of the task, so that a longer index may not fit.
	name := PodName(j.Name, t.Name, int(max(t.Replicas, 1))-1)
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		v.add("create pod with name %s validate failed %v", name, problems)
	}
	if i < len(s.Templates) {
		for _, problem := range s.Templates[i] {
			v.add("spec.task[%d].%s", i, problem)
		}
	}
	v.wholeCPUs(t, i)
	if t.PartitionPolicy != nil {
		v.topology(t.PartitionPolicy.NetworkTopology)
		v.partitions(t)
	}
}

// wholeCPUs checks what an alignment with NUMA nodes needs.
func (v *validator) wholeCPUs(t *batch.TaskSpec, i int) {
	if t.TopologyPolicy == "" || t.TopologyPolicy == batch.NumaNone {
		return
	}
	for k, c := range slices.Concat(t.Template.Spec.InitContainers, t.Template.Spec.Containers) {
		resources := c.Resources.Requests
		if len(resources) == 0 {
			resources = c.Resources.Limits
		}
		if cpu := resources.Cpu(); cpu.IsZero() || cpu.MilliValue()%1000 != 0 {
			v.add("the cpu request isn't an integer in spec.task[%d] container[%d].", i, k)
		}
	}
}

// partitions reports the first thing that is wrong with a partition policy.
func (v *validator) partitions(t *batch.TaskSpec) {
	p := t.PartitionPolicy
	switch {
	case p.TotalPartitions <= 0:
		v.add("'TotalPartitions' must be greater than 0 in task: %s", t.Name)
	case p.PartitionSize <= 0:
		v.add("'PartitionSize' must be greater than 0 in task: %s", t.Name)
	case int64(t.Replicas) != int64(p.TotalPartitions)*int64(p.PartitionSize):
		v.add("'Replicas' are not equal to TotalPartitions*PartitionSize in task: %s: %d is not %d*%d", t.Name, t.Replicas, p.TotalPartitions, p.PartitionSize)
	case t.MinAvailable != nil && p.MinPartitions > 0 && int64(p.MinPartitions)*int64(p.PartitionSize) != int64(*t.MinAvailable):
		v.add("'MinAvailable' is not equal to MinPartitions*PartitionSize in task: %s: %d is not %d*%d", t.Name, *t.MinAvailable, p.MinPartitions, p.PartitionSize)
	}
}

// volumes reports the first thing that is wrong with the volumes.
func (v *validator) volumes(volumes []batch.VolumeSpec) {
	mounted := map[string]bool{}
	for i, volume := range volumes {
		switch {
		case volume.MountPath == "":
			v.add("spec.volumes[%d].mountPath: Invalid value: \"\": mountPath is required, it should be at least 1 chars long", i)
			return
		case mounted[volume.MountPath]:
			v.add("duplicated mountPath: %s", volume.MountPath)
			return
		case volume.VolumeClaim == nil && volume.VolumeClaimName == "":
			v.add("either VolumeClaim or VolumeClaimName must be specified")
			return
		case volume.VolumeClaim != nil && volume.VolumeClaimName != "":
			v.add("conflict: If you want to use an existing PVC, just specify VolumeClaimName. If you want to create a new PVC, you do not need to specify VolumeClaimName")
			return
		case volume.VolumeClaimName != "":
			if problems := validation.IsDNS1123Subdomain(volume.VolumeClaimName); len(problems) > 0 {
				v.add("invalid VolumeClaimName %s : %v", volume.VolumeClaimName, problems)
				return
			}
		}
		mounted[volume.MountPath] = true
	}
}

// queue checks that the queue takes Jobs.
//
// Differs: Volcano refuses Jobs for a queue that its controller has not looked at yet, whose state is empty; its controller takes
// an empty state for Open, and so do we.
func (v *validator) queue(name string, s Surroundings) {
	switch {
	case s.Queue == nil:
		v.add("unable to find job queue: queues.scheduling.volcano.sh %q not found", name)
	case name == batch.RootQueue:
		v.add("can not submit job to root queue")
	case s.Queue.Status.State != scheduling.QueueOpen && s.Queue.Status.State != "":
		v.add("can only submit job to queue with state `Open`, queue `%s` status is `%s`", name, s.Queue.Status.State)
	case s.Children > 0:
		v.add("can only submit job to leaf queue, queue `%s` has %d child queues", name, s.Children)
	}
}

// dependencies checks that the tasks can be started one after the other.
func (v *validator) dependencies(tasks []batch.TaskSpec) {
	if path := cycle(tasks); path != "" {
		v.add("job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG): %s", path)
	}
}

// cycle returns what keeps the tasks from being started one after the other, in words; "": nothing does.
func cycle(tasks []batch.TaskSpec) string {
	const (
		unknown = iota
		open
		fine
	)
	byName, state := map[string]*batch.TaskSpec{}, map[string]int{}
	for i := range tasks {
		byName[tasks[i].Name] = &tasks[i]
	}
	var path []string
	var walk func(name string) string
	walk = func(name string) string {
		t := byName[name]
		path = append(path, name)
		defer func() { path = path[:len(path)-1] }()
		switch {
		case t == nil:
			return strings.Join(path, " needs ") + ", which is not there"
		case state[name] == open:
			return strings.Join(path[slices.Index(path, name):], " needs ")
		case state[name] == fine || t.DependsOn == nil:
			return ""
		}
		state[name] = open
		for _, other := range t.DependsOn.Name {
			if problem := walk(other); problem != "" {
				return problem
			}
		}
		state[name] = fine
		return ""
	}
	for i := range tasks {
		if problem := walk(tasks[i].Name); problem != "" {
			return problem
		}
	}
	return ""
}

// ValidateUpdate returns the first thing that is wrong with changing the spec of old to that of next; nil: nothing.
//
// Source: Volcano's webhook validatejob.volcano.sh, UPDATE.
func ValidateUpdate(next, old *batch.Job) []string {
	v := &validator{}
	v.update(next, old)
	return v.problems[:min(1, len(v.problems))]
}

func (v *validator) update(next, old *batch.Job) {
	spec := &next.Spec
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		if t.Replicas < 0 {
			v.add("'replicas' must be >= 0 in task: %s", t.Name)
		}
		if m := t.MinAvailable; m != nil && *m < 0 {
			v.add("'minAvailable' must be >= 0 in task: %s", t.Name)
		} else if m != nil && *m > t.Replicas {
			v.add("'minAvailable' must be <= 'replicas' in task: %s, job: %s", t.Name, next.Name)
		}
		if t.PartitionPolicy != nil {
			v.partitions(t)
			v.topology(t.PartitionPolicy.NetworkTopology)
		}
	}
	v.topology(spec.NetworkTopology)
	v.size(spec)
	if spec.MinAvailable > total(spec) {
		v.add("job 'minAvailable' must not be greater than total replicas")
	}
	if spec.MinAvailable < 0 {
		v.add("job 'minAvailable' must be >= 0")
	}
	if len(spec.Tasks) != len(old.Spec.Tasks) {
		v.add("job updates may not add or remove tasks")
		return
	}
	if !equality.Semantic.DeepEqual(*spec, changeable(&old.Spec, spec)) {
		v.add("job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`")
	}
}

// changeable returns old with the fields of next that may be changed.
func changeable(old, next *batch.JobSpec) batch.JobSpec {
	allowed := *old.DeepCopy()
	allowed.MinAvailable = next.MinAvailable
	allowed.PriorityClassName = next.PriorityClassName
	for i := range allowed.Tasks {
		allowed.Tasks[i].Replicas = next.Tasks[i].Replicas
		allowed.Tasks[i].MinAvailable = next.Tasks[i].MinAvailable
	}
	for i := range allowed.Volumes {
		if i < len(next.Volumes) && allowed.Volumes[i].VolumeClaim != nil {
			allowed.Volumes[i].VolumeClaimName = next.Volumes[i].VolumeClaimName
		}
	}
	return allowed
}

// TemplateOf returns the pod template of a task as it is checked: with what the Job's controller adds to every pod's spec.
func TemplateOf(j *batch.Job, task int) corev1.PodTemplateSpec {
	template := *j.Spec.Tasks[task].Template.DeepCopy()
	setEmpty(&template.Spec.SchedulerName, j.Spec.SchedulerName)
	setEmpty(&template.Spec.PriorityClassName, j.Spec.PriorityClassName)
	return template
}
