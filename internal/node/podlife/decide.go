// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Plan is what to do next with one pod. Its slices are in the order in which the node must act.
type Plan struct {
	// Start names the containers to start, one after another.
	Start []string
	// Stop are the containers to end, each on its own, while the pod goes on.
	Stop []Kill
	// Finish says that no container shall run any more. The node ends those that still do in the order of Turns.
	Finish bool
	// Waiting are the containers that wait out a back-off, with the text for their status.
	Waiting map[string]Waiting
	// Epoch belongs into the attempts that are started now.
	Epoch int32
	// At is when to look again if nothing happens before; zero: at the next event.
	At time.Time
	// Because has one line for each choice, for logs.
	Because []string
}

// Kill is one container to end.
type Kill struct {
	Name    string
	Message string // text of the event
	// Probe is the probe that asked for it, which may have a termination grace of its own; nil when none did.
	Probe *corev1.Probe
}

// Decide returns what to do next. Equal facts give equal plans, and once a plan is carried out, deciding again gives an empty
// one until something happens.
//
//	init containers        one after another, each to its end; a sidecar only until it has started
//	    │ all done
//	main containers        all of them, restarted as their policy says; sidecars are kept running beside them
//	    │ none runs and none will
//	Finish
func Decide(f Facts) Plan {
	d := decision{Facts: f, spec: &f.Pod.Spec, epoch: epoch(f.Containers)}
	switch {
	case f.Stop != nil:
		d.finish("the pod is to stop")
	case IsTerminal(f.Pod.Status.Phase):
		d.finish("the pod has phase " + string(f.Pod.Status.Phase))
	case d.restartAll():
	case d.initialize():
		d.runMains()
	}
	if f.Stop == nil && !d.plan.Finish {
		d.runEphemerals()
	}
	d.plan.Epoch = d.epoch
	return d.plan
}

type decision struct {
	Facts
	spec  *corev1.PodSpec
	epoch int32
	plan  Plan
}

func epoch(containers map[string]Container) int32 {
	var e int32
	for _, c := range containers {
		if a := c.Latest(); a != nil {
			e = max(e, a.Epoch)
		}
	}
	return e
}

// active returns the newest attempt of the named container in the current epoch, nil when there is none.
func (d *decision) active(name string) *Attempt {
	a := d.Containers[name].Latest()
	if a == nil || a.Epoch != d.epoch {
		return nil
	}
	return a
}

func (d *decision) because(format string, args ...any) {
	d.plan.Because = append(d.plan.Because, fmt.Sprintf(format, args...))
}

func (d *decision) finish(why string) {
	d.plan = Plan{Finish: true, Because: append(d.plan.Because, "finish: "+why)}
}

// restartAll reports whether a container has ended in a way that restarts all containers of the pod, and some of them still have to
// be ended before that. Once none runs, the next epoch begins, in which no container has been started yet.
func (d *decision) restartAll() bool {
	if !mayRestartAll(d.spec) || !d.restartAllDue() {
		return false
	}
	waiting := false
	for _, list := range [][]corev1.Container{d.spec.Containers, d.spec.InitContainers} {
		for i := range list {
			name := list[i].Name
			if !d.active(name).running() {
				continue
			}
			waiting = true
			if !d.Containers[name].Stopping {
				d.plan.Stop = append(d.plan.Stop, Kill{Name: name, Message: "Stopping container " + name})
			}
		}
	}
	if waiting {
		d.because("all containers are restarted because of a restart rule")
		return true
	}
	d.epoch++
	return false
}

func (d *decision) restartAllDue() bool {
	for _, list := range [][]corev1.Container{d.spec.InitContainers, d.spec.Containers} {
		for i := range list {
			a := d.active(list[i].Name)
			if a.over() && matchingRule(&list[i], a.exitCode()) == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// initialize plans the init containers and reports whether the main containers may run.
func (d *decision) initialize() bool {
	inits := d.spec.InitContainers
	// A main container that was started proves that all init containers were done, whatever is still known of them.
	if d.anyMainStarted() {
		for i := range inits {
			if IsSidecar(&inits[i]) {
				d.keepSidecar(&inits[i])
			}
		}
		return true
	}
	last := -1 // the init container that is furthest along
	for i := range inits {
		if d.active(inits[i].Name) != nil {
			last = i
		}
	}
	for i := range inits {
		c := &inits[i]
		if i < last {
			// Its turn is over; only a sidecar is looked after.
			if IsSidecar(c) {
				d.keepSidecar(c)
			}
			continue
		}
		if IsSidecar(c) {
			d.keepSidecar(c)
			if !d.started(c) {
				return false
			}
			continue
		}
		a := d.active(c.Name)
		switch {
		case a == nil:
			d.start(c, "its turn has come")
			return false
		case a.running():
			return false
		case a.succeeded():
			continue
		case shouldRestart(d.spec, c, a.exitCode()):
			d.restart(c, a)
			return false
		default:
			d.finish(fmt.Sprintf("init container %s failed with exit code %d", c.Name, a.exitCode()))
			return false
		}
	}
	return true
}

func (d *decision) anyMainStarted() bool {
	for i := range d.spec.Containers {
		if d.active(d.spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

func (d *decision) started(c *corev1.Container) bool {
	return Started(c, d.Containers[c.Name]) && d.active(c.Name).running()
}

// keepSidecar plans that a sidecar runs.
func (d *decision) keepSidecar(c *corev1.Container) {
	a := d.active(c.Name)
	switch {
	case a == nil:
		d.start(c, "a sidecar must run")
	case a.over():
		d.restart(c, a)
	default:
		d.judge(c, "Init container", false)
	}
}

func (d *decision) runMains() {
	alive := false // some main container runs, or will
	for i := range d.spec.Containers {
		c := &d.spec.Containers[i]
		a := d.active(c.Name)
		switch {
		case a == nil:
			d.start(c, "it was never started")
			alive = true
		case a.running():
			d.judge(c, "Container", true)
			// Even if it is to end it still runs: the pod must not be finished before, so that its exit code decides.
			alive = true
		case shouldRestart(d.spec, c, a.exitCode()):
			d.restart(c, a)
			alive = true
		}
	}
	if !alive {
		d.finish("no main container runs and none will be restarted")
	}
}

// judge plans the end of a running container that fails its startup or liveness probe.
func (d *decision) judge(c *corev1.Container, kind string, main bool) {
	state := d.Containers[c.Name]
	restart := shouldRestartKilled(d.spec, c)
	var kill Kill
	switch {
	case state.Startup == Failure && c.StartupProbe != nil:
		kill = Kill{Name: c.Name, Message: fmt.Sprintf("%s %s failed startup probe", kind, c.Name), Probe: c.StartupProbe}
	case state.Liveness == Failure && c.LivenessProbe != nil:
		kill = Kill{Name: c.Name, Message: fmt.Sprintf("%s %s failed liveness probe", kind, c.Name), Probe: c.LivenessProbe}
	default:
		return
	}
	if main && restart {
		kill.Message += ", will be restarted"
	}
	if !state.Stopping {
		d.plan.Stop = append(d.plan.Stop, kill)
		d.because("%s", kill.Message)
	}
}

// runEphemerals plans the containers that somebody added to the running pod; each is started once.
func (d *decision) runEphemerals() {
	if !d.Prepared {
		return
	}
	for i := range d.spec.EphemeralContainers {
		c := corev1.Container(d.spec.EphemeralContainers[i].EphemeralContainerCommon)
		if d.Containers[c.Name].Latest() == nil {
			d.start(&c, "it was added to the pod")
		}
	}
}

// start plans a container that nothing holds back but an earlier attempt that could not even begin.
func (d *decision) start(c *corev1.Container, why string) {
	if w := d.Containers[c.Name].Waiting; w != nil && w.Retry.After(d.Now) {
		d.wake(w.Retry)
		return
	}
	d.plan.Start = append(d.plan.Start, c.Name)
	d.because("start %s: %s", c.Name, why)
}

// restart plans the next attempt of a container that has ended, after its back-off.
func (d *decision) restart(c *corev1.Container, a *Attempt) {
	delay := d.BackOff.after(a)
	due := a.FinishedAt.Add(delay)
	if delay > 0 && due.After(d.Now) {
		if d.plan.Waiting == nil {
			d.plan.Waiting = map[string]Waiting{}
		}
		d.plan.Waiting[c.Name] = Waiting{
			Reason:  "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, c.Name, Describe(d.Pod)),
			Retry:   due,
		}
		d.wake(due)
		d.because("%s waits %s after its end", c.Name, delay)
		return
	}
	d.start(c, "its restart policy says so")
}

func (d *decision) wake(at time.Time) {
	if d.plan.At.IsZero() || at.Before(d.plan.At) {
		d.plan.At = at
	}
}

// Describe names a pod as kubelet does in messages: "name_namespace(uid)".
func Describe(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
