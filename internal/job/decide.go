// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"time"
)

// Plan is what to do to a Job's pods. Its lists are in the order in which the controller must act. Deletions and creations
// never stand in one plan.
type Plan struct {
	// AccountFirst asks for the status to be stored, and for what Account wants untracked, before the deletions.
	AccountFirst bool

	Delete []Deletion
	Create []Creation
	After  time.Duration // look again after this long; 0: at the next event

	Because []string // one line a choice
}

// Deletion asks for a pod to be deleted with its own grace period.
type Deletion struct {
	Pod PodKey
	// Untrack asks for the tracking finalizer to be taken off first, so that the pod never counts as failed. It may be done
	// only while the pod has ResourceVersion: a pod that has succeeded meanwhile must count.
	Untrack         bool
	ResourceVersion string
	// Late: the pod goes because it has not started in time, and counts as failed.
	Late bool
}

// Creation asks for a new pod.
type Creation struct {
	Name  string
	Index int // -1 unless the Job is Indexed
	// Failures and Ignored are what the index has been through, for Jobs with backoffLimitPerIndex.
	Failures, Ignored int32
	Cause             CreationCause
}

// CreationCause says why a pod is created, as the metric job_pods_creation_total tells it.
type CreationCause string

// The causes of a creation.
const (
	CauseNew                          CreationCause = "new"
	CauseRecreateTerminatingOrFailed  CreationCause = "recreate_terminating_or_failed"
	CauseRecreateFailed               CreationCause = "recreate_failed"
	shortestWait                                    = time.Second // before a pod in back-off is looked at again
	deleteEverything, deleteUntracked               = false, true
)

// Decide returns what to do next to the pods of o.Job. Equal observations give equal plans; deciding again on the world that
// a plan has produced gives an empty plan.
func Decide(o Observed) Plan {
	var p Plan
	t := count(o)
	v := rule(o, &t)
	switch {
	case v != nil:
		p.because("%s: %s", v.outcome, v.message)
		p.AccountFirst = len(o.Pods.active) > 0 && v.announcedEarly() && trueCondition(&o.Job.Status, v.interim()) == nil
		p.deleteAll(o.Pods.active, deleteEverything)
	case o.Job.DeletionTimestamp != nil:
		p.because("the Job is being deleted: its pods are left to the garbage collector")
	case !o.Settled:
		p.because("the outcome of an earlier write is not known yet")
	case IsSuspended(o.Job):
		p.because("the Job is suspended")
		p.deleteAll(o.Pods.active, deleteUntracked)
	default:
		if p.deleteLate(o); len(p.Delete) == 0 {
			p.scale(o, &t)
		}
	}
	if left, limited := deadlineIn(o); limited && v == nil {
		p.wakeIn(max(left, time.Millisecond))
	}
	return p
}

func (p *Plan) because(format string, args ...any) {
	p.Because = append(p.Because, fmt.Sprintf(format, args...))
}

// wakeIn asks for another look after d at the latest; d must be positive.
func (p *Plan) wakeIn(d time.Duration) {
	if p.After == 0 || d < p.After {
		p.After = d
	}
}
