// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatMayWaitWaitsForTheEndOfTheRush(t *testing.T) {
	var r rush
	leave := func() string {
		key, any := r.leave()
		if any != (key != "") {
			t.Errorf("key %q, any %v", key, any)
		}
		return key
	}
	r.enter()
	r.enter()
	if r.hold("early") {
		t.Errorf("two syncs are a rush")
	}
	r.enter()
	r.enter()
	for _, key := range []string{"first", "second", "first", "forgotten", "third"} {
		if !r.hold(key) {
			t.Errorf("four syncs are no rush for %q", key)
		}
	}
	r.forget("forgotten")
	r.forget("nobody")

	// The second to last sync leaves room for one, which is a sync of its own, and so on.
	got := []string{leave(), leave(), leave(), leave()}
	if diff := cmp.Diff([]string{"", "", "first", "second"}, got); diff != "" {
		t.Errorf("handed out (-want +got):\n%s", diff)
	}
	r.enter()
	if got := leave(); got != "third" {
		t.Errorf("then comes %q, want the third", got)
	}
	r.enter()
	if got := leave(); got != "" {
		t.Errorf("%q comes after all have come", got)
	}
}

func TestARushThatDoesNotEndTakesNoMoreAndMoreMemory(t *testing.T) {
	var r rush
	for range calmSyncs + 1 {
		r.enter()
	}
	for i := range 10_000 {
		if !r.hold(strconv.Itoa(i)) {
			t.Fatal("it is no rush")
		}
		r.forget(strconv.Itoa(i - 10)) // by then its end is told
	}
	if n := max(len(r.order), len(r.held)); n > 100 {
		t.Errorf("%d keys are kept for 10 that wait", n)
	}
}
