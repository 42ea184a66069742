// SPDX-License-Identifier: Apache-2.0

package jobflow

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// Observed is everything one decision may look at. Decide never modifies it.
type Observed struct {
	Flow *flow.JobFlow
	// Templates are those of the flow's namespace, by name; of those that no entry names there may be any or none.
	Templates map[string]*flow.JobTemplate
	// Jobs are those that have the names of the flow's Jobs, by name, whoever controls them.
	Jobs map[string]*batch.Job
	// Gone are Jobs of the flow that were deleted and that its stored status may not know as they were last, by name.
	Gone map[string]*batch.Job
	// Pods are those of the Jobs that AskedJobs names, by the name of the Job.
	Pods map[string][]*corev1.Pod
	// Answers are to the questions of the plan before, if the controller has just asked them.
	Answers map[Question]bool
	Now     time.Time
}

// Plan is what to do for a JobFlow. The controller asks, and decides again with the answers if there was something to ask; else it
// creates, stores and deletes, in this order.
type Plan struct {
	Ask    []Question
	Create []*batch.Job
	Status *flow.JobFlowStatus // nil: leave it as it is
	Delete []JobKey
	Events []Event       // told in any case; those that are told already need not be told again
	After  time.Duration // look again after this long; 0: at the next event
	// Entries are the entries of the flow in their order, each name once: what the Job of each is at, and what it waits for.
	Entries []Entry
	Because []string // one line a choice
}

// Entry is one entry of a flow.
type Entry struct {
	Name  string   // of the entry, and of its JobTemplate
	Job   string   // name of its Job
	After []string // names of the entries that it depends on
	// Phase is that of its Job; "": there is none yet, or it has not begun.
	Phase batch.JobPhase
	Made  bool   // there is a Job, or there was one that has ended
	Waits string // why there is none yet
}

// JobKey names one Job and no other of its name.
type JobKey struct {
	Name string
	UID  types.UID
}

// Question is put to a pod: whether it answers a request, or takes connections.
type Question struct {
	Pod     string
	UID     types.UID
	Address string // of the pod
	Port    int
	// HTTP asks for Path with a GET and takes every answer from 200 to 399 for yes; without it, a connection is enough.
	HTTP                    bool
	Path                    string
	HeaderName, HeaderValue string // "": none
}

// Event is told on the JobFlow.
type Event struct {
	Type    string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason  string
	Message string
}

// Reasons of events. The first is Volcano's.
const (
	ReasonCreated          = "Created"
	ReasonFailedCreate     = "FailedCreate"
	ReasonInvalidFlow      = "InvalidFlow"
	ReasonInvalidPatch     = "InvalidPatch"
	ReasonTemplateNotFound = "TemplateNotFound"
	ReasonNameTaken        = "NameTaken"
	ReasonProbeNotPossible = "ProbeNotPossible"
)

// Created is told of a Job that was made.
func Created(job string) Event {
	return Event{corev1.EventTypeNormal, ReasonCreated, "create a job named " + job + "!"}
}

// FailedCreate is told of a Job that could not be made.
func FailedCreate(job string, err error) Event {
	return Event{corev1.EventTypeWarning, ReasonFailedCreate, "job " + job + " could not be created: " + err.Error()}
}

// JobName returns the name of the Job of an entry.
func JobName(flow, entry string) string { return flow + "-" + entry }

// ControllerRef returns the reference by which a flow controls its Jobs.
func ControllerRef(f *flow.JobFlow) metav1.OwnerReference {
	return *metav1.NewControllerRef(f, flow.GroupVersion.WithKind("JobFlow"))
}

// IsOwner reports whether ref, which may be nil, means a JobFlow.
func IsOwner(ref *metav1.OwnerReference) bool {
	return ref != nil && ref.Kind == "JobFlow" && ref.APIVersion == flow.GroupVersion.String()
}

// isFailed reports whether a Job in that phase has failed for good.
func isFailed(p batch.JobPhase) bool { return p == batch.Failed || p == batch.Terminated }

// isOver reports whether a Job in that phase has ended for good.
func isOver(p batch.JobPhase) bool { return p == batch.Completed || isFailed(p) }
