// SPDX-License-Identifier: Apache-2.0

package jobflow

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// ProbePeriod is how long pods that have not answered are left before they are asked again.
const ProbePeriod = 2 * time.Second

// idlePeriod is how long a flow is left some of whose pods cannot be asked yet.
const idlePeriod = 10 * time.Second

// Decide returns what to do next for o.Flow. Equal observations give equal plans; deciding again on the world that a plan has
// produced gives an empty plan after at most two more, until something happens.
func Decide(o Observed) Plan {
	d := &decision{o: o, f: o.Flow, phase: o.Flow.Status.State.Phase}
	if d.f.DeletionTimestamp != nil {
		d.because("the flow is being deleted")
		return d.plan
	}
	d.read()
	switch d.phase {
	case "", flow.Pending:
		d.next(flow.Pending)
		switch {
		case d.broken():
		case d.anyFailed():
			d.next(flow.Failed)
		case d.any(batch.Running, batch.Completed):
			d.next(flow.Running)
		}
	case flow.Running:
		switch {
		case d.broken():
		case d.anyFailed():
			d.next(flow.Failed)
		case d.allCompleted():
			d.next(flow.Succeed)
		}
	case flow.Succeed:
		d.tidy()
	case flow.Failed, flow.Terminating:
	}
	// Differs: Volcano leaves the status of a flow that has failed as it is, though some of its Jobs go on.
	if o.Flow.Status.State.Phase != flow.Succeed {
		d.status()
	}
	if d.phase == flow.Pending || d.phase == flow.Running {
		if !d.isBroken {
			d.make()
		}
	}
	d.plan.Entries = make([]Entry, len(d.entries))
	for i, e := range d.entries {
		d.plan.Entries[i] = e.Entry
	}
	return d.plan
}

// decision is a Plan in the making.
type decision struct {
	o        Observed
	f        *flow.JobFlow
	phase    flow.Phase // as it will be
	entries  []*entry
	byName   map[string]*entry
	isBroken bool
	plan     Plan
}

// entry is an entry of the flow with what is known of its Job.
type entry struct {
	Entry
	spec    *flow.Flow
	job     *batch.Job      // ours, whether it is there or gone; nil: there is none
	gone    bool            // it is there no more
	before  *flow.JobStatus // what the stored status says of it, or nil
	foreign bool            // another's Job has the name
}

func (d *decision) because(format string, args ...any) {
	d.plan.Because = append(d.plan.Because, fmt.Sprintf(format, args...))
}

func (d *decision) warn(reason, format string, args ...any) {
	d.plan.Events = append(d.plan.Events, Event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

func (d *decision) next(p flow.Phase) {
	if d.phase != p {
		d.because("the flow is %s", p)
	}
	d.phase = p
}

// read finds the Job of each entry. A name that is given twice counts once, the first time.
func (d *decision) read() {
	d.byName = make(map[string]*entry, len(d.f.Spec.Flows))
	for i := range d.f.Spec.Flows {
		spec := &d.f.Spec.Flows[i]
		if d.byName[spec.Name] != nil {
			continue
		}
		e := &entry{spec: spec, Entry: Entry{Name: spec.Name, Job: JobName(d.f.Name, spec.Name)}}
		if spec.DependsOn != nil {
			e.After = spec.DependsOn.Targets
		}
		d.find(e)
		d.entries = append(d.entries, e)
		d.byName[e.Name] = e
	}
}

func (d *decision) find(e *entry) {
	if i := slices.IndexFunc(d.f.Status.JobStatusList, func(s flow.JobStatus) bool { return s.Name == e.Job }); i >= 0 {
		e.before = &d.f.Status.JobStatusList[i]
	}
	if j := d.o.Jobs[e.Job]; j != nil {
		if metav1.IsControlledBy(j, d.f) {
			e.job, e.Phase, e.Made = j, j.Status.State.Phase, true
			return
		}
		e.foreign = true
	}
	// Differs: Volcano makes a Job anew whose time to live after its end is over before the flow is.
	if j := d.o.Gone[e.Job]; j != nil && metav1.IsControlledBy(j, d.f) {
		if phase := j.Status.State.Phase; isOver(phase) {
			e.job, e.gone, e.Phase, e.Made = j, true, phase, true
		}
		return
	}
	if e.before != nil && isOver(e.before.State) {
		e.gone, e.Phase, e.Made = true, e.before.State, true
	}
}

// broken reports whether the flow cannot be run at all as it is written, and says why.
func (d *decision) broken() bool {
	problems := structure(&d.f.Spec)
	for _, p := range problems {
		d.warn(ReasonInvalidFlow, "%s", p)
		d.because("the flow cannot run: %s", p)
	}
	d.isBroken = len(problems) > 0
	return d.isBroken
}

func (d *decision) any(phases ...batch.JobPhase) bool {
	return slices.ContainsFunc(d.entries, func(e *entry) bool { return slices.Contains(phases, e.Phase) })
}

func (d *decision) anyFailed() bool { return d.any(batch.Failed, batch.Terminated) }

func (d *decision) allCompleted() bool {
	return len(d.entries) > 0 && !slices.ContainsFunc(d.entries, func(e *entry) bool { return e.Phase != batch.Completed })
}

// tidy deletes the Jobs of a flow that is known to have succeeded, if that is wanted.
func (d *decision) tidy() {
	if d.f.Spec.JobRetainPolicy != flow.Delete {
		return
	}
	for _, e := range d.entries {
		if e.job != nil && !e.gone && e.job.DeletionTimestamp == nil {
			d.because("%s is not kept", e.Job)
			d.plan.Delete = append(d.plan.Delete, JobKey{e.Job, e.job.UID})
		}
	}
}

// make plans the Jobs whose time has come.
func (d *decision) make() {
	for _, e := range d.entries {
		if e.Made {
			continue
		}
		if e.foreign {
			e.Waits = "another job has the name " + e.Job
			d.warn(ReasonNameTaken, "%s: there is a job of that name that is not of this flow", e.Job)
			continue
		}
		if e.Waits = d.waits(e); e.Waits != "" {
			d.because("%s: %s", e.Job, e.Waits)
			continue
		}
		template := d.o.Templates[e.Name]
		if template == nil {
			e.Waits = "there is no jobtemplate " + e.Name
			d.because("%s: %s", e.Job, e.Waits)
			d.warn(ReasonTemplateNotFound, "%s waits: there is no jobtemplate %q in namespace %q", e.Job, e.Name, d.f.Namespace)
			continue
		}
		j, err := jobFor(d.f, e.spec, template)
		if err != nil {
			e.Waits = "its patch does not fit its template"
			d.because("%s: %v", e.Job, err)
			d.warn(ReasonInvalidPatch, "%s waits: %v", e.Job, err)
			continue
		}
		d.because("%s is to be made", e.Job)
		d.plan.Create = append(d.plan.Create, j)
	}
}

// status plans the write of the status, where it does not say already what it should.
func (d *decision) status() {
	s := flow.JobFlowStatus{State: flow.State{Phase: d.phase}}
	for _, e := range d.entries {
		if !e.Made {
			continue
		}
		switch e.Phase {
		case batch.Pending, "":
			s.PendingJobs = append(s.PendingJobs, e.Job)
		case batch.Running:
			s.RunningJobs = append(s.RunningJobs, e.Job)
		case batch.Completed:
			s.CompletedJobs = append(s.CompletedJobs, e.Job)
		case batch.Failed:
			s.FailedJobs = append(s.FailedJobs, e.Job)
		case batch.Terminated:
			s.TerminatedJobs = append(s.TerminatedJobs, e.Job)
		case batch.Restarting, batch.Aborting, batch.Aborted:
			s.UnKnowJobs = append(s.UnKnowJobs, e.Job)
		case batch.Completing, batch.Terminating: // as in Volcano, they are in no list
		}
		if e.job == nil { // gone, and the stored status tells all that is known
			s.JobStatusList = append(s.JobStatusList, *e.before)
			if c, known := d.f.Status.Conditions[e.Job]; known {
				setCondition(&s, e.Job, c)
			}
			continue
		}
		s.JobStatusList = append(s.JobStatusList, lifeOf(e.job, e.before))
		setCondition(&s, e.Job, flow.Condition{
			Phase: e.Phase, CreateTimestamp: e.job.CreationTimestamp, RunningDuration: e.job.Status.RunningDuration,
			TaskStatusCount: e.job.Status.TaskStatusCount,
		})
	}
	if !equality.Semantic.DeepEqual(s, d.f.Status) {
		d.plan.Status = &s
	}
}

func setCondition(s *flow.JobFlowStatus, job string, c flow.Condition) {
	if s.Conditions == nil {
		s.Conditions = map[string]flow.Condition{}
	}
	s.Conditions[job] = c
}

// maxHistories bounds how many phases of one Job a status tells of; the latest stay.
const maxHistories = 50

// lifeOf tells the life of a Job, going on from what was told before.
func lifeOf(j *batch.Job, before *flow.JobStatus) flow.JobStatus {
	s := flow.JobStatus{Name: j.Name, State: j.Status.State.Phase, StartTimestamp: j.CreationTimestamp, RestartCount: j.Status.RetryCount}
	if d := j.Status.RunningDuration; d != nil {
		s.EndTimestamp = metav1.NewTime(j.CreationTimestamp.Add(d.Duration).Truncate(time.Second))
	}
	if before != nil && before.StartTimestamp.Equal(&j.CreationTimestamp) {
		s.RunningHistories = slices.Clone(before.RunningHistories)
	}
	if len(s.RunningHistories) == 0 {
		for _, c := range j.Status.Conditions {
			if c.LastTransitionTime != nil {
				s.RunningHistories = enter(s.RunningHistories, c.Status, *c.LastTransitionTime)
			}
		}
	}
	if state := j.Status.State; state.Phase != "" {
		s.RunningHistories = enter(s.RunningHistories, state.Phase, state.LastTransitionTime)
	}
	s.RunningHistories = s.RunningHistories[max(0, len(s.RunningHistories)-maxHistories):]
	return s
}

// enter notes that a Job has come to a phase, unless it was there already.
func enter(all []flow.RunningHistory, phase batch.JobPhase, at metav1.Time) []flow.RunningHistory {
	if n := len(all); n > 0 {
		if all[n-1].State == phase {
			return all
		}
		all[n-1].EndTimestamp = at
	}
	return append(all, flow.RunningHistory{State: phase, StartTimestamp: at})
}
