// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces a file as a whole: whoever reads it, and whoever comes after a crash, sees all of the old
// content or all of the new.
package atomicfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes data the content of the file path, with exactly the permissions perm whatever the umask is. It returns once
// the disk has it. The directory of path must exist; a temporary file in it, named after path, is gone when Write returns,
// and is overwritten by the next Write if the process ends before that.
//
// Two concurrent Writes to one path are not safe.
func Write(path string, data []byte, perm fs.FileMode) (err error) {
	dir, temporary := filepath.Dir(path), path+".new"
	// A leftover may have other permissions, which opening it would keep.
	if err := os.Remove(temporary); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // closed already, or about to be removed
			_ = os.Remove(temporary)
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}
