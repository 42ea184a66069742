// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/job"
)

// jobState is what is remembered of one Job, by UID, between its syncs. All of it can be had again from the API server; after
// a restart it is.
type jobState struct {
	mistakes string       // in annotations, as last told
	groups   job.Grouping // written by us; the caches may not have it yet
	mu       sync.Mutex
	pending  []podChange        // what the watch has told since the last sync, oldest first
	written  string             // resource version of our last status write
	closing  bool               // the status that ends the Job is being written, and its pods are being let go
	created  map[types.UID]bool // made by us; the watch has not told of them yet

	// What follows belongs to the worker that syncs the Job; the queue gives a key to one worker at a time.

	ledger *job.Ledger
	stored *batchv1.Job // the Job with the last status that we wrote
	// unresolved are creations whose answer was lost, by the name of the pod.
	unresolved map[string]job.Creation

	lastWrite  time.Time // of the status
	dirtySince time.Time // since when the stored status has said less than it should; zero: it says all
	refusal    string    // why the last creation was refused, so that it is told once
	refusals   int       // how often in a row
}

// podChange is one message of the watch.
type podChange struct {
	pod  *corev1.Pod
	gone bool
}

func (s *jobState) note(c podChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, c)
}

func (s *jobState) setWritten(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = version
}

// wrote reports whether our last status write has made that version.
func (s *jobState) wrote(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written == version
}

func (s *jobState) setClosing(closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = closing
}

func (s *jobState) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// expect notes that the watch will tell of a pod that we have made.
func (s *jobState) expect(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.created == nil {
		s.created = map[types.UID]bool{}
	}
	s.created[uid] = true
}

// expected reports whether a pod that the watch tells of is one that we have made and know of already.
func (s *jobState) expected(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.created[uid]
	delete(s.created, uid)
	return known
}

// catchUp brings the ledger up to what the watch has told.
func (s *jobState) catchUp() {
	s.mu.Lock()
	changes := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, c := range changes {
		if c.gone {
			s.ledger.Gone(c.pod.UID)
		} else {
			s.ledger.Observe(c.pod)
		}
	}
}

// newest returns the later of what the cache holds and what we have written ourselves.
func (s *jobState) newest(cached *batchv1.Job) *batchv1.Job {
	if s.stored == nil || s.stored.UID != cached.UID {
		return cached
	}
	if isAsNew(cached, s.stored) {
		s.stored = nil
		return cached
	}
	return s.stored
}

// jobStates holds the states of all Jobs that go on. It is safe for concurrent use.
type jobStates struct {
	mu    sync.Mutex
	byUID map[types.UID]*jobState
	// ended are UIDs of Jobs that are known to be gone; a UID never comes back. It is bounded by maxEnded.
	ended      map[types.UID]bool
	endedOrder []types.UID
}

const maxEnded = 1 << 14

func newJobStates() *jobStates {
	return &jobStates{byUID: map[types.UID]*jobState{}, ended: map[types.UID]bool{}}
}

// manyJobs is from how many Jobs at work on they share the API server so thinly that a quick one takes longer than GaugeDelay.
const manyJobs = 32

// gaugeDelay returns how long a mere number may be behind now.
func (c *JobController) gaugeDelay() time.Duration {
	if c.states.len() >= manyJobs {
		return 4 * c.cfg.GaugeDelay
	}
	return c.cfg.GaugeDelay
}

// len returns how many Jobs are at work.
func (s *jobStates) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byUID)
}

func (s *jobStates) get(uid types.UID) *jobState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUID[uid]
}

// begin returns the state of uid, and whether it was made by this call; nil where the Job is known to be gone.
func (s *jobStates) begin(uid types.UID) (state *jobState, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.byUID[uid]; state != nil {
		return state, false
	}
	if s.ended[uid] {
		return nil, false
	}
	state = &jobState{unresolved: map[string]job.Creation{}}
	s.byUID[uid] = state
	return state, true
}

func (s *jobStates) drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byUID, uid)
}

// end notes that the Job with that UID is gone.
func (s *jobStates) end(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byUID, uid)
	if s.ended[uid] {
		return
	}
	s.ended[uid] = true
	s.endedOrder = append(s.endedOrder, uid)
	if len(s.endedOrder) > maxEnded {
		delete(s.ended, s.endedOrder[0])
		s.endedOrder = s.endedOrder[1:]
	}
}

func (s *jobStates) hasEnded(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[uid]
}
