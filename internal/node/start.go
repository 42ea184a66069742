// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/node/logs"
	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/probe"
	"github.com/drover-dev/drover/internal/node/process"
)

// Reasons for which a container waits, letter for letter those of kubelet.
const (
	reasonInvalidImageName = "InvalidImageName"
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
	reasonConfigError      = "CreateContainerConfigError"
	reasonCreateError      = "CreateContainerError"
)

// startExitCode stands in the status of a container whose command could not be run; containerd has the same.
const startExitCode = 128

// trouble is why a container could not be started, in the words of its status.
type trouble struct {
	reason  string
	message string
	backOff podlife.BackOff
}

// start starts the next attempt of a container and runs its postStart hook.
func (w *worker) start(ctx, opCtx context.Context, name string, epoch int32) {
	defer func() {
		w.mu.Lock()
		w.starting = ""
		w.mu.Unlock()
	}()
	release, err := w.n.starts.take(opCtx)
	if err != nil {
		return
	}
	defer release()

	w.mu.Lock()
	pod, volumes := w.pod, w.volumes
	c := w.containers[name]
	if c == nil {
		c = &container{}
		w.containers[name] = c
	}
	previous := c.Latest()
	w.mu.Unlock()

	spec := findContainer(&pod.Spec, name)
	id := identity{
		uid: pod.UID, namespace: pod.Namespace, name: pod.Name, container: name,
		epoch: epoch, backOff: w.n.cfg.BackOff.Next(previous), grace: graceOf(pod),
	}
	if previous != nil {
		id.attempt = previous.Number + 1
	}
	img, found, err := w.n.images.Lookup(spec.Image)
	id.image = img.Ref()
	if t := w.imageTrouble(spec, img, found, err); t != nil {
		w.noteTrouble(name, spec.Image, t)
		return
	}
	w.ordinary(pod, name, "Pulled", fmt.Sprintf("Container image %q already present on machine", spec.Image))
	plan, err := w.n.containerSpec(opCtx, pod, spec, img, volumes, id)
	if opCtx.Err() != nil {
		return
	}
	if err != nil {
		w.noteTrouble(name, "", &trouble{reasonConfigError, err.Error(), w.n.cfg.RetryBackOff})
		w.n.events.container(pod, name, corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return
	}
	w.tellUnenforced(pod, name, plan.Limits)
	// From here on the end of the pod must not come between a start and the knowledge of it.
	status, err := w.n.rt.Start(context.WithoutCancel(ctx), plan)
	if errors.Is(err, process.ErrExists) {
		status, err = w.n.adopt(plan.ID)
	}
	if err != nil {
		w.startFailed(pod, name, id, plan.Args, err)
		return
	}
	release()
	w.ordinary(pod, name, "Created", "Container created")
	w.ordinary(pod, name, "Started", "Container started")
	w.running(ctx, pod, spec, id, status)
}

// tellUnenforced says once for each container which of its limits this machine does not enforce.
func (w *worker) tellUnenforced(pod *corev1.Pod, name string, limits process.Limits) {
	notes := w.n.features.Unenforced(limits)
	key := "unenforced " + name
	w.mu.Lock()
	told := w.told[key] > 0
	w.told[key] = 1
	w.mu.Unlock()
	if len(notes) > 0 && !told {
		w.n.events.container(pod, name, corev1.EventTypeWarning, "LimitNotEnforced", strings.Join(notes, "; "))
	}
}

// adopt returns the status of an attempt that the runtime knows already, which happens when this process was killed between its start and
// everybody's knowledge of it.
func (n *Node) adopt(id string) (process.Status, error) {
	if status, ok := n.rt.Status(id); ok {
		return status, nil
	}
	return process.Status{}, fmt.Errorf("container %s exists, but nobody knows it", id)
}

// running notes an attempt that was started, runs its hook and then its probes.
func (w *worker) running(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, id identity, status process.Status) {
	hook := spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil
	w.mu.Lock()
	c := w.containers[spec.Name]
	older := c.Attempts
	c.Attempts = append([]podlife.Attempt{w.n.attempt(pod, spec, id, status)}, c.Attempts...)
	c.Waiting, c.tries, c.failed = nil, retry{}, ""
	c.Stopping, c.Starting = false, hook
	c.Startup, c.Liveness, c.Readiness = podlife.Unknown, podlife.Unknown, podlife.Unknown
	c.WasReady, c.WasStarted = false, false
	c.ImageID = id.image
	c.User = userOf(status.Spec)
	if len(c.Attempts) > 2 {
		c.Attempts = c.Attempts[:2]
	}
	w.watchLocked(ctx, spec.Name, !hook)
	ended := c.ended
	w.mu.Unlock()
	w.poke()

	w.forget(ctx, pod, spec.Name, older)
	if hook {
		w.postStart(ctx, ended, pod, spec, status.Spec.ID)
	}
}

// forget takes away what is left of attempts that nobody can ask about any more: all but the newest two.
func (w *worker) forget(ctx context.Context, pod *corev1.Pod, name string, older []podlife.Attempt) {
	if len(older) < 2 {
		return
	}
	for _, a := range older[1:] {
		if err := w.n.rt.Remove(ctx, strings.TrimPrefix(a.ID, idPrefix)); err != nil && !errors.Is(err, process.ErrNotFound) {
			w.n.log.Warn("Removing an old container did not work", "pod", podKey(pod), "container", name, "err", err)
		}
		if err := logs.RemoveAttempt(logs.Path(logs.PodDir(w.n.logDir, pod), name, a.Number)); err != nil {
			w.n.log.Warn("Removing an old log did not work", "pod", podKey(pod), "container", name, "err", err)
		}
	}
}

// postStart runs the hook of a container that was just started. A hook that fails ends the container.
func (w *worker) postStart(ctx, ended context.Context, pod *corev1.Pod, spec *corev1.Container, id string) {
	err := w.n.prober.Run(ended, w.n.target(pod, spec, id, w.n.clock.Now()), spec.Lifecycle.PostStart)
	if ended.Err() != nil && ctx.Err() == nil {
		err = errors.New("the container has ended")
	}
	w.mu.Lock()
	c := w.containers[spec.Name]
	c.Starting = false
	if err == nil {
		w.probeLocked(spec, c)
		w.mu.Unlock()
		w.poke()
		return
	}
	over := !runs(c) || c.Stopping || ctx.Err() != nil
	c.Stopping = c.Stopping || !over
	w.mu.Unlock()
	w.n.log.Info("A postStart hook failed", "pod", podKey(pod), "container", spec.Name, "err", err)
	if ctx.Err() != nil {
		return
	}
	// What it printed may be secret and is not for an event.
	w.n.events.container(pod, spec.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	if !over {
		w.stopOne(ctx, podlife.Kill{Name: spec.Name, Message: "FailedPostStartHook"})
	}
}

func runs(c *container) bool {
	a := c.Latest()
	return a != nil && a.State == podlife.Running
}

// startFailed notes a start that did not work. A command that cannot be run is an attempt that has ended; everything else is trouble that
// may pass.
func (w *worker) startFailed(pod *corev1.Pod, name string, id identity, args []string, err error) {
	var start *process.StartError
	message := err.Error()
	if inner := errors.Unwrap(err); inner != nil {
		message = inner.Error() // without the container's ID, which says nothing to a user
	}
	switch {
	case errors.Is(err, process.ErrCommandNotFound):
		message = fmt.Sprintf("exec: %q: executable file not found in $PATH: images are not pulled on this node, a container's command is a program of this machine", args[0])
	case errors.As(err, &start):
		message = start.Error()
	}
	w.n.events.container(pod, name, corev1.EventTypeWarning, "Failed", "Error: "+message)
	if !errors.As(err, &start) {
		backOff := w.n.cfg.RetryBackOff
		if errors.Is(err, process.ErrUnsupported) || errors.Is(err, process.ErrInvalid) {
			backOff = podlife.BackOff{Base: time.Minute, Max: 5 * time.Minute}
		}
		w.noteTrouble(name, "", &trouble{reasonCreateError, message, backOff})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[name]
	now := w.n.clock.Now()
	c.Attempts = append([]podlife.Attempt{{
		ID:         idPrefix + containerID(pod.UID, name, id.attempt),
		Number:     id.attempt,
		Epoch:      id.epoch,
		State:      podlife.Exited,
		FinishedAt: now,
		StartedAt:  now,
		ExitCode:   startExitCode,
		Reason:     podlife.ReasonStartError,
		Message:    message,
		BackOff:    id.backOff,
	}}, c.Attempts...)
	c.Waiting, c.ImageID = nil, id.image
	if len(c.Attempts) > 2 {
		c.Attempts = c.Attempts[:2]
	}
}

// imageTrouble says why an image cannot be used; nil when it can.
func (w *worker) imageTrouble(c *corev1.Container, img image.Image, found bool, err error) *trouble {
	back := w.n.cfg.ImageBackOff
	switch {
	case errors.Is(err, image.ErrInvalidName) && len(c.Command) == 0: // with a command, a name nobody has filled in yet does no harm
		return &trouble{reasonInvalidImageName, fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name", c.Image), back}
	case found && img.Root != "":
		if _, statErr := os.Stat(img.Root); statErr != nil {
			return &trouble{reasonErrImagePull, fmt.Sprintf("image %q is mapped to a directory that cannot be used: %v", c.Image, statErr), back}
		}
	}
	if len(img.Command(c.Command, c.Args)) == 0 || !found && len(c.Command) == 0 {
		return &trouble{reasonErrImagePull, fmt.Sprintf("nothing is pulled on this node, and image %q is not in its table of images, so it is not known what "+
			"container %q should run: give the container a command, which then runs as a program of this machine, or add the image to the table (drover up --images)", c.Image, c.Name), back}
	}
	return nil
}

// noteTrouble notes why a container waits and when it is tried again. img is the image that is the trouble; "" when it is not.
func (w *worker) noteTrouble(name, img string, t *trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[name]
	now := w.n.clock.Now()
	again := c.Waiting != nil && img != "" && c.failed == img
	c.failed = img
	c.tries.after(now, t.backOff)
	c.Waiting = &podlife.Waiting{Reason: t.reason, Message: t.message, Retry: c.tries.next}
	if img == "" {
		return
	}
	if again && t.reason == reasonErrImagePull {
		c.Waiting.Reason = reasonImagePullBackOff
		c.Waiting.Message = fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", img, t.message)
		w.n.events.container(w.pod, name, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", img))
		return
	}
	if t.reason == reasonErrImagePull {
		w.n.events.container(w.pod, name, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", img, t.message))
	} else {
		w.n.events.container(w.pod, name, corev1.EventTypeWarning, "InspectFailed", t.message)
	}
	w.n.events.container(w.pod, name, corev1.EventTypeWarning, "Failed", "Error: "+t.reason)
}

// watchAllLocked watches the containers that were found running.
func (w *worker) watchAllLocked(ctx context.Context) {
	for name, c := range w.containers {
		if runs(c) {
			w.watchLocked(ctx, name, true)
		}
	}
}

// watchLocked waits beside the worker for the end of the newest attempt of a container.
func (w *worker) watchLocked(ctx context.Context, name string, probes bool) {
	c := w.containers[name]
	c.ended, c.end = context.WithCancel(ctx)
	id := strings.TrimPrefix(c.Latest().ID, idPrefix)
	if probes {
		w.probeLocked(findContainer(&w.pod.Spec, name), c)
	}
	end := c.end
	w.goBusy(func() {
		defer end()
		select {
		case <-w.n.rt.Done(id):
			w.ended(name, id)
		case <-ctx.Done():
		}
	})
}

// ended notes how an attempt has ended.
func (w *worker) ended(name, id string) {
	w.mu.Lock()
	pod := w.pod
	w.mu.Unlock()
	spec := findContainer(&pod.Spec, name)
	status, ok := w.n.rt.Status(id)
	var over podlife.Attempt
	if ok && status.State != process.Running && spec != nil {
		labels, err := identify(status.Spec.Labels)
		if err != nil {
			w.n.log.Error("A container has lost its labels", "pod", podKey(pod), "container", name, "err", err)
		}
		over = w.n.attempt(pod, spec, labels, status)
	} else {
		over = podlife.Attempt{State: podlife.Lost, FinishedAt: w.n.clock.Now(), Message: "The runtime knows nothing of this container any more"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[name]
	for i := range c.Attempts {
		a := &c.Attempts[i]
		if a.ID != idPrefix+id {
			continue
		}
		over.ID, over.Number, over.Epoch, over.BackOff = a.ID, a.Number, a.Epoch, a.BackOff
		if over.StartedAt.IsZero() {
			over.StartedAt = a.StartedAt
		}
		*a = over
	}
	c.Stopping = false
}

// probeLocked begins the probes of the newest attempt of a container.
func (w *worker) probeLocked(spec *corev1.Container, c *container) {
	if spec == nil || !probe.Has(spec) || !runs(c) {
		return
	}
	for i := range w.pod.Spec.InitContainers {
		if w.pod.Spec.InitContainers[i].Name == spec.Name && !podlife.IsSidecar(spec) {
			return
		}
	}
	latest, pod := c.Latest(), w.pod
	target := w.n.target(pod, spec, strings.TrimPrefix(latest.ID, idPrefix), latest.StartedAt)
	id, started, ended := latest.ID, c.WasStarted, c.ended
	w.goBusy(func() {
		w.n.prober.Watch(ended, target, started, probe.Reporter{
			Verdict: func(kind probe.Kind, ok bool) { w.verdict(spec.Name, id, kind, ok) },
			Event: func(reason, message string) {
				w.n.events.container(pod, spec.Name, corev1.EventTypeWarning, reason, message)
			},
		})
	})
}

func (w *worker) verdict(name, id string, kind probe.Kind, ok bool) {
	v := podlife.Failure
	if ok {
		v = podlife.Success
	}
	w.mu.Lock()
	c := w.containers[name]
	// A pod that is to stop is no longer judged; what it answers while it ends would only lead to more trouble.
	if a := c.Latest(); a != nil && a.ID == id && (w.stop == nil || kind == probe.Readiness) {
		switch kind {
		case probe.Startup:
			c.Startup = v
		case probe.Liveness:
			c.Liveness = v
		case probe.Readiness:
			c.Readiness = v
		}
	}
	w.mu.Unlock()
	w.poke()
}

func (n *Node) target(pod *corev1.Pod, c *corev1.Container, id string, startedAt time.Time) probe.Target {
	ip := pod.Status.PodIP
	if ip == "" {
		ip = n.cfg.IPs[0]
	}
	return probe.Target{ID: id, Container: c, PodIP: ip, StartedAt: startedAt}
}

// attempt turns what the runtime says of a container into an attempt.
func (n *Node) attempt(pod *corev1.Pod, c *corev1.Container, id identity, status process.Status) podlife.Attempt {
	a := podlife.Attempt{
		ID:        idPrefix + status.Spec.ID,
		Number:    id.attempt,
		Epoch:     id.epoch,
		BackOff:   id.backOff,
		StartedAt: status.StartedAt,
		State:     podlife.Running,
	}
	switch status.State {
	case process.Running:
	case process.Exited:
		a.State = podlife.Exited
		a.ExitCode, a.Signal = int32(status.Exit.Code), int32(status.Exit.Signal)
		a.FinishedAt = status.Exit.FinishedAt
		switch {
		case status.Exit.OOMKilled:
			a.Reason = podlife.ReasonOOMKilled
		case a.ExitCode == 0:
			a.Reason = podlife.ReasonCompleted
		default:
			a.Reason = podlife.ReasonError
		}
		a.Message = n.terminationMessage(pod, c, id, a.ExitCode)
	case process.Lost:
		a.State = podlife.Lost
		a.FinishedAt = n.clock.Now()
		a.Message = lostMessage(status.Reason)
	}
	return a
}

// lostMessage says of a container that nobody saw end what there is to say.
func lostMessage(reason string) string {
	if reason == "" {
		reason = "the node was not there to see it"
	}
	return "The container is gone, and how it ended is not known: " + reason
}
