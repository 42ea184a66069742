// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

const eventsPath = "/api/v1/namespaces/default/events"

// writes begins n writes of Jobs and returns what ends them.
func writes(t *testing.T, y *Yield, n int) (end func()) {
	t.Helper()
	var ends []func()
	for range n {
		ends = append(ends, y.pass(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apis/batch/v1/namespaces/default/jobs", nil)))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// event sends one, and returns a channel that is closed once it has gone through.
func event(t *testing.T, y *Yield) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		y.pass(httptest.NewRequestWithContext(t.Context(), http.MethodPost, eventsPath, nil))()
	}()
	synctest.Wait()
	return done
}

func through(done <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestEventsOfACalmServerGoThroughAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yield
		defer writes(t, &y, calmWrites)()
		if !through(event(t, &y)) {
			t.Error("an event waits although there is next to nothing to do")
		}
	})
}

func TestEventsComeAfterARush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yield
		end := writes(t, &y, 20)
		first, second := event(t, &y), event(t, &y)
		time.Sleep(longestYield / 2)
		if through(first) {
			t.Error("an event went through in the middle of the rush")
		}
		end()
		if !through(first) || !through(second) {
			t.Error("events wait after the rush")
		}
	})
}

func TestEventsOfARushThatGoesOnComeInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yield
		defer writes(t, &y, 20)()
		first := event(t, &y)
		time.Sleep(longestYield)
		if !through(first) {
			t.Errorf("an event still waits after %v", longestYield)
		}
		if !through(event(t, &y)) {
			t.Error("the next one waits, although all may go through now")
		}
		time.Sleep(openAfter + time.Second)
		if through(event(t, &y)) {
			t.Error("events go through for ever")
		}
	})
}

func TestIsEvent(t *testing.T) {
	for path, want := range map[string]bool{
		eventsPath:          true,
		eventsPath + "/a.1": true,
		"/apis/events.k8s.io/v1/namespaces/a/events":        true,
		"/api/v1/namespaces/events/pods":                    false,
		"/api/v1/namespaces/a/pods/events":                  false,
		"/apis/batch/v1/namespaces/a/jobs/events":           false,
		"/apis/events.example.com/v1/namespaces/a/eventsof": false,
	} {
		if got := isEvent(path); got != want {
			t.Errorf("isEvent(%s) = %v, want %v", path, got, want)
		}
	}
}
