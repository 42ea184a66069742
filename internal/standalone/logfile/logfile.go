// SPDX-License-Identifier: Apache-2.0

// Package logfile writes a log to a file that never grows beyond a limit: when it is full it becomes FILE.1, FILE.1 becomes
// FILE.2, and so on, and the oldest goes.
package logfile

import (
	"fmt"
	"os"
	"sync"
)

// Writer is an io.Writer over such a file. It is safe for concurrent use; each Write ends up in one file as a whole.
type Writer struct {
	path     string
	maxBytes int64
	keep     int

	mu     sync.Mutex
	file   *os.File // nil if it could not be opened; every Write tries again
	size   int64
	err    error // why the last Write did not work; nil: it did
	closed bool
}

// Open opens path for appending, readable by its owner alone. A file holds about maxBytes bytes; keep older ones stay.
func Open(path string, maxBytes int64, keep int) (*Writer, error) {
	w := &Writer{path: path, maxBytes: maxBytes, keep: keep}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return w, nil
}

func (w *Writer) open() error {
	file, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close() // the error above is the one that counts
		return err
	}
	w.file, w.size = file, info.Size()
	return nil
}

// Write appends p. A log must not stop what it logs: when the disk is full, lines are lost, and Err tells why.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, os.ErrClosed
	}
	if w.size > 0 && w.size+int64(len(p)) > w.maxBytes {
		w.rotateLocked()
	}
	if w.file == nil {
		if w.err = w.open(); w.err != nil {
			return 0, w.err
		}
	}
	n, err := w.file.Write(p)
	w.size += int64(n)
	w.err = err
	return n, err
}

// rotateLocked shifts the files, so that the next Write starts a new one. A file that cannot be shifted goes on: too long a
// log is better than none.
func (w *Writer) rotateLocked() {
	_ = w.file.Close() // nothing is buffered
	w.file, w.size = nil, 0
	for i := w.keep; i > 0; i-- {
		from := w.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", w.path, i-1)
		}
		_ = os.Rename(from, fmt.Sprintf("%s.%d", w.path, i))
	}
	if w.keep == 0 {
		_ = os.Remove(w.path)
	}
}

// Err returns why the last Write has lost its line, or nil.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close closes the file. Writes after it fail; a second Close does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.file == nil {
		w.closed = true
		return nil
	}
	w.closed = true
	return w.file.Close()
}
