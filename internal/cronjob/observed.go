// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Observed is everything one decision may look at. Nothing in this package changes it.
type Observed struct {
	CronJob  *CronJob // the newest version known: from the cache, or the answer to a write of ours
	Rules    *Rules   // what Read made of that version
	Children []Child  // every Job controlled by CronJob, in any order, from the cache
	Memory   Memory   // what the last Account returned; the zero value after a start
	Now      time.Time
	// Awake is since when the controller has followed this CronJob without a break: since its start, or since the machine
	// woke or the clock was set forward. Due times before it passed while nobody looked.
	Awake   time.Time
	Options Options
}

// Options are the bounds of decisions, as a value.
type Options struct {
	Wording Wording // how events are worded

	// LedgerSize is how many entries a ledger holds; 0: no ledger is kept in the CronJob.
	LedgerSize int
	// MaxStarts bounds the starts of one plan; what is left is planned at once again.
	MaxStarts int
	// CacheLag is how long a Job that we created may be missing in the cache before the API server is asked for it.
	CacheLag time.Duration
	// RetryBase and RetryMax bound the wait after a start that was refused: RetryBase, doubled each time. RetryOutage is the
	// bound where the API server could not be reached or had trouble of its own. A finished Job that could not be deleted, for
	// whatever reason, waits from RetryBase to RetryMax.
	RetryBase, RetryMax, RetryOutage time.Duration
	// Grace is by how much a due time may lie before Awake and still count as seen, where missed times are not caught up.
	Grace time.Duration
}

// DefaultOptions returns the bounds and texts for batch/v1 CronJobs.
func DefaultOptions() Options {
	return Options{
		Wording:    BatchWording(),
		LedgerSize: 50,
		MaxStarts:  20,
		CacheLag:   5 * time.Second,
		RetryBase:  500 * time.Millisecond, RetryMax: 5 * time.Minute, RetryOutage: 8 * time.Second,
		Grace: 30 * time.Second,
	}
}

// VolcanoOptions returns the bounds and texts for CronJobs of Volcano.
func VolcanoOptions() Options {
	o := DefaultOptions()
	o.Wording = VolcanoWording()
	return o
}

// CronJob is what this package looks at of a CronJob of any kind.
type CronJob struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
	Created         time.Time
	Deleting        bool
	Annotations     map[string]string
	Spec            Spec
	Status          Status
}

// Spec is the part of a CronJob that users write.
type Spec struct {
	Schedule         string
	TimeZone         *string
	StartingDeadline *time.Duration // nil: none
	Concurrency      Concurrency
	Suspend          bool

	SuccessfulLimit, FailedLimit *int32 // of finished Jobs to keep; nil: all
}

// Status is the part of a CronJob that its controller writes. Times are zero where there is none.
type Status struct {
	Active                    []corev1.ObjectReference
	LastSchedule, LastSuccess time.Time
}

// Concurrency says what happens to a due time while Jobs of earlier ones are active.
type Concurrency string

// The concurrency policies. Enqueue is chosen by annotation.
const (
	Allow   Concurrency = "Allow"
	Forbid  Concurrency = "Forbid"
	Replace Concurrency = "Replace"
	Enqueue Concurrency = "Enqueue" // due times wait for a free place, in order
)

// Child is what this package looks at of a Job of any kind.
type Child struct {
	Name, ResourceVersion string
	UID                   types.UID
	Controller            types.UID // of the object that controls it

	Created   time.Time
	Started   time.Time // zero: has not started yet
	Deleting  bool
	Due       time.Time // the due time it was started for, as it says itself; zero: none
	Triggered bool      // started by hand, under the concurrency policy
	Result    Result
	Ended     time.Time // zero: not yet, or nobody knows
}

// Result says how a Job ended.
type Result string

// The results. The first two are told by the Job itself and are the condition types of a batch/v1 Job.
const (
	Running  Result = ""
	Complete Result = "Complete"
	Failed   Result = "Failed"
	Replaced Result = "Replaced" // deleted to make room for the next
	Gone     Result = "Gone"     // deleted by somebody while it ran
)

// finished reports whether the Job has ended by itself.
func (c *Child) finished() bool { return c.Result != Running }

// scheduledBy reports whether c is the Job that the CronJob of that name starts for c.Due.
func (c *Child) scheduledBy(cronJob string) bool {
	return !c.Due.IsZero() && c.Name == JobName(cronJob, c.Due)
}
