// SPDX-License-Identifier: Apache-2.0

package podlife

import corev1 "k8s.io/api/core/v1"

// tally counts the containers of a pod by what their statuses say.
type tally struct {
	initsPending     int // ordinary init containers that have not ended
	initsFailed      int // … that ended badly and stay so
	sidecarsStarting int
	waiting          int
	running          int
	ended            int // main containers
	endedForGood     int // … that will not be restarted
	succeeded        int
}

// phase derives the phase of a pod from the statuses of its containers. final says that no container will be restarted whatever
// its policy says.
func phase(spec *corev1.PodSpec, statuses map[string]*corev1.ContainerStatus, final bool) corev1.PodPhase {
	t := count(spec, statuses)
	switch {
	case t.initsFailed > 0:
		return corev1.PodFailed
	case t.initsPending > 0, t.sidecarsStarting > 0 && !anyMainTried(spec, statuses), t.waiting > 0:
		return corev1.PodPending
	case t.running > 0:
		return corev1.PodRunning
	case t.ended == 0:
		return corev1.PodPending
	case !final && t.ended != t.endedForGood:
		return corev1.PodRunning
	case t.ended == t.succeeded:
		return corev1.PodSucceeded
	default:
		return corev1.PodFailed
	}
}

func count(spec *corev1.PodSpec, statuses map[string]*corev1.ContainerStatus) tally {
	var t tally
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		s := statuses[c.Name]
		if IsSidecar(c) {
			switch {
			case s.State.Running != nil:
				if s.Started == nil || !*s.Started {
					t.sidecarsStarting++
				}
				t.running++
			case s.State.Waiting != nil && s.LastTerminationState.Terminated == nil:
				t.sidecarsStarting++
				t.waiting++
			}
			continue
		}
		end := endOf(s)
		switch {
		case end == nil:
			t.initsPending++
		case end.ExitCode != 0 && !shouldRestart(spec, c, end.ExitCode):
			t.initsFailed++
		case end.ExitCode != 0:
			t.initsPending++
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		s := statuses[c.Name]
		if s.State.Running != nil {
			t.running++
			continue
		}
		end := endOf(s)
		if end == nil {
			t.waiting++
			continue
		}
		t.ended++
		if !shouldRestart(spec, c, end.ExitCode) {
			t.endedForGood++
		}
		if end.ExitCode == 0 && s.State.Terminated != nil {
			t.succeeded++
		}
	}
	return t
}

// endOf returns how the container of s ended last; nil while it runs and before it was ever started.
func endOf(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated
	}
	return nil
}

func anyMainTried(spec *corev1.PodSpec, statuses map[string]*corev1.ContainerStatus) bool {
	for i := range spec.Containers {
		s := statuses[spec.Containers[i].Name]
		if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}
