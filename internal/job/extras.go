// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/backoff"
)

// Annotations on a Job that ask for what Kubernetes does not offer. Without them the behaviour is Kubernetes'.
const (
	// BackoffAnnotation sets the delays before failed pods are replaced: "base=2s,factor=2,max=1m", each part optional. base is
	// 100ms to 24h, factor 1 to 100, max from base to 24h; defaults are those of package backoff.
	BackoffAnnotation = "drover.dev/backoff"
	// StartTimeoutAnnotation is how long a pod may take to start, a duration from 1s to 720h. One that takes longer, for whatever
	// reason, counts as failed.
	StartTimeoutAnnotation = "drover.dev/start-timeout"
	// RetainFailedLogsAnnotation, "true" or "false", has a standalone node keep what failed pods have printed after they are deleted.
	RetainFailedLogsAnnotation = "drover.dev/retain-failed-logs"
)

// Extras are what the annotations of a Job ask for. The zero value asks for nothing.
type Extras struct {
	Backoff          *backoff.Policy // nil: the usual one
	StartTimeout     time.Duration   // 0: none
	RetainFailedLogs bool
}

const (
	leastBackoff, longestBackoff           = 100 * time.Millisecond, 24 * time.Hour
	leastStartTimeout, longestStartTimeout = time.Second, 720 * time.Hour
	largestFactor                          = 100
)

// On returns o with what x asks for.
func (x Extras) On(o Options) Options {
	o.StartTimeout = x.StartTimeout
	if x.Backoff != nil {
		o.Backoff = *x.Backoff
	}
	return o
}

// ExtrasOf reads the annotations of j. One that is malformed asks for nothing; problems name it, what is wrong and what would be right.
func ExtrasOf(j *batchv1.Job) (x Extras, problems []string) {
	read := func(annotation string, parse func(text string) error) {
		text, there := j.Annotations[annotation]
		if !there {
			return
		}
		if err := parse(text); err != nil {
			problems = append(problems, fmt.Sprintf("annotation %s is ignored: %v", annotation, err))
		}
	}
	read(BackoffAnnotation, func(text string) error {
		policy, err := parseBackoff(text)
		if err == nil {
			x.Backoff = &policy
		}
		return err
	})
	read(StartTimeoutAnnotation, func(text string) error {
		d, err := parseDuration("the value", text, leastStartTimeout, longestStartTimeout)
		if err == nil {
			x.StartTimeout = d
		}
		return err
	})
	read(RetainFailedLogsAnnotation, func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		x.RetainFailedLogs = on
		return nil
	})
	return x, problems
}

func parseBackoff(text string) (backoff.Policy, error) {
	p := backoff.Default()
	p.Factor = 2
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return p, fmt.Errorf("%q is not NAME=VALUE; write it like base=2s,factor=2,max=1m", part)
		}
		if seen[name] {
			return p, fmt.Errorf("%s stands in it twice", name)
		}
		seen[name] = true
		var err error
		switch name {
		case "base":
			p.Base, err = parseDuration(name, value, leastBackoff, longestBackoff)
		case "max":
			p.Max, err = parseDuration(name, value, leastBackoff, longestBackoff)
		case "factor":
			p.Factor, err = strconv.ParseFloat(value, 64)
			if err != nil || !(p.Factor >= 1 && p.Factor <= largestFactor) {
				err = fmt.Errorf("factor %q is not a number from 1 to %d", value, largestFactor)
			}
		default:
			err = fmt.Errorf("%q is not known; known are base, factor and max", name)
		}
		if err != nil {
			return p, err
		}
	}
	if p.Base > p.Max {
		if !seen["max"] {
			p.Max = p.Base
		} else {
			return p, fmt.Errorf("base %v is more than max %v", p.Base, p.Max)
		}
	}
	return p, nil
}

func parseDuration(name, text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a duration; write it like 90s or 5m", name, text)
	}
	if d < least || d > most {
		return 0, fmt.Errorf("%s %v is not between %v and %v", name, d, least, most)
	}
	return d, nil
}

// deleteLate deletes the pods that have not started in time, so that they count as failed.
func (p *Plan) deleteLate(o Observed) {
	limit := o.Options.StartTimeout
	if limit <= 0 {
		return
	}
	var late []*entry
	for _, e := range o.Pods.active {
		if e.pod.Status.Phase != corev1.PodPending {
			continue
		}
		left := e.pod.CreationTimestamp.Add(limit).Sub(o.Now)
		if left > 0 {
			p.wakeIn(left)
			continue
		}
		late = append(late, e)
	}
	if len(late) == 0 {
		return
	}
	p.because("%d pods have not started within %v", len(late), limit)
	p.deleteAll(late, deleteEverything)
	for i := range p.Delete {
		p.Delete[i].Late = true
	}
}

// WhyNotStarted says in words what keeps a pod from starting, as far as its status tells.
func WhyNotStarted(p *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
				return fmt.Sprintf("container %s waits: %s", s.Name, joined(w.Reason, w.Message))
			}
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return "it has no node: " + joined(c.Reason, c.Message)
		}
	}
	switch {
	case len(p.Spec.SchedulingGates) > 0:
		return fmt.Sprintf("it has no node: scheduling gate %s is closed", p.Spec.SchedulingGates[0].Name)
	case p.Spec.NodeName == "":
		return "it has no node, and no scheduler has said why"
	}
	return "node " + p.Spec.NodeName + " has not said why"
}

func joined(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
