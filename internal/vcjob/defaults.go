// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Default fills in what the author of j has left out, as admission does at creation. Values and plugin arguments that are there
// stay. schedulerName is for Jobs that name none; "" means Volcano's.
func Default(j *batch.Job, schedulerName string) {
	spec := &j.Spec
	setEmpty(&spec.Queue, batch.DefaultQueue)
	setEmpty(&spec.SchedulerName, schedulerName)
	setEmpty(&spec.SchedulerName, batch.DefaultSchedulerName)
	setEmpty(&spec.MaxRetry, batch.DefaultMaxRetry)
	for i := range spec.Tasks {
		defaultTask(&spec.Tasks[i], i)
	}
	if spec.MinAvailable == 0 {
		spec.MinAvailable = sumOfMinima(spec)
	}
	defaultPlugins(spec)
}

func setEmpty[T comparable](field *T, value T) {
	var empty T
	if *field == empty {
		*field = value
	}
}

func defaultTask(t *batch.TaskSpec, position int) {
	setEmpty(&t.Name, batch.DefaultTaskName+strconv.Itoa(position))
	if pod := &t.Template.Spec; pod.HostNetwork {
		setEmpty(&pod.DNSPolicy, corev1.DNSClusterFirstWithHostNet)
	}
	if t.MinAvailable == nil {
		t.MinAvailable = ptr.To(t.Replicas)
		if p := t.PartitionPolicy; p != nil && p.MinPartitions > 0 {
			t.MinAvailable = ptr.To(p.MinPartitions * p.PartitionSize)
		}
	}
	setEmpty(&t.MaxRetry, batch.DefaultMaxRetry)
}

// needed are the plugins that other plugins cannot do without.
var needed = map[string][]string{"tensorflow": {"svc"}, "mpi": {"svc", "ssh"}, "pytorch": {"svc"}, "ray": {"svc"}}

func defaultPlugins(spec *batch.JobSpec) {
	var missing []string
	for name := range spec.Plugins {
		for _, other := range needed[name] {
			if _, there := spec.Plugins[other]; !there {
				missing = append(missing, other)
			}
		}
	}
	for _, name := range missing {
		spec.Plugins[name] = []string{}
	}
}

// MaxPods is how many pods a Job may have. No cluster holds as many; what is beyond is a mistake, and would take the controller's memory.
const MaxPods = 1_000_000

// TooLarge reports whether j has got past admission with more pods than MaxPods, and so must not be looked at.
func TooLarge(j *batch.Job) bool { return total(&j.Spec) > MaxPods }

// sumOfMinima returns how many pods the tasks need together.
func sumOfMinima(spec *batch.JobSpec) int32 {
	return sumOf(spec, taskMin)
}

// sumOf adds up a number of each task. A sum that does not fit is the largest that does.
func sumOf(spec *batch.JobSpec, number func(*batch.TaskSpec) int32) int32 {
	var sum int64
	for i := range spec.Tasks {
		sum += int64(number(&spec.Tasks[i]))
	}
	return int32(min(sum, math.MaxInt32))
}

// taskMin returns how many pods of t the Job needs.
func taskMin(t *batch.TaskSpec) int32 {
	if t.MinAvailable != nil {
		return *t.MinAvailable
	}
	return t.Replicas
}

// total returns how many pods a Job is to have.
func total(spec *batch.JobSpec) int32 {
	return sumOf(spec, func(t *batch.TaskSpec) int32 { return t.Replicas })
}

// withDefaults returns j as admission would have stored it: j itself where nothing is missing. A controller cannot rely on
// admission. A minAvailable of 0 stays where admission has seen the Job, as a Job may be scaled to nothing.
func withDefaults(j *batch.Job) *batch.Job {
	spec := &j.Spec
	unseen := slices.ContainsFunc(spec.Tasks, func(t batch.TaskSpec) bool { return t.MinAvailable == nil })
	incomplete := slices.ContainsFunc(spec.Tasks, func(t batch.TaskSpec) bool { return t.Name == "" || t.MaxRetry == 0 })
	if !unseen && !incomplete && spec.Queue != "" && spec.SchedulerName != "" && spec.MaxRetry != 0 {
		return j
	}
	j = j.DeepCopy()
	minAvailable := j.Spec.MinAvailable
	Default(j, "")
	if !unseen {
		j.Spec.MinAvailable = minAvailable
	}
	return j
}
