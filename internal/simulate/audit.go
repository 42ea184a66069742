// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/indexset"
)

// audit remembers, over the whole life of the cluster, what must not happen a second time.
type audit struct {
	named       map[types.UID]string    // pods that a status has named, and as what
	parallelism map[types.UID]int32     // of each Job, the most that it ever was since it was last lowered unseen
	madeFor     map[types.UID]types.UID // of each pod, the Job that it was made for
}

func newAudit() audit {
	return audit{named: map[types.UID]string{}, parallelism: map[types.UID]int32{}, madeFor: map[types.UID]types.UID{}}
}

func (a *audit) submitted(j *batchv1.Job) { a.parallelism[j.UID] = *j.Spec.Parallelism }

// edited keeps the larger parallelism: a controller may not have seen the smaller one yet.
func (a *audit) edited(j *batchv1.Job) {
	a.parallelism[j.UID] = max(a.parallelism[j.UID], *j.Spec.Parallelism)
}

// auditCreation checks that a new pod has room in its Job.
func (c *Cluster) auditCreation(p *corev1.Pod) {
	j := c.owner(p)
	if j == nil {
		return
	}
	c.ledger.madeFor[p.UID] = j.UID
	if isFinished(&j.Status) {
		c.violate("pod %s was created for a finished Job", p.Name)
	}
	active := 1
	index, indexed := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	for _, other := range c.pods {
		if !metav1.IsControlledBy(other, j) || finished(other) || other.DeletionTimestamp != nil {
			continue
		}
		if other.Labels[batchv1.ControllerUidLabel] != string(j.UID) {
			continue // about to be released
		}
		active++
		if indexed && other.Annotations[batchv1.JobCompletionIndexAnnotation] == index {
			c.violate("pod %s was created for index %s beside the active pod %s", p.Name, index, other.Name)
		}
	}
	if limit := c.ledger.parallelism[j.UID]; int32(active) > limit {
		c.violate("pod %s is active pod %d of Job %s with parallelism %d", p.Name, active, j.Name, limit)
	}
	if done := indexset.Parse(j.Status.CompletedIndexes, 1<<30); indexed && done.Has(atoi(index)) {
		c.violate("pod %s was created for the completed index %s", p.Name, index)
	}
	if !slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
		c.violate("pod %s was created without the tracking finalizer", p.Name)
	}
}

func atoi(text string) int {
	s, ok := indexset.ParseStrict(text)
	if !ok || s.Len() != 1 {
		return -1
	}
	for i := range s.All {
		return i
	}
	return -1
}

// auditUntracking checks that a pod is let go only after it was counted, or where it need not be.
func (c *Cluster) auditUntracking(p *corev1.Pod) {
	j := c.owner(p)
	if j == nil || isFinished(&j.Status) || j.DeletionTimestamp != nil || c.ledger.named[p.UID] != "" {
		return
	}
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return // taken out of the count before it is deleted
	}
	indexed := *j.Spec.CompletionMode == batchv1.IndexedCompletion
	index, ok := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	if done := indexset.Parse(j.Status.CompletedIndexes, 1<<30); indexed && (!ok || done.Has(atoi(index)) || atoi(index) >= int(ptr.Deref(j.Spec.Completions, 0))) {
		return
	}
	if j.Spec.PodFailurePolicy != nil && p.Status.Phase == corev1.PodFailed {
		return // a rule may ignore it
	}
	if p.DeletionTimestamp != nil || met(&j.Status) {
		return // it was at work when the plan to delete it was made; or the Job needs it no more
	}
	c.violate("pod %s (%s) lost the tracking finalizer before it was counted", p.Name, p.Status.Phase)
}

// auditStatus checks that every pod is counted once.
func (c *Cluster) auditStatus(before, after *batchv1.Job) {
	old, next := uncountedOf(&before.Status), uncountedOf(&after.Status)
	if isFinished(&before.Status) {
		c.violate("status of finished Job %s was written again", after.Name)
	}
	for _, list := range []struct {
		as         string
		old, next  []types.UID
		from, to   int32
		countsPods bool
	}{
		{"succeeded", old.Succeeded, next.Succeeded, before.Status.Succeeded, after.Status.Succeeded, *after.Spec.CompletionMode == batchv1.NonIndexedCompletion},
		{"failed", old.Failed, next.Failed, before.Status.Failed, after.Status.Failed, true},
	} {
		added := 0
		for _, uid := range list.next {
			if slices.Contains(list.old, uid) {
				continue
			}
			added++
			if as := c.ledger.named[uid]; as != "" {
				c.violate("pod %s is named as %s in Job %s, and was as %s before", uid, list.as, after.Name, as)
			}
			c.ledger.named[uid] = list.as
		}
		if !list.countsPods {
			continue
		}
		grown := int(list.to-list.from) + len(list.next) - len(list.old)
		if isFinished(&after.Status) {
			if limit := c.uncountedEnds(after, list.as); grown > limit {
				c.violate("Job %s ended with %d more %s pods, and only %d were left to count", after.Name, grown, list.as, limit)
			}
			continue
		}
		if grown != added {
			c.violate("Job %s counts %d more %s pods, and names %d", after.Name, grown, list.as, added)
		}
	}
}

// uncountedEnds returns how many pods of j have not been named and may still be counted. One that a user has taken away from j
// is among them: the watch may not have told yet.
func (c *Cluster) uncountedEnds(j *batchv1.Job, as string) int {
	n := 0
	for _, p := range c.pods {
		if !metav1.IsControlledBy(p, j) && c.ledger.madeFor[p.UID] != j.UID || c.ledger.named[p.UID] != "" || !slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
			continue
		}
		switch as {
		case "succeeded":
			if p.Status.Phase == corev1.PodSucceeded {
				n++
			}
		default:
			if p.Status.Phase != corev1.PodSucceeded {
				n++
			}
		}
	}
	return n
}

func (c *Cluster) owner(p *corev1.Pod) *batchv1.Job {
	ref := metav1.GetControllerOf(p)
	if ref == nil {
		return nil
	}
	if j := c.jobs[p.Namespace+"/"+ref.Name]; j != nil && j.UID == ref.UID {
		return j
	}
	return nil
}

func isFinished(s *batchv1.JobStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// met reports whether the Job has announced how it ends.
func met(s *batchv1.JobStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue
	})
}
