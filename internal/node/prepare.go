// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/internal/node/downward"
	"github.com/drover-dev/drover/internal/node/hostfiles"
	"github.com/drover-dev/drover/internal/node/objects"
	"github.com/drover-dev/drover/internal/node/podlife"
	"github.com/drover-dev/drover/internal/node/volume"
)

// prepare brings the pod's volumes and files to life, or notes when to try again.
func (w *worker) prepare(ctx context.Context) {
	defer func() {
		w.mu.Lock()
		w.preparing = false
		w.mu.Unlock()
	}()
	w.mu.Lock()
	pod := w.pod
	w.mu.Unlock()
	set, err := w.n.prepare(ctx, pod, nil)

	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		w.volumes = set
		w.live.since = w.n.clock.Now()
		w.live.stale = false
		return
	}
	now := w.n.clock.Now()
	backOff := w.n.cfg.RetryBackOff
	if errors.Is(err, volume.ErrUnsupported) {
		backOff = podlife.BackOff{Base: time.Minute, Max: time.Minute}
	}
	w.prepareTries.after(now, backOff)
	// An object that is missing now is waited for, rather than only asked for again.
	w.live.begin(w, pod)
	if !now.Before(w.mountEvent.next) {
		w.mountEvent.after(now, podlife.BackOff{Base: 2 * time.Second, Max: 2 * time.Minute})
		w.n.events.pod(pod, corev1.EventTypeWarning, "FailedMount", err.Error())
	}
	w.n.log.Debug("Preparing a pod did not work", "pod", podKey(pod), "err", err, "again", w.prepareTries.last)
}

// prepare makes what the containers of a pod share.
func (n *Node) prepare(ctx context.Context, pod *corev1.Pod, previous *volume.Set) (*volume.Set, error) {
	release, err := n.prepares.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	set, err := n.volumes.Setup(ctx, n.values(pod), previous)
	if err != nil {
		return nil, err
	}
	if previous == nil {
		err = n.writeHostFiles(pod)
	}
	return set, err
}

// values are what the pod may see of itself.
func (n *Node) values(pod *corev1.Pod) downward.Values {
	v := downward.Values{Pod: pod, HostIPs: n.cfg.IPs, PodIPs: n.cfg.IPs, Allocatable: n.allocatable}
	if len(pod.Status.PodIPs) > 0 {
		v.PodIPs = nil
		for _, ip := range pod.Status.PodIPs {
			v.PodIPs = append(v.PodIPs, ip.IP)
		}
	}
	return v
}

// Files of a pod beside its volumes, below its directory.
const (
	hostsFile    = "hosts"
	hostnameFile = "hostname"
	resolvFile   = "resolv.conf"
)

func (n *Node) writeHostFiles(pod *corev1.Pod) error {
	host, domain := hostfiles.Name(pod, n.cfg.ClusterDomain)
	if err := hostfiles.CheckFQDN(pod, host, domain); err != nil {
		return err
	}
	var hostsOfHost []byte
	if pod.Spec.HostNetwork {
		hostsOfHost, _ = os.ReadFile("/etc/hosts") // a machine without one has nothing to add
	}
	dir := n.volumes.PodDir(pod.UID)
	err := n.neighbours.write(pod.UID, domain, func(neighbours []string) error {
		return writeFile(filepath.Join(dir, hostsFile), hostfiles.Hosts(pod, n.cfg.IPs, host, domain, hostsOfHost, neighbours))
	})
	if err != nil {
		return fmt.Errorf("writing the pod's /etc/%s: %w", hostsFile, err)
	}
	files := map[string][]byte{
		hostnameFile: []byte(hostfiles.KernelName(pod, host, domain) + "\n"),
	}
	resolvOfHost, _ := os.ReadFile("/etc/resolv.conf")
	if text, ok := hostfiles.Resolv(pod, resolvOfHost); ok {
		files[resolvFile] = text
	}
	for name, text := range files {
		if err := writeFile(filepath.Join(dir, name), text); err != nil {
			return fmt.Errorf("writing the pod's /etc/%s: %w", name, err)
		}
	}
	return nil
}

// writeFile writes a file that every user of a container may read.
func writeFile(path string, text []byte) error {
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}

// liveVolumes follows what a pod's volumes mirror. Its fields belong to the worker's lock.
type liveVolumes struct {
	since      time.Time // the volumes are there since; zero: they are not
	refreshing bool
	stale      bool // something has changed that the volumes show
	tries      retry
	stops      []func()
}

// refreshLocked keeps the volumes of a running pod up to date.
func (w *worker) refreshLocked(ctx context.Context, now time.Time, at *earliest) {
	if w.volumes == nil || !mirrorsAny(&w.pod.Spec) {
		return
	}
	if w.live.stops == nil {
		begin := w.live.since.Add(w.n.cfg.LiveVolumes)
		if now.Before(begin) {
			at.add(begin)
			return
		}
		w.live.begin(w, w.pod)
	}
	due := w.live.stale || !w.volumes.Refresh.IsZero() && !now.Before(w.volumes.Refresh)
	switch {
	case w.live.refreshing:
	case !due:
		at.add(w.volumes.Refresh)
	case now.Before(w.live.tries.next):
		at.add(w.live.tries.next)
	default:
		w.live.refreshing, w.live.stale = true, false
		w.goBusy(func() { w.refresh(ctx) })
	}
}

func (w *worker) refresh(ctx context.Context) {
	defer func() {
		w.mu.Lock()
		w.live.refreshing = false
		w.mu.Unlock()
	}()
	w.mu.Lock()
	pod, previous := w.pod, w.volumes
	w.mu.Unlock()
	set, err := w.n.prepare(ctx, pod, previous)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err == nil:
		w.volumes, w.live.tries = set, retry{}
	case apierrors.IsNotFound(err):
		// The object was deleted under a running pod. Its files stay as they are; when it comes back, the watch tells.
	default:
		w.live.stale = true
		w.live.tries.after(w.n.clock.Now(), w.n.cfg.RetryBackOff)
		w.n.log.Warn("Bringing the volumes of a pod up to date did not work", "pod", podKey(pod), "err", err, "again", w.live.tries.last)
	}
}

// begin watches the objects that the pod's volumes mirror. The caller holds the worker's lock.
func (l *liveVolumes) begin(w *worker, pod *corev1.Pod) {
	if l.stops != nil {
		return
	}
	changed := func() {
		w.mu.Lock()
		l.stale = true
		l.tries, w.prepareTries = retry{}, retry{}
		w.mu.Unlock()
		w.poke()
	}
	l.stops = []func(){}
	for ref := range mirrored(&pod.Spec) {
		l.stops = append(l.stops, w.n.objects.Watch(ref.kind, pod.Namespace, ref.name, changed))
	}
}

func (l *liveVolumes) end() {
	for _, stop := range l.stops {
		stop()
	}
}

type objectRef struct {
	kind objects.Kind
	name string
}

// mirrored returns the ConfigMaps and Secrets that the volumes of a pod show.
func mirrored(spec *corev1.PodSpec) map[objectRef]bool {
	refs := map[objectRef]bool{}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		switch {
		case v.ConfigMap != nil:
			refs[objectRef{objects.ConfigMap, v.ConfigMap.Name}] = true
		case v.Secret != nil:
			refs[objectRef{objects.Secret, v.Secret.SecretName}] = true
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					refs[objectRef{objects.ConfigMap, s.ConfigMap.Name}] = true
				}
				if s.Secret != nil {
					refs[objectRef{objects.Secret, s.Secret.Name}] = true
				}
			}
		}
	}
	return refs
}

func mirrorsAny(spec *corev1.PodSpec) bool {
	for i := range spec.Volumes {
		if volume.Mirrors(&spec.Volumes[i]) {
			return true
		}
	}
	return false
}

// downwardChanged reports whether a pod has changed in what its volumes can show of it.
func downwardChanged(before, after *corev1.Pod) bool {
	return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}

// tickets bound how much of one kind is under way, so that a burst of pods does not slow every one of them down.
type tickets struct {
	free    chan struct{}
	waiting atomic.Int64
}

func newTickets(n int) *tickets { return &tickets{free: make(chan struct{}, n)} }

// take waits for a ticket; release gives it back and may be called more than once.
func (t *tickets) take(ctx context.Context) (release func(), err error) {
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	select {
	case t.free <- struct{}{}:
		return sync.OnceFunc(func() { <-t.free }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// crowded reports whether pods queue up to be started, or have within the last second.
func (n *Node) crowded() bool {
	now := n.clock.Now()
	if n.prepares.waiting.Load()+n.starts.waiting.Load() > 0 {
		n.queued.Store(now.UnixNano())
		return true
	}
	return now.Sub(time.Unix(0, n.queued.Load())) < time.Second
}
