// SPDX-License-Identifier: Apache-2.0

// Package retain keeps the logs of failed pods, and how they ended, after their objects are gone. Start reading at Store.Keep.
package retain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/atomicfile"
	"github.com/drover-dev/drover/internal/node/logs"
)

// recordName is the file beside the logs of a pod that holds its last state. No container can have this name.
const recordName = "pod.json"

// Store keeps the logs of pods in a directory. It is safe for concurrent use.
type Store struct {
	dir    string
	most   int           // pods that are kept; the oldest go first
	oldest time.Duration // how long one is kept

	mu sync.Mutex
}

// New returns a store in the directory of a node, which it makes. It keeps at most that many pods, each for so long.
func New(nodeDir string, most int, oldest time.Duration) (*Store, error) {
	s := In(nodeDir)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of retained logs: %w", err)
	}
	s.most, s.oldest = most, oldest
	return s, nil
}

// In returns the store of a node for reading only. It may not be there yet.
func In(nodeDir string) *Store { return &Store{dir: filepath.Join(nodeDir, "retained")} }

// HasFailed reports whether a container of pod has ended badly, the last time or the time before.
func HasFailed(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed {
		return true
	}
	bad := func(t *corev1.ContainerStateTerminated) bool { return t != nil && t.ExitCode != 0 }
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			if bad(s.State.Terminated) || bad(s.LastTerminationState.Terminated) {
				return true
			}
		}
	}
	return false
}

// Keep moves the directory of a pod's logs into the store, with what is known of the pod. Afterwards logDir is gone. A pod without logs
// is not kept.
func (s *Store) Keep(pod *corev1.Pod, logDir string, now time.Time) error {
	if _, err := os.Stat(logDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	record := pod.DeepCopy()
	record.ManagedFields = nil
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("noting how pod %s/%s ended: %w", pod.Namespace, pod.Name, err)
	}
	if err := atomicfile.Write(filepath.Join(logDir, recordName), data, 0o600); err != nil {
		return fmt.Errorf("noting how pod %s/%s ended: %w", pod.Namespace, pod.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(logDir, filepath.Join(s.dir, filepath.Base(logDir))); err != nil {
		return fmt.Errorf("keeping the logs of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return s.trimLocked(now)
}

// trimLocked removes what is too old or too much.
func (s *Store) trimLocked(now time.Time) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("looking through the retained logs: %w", err)
	}
	type kept struct {
		path string
		at   time.Time
	}
	var all []kept
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		info, err := os.Stat(filepath.Join(path, recordName))
		if err != nil {
			continue // being removed
		}
		all = append(all, kept{path, info.ModTime()})
	}
	slices.SortFunc(all, func(a, b kept) int { return b.at.Compare(a.at) })
	var errs []error
	for i, k := range all {
		if i >= s.most || now.Sub(k.at) > s.oldest {
			errs = append(errs, os.RemoveAll(k.path))
		}
	}
	return errors.Join(errs...)
}

// Pods returns the pods of a namespace that are kept, as they were last, in no order.
func (s *Store) Pods(namespace string) ([]*corev1.Pod, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking through the retained logs: %w", err)
	}
	var pods []*corev1.Pod
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), namespace+"_") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.dir, e.Name(), recordName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		pod := &corev1.Pod{}
		if err == nil {
			err = json.Unmarshal(data, pod)
		}
		if err != nil {
			return nil, fmt.Errorf("reading how the pod of %s ended: %w", e.Name(), err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// Log writes what a container of a pod that Pods has returned has printed: in its last run, or in the one before.
func (s *Store) Log(ctx context.Context, pod *corev1.Pod, container string, previous bool, o logs.Options, out io.Writer) error {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, status := range list {
			if status.Name != container {
				continue
			}
			attempt := status.RestartCount
			if previous {
				attempt--
			}
			return logs.Read(ctx, logs.Path(s.dirOf(pod), container, attempt), o, out, out)
		}
	}
	return fmt.Errorf("pod %q has no container %q", pod.Name, container)
}

func (s *Store) dirOf(pod *corev1.Pod) string {
	return filepath.Join(s.dir, logs.PodDirName(pod.Namespace, pod.Name, string(pod.UID)))
}
