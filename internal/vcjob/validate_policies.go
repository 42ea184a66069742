// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Events and actions that policies may name, in the order in which they are listed for people.
var (
	policyEvents = []batch.Event{
		batch.AnyEvent, batch.PodFailedEvent, batch.PodEvictedEvent, batch.PodPendingEvent, batch.UnknownEvent,
		batch.TaskCompletedEvent, batch.TaskFailedEvent, batch.JobUpdatedEvent,
	}
	policyActions = []batch.Action{
		batch.AbortJobAction, batch.RestartJobAction, batch.RestartTaskAction, batch.RestartPodAction,
		batch.RestartPartitionAction, batch.TerminateJobAction, batch.CompleteJobAction, batch.ResumeJobAction,
	}
)

// policies reports the first policy of a list that is wrong.
func (v *validator) policies(path string, list []batch.LifecyclePolicy) {
	if problem := policyProblem(list); problem != "" {
		v.add("%s: %s; valid events are [%s], valid actions are [%s]", path, problem, join(policyEvents), join(policyActions))
	}
}

func join[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = string(item)
	}
	return strings.Join(texts, ", ")
}

// policyProblem returns what is wrong with the first policy that is not right; "": nothing.
//
// Differs: Volcano checks the action of event policies only, so that an exit code may have an action that nobody knows.
func policyProblem(list []batch.LifecyclePolicy) string {
	events, codes := map[batch.Event]bool{}, map[int32]bool{}
	for i := range list {
		p := &list[i]
		own := eventsOf(p)
		switch {
		case len(own) > 0 && p.ExitCode != nil:
			return "must not specify event and exitCode simultaneously"
		case len(own) == 0 && p.ExitCode == nil:
			return "either event and exitCode should be specified"
		case !slices.Contains(policyActions, p.Action):
			return "invalid policy action " + string(p.Action)
		case p.ExitCode != nil && *p.ExitCode == 0:
			return "0 is not a valid error code"
		case p.ExitCode != nil && codes[*p.ExitCode]:
			return "duplicate exitCode " + itoa(*p.ExitCode)
		}
		for _, e := range own {
			switch {
			case !slices.Contains(policyEvents, e):
				return "invalid policy event " + string(e)
			case events[e]:
				return "duplicate event " + string(e) + "  across different policy"
			}
		}
		for _, e := range own {
			events[e] = true
		}
		if p.ExitCode != nil {
			codes[*p.ExitCode] = true
		}
	}
	if events[batch.AnyEvent] && len(events) > 1 {
		return "if there's * here, no other policy should be here"
	}
	return ""
}

// eventsOf returns the events of a policy, each once.
func eventsOf(p *batch.LifecyclePolicy) []batch.Event {
	var events []batch.Event
	for _, e := range append(slices.Clone(p.Events), p.Event) {
		if e != "" && !slices.Contains(events, e) {
			events = append(events, e)
		}
	}
	return events
}
