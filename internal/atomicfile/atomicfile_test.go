// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	cases := map[string]func(t *testing.T, path string){
		"a file that was not there":                        func(*testing.T, string) {},
		"a file that was there, with other permissions":    func(t *testing.T, path string) { put(t, path, "old", 0o644) },
		"a leftover of a Write that was cut off":           func(t *testing.T, path string) { put(t, path+".new", "half", 0o644) },
		"a leftover that this user may read but not write": func(t *testing.T, path string) { put(t, path+".new", "half", 0o400) },
	}
	for name, before := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			before(t, path)
			if err := Write(path, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != "new" || info.Mode() != 0o600 {
				t.Errorf("content %q with mode %v, want %q with -rw-------", got, info.Mode(), "new")
			}
			assertAlone(t, path)
		})
	}
}

func TestWriteThatFailsLeavesTheOldFileAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "target")
	// A directory in the file's place cannot be replaced by rename.
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	err := Write(path, []byte("new"), 0o600)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names %s", err, path)
	}
	assertAlone(t, path)
}

func put(t *testing.T, path, content string, perm os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), perm); err != nil {
		t.Fatal(err)
	}
}

func assertAlone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("directory holds %v, want %s alone", entries, filepath.Base(path))
	}
}
