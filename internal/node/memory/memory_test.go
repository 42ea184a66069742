// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// mount is Mount for tests that need one.
func mount(t *testing.T, dir string) (made bool) {
	t.Helper()
	made, err := Mount(dir)
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting needs root")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Unmount(dir); err != nil {
			t.Error(err)
		}
	})
	return made
}

func TestWhatIsInMemoryIsFoundAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "memory")
	if !mount(t, dir) {
		t.Error("the first call has not made it")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if made, err := Mount(dir); made || err != nil {
		t.Errorf("the second call: made %v, error %v", made, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "text" {
		t.Errorf("after the second call the file holds %q (%v)", text, err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("it is %v (%v)", info.Mode(), err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if want := int64(unix.ST_NOSUID | unix.ST_NODEV); fs.Flags&want != want {
		t.Errorf("its flags are %#x: programs in it could gain rights", fs.Flags)
	}
	if fs.Blocks == 0 {
		t.Error("nothing limits how much memory it takes")
	}
}

func TestUnmountLeavesNothing(t *testing.T) {
	cases := map[string]func(t *testing.T, dir string){
		"of an empty one": func(*testing.T, string) {},
		"of a full one": func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"of one that is in use": func(t *testing.T, dir string) {
			t.Helper()
			f, err := os.Create(filepath.Join(dir, "file"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		},
		"of one with something mounted in it": func(t *testing.T, dir string) { t.Helper(); mount(t, filepath.Join(dir, "inner")) },
	}
	for name, use := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "memory")
			mount(t, dir)
			use(t, dir)
			for range 2 {
				if err := Unmount(dir); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is still there (%v)", err)
			}
		})
	}
}

func TestUnmountSparesAnOrdinaryDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Unmount(dir); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
}
