// SPDX-License-Identifier: Apache-2.0

package jobflow

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// maxAsk bounds the questions of one plan; what is left is for the next.
const maxAsk = 64

// defaultPort is asked where a request names no port.
const defaultPort = 80

// AskedJobs returns the names of the Jobs whose pods a decision on f may ask, each once: those of targets of entries with a probe that
// asks pods. Entries whose Jobs are made already count as well.
func AskedJobs(f *flow.JobFlow) []string {
	var names []string
	seen := map[string]bool{}
	for i := range f.Spec.Flows {
		on := f.Spec.Flows[i].DependsOn
		if on == nil || on.Probe == nil || len(on.Probe.HTTPGetList)+len(on.Probe.TCPSocketList) == 0 {
			continue
		}
		for _, target := range on.Targets {
			if !seen[target] {
				seen[target] = true
				names = append(names, JobName(f.Name, target))
			}
		}
	}
	return names
}

// waits returns what an entry waits for; "": for nothing.
//
// Differs: Volcano has probes in its API and does not look at them. A target that has completed needs no probing: its pods are gone
// and what depends on it would wait for ever.
func (d *decision) waits(e *entry) string {
	var open []string
	probed := len(e.After) > 0 && e.spec.DependsOn.Probe != nil && !isEmpty(e.spec.DependsOn.Probe)
	if probed {
		if task := d.missing(e); task != "" {
			d.warn(ReasonProbeNotPossible, "%s waits for ever: its probe asks for task %q, which %s does not have", e.Job, task, strings.Join(e.After, ", "))
			return fmt.Sprintf("asks for task %q, which %s does not have", task, strings.Join(e.After, ", "))
		}
	}
	for _, name := range e.After {
		target := d.byName[name]
		switch {
		case target == nil: // structure has refused it
			open = append(open, name)
		case target.Phase == batch.Completed:
		case !probed:
			open = append(open, target.Job)
		case target.job == nil:
			return "waits for " + target.Job + " to be made"
		default:
			if why := d.probe(e.spec.DependsOn.Probe, target); why != "" {
				return why
			}
		}
	}
	if len(open) == 0 {
		return ""
	}
	return "waits for " + strings.Join(open, ", ") + " to complete"
}

func isEmpty(p *flow.Probe) bool {
	return len(p.HTTPGetList)+len(p.TCPSocketList)+len(p.TaskStatusList) == 0
}

// probe returns why the probe of an entry does not hold for one of its targets, "" if it does. Where that is not known it is asked.
func (d *decision) probe(p *flow.Probe, target *entry) string {
	for _, s := range p.TaskStatusList {
		for _, t := range tasksOf(target.job, s.TaskName) {
			if n, need := inPhase(target.job, t.Name, s.Phase), needed(t); n < need {
				return fmt.Sprintf("waits for task %s of %s: %d of %d pods are %s", t.Name, target.Job, n, need, s.Phase)
			}
		}
	}
	for _, h := range p.HTTPGetList {
		port := h.Port
		if port == 0 {
			port = defaultPort
		}
		q := Question{Port: port, HTTP: true, Path: "/" + strings.TrimPrefix(h.Path, "/"), HeaderName: h.HTTPHeader.Name, HeaderValue: h.HTTPHeader.Value}
		if why := d.ask(target, h.TaskName, q, fmt.Sprintf("answer GET %s on port %d", q.Path, port)); why != "" {
			return why
		}
	}
	for _, s := range p.TCPSocketList {
		if why := d.ask(target, s.TaskName, Question{Port: s.Port}, fmt.Sprintf("listen on port %d", s.Port)); why != "" {
			return why
		}
	}
	return ""
}

// tasksOf returns the tasks of a Job that a probe means: the one of that name, or all for "". A target that has no such task is not
// meant; see missing.
func tasksOf(j *batch.Job, name string) []*batch.TaskSpec {
	var all []*batch.TaskSpec
	for i := range j.Spec.Tasks {
		if t := &j.Spec.Tasks[i]; name == "" || t.Name == name {
			all = append(all, t)
		}
	}
	return all
}

// missing returns a task that the probe of an entry names and that none of its targets has, once all of these are made.
func (d *decision) missing(e *entry) string {
	for _, name := range probedTasks(e.spec.DependsOn.Probe) {
		found := name == ""
		for _, target := range e.After {
			t := d.byName[target]
			found = found || t == nil || t.job == nil || len(tasksOf(t.job, name)) > 0
		}
		if !found {
			return name
		}
	}
	return ""
}

func probedTasks(p *flow.Probe) []string {
	var names []string
	for _, s := range p.TaskStatusList {
		names = append(names, s.TaskName)
	}
	for _, h := range p.HTTPGetList {
		names = append(names, h.TaskName)
	}
	for _, s := range p.TCPSocketList {
		names = append(names, s.TaskName)
	}
	return names
}

// ask returns why a question is not answered by as many pods of each task as the task needs, "" if it is. Pods that have not been
// asked yet are asked.
func (d *decision) ask(target *entry, task string, q Question, what string) string {
	for _, t := range tasksOf(target.job, task) {
		running, yes, need := int32(0), int32(0), needed(t)
		var open []Question
		for _, p := range d.o.Pods[target.Job] {
			if p.Labels[batch.TaskKey] != t.Name || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || p.Status.PodIP == "" {
				continue
			}
			running++
			q.Pod, q.UID, q.Address = p.Name, p.UID, p.Status.PodIP
			switch answer, known := d.o.Answers[q]; {
			case answer:
				yes++
			case !known:
				open = append(open, q)
			}
		}
		if yes >= need {
			continue
		}
		switch {
		case running < need:
			d.lookIn(idlePeriod) // its Job tells when there are more
		case yes+int32(len(open)) < need:
			d.lookIn(ProbePeriod)
		default:
			d.plan.Ask = append(d.plan.Ask, open[:min(len(open), max(0, maxAsk-len(d.plan.Ask)))]...)
			d.lookIn(ProbePeriod)
		}
		return fmt.Sprintf("waits for task %s of %s: %d of %d pods %s", t.Name, target.Job, yes, need, what)
	}
	return ""
}

// lookIn asks for the next look after that time at the latest.
func (d *decision) lookIn(after time.Duration) {
	if d.plan.After == 0 || after < d.plan.After {
		d.plan.After = after
	}
}

// needed returns how many pods of a task must be as a probe asks: those that its Job needs, at least one.
func needed(t *batch.TaskSpec) int32 {
	if t.MinAvailable != nil {
		return max(1, *t.MinAvailable)
	}
	return max(1, t.Replicas)
}

// inPhase returns how many pods of a task are in a phase. Those that have succeeded have been running.
func inPhase(j *batch.Job, task, phase string) int32 {
	count := j.Status.TaskStatusCount[task].Phase
	n := count[corev1.PodPhase(phase)]
	if phase == string(corev1.PodRunning) {
		n += count[corev1.PodSucceeded]
	}
	return n
}
