// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/drover-dev/drover/internal/podstate"
)

// scale brings the number of active pods to what the Job wants: too many are deleted, too few are made up for.
func (p *Plan) scale(o Observed, t *tally) {
	l := o.Pods
	active, wanted := len(l.active), wantedPods(o.Job, t.succeeded, len(l.active))
	if surplus := l.surplus(max(0, active-wanted)); len(surplus) > 0 {
		p.because("%d pods are active and %d are wanted: %d must go", active, wanted, len(surplus))
		p.deleteAll(surplus[:min(len(surplus), o.Options.MaxPerSync)], deleteUntracked)
		return
	}
	missing := wanted - active
	if l.shape.waitForFailed {
		missing -= l.terminating
	}
	if missing <= 0 {
		p.because("pods that are active, of those wanted: %d of %d", active, wanted)
		return
	}
	p.create(o, t, min(missing, o.Options.MaxPerSync))
}

// wantedPods returns how many pods should be active.
func wantedPods(j *batchv1.Job, succeeded, active int) int {
	parallelism := 1
	if j.Spec.Parallelism != nil {
		parallelism = int(*j.Spec.Parallelism)
	}
	if j.Spec.Completions == nil {
		if succeeded > 0 {
			return min(active, max(active, 0)) // the first success ends the search for work: the others finish what they have
		}
		return parallelism
	}
	return max(0, min(int(*j.Spec.Completions)-succeeded, parallelism))
}

// surplus returns the active pods that must go: where the Job is Indexed those without a place in it, whatever their number,
// then the least worthy ones until there are n.
func (l *Ledger) surplus(n int) []*entry {
	if n == 0 && l.unnumbered == 0 && l.doubled == 0 {
		return nil
	}
	ranked := slices.Clone(l.active)
	slices.SortFunc(ranked, func(a, b *entry) int { return podstate.CompareForDeletion(a.pod, b.pod) })
	if !l.shape.indexed {
		return ranked[:n]
	}
	last := map[int]*entry{} // the best pod of each index
	for _, e := range ranked {
		last[e.index] = e
	}
	displaced := func(e *entry) bool { return e.index == noIndex || last[e.index] != e }
	slices.SortStableFunc(ranked, func(a, b *entry) int { return cmp.Compare(rankOf(displaced(a)), rankOf(displaced(b))) })
	return ranked[:max(n, l.unnumbered+l.doubled)]
}

func rankOf(goesFirst bool) int {
	if goesFirst {
		return 0
	}
	return 1
}

func (p *Plan) deleteAll(pods []*entry, untrack bool) {
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, compareByIndex)
	for _, e := range sorted {
		p.Delete = append(p.Delete, Deletion{Pod: PodKey{e.pod.Name, e.pod.UID}, Untrack: untrack && e.tracked, ResourceVersion: e.pod.ResourceVersion})
	}
}

// create asks for up to n new pods, as far as back-off allows.
func (p *Plan) create(o Observed, t *tally, n int) {
	l := o.Pods
	cause := creationCause(o, t)
	if l.shape.perIndexLimit != nil {
		p.createPerIndex(o, t, n, cause)
		return
	}
	if wait := o.Options.Backoff.Remaining(l.record.Failures, l.record.Last, o.Now); wait > 0 {
		p.because("failures in a row: %d; the next pod starts in %v", l.record.Failures, wait.Round(time.Second))
		p.wakeIn(max(wait, shortestWait))
		return
	}
	if !l.shape.indexed {
		for _, name := range l.freshNames(noIndex, n) {
			p.Create = append(p.Create, Creation{Name: name, Index: noIndex, Cause: cause})
		}
	} else {
		for i := range l.freeIndexes(t) {
			if len(p.Create) == n {
				break
			}
			p.Create = append(p.Create, Creation{Name: l.freshNames(i, 1)[0], Index: i, Cause: cause})
		}
	}
	p.because("pods wanted beyond those that are active: %d", len(p.Create))
}

// createPerIndex asks for new pods where each index has a back-off of its own.
//
// Differs: an index whose back-off is not over does not keep another from starting; upstream fills the free places with the
// lowest indexes, also those that must wait.
func (p *Plan) createPerIndex(o Observed, t *tally, n int, cause CreationCause) {
	l := o.Pods
	for i := range l.freeIndexes(t) {
		if len(p.Create) == n {
			break
		}
		c := Creation{Index: i, Cause: cause}
		if before := t.held[i]; before != nil {
			if wait := indexBackoff(o, before); wait > 0 {
				p.wakeIn(max(wait, shortestWait))
				continue
			}
			c.Failures, c.Ignored = afterFailure(before)
		}
		c.Name = l.freshNames(i, 1)[0]
		p.Create = append(p.Create, c)
	}
	if len(p.Create) > 0 {
		p.because("pods wanted beyond those that are active: %d", len(p.Create))
	} else if p.After > 0 {
		p.because("every index that wants a pod is in back-off, the first for %v", p.After.Round(time.Second))
	}
}

// freeIndexes returns the indexes that want a pod, lowest first.
func (l *Ledger) freeIndexes(t *tally) func(yield func(int) bool) {
	occupied := t.succeededIndexes.Clone()
	occupied.AddSet(&t.failedIndexes)
	occupied.AddSet(&l.activeSet)
	if l.shape.waitForFailed {
		occupied.AddSet(&l.endingSet)
	}
	return occupied.Missing(l.shape.completions)
}

func creationCause(o Observed, t *tally) CreationCause {
	switch {
	case o.Pods.shape.waitForFailed && t.failed > 0:
		return CauseRecreateFailed
	case t.failed > 0 || o.Pods.terminating > 0:
		return CauseRecreateTerminatingOrFailed
	}
	return CauseNew
}

// indexBackoff returns how long the replacement of a failed pod must still wait.
func indexBackoff(o Observed, failed *entry) time.Duration {
	failures := int(failureCount(failed)) + int(ignoredCount(failed)) + 1
	return o.Options.Backoff.Remaining(failures, podstate.FinishTime(failed.pod), o.Now)
}

func failureCount(e *entry) int32 {
	return countAnnotation(e.pod, batchv1.JobIndexFailureCountAnnotation)
}

func ignoredCount(e *entry) int32 {
	return countAnnotation(e.pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// afterFailure returns the counts that the replacement of a failed pod starts with.
func afterFailure(failed *entry) (failures, ignored int32) {
	failures, ignored = failureCount(failed), ignoredCount(failed)
	if failed.ruling.ignored() {
		return failures, ignored + 1
	}
	return failures + 1, ignored
}

// outranks reports whether e rather than holder is the pod from which an index's replacement is derived: it has been through
// at least as many failures, and did not end earlier.
func outranks(e, holder *entry) bool {
	tries, held := failureCount(e)+ignoredCount(e), failureCount(holder)+ignoredCount(holder)
	ends, heldEnds := podstate.FinishTime(e.pod), podstate.FinishTime(holder.pod)
	if tries == held && ends.Equal(heldEnds) {
		return compareByIndex(e, holder) > 0 // of two equals always the same one, whatever the order they come in
	}
	return tries >= held && !ends.Before(heldEnds)
}
