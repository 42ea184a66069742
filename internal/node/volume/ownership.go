// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// own gives everything below path to the pod's fsGroup, readable for it and, unless readOnly, writable. Without fsGroup, or
// without the right to change owners, it does nothing.
func (m *Manager) own(path string, pod *corev1.Pod, readOnly bool) error {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil || !m.root {
		return nil
	}
	gid := int(*sc.FSGroup)
	return filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.Lchown(name, -1, gid); err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o660)
		if readOnly {
			want = 0o440
		}
		if d.IsDir() {
			want |= 0o110 | fs.ModeSetgid
		}
		return os.Chmod(name, info.Mode()|want)
	})
}

// fileOwner returns the user that all containers of the pod run as; nil when they differ or none is named. Tokens belong to it.
func fileOwner(pod *corev1.Pod) *int64 {
	var common *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		common = sc.RunAsUser
	}
	var owner *int64
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			user := common
			if sc := list[i].SecurityContext; sc != nil && sc.RunAsUser != nil {
				user = sc.RunAsUser
			}
			if user == nil || owner != nil && *owner != *user {
				return nil
			}
			owner = user
		}
	}
	return owner
}
