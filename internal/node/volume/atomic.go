// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The layout is kubelet's, which programs rely on to notice changes:
//
//	<volume>/key        -> ..data/key
//	<volume>/..data     -> ..2026_01_02_15_04_05.000000001
//	<volume>/..2026_01_02_15_04_05.000000001/key
//
// Replacing ..data by a rename changes all files in one step.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// writeAtomically makes the files of a volume appear at dir, all at once, and does nothing when they are there already.
func writeAtomically(dir string, files map[string]file, now time.Time) error {
	for path := range files {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if old != "" && same(filepath.Join(dir, old), files) {
		return nil
	}
	fresh, err := freshDir(dir, now)
	if err != nil {
		return err
	}
	if err := writeFiles(filepath.Join(dir, fresh), files); err != nil {
		return errors.Join(err, os.RemoveAll(filepath.Join(dir, fresh)))
	}
	tmp := filepath.Join(dir, newDataLink)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(fresh, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, dataLink)); err != nil {
		return err
	}
	if err := linkNames(dir, files); err != nil {
		return err
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, old))
	}
	return nil
}

func freshDir(dir string, now time.Time) (string, error) {
	path, err := os.MkdirTemp(dir, now.UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return "", err
	}
	return filepath.Base(path), os.Chmod(path, 0o755)
}

func writeFiles(dir string, files map[string]file) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		full := filepath.Join(dir, path)
		if strings.Contains(path, "/") {
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				return err
			}
		}
		mode := fs.FileMode(f.mode) & fs.ModePerm
		if err := os.WriteFile(full, f.data, mode); err != nil {
			return err
		}
		// The umask must not narrow the mode.
		if err := os.Chmod(full, mode); err != nil {
			return err
		}
		if f.uid != nil && os.Geteuid() == 0 {
			if err := os.Chown(full, int(*f.uid), -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkNames makes the names that users see, and removes those that are gone.
func linkNames(dir string, files map[string]file) error {
	wanted := map[string]bool{}
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		wanted[name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case wanted[e.Name()]:
			delete(wanted, e.Name())
		case !strings.HasPrefix(e.Name(), ".."):
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for name := range wanted {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether exactly these files are below dir.
func same(dir string, files map[string]file) bool {
	n := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		path, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		f, ok := files[path]
		if !ok {
			return errors.New("one file too many")
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		// fsGroup may have added group bits to the mode.
		if !bytes.Equal(data, f.data) || info.Mode().Perm()&0o707 != fs.FileMode(f.mode)&0o707 {
			return errors.New("it differs")
		}
		n++
		return nil
	})
	return err == nil && n == len(files)
}

// checkPath refuses paths that would leave the volume.
func checkPath(path string) error {
	if path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, "..") || slices.Contains(strings.Split(path, "/"), "..") {
		return fmt.Errorf("invalid path %q", path)
	}
	return nil
}
