// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOpenMakesAPrivateDirectory(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "a", "b"))
	o := mustOpen(t, d, false)
	defer mustClose(t, o)
	want := format{Version: 1, Made: true, NodeName: "machine"}
	if diff := cmp.Diff(want, o.format); diff != "" {
		t.Errorf("format (-want +got):\n%s", diff)
	}
	assertPrivate(t, string(d))
}

func TestOpenRefusesAndChangesNothing(t *testing.T) {
	cases := map[string]struct {
		files     map[string]string
		ephemeral bool
		want      string
	}{
		"a directory that holds something else": {
			files: map[string]string{"thesis.tex": "…"},
			want:  `it holds "thesis.tex" and was not made by drover`,
		},
		"data of another version": {
			files: map[string]string{"drover.json": `{"version": 2, "nodeName": "m"}`},
			want:  "it has data of version 2, and this drover reads version 1; nothing was changed",
		},
		"data that is meant to stay, for an ephemeral plane": {
			files:     map[string]string{"drover.json": `{"version": 1}`, "etcd/db": "…"},
			ephemeral: true,
			want:      "it holds data that is meant to stay, and --ephemeral would remove it",
		},
		"ephemeral data, for a plane that stays": {
			files: map[string]string{"drover.json": `{"version": 1, "ephemeral": true}`},
			want:  "it was made with --ephemeral",
		},
		"a version that cannot be read": {
			files: map[string]string{"drover.json": `{"version`},
			want:  "drover.json: unexpected end of JSON input",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Dir(t.TempDir())
			for file, content := range tc.files {
				put(t, d.path(file), content)
			}
			before := tree(t, string(d))
			o, err := open(d, tc.ephemeral, "machine")
			if err == nil {
				mustClose(t, o)
				t.Fatal("open worked")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q, want one with %q", err, tc.want)
			}
			if diff := cmp.Diff(before, tree(t, string(d))); diff != "" {
				t.Errorf("the directory has changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOpenGoesOnAfterACrash(t *testing.T) {
	cases := map[string]map[string]string{
		"that left nothing but the lock":       {"lock": "4711 12345\n"},
		"in the middle of the write probe":     {".probe": "\x00\x00"},
		"before the version was in its place":  {"lock": "", "drover.json.new": `{"ver`},
		"of a run that had stored things":      {"lock": "4711 12345\n", "drover.json": `{"version": 1, "nodeName": "first"}`, "state.json.new": "{", "run/etcd.sock": ""},
		"that left a kubeconfig half written":  {"drover.json": `{"version": 1}`, "kubeconfig.new": "apiVer"},
		"that happened before any of it began": {},
	}
	for name, files := range cases {
		t.Run(name, func(t *testing.T) {
			d := Dir(t.TempDir())
			for file, content := range files {
				put(t, d.path(file), content)
			}
			o := mustOpen(t, d, false)
			defer mustClose(t, o)
			if strings.Contains(files["drover.json"], "first") && o.format.NodeName != "first" {
				t.Errorf("node %q, want the name that the directory was made with", o.format.NodeName)
			}
			assertPrivate(t, string(d))
		})
	}
}

func TestOpenTellsThatOthersCouldLookIn(t *testing.T) {
	d := Dir(t.TempDir())
	mustClose(t, mustOpen(t, d, false))
	if err := os.Chmod(string(d), 0o755); err != nil {
		t.Fatal(err)
	}
	o := mustOpen(t, d, false)
	defer mustClose(t, o)
	if len(o.notes) != 1 || !strings.Contains(o.notes[0], "was open to others") {
		t.Errorf("notes %q, want one about the mode", o.notes)
	}
	assertPrivate(t, string(d))
}

func TestOneProcessHasADirectory(t *testing.T) {
	d := Dir(t.TempDir())
	o := mustOpen(t, d, false)
	_, err := open(d, false, "machine")
	running, ok := errors.AsType[*RunningError](err)
	if want := (&RunningError{Dir: string(d), PID: os.Getpid()}); !ok || *running != *want {
		t.Errorf("a second open: %v, want %v", err, want)
	}
	found, err := Inspect(d)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Found{Exists: true, Running: true, PID: os.Getpid()}, found); diff != "" {
		t.Errorf("while it is open (-want +got):\n%s", diff)
	}
	mustClose(t, o)
	if found, err = Inspect(d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Found{Exists: true}, found); diff != "" {
		t.Errorf("once it is closed (-want +got):\n%s", diff)
	}
	mustClose(t, mustOpen(t, d, false))
}

// The number in the lock may belong to somebody else by now, for instance after the machine has started again.
func TestALockThatNobodyHoldsNamesNobody(t *testing.T) {
	d := Dir(t.TempDir())
	mustClose(t, mustOpen(t, d, false))
	put(t, d.lock(), "1 1\n")
	found, err := Inspect(d)
	if err != nil {
		t.Fatal(err)
	}
	if found.Running || found.PID != 0 {
		t.Errorf("found %+v, want nobody", found)
	}
}

func TestInspectOfADirectoryThatIsNotThere(t *testing.T) {
	found, err := Inspect(Dir(filepath.Join(t.TempDir(), "none")))
	if diff := cmp.Diff(Found{}, found); err != nil || diff != "" {
		t.Errorf("error %v, found (-want +got):\n%s", err, diff)
	}
}

func TestCloseOfAnEphemeralDirectory(t *testing.T) {
	cases := map[string]struct {
		exists bool
		extra  string // somebody else's
		want   []string
	}{
		"removes it":                           {want: nil},
		"empties one that was there before":    {exists: true, want: []string{"."}},
		"leaves alone what is not the plane's": {exists: true, extra: "notes.txt", want: []string{".", "notes.txt"}},
		"leaves its own if something is in it": {extra: "notes.txt", want: []string{".", "notes.txt"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Dir(filepath.Join(t.TempDir(), "d"))
			if tc.exists {
				if err := os.Mkdir(string(d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			// The second run stands for one that goes on after a crash of the first.
			first := mustOpen(t, d, true)
			if err := first.lock.release(); err != nil {
				t.Fatal(err)
			}
			o := mustOpen(t, d, true)
			put(t, d.path("etcd", "member", "db"), "…")
			put(t, d.path("node", "pods", "p", "file"), "…")
			put(t, d.Kubeconfig(), "…")
			if tc.extra != "" {
				put(t, d.path(tc.extra), "mine")
			}
			err := o.close()
			if wantErr := tc.extra != "" && !tc.exists; (err != nil) != wantErr {
				t.Errorf("close: %v", err)
			}
			if diff := cmp.Diff(tc.want, tree(t, string(d))); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}

// What is mounted below the data directory is somebody else's, and removing the directory would remove it.
func TestCloseOfAnEphemeralDirectorySparesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	other := t.TempDir()
	put(t, filepath.Join(other, "precious"), "…")
	d := Dir(filepath.Join(t.TempDir(), "d d"))
	o := mustOpen(t, d, true)
	at := d.path("node", "volume")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "--bind", other, at).CombinedOutput(); err != nil {
		t.Skipf("bind mounts do not work here: %s", out)
	}
	mounted := true
	unmount := func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); mounted && err != nil {
			t.Errorf("unmounting: %s", out)
		}
		mounted = false
	}
	defer unmount()
	if err := o.remove(); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("error %v, want one that names %s", err, at)
	}
	unmount()
	mustClose(t, o)
	if _, err := os.Stat(filepath.Join(other, "precious")); err != nil {
		t.Errorf("what was mounted is gone: %v", err)
	}
}

func TestDefaultDir(t *testing.T) {
	cases := map[string]struct {
		uid  int
		env  map[string]string
		want Dir
	}{
		"root has the system's":                       {env: map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/x"}, want: "/var/lib/drover"},
		"others have their state directory":           {uid: 7, env: map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/x"}, want: "/x/drover"},
		"which is in the home directory by default":   {uid: 7, env: map[string]string{"HOME": "/home/u"}, want: "/home/u/.local/state/drover"},
		"and not in the current one":                  {uid: 7, env: map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "state"}, want: "/home/u/.local/state/drover"},
		"a user without a home must name a directory": {uid: 7, want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := DefaultDir(tc.uid, func(key string) string { return tc.env[key] })
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func mustOpen(t *testing.T, d Dir, ephemeral bool) *openDir {
	t.Helper()
	o, err := open(d, ephemeral, "machine")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustClose(t *testing.T, o *openDir) {
	t.Helper()
	if err := o.close(); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree lists what is in dir, itself as "."; nothing if it is not there.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		names = append(names, name)
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

// assertPrivate checks that nobody but the owner can reach anything in dir.
func assertPrivate(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
