// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// newQueue returns queue "q" below root.
func newQueue(state scheduling.QueueState, changes ...func(*scheduling.Queue)) *scheduling.Queue {
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{Parent: "root"}, Status: scheduling.QueueStatus{State: state}}
	for _, change := range changes {
		change(q)
	}
	return q
}

func closedByParent(value string) func(*scheduling.Queue) {
	return func(q *scheduling.Queue) { q.Annotations = map[string]string{scheduling.ClosedByParentKey: value} }
}

func above(name string, state scheduling.QueueState) *scheduling.Queue {
	return newQueue(state, func(q *scheduling.Queue) { q.Name = name })
}

func command(name, action string, second int) *bus.Command {
	return &bus.Command{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(second), 0)}, Action: action}
}

func TestDecide(t *testing.T) {
	status := func(state scheduling.QueueState) *scheduling.QueueStatus {
		return &scheduling.QueueStatus{State: state}
	}
	open, shut := command("o", OpenAction, 1), command("c", CloseAction, 2)
	for name, tc := range map[string]struct {
		o    Observed
		want Plan
	}{
		"a new queue is open, and below root": {
			Observed{Queue: newQueue("", func(q *scheduling.Queue) { q.Spec.Parent = "" })},
			Plan{Parent: "root", Status: status(scheduling.QueueOpen), Now: true},
		},
		"root has nothing above it": {
			Observed{Queue: newQueue(scheduling.QueueOpen, func(q *scheduling.Queue) { q.Name, q.Spec.Parent = "root", "" })}, Plan{},
		},
		"an empty queue is closed at once": {
			Observed{Queue: newQueue(scheduling.QueueOpen), Commands: []*bus.Command{shut}},
			Plan{
				Status: status(scheduling.QueueClosed), Now: true, Commands: []*bus.Command{shut},
				Events: []Event{{"Normal", "CloseQueue", "Close queue succeed"}}, Because: "Command c",
			},
		},
		"one with PodGroups is Closing first": {
			Observed{Queue: newQueue(scheduling.QueueOpen), Commands: []*bus.Command{shut}, Counts: Counts{Running: 1}},
			Plan{
				Status: &scheduling.QueueStatus{State: scheduling.QueueClosing, Running: 1}, Now: true, Commands: []*bus.Command{shut},
				Events: []Event{{"Normal", "CloseQueue", "Close queue succeed"}}, Because: "Command c",
			},
		},
		"and Closed when they are gone": {
			Observed{Queue: newQueue(scheduling.QueueClosing, func(q *scheduling.Queue) { q.Status.Running = 1 })},
			Plan{Status: status(scheduling.QueueClosed), Now: true},
		},
		"the oldest Command comes first, and one after the other": {
			Observed{Queue: newQueue(scheduling.QueueClosed), Commands: []*bus.Command{shut, open}},
			Plan{
				Status: status(scheduling.QueueOpen), Now: true, Commands: []*bus.Command{open},
				Events: []Event{{"Normal", "OpenQueue", "Open queue succeed"}}, Because: "Command o",
			},
		},
		"a Command that was obeyed is only deleted": {
			Observed{Queue: newQueue(scheduling.QueueClosed), Commands: []*bus.Command{shut}}, Plan{Commands: []*bus.Command{shut}},
		},
		"root cannot be closed": {
			Observed{Queue: newQueue(scheduling.QueueOpen, func(q *scheduling.Queue) { q.Name, q.Spec.Parent = "root", "" }), Commands: []*bus.Command{shut}},
			Plan{Commands: []*bus.Command{shut}, Events: []Event{{"Warning", "CloseQueue", "Close queue failed for queue root cannot be closed"}}},
		},
		"a queue closes with the one above it, and remembers that": {
			Observed{Queue: newQueue(scheduling.QueueOpen), Parent: above("p", scheduling.QueueClosing)},
			Plan{
				ClosedByParent: "true", Status: status(scheduling.QueueClosed), Now: true,
				Events: []Event{{"Normal", "CloseQueue", "Close queue succeed"}}, Because: "queue p above it is Closing",
			},
		},
		"and opens with it": {
			Observed{Queue: newQueue(scheduling.QueueClosed, closedByParent("true")), Parent: above("p", scheduling.QueueOpen)},
			Plan{
				ClosedByParent: "false", Status: status(scheduling.QueueOpen), Now: true,
				Events: []Event{{"Normal", "OpenQueue", "Open queue succeed"}}, Because: "the queue above it is open again",
			},
		},
		"one that somebody has closed stays closed": {
			Observed{Queue: newQueue(scheduling.QueueClosed), Parent: above("p", scheduling.QueueOpen)}, Plan{},
		},
		"it cannot be opened alone": {
			Observed{Queue: newQueue(scheduling.QueueClosed, closedByParent("true")), Parent: above("p", scheduling.QueueClosed), Commands: []*bus.Command{open}},
			Plan{Commands: []*bus.Command{open}, Events: []Event{{"Warning", "OpenQueue", "Open queue failed for queue p above it is Closed"}}},
		},
		"an unknown state is left to those who have set it": {
			Observed{Queue: newQueue(scheduling.QueueUnknown)}, Plan{},
		},
		"counts may wait": {
			Observed{Queue: newQueue(scheduling.QueueOpen), Counts: Counts{Pending: 2, Inqueue: 1}},
			Plan{Status: &scheduling.QueueStatus{State: scheduling.QueueOpen, Pending: 2, Inqueue: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(tc.o)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// TestQueuesComeToRest has Commands hit a tree of queues, with the process ending between any two writes, and holds that the states
// agree with each other when everything is quiet.
func TestQueuesComeToRest(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		queues := []*scheduling.Queue{above("root", ""), above("a", ""), above("b", ""), above("c", "")}
		queues[0].Spec.Parent, queues[1].Spec.Parent, queues[2].Spec.Parent, queues[3].Spec.Parent = "", "root", "a", "b"
		commands := map[string][]*bus.Command{}
		groups := map[string]int32{}
		last := map[string]string{} // the last Command for each queue that was neither refused nor undone from above
		sync := func(i, crash int) bool {
			q := queues[i]
			var parent *scheduling.Queue
			if i > 0 {
				parent = queues[i-1]
			}
			p := Decide(Observed{Queue: q, Parent: parent, Counts: Counts{Running: groups[q.Name]}, Commands: commands[q.Name]})
			worked := p.Parent != "" || p.ClosedByParent != "" || p.Status != nil || len(p.Commands) > 0
			for write, do := range []func(){
				func() {
					if p.ClosedByParent != "" {
						q.Annotations = map[string]string{scheduling.ClosedByParentKey: p.ClosedByParent}
					}
				},
				func() {
					if p.Status != nil {
						q.Status = *p.Status
					}
				},
				func() {
					if len(p.Commands) > 0 {
						var rest []*bus.Command
						for _, c := range commands[q.Name] {
							if c != p.Commands[0] {
								rest = append(rest, c)
							}
						}
						commands[q.Name] = rest
					}
				},
			} {
				if write == crash {
					return true
				}
				do()
			}
			return worked
		}
		rest := func() {
			for range 100 {
				worked := false
				for i := range queues {
					worked = sync(i, -1) || worked
				}
				if !worked {
					return
				}
			}
			t.Fatalf("seed %d: the queues do not come to rest", seed)
		}
		for step := range 60 {
			i := rng.IntN(len(queues))
			switch name := queues[i].Name; rng.IntN(4) {
			case 0:
				action := []string{OpenAction, CloseAction}[rng.IntN(2)]
				commands[name] = append(commands[name], command(fmt.Sprint("x", step), action, step))
				last[name] = action
			case 1:
				groups[name] = rng.Int32N(2)
			case 2:
				sync(i, rng.IntN(4))
			case 3:
				sync(i, -1)
			}
		}
		rest()
		clear(groups)
		rest()
		closed := false
		for i, q := range queues {
			state := q.Status.State
			if i == 0 && state != scheduling.QueueOpen {
				t.Errorf("seed %d: root is %s", seed, state)
			}
			if closed && state != scheduling.QueueClosed {
				t.Errorf("seed %d: queue %s is %s below a closed one", seed, q.Name, state)
			}
			if q.Status.State == scheduling.QueueClosing || len(commands[q.Name]) > 0 {
				t.Errorf("seed %d: queue %s is %s with %d Commands when all is quiet", seed, q.Name, state, len(commands[q.Name]))
			}
			if last[q.Name] == CloseAction && i > 0 && state == scheduling.QueueOpen && q.Annotations[scheduling.ClosedByParentKey] != "false" {
				t.Errorf("seed %d: queue %s was closed last and is open", seed, q.Name)
			}
			closed = state == scheduling.QueueClosed
		}
	}
}

func TestAQueueTakesJobsUnlessItIsClosed(t *testing.T) {
	for state, want := range map[scheduling.QueueState]bool{
		"": true, scheduling.QueueOpen: true, scheduling.QueueUnknown: true, scheduling.QueueClosing: false, scheduling.QueueClosed: false,
	} {
		if got := TakesJobs(newQueue(state)); got != want {
			t.Errorf("state %q: %v, want %v", state, got, want)
		}
	}
}
