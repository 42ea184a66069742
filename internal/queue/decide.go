// SPDX-License-Identifier: Apache-2.0

// Package queue decides the state of Volcano's queues: whether they take Jobs, by the Commands that people give and by the queues
// above them.
//
//	"" ─► Open ◄────────────────┐
//	        │ close             │ open
//	        ├──► Closing ──► Closed
//	        │    PodGroups are left, and are waited for
//
// A queue that is closed closes those below it; these remember so, and open again with it. Everything follows from what the API
// server holds, so nothing is lost when it is interrupted: a Command is deleted only when the state says that it was obeyed.
//
// The package knows no client, clock or logger. Start reading at Decide.
package queue

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Actions of Commands on queues.
const (
	OpenAction  = "OpenQueue"
	CloseAction = "CloseQueue"
)

// Counts are how many PodGroups a queue has, by phase.
type Counts struct{ Pending, Inqueue, Running, Unknown, Completed int32 }

// Add counts a PodGroup of that phase.
func (c *Counts) Add(phase scheduling.PodGroupPhase) {
	switch phase {
	case scheduling.GroupInqueue:
		c.Inqueue++
	case scheduling.GroupRunning:
		c.Running++
	case scheduling.GroupUnknown:
		c.Unknown++
	case scheduling.GroupCompleted:
		c.Completed++
	default:
		c.Pending++
	}
}

// total returns how many PodGroups there are.
func (c Counts) total() int32 { return c.Pending + c.Inqueue + c.Running + c.Unknown + c.Completed }

// Observed is everything that one decision may look at.
type Observed struct {
	Queue    *scheduling.Queue
	Parent   *scheduling.Queue // nil: there is none, or it does not exist
	Counts   Counts
	Commands []*bus.Command // that name Queue, in any order
	// Allocated is what the pods of Queue and of those below it have; nil: a scheduler of Volcano says so.
	Allocated corev1.ResourceList
}

// Plan is one step. The caller carries it out in the order of the fields.
type Plan struct {
	// Parent is to be set in the spec; "": it stays.
	Parent string
	// ClosedByParent is the new value of that annotation; "": it stays.
	ClosedByParent string
	// Status is the new state, the new counts and what is allocated; nil: they stay. Now says that the state is new: otherwise it may wait a little
	// for more to change.
	Status *scheduling.QueueStatus
	Now    bool
	// Events are told once everything above is stored.
	Events []Event
	// Commands are done with and are to be deleted, last.
	Commands []*bus.Command
	// Because says why.
	Because string
}

// Event is a Kubernetes event on the queue.
type Event struct{ Type, Reason, Message string }

// Decide returns what is to be done for o.Queue. Decided again on what it leads to, it returns an empty plan.
func Decide(o Observed) Plan {
	q, state := o.Queue, cmp.Or(o.Queue.Status.State, scheduling.QueueOpen)
	byParent := q.Annotations[scheduling.ClosedByParentKey]
	plan := Plan{}
	if q.Spec.Parent == "" && q.Name != batch.RootQueue {
		plan.Parent = batch.RootQueue
	}
	above := parentState(o.Parent)
	open := func(why string) {
		state, plan.Because = scheduling.QueueOpen, why
		if byParent != "" && byParent != "false" {
			plan.ClosedByParent = "false"
		}
	}
	shut := func(why string) { state, plan.Because = scheduling.QueueClosing, why }
	event := func(action string, err error) {
		verb := map[string]string{OpenAction: "Open", CloseAction: "Close"}[action]
		if err != nil {
			plan.Events = append(plan.Events, Event{corev1.EventTypeWarning, action, fmt.Sprintf("%s queue failed for %v", verb, err)})
			return
		}
		plan.Events = append(plan.Events, Event{corev1.EventTypeNormal, action, verb + " queue succeed"})
	}

	command := oldest(o.Commands)
	switch {
	case command != nil && command.Action == OpenAction && isClosed(above):
		event(OpenAction, fmt.Errorf("queue %s above it is %s", o.Parent.Name, above))
	case command != nil && command.Action == OpenAction:
		if state != scheduling.QueueOpen {
			event(OpenAction, nil)
		}
		open("Command " + command.Name)
	case command != nil && command.Action == CloseAction && q.Name == batch.RootQueue:
		event(CloseAction, fmt.Errorf("queue %s cannot be closed", q.Name))
	case command != nil && command.Action == CloseAction:
		if !isClosed(state) {
			event(CloseAction, nil)
			shut("Command " + command.Name)
		}
	case isClosed(above) && state == scheduling.QueueOpen:
		plan.ClosedByParent = "true"
		if byParent == "true" {
			plan.ClosedByParent = "" // it was said already
		}
		event(CloseAction, nil)
		shut("queue " + o.Parent.Name + " above it is " + string(above))
	case !isClosed(above) && byParent == "true":
		if state != scheduling.QueueOpen {
			event(OpenAction, nil)
		}
		open("the queue above it is open again")
	}
	if command != nil {
		plan.Commands = []*bus.Command{command} // one after the other
	}
	switch left := o.Counts.total(); {
	case state == scheduling.QueueClosing && left == 0:
		state = scheduling.QueueClosed
	case state == scheduling.QueueClosing:
		plan.Because = cmp.Or(plan.Because, fmt.Sprintf("%d PodGroups are left", left))
	}
	next := q.Status
	next.State = state
	next.Pending, next.Inqueue, next.Running = o.Counts.Pending, o.Counts.Inqueue, o.Counts.Running
	next.Unknown, next.Completed = o.Counts.Unknown, o.Counts.Completed
	if o.Allocated != nil {
		next.Allocated = o.Allocated
	}
	plan.Now = next.State != q.Status.State
	if plan.Now || CountsOf(&next) != CountsOf(&q.Status) || !sameAmounts(next.Allocated, q.Status.Allocated) {
		plan.Status = &next
	}
	return plan
}

// CountsOf returns the counts that a status has.
func CountsOf(s *scheduling.QueueStatus) Counts {
	return Counts{Pending: s.Pending, Inqueue: s.Inqueue, Running: s.Running, Unknown: s.Unknown, Completed: s.Completed}
}

func parentState(parent *scheduling.Queue) scheduling.QueueState {
	if parent == nil || parent.Name == batch.RootQueue {
		return scheduling.QueueOpen
	}
	return cmp.Or(parent.Status.State, scheduling.QueueOpen)
}

// isClosed reports whether a queue of that state takes no Jobs, by somebody's wish.
func isClosed(s scheduling.QueueState) bool {
	return s == scheduling.QueueClosed || s == scheduling.QueueClosing
}

// TakesJobs reports whether PodGroups of q may be admitted. One without a state is open.
func TakesJobs(q *scheduling.Queue) bool { return !isClosed(q.Status.State) }

func oldest(commands []*bus.Command) *bus.Command {
	if len(commands) == 0 {
		return nil
	}
	return slices.MinFunc(commands, func(a, b *bus.Command) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
