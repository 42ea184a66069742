// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"
)

// GroupTemplateAnnotation on a Job names the template of its parent's Workload that the Job's PodGroup follows.
const GroupTemplateAnnotation = "scheduling.k8s.io/group-template-name"

// GroupMode says which objects tell the scheduler that the pods of a Job belong together.
type GroupMode int

// Modes of grouping.
const (
	// Ungrouped pods are scheduled one by one, or in a group that the user has named in the template.
	Ungrouped GroupMode = iota
	// OwnWorkload: the Job owns a Workload and a PodGroup.
	OwnWorkload
	// ParentsWorkload: the Job owns a PodGroup that follows a template of its parent's Workload.
	ParentsWorkload
)

// GroupModeOf returns how the pods of j are grouped where workload-aware scheduling of Jobs is switched on.
func GroupModeOf(j *batchv1.Job) GroupMode {
	switch {
	case j.Spec.Template.Spec.SchedulingGroup != nil:
		return Ungrouped
	case metav1.GetControllerOfNoCopy(j) == nil:
		return OwnWorkload
	case j.Annotations[GroupTemplateAnnotation] != "":
		return ParentsWorkload
	}
	return Ungrouped
}

// WorkloadOwner is who a Workload says its pods belong to.
type WorkloadOwner struct{ APIGroup, Kind, Name string }

// WorkloadOwnerOf returns whose Workload groups the pods of j; only for the modes OwnWorkload and ParentsWorkload.
func WorkloadOwnerOf(j *batchv1.Job) WorkloadOwner {
	parent := metav1.GetControllerOfNoCopy(j)
	if parent == nil {
		return WorkloadOwner{batchv1.GroupName, "Job", j.Name}
	}
	group := parent.APIVersion
	for i := range group {
		if group[i] == '/' {
			return WorkloadOwner{group[:i], parent.Kind, parent.Name}
		}
	}
	return WorkloadOwner{"", parent.Kind, parent.Name} // the core group's versions stand alone
}

// Grouping is what there is of a Job's groups.
type Grouping struct {
	Workloads []*schedulingv1beta1.Workload // of the namespace, that name WorkloadOwnerOf the Job; in the order of their names
	PodGroups []*schedulingv1beta1.PodGroup // of the namespace; those of other Jobs play no part
}

// GroupStep is the next write to a Job's groups. At most one of its pointers is set; where none is, Group is final.
type GroupStep struct {
	CreateWorkload *schedulingv1beta1.Workload
	CreatePodGroup *schedulingv1beta1.PodGroup
	UpdateWorkload *schedulingv1beta1.Workload // with another minCount
	UpdatePodGroup *schedulingv1beta1.PodGroup // with another minCount
	// Group is the PodGroup that new pods join; "" for none.
	Group string
	// Because says why there is no group, or what the write is for.
	Because string
}

// ErrGroup means that the groups of a Job cannot be made out, so that no pods may be made.
var ErrGroup = errors.New("grouping the pods for the scheduler")

// ErrScheduling is an ErrGroup for which spec.scheduling of the Job is to blame.
var ErrScheduling = fmt.Errorf("%w as spec.scheduling says", ErrGroup)

// IsNew reports whether nothing has come of a Job yet, so that its groups may still be made. pods is how many it has.
func IsNew(j *batchv1.Job, pods int) bool {
	if pods > 0 || j.Status.StartTime != nil || j.Status.Succeeded > 0 || j.Status.Failed > 0 {
		return false
	}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobSuspended {
			return false
		}
	}
	return true
}

// Group returns the next step towards the groups that the pods of j are to be in. isNew is IsNew's answer. Errors wrap ErrGroup.
func Group(j *batchv1.Job, g Grouping, isNew bool) (GroupStep, error) {
	switch GroupModeOf(j) {
	case OwnWorkload:
		return groupOfOwn(j, g, isNew)
	case ParentsWorkload:
		return groupOfParent(j, g, isNew)
	default:
		return GroupStep{Because: "the pods of this Job are not grouped"}, nil
	}
}

func groupOfOwn(j *batchv1.Job, g Grouping, isNew bool) (GroupStep, error) {
	template, err := groupTemplate(j)
	if err != nil {
		return GroupStep{}, err
	}
	var own []*schedulingv1beta1.Workload
	for _, w := range g.Workloads {
		if metav1.IsControlledBy(w, j) {
			own = append(own, w)
		}
	}
	switch {
	case len(own) > 1:
		return GroupStep{Because: fmt.Sprintf("the Job has %d Workloads, and which one counts is not known", len(own))}, nil
	case len(own) == 0 && !isNew:
		return GroupStep{Because: "the Job has begun without a Workload"}, nil
	case len(own) == 0:
		return GroupStep{CreateWorkload: newWorkload(j, template), Because: "the Job is new"}, nil
	}
	workload := own[0]
	if n := len(workload.Spec.PodGroupTemplates); n != 1 {
		return GroupStep{}, fmt.Errorf("%w: Workload %q has %d podGroupTemplates, and a Job has one", ErrGroup, workload.Name, n)
	}
	step, group := existingGroup(j, g, workload.Name)
	if group == nil {
		if step.Because != "" || !isNew {
			return step, nil
		}
		return GroupStep{CreatePodGroup: newPodGroup(j, workload, &workload.Spec.PodGroupTemplates[0], true), Because: "the Job is new"}, nil
	}
	if changed := withMinCount(&workload.Spec.PodGroupTemplates[0].SchedulingPolicy, &template.SchedulingPolicy); changed != nil {
		next := workload.DeepCopy()
		next.Spec.PodGroupTemplates[0].SchedulingPolicy = *changed
		return GroupStep{UpdateWorkload: next, Because: "the size of the gang has changed"}, nil
	}
	return follow(group, &template.SchedulingPolicy), nil
}

func groupOfParent(j *batchv1.Job, g Grouping, isNew bool) (GroupStep, error) {
	if len(g.Workloads) == 0 {
		return GroupStep{Because: "the parent of the Job has no Workload"}, nil
	}
	workload := g.Workloads[0]
	name := j.Annotations[GroupTemplateAnnotation]
	var template *schedulingv1beta1.PodGroupTemplate
	for i := range workload.Spec.PodGroupTemplates {
		if workload.Spec.PodGroupTemplates[i].Name == name {
			template = &workload.Spec.PodGroupTemplates[i]
		}
	}
	if template == nil {
		return GroupStep{Because: fmt.Sprintf("Workload %q has no podGroupTemplate %q", workload.Name, name)}, nil
	}
	step, group := existingGroup(j, g, workload.Name)
	switch {
	case group != nil:
		return follow(group, &template.SchedulingPolicy), nil
	case step.Because != "" || !isNew:
		return step, nil
	}
	return GroupStep{CreatePodGroup: newPodGroup(j, workload, template, false), Because: "the Job is new"}, nil
}

// existingGroup returns the one PodGroup of j that belongs to the Workload; nil, with a reason if there are several.
func existingGroup(j *batchv1.Job, g Grouping, workload string) (GroupStep, *schedulingv1beta1.PodGroup) {
	var own []*schedulingv1beta1.PodGroup
	for _, p := range g.PodGroups {
		if metav1.IsControlledBy(p, j) && p.Spec.WorkloadRef != nil && p.Spec.WorkloadRef.WorkloadName == workload {
			own = append(own, p)
		}
	}
	switch len(own) {
	case 0:
		return GroupStep{}, nil
	case 1:
		return GroupStep{}, own[0]
	}
	return GroupStep{Because: fmt.Sprintf("the Job has %d PodGroups, and which one counts is not known", len(own))}, nil
}

// follow gives a PodGroup the size that the policy wants.
func follow(group *schedulingv1beta1.PodGroup, policy *schedulingv1beta1.PodGroupSchedulingPolicy) GroupStep {
	if changed := withMinCount(&group.Spec.SchedulingPolicy, policy); changed != nil {
		next := group.DeepCopy()
		next.Spec.SchedulingPolicy = *changed
		return GroupStep{UpdatePodGroup: next, Because: "the size of the gang has changed"}
	}
	return GroupStep{Group: group.Name}
}

// withMinCount returns have with want's minCount; nil where it has that, or one of them is no gang.
func withMinCount(have, want *schedulingv1beta1.PodGroupSchedulingPolicy) *schedulingv1beta1.PodGroupSchedulingPolicy {
	if have.Gang == nil || want.Gang == nil || have.Gang.MinCount == want.Gang.MinCount {
		return nil
	}
	return want.DeepCopy()
}

// groupTemplate is what spec.scheduling says, in the words of a Workload.
func groupTemplate(j *batchv1.Job) (*schedulingv1beta1.PodGroupTemplate, error) {
	t := &schedulingv1beta1.PodGroupTemplate{
		Name:              j.Name + "-pgt-0",
		SchedulingPolicy:  schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}},
		PriorityClassName: j.Spec.Template.Spec.PriorityClassName,
	}
	s := j.Spec.Scheduling
	if s == nil {
		return t, nil
	}
	if p := s.SchedulingPolicy; p != nil {
		switch {
		case p.Gang != nil && p.Basic == nil:
			parallelism := max(1, ptr.Deref(j.Spec.Parallelism, 1))
			t.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: ptr.Deref(p.Gang.MinCount, parallelism)},
			}
		case p.Basic != nil && p.Gang == nil:
		default:
			return nil, fmt.Errorf("%w: spec.scheduling.schedulingPolicy must have exactly one of basic and gang", ErrScheduling)
		}
	}
	if c := s.SchedulingConstraints; c != nil {
		t.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{}
		for _, topology := range c.Topology {
			t.SchedulingConstraints.Topology = append(t.SchedulingConstraints.Topology, schedulingv1beta1.TopologyConstraint{Key: topology.Key})
		}
	}
	if d := s.DisruptionMode; d != nil {
		t.DisruptionMode = &schedulingv1beta1.DisruptionMode{}
		if d.Single != nil {
			t.DisruptionMode.Single = &schedulingv1beta1.SingleDisruptionMode{}
		}
		if d.All != nil {
			t.DisruptionMode.All = &schedulingv1beta1.AllDisruptionMode{}
		}
	}
	for _, c := range s.ResourceClaims {
		t.ResourceClaims = append(t.ResourceClaims, schedulingv1beta1.PodGroupResourceClaim{
			Name: c.Name, ResourceClaimName: c.ResourceClaimName, ResourceClaimTemplateName: c.ResourceClaimTemplateName,
		})
	}
	return t, nil
}

func newWorkload(j *batchv1.Job, t *schedulingv1beta1.PodGroupTemplate) *schedulingv1beta1.Workload {
	return &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Name: workloadName(j), Namespace: j.Namespace, OwnerReferences: []metav1.OwnerReference{*controllerRef(j)},
		},
		Spec: schedulingv1beta1.WorkloadSpec{
			ControllerRef:     &schedulingv1beta1.TypedLocalObjectReference{APIGroup: batchv1.GroupName, Kind: "Job", Name: j.Name},
			PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{*t},
		},
	}
}

func newPodGroup(j *batchv1.Job, w *schedulingv1beta1.Workload, t *schedulingv1beta1.PodGroupTemplate, owned bool) *schedulingv1beta1.PodGroup {
	t = t.DeepCopy()
	group := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Name: podGroupName(w.Name, t.Name), Namespace: j.Namespace, OwnerReferences: []metav1.OwnerReference{*controllerRef(j)},
		},
		Spec: schedulingv1beta1.PodGroupSpec{
			WorkloadRef:           &schedulingv1beta1.WorkloadReference{WorkloadName: w.Name, TemplateName: t.Name},
			SchedulingPolicy:      t.SchedulingPolicy,
			SchedulingConstraints: t.SchedulingConstraints,
			ResourceClaims:        t.ResourceClaims,
			DisruptionMode:        t.DisruptionMode,
			PriorityClassName:     t.PriorityClassName,
			Priority:              t.Priority,
			PreemptionPolicy:      t.PreemptionPolicy,
		},
	}
	if owned {
		group.OwnerReferences = append(group.OwnerReferences, metav1.OwnerReference{
			APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: "Workload", Name: w.Name, UID: w.UID,
		})
	}
	return group
}

func controllerRef(j *batchv1.Job) *metav1.OwnerReference {
	return metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))
}

// maxName is how long the name of an object may be.
const maxName = 253

// workloadName follows from the Job's name and UID.
func workloadName(j *batchv1.Job) string {
	suffix := "-" + hashed(dump.ForHash(j.UID))
	return cut(j.Name, maxName-len(suffix)) + suffix
}

// podGroupName follows from the names of the Workload and the template. Where both together are too long, each gives way to
// half of the room; what the shorter one does not need is the other's.
func podGroupName(workload, template string) string {
	suffix := "-" + hashed(workload+template)
	room := maxName - len(suffix) - len("-")
	ofTemplate := min(len(template), max(room/2, room-len(workload)))
	return cut(workload, room-ofTemplate) + "-" + cut(template, ofTemplate) + suffix
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// hashed returns a short name for text, without vowels.
func hashed(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // a hash takes everything
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
