// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// keyQueue is what a controller asks of a queue. Only workers call Get and Done.
type keyQueue interface {
	// Add asks for key to be handled as soon as possible.
	Add(key string)
	// AddAfter asks for key to be handled after d.
	AddAfter(key string, d time.Duration)
	// AddLazily asks for key to be handled after d, when nothing else waits.
	AddLazily(key string, d time.Duration)
	// AddRateLimited asks for key to be handled after a delay that grows until Forget.
	AddRateLimited(key string)
	Forget(key string)
	NumRequeues(key string) int
	Get() (key string, shutdown bool)
	Done(key string)
	ShutDown()
}

// lazyQueue is a rate-limited work queue in which a key may be lazy: it is handled only when no other key waits, but after
// maxLaziness at the latest. It is safe for concurrent use.
type lazyQueue struct {
	workqueue.TypedRateLimitingInterface[string]

	order *twoClasses
}

// maxLaziness bounds how long other work may keep a lazy key from being handled.
const maxLaziness = 2 * time.Second

// newLazyQueue returns a queue whose metrics carry that name. A key that is added rate-limited waits for the limiter's delay.
func newLazyQueue(name string, limiter workqueue.TypedRateLimiter[string], c clock.WithTicker) *lazyQueue {
	order := &twoClasses{clock: c, lazy: map[string]bool{}}
	return &lazyQueue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{
			Name:  name,
			Clock: c,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
				Name:  name,
				Clock: c,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, Clock: c, Queue: order}),
			}),
		}),
		order: order,
	}
}

// Add implements keyQueue.
func (q *lazyQueue) Add(key string) {
	q.order.setLazy(key, false)
	q.TypedRateLimitingInterface.Add(key)
}

// AddAfter implements keyQueue.
func (q *lazyQueue) AddAfter(key string, d time.Duration) {
	if d <= 0 {
		q.Add(key)
		return
	}
	q.TypedRateLimitingInterface.AddAfter(key, d)
}

// AddLazily implements keyQueue.
func (q *lazyQueue) AddLazily(key string, d time.Duration) {
	q.order.setLazy(key, true)
	q.TypedRateLimitingInterface.AddAfter(key, d)
}

// twoClasses is the order of a lazyQueue. The work queue calls Touch, Push, Len and Pop under a lock of its own.
type twoClasses struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	lazy    map[string]bool
	prompt  []string
	patient []waiting
}

type waiting struct {
	key   string
	since time.Time
}

func (t *twoClasses) setLazy(key string, lazy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lazy {
		t.lazy[key] = true
	} else {
		delete(t.lazy, key)
	}
}

// Touch moves a key that waits lazily to the others when it is added again and is not lazy any more.
func (t *twoClasses) Touch(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lazy[key] {
		return
	}
	for i, w := range t.patient {
		if w.key == key {
			t.patient = slices.Delete(t.patient, i, i+1)
			t.prompt = append(t.prompt, key)
			return
		}
	}
}

// Push adds a key that is not in the queue.
func (t *twoClasses) Push(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lazy[key] {
		delete(t.lazy, key)
		t.patient = append(t.patient, waiting{key, t.clock.Now()})
		return
	}
	t.prompt = append(t.prompt, key)
}

// Len returns how many keys wait.
func (t *twoClasses) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.prompt) + len(t.patient)
}

// Pop returns the next key; Len must be positive.
func (t *twoClasses) Pop() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	overdue := len(t.patient) > 0 && t.clock.Since(t.patient[0].since) > maxLaziness
	if len(t.prompt) == 0 || overdue {
		key := t.patient[0].key
		t.patient = t.patient[1:]
		return key
	}
	key := t.prompt[0]
	t.prompt[0] = ""
	t.prompt = t.prompt[1:]
	return key
}
