// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func groupedJob(edits ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "ns", UID: "job-uid"}}
	j.Spec.Parallelism = new(int32(4))
	j.Spec.Template.Spec.PriorityClassName = "high"
	for _, edit := range edits {
		edit(j)
	}
	return j
}

func gang(minCount *int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{
			Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{MinCount: minCount},
		}}
	}
}

func ownedBy(kind, name string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: kind, Name: name, UID: "parent-uid", Controller: new(true)}}
	}
}

func followsTemplate(name string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Annotations = map[string]string{GroupTemplateAnnotation: name} }
}

// settle takes the steps of a Job's groups one after the other, and returns what they were and where they have led.
func settle(t *testing.T, j *batchv1.Job, have *Grouping, isNew bool) (steps []string, final GroupStep, err error) {
	t.Helper()
	for n := range 10 {
		step, err := Group(j, *have, isNew)
		if err != nil {
			return steps, step, err
		}
		uid := types.UID(fmt.Sprintf("uid-%d", n))
		switch {
		case step.CreateWorkload != nil:
			w := step.CreateWorkload
			w.UID = uid
			have.Workloads = append(have.Workloads, w)
			steps = append(steps, "create Workload "+w.Name)
		case step.CreatePodGroup != nil:
			p := step.CreatePodGroup
			p.UID = uid
			have.PodGroups = append(have.PodGroups, p)
			steps = append(steps, "create PodGroup "+p.Name)
		case step.UpdateWorkload != nil:
			have.Workloads[0] = step.UpdateWorkload
			steps = append(steps, fmt.Sprintf("Workload wants %d", step.UpdateWorkload.Spec.PodGroupTemplates[0].SchedulingPolicy.Gang.MinCount))
		case step.UpdatePodGroup != nil:
			have.PodGroups[0] = step.UpdatePodGroup
			steps = append(steps, fmt.Sprintf("PodGroup wants %d", step.UpdatePodGroup.Spec.SchedulingPolicy.Gang.MinCount))
		default:
			return steps, step, nil
		}
	}
	t.Fatal("the groups do not settle:", steps)
	return nil, GroupStep{}, nil
}

func TestANewJobGetsAWorkloadAndThenAPodGroup(t *testing.T) {
	j := groupedJob(gang(nil))
	var have Grouping
	steps, final, err := settle(t, j, &have, true)
	if err != nil {
		t.Fatal(err)
	}
	workload, group := have.Workloads[0], have.PodGroups[0]
	if diff := cmp.Diff([]string{"create Workload " + workload.Name, "create PodGroup " + group.Name}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if final.Group != group.Name {
		t.Errorf("pods join %q, want %q", final.Group, group.Name)
	}
	ref := *metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))
	wantSpec := schedulingv1beta1.WorkloadSpec{
		ControllerRef: &schedulingv1beta1.TypedLocalObjectReference{APIGroup: "batch", Kind: "Job", Name: "train"},
		PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{{
			Name:              "train-pgt-0",
			SchedulingPolicy:  schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 4}},
			PriorityClassName: "high",
		}},
	}
	if diff := cmp.Diff(wantSpec, workload.Spec); diff != "" {
		t.Errorf("Workload (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{ref}, workload.OwnerReferences); diff != "" {
		t.Errorf("owners of the Workload (-want +got):\n%s", diff)
	}
	wantOwners := []metav1.OwnerReference{ref, {APIVersion: "scheduling.k8s.io/v1beta1", Kind: "Workload", Name: workload.Name, UID: workload.UID}}
	if diff := cmp.Diff(wantOwners, group.OwnerReferences); diff != "" {
		t.Errorf("owners of the PodGroup (-want +got):\n%s", diff)
	}
	wantRef := &schedulingv1beta1.WorkloadReference{WorkloadName: workload.Name, TemplateName: "train-pgt-0"}
	if diff := cmp.Diff(wantRef, group.Spec.WorkloadRef); diff != "" {
		t.Errorf("workloadRef (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(workload.Name, "train-") || !strings.HasPrefix(group.Name, workload.Name+"-train-pgt-0-") {
		t.Errorf("names %q and %q", workload.Name, group.Name)
	}
}

func TestGroupsOfJobs(t *testing.T) {
	foreign := &schedulingv1beta1.Workload{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	parents := &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "set-uid"},
		Spec: schedulingv1beta1.WorkloadSpec{PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{
			{Name: "driver"},
			{Name: "workers", SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 3}}},
		}},
	}
	cases := map[string]struct {
		job     *batchv1.Job
		have    Grouping
		begun   bool
		steps   []string // their first words
		because string
	}{
		"every Job gets one, not only gangs":      {job: groupedJob(), steps: []string{"create Workload", "create PodGroup"}},
		"a Job that has begun does not":           {job: groupedJob(), begun: true, because: "has begun"},
		"a Workload that a user has made is left": {job: groupedJob(), have: Grouping{Workloads: []*schedulingv1beta1.Workload{foreign}}, steps: []string{"create Workload", "create PodGroup"}},
		"a group in the template goes first": {
			job:     groupedJob(func(j *batchv1.Job) { j.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }),
			because: "not grouped",
		},
		"a Job of a CronJob gets none":     {job: groupedJob(ownedBy("CronJob", "nightly")), because: "not grouped"},
		"a parent without a Workload":      {job: groupedJob(ownedBy("JobSet", "set"), followsTemplate("workers")), because: "no Workload"},
		"a template that the parent lacks": {job: groupedJob(ownedBy("JobSet", "set"), followsTemplate("others")), have: Grouping{Workloads: []*schedulingv1beta1.Workload{parents}}, because: `no podGroupTemplate "others"`},
		"a parent's Workload":              {job: groupedJob(ownedBy("JobSet", "set"), followsTemplate("workers")), have: Grouping{Workloads: []*schedulingv1beta1.Workload{parents}}, steps: []string{"create PodGroup"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			steps, final, err := settle(t, c.job, &c.have, !c.begun)
			if err != nil {
				t.Fatal(err)
			}
			for i := range steps {
				steps[i] = strings.Join(strings.Fields(steps[i])[:2], " ")
			}
			if diff := cmp.Diff(c.steps, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if !strings.Contains(final.Because, c.because) || (final.Group != "") != (c.because == "") {
				t.Errorf("ended with group %q because %q, want %q", final.Group, final.Because, c.because)
			}
		})
	}
}

func TestTheGangFollowsTheJob(t *testing.T) {
	var have Grouping
	if _, _, err := settle(t, groupedJob(gang(nil)), &have, true); err != nil {
		t.Fatal(err)
	}
	smaller := groupedJob(gang(nil), func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(2)) })
	steps, _, err := settle(t, smaller, &have, false)
	if diff := cmp.Diff([]string{"Workload wants 2", "PodGroup wants 2"}, steps); err != nil || diff != "" {
		t.Errorf("%v, steps (-want +got):\n%s", err, diff)
	}
	steps, _, err = settle(t, groupedJob(gang(new(int32(3)))), &have, false)
	if diff := cmp.Diff([]string{"Workload wants 3", "PodGroup wants 3"}, steps); err != nil || diff != "" {
		t.Errorf("%v, steps (-want +got):\n%s", err, diff)
	}
}

func TestGroupsThatMakeNoSenseStopTheJob(t *testing.T) {
	neither := groupedJob(func(j *batchv1.Job) {
		j.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{}}
	})
	if _, err := Group(neither, Grouping{}, true); !errors.Is(err, ErrGroup) {
		t.Errorf("a policy that is none: %v", err)
	}
	j := groupedJob()
	var have Grouping
	if _, _, err := settle(t, j, &have, true); err != nil {
		t.Fatal(err)
	}
	have.Workloads[0].Spec.PodGroupTemplates = append(have.Workloads[0].Spec.PodGroupTemplates, schedulingv1beta1.PodGroupTemplate{Name: "other"})
	if _, err := Group(j, have, true); !errors.Is(err, ErrGroup) {
		t.Errorf("a Workload of two templates: %v", err)
	}
}

func TestNamesOfGroupsFit(t *testing.T) {
	long := strings.Repeat("j", 300)
	for _, c := range []struct{ workload, template string }{{"w", "t"}, {long, "t"}, {"w", long}, {long, long}, {long[:130], long[:130]}} {
		name := podGroupName(c.workload, c.template)
		if len(name) > maxName {
			t.Errorf("%d and %d characters make %d", len(c.workload), len(c.template), len(name))
		}
		if len(c.workload)+len(c.template) > 260 && len(name) != maxName {
			t.Errorf("%d and %d characters make %d, though there is room for %d", len(c.workload), len(c.template), len(name), maxName)
		}
	}
	if len(workloadName(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: long, UID: "u"}})) != maxName {
		t.Error("the name of a Workload does not fill the room")
	}
}

func TestOnlyAJobOfWhichNothingHasComeIsNew(t *testing.T) {
	begun := groupedJob(func(j *batchv1.Job) { j.Status.StartTime = &metav1.Time{} })
	resumed := groupedJob(func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}}
	})
	got := []bool{IsNew(groupedJob(), 0), IsNew(groupedJob(), 1), IsNew(begun, 0), IsNew(resumed, 0)}
	if diff := cmp.Diff([]bool{true, false, false, false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
