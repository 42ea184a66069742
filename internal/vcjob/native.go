// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// NativeName returns the name of the PodGroup of Kubernetes for the present round of j. Each round has its own: what the scheduler
// has found out about the last one says nothing about the next.
func NativeName(j *batch.Job) string { return GroupName(j) + "-" + itoa(j.Status.Version) }

// together reports whether kube-scheduler is to place the pods together, and if they should be and it cannot, why.
//
// kube-scheduler takes a PodGroup only if all its pods have one scheduler and one priority.
func (t *turn) together() (yes bool, obstacle string) {
	if !t.o.Options.Native || t.spec.MinAvailable <= 1 {
		return false, "" // one pod is always placed all at once
	}
	var first *batch.TaskSpec
	for i := range t.spec.Tasks {
		task := &t.spec.Tasks[i]
		switch {
		case task.Replicas == 0:
		case task.Template.Spec.SchedulingGroup != nil:
			return false, "" // their author has grouped them otherwise
		case first == nil:
			first = task
		case t.schedulerOf(first) != t.schedulerOf(task):
			return false, "tasks " + first.Name + " and " + task.Name + " have different schedulers"
		case t.priorityOf(first) != t.priorityOf(task):
			return false, "tasks " + first.Name + " and " + task.Name + " have different priorities"
		}
	}
	return first != nil, ""
}

func (t *turn) schedulerOf(task *batch.TaskSpec) string {
	name := task.Template.Spec.SchedulerName
	setEmpty(&name, t.spec.SchedulerName)
	return name
}

func (t *turn) priorityOf(task *batch.TaskSpec) string {
	name := task.Template.Spec.PriorityClassName
	setEmpty(&name, t.spec.PriorityClassName)
	return name
}

// holdBack leaves out pods that may not be made yet: those for which the queue has no room, and, until the scheduler has placed as
// many as must be placed at once, those beyond them. Otherwise it might place the wrong ones: all workers, say, and no master.
func (t *turn) holdBack() {
	there := int32(0)
	t.eachPod(func(p *podView) {
		if !p.going && !t.isVictim(p) {
			there++
		}
	})
	limit := gang.MayHave(t.o.Group)
	if yes, _ := t.together(); yes && !gang.IsPlaced(t.o.Group) && t.spec.MinAvailable >= sumOfMinima(t.spec) && (limit < 0 || t.spec.MinAvailable < limit) {
		limit = t.spec.MinAvailable
	}
	if limit < 0 || int(max(0, limit-there)) >= len(t.plan.Create) {
		return
	}
	t.because("%d pods are not made yet: %d are there, and %d may be", len(t.plan.Create)-int(max(0, limit-there)), there, limit)
	t.plan.Create = t.plan.Create[:max(0, limit-there)]
}

// placeTogether has the pods that are made join the PodGroup of Kubernetes, and that made or told how many must be placed at once,
// where any pod has no node yet.
func (t *turn) placeTogether() {
	yes, obstacle := t.together()
	if obstacle != "" && len(t.plan.Create) > 0 {
		t.event(corev1.EventTypeWarning, ReasonNotTogether, "The pods are placed one by one: %s, and kube-scheduler places only pods of one scheduler and one priority together", obstacle)
	}
	if !yes {
		return
	}
	name := NativeName(t.job)
	for i := range t.plan.Create {
		t.plan.Create[i].Native = name
	}
	waiting := len(t.plan.Create) > 0
	t.eachPod(func(p *podView) {
		waiting = waiting || !p.going && !p.marked && p.pod.Spec.NodeName == "" && !p.finished() && p.version >= t.status.Version
	})
	if !waiting {
		return
	}
	count := t.minCount()
	switch n := t.o.Native; {
	case n == nil:
		t.plan.Native = &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: t.job.Namespace, Name: name,
				Labels:          map[string]string{batch.JobNameKey: t.job.Name},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t.o.Group, scheduling.GroupVersion.WithKind("PodGroup"))},
			},
			Spec: schedulingv1beta1.PodGroupSpec{
				SchedulingPolicy:  schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: count}},
				PriorityClassName: t.commonPriority(),
			},
		}
	case n.Spec.SchedulingPolicy.Gang != nil && n.Spec.SchedulingPolicy.Gang.MinCount != count:
		next := n.DeepCopy()
		next.Spec.SchedulingPolicy.Gang.MinCount = count
		t.plan.Native = next
	}
}

// commonPriority returns the priority class of the tasks that have pods, which is one.
func (t *turn) commonPriority() string {
	for i := range t.spec.Tasks {
		if t.spec.Tasks[i].Replicas > 0 {
			return t.priorityOf(&t.spec.Tasks[i])
		}
	}
	return ""
}

// minCount returns how many pods of the PodGroup of Kubernetes must be placed at once. The scheduler counts neither pods that have
// ended nor those of earlier rounds, and the pods of a task that waits for another do not come before that.
func (t *turn) minCount() int32 {
	coming, outside := int32(0), int32(0)
	for i := range t.tasks {
		task := &t.tasks[i]
		waits := t.notReady(task.spec) != ""
		for _, p := range task.at {
			switch {
			case p == nil || p.going || t.isVictim(p):
				if !waits {
					coming++
				}
			case p.finished() || p.version < t.status.Version:
				coming++
				outside++
			default:
				coming++
			}
		}
	}
	return max(1, min(t.spec.MinAvailable, coming)-outside)
}
