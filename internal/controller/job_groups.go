// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	schedulingclient "k8s.io/client-go/kubernetes/typed/scheduling/v1beta1"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/job"
)

// Names of indexes over Workloads and PodGroups.
const (
	workloadsByOwner = "owner" // by who they say their pods belong to
	podGroupsByOwner = "owner" // by the UID of their controller
)

// jobGroups keeps the Workloads and PodGroups of Jobs, by which kube-scheduler knows which pods belong together.
type jobGroups struct {
	client    schedulingclient.SchedulingV1beta1Interface
	workloads cache.Indexer
	podGroups cache.Indexer
}

// newJobGroups returns what follows the Workloads and PodGroups of kinds, and what tells that it is up to date.
func newJobGroups(client kubernetes.Interface, kinds *KubeCaches) (*jobGroups, []cache.InformerSynced, error) {
	workloads, podGroups := kinds.workloads(), kinds.podGroups()
	err := errors.Join(
		workloads.AddIndexers(cache.Indexers{workloadsByOwner: func(o any) ([]string, error) {
			w := o.(*schedulingv1beta1.Workload)
			if ref := w.Spec.ControllerRef; ref != nil {
				return []string{ownerKey(w.Namespace, job.WorkloadOwner{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name})}, nil
			}
			return nil, nil
		}}),
		podGroups.AddIndexers(cache.Indexers{podGroupsByOwner: func(o any) ([]string, error) {
			if ref := metav1.GetControllerOfNoCopy(o.(*schedulingv1beta1.PodGroup)); ref != nil {
				return []string{string(ref.UID)}, nil
			}
			return nil, nil
		}}),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("indexing Workloads and PodGroups: %w", err)
	}
	g := &jobGroups{client: client.SchedulingV1beta1(), workloads: workloads.GetIndexer(), podGroups: podGroups.GetIndexer()}
	return g, []cache.InformerSynced{workloads.HasSynced, podGroups.HasSynced}, nil
}

func ownerKey(namespace string, o job.WorkloadOwner) string {
	return namespace + "/" + o.APIGroup + "/" + o.Kind + "/" + o.Name
}

// of returns what there is of a Job's groups: what the caches hold, and what was written since.
func (g *jobGroups) of(j *batchv1.Job, written *job.Grouping) (job.Grouping, error) {
	var all job.Grouping
	workloads, err := g.workloads.ByIndex(workloadsByOwner, ownerKey(j.Namespace, job.WorkloadOwnerOf(j)))
	if err != nil {
		return all, fmt.Errorf("reading the Workloads of Job %s from the cache: %w", keyOf(j), err)
	}
	podGroups, err := g.podGroups.ByIndex(podGroupsByOwner, string(j.UID))
	if err != nil {
		return all, fmt.Errorf("reading the PodGroups of Job %s from the cache: %w", keyOf(j), err)
	}
	for _, o := range workloads {
		all.Workloads = append(all.Workloads, o.(*schedulingv1beta1.Workload))
	}
	for _, o := range podGroups {
		all.PodGroups = append(all.PodGroups, o.(*schedulingv1beta1.PodGroup))
	}
	for _, w := range written.Workloads {
		all.Workloads = withNewer(all.Workloads, w)
	}
	for _, p := range written.PodGroups {
		all.PodGroups = withNewer(all.PodGroups, p)
	}
	slices.SortFunc(all.Workloads, func(a, b *schedulingv1beta1.Workload) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// withNewer returns list with object in it, in the place of an older version of itself.
func withNewer[T metav1.Object](list []T, object T) []T {
	for i, have := range list {
		if have.GetUID() != object.GetUID() {
			continue
		}
		if !isAsNew(have, object) {
			list[i] = object
		}
		return list
	}
	return append(list, object)
}

// group sees to the Workload and the PodGroup of the Job, and notes which PodGroup its pods are to join.
func (s *jobSync) group(ctx context.Context) error {
	s.podGroup = ""
	if s.c.groups == nil || job.GroupModeOf(s.job) == job.Ungrouped || s.job.DeletionTimestamp != nil {
		return nil
	}
	isNew := job.IsNew(s.job, s.state.ledger.Len())
	for range maxRounds {
		have, err := s.c.groups.of(s.job, &s.state.groups)
		if err != nil {
			return err
		}
		step, err := job.Group(s.job, have, isNew)
		if errors.Is(err, job.ErrScheduling) {
			s.event(corev1.EventTypeWarning, job.ReasonWorkloadNotCompiled, job.MessageWorkloadNotCompiled, s.job.Name, err)
		} else if err != nil {
			s.event(corev1.EventTypeWarning, job.ReasonFailedCreate, "%v", err)
		}
		if err != nil {
			return fmt.Errorf("job %s: %w", s.key, err)
		}
		wrote, err := s.takeGroupStep(ctx, step)
		if err != nil {
			return err
		}
		if !wrote {
			s.podGroup = step.Group
			return nil
		}
	}
	return fmt.Errorf("grouping the pods of Job %s: its Workload and PodGroup keep changing", s.key)
}

// takeGroupStep carries out one write, and keeps the answer until the caches have it. It reports false where there is none to do.
func (s *jobSync) takeGroupStep(ctx context.Context, step job.GroupStep) (wrote bool, err error) {
	workloads, podGroups := s.c.groups.client.Workloads(s.job.Namespace), s.c.groups.client.PodGroups(s.job.Namespace)
	var workload *schedulingv1beta1.Workload
	var podGroup *schedulingv1beta1.PodGroup
	var doing string
	switch {
	case step.CreateWorkload != nil:
		doing = "creating Workload " + step.CreateWorkload.Name
		workload, err = workloads.Create(ctx, step.CreateWorkload, metav1.CreateOptions{})
	case step.CreatePodGroup != nil:
		doing = "creating PodGroup " + step.CreatePodGroup.Name
		podGroup, err = podGroups.Create(ctx, step.CreatePodGroup, metav1.CreateOptions{})
	case step.UpdateWorkload != nil:
		doing = "resizing Workload " + step.UpdateWorkload.Name
		var patch []byte
		if patch, err = patchOf(step.UpdateWorkload, map[string]any{"podGroupTemplates": step.UpdateWorkload.Spec.PodGroupTemplates}); err == nil {
			workload, err = workloads.Patch(ctx, step.UpdateWorkload.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	case step.UpdatePodGroup != nil:
		doing = "resizing PodGroup " + step.UpdatePodGroup.Name
		var patch []byte
		if patch, err = patchOf(step.UpdatePodGroup, map[string]any{"schedulingPolicy": step.UpdatePodGroup.Spec.SchedulingPolicy}); err == nil {
			podGroup, err = podGroups.Patch(ctx, step.UpdatePodGroup.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	default:
		s.c.log.Debug("Grouped", "job", s.key, "podGroup", step.Group, "because", step.Because)
		return false, nil
	}
	if err != nil {
		if step.CreateWorkload != nil {
			s.event(corev1.EventTypeWarning, job.ReasonWorkloadNotCreated, job.MessageWorkloadNotCreated, s.job.Name, err)
		}
		return false, fmt.Errorf("%s for Job %s: %w", doing, s.key, err)
	}
	if step.CreateWorkload != nil {
		s.event(corev1.EventTypeNormal, job.ReasonWorkloadCreated, job.MessageWorkloadCreated, workload.Name, s.job.Name)
	}
	if step.CreatePodGroup != nil {
		s.event(corev1.EventTypeNormal, job.ReasonPodGroupCreated, job.MessagePodGroupCreated, podGroup.Name, s.job.Name)
	}
	if workload != nil {
		s.state.groups.Workloads = []*schedulingv1beta1.Workload{workload}
	}
	if podGroup != nil {
		s.state.groups.PodGroups = []*schedulingv1beta1.PodGroup{podGroup}
	}
	return true, nil
}

// patchOf returns a merge patch of the spec of an object that is as it was.
func patchOf(o metav1.Object, spec map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()}, "spec": spec})
}
