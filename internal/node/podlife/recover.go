// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Recover returns what is known of a container after a restart of the node: found are the attempts that the runtime still has, in any
// order, api is what the API server was told last; nil: nothing.
//
// An attempt that the API server knows and the runtime does not have is not started again. If nobody knows how it ended, it is
// lost. An attempt that neither knows was never started.
func Recover(api *corev1.ContainerStatus, found []Attempt, now time.Time, b BackOff) Container {
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b Attempt) int { return int(b.Number - a.Number) })
	c := Container{Attempts: found}
	if api == nil {
		return c
	}
	c.ImageID, c.User = api.ImageID, api.User
	told := toldAttempts(api, now, b)
	if len(found) > 0 {
		for i := range told {
			told[i].Epoch = found[0].Epoch
		}
	}
	for _, t := range told {
		if !slices.ContainsFunc(c.Attempts, func(a Attempt) bool { return a.Number == t.Number }) {
			c.Attempts = append(c.Attempts, t)
		}
	}
	slices.SortFunc(c.Attempts, func(a, b Attempt) int { return int(b.Number - a.Number) })
	if len(c.Attempts) > 2 {
		c.Attempts = c.Attempts[:2]
	}
	if latest := c.Latest(); latest != nil && latest.ID == api.ContainerID && api.State.Running != nil {
		c.WasReady = api.Ready
		c.WasStarted = api.Started != nil && *api.Started
	}
	return c
}

// toldAttempts returns the attempts that a status speaks of: the newest, and the one before.
func toldAttempts(api *corev1.ContainerStatus, now time.Time, b BackOff) []Attempt {
	number := api.RestartCount
	var list []Attempt
	last := api.LastTerminationState.Terminated
	switch {
	case api.State.Terminated != nil:
		list = append(list, toldEnd(api.State.Terminated, number))
	case api.State.Running != nil:
		list = append(list, Attempt{
			ID: api.ContainerID, Number: number, State: Lost,
			StartedAt: api.State.Running.StartedAt.Time, FinishedAt: now,
		})
	case last != nil && (api.ContainerID == "" || last.ContainerID == api.ContainerID):
		// It waits for its next attempt: the count is that of the one that ended.
		list = append(list, toldEnd(last, number))
		last = nil
	case api.ContainerID != "":
		// It had been started, but its postStart hook had not returned.
		list = append(list, Attempt{ID: api.ContainerID, Number: number, State: Lost, FinishedAt: now})
	}
	if last != nil && number > 0 {
		list = append(list, toldEnd(last, number-1))
	}
	for i := range list {
		list[i].BackOff = b.guess(list[i].Number)
	}
	return list
}

func toldEnd(t *corev1.ContainerStateTerminated, number int32) Attempt {
	a := Attempt{
		ID: t.ContainerID, Number: number, State: Exited,
		StartedAt: t.StartedAt.Time, FinishedAt: t.FinishedAt.Time,
		ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason, Message: t.Message,
	}
	if t.Reason == ReasonStatusUnknown {
		a.State = Lost
	}
	return a
}

// guess returns the back-off that an attempt carries if all before it ended soon.
func (b BackOff) guess(number int32) time.Duration {
	var delay time.Duration
	for range min(number, 32) {
		if delay = 2 * delay; delay == 0 {
			delay = b.Base
		}
		delay = min(delay, b.Max)
	}
	return delay
}
