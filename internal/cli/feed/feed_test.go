// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/cli/feed"
)

// step is one answer of the scripted server: to a list if list or listErr is set, else to a watch.
type step struct {
	list     *batchv1.JobList
	listErr  error
	watchErr error
	events   []watch.Event
	stays    bool // the watch does not end by itself
}

// server answers requests as its script says, and notes them.
type server struct {
	steps []step
	asked []string
}

func (s *server) next(request string) (step, bool) {
	s.asked = append(s.asked, request)
	if len(s.steps) == 0 {
		return step{}, false
	}
	now := s.steps[0]
	s.steps = s.steps[1:]
	return now, true
}

func (s *server) List(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	now, _ := s.next(strings.TrimSpace("list " + opts.FieldSelector + opts.LabelSelector))
	if now.list == nil && now.listErr == nil {
		return nil, errors.New("the script has no list here")
	}
	return now.list, now.listErr
}

func (s *server) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	now, ok := s.next("watch from " + opts.ResourceVersion)
	switch {
	case !ok:
		return watch.NewFake(), nil // silent from here on
	case now.watchErr != nil:
		return nil, now.watchErr
	}
	w := watch.NewFakeWithChanSize(len(now.events), false)
	for _, e := range now.events {
		w.Action(e.Type, e.Object)
	}
	if !now.stays {
		w.Stop()
	}
	return w, nil
}

func job(name, uid, version string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid), ResourceVersion: version}}
}

func list(version string, jobs ...*batchv1.Job) *batchv1.JobList {
	l := &batchv1.JobList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, j := range jobs {
		l.Items = append(l.Items, *j)
	}
	return l
}

func modified(j *batchv1.Job) watch.Event { return watch.Event{Type: watch.Modified, Object: j} }

func deleted(j *batchv1.Job) watch.Event { return watch.Event{Type: watch.Deleted, Object: j} }

func bookmark(version string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: job("", "", version)}
}

func failure(err apierrors.APIStatus) watch.Event {
	status := err.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

var errAway = errors.New("connection refused")

func TestRun(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "", errors.New("no"))
	cases := map[string]struct {
		feed   feed.Feed
		steps  []step
		events []string
		asked  []string
		lost   int
		err    string // "" means that the feed goes on for ever
		took   time.Duration
	}{
		"the present state comes first, then what changes": {
			steps: []step{
				{list: list("5", job("a", "1", "3"), job("b", "2", "4"))},
				{events: []watch.Event{modified(job("a", "1", "6")), deleted(job("b", "2", "7"))}, stays: true},
			},
			events: []string{"present a 3", "present b 4", "synced", "present a 6", "gone b 7"},
			asked:  []string{"list", "watch from 5"},
		},
		"a watch that ends is taken up where it stopped": {
			steps: []step{
				{list: list("5")},
				{events: []watch.Event{modified(job("a", "1", "6")), bookmark("8")}},
				{events: []watch.Event{modified(job("a", "1", "9"))}, stays: true},
			},
			events: []string{"synced", "present a 6", "present a 9"},
			asked:  []string{"list", "watch from 5", "watch from 8"},
		},
		"one object may be followed among many": {
			feed: feed.Feed{Name: "a"},
			steps: []step{
				{list: list("5", job("a", "1", "3"), job("b", "2", "4"))},
				{events: []watch.Event{modified(job("b", "2", "6")), modified(job("a", "1", "7"))}, stays: true},
			},
			events: []string{"present a 3", "synced", "present a 7"},
			asked:  []string{"list metadata.name=a", "watch from 5"},
		},
		"labels choose on the server": {
			feed:  feed.Feed{Labels: "x=y"},
			steps: []step{{list: list("5")}}, events: []string{"synced"},
			asked: []string{"list x=y", "watch from 5"},
		},
		"a known state saves the list": {
			feed: feed.Feed{Name: "a", Known: job("a", "1", "3")},
			steps: []step{
				{events: []watch.Event{modified(job("a", "1", "6"))}, stays: true},
			},
			events: []string{"present a 3", "synced", "present a 6"},
			asked:  []string{"watch from 3"},
		},
		"a forgotten place means to list again, and what has vanished is gone": {
			steps: []step{
				{list: list("5", job("a", "1", "3"), job("b", "2", "4"), job("c", "3", "4"))},
				{events: []watch.Event{failure(expired)}},
				{list: list("50", job("a", "1", "40"), job("c", "33", "41"))},
				{stays: true},
			},
			events: []string{
				"present a 3", "present b 4", "present c 4", "synced",
				"present a 40", "present c 41", "gone b 4", "gone c 4",
			},
			asked: []string{"list", "watch from 5", "list", "watch from 50"},
		},
		"a forgotten place may also be the answer to the request": {
			steps: []step{
				{list: list("5", job("a", "1", "3"))},
				{watchErr: expired},
				{list: list("50")},
				{stays: true},
			},
			events: []string{"present a 3", "synced", "gone a 3"},
			asked:  []string{"list", "watch from 5", "list", "watch from 50"},
		},
		"an absence that is short enough is sat out": {
			feed: feed.Feed{Patience: time.Minute},
			steps: []step{
				{list: list("5")},
				{watchErr: errAway},
				{watchErr: errAway},
				{events: []watch.Event{modified(job("a", "1", "6"))}, stays: true},
			},
			events: []string{"synced", "present a 6"},
			asked:  []string{"list", "watch from 5", "watch from 5", "watch from 5"},
			lost:   2,
		},
		"an absence that is too long ends the feed": {
			feed: feed.Feed{Patience: 300 * time.Millisecond},
			steps: []step{
				{list: list("5")},
				{watchErr: errAway},
				{watchErr: errAway},
				{watchErr: errAway},
			},
			events: []string{"synced"},
			asked:  []string{"list", "watch from 5", "watch from 5", "watch from 5"},
			lost:   2, err: "the server has not answered for 0s: connection refused", took: 300 * time.Millisecond,
		},
		"a server that was never there is no absence": {
			steps: []step{{listErr: errAway}},
			asked: []string{"list"}, err: "connection refused",
		},
		"a refusal ends the feed at once": {
			steps: []step{
				{list: list("5")},
				{watchErr: forbidden},
			},
			events: []string{"synced"},
			asked:  []string{"list", "watch from 5"}, err: forbidden.Error(),
		},
		"an error within a watch is tried again": {
			steps: []step{
				{list: list("5")},
				{events: []watch.Event{failure(apierrors.NewInternalError(errors.New("oops")))}},
				{stays: true},
			},
			events: []string{"synced"},
			asked:  []string{"list", "watch from 5", "watch from 5"},
			lost:   1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{steps: tc.steps}
				f := tc.feed
				f.Source, f.Clock = s, clock.RealClock{}
				lost := 0
				f.Lost = func(error) { lost++ }
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var events []string
				err := f.Run(ctx, func(e feed.Event) bool {
					events = append(events, describe(e))
					return false
				})
				if tc.err == "" && !errors.Is(err, context.DeadlineExceeded) || tc.err != "" && (err == nil || err.Error() != tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				if took := time.Since(began); tc.err != "" && took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				if diff := cmp.Diff(tc.events, events); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.asked, s.asked); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				if lost != tc.lost {
					t.Errorf("was told %d times that the server is away, want %d", lost, tc.lost)
				}
			})
		})
	}
}

func describe(e feed.Event) string {
	kind := map[feed.EventType]string{feed.Present: "present", feed.Gone: "gone", feed.Synced: "synced"}[e.Type]
	if j, ok := e.Object.(*batchv1.Job); ok {
		return fmt.Sprintf("%s %s %s", kind, j.Name, j.ResourceVersion)
	}
	return kind
}

func TestRunEndsWhenToldEnough(t *testing.T) {
	steps := func() []step {
		return []step{
			{list: list("5", job("a", "1", "3"), job("b", "2", "4"))},
			{events: []watch.Event{modified(job("a", "1", "6")), modified(job("a", "1", "7"))}, stays: true},
		}
	}
	for enough := 1; enough <= 5; enough++ {
		t.Run(fmt.Sprintf("after %d events", enough), func(t *testing.T) {
			n := 0
			f := feed.Feed{Source: &server{steps: steps()}, Clock: clock.RealClock{}}
			err := f.Run(t.Context(), func(feed.Event) bool {
				n++
				return n == enough
			})
			if err != nil || n != enough {
				t.Errorf("%d events and error %v, want %d and none", n, err, enough)
			}
		})
	}
}

func TestRunBeginsAnewWhenAWatchStaysSilentBeyondItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{steps: []step{
			{list: list("5")},
			{stays: true}, // a connection that broke without a word
			{events: []watch.Event{modified(job("a", "1", "6"))}, stays: true},
		}}
		began := time.Now()
		f := feed.Feed{Source: s, Clock: clock.RealClock{}}
		err := f.Run(t.Context(), func(e feed.Event) bool { return e.Type == feed.Present })
		if err != nil {
			t.Errorf("running: %v", err)
		}
		if took := time.Since(began); took > 6*time.Minute {
			t.Errorf("noticed only after %v", took)
		}
		if diff := cmp.Diff([]string{"list", "watch from 5", "watch from 5"}, s.asked); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestRunDoesNotHammerAServerWhoseWatchesEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{steps: append([]step{{list: list("5")}}, make([]step, 1000)...)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f := feed.Feed{Source: s, Clock: clock.RealClock{}}
		if err := f.Run(ctx, func(feed.Event) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("running: %v, want it to go on until the deadline", err)
		}
		if n := len(s.asked); n > 25 {
			t.Errorf("%d requests in a minute", n)
		}
	})
}
