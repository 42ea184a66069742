// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"
)

func (m *Manager) emptyDir(pod *corev1.Pod, v *corev1.Volume) (string, error) {
	if strings.HasPrefix(string(v.EmptyDir.Medium), string(corev1.StorageMediumHugePages)) {
		return "", fmt.Errorf("medium %s is %w", v.EmptyDir.Medium, ErrUnsupported)
	}
	path := m.path(pod.UID, v)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	switch err := os.Mkdir(path, 0o777); {
	case err == nil:
		// The process's umask must not narrow it.
		if err := os.Chmod(path, 0o777); err != nil {
			return "", err
		}
	case !errors.Is(err, os.ErrExist):
		return "", err
	}
	if v.EmptyDir.Medium == corev1.StorageMediumMemory && m.root {
		if err := mountTmpfs(path, v.EmptyDir); err != nil {
			return "", err
		}
	}
	return path, m.own(path, pod, false)
}

func mountTmpfs(path string, source *corev1.EmptyDirVolumeSource) error {
	mounted, err := isMountPoint(path)
	if err != nil || mounted {
		return err
	}
	options := "mode=0777"
	if source.SizeLimit != nil && source.SizeLimit.Sign() > 0 {
		options += fmt.Sprintf(",size=%d", source.SizeLimit.Value())
	}
	if err := syscall.Mount("tmpfs", path, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting a tmpfs: %w", err)
	}
	return nil
}

// Usage returns how many bytes each emptyDir of the pod holds on disk, by volume name. Volumes in memory count as well.
func (m *Manager) Usage(pod *corev1.Pod) (map[string]int64, error) {
	usage := map[string]int64{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil {
			continue
		}
		n, err := DiskUsage(m.path(pod.UID, v))
		if err != nil {
			return nil, fmt.Errorf("measuring volume %q: %w", v.Name, err)
		}
		usage[v.Name] = n
	}
	return usage, nil
}

// DiskUsage returns how many bytes the files below path occupy. A file with several names counts once, and what vanishes while it
// looks does not count.
func DiskUsage(path string) (int64, error) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var total int64
	err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		id := inode{stat.Dev, stat.Ino}
		if stat.Nlink > 1 && seen[id] {
			return nil
		}
		seen[id] = true
		total += stat.Blocks * 512
		return nil
	})
	return total, err
}

func isMountPoint(path string) (bool, error) {
	var here, parent syscall.Stat_t
	if err := syscall.Lstat(path, &here); err != nil {
		return false, err
	}
	if err := syscall.Lstat(filepath.Dir(path), &parent); err != nil {
		return false, err
	}
	return here.Dev != parent.Dev, nil
}

// unmountBelow takes away every mount below dir, the innermost first.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for i := len(points) - 1; i >= 0; i-- {
		err := syscall.Unmount(points[i], 0)
		if errors.Is(err, syscall.EBUSY) {
			// A process that outlived its container holds it open. Detached, it goes when the process does.
			err = syscall.Unmount(points[i], syscall.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", points[i], err)
		}
	}
	return nil
}

func mountsBelow(dir string) ([]string, error) {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	var points []string
	for _, info := range infos {
		if strings.HasPrefix(info.MountPoint, dir+"/") {
			points = append(points, info.MountPoint)
		}
	}
	return points, nil
}
