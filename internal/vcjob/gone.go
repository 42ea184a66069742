// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// GoneFrom returns what is to be remembered of a pod that does not exist any more; false: nothing, because we have deleted it
// ourselves, or because it is no pod of a Job.
func GoneFrom(p *corev1.Pod, at time.Time) (Gone, bool) {
	index, err := strconv.Atoi(p.Labels[batch.IndexKey])
	if _, ours := p.Annotations[batch.OutOfSyncKey]; ours || err != nil {
		return Gone{}, false
	}
	version, _ := strconv.ParseInt(p.Annotations[batch.VersionKey], 10, 32)
	return Gone{Task: p.Labels[batch.TaskKey], Index: index, Version: int32(version), At: at}, true
}

// Lost returns the pods that have gone while nobody was looking: where the stored status counts more pods of a task than there are,
// as many of the lowest indexes that have none. at is when that was noticed.
func Lost(j *batch.Job, pods []*corev1.Pod, at time.Time) []Gone {
	if phase := j.Status.State.Phase; phase != batch.Pending && phase != batch.Running {
		return nil
	}
	t := newTurn(Observed{Job: j, Pods: pods})
	var lost []Gone
	for i := range t.tasks {
		task := &t.tasks[i]
		counted := 0
		for _, n := range j.Status.TaskStatusCount[task.spec.Name].Phase {
			counted += int(n)
		}
		missing := counted - len(task.all)
		for index, p := range task.at {
			if missing > 0 && p == nil {
				missing--
				lost = append(lost, Gone{Task: task.spec.Name, Index: index, Version: j.Status.Version, At: at})
			}
		}
	}
	return lost
}
