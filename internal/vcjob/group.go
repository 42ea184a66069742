// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/gang"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// newGroup returns the PodGroup of this round of the Job.
func (t *turn) newGroup() *scheduling.PodGroup {
	g := &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.job.Namespace, Name: GroupName(t.job),
			Labels: maps.Clone(t.job.Labels), Annotations: maps.Clone(t.job.Annotations),
			OwnerReferences: []metav1.OwnerReference{ControllerRef(t.job)},
		},
		Spec: t.groupSpec(),
	}
	if g.Annotations == nil {
		g.Annotations = map[string]string{}
	}
	delete(g.Annotations, corev1.LastAppliedConfigAnnotation)
	g.Annotations[RoundKey] = itoa(t.status.Version)
	if wanted := t.wanted(); wanted != "" {
		g.Annotations[gang.WantedKey] = wanted
	}
	g.Status.Phase = scheduling.GroupPending
	if t.o.QueueFree {
		g.Status.Phase = scheduling.GroupInqueue
	}
	return g
}

// wanted returns what all pods of the Job want, where those who admit PodGroups need to know; "": they need not.
func (t *turn) wanted() string {
	all := total(t.spec)
	if !t.o.Options.Own || all <= t.spec.MinAvailable {
		return ""
	}
	sum := corev1.ResourceList{}
	for i := range t.spec.Tasks {
		gang.AddTimes(sum, gang.Usage(&t.spec.Tasks[i].Template.Spec), t.spec.Tasks[i].Replicas)
	}
	return gang.Share{Pods: all, Amounts: gang.AmountsOf(sum)}.Text()
}

func (t *turn) groupSpec() scheduling.PodGroupSpec {
	s := scheduling.PodGroupSpec{
		MinMember: t.spec.MinAvailable, Queue: t.spec.Queue, PriorityClassName: t.spec.PriorityClassName,
		MinTaskMember: map[string]int32{}, MinResources: ptr.To(t.minResources()),
		NetworkTopology: topology(t.spec.NetworkTopology, true), SubGroupPolicy: t.subGroups(),
	}
	for i := range t.spec.Tasks {
		s.MinTaskMember[t.spec.Tasks[i].Name] = taskMin(&t.spec.Tasks[i])
	}
	return s
}

// topology returns n as PodGroups have it. Of both tiers, only the first is taken over where one suffices.
func topology(n *batch.NetworkTopologySpec, one bool) *scheduling.NetworkTopologySpec {
	if n == nil {
		return nil
	}
	g := &scheduling.NetworkTopologySpec{Mode: scheduling.NetworkTopologyMode(n.Mode), HighestTierAllowed: n.HighestTierAllowed, HighestTierName: n.HighestTierName}
	if one && g.HighestTierAllowed != nil {
		g.HighestTierName = ""
	}
	return g
}

func (t *turn) subGroups() []scheduling.SubGroupPolicySpec {
	var list []scheduling.SubGroupPolicySpec
	for i := range t.spec.Tasks {
		task := &t.spec.Tasks[i]
		p := task.PartitionPolicy
		if p == nil {
			continue
		}
		list = append(list, scheduling.SubGroupPolicySpec{
			Name: task.Name, SubGroupSize: ptr.To(p.PartitionSize), MinSubGroups: ptr.To(p.MinPartitions),
			LabelSelector:   &metav1.LabelSelector{MatchLabels: map[string]string{batch.TaskKey: task.Name}},
			MatchLabelKeys:  []string{batch.PartitionKey},
			NetworkTopology: topology(p.NetworkTopology, false),
		})
	}
	return list
}

// updatedGroup returns what is to be stored in the place of g; nil: g is as it should be. Queue, labels, annotations of the Job and
// topology are those of its creation, and its status is not ours.
func (t *turn) updatedGroup(g *scheduling.PodGroup) *scheduling.PodGroup {
	want := t.groupSpec()
	same := g.Spec.MinMember == want.MinMember && g.Spec.PriorityClassName == want.PriorityClassName &&
		equality.Semantic.DeepEqual(g.Spec.MinResources, want.MinResources) &&
		equality.Semantic.DeepEqual(g.Spec.SubGroupPolicy, want.SubGroupPolicy)
	for task, n := range want.MinTaskMember {
		have, there := g.Spec.MinTaskMember[task]
		same = same && there && have == n
	}
	wanted := t.wanted()
	sameWanted := !t.o.Options.Own || g.Annotations[gang.WantedKey] == wanted
	if same && sameWanted {
		return nil
	}
	next := g.DeepCopy()
	if !same {
		next.Spec.MinMember, next.Spec.PriorityClassName = want.MinMember, want.PriorityClassName
		next.Spec.MinResources, next.Spec.SubGroupPolicy = want.MinResources, want.SubGroupPolicy
		if next.Spec.MinTaskMember == nil {
			next.Spec.MinTaskMember = map[string]int32{}
		}
		maps.Copy(next.Spec.MinTaskMember, want.MinTaskMember)
	}
	if !sameWanted {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[gang.WantedKey] = wanted
		if wanted == "" {
			delete(next.Annotations, gang.WantedKey)
		}
	}
	return next
}

// minResources returns what the pods that must be placed together use in sum: those of tasks with a higher priority first.
//
// Source: Volcano, as specified in section 5.1.1 of its behaviour.
//
// Differs: tasks of equal priority are taken in their own order; in Volcano in any.
func (t *turn) minResources() corev1.ResourceList {
	type share struct {
		task *batch.TaskSpec
		n    int32
	}
	order := make([]*batch.TaskSpec, len(t.spec.Tasks))
	for i := range order {
		order[i] = &t.spec.Tasks[i]
	}
	slices.SortStableFunc(order, func(a, b *batch.TaskSpec) int {
		return cmp.Compare(t.o.Priorities[b.Template.Spec.PriorityClassName], t.o.Priorities[a.Template.Spec.PriorityClassName])
	})
	left := t.spec.MinAvailable
	var shares []share
	take := func(task *batch.TaskSpec, n int32) {
		if n = min(n, left); n > 0 {
			shares, left = append(shares, share{task, n}), left-n
		}
	}
	if t.spec.MinAvailable < sumOfMinima(t.spec) {
		for _, task := range order {
			take(task, task.Replicas)
		}
	} else {
		for _, task := range order {
			take(task, taskMin(task))
		}
		for _, task := range order {
			take(task, task.Replicas-taskMin(task))
		}
	}
	sum := corev1.ResourceList{}
	for _, s := range shares {
		gang.AddTimes(sum, gang.Usage(&s.task.Template.Spec), s.n)
	}
	return sum
}

// partitionOf returns the partition of a pod of a task, as its label has it; "": the task has none.
func partitionOf(s *batch.TaskSpec, index int) string {
	switch {
	case s.PartitionPolicy == nil:
		return ""
	case s.PartitionPolicy.PartitionSize <= 0:
		return "0"
	}
	return strconv.Itoa(index / int(s.PartitionPolicy.PartitionSize))
}
