// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// checkHostPath makes what the source's type asks for, or checks that it is there. The texts are kubelet's.
func checkHostPath(source *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	path := source.Path
	info, err := os.Stat(path)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	is := func(ok bool, what string) error {
		if missing || !ok {
			return fmt.Errorf("hostPath type check failed: %s is not a %s", path, what)
		}
		return nil
	}
	switch kind {
	case corev1.HostPathUnset:
		// Nothing is checked; a container runtime makes a missing source a directory.
		if missing {
			return os.MkdirAll(path, 0o755)
		}
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if missing {
			return os.MkdirAll(path, 0o755)
		}
		return is(info.IsDir(), "directory")
	case corev1.HostPathDirectory:
		return is(!missing && info.IsDir(), "directory")
	case corev1.HostPathFileOrCreate:
		if missing {
			f, err := os.OpenFile(path, os.O_CREATE, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
		return is(info.Mode().IsRegular(), "file")
	case corev1.HostPathFile:
		return is(!missing && info.Mode().IsRegular(), "file")
	case corev1.HostPathSocket:
		return is(!missing && info.Mode()&os.ModeSocket != 0, "socket file")
	case corev1.HostPathCharDev:
		return is(!missing && info.Mode()&os.ModeCharDevice != 0, "character device")
	case corev1.HostPathBlockDev:
		return is(!missing && info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0, "block device")
	}
	return fmt.Errorf("hostPath type check failed: %q is an invalid volume type", kind)
}
