// SPDX-License-Identifier: Apache-2.0

// Package memory keeps a directory in memory: it mounts a tmpfs there, finds it again, and takes it away. What lies in it is quick
// to make and to remove, never reaches a disk, and is gone when the machine restarts.
//
// It does not decide when the directory may go. Start reading at Mount.
package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// limit is how much of the machine's memory may be in one directory. It only takes what is in use.
const limit = "size=25%"

// Mount puts dir into memory, for its owner alone, and makes it if it is missing. One that is there already stays as it is, with
// everything in it. made tells whether this call has mounted it. The error says why it cannot be had, which is the rule for an
// ordinary user; then dir is a directory on disk.
func Mount(dir string) (made bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("making a directory for a tmpfs: %w", err)
	}
	mounted, err := IsMounted(dir)
	if err != nil || mounted {
		return false, err
	}
	// Swapped out, it would be on a disk after all. Kernels before 6.4 do not know the option.
	for _, options := range []string{"mode=0700," + limit + ",noswap", "mode=0700," + limit} {
		err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
		if !errors.Is(err, unix.EINVAL) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("mounting a tmpfs at %s: %w", dir, err)
	}
	return true, nil
}

// Unmount takes away what Mount has made, with all that is in it, and the directory. It does nothing where nothing is mounted. What
// processes still have open, or mounted in namespaces of their own, goes on working for them.
func Unmount(dir string) error {
	mounted, err := IsMounted(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case mounted:
		err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil {
			return fmt.Errorf("unmounting %s: %w", dir, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing what a tmpfs was mounted on: %w", err)
	}
	return nil
}

// IsMounted reports whether a tmpfs is mounted at dir itself.
func IsMounted(dir string) (bool, error) {
	var here, parent unix.Stat_t
	var fs unix.Statfs_t
	for _, err := range []error{unix.Lstat(dir, &here), unix.Lstat(filepath.Dir(dir), &parent), unix.Statfs(dir, &fs)} {
		if err != nil {
			return false, fmt.Errorf("looking what is mounted at %s: %w", dir, err)
		}
	}
	return here.Dev != parent.Dev && fs.Type == unix.TMPFS_MAGIC, nil
}
