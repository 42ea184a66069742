// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is which probe of a container it is.
type Kind string

// Kinds, named as events name them.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// retries is how often a probe that cannot be carried out is tried again at once.
const retries = 3

// Reporter is told what the probes of one attempt find out. Its methods are called from several goroutines.
type Reporter struct {
	// Verdict is called when a probe has reached a threshold, and each time it reaches it again.
	Verdict func(kind Kind, ok bool)
	// Event is called for everything that a user should read as an event of the container.
	Event func(reason, message string)
}

// Has reports whether a container has any probe.
func Has(c *corev1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

// Watch carries out the probes of one running attempt until ctx ends. Liveness and readiness wait until the startup probe, if there
// is one, has succeeded; a startup probe that fails and a liveness probe that fails end with that, because the container is
// going to be ended for it. started says that an earlier Watch has seen the startup probe succeed.
func (p *Prober) Watch(ctx context.Context, t Target, started bool, r Reporter) {
	if t.Container.StartupProbe != nil && !started {
		if !p.watchOne(ctx, t, Startup, t.Container.StartupProbe, r) {
			return
		}
	}
	var both sync.WaitGroup
	if t.Container.LivenessProbe != nil {
		both.Go(func() { p.watchOne(ctx, t, Liveness, t.Container.LivenessProbe, r) })
	}
	if t.Container.ReadinessProbe != nil {
		both.Go(func() { p.watchOne(ctx, t, Readiness, t.Container.ReadinessProbe, r) })
	}
	both.Wait()
}

// watchOne carries out one probe until it is settled or ctx ends, and reports whether its last verdict was a success.
func (p *Prober) watchOne(ctx context.Context, t Target, kind Kind, probe *corev1.Probe, r Reporter) bool {
	period := time.Duration(max(1, probe.PeriodSeconds)) * time.Second
	delay := time.Duration(probe.InitialDelaySeconds)*time.Second - p.clock.Since(t.StartedAt)
	if !p.sleep(ctx, delay) {
		return false
	}
	ticker := p.clock.NewTicker(period)
	defer ticker.Stop()
	run, last := 0, false
	for {
		result, err := p.persistently(ctx, t, probe)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			// It says nothing about the container.
			r.Event("Unhealthy", fmt.Sprintf("%s probe errored and resulted in unknown state: %v", kind, err))
		default:
			if result.warning {
				r.Event("ProbeWarning", fmt.Sprintf("%s probe warning: %s", kind, result.output))
			}
			if !result.ok {
				r.Event("Unhealthy", fmt.Sprintf("%s probe failed: %s", kind, result.output))
			}
			if result.ok != last {
				run, last = 0, result.ok
			}
			run++
			if threshold(probe, result.ok) <= run {
				r.Verdict(kind, result.ok)
				if kind == Startup || kind == Liveness && !result.ok {
					return result.ok
				}
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
	}
}

func threshold(probe *corev1.Probe, ok bool) int {
	n := probe.FailureThreshold
	if ok {
		n = probe.SuccessThreshold
	}
	return int(max(1, n))
}

// persistently asks once, and again at once when the probe cannot be carried out.
func (p *Prober) persistently(ctx context.Context, t Target, probe *corev1.Probe) (result outcome, err error) {
	for range retries {
		if result, err = p.once(ctx, t, probe); err == nil || ctx.Err() != nil {
			return result, err
		}
	}
	return result, err
}

// sleep waits for d and reports false when ctx ends before.
func (p *Prober) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := p.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
