// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

func record(second int, stream, tag, text string) string {
	at := time.Date(2026, 1, 2, 3, 4, second, 5, time.UTC)
	return fmt.Sprintf("%s %s %s %s\n", at.Format(time.RFC3339Nano), stream, tag, text)
}

func write(t *testing.T, path string, records ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(strings.Join(records, "")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func ptr(n int64) *int64 { return &n }

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	write(t, path+".2", record(1, "stdout", "F", "one"), record(2, "stderr", "F", "two"))
	write(t, path+".1", record(3, "stdout", "P", "thr"), record(3, "stdout", "F", "ee"))
	write(t, path, record(4, "stdout", "F", "four"), record(5, "stdout", "F", ""), "garbage\n", record(6, "stdout", "F", "six"))
	write(t, filepath.Join(dir, "0.log.9.tmp"), "x")
	write(t, filepath.Join(dir, "10.log"), record(1, "stdout", "F", "another attempt"))

	cases := map[string]struct {
		options Options
		only    string // "stdout" or "stderr"
		want    string
	}{
		"everything, the rotated files first": {want: "one\ntwo\nthree\nfour\n\nsix\n"},
		"one stream":                          {only: "stderr", want: "two\n"},
		"the last lines":                      {options: Options{Tail: ptr(3)}, want: "\nsix\n"},
		"the last lines across files":         {options: Options{Tail: ptr(5)}, want: "ee\nfour\n\nsix\n"},
		"more lines than there are":           {options: Options{Tail: ptr(100)}, want: "one\ntwo\nthree\nfour\n\nsix\n"},
		"no lines":                            {options: Options{Tail: ptr(0)}, want: ""},
		"since a time":                        {options: Options{Since: time.Date(2026, 1, 2, 3, 4, 4, 0, time.UTC)}, want: "four\n\nsix\n"},
		"a limited number of bytes":           {options: Options{LimitBytes: ptr(6)}, want: "one\ntw"},
		"with times, once for a split line":   {options: Options{Timestamps: true, LimitBytes: ptr(110)}, want: "2026-01-02T03:04:01.000000005Z one\n2026-01-02T03:04:02.000000005Z two\n2026-01-02T03:04:03.000000005Z three\n202"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			var err error
			switch tc.only {
			case "stderr":
				err = Read(context.Background(), path, tc.options, nil, &out)
			default:
				err = Read(context.Background(), path, tc.options, &out, &out)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
	var out bytes.Buffer
	if err := Read(context.Background(), filepath.Join(dir, "none", "0.log"), Options{}, &out, &out); err != nil || out.Len() != 0 {
		t.Errorf("a log that does not exist: %v, %q", err, out.String())
	}
}

// safeBuffer can be read while somebody writes to it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *safeBuffer) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for s.String() != want {
		select {
		case <-deadline:
			t.Fatalf("after 10s the output is %q, want %q", s.String(), want)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestFollowingGoesOnAcrossRotationsAndEndsWithTheContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	done := make(chan struct{})
	ended := make(chan error, 1)
	var out safeBuffer
	options := Options{Done: done, Poll: time.Millisecond, Clock: clock.RealClock{}}
	go func() { ended <- Read(context.Background(), path, options, &out, &out) }()

	write(t, path, record(1, "stdout", "F", "one"))
	out.await(t, "one\n")
	half := record(2, "stdout", "F", "two")
	write(t, path, half[:10])
	write(t, path, half[10:])
	out.await(t, "one\ntwo\n")

	// Two rotations at once: nothing in between may be lost.
	write(t, path, record(3, "stdout", "F", "three"))
	rename(t, path, path+".2")
	write(t, path+".1", record(4, "stdout", "F", "four"))
	write(t, path, record(5, "stdout", "F", "five"))
	out.await(t, "one\ntwo\nthree\nfour\nfive\n")

	write(t, path, record(6, "stdout", "F", "six"))
	close(done)
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("following did not end with the container")
	}
	out.await(t, "one\ntwo\nthree\nfour\nfive\nsix\n")
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestFollowingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	options := Options{Done: make(chan struct{}), Poll: time.Millisecond, Clock: clock.RealClock{}}
	err := Read(ctx, filepath.Join(t.TempDir(), "0.log"), options, nil, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

func TestNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p.x", UID: "a-b"}}
	dir := PodDir("/logs", pod)
	if got := Path(dir, "c", 3); got != "/logs/ns_p.x_a-b/c/3.log" {
		t.Errorf("path = %s", got)
	}
	if uid, ok := UID(filepath.Base(dir)); uid != "a-b" || !ok {
		t.Errorf("UID = %q, %t", uid, ok)
	}
	if _, ok := UID("lost+found"); ok {
		t.Error("a foreign directory has a UID")
	}
}

func TestRemoveAttemptTakesTheRotatedFilesToo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"1.log", "1.log.1", "1.log.2", "1.message", "11.log", "11.message"} {
		write(t, filepath.Join(dir, name), "x")
	}
	if err := RemoveAttempt(filepath.Join(dir, "1.log")); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(dir + "/*")
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "11.log" || filepath.Base(left[1]) != "11.message" {
		t.Errorf("left: %v, %v", left, err)
	}
}
