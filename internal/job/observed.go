// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/backoff"
	"github.com/drover-dev/drover/internal/indexset"
)

// Observed is everything one decision may look at. Nothing in this package changes it.
type Observed struct {
	Job     *batchv1.Job // the newest version known, not finished
	Pods    *Ledger      // follows Job
	Now     time.Time    // the one instant of this decision
	Settled bool         // the outcome of every earlier write of ours is known
	Options Options
}

// Options are the bounds and optional behaviour of decisions, as a value.
type Options struct {
	Backoff backoff.Policy // before a failed pod is replaced

	// MaxPerSync bounds the creations, and the deletions for scaling down, of one plan.
	MaxPerSync int
	// StartTimeout is how long a pod may take to start before it counts as failed; 0: for ever.
	StartTimeout time.Duration
	// MaxUncounted bounds the successes and failures that one status names at a time.
	MaxUncounted int
	// KeepStartTimeOnSuspend leaves status.startTime alone when a Job is suspended, as clusters do whose gate
	// MutableSchedulingDirectivesForSuspendedJobs is off.
	KeepStartTimeOnSuspend bool
}

// DefaultOptions returns the bounds of Kubernetes v1.37.
func DefaultOptions() Options {
	return Options{Backoff: backoff.Default(), MaxPerSync: 500, MaxUncounted: 500}
}

// startTime returns when the Job's present period of work began, also before the status says so; nil while it is suspended
// or has not begun.
func (o Observed) startTime() *time.Time {
	resumed := !IsSuspended(o.Job) && trueCondition(&o.Job.Status, batchv1.JobSuspended) != nil
	switch {
	case o.Job.Status.StartTime != nil && !resumed:
		return &o.Job.Status.StartTime.Time
	case IsSuspended(o.Job):
		return nil
	case !o.Pods.started.IsZero():
		return &o.Pods.started
	}
	return &o.Now
}

// tally is what the stored status and the ledger say together, each pod once.
type tally struct {
	listedSucceeded map[types.UID]bool // named in the stored status
	listedFailed    map[types.UID]bool

	succeeded int // completed indexes, where the Job is Indexed
	failed    int // without failures that a rule ignores

	succeededIndexes indexset.Set
	failedIndexes    indexset.Set
	held             map[int]*entry // with backoffLimitPerIndex: the failed pod of an index that waits for its replacement
}

func count(o Observed) tally {
	l, status := o.Pods, &o.Job.Status
	var t tally
	t.succeeded, t.failed = int(status.Succeeded), int(status.Failed)
	if u := status.UncountedTerminatedPods; u != nil {
		t.listedSucceeded, t.listedFailed = uidSet(u.Succeeded), uidSet(u.Failed)
		t.succeeded += len(u.Succeeded)
		t.failed += len(u.Failed)
	}
	indexed := l.shape.indexed
	if indexed {
		t.succeededIndexes = l.completed.Clone()
	}
	for uid, e := range l.over {
		switch {
		case indexed && e.index == noIndex:
			// Freed, never counted.
		case !e.failed && indexed:
			t.succeededIndexes.Add(e.index)
		case t.listedFailed[uid] || t.listedSucceeded[uid]:
			// In the sums already.
		case !e.failed:
			t.succeeded++
		case !e.ruling.ignored() && !e.deleting: // what our own verdict has stopped must not change the verdict
			t.failed++
		}
	}
	if !indexed {
		return t
	}
	t.succeeded = t.succeededIndexes.Len()
	if l.shape.perIndexLimit != nil {
		t.judgeIndexes(l)
	}
	return t
}

func uidSet(uids []types.UID) map[types.UID]bool {
	if len(uids) == 0 {
		return nil
	}
	set := make(map[types.UID]bool, len(uids))
	for _, uid := range uids {
		set[uid] = true
	}
	return set
}

// judgeIndexes finds the indexes that have failed for good, and for every other index that has neither succeeded nor an
// active pod the failed pod that its replacement will be derived from.
//
// Differs: an index with a success and a final failure has succeeded; upstream lists it as both and the API server refuses
// the status.
func (t *tally) judgeIndexes(l *Ledger) {
	t.failedIndexes = l.failedIndexes.Clone()
	var candidates []*entry
	for _, e := range l.over {
		switch {
		case !e.failed || e.index == noIndex || t.succeededIndexes.Has(e.index):
		case e.deleting: // stopped because the Job has its verdict: that says nothing of its index
		case e.ruling.failsIndex(), !e.ruling.ignored() && failureCount(e) >= *l.shape.perIndexLimit:
			t.failedIndexes.Add(e.index)
		case l.activeAt[e.index] == 0:
			candidates = append(candidates, e)
		}
	}
	t.failedIndexes.RemoveSet(&t.succeededIndexes)
	t.held = make(map[int]*entry, len(candidates))
	for _, e := range candidates {
		if holder := t.held[e.index]; !t.failedIndexes.Has(e.index) && (holder == nil || outranks(e, holder)) {
			t.held[e.index] = e
		}
	}
}
