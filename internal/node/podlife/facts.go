// SPDX-License-Identifier: Apache-2.0

// Package podlife decides what happens next in the life of one pod and how that reads in its status.
//
// It is pure: Decide turns the facts about a pod's containers into what to start, stop and wait for, and Status turns the
// same facts into the status that the API server gets. It starts nothing, knows no client and no clock; package node observes,
// acts and writes. What both functions do is what a pod's author sees of kubelet v1.37, whose behaviour is the source of
// everything here that does not say otherwise.
//
// Start reading at Facts, then Decide.
package podlife

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Facts are everything that one decision about one pod may look at. Nothing here modifies them.
type Facts struct {
	Pod        *corev1.Pod          // the newest version that was seen
	Containers map[string]Container // by container name; a name without an entry was never tried
	Stop       *Stop                // not nil: the pod is to end, whatever its containers do
	Now        time.Time
	Seen       time.Time // when the node saw the pod first; zero: Now
	BackOff    BackOff

	// Prepared says that volumes and directories exist, so that containers can start.
	Prepared bool
	// Ended says that no container runs and none will ever again.
	Ended bool
	// HostIPs are the node's addresses, first the primary one. Pods share the node's network, so they are PodIPs too.
	HostIPs []string
}

// Stop is a decision from outside a pod that it shall end.
type Stop struct {
	// Reason and Message go to the pod's status with phase Failed; both are empty when the pod is being deleted.
	Reason  string
	Message string
	// Rejected says that the node never took the pod on, so that nothing is said about its containers.
	Rejected bool
}

// Container is what is known of one container of a pod.
type Container struct {
	// Attempts are the starts so far, the newest first. Older ones than the second are of no use.
	Attempts []Attempt
	// Waiting says why the next attempt could not be started; nil after an attempt that could.
	Waiting *Waiting
	// Starting says that the postStart hook of the newest attempt has not returned. Until then the container does not count as
	// running in the status, though its process does run.
	Starting bool
	// Stopping says that somebody is ending the newest attempt already.
	Stopping bool

	// What the probes of the newest attempt say. Unknown until they have reached a threshold.
	Startup, Liveness, Readiness Verdict
	// Ready and Started are what the API server was told last of the newest attempt. After a restart of the node they
	// stand until a probe has spoken, so that a restart is not seen in the status.
	WasReady, WasStarted bool

	// ImageID, User and Resources are copied to the status.
	ImageID string
	User    *corev1.ContainerUser
}

// Verdict is what a probe has found out about a container.
type Verdict string

// Verdicts. A probe that has not run often enough yet to tell is Unknown.
const (
	Unknown Verdict = ""
	Success Verdict = "Success"
	Failure Verdict = "Failure"
)

// State is where an attempt stands.
type State string

// States.
const (
	Running State = "Running"
	Exited  State = "Exited"
	// Lost means that the attempt is over and nobody knows how it ended.
	Lost State = "Lost"
)

// Attempt is one start of a container.
type Attempt struct {
	ID     string // "<runtime>://<id>" as the status shows it
	Number int32  // 0 for the first start
	// Epoch counts how often all containers of the pod were restarted together before this attempt.
	Epoch int32
	State State

	StartedAt  time.Time
	FinishedAt time.Time // zero unless Exited
	ExitCode   int32     // 0..255
	Signal     int32     // 0: it ended by itself
	Reason     string    // "Completed", "Error", "OOMKilled", "StartError", …
	Message    string

	// BackOff is how long the next attempt waits after the end of this one, unless this one ran for long.
	BackOff time.Duration
}

// Waiting says why a container does not run, in the words of its status.
type Waiting struct {
	Reason  string
	Message string
	Retry   time.Time // not before this instant; zero: at once
}

// Latest returns the newest attempt; nil when there was none.
func (c Container) Latest() *Attempt {
	if len(c.Attempts) == 0 {
		return nil
	}
	return &c.Attempts[0]
}

// RestartCount returns the number of the newest attempt, which is how often the container was restarted.
func (c Container) RestartCount() int32 {
	if a := c.Latest(); a != nil {
		return a.Number
	}
	return 0
}

// LostExitCode stands in the status of a container whose exit code nobody knows.
const LostExitCode = 137

func (a *Attempt) exitCode() int32 {
	if a.State == Lost {
		return LostExitCode
	}
	return a.ExitCode
}

func (a *Attempt) over() bool { return a != nil && a.State != Running }

func (a *Attempt) running() bool { return a != nil && a.State == Running }

func (a *Attempt) succeeded() bool { return a != nil && a.State == Exited && a.ExitCode == 0 }

// AnyRunning reports whether a container of the pod runs.
func AnyRunning(containers map[string]Container) bool {
	for _, c := range containers {
		if c.Latest().running() {
			return true
		}
	}
	return false
}

// IsSidecar reports whether c, an init container, keeps running beside the main containers.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// IsTerminal reports whether a pod in this phase will never run again.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
