// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Observed is everything that one decision may look at. Decide changes nothing of it.
type Observed struct {
	Job *batch.Job
	// Pods are those that Job controls, by its UID, in any order.
	Pods []*corev1.Pod
	// Gone are pods that others have deleted and that nobody has acted upon yet.
	Gone []Gone
	// Group is the Job's PodGroup; nil: there is none.
	Group *scheduling.PodGroup
	// GroupUnknownSince is when Group was seen to become Unknown; zero: it was not, or that was acted upon.
	GroupUnknownSince time.Time
	// Commands are those that name Job, in any order.
	Commands []*bus.Command
	// Prepared says that the claims and the objects of the plugins are as Claims and Objects want them.
	Prepared bool
	// Dropped says that the objects of the plugins are known to be gone.
	Dropped bool
	// Taken are names of pods that others have, such as pods of an earlier Job of this name.
	Taken map[string]bool
	// Refusal is why the last attempt to make something was refused, and RefusedFor the reason in a word; "": it was not.
	Refusal, RefusedFor string
	// Native is the PodGroup of Kubernetes by which its scheduler knows the pods of this round; nil: there is none.
	Native *schedulingv1beta1.PodGroup
	// QueueMissing says that there is no queue of the name that Job gives.
	QueueMissing bool
	// QueueClosed says that the queue takes no Jobs now.
	QueueClosed bool
	// QueueFree says that nobody needs to admit the PodGroup: we would, and the queue has no limits.
	QueueFree bool
	// Forward says that the Job's queue has other clusters.
	Forward bool
	// Priorities are the values of priority classes, by name.
	Priorities map[string]int32
	Now        time.Time // the one instant of this decision
	Options    Options
}

// Options bound single decisions, as values.
type Options struct {
	// Own says that PodGroups are admitted by package gang, and not by a scheduler of Volcano.
	Own bool
	// Native says that kube-scheduler places pods together that belong together.
	Native bool
	// MaxPerStep bounds how many pods one plan makes.
	MaxPerStep int
}

// DefaultOptions returns what is good for every cluster with a scheduler of Volcano.
func DefaultOptions() Options { return Options{MaxPerStep: 500} }

// Gone is a pod that others have deleted.
type Gone struct {
	Task    string
	Index   int
	Version int32 // of the Job when the pod was made
	At      time.Time
}

// Plan is one step. The caller carries it out in the order of the fields, and what belongs to a status that must be stored first
// only after it was stored.
type Plan struct {
	// Mark are pods that are to be marked as about to be deleted, before anything else.
	Mark []Mark
	// Status is the new status; nil: it stays.
	Status *batch.JobStatus
	// Now says that Status must be stored before what follows is done; otherwise it may wait a little for more to change.
	Now bool
	// Commands are done with and are to be deleted.
	Commands []*bus.Command
	// Delete are pods to be marked, where they are not, and deleted.
	Delete []Deletion
	// DropGroup is a PodGroup to be deleted.
	DropGroup *scheduling.PodGroup
	// DropLater says that nobody waits for DropGroup to be gone.
	DropLater bool
	// DropObjects has the objects of the plugins deleted, as Objects names them.
	DropObjects bool
	// Prepare has claims and objects of plugins made, as Claims and Objects name them.
	Prepare bool
	// Group is the PodGroup to be made, or stored in the place of the one with its resource version.
	Group *scheduling.PodGroup
	// Native is the PodGroup of Kubernetes to be made, or stored in the place of the one with its resource version.
	Native *schedulingv1beta1.PodGroup
	// Create are pods to be made.
	Create []Creation
	// Events are told once Status is stored.
	Events []Event
	// Delayed are actions that wait for their time, the next first.
	Delayed []Delayed
	// After says when to look again at the latest, should nothing happen; 0: when something happens.
	After time.Duration
	// ActedOnGroup says that Group being Unknown was acted upon.
	ActedOnGroup bool
	// Over says that the Job has ended and nothing is left to do.
	Over bool
	// Because says why, a line for each choice.
	Because []string
}

// PodKey names one pod and no other of its name.
type PodKey struct {
	Name string
	UID  types.UID
}

// Mark is a pod that a restart of less than the whole Job is about to delete.
type Mark struct {
	Pod PodKey
	// Restart is the value of RestartKey: which restart it is, and how much it is about.
	Restart string
}

// Deletion is a pod to be deleted.
type Deletion struct {
	Pod    PodKey
	Marked bool // it is marked already
}

// Creation is a pod to be made.
type Creation struct {
	Task  int // position of the task
	Index int
	Name  string
	// EvictedAt is when others have deleted the pod that this one replaces; zero: it replaces none.
	EvictedAt time.Time
	// Native is the PodGroup of Kubernetes that it joins; "": none.
	Native string
}

// Event is a Kubernetes event on the Job.
type Event struct{ Type, Reason, Message string }

// Delayed is an action that waits for its time.
type Delayed struct {
	Event  batch.Event
	Action batch.Action
	About  string // the pod, or the task, or "" for the Job
	Delay  time.Duration
	Due    time.Time
}

// Reasons of events, as Volcano's users know them.
const (
	ReasonExecuteAction   = "ExecuteAction"
	ReasonCommandIssued   = "CommandIssued"
	ReasonPluginError     = "PluginError"
	ReasonPVCError        = "PVCError"
	ReasonPodGroupError   = "PodGroupError"
	ReasonPodGroupPending = "PodGroupPending"
	ReasonNotTogether     = "NotPlacedTogether" // not Volcano's
	ReasonFailedCreate    = "FailedCreate"
	ReasonFailedDelete    = "FailedDelete"
)

// Annotations of our own.
const (
	// RestartKey is on pods that a restart of less than the whole Job deletes: "<status.retryCount after it>/<pod, task or
	// partition>". It goes with batch.OutOfSyncKey.
	RestartKey = "drover.dev/restart"
	// EvictedKey is on a pod that replaces one which others have deleted: when that was.
	EvictedKey = "drover.dev/replaces-evicted-at"
	// RoundKey is on PodGroups: the status.version of the Job that it was made for.
	RoundKey = "drover.dev/job-version"
)
