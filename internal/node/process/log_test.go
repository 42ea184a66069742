// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLogKeepsStreamsApart(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		w.run(w.shell("a", "echo one; echo two >&2; echo; printf three"))
		out, errOut := w.streams("a")
		if out != "one\n\nthree" || errOut != "two\n" {
			t.Errorf("standard output %q, standard error %q", out, errOut)
		}
		if raw := w.rawLog("a"); !strings.HasSuffix(raw, " stdout P three\n") {
			t.Errorf("a line without an end is written as\n%s", raw)
		}
	})
}

func TestLogLosesNothing(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		t.Run("of many short lines", func(t *testing.T) {
			w.run(w.shell("short", "seq 1 200000; seq 1 1000 >&2"))
			out, errOut := w.streams("short")
			if n := strings.Count(out, "\n"); n != 200000 || !strings.HasSuffix(out, "\n199999\n200000\n") {
				t.Errorf("%d lines of standard output", n)
			}
			if n := strings.Count(errOut, "\n"); n != 1000 {
				t.Errorf("%d lines of standard error", n)
			}
		})
		t.Run("of long lines", func(t *testing.T) {
			// 20,000 to 100,003 characters, around the sizes of records and buffers.
			w.run(w.shell("long", "for n in 16383 16384 16385 20000 65535 65536 65537 100003; do head -c $n /dev/zero | tr '\\0' x; echo $n; done"))
			out, _ := w.streams("long")
			var want strings.Builder
			for _, n := range []int{16383, 16384, 16385, 20000, 65535, 65536, 65537, 100003} {
				fmt.Fprintf(&want, "%s%d\n", strings.Repeat("x", n), n)
			}
			if out != want.String() {
				t.Errorf("%d bytes, want %d", len(out), want.Len())
			}
			for line := range strings.Lines(w.rawLog("long")) {
				if len(line) > 16<<10+100 {
					t.Errorf("a record of %d bytes", len(line))
				}
			}
		})
		t.Run("of what is written last", func(t *testing.T) {
			for i := range 20 {
				id := fmt.Sprintf("last%d", i)
				w.run(w.shell(id, "head -c 60000 /dev/zero | tr '\\0' x; echo end >&2"))
				if out, errOut := w.streams(id); len(out) != 60000 || errOut != "end\n" {
					t.Fatalf("%d bytes and %q", len(out), errOut)
				}
			}
		})
		t.Run("of bytes that are no text", func(t *testing.T) {
			w.run(w.shell("bytes", `printf '\000\377\r\n\001'`))
			if out, _ := w.streams("bytes"); out != "\x00\xff\r\n\x01" {
				t.Errorf("output %q", out)
			}
		})
	})
}

func TestBeginningOfALineIsWrittenSoon(t *testing.T) {
	eachIsolation(t, func(w *world) {
		w.start(w.shell("a", "printf 'Password: '; sleep 1000"))
		w.awaitLog("a", " stdout P Password: \n")
	})
}

func TestLogGoesOnInAnExistingFile(t *testing.T) {
	w := newWorld(t, Config{Isolation: None})
	for _, id := range []string{"a", "b"} {
		w.run(w.shell(id, "echo "+id, func(s *Spec) { s.LogPath = w.log("both") }))
	}
	if out, _ := w.streams("both"); out != "a\nb\n" {
		t.Errorf("output %q", out)
	}
}

func TestContainerWithoutLog(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		st := w.run(w.shell("a", "seq 1 100000; exit 3", func(s *Spec) { s.LogPath = "" }))
		if st.Exit.Code != 3 || st.Exit.LogLost != 0 {
			t.Errorf("exit %+v", st.Exit)
		}
	})
}

func TestLogRotation(t *testing.T) {
	eachIsolation(t, func(w *world) {
		t := w.t
		const limit = 50_000
		for keep := range 4 {
			id := fmt.Sprintf("keep%d", keep)
			// Small writes, so that files can be filled well.
			w.run(w.shell(id, "for i in $(seq 1 4000); do echo $i; done", func(s *Spec) { s.LogMaxBytes, s.LogMaxFiles = limit, keep }))
			want := keep
			if keep == 0 {
				want = 5
			}
			var text string
			for i := want - 1; i >= 0; i-- {
				name := w.log(id)
				if i > 0 {
					name = fmt.Sprintf("%s.%d", name, i)
				}
				b, err := os.ReadFile(name)
				if os.IsNotExist(err) && i > 0 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(b) > limit {
					t.Errorf("%s has %d bytes", name, len(b))
				}
				text += string(b)
			}
			if extra := fmt.Sprintf("%s.%d", w.log(id), want); fileExists(extra) {
				t.Errorf("%s is too much", extra)
			}
			out, _ := parseLog(t, text)
			if !strings.HasSuffix(out, "\n3999\n4000\n") {
				t.Errorf("with %d files the end is missing", keep)
			}
			if keep == 0 && out != seq(4000) { // 180 kB in all
				t.Error("with all files kept something is missing")
			}
		}
	})
}

func seq(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestFullDisk lets the log grow to the size that a tmpfs has.
func TestFullDisk(t *testing.T) {
	needsRoot(t)
	eachIsolation(t, func(w *world) {
		t := w.t
		disk := filepath.Join(w.dir, "disk")
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(disk, unix.MNT_DETACH)
		log := filepath.Join(disk, "log")
		w.start(w.shell("a", "seq 1 100000; touch "+w.dir+"/written; while ! test -e "+w.dir+"/go; do sleep 0.01; done; echo after", func(s *Spec) {
			s.LogPath = log
			s.Mounts = []Mount{{Source: w.dir, Target: w.dir}}
		}))
		written := filepath.Join(w.dir, "written")
		eventually(t, "a full disk", func() bool { return fileExists(written) }, func() string { return fmt.Sprint(len(readFile(t, log))) })
		// The command goes on nevertheless. Once there is room, so does the log, on a new line.
		if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=1m"); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(w.dir, "go"), "")
		st := w.await("a")
		if st.Exit.Code != 0 || st.Exit.LogLost == 0 {
			t.Errorf("exit %+v, want a loss", st.Exit)
		}
		text := readFile(t, log)
		last := text[strings.LastIndexByte(strings.TrimSpace(text), '\n')+1:]
		if _, _, end, err := parseLine(strings.TrimSpace(last)); err != nil || end != "after" {
			t.Errorf("the last line is %q: %v", last, err)
		}
	})
}
