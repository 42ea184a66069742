// SPDX-License-Identifier: Apache-2.0

// Package logs finds and reads the log files of containers.
//
// A file holds one record a line, "<RFC3339Nano time> <stdout|stderr> <F|P> <text>", as the container runtime interface has
// it; P marks a part of a line that goes on in the next record. The runtime writes and rotates them, this package only reads.
//
// Start reading at Read.
package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PodDir returns the directory of a pod's logs below root, named as on a kubelet so that a person finds a pod there.
func PodDir(root string, pod *corev1.Pod) string {
	return filepath.Join(root, PodDirName(pod.Namespace, pod.Name, string(pod.UID)))
}

// PodDirName returns the name of the directory of a pod's logs.
func PodDirName(namespace, name, uid string) string { return namespace + "_" + name + "_" + uid }

// UID returns the UID of the pod that a directory of logs belongs to, and false when the name is not one of ours.
func UID(dirName string) (string, bool) {
	parts := strings.Split(dirName, "_")
	if len(parts) != 3 || parts[2] == "" {
		return "", false
	}
	return parts[2], true
}

// Path returns the file that takes the output of one attempt of a container.
func Path(podDir, container string, attempt int32) string {
	return filepath.Join(podDir, container, strconv.Itoa(int(attempt))+".log")
}

// MessagePath returns the file for the last words of the attempt whose log is at path. Like a log it lies on disk and outlives the
// container: a program may take it for its log, and write more to it than would do the machine's memory good.
func MessagePath(path string) string { return strings.TrimSuffix(path, ".log") + ".message" }

// RemoveAttempt deletes the log of one attempt with everything that was rotated away from it, and its last words.
func RemoveAttempt(path string) error {
	files, err := generations(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range append(files, MessagePath(path)) {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// generations lists the files of one log, the oldest first. Rotated files carry a suffix: a number that grows with age, or a time.
func generations(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the files of log %s: %w", path, err)
	}
	base := filepath.Base(path)
	current := false
	var rotated []string
	for _, e := range entries {
		switch suffix, ok := strings.CutPrefix(e.Name(), base+"."); {
		case e.Name() == base:
			current = true
		case ok && suffix != "" && !strings.HasSuffix(suffix, ".tmp"):
			rotated = append(rotated, suffix)
		}
	}
	slices.SortFunc(rotated, func(a, b string) int {
		na, errA := strconv.Atoi(a)
		nb, errB := strconv.Atoi(b)
		if errA == nil && errB == nil {
			return nb - na
		}
		return strings.Compare(a, b)
	})
	files := make([]string, 0, len(rotated)+1)
	for _, suffix := range rotated {
		files = append(files, path+"."+suffix)
	}
	if current {
		files = append(files, path)
	}
	return files, nil
}
