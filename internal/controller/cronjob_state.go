// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/cronjob"
)

// cronState is what is remembered of one CronJob between its turns. All of it can be had again from the API server.
type cronState[C apiObject] struct {
	uid types.UID

	mu      sync.Mutex
	writing bool              // a write of ours is under way
	written string            // resource version of our last write
	told    []string          // versions that the watch has told of while it was
	making  map[string]making // Jobs that we create, by name, until both the answer has come and the watch has told of them

	// What follows belongs to the worker whose turn it is; the queue gives a key to one worker at a time.

	stored     C      // newer than what the cache holds: the answer to a write of ours; nil: nothing is
	decided    string // the version on which it was last decided what it needs
	rules      *cronjob.Rules
	rulesFrom  rulesSource
	memory     cronjob.Memory
	afterStore bool // it is to be looked at once its status is stored
	failures   int  // of writes, in a row
}

// rulesSource is what Rules were read from.
type rulesSource struct {
	generation int64
	notes      map[string]string
}

// ruleNotes are the annotations that rules are read from.
var ruleNotes = [...]string{
	cronjob.AnnotationDST, cronjob.AnnotationCatchUp, cronjob.AnnotationCatchUpLimit, cronjob.AnnotationSpread,
	cronjob.AnnotationOnEdit, cronjob.AnnotationConcurrency, cronjob.AnnotationMaxActive,
}

func rulesSourceOf(c *cronjob.CronJob) rulesSource {
	s := rulesSource{generation: c.Generation}
	for _, key := range ruleNotes {
		if v, ok := c.Annotations[key]; ok {
			if s.notes == nil {
				s.notes = make(map[string]string, 1)
			}
			s.notes[key] = v
		}
	}
	return s
}

func (s rulesSource) equal(o rulesSource) bool {
	return s.generation == o.generation && maps.Equal(s.notes, o.notes)
}

// beginWrite notes that the watch may tell of a write of ours before its answer comes.
func (s *cronState[C]) beginWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = true
}

// endWrite notes the version that a write has made, "" if it made none, and returns others of which the watch has told
// meanwhile.
func (s *cronState[C]) endWrite(version string) (others []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
	if version != "" {
		s.written = version
	}
	for _, v := range s.told {
		if v != s.written {
			others = append(others, v)
		}
	}
	s.told = nil
	return others
}

// beginStart notes that the watch will tell of a Job that we create.
func (s *cronState[C]) beginStart(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making == nil || len(s.making) > maxMaking {
		s.making = map[string]making{}
	}
	s.making[job] = making{}
}

// endStart notes whether it was created, and reports whether the watch has told of it although that is not known.
func (s *cronState[C]) endStart(job string, created bool) (seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen = s.making[job].seen
	if seen || !created {
		delete(s.making, job)
	} else {
		s.making[job] = making{answered: true}
	}
	return seen && !created
}

// expected reports whether a new Job that the watch tells of is one that we create, so that it is no news.
func (s *cronState[C]) expected(job string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.making[job]
	switch {
	case m.answered:
		delete(s.making, job)
	case ok:
		s.making[job] = making{seen: true}
	}
	return ok
}

// forgetUnseen reports whether there are Jobs that we have created and that the watch has not told of by now, and expects none of them
// any more: one that is deleted while a watch is broken off is never told of.
func (s *cronState[C]) forgetUnseen() (unseen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for job, m := range s.making {
		if m.answered {
			delete(s.making, job)
			unseen = true
		}
	}
	return unseen
}

// making says how far the creation of a Job has come.
type making struct{ answered, seen bool }

// maxMaking bounds how many creations are remembered; beyond it, remembering starts afresh.
const maxMaking = 64

// isNews reports whether a version that the watch tells of is to be looked at now. While a write is under way that shows only
// when it ends.
func (s *cronState[C]) isNews(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		s.told = append(s.told, version)
		return false
	}
	return version != s.written
}

// newest returns the later of what the cache holds and what we have written ourselves.
func (s *cronState[C]) newest(cached C) C {
	var nothing C
	if s.stored == nothing {
		return cached
	}
	if isAsNew(cached, s.stored) {
		s.stored = nothing
		return cached
	}
	return s.stored
}

// cronStates holds the states of all CronJobs by key. It is safe for concurrent use.
type cronStates[C apiObject] struct {
	mu    sync.Mutex
	byKey map[string]*cronState[C]
}

func newCronStates[C apiObject]() *cronStates[C] {
	return &cronStates[C]{byKey: map[string]*cronState[C]{}}
}

// of returns the state of the CronJob with that key and UID, a new one if there was none or that of another UID.
func (s *cronStates[C]) of(key string, uid types.UID) *cronState[C] {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byKey[key]
	if state == nil || state.uid != uid {
		state = &cronState[C]{uid: uid}
		s.byKey[key] = state
	}
	return state
}

// get returns the state of the CronJob with that key, or nil.
func (s *cronStates[C]) get(key string) *cronState[C] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key]
}

func (s *cronStates[C]) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, key)
}

// keys returns every key, in order.
func (s *cronStates[C]) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.byKey))
}

// crowd counts the CronJobs whose time has come of late, to tell a quiet minute from a full one. It is safe for concurrent use.
type crowd struct {
	mu           sync.Mutex
	since        time.Time
	before, here int
}

// crowdPeriod is how far back a crowd is felt, at least; at most it is twice as long.
const crowdPeriod = 20 * time.Second

func (w *crowd) add(now time.Time, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(now)
	w.here += n
}

// size returns how many there were.
func (w *crowd) size(now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(now)
	return w.before + w.here
}

func (w *crowd) turn(now time.Time) {
	switch passed := now.Sub(w.since); {
	case passed >= 2*crowdPeriod, passed < 0:
		w.since, w.before, w.here = now, 0, 0
	case passed >= crowdPeriod:
		w.since, w.before, w.here = w.since.Add(crowdPeriod), w.here, 0
	}
}
