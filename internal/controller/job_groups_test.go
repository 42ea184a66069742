// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// withGroups lets the story's controller make Workloads and PodGroups, of which its caches do not know yet.
func withGroups(s *story, client *fake.Clientset) {
	s.c.groups = &jobGroups{
		client:    client.SchedulingV1beta1(),
		workloads: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{workloadsByOwner: nothing}),
		podGroups: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{podGroupsByOwner: nothing}),
	}
}

func nothing(any) ([]string, error) { return nil, nil }

// toldOfGroups returns the events that are not about pods, without the hashes in names.
func (s *story) toldOfGroups() []string {
	var told []string
	for _, e := range s.world.events {
		if !strings.Contains(e, "pod: ") {
			told = append(told, e)
		}
	}
	return told
}

func TestTheGroupsOfAJobAreTold(t *testing.T) {
	s := newStory(t, JobConfig{})
	client := fake.NewClientset()
	withGroups(s, client)
	s.turn("a user creates a Job", func() { s.submit(func(*batchv1.Job) {}) })
	var workload, podGroup string
	for _, action := range client.Actions() {
		created, ok := action.(clienttesting.CreateAction)
		if !ok {
			continue
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(created.GetObject())
		must(t, err)
		name, _ := object["metadata"].(map[string]any)["name"].(string)
		if action.GetResource().Resource == "workloads" {
			workload = name
		} else {
			podGroup = name
		}
	}
	want := []string{
		"j Normal WorkloadCreated: Created Workload " + workload + " for Job j",
		"j Normal PodGroupCreated: Created PodGroup " + podGroup + " for Job j",
	}
	if diff := cmp.Diff(want, s.toldOfGroups()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.checkInvariants()
}

func TestAWorkloadThatCannotBeMadeIsTold(t *testing.T) {
	refused := errors.New("not today")
	client := fake.NewClientset()
	client.PrependReactor("create", "workloads", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
	for name, tc := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"the API server refuses it": {func(*batchv1.Job) {}, "j Warning FailedWorkloadCreate: Failed to create Workload for Job j: not today"},
		"the Job's scheduling makes no sense": {
			func(j *batchv1.Job) {
				j.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{}}
			},
			"j Warning FailedWorkloadCompilation: Failed to compile Workload for Job j: grouping the pods for the scheduler as spec.scheduling says: " +
				"spec.scheduling.schedulingPolicy must have exactly one of basic and gang",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, JobConfig{})
			withGroups(s, client)
			s.submit(tc.change)
			s.tellJobs(1)
			s.work(1)
			if diff := cmp.Diff([]string{tc.want}, s.toldOfGroups()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if n := len(s.cluster.Pods()); n != 0 {
				t.Errorf("%d pods were made without their group", n)
			}
		})
	}
}
