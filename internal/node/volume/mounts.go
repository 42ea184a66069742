// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	corev1 "k8s.io/api/core/v1"
)

// Mount is one place at which a container sees a volume, or a part of it.
type Mount struct {
	Source   string // on the host
	Target   string // absolute, in the container
	ReadOnly bool
}

// Mounts returns what the container sees, outer targets before those within them. expand replaces $(NAME) in a subPathExpr.
func (s *Set) Mounts(c *corev1.Container, expand func(string) (string, error)) ([]Mount, error) {
	if len(c.VolumeDevices) > 0 {
		return nil, fmt.Errorf("a block device for container %q is %w", c.Name, ErrUnsupported)
	}
	mounts := make([]Mount, 0, len(c.VolumeMounts))
	for _, vm := range c.VolumeMounts {
		v, ok := s.byName[vm.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
		}
		source := v.path
		subPath := vm.SubPath
		if vm.SubPathExpr != "" {
			expanded, err := expand(vm.SubPathExpr)
			if err != nil {
				return nil, err
			}
			subPath = expanded
		}
		if subPath != "" {
			below, err := safeSubPath(v.path, subPath)
			if err != nil {
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name, c.Name, err)
			}
			source = below
		}
		target := vm.MountPath
		if !filepath.IsAbs(target) {
			target = "/" + target
		}
		mounts = append(mounts, Mount{Source: source, Target: filepath.Clean(target), ReadOnly: vm.ReadOnly || v.readOnly})
	}
	SortMounts(mounts)
	return mounts, nil
}

// SortMounts puts outer targets before those within them and otherwise keeps the order.
func SortMounts(mounts []Mount) {
	slices.SortStableFunc(mounts, func(a, b Mount) int { return cmp.Compare(depth(a.Target), depth(b.Target)) })
}

func depth(path string) int {
	if path == "/" {
		return 0
	}
	return strings.Count(path, "/")
}

// safeSubPath returns the path below volume, which is made a directory if it is missing. Symbolic links in it cannot lead out of the
// volume.
func safeSubPath(volume, sub string) (string, error) {
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	path, err := securejoin.SecureJoin(volume, sub)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	info, err := os.Stat(volume)
	if err != nil {
		return "", err
	}
	if err := makeDirs(volume, path, info.Mode()); err != nil {
		return "", err
	}
	return path, nil
}

// makeDirs makes path and what is missing above it, below volume, with the volume's mode and group.
func makeDirs(volume, path string, mode fs.FileMode) error {
	rel, err := filepath.Rel(volume, path)
	if err != nil {
		return err
	}
	at := volume
	for _, element := range strings.Split(rel, string(filepath.Separator)) {
		at = filepath.Join(at, element)
		err := os.Mkdir(at, mode.Perm())
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.Chmod(at, mode&(fs.ModePerm|fs.ModeSetgid)); err != nil {
			return err
		}
	}
	return nil
}

// File returns where path in a volume lies on the host. Symbolic links in it cannot lead out of the volume.
func (s *Set) File(volume, path string) (string, error) {
	v, ok := s.byName[volume]
	if !ok {
		return "", fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", volume)
	}
	return securejoin.SecureJoin(v.path, path)
}
