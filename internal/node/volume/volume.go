// SPDX-License-Identifier: Apache-2.0

// Package volume brings the volumes of a pod to life as files and directories of the host, keeps those that mirror API objects up to
// date, and takes them all away again.
//
// What the containers of a pod write lies below <dir>/<pod uid>, what they are shown below <files>/<pod uid>, which may be on a tmpfs; so
// what a crash leaves behind can be told apart from what is in use by names alone. The package mounts nothing into a container; that
// is the runtime's part. Start reading at Manager.
package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/node/downward"
)

// Objects returns the API objects that volumes are made of.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	Token(ctx context.Context, pod *corev1.Pod, audience string, lifetime time.Duration) (*authenticationv1.TokenRequest, error)
}

// Manager makes and removes volumes. Calls for different pods may run at the same time, those for one pod may not.
type Manager struct {
	dir      string
	files    string
	nodeName string
	objects  Objects
	clock    clock.PassiveClock
	log      *slog.Logger
	root     bool // may change owners and mount
}

// New returns a manager that keeps what pods write below dir and what they are shown below files, which may be the same.
func New(dir, files, nodeName string, objects Objects, c clock.PassiveClock, log *slog.Logger) *Manager {
	return &Manager{dir: dir, files: files, nodeName: nodeName, objects: objects, clock: c, log: log, root: os.Geteuid() == 0}
}

// Set are the volumes of one pod, ready for its containers.
type Set struct {
	byName map[string]mounted
	// Refresh is when the volumes must be set up again because a token in them gets old; zero: never.
	Refresh time.Time
	tokens  map[tokenKey]token
}

type mounted struct {
	path     string
	readOnly bool
}

// ErrUnsupported means that no retry will help: this node does not know that kind of volume.
var ErrUnsupported = errors.New("not supported by this node")

// PodDir returns the directory of what a pod is shown. Setup makes it.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.files, string(uid)) }

// dirs are the directories of everything that belongs to a pod.
func (m *Manager) dirs(uid types.UID) []string {
	if m.dir == m.files {
		return []string{m.PodDir(uid)}
	}
	return []string{m.PodDir(uid), filepath.Join(m.dir, string(uid))}
}

// Setup makes the pod's volumes or brings them up to date. Calling it again is harmless, and what its containers have written is
// kept. previous is what an earlier call returned, or nil; its tokens are used again as long as they are young enough. An error
// names the volume; the pod has to wait until a later call succeeds.
func (m *Manager) Setup(ctx context.Context, values downward.Values, previous *Set) (*Set, error) {
	pod := values.Pod
	if err := os.MkdirAll(m.PodDir(pod.UID), 0o700); err != nil {
		return nil, fmt.Errorf("making the pod's directory: %w", err)
	}
	set := &Set{byName: map[string]mounted{}, tokens: map[tokenKey]token{}}
	if previous != nil {
		maps.Copy(set.tokens, previous.tokens)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mount, err := m.setupOne(ctx, values, v, set)
		if err != nil {
			return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
		set.byName[v.Name] = mount
	}
	return set, nil
}

func (m *Manager) setupOne(ctx context.Context, values downward.Values, v *corev1.Volume, set *Set) (mounted, error) {
	pod := values.Pod
	switch {
	case v.EmptyDir != nil:
		path, err := m.emptyDir(pod, v)
		return mounted{path: path}, err
	case v.HostPath != nil:
		return mounted{path: v.HostPath.Path}, checkHostPath(v.HostPath)
	case v.PersistentVolumeClaim != nil:
		return m.claim(ctx, pod, v.PersistentVolumeClaim)
	}
	files, ok, err := m.payload(ctx, values, v, set)
	if err != nil {
		return mounted{}, err
	}
	if !ok {
		return mounted{}, fmt.Errorf("a volume of kind %s is %w", kindOf(v), ErrUnsupported)
	}
	path := m.path(pod.UID, v)
	if err := writeAtomically(path, files, m.clock.Now()); err != nil {
		return mounted{}, err
	}
	return mounted{path: path, readOnly: true}, m.own(path, pod, true)
}

// Mirrors reports whether a volume shows API objects, so that it follows their changes.
func Mirrors(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// Path returns where a volume lies on the host.
func (s *Set) Path(name string) (path string, readOnly, ok bool) {
	v, ok := s.byName[name]
	return v.path, v.readOnly, ok
}

// Cleanup takes away everything that belongs to the pod. It does nothing when there is nothing.
func (m *Manager) Cleanup(uid types.UID) error {
	var errs []error
	for _, dir := range m.dirs(uid) {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		// A tmpfs must go first: its files are not ours to remove one by one, and what is mounted keeps the directory.
		if err := errors.Join(unmountBelow(dir), os.RemoveAll(dir)); err != nil {
			errs = append(errs, fmt.Errorf("removing the files of pod %s: %w", uid, err))
		}
	}
	return errors.Join(errs...)
}

// CleanupPod is Cleanup for a pod that is known, and spares what that pod cannot need.
func (m *Manager) CleanupPod(pod *corev1.Pod) error {
	var memory, disk bool
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].EmptyDir; e != nil {
			disk = true
			memory = memory || e.Medium == corev1.StorageMediumMemory
		}
	}
	if memory {
		return m.Cleanup(pod.UID)
	}
	dirs := m.dirs(pod.UID)
	if !disk {
		dirs = dirs[:1]
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return m.Cleanup(pod.UID) // perhaps something is mounted there after all
		}
	}
	return nil
}

// Pods lists the pods that have a directory.
func (m *Manager) Pods() ([]types.UID, error) {
	seen := map[types.UID]bool{}
	for _, dir := range slices.Compact([]string{m.dir, m.files}) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("listing the directories of pods: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				seen[types.UID(e.Name())] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

func (m *Manager) path(uid types.UID, v *corev1.Volume) string {
	base := m.files
	if v.EmptyDir != nil {
		base = m.dir
	}
	return filepath.Join(base, string(uid), "volumes", kindOf(v), v.Name)
}

// kindOf names the kind of a volume for messages and directories.
func kindOf(v *corev1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "empty-dir"
	case v.ConfigMap != nil:
		return "configmap"
	case v.Secret != nil:
		return "secret"
	case v.DownwardAPI != nil:
		return "downward-api"
	case v.Projected != nil:
		return "projected"
	case v.Ephemeral != nil:
		return "ephemeral"
	case v.CSI != nil:
		return "csi"
	case v.NFS != nil:
		return "nfs"
	case v.ISCSI != nil:
		return "iscsi"
	case v.Image != nil:
		return "image"
	case v.FC != nil:
		return "fc"
	case v.FlexVolume != nil:
		return "flexVolume"
	}
	return "unknown"
}
