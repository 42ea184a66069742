// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

type uid = types.UID

// vcjobState is what is remembered of one Job, by UID, between its syncs. All of it can be had again from the API server, but for
// what was done to pods in the last moments; see vcjob.Lost.
type vcjobState struct {
	mu           sync.Mutex
	written      string       // resource version of our last status write
	over         string       // resource version of the Job for which the last sync has left nothing to do; "": there is something
	groupMade    string       // resource version of the PodGroup that we have made
	gone         []vcjob.Gone // what others have deleted and nobody has acted upon
	unknownSince time.Time    // when the PodGroup was seen to become Unknown
	expect       map[uid]bool // pods made by us that the watch has not told of yet
	doomed       map[uid]bool // pods marked by us that the watch has not told the end of yet
	lastSync     time.Time
	pods         int // how many there were then

	// What follows belongs to the worker that syncs the Job; the queue gives a key to one worker at a time.

	stored *batch.Job // newer than the cache
	unsure bool       // the answer to a status write was lost: the stored Job must be read
	// What our own writes have done to pods, until the watch tells of it.
	made   map[uid]*corev1.Pod
	marked map[uid]string // with the value of vcjob.RestartKey
	going  map[uid]bool
	// unresolved are names of pods whose creation was not answered.
	unresolved map[string]bool
	taken      map[string]string // names that other pods have, with the version of which that is known

	group     *scheduling.PodGroup // as we have written it last
	native    *schedulingv1beta1.PodGroup
	groupGone uid          // that we have deleted
	handled   map[uid]bool // Commands that we have deleted

	prepared   string // for which claims and objects were made
	dropped    bool   // the plugins' objects are gone
	refusal    string
	refusedFor string
	refusals   int
	retryAt    time.Time // not before then is a refused creation tried again

	lastWrite  time.Time       // of the status
	dirtySince time.Time       // since when the stored status says less than it should; zero: it says all
	told       map[string]bool // delayed actions and waits that were told of
}

func newVCJobState() *vcjobState {
	return &vcjobState{
		expect: map[uid]bool{}, doomed: map[uid]bool{}, made: map[uid]*corev1.Pod{}, marked: map[uid]string{}, going: map[uid]bool{},
		unresolved: map[string]bool{}, taken: map[string]string{}, handled: map[uid]bool{}, told: map[string]bool{},
	}
}

func (s *vcjobState) takenNames() map[string]bool {
	if len(s.taken) == 0 {
		return nil
	}
	names := make(map[string]bool, len(s.taken))
	for name := range s.taken {
		names[name] = true
	}
	return names
}

func (s *vcjobState) noteGone(g vcjob.Gone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.gone {
		if other.Task == g.Task && other.Index == g.Index {
			return
		}
	}
	s.gone = append(s.gone, g)
}

// wrote reports whether our last status write has made that version.
func (s *vcjobState) wrote(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written == version
}

func (s *vcjobState) setWritten(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = version
}

// isOver reports whether the last sync has left nothing to do for that version of the Job.
func (s *vcjobState) isOver(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over == version
}

func (s *vcjobState) setOver(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = version
}

func (s *vcjobState) setGroupMade(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groupMade = version
}

// madeGroup reports whether we have made that version of the PodGroup.
func (s *vcjobState) madeGroup(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groupMade == version
}

func (s *vcjobState) expected(id uid) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.expect[id]
	delete(s.expect, id)
	return known
}

// doom notes that we have marked a pod. A watch that begins anew tells of its end, and not of the mark.
func (s *vcjobState) doom(id uid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doomed[id] = true
}

// wasDoomed reports whether we had marked a pod that is gone.
func (s *vcjobState) wasDoomed(id uid) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	doomed := s.doomed[id]
	delete(s.doomed, id)
	return doomed
}

// catchUp takes over what the watch has told.
func (s *vcjobState) catchUp() (gone []vcjob.Gone, unknownSince time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]vcjob.Gone(nil), s.gone...), s.unknownSince
}

// settle forgets what was acted upon: gone pods that a stored status does not count any more, and whose places are taken or are
// not wanted.
func (s *vcjobState) settle(acted func(g vcjob.Gone) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.gone[:0]
	for _, g := range s.gone {
		if !acted(g) {
			kept = append(kept, g)
		}
	}
	s.gone = kept
}

// newest returns the later of what the cache holds and what we have written or read ourselves.
func (s *vcjobState) newest(cached *batch.Job) *batch.Job {
	if s.stored == nil || s.stored.UID != cached.UID {
		return cached
	}
	if isAsNew(cached, s.stored) {
		s.stored = nil
		return cached
	}
	return s.stored
}

// vcjobStates holds the states of all Jobs that are not over. It is safe for concurrent use.
type vcjobStates struct {
	mu    sync.Mutex
	byUID map[uid]*vcjobState
}

func (s *vcjobStates) get(id uid) *vcjobState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUID[id]
}

// begin returns the state of a Job, and whether it was made by this call.
func (s *vcjobStates) begin(id uid) (state *vcjobState, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.byUID[id]; state != nil {
		return state, false
	}
	state = newVCJobState()
	s.byUID[id] = state
	return state, true
}

func (s *vcjobStates) drop(id uid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byUID, id)
}

// withOverlay returns p as our own writes have left it.
func (s *vcjobState) withOverlay(p *corev1.Pod, now time.Time) *corev1.Pod {
	restart, marked := s.marked[p.UID]
	_, shown := p.Annotations[batch.OutOfSyncKey]
	going := s.going[p.UID] && p.DeletionTimestamp == nil
	if shown {
		delete(s.marked, p.UID)
		marked = false
	}
	if !marked && !going {
		return p
	}
	p = p.DeepCopy()
	if marked {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[batch.OutOfSyncKey] = "true"
		if restart != "" {
			p.Annotations[vcjob.RestartKey] = restart
		}
	}
	if going {
		p.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return p
}

// commandsLeft returns the Commands that we have not deleted, and forgets those that the watch does not tell of any more.
func (s *vcjobState) commandsLeft(all []any) []*bus.Command {
	var left []*bus.Command
	seen := make(map[uid]bool, len(all))
	for _, o := range all {
		c := o.(*bus.Command)
		seen[c.UID] = true
		if !s.handled[c.UID] {
			left = append(left, c)
		}
	}
	for id := range s.handled {
		if !seen[id] {
			delete(s.handled, id)
		}
	}
	return left
}
