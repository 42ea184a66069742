// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fill makes a folder as containers leave it.
func fill(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{filepath.Join(upperDir, "tmp"), filepath.Join(workDir, "work")} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, upperDir, "tmp", "file"), []byte("text"), 0o400); err != nil {
		t.Fatal(err)
	}
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestTheTrashIsEmptiedWhenThereIsTime(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	cases := map[string]struct {
		waiting []rubbish
		started time.Time
		closed  bool
		path    string
		wait    time.Duration
	}{
		"nothing is there":                   {},
		"no container was started of late":   {waiting: []rubbish{{"a", now}, {"b", now}}, started: at(-quietStart), path: "a"},
		"one was started a moment ago":       {waiting: []rubbish{{"a", now}}, started: at(-quietStart / 4), wait: 3 * quietStart / 4},
		"it has waited for long":             {waiting: []rubbish{{"a", at(-longestWait)}, {"b", now}}, started: now, path: "a"},
		"it has waited for nearly too long":  {waiting: []rubbish{{"a", at(time.Millisecond - longestWait)}}, started: now, wait: time.Millisecond},
		"everything ends":                    {waiting: []rubbish{{"a", now}}, started: now, closed: true, path: "a"},
		"what an earlier process has left":   {waiting: []rubbish{{"a", time.Time{}}}, started: now, path: "a"},
		"the clock was set back by a minute": {waiting: []rubbish{{"a", at(time.Minute)}}, started: at(-time.Hour), path: "a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tr := &trash{waiting: tc.waiting, started: tc.started, closed: tc.closed}
			left := len(tc.waiting)
			path, wait, closed := tr.next(now)
			if path != tc.path || wait != tc.wait || closed != tc.closed {
				t.Errorf("it says %q, wait %v, closed %v; want %q, %v, %v", path, wait, closed, tc.path, tc.wait, tc.closed)
			}
			if path != "" {
				left--
			}
			if len(tr.waiting) != left {
				t.Errorf("%d are left, want %d", len(tr.waiting), left)
			}
		})
	}
}

func TestWhatIsInTheTrashIsDeleted(t *testing.T) {
	dir := t.TempDir()
	trashed, folder := filepath.Join(dir, "trash"), filepath.Join(dir, "folder")
	fill(t, filepath.Join(trashed, "left by an earlier process"))
	tr, err := newTrash(trashed, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tr.giveWay()
	for range 3 {
		fill(t, folder)
		for range 2 { // the second time it is gone already
			if err := tr.put(folder); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Lstat(folder); !os.IsNotExist(err) {
			t.Errorf("the folder is still in its place (%v)", err)
		}
	}
	tr.close()
	if n := entries(t, trashed); n != 0 {
		t.Errorf("%d folders are left", n)
	}
	fill(t, folder)
	if err := tr.put(folder); err != nil {
		t.Fatal(err)
	}
	if n := entries(t, trashed); n != 0 {
		t.Errorf("%d folders are left that came late", n)
	}
}
