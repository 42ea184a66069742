// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Memory is what a controller keeps of a CronJob between decisions: what has happened and is not stored yet, and what need not be
// asked or said twice. The zero value knows nothing. A memory that is lost costs repeated questions and events, and loses no due
// time and starts none twice. It is immutable: every Account returns a new one.
type Memory struct {
	rules   *Rules  // of the decision before; nil: there was none
	pending Changes // of the status, in addition to what is stored
	ledger  string  // encoded; "": not read yet
	rush    bool    // pending holds a start that little else bears witness of
	urgent  bool    // ledger holds an edit that is not stored yet and must not be lost
	bare    bool    // ledger says nothing that does not follow from the rest of the CronJob
	stored  string  // the stored text that ledger has taken in

	// witness is up to where the API server holds a record of starts, be it the status or the ledger, even if a user has set the
	// status back.
	witness time.Time

	seen   []types.UID            // active Jobs that the cache has shown
	unseen []sighting             // active Jobs that it has not shown yet
	gone   map[types.UID]struct{} // Jobs that we have deleted and the cache may still show
	kept   map[types.UID]retry    // finished Jobs beyond those that are kept whose deletion did not work
	said   map[types.UID]struct{} // unexpected Jobs that were reported

	failedDue time.Time // the due time whose start did not work
	failures  int       // in a row
	retryAt   time.Time // zero: nothing is to be retried
	unsure    time.Time // until then the cache may show that it worked all the same
}

// sighting is when a Job was last known to exist, from elsewhere than the cache.
type sighting struct {
	uid types.UID
	at  time.Time
}

// retry is what is known of something that did not work and is to be tried again.
type retry struct {
	failures int // in a row
	at       time.Time
}

// Changes are what a status must say in addition to what is stored. They can be applied to any later version of it, any number of
// times.
type Changes struct {
	Add                       []corev1.ObjectReference
	Remove                    []types.UID
	LastSchedule, LastSuccess time.Time // not before what is stored
}

// Apply returns the status with the changes. It shares memory with both and must not be changed.
func (c *Changes) Apply(s Status) Status {
	if len(c.Remove) > 0 {
		s.Active = slices.DeleteFunc(slices.Clone(s.Active), func(ref corev1.ObjectReference) bool {
			return slices.Contains(c.Remove, ref.UID)
		})
	}
	s.Active = slices.Clip(s.Active)
	for _, ref := range c.Add {
		if !lists(s.Active, ref.UID) {
			s.Active = append(s.Active, ref)
		}
	}
	if c.LastSchedule.After(s.LastSchedule) {
		s.LastSchedule = c.LastSchedule
	}
	if c.LastSuccess.After(s.LastSuccess) {
		s.LastSuccess = c.LastSuccess
	}
	return s
}

// beyond returns the part of the changes that the stored status does not show yet.
func (c *Changes) beyond(s Status) Changes {
	var rest Changes
	for _, ref := range c.Add {
		if !lists(s.Active, ref.UID) {
			rest.Add = append(rest.Add, ref)
		}
	}
	for _, uid := range c.Remove {
		if lists(s.Active, uid) {
			rest.Remove = append(rest.Remove, uid)
		}
	}
	if c.LastSchedule.After(s.LastSchedule) {
		rest.LastSchedule = c.LastSchedule
	}
	if c.LastSuccess.After(s.LastSuccess) {
		rest.LastSuccess = c.LastSuccess
	}
	return rest
}

// add lists a Job as active.
func (c *Changes) add(ref corev1.ObjectReference) {
	if !lists(c.Add, ref.UID) {
		c.Add = append(slices.Clip(c.Add), ref)
	}
}

// remove takes a Job off the list of active ones.
func (c *Changes) remove(uid types.UID) {
	c.Add = slices.DeleteFunc(slices.Clone(c.Add), func(ref corev1.ObjectReference) bool { return ref.UID == uid })
	if !slices.Contains(c.Remove, uid) {
		c.Remove = append(slices.Clip(c.Remove), uid)
	}
}

func lists(active []corev1.ObjectReference, uid types.UID) bool {
	return slices.ContainsFunc(active, func(ref corev1.ObjectReference) bool { return ref.UID == uid })
}

// Urgency says how long what is to be stored may wait, so that changes close together share one write.
type Urgency int

// The urgencies, each more urgent than the one before.
const (
	Nothing    Urgency = iota // what is stored says it all
	Eventually                // only the ledger has changed; within a minute, or with the next write
	Soon                      // the status has changed; within a second or two
	AtOnce                    // only a Job that may be deleted any moment bears witness of its start
)

// Record is what a CronJob must store: one write to its /status, or none.
type Record struct {
	Status  Status
	Ledger  string // the value of LedgerAnnotation; "" where no ledger is kept
	Urgency Urgency
}

// Record returns what c, the newest version known, must store so that nothing of m is lost with this process. It may be asked
// for at any time, most of all right before the write, with the version that is then written: another version may have come in
// meanwhile.
//
// Differs: upstream decides on one version and writes another, whose status it had copied before, so that what it has just
// decided can be lost.
func (m *Memory) Record(c *CronJob, o Options) Record {
	r := Record{Status: c.Status}
	if rest := m.pending.beyond(c.Status); !rest.empty() {
		r.Status, r.Urgency = m.pending.Apply(c.Status), Soon
		if m.rush {
			r.Urgency = AtOnce
		}
	}
	if o.LedgerSize == 0 {
		return r
	}
	stored := c.Annotations[LedgerAnnotation]
	r.Ledger = stored
	if m.ledger != "" && m.ledger != stored && (!m.bare || stored != "") {
		r.Ledger = m.ledger
		r.Urgency = max(r.Urgency, Eventually)
		if m.urgent {
			r.Urgency = max(r.Urgency, Soon)
		}
	}
	return r
}

func (c *Changes) empty() bool {
	return len(c.Add) == 0 && len(c.Remove) == 0 && c.LastSchedule.IsZero() && c.LastSuccess.IsZero()
}
