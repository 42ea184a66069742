// SPDX-License-Identifier: Apache-2.0

// Package eventqueue writes Kubernetes events behind the backs of those who tell them.
//
// client-go's recorders send one event after the other and lose what comes while a thousand wait. In a plane events give way to work
// for some seconds, so there is a longer queue in front of the API server. What it cannot write it gives up after a while: an event
// is a courtesy.
//
// Start reading at Sink.
package eventqueue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
)

const (
	// room is how many events may wait to be written; whoever tells one more waits.
	room = 20_000
	// tries is how often a write is tried that did not reach the API server, pause the time between two.
	tries = 10
	pause = time.Second
	// lastWords is how long a process that stops goes on writing.
	lastWords = time.Second
)

// Sink is a record.EventSink that writes events in the order in which they come, and lets nobody wait for it.
type Sink struct {
	sink  record.EventSink
	queue chan func() error
	log   *slog.Logger
}

// New returns a queue before sink, which writes nothing until Run.
func New(sink record.EventSink, log *slog.Logger) *Sink {
	return &Sink{sink: sink, queue: make(chan func() error, room), log: log}
}

// Create implements record.EventSink.
func (s *Sink) Create(e *corev1.Event) (*corev1.Event, error) {
	s.queue <- func() error { _, err := s.sink.Create(e); return err }
	return e, nil
}

// Update implements record.EventSink.
func (s *Sink) Update(e *corev1.Event) (*corev1.Event, error) {
	s.queue <- func() error { _, err := s.sink.Update(e); return err }
	return e, nil
}

// Patch implements record.EventSink. An event that is gone meanwhile is made again.
func (s *Sink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	s.queue <- func() error {
		_, err := s.sink.Patch(e, data)
		if apierrors.IsNotFound(err) {
			again := e.DeepCopy()
			again.ResourceVersion = ""
			_, err = s.sink.Create(again)
		}
		return err
	}
	return e, nil
}

// Run writes until ctx ends, and then, for a short time, what has been told before. A write that hangs by then is left behind.
func (s *Sink) Run(ctx context.Context) {
	words, silence := context.WithCancel(context.WithoutCancel(ctx))
	defer silence()
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.writeAll(ctx, words)
	}()
	<-ctx.Done()
	last := time.NewTimer(lastWords)
	defer last.Stop()
	select {
	case <-written:
	case <-last.C:
	}
}

// writeAll writes until ctx ends, and then what is in the queue until words ends.
func (s *Sink) writeAll(ctx, words context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case write := <-s.queue:
			s.write(ctx, write)
		}
	}
	for words.Err() == nil {
		select {
		case write := <-s.queue:
			_ = write() // nobody can be told, and there is no time to try again
		default:
			return
		}
	}
}

func (s *Sink) write(ctx context.Context, write func() error) {
	for try := 1; ; try++ {
		err := write()
		var told apierrors.APIStatus
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.As(err, &told) || try == tries { // the API server has said no, as it does while a namespace goes away
			s.log.Debug("An event was not written", "err", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
