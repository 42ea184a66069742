// SPDX-License-Identifier: Apache-2.0

// Package feed tells a command how objects change, from their present state until the command has seen enough. It hides
// that a watch ends now and then: it takes up a broken one where it stopped, lists again when the server has forgotten
// that point, and notices what was deleted in between. It gives up when the server stays away. Start reading at Feed.Run.
package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// DefaultPatience is for how long a feed tries to reach a server that it has reached before: long enough for a restart
// of a plane or the update of a cluster's API server.
const DefaultPatience = 2 * time.Minute

const (
	firstPause = 100 * time.Millisecond // before the first new attempt; doubled for each that follows
	longPause  = 5 * time.Second        // the longest pause, and how long a watch must live to count as sound
	watchLife  = 5 * time.Minute        // after which the server is asked to end a watch
	watchGrace = 30 * time.Second       // after which a watch that should have ended is taken for dead
)

// Source lists and watches the objects. Clients of one kind and namespace are sources.
type Source interface {
	List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// EventType is what an Event tells.
type EventType int

// The event types.
const (
	Present EventType = iota // the object is there, in this state
	Synced                   // every object that was there at first has been told; sent once, without object
	Gone                     // the object was deleted; this is its last known state
)

// Event is one piece of news.
type Event struct {
	Type   EventType
	Object runtime.Object
}

// Feed says which objects to follow and how. The zero values of all but Source and Clock are useful.
type Feed struct {
	Source Source
	Clock  clock.WithTicker

	Name   string // only the object of that name
	Labels string // only objects that this label selector matches

	// Known is the state from which to follow a single object, instead of asking for it: a fresh answer of the server.
	Known runtime.Object

	Patience time.Duration // 0 means DefaultPatience
	Lost     func(error)   // told when the server is first found missing and at each later failure; may be nil
}

// Run calls each with every event, one after another, until it returns true, and then returns nil. It returns ctx's
// error when ctx ends, and any other when the objects cannot be followed: at once if the server never answered or
// refuses, otherwise once Patience has passed without an answer.
func (f Feed) Run(ctx context.Context, each func(Event) (enough bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := run{Feed: f, each: each, known: map[types.UID]runtime.Object{}}
	if r.Patience == 0 {
		r.Patience = DefaultPatience
	}
	if f.Known != nil {
		if err := r.startFrom(f.Known); err != nil {
			return err
		}
	}
	for !r.enough {
		began := r.Clock.Now()
		err := r.once(ctx)
		switch {
		case r.enough:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !r.reached || isRefusal(err):
			return err
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			r.version = ""
		case err == nil && r.Clock.Since(began) >= longPause:
			r.pause = 0 // a sound watch that has come to its end
			continue
		}
		if err := r.rest(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// run is the state of one Run.
type run struct {
	Feed
	each   func(Event) bool
	enough bool

	version string                       // where to go on watching; "" if all must be listed first
	known   map[types.UID]runtime.Object // what each was told to be present
	synced  bool

	reached bool          // the server has answered at least once
	lostAt  time.Time     // since when it does not; zero if it does
	pause   time.Duration // the last pause
}

func (r *run) startFrom(o runtime.Object) error {
	object, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("reading the known state: %w", err)
	}
	r.version, r.reached, r.synced = object.GetResourceVersion(), true, true
	r.present(o, object)
	if !r.enough {
		r.enough = r.each(Event{Type: Synced})
	}
	return nil
}

// once lists if need be and watches until the watch ends. A nil error means that it ended as watches do.
func (r *run) once(ctx context.Context) error {
	if r.version == "" {
		if err := r.list(ctx); err != nil || r.enough {
			return err
		}
	}
	return r.watch(ctx)
}

func (r *run) options() metav1.ListOptions {
	opts := metav1.ListOptions{LabelSelector: r.Labels}
	if r.Name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, r.Name).String()
	}
	return opts
}

func (r *run) list(ctx context.Context) error {
	list, err := r.Source.List(ctx, r.options())
	if err != nil {
		return err
	}
	r.answered()
	listed, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("reading the list: %w", err)
	}
	gone := r.known
	r.known = map[types.UID]runtime.Object{}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		if err != nil || r.enough || !r.wants(object) {
			return err
		}
		delete(gone, object.GetUID())
		r.present(o, object)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the list: %w", err)
	}
	for _, o := range slices.SortedFunc(maps.Values(gone), byName) {
		if !r.enough {
			r.enough = r.each(Event{Type: Gone, Object: o})
		}
	}
	if !r.synced && !r.enough {
		r.synced = true
		r.enough = r.each(Event{Type: Synced})
	}
	r.version = listed.GetResourceVersion()
	return nil
}

// byName orders objects that have all been read as metav1.Object before.
func byName(a, b runtime.Object) int {
	x, y := a.(metav1.Object), b.(metav1.Object)
	return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
}

func (r *run) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts := r.options()
	opts.ResourceVersion = r.version
	opts.AllowWatchBookmarks = true
	seconds := int64(watchLife / time.Second)
	opts.TimeoutSeconds = &seconds
	w, err := r.Source.Watch(ctx, opts)
	if err != nil {
		return err
	}
	defer w.Stop()
	r.answered()
	dead := r.Clock.NewTimer(watchLife + watchGrace)
	defer dead.Stop()
	for !r.enough {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-dead.C():
			return nil // the connection is silent beyond its time: begin a new one
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if err := r.handle(event); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) handle(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("reading a watch event: %w", err)
	}
	r.version = object.GetResourceVersion()
	r.pause = 0
	if event.Type == watch.Bookmark || !r.wants(object) {
		return nil
	}
	if event.Type == watch.Deleted {
		delete(r.known, object.GetUID())
		r.enough = r.each(Event{Type: Gone, Object: event.Object})
		return nil
	}
	r.present(event.Object, object)
	return nil
}

// wants repeats the choice by name, for sources that do not filter.
func (r *run) wants(o metav1.Object) bool { return r.Name == "" || r.Name == o.GetName() }

func (r *run) present(o runtime.Object, object metav1.Object) {
	r.known[object.GetUID()] = o
	r.enough = r.each(Event{Type: Present, Object: o})
}

func (r *run) answered() {
	r.reached = true
	r.lostAt = time.Time{}
}

// rest waits before the next attempt, or returns the error that ends the feed. err is nil if the last watch was merely
// short.
func (r *run) rest(ctx context.Context, err error) error {
	if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		if r.lostAt.IsZero() {
			r.lostAt = r.Clock.Now()
		}
		if away := r.Clock.Since(r.lostAt); away >= r.Patience {
			return fmt.Errorf("the server has not answered for %s: %w", away.Round(time.Second), err)
		}
		if r.Lost != nil {
			r.Lost(err)
		}
	}
	r.pause = min(max(firstPause, 2*r.pause), longPause)
	timer := r.Clock.NewTimer(r.pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// isRefusal reports whether asking again is pointless.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		errors.Is(err, context.Canceled)
}
