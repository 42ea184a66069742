// SPDX-License-Identifier: Apache-2.0

package controller

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/job"
)

// Names of indexes over the pods in the cache.
const (
	podsOfJob     = "job"       // by the UID of the Job that controls them
	podsMeantFor  = "meantFor"  // ownerless, by the UID of the Job that their labels name
	podsOwnerless = "ownerless" // ownerless, by namespace
)

// Names of indexes over the Jobs in the cache.
const (
	jobsByUID          = "uid"
	jobsChoosingByHand = "byHand" // whose selector is their author's own, by namespace
)

var podIndexers = cache.Indexers{
	podsOfJob: func(o any) ([]string, error) {
		if ref := metav1.GetControllerOfNoCopy(o.(*corev1.Pod)); ref != nil && ref.Kind == "Job" {
			return []string{string(ref.UID)}, nil
		}
		return nil, nil
	},
	podsMeantFor: func(o any) ([]string, error) {
		if p := o.(*corev1.Pod); metav1.GetControllerOfNoCopy(p) == nil {
			if uid := job.NamedJob(p); uid != "" {
				return []string{string(uid)}, nil
			}
		}
		return nil, nil
	},
	podsOwnerless: func(o any) ([]string, error) {
		if p := o.(*corev1.Pod); metav1.GetControllerOfNoCopy(p) == nil {
			return []string{p.Namespace}, nil
		}
		return nil, nil
	},
}

var jobIndexers = cache.Indexers{
	jobsByUID: func(o any) ([]string, error) { return []string{string(o.(*batchv1.Job).UID)}, nil },
	jobsChoosingByHand: func(o any) ([]string, error) {
		if j := o.(*batchv1.Job); !job.HasGeneratedSelector(j) {
			return []string{j.Namespace}, nil
		}
		return nil, nil
	},
}

// jobByUID returns the Job with that UID, or nil.
func (c *JobController) jobByUID(uid types.UID) *batchv1.Job {
	found, err := c.jobIndex.ByIndex(jobsByUID, string(uid))
	if err != nil || len(found) == 0 {
		return nil
	}
	return found[0].(*batchv1.Job)
}

// controllingJob returns the Job that p's controller reference means, or nil.
func (c *JobController) controllingJob(p *corev1.Pod) *batchv1.Job {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != "Job" {
		return nil
	}
	if j := c.jobByUID(ref.UID); j != nil && j.Namespace == p.Namespace && j.Name == ref.Name {
		return j
	}
	return nil
}

// claimants returns the Jobs whose selector matches an ownerless pod.
func (c *JobController) claimants(p *corev1.Pod) []*batchv1.Job {
	var jobs []*batchv1.Job
	if j := c.jobByUID(job.NamedJob(p)); j != nil && j.Namespace == p.Namespace {
		jobs = append(jobs, j)
	}
	byHand, err := c.jobIndex.ByIndex(jobsChoosingByHand, p.Namespace)
	if err != nil {
		return jobs
	}
	for _, o := range byHand {
		j := o.(*batchv1.Job)
		if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// podsFor returns every pod in the cache that may belong to j: those it controls, and those it might adopt.
func (c *JobController) podsFor(j *batchv1.Job) ([]*corev1.Pod, error) {
	index, key := podsMeantFor, string(j.UID)
	if !job.HasGeneratedSelector(j) {
		index, key = podsOwnerless, j.Namespace
	}
	var pods []*corev1.Pod
	for _, q := range [...][2]string{{podsOfJob, string(j.UID)}, {index, key}} {
		found, err := c.pods.ByIndex(q[0], q[1])
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			pods = append(pods, o.(*corev1.Pod))
		}
	}
	return pods, nil
}
