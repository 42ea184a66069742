// SPDX-License-Identifier: Apache-2.0

package logfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriter(t *testing.T) {
	cases := map[string]struct {
		before map[string]string
		keep   int
		lines  []string
		want   map[string]string
	}{
		"appends to what is there": {
			before: map[string]string{"log": "a\n"}, keep: 2,
			lines: []string{"b\n"},
			want:  map[string]string{"log": "a\nb\n"},
		},
		"starts a new file rather than going over the limit": {
			keep:  2,
			lines: []string{"12345678\n", "abcdefgh\n"},
			want:  map[string]string{"log": "abcdefgh\n", "log.1": "12345678\n"},
		},
		"keeps as many old files as it was told": {
			keep:  2,
			lines: []string{"11111111\n", "22222222\n", "33333333\n", "44444444\n"},
			want:  map[string]string{"log": "44444444\n", "log.1": "33333333\n", "log.2": "22222222\n"},
		},
		"keeps none if it was told so": {
			keep:  0,
			lines: []string{"11111111\n", "22222222\n"},
			want:  map[string]string{"log": "22222222\n"},
		},
		"writes a line that is longer than the limit": {
			keep:  1,
			lines: []string{"1\n", "0123456789abcdef\n", "2\n"},
			want:  map[string]string{"log": "2\n", "log.1": "0123456789abcdef\n"},
		},
		"counts what was there when it starts": {
			before: map[string]string{"log": "12345678\n"}, keep: 1,
			lines: []string{"abc\n"},
			want:  map[string]string{"log": "abc\n", "log.1": "12345678\n"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range tc.before {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w, err := Open(filepath.Join(dir, "log"), 10, tc.keep)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range tc.lines {
				if _, err := w.Write([]byte(line)); err != nil {
					t.Fatalf("writing %q: %v", line, err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, content(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriterOnAFullDiskLosesLinesAndSaysWhy(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full, which every Linux has")
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	w, err := Open(path, 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("lost\n")); err == nil {
		t.Error("writing to a full disk worked")
	}
	if w.Err() == nil {
		t.Error("Err is nil after a line was lost")
	}
}

func TestClosedWriterRefusesToWrite(t *testing.T) {
	w, err := Open(filepath.Join(t.TempDir(), "log"), 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write([]byte("late\n")); err == nil {
		t.Error("writing after Close worked")
	}
}

func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[entry.Name()] = string(data)
	}
	return got
}
