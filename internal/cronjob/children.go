// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tidy plans to delete the oldest finished Jobs beyond those that are kept.
//
// Source: Kubernetes v1.37 CronJob controller.
// Differs: Jobs that are being deleted already are not counted; upstream deletes them again, and warns when they are gone.
func (d *decision) tidy() {
	var kept map[types.UID]retry // of those only that are still to be deleted
	for _, class := range [...]struct {
		result Result
		limit  *int32
	}{{Complete, d.o.CronJob.Spec.SuccessfulLimit}, {Failed, d.o.CronJob.Spec.FailedLimit}} {
		if class.limit == nil {
			continue
		}
		var jobs []*Child
		for _, c := range d.sorted {
			if c.Result == class.result && !c.Deleting {
				jobs = append(jobs, c)
			}
		}
		surplus := len(jobs) - int(*class.limit)
		if surplus <= 0 {
			continue
		}
		slices.SortFunc(jobs, func(a, b *Child) int {
			return cmp.Or(compareStarts(a.Started, b.Started), cmp.Compare(a.Name, b.Name))
		})
		for _, c := range jobs[:surplus] {
			if d.isUnstored(c) {
				d.plan.AfterStore = true
				continue
			}
			if r, ok := d.m.kept[c.UID]; ok {
				kept = put(kept, c.UID, r)
				if wait := r.at.Sub(d.o.Now); wait > 0 && wait <= d.o.Options.RetryMax { // longer: the clock was set back
					d.because("%s could not be deleted: it is tried again at %s", c.Name, told(r.at))
					d.wake(r.at)
					continue
				}
			}
			d.plan.Tidy = append(d.plan.Tidy, Deletion{Name: c.Name, UID: c.UID, due: c.Due, created: c.Created})
			d.because("%s is one more %s Job than are kept", c.Name, c.Result)
		}
	}
	d.m.kept = kept
}

// isUnstored reports whether nothing but c itself says that its due time was started: it must not be deleted before the status
// says so too, or a process that ends in between makes another start for the same due time.
func (d *decision) isUnstored(c *Child) bool {
	return c != nil && c.scheduledBy(d.o.CronJob.Name) && c.Due.After(d.m.witness)
}

// compareStarts orders start times; Jobs that never started come last.
func compareStarts(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

func (d *decision) isTidied(uid types.UID) bool {
	return slices.ContainsFunc(d.plan.Tidy, func(t Deletion) bool { return t.UID == uid })
}

// reap brings the status up to date with what has become of the Jobs.
func (d *decision) reap() {
	for _, c := range d.sorted {
		listed := lists(d.status.Active, c.UID)
		switch {
		case d.isOurStart(c):
			d.adopt(c)
		case !listed && d.isLateSighting(c):
			if !c.finished() {
				d.list(reference(d.o, c))
			}
			d.ledger.set(d.r.schedule, d.startOf(c))
		case !listed && !c.finished():
			d.unlisted(c)
		case listed && c.finished():
			d.unlist(c.UID)
			if !d.isTidied(c.UID) {
				d.tell(SawCompletedJob, c.Name, c.Result)
			}
		}
		if c.Result == Complete && c.Ended.After(d.status.LastSuccess) {
			d.m.pending.LastSuccess = c.Ended
			d.status.LastSuccess = c.Ended
		}
		d.noteResult(c)
		if d.isUnstored(c) && (c.finished() || c.Deleting) {
			d.m.rush = true // others may delete it before long
		}
	}
	d.reapMissing()
}

// isOurStart reports whether c was started for a due time that the status does not know of: the process that did it ended, or its
// answer was lost, before the status was written.
func (d *decision) isOurStart(c *Child) bool {
	return c.scheduledBy(d.o.CronJob.Name) && c.Due.After(d.status.LastSchedule) && !d.ledger.started(c.Due)
}

// isLateSighting reports whether c was started for a due time that was given up meanwhile, because the answer was an error and the
// next due time has come before the cache showed c.
func (d *decision) isLateSighting(c *Child) bool {
	if !c.scheduledBy(d.o.CronJob.Name) || c.Due.After(d.ledger.Until) {
		return false
	}
	t := d.ledger.find(c.Due)
	return t != nil && t.Outcome != Started && t.Outcome != SkippedElsewhere
}

// adopt takes such a Job into the status.
//
// Differs: upstream reports an unexpected Job first, and takes it in when it tries to create it a second time.
func (d *decision) adopt(c *Child) {
	d.because("%s was started for %s and is not in the status yet", c.Name, told(c.Due))
	d.bookTo(earlier(d.now, c.Due.Add(-1)))
	if !c.finished() {
		d.list(reference(d.o, c))
	}
	d.m.pending.LastSchedule = c.Due
	d.status.LastSchedule = c.Due
	d.bookStart(c)
}

// unlisted deals with an active Job that the status does not list.
func (d *decision) unlisted(c *Child) {
	switch _, said := d.m.said[c.UID]; {
	case c.Triggered:
		d.list(reference(d.o, c))
	case !said && !c.Deleting:
		d.tell(UnexpectedJob, c.Name)
		d.m.said = with(d.m.said, c.UID)
	}
}

func (d *decision) list(ref corev1.ObjectReference) {
	d.m.pending.add(ref)
	d.status.Active = append(slices.Clip(d.status.Active), ref)
}

func (d *decision) unlist(uid types.UID) {
	d.m.pending.remove(uid)
	d.status.Active = slices.DeleteFunc(slices.Clone(d.status.Active), func(ref corev1.ObjectReference) bool { return ref.UID == uid })
}

// reapMissing looks for active Jobs that do not exist any more.
//
// Differs: upstream asks the API server for every one that its cache does not show. A Job that the cache has shown and does not
// show any more is gone for certain, and one that we have just created will be shown soon. Only a CronJob that is being deleted can
// lose Jobs that go on: they may be left to themselves.
func (d *decision) reapMissing() {
	var seen []types.UID
	var unseen []sighting
	for _, ref := range d.status.Active {
		if d.children[ref.UID] != nil {
			seen = append(seen, ref.UID)
			continue
		}
		if slices.Contains(d.m.seen, ref.UID) && !d.o.CronJob.Deleting {
			d.unlist(ref.UID)
			d.tell(MissingJob, ref.Name)
			d.ledger.noteGone(d.o.CronJob.Name, ref.Name)
			continue
		}
		if i := slices.IndexFunc(d.m.unseen, func(s sighting) bool { return s.uid == ref.UID }); i >= 0 {
			s := d.m.unseen[i]
			if again := s.at.Add(d.o.Options.CacheLag); d.o.Now.Before(again) {
				unseen = append(unseen, s)
				d.wake(again)
				continue
			}
		}
		d.plan.Check = append(d.plan.Check, ref)
	}
	d.m.seen, d.m.unseen = seen, unseen
}

// noteResult tells the ledger how a Job has ended.
func (d *decision) noteResult(c *Child) {
	if !c.finished() || !c.scheduledBy(d.o.CronJob.Name) {
		return
	}
	if t := d.ledger.find(c.Due); t != nil && t.Outcome == Started && t.Result == Running {
		t.Result, t.Took = c.Result, c.took()
	}
}

// took returns how long the Job has run, in whole seconds, or 0 when that is not known.
func (c *Child) took() time.Duration {
	start := c.Started
	if start.IsZero() {
		start = c.Created
	}
	if c.Ended.IsZero() || start.IsZero() {
		return 0
	}
	return max(0, c.Ended.Sub(start)).Truncate(time.Second)
}

// with returns the set with one more in it.
func with(set map[types.UID]struct{}, uid types.UID) map[types.UID]struct{} {
	return put(set, uid, struct{}{})
}

// put returns a copy of m that says v of uid.
func put[V any](m map[types.UID]V, uid types.UID, v V) map[types.UID]V {
	next := make(map[types.UID]V, len(m)+1)
	maps.Copy(next, m)
	next[uid] = v
	return next
}

// reference returns what the status lists for a Job.
func reference(o Observed, c *Child) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: o.Options.Wording.JobAPIVersion, Kind: "Job", Namespace: o.CronJob.Namespace,
		Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
	}
}
