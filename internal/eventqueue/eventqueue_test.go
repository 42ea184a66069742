// SPDX-License-Identifier: Apache-2.0

package eventqueue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventStore is an API server's events.
type eventStore struct {
	mu     sync.Mutex
	told   []string
	answer func(what string) error
}

func (s *eventStore) tell(what, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what+" "+name)
	if s.answer != nil {
		return s.answer(what)
	}
	return nil
}

func (s *eventStore) Create(e *corev1.Event) (*corev1.Event, error) {
	return e, s.tell("create", e.Name)
}

func (s *eventStore) Update(e *corev1.Event) (*corev1.Event, error) {
	return e, s.tell("update", e.Name)
}

func (s *eventStore) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) {
	return e, s.tell("patch", e.Name)
}

func newEvent(name string) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestEventsAreWritten(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "a")
	unreachable := errors.New("connection refused")
	cases := map[string]struct {
		answer func(tries map[string]int, what string) error
		want   []string
	}{
		"in their order":                              {nil, []string{"create a", "patch a", "create b"}},
		"again when one has gone meanwhile":           {func(_ map[string]int, what string) error { return when(what == "patch", gone) }, []string{"create a", "patch a", "create a", "create b"}},
		"again when the API server was out of reach":  {func(tries map[string]int, _ string) error { return when(tries["create"] == 1, unreachable) }, []string{"create a", "create a", "patch a", "create b"}},
		"not again when the API server says no to it": {func(tries map[string]int, what string) error { return when(what == "create", gone) }, []string{"create a", "patch a", "create b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := map[string]int{}
				store := &eventStore{}
				if tc.answer != nil {
					store.answer = func(what string) error {
						tries[what]++
						return tc.answer(tries, what)
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				s := New(store, slog.New(slog.DiscardHandler))
				var running sync.WaitGroup
				running.Go(func() { s.Run(ctx) })
				for _, write := range []func() (*corev1.Event, error){
					func() (*corev1.Event, error) { return s.Create(newEvent("a")) },
					func() (*corev1.Event, error) { return s.Patch(newEvent("a"), nil) },
					func() (*corev1.Event, error) { return s.Create(newEvent("b")) },
				} {
					if _, err := write(); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Minute)
				stop()
				running.Wait()
				if diff := cmp.Diff(tc.want, store.told); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func when(yes bool, err error) error {
	if yes {
		return err
	}
	return nil
}

func TestEventsToldBeforeAStopAreWritten(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	store := &eventStore{}
	s := New(store, slog.New(slog.DiscardHandler))
	if _, err := s.Create(newEvent("a")); err != nil {
		t.Fatal(err)
	}
	s.Run(ctx)
	if diff := cmp.Diff([]string{"create a"}, store.told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAStopDoesNotWaitForAnEventThatHangs: a plane that was stopped in a rush, where events have to wait, took more than 10 s.
func TestAStopDoesNotWaitForAnEventThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		store := &eventStore{answer: func(string) error { <-hang; return nil }}
		ctx, stop := context.WithCancel(t.Context())
		s := New(store, slog.New(slog.DiscardHandler))
		for _, name := range []string{"a", "b"} {
			if _, err := s.Create(newEvent(name)); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(time.Minute, stop)
		begin := time.Now()
		s.Run(ctx)
		if took := time.Since(begin); took != time.Minute+lastWords {
			t.Errorf("Run took %v, want %v", took, time.Minute+lastWords)
		}
		close(hang)
		synctest.Wait()
		if diff := cmp.Diff([]string{"create a"}, store.told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
