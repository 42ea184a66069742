// SPDX-License-Identifier: Apache-2.0

package podlife

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of container states, letter for letter those of kubelet.
const (
	ReasonContainerCreating = "ContainerCreating"
	ReasonPodInitializing   = "PodInitializing"
	ReasonRestartingAll     = "RestartingAllContainers"
	ReasonStatusUnknown     = "ContainerStatusUnknown"
	ReasonCompleted         = "Completed"
	ReasonError             = "Error"
	ReasonOOMKilled         = "OOMKilled"
	ReasonStartError        = "StartError"
)

// maxMessages bounds the termination messages of one pod together, in bytes.
const maxMessages = 12 << 10

// Status returns the status of the pod in f, whose plan was p. What others wrote into the status is kept: foreign conditions,
// resource claims, the QoS class. The result shares no memory with f that anybody writes to.
//
// Differs: kubelet adds one to the restart count of a container that it lost; here it stays the number of real restarts.
func Status(f Facts, p Plan) corev1.PodStatus {
	spec := &f.Pod.Spec
	status := *f.Pod.Status.DeepCopy()
	if f.Ended && f.Stop != nil && f.Stop.Rejected {
		return rejected(status, f)
	}
	hasInits := len(spec.InitContainers) > 0

	byName := map[string]*corev1.ContainerStatus{}
	one := func(c *corev1.Container, init bool) corev1.ContainerStatus {
		s := containerStatus(f, p, c, hasInits)
		s.Ready = Ready(c, f.Containers[c.Name])
		if init && !IsSidecar(c) {
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
		started := Started(c, f.Containers[c.Name])
		s.Started = &started
		return s
	}
	status.InitContainerStatuses = make([]corev1.ContainerStatus, 0, len(spec.InitContainers))
	for i := range spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, one(&spec.InitContainers[i], true))
	}
	status.ContainerStatuses = make([]corev1.ContainerStatus, 0, len(spec.Containers))
	for i := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, one(&spec.Containers[i], false))
	}
	status.EphemeralContainerStatuses = nil
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		s := containerStatus(f, p, &c, hasInits)
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, s)
	}
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			byName[list[i].Name] = &list[i]
		}
	}
	if f.Ended {
		concludeContainers(f, byName)
	}
	sortByName := func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	setPhase(&status, f, byName)
	status.Conditions = conditions(f, p, byName, status.Phase)
	// Sorted last: byName points into the slices. Init containers keep the order of the spec.
	slices.SortFunc(status.ContainerStatuses, sortByName)
	slices.SortFunc(status.EphemeralContainerStatuses, sortByName)
	if len(status.InitContainerStatuses) == 0 {
		status.InitContainerStatuses = nil
	}

	status.ObservedGeneration = f.Pod.Generation
	if status.StartTime == nil {
		start := timestamp(f.Seen)
		if f.Seen.IsZero() {
			start = timestamp(f.Now)
		}
		status.StartTime = &start
	}
	setAddresses(&status, f.HostIPs)
	return status
}

// rejected is the status of a pod that the node never took on: nothing is said about its containers.
func rejected(status corev1.PodStatus, f Facts) corev1.PodStatus {
	status.Phase, status.Reason, status.Message = corev1.PodFailed, f.Stop.Reason, f.Stop.Message
	status.ObservedGeneration = f.Pod.Generation
	return status
}

// setPhase sets phase, reason and message. A pod gets a final phase only when none of its containers runs any more.
func setPhase(status *corev1.PodStatus, f Facts, statuses map[string]*corev1.ContainerStatus) {
	if IsTerminal(f.Pod.Status.Phase) {
		return
	}
	next := phase(&f.Pod.Spec, statuses, f.Ended)
	switch {
	case !f.Ended && IsTerminal(next):
		next = corev1.PodPending
		if anyMainTried(&f.Pod.Spec, statuses) {
			next = corev1.PodRunning
		}
	case f.Ended && f.Stop != nil && f.Stop.Reason != "":
		next = corev1.PodFailed
	case f.Ended && !IsTerminal(next):
		next = corev1.PodFailed
	}
	if next != status.Phase {
		status.Reason, status.Message = "", ""
	}
	status.Phase = next
	if f.Ended && f.Stop != nil && f.Stop.Reason != "" {
		status.Reason, status.Message = f.Stop.Reason, f.Stop.Message
	}
}

func setAddresses(status *corev1.PodStatus, hostIPs []string) {
	if len(hostIPs) == 0 {
		return
	}
	status.HostIP = hostIPs[0]
	status.HostIPs = nil
	for _, ip := range hostIPs {
		status.HostIPs = append(status.HostIPs, corev1.HostIP{IP: ip})
	}
	if status.PodIP == "" {
		status.PodIP = hostIPs[0]
		for _, ip := range hostIPs {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

// Quiet reports whether a status says of every container only that its turn has not come.
func Quiet(status *corev1.PodStatus) bool {
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			if w == nil || w.Reason != ReasonContainerCreating && w.Reason != ReasonPodInitializing {
				return false
			}
		}
	}
	return true
}

func containerStatus(f Facts, p Plan, c *corev1.Container, hasInits bool) corev1.ContainerStatus {
	known := f.Containers[c.Name]
	s := corev1.ContainerStatus{
		Name:         c.Name,
		Image:        c.Image,
		RestartCount: known.RestartCount(),
		VolumeMounts: volumeMounts(c),
	}
	limit := maxMessages / max(1, len(f.Pod.Spec.Containers)+len(f.Pod.Spec.InitContainers)+len(f.Pod.Spec.EphemeralContainers))
	latest := known.Latest()
	if latest != nil {
		s.ContainerID = latest.ID
		s.ImageID = known.ImageID
		s.User = known.User
		s.AllocatedResources = c.Resources.Requests
		s.Resources = &corev1.ResourceRequirements{Limits: c.Resources.Limits, Requests: c.Resources.Requests}
		s.State = attemptState(latest, limit)
		if known.Starting && latest.running() {
			s.State = notStarted(hasInits)
		}
		if len(known.Attempts) > 1 {
			s.LastTerminationState = attemptState(&known.Attempts[1], limit)
		}
		if s.LastTerminationState.Running != nil {
			s.LastTerminationState = corev1.ContainerState{}
		}
	} else if old := toldEnded(f.Pod, c.Name); old != nil {
		// Whoever wrote that knew more.
		return *old.DeepCopy()
	} else {
		s.State = notStarted(hasInits)
	}
	if f.Stop != nil || f.Ended || p.Finish || latest.running() {
		return s
	}
	if w := waiting(known, p, c.Name); w != nil {
		if s.State.Terminated != nil {
			s.LastTerminationState = s.State
		}
		s.State = corev1.ContainerState{Waiting: w}
	}
	return s
}

// toldEnded returns what the API server has of a container, if that is that it has ended.
func toldEnded(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name && list[i].State.Terminated != nil {
				return &list[i]
			}
		}
	}
	return nil
}

func notStarted(hasInits bool) corev1.ContainerState {
	reason := ReasonContainerCreating
	if hasInits {
		reason = ReasonPodInitializing
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// waiting returns what keeps a container that does not run from running; nil when nothing worth telling does.
func waiting(c Container, p Plan, name string) *corev1.ContainerStateWaiting {
	if c.Waiting != nil {
		return &corev1.ContainerStateWaiting{Reason: c.Waiting.Reason, Message: c.Waiting.Message}
	}
	if w, ok := p.Waiting[name]; ok {
		return &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}
	}
	if latest := c.Latest(); latest != nil && latest.Epoch < p.Epoch {
		return &corev1.ContainerStateWaiting{
			Reason:  ReasonRestartingAll,
			Message: "The container is removed because RestartAllContainers in place",
		}
	}
	return nil
}

func attemptState(a *Attempt, limit int) corev1.ContainerState {
	switch a.State {
	case Running:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: timestamp(a.StartedAt)}}
	case Lost:
		message := a.Message
		if message == "" {
			message = "The container could not be located when the pod was terminated"
		}
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode:    LostExitCode,
			Reason:      ReasonStatusUnknown,
			Message:     message,
			StartedAt:   timestamp(a.StartedAt),
			FinishedAt:  timestamp(a.FinishedAt),
			ContainerID: a.ID,
		}}
	default: // it has exited
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode:    a.ExitCode,
			Signal:      a.Signal,
			Reason:      a.Reason,
			Message:     truncate(a.Message, limit),
			StartedAt:   timestamp(a.StartedAt),
			FinishedAt:  timestamp(a.FinishedAt),
			ContainerID: a.ID,
		}}
	}
}

// timestamp cuts t to whole seconds, which is what the API server keeps, so that statuses can be compared.
func timestamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t).Rfc3339Copy()
}

func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

func volumeMounts(c *corev1.Container) []corev1.VolumeMountStatus {
	var list []corev1.VolumeMountStatus
	for _, m := range c.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			s.RecursiveReadOnly = &mode
		}
		list = append(list, s)
	}
	return list
}

// concludeContainers makes sure that a pod which has ended does not claim a success that nobody has seen: in a pod that was
// initialized, a main container without an end counts as failed.
func concludeContainers(f Facts, statuses map[string]*corev1.ContainerStatus) {
	spec := &f.Pod.Spec
	unknown := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason:   ReasonStatusUnknown,
		Message:  "The container could not be located when the pod was terminated",
		ExitCode: LostExitCode,
	}}
	if wasInitialized(spec, statuses) {
		for i := range spec.Containers {
			if s := statuses[spec.Containers[i].Name]; s.State.Terminated == nil {
				s.State = *unknown.DeepCopy()
			}
		}
	}
	// Of the init containers, those up to the last that was ever started; the first one always.
	last := 0
	for i := range spec.InitContainers {
		s := statuses[spec.InitContainers[i].Name]
		if s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			last = i
		}
	}
	for i := range spec.InitContainers {
		if s := statuses[spec.InitContainers[i].Name]; i <= last && s.State.Terminated == nil {
			s.State = *unknown.DeepCopy()
		}
	}
}

func wasInitialized(spec *corev1.PodSpec, statuses map[string]*corev1.ContainerStatus) bool {
	if len(spec.InitContainers) == 0 || anyMainTried(spec, statuses) {
		return true
	}
	last := &spec.InitContainers[len(spec.InitContainers)-1]
	s := statuses[last.Name]
	if IsSidecar(last) {
		return s.State.Running != nil && s.Started != nil && *s.Started
	}
	end := endOf(s)
	return end != nil && end.ExitCode == 0
}

// Started reports whether the newest attempt of c counts as started: it runs and its startup probe, if it has one, was content.
func Started(c *corev1.Container, known Container) bool {
	if !known.Latest().running() || known.Starting {
		return false
	}
	if c.StartupProbe == nil {
		return true
	}
	return known.Startup == Success || known.Startup == Unknown && known.WasStarted
}

// Ready reports whether the newest attempt of c is started and its readiness probe, if it has one, is content.
func Ready(c *corev1.Container, known Container) bool {
	if !Started(c, known) {
		return false
	}
	if c.ReadinessProbe == nil {
		return true
	}
	return known.Readiness == Success || known.Readiness == Unknown && known.WasReady
}
