// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"k8s.io/utils/clock"
)

// Options say what of a log is wanted.
type Options struct {
	Tail       *int64    // only that many lines from the end; nil: all
	Since      time.Time // only records of this time or later; zero: all
	Timestamps bool      // put the time before each line
	LimitBytes *int64    // stop after that many bytes of output; nil: never

	// Done ends following: when it is closed, what is there is read to its end. nil: do not follow.
	Done <-chan struct{}
	// Poll is how often a followed file is looked at.
	Poll  time.Duration
	Clock clock.WithTicker
}

// errLimit ends reading when the caller has got as many bytes as it wanted.
var errLimit = errors.New("limit reached")

// Read writes the log at path to stdout and stderr, either of which may be nil when it is not wanted. It reads what was rotated away
// as well, and goes on across a rotation while it follows. A log that does not exist is empty.
func Read(ctx context.Context, path string, o Options, stdout, stderr io.Writer) error {
	files, err := generations(path)
	if err != nil {
		return err
	}
	r := &reader{path: path, options: o, out: newWriter(o, stdout, stderr)}
	defer r.close()
	if err := r.seek(files); err != nil {
		return err
	}
	err = r.run(ctx)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

type reader struct {
	path    string
	options Options
	out     *writer
	file    *os.File // nil before the first file exists
	buffer  *bufio.Reader
	partial []byte // a record that is not complete yet
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
	}
}

// seek opens the file in which the wanted tail begins.
func (r *reader) seek(files []string) error {
	if r.options.Tail == nil {
		if len(files) == 0 {
			return nil
		}
		return r.open(files[0], 0)
	}
	want := *r.options.Tail
	for i := len(files) - 1; i >= 0; i-- {
		offset, missing, err := tailOffset(files[i], want)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if missing == 0 || i == 0 {
			return r.open(files[i], offset)
		}
		want = missing
	}
	return nil
}

func (r *reader) open(path string, offset int64) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was rotated away just now; run looks again
	}
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return errors.Join(fmt.Errorf("reading log: %w", err), f.Close())
	}
	r.close()
	r.file, r.buffer, r.partial = f, bufio.NewReader(f), nil
	return nil
}

func (r *reader) run(ctx context.Context) error {
	var tick <-chan time.Time
	if r.options.Done != nil {
		ticker := r.options.Clock.NewTicker(r.options.Poll)
		defer ticker.Stop()
		tick = ticker.C()
	}
	done := r.options.Done == nil
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		more, err := r.drain(ctx)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if done {
			return r.out.record(r.partial)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.options.Done:
			done = true // once more, for what was written before the end
		case <-tick:
		}
	}
}

// drain writes all complete records of the current file, and moves on to the next file if there is one.
func (r *reader) drain(ctx context.Context) (more bool, err error) {
	if r.file != nil {
		for {
			chunk, err := r.buffer.ReadBytes('\n')
			r.partial = append(r.partial, chunk...)
			if err == io.EOF {
				break
			}
			if err != nil {
				return false, fmt.Errorf("reading log: %w", err)
			}
			if err := r.out.record(r.partial[:len(r.partial)-1]); err != nil {
				return false, err
			}
			r.partial = r.partial[:0]
			if err := ctx.Err(); err != nil {
				return false, err
			}
		}
	}
	return r.next()
}

// next opens the file that follows the current one and reports whether there was one.
func (r *reader) next() (bool, error) {
	files, err := generations(r.path)
	if err != nil || len(files) == 0 {
		return false, err
	}
	following := files[0] // when the current file is gone, the oldest one that is left
	if r.file != nil {
		here, err := r.file.Stat()
		if err != nil {
			return false, fmt.Errorf("reading log: %w", err)
		}
		for i, name := range files {
			info, err := os.Stat(name)
			if err != nil || !os.SameFile(info, here) {
				continue
			}
			if i == len(files)-1 {
				return false, nil
			}
			following = files[i+1]
		}
		// Something may have come between the last read and the rotation.
		if rest, err := r.buffer.Peek(1); err == nil && len(rest) > 0 {
			return true, nil
		}
		if err := r.out.record(r.partial); err != nil {
			return false, err
		}
	}
	before := r.file
	if err := r.open(following, 0); err != nil {
		return false, err
	}
	return r.file != before, nil
}

// tailOffset returns where the last n lines of a file begin. missing is how many lines it has too few.
func tailOffset(path string, n int64) (offset, missing int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, fmt.Errorf("reading log: %w", err)
	}
	if n <= 0 {
		return size, 0, nil
	}
	const block = 32 << 10
	buf := make([]byte, block)
	for end := size; end > 0; {
		begin := max(0, end-block)
		chunk := buf[:end-begin]
		if _, err := f.ReadAt(chunk, begin); err != nil && err != io.EOF {
			return 0, 0, fmt.Errorf("reading log: %w", err)
		}
		for i := len(chunk) - 1; i >= 0; i-- {
			// A newline at the very end closes the last line and begins none.
			if chunk[i] != '\n' || begin+int64(i) == size-1 {
				continue
			}
			if n--; n == 0 {
				return begin + int64(i) + 1, 0, nil
			}
		}
		end = begin
	}
	if size > 0 {
		n-- // the first line has no newline before it
	}
	return 0, n, nil
}

// writer turns records into output.
type writer struct {
	options Options
	streams map[string]io.Writer
	left    int64 // bytes; negative: no limit
	midLine bool  // the last record was a part of a line
}

func newWriter(o Options, stdout, stderr io.Writer) *writer {
	w := &writer{options: o, streams: map[string]io.Writer{}, left: -1}
	if stdout != nil {
		w.streams["stdout"] = stdout
	}
	if stderr != nil {
		w.streams["stderr"] = stderr
	}
	if o.LimitBytes != nil {
		w.left = *o.LimitBytes
	}
	return w
}

// record writes the text of one record. What is not a record is left out.
func (w *writer) record(line []byte) error {
	stamp, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return nil
	}
	stream, rest, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return nil
	}
	tag, text, _ := bytes.Cut(rest, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return nil //nolint:nilerr // like the two above: it is no record
	}
	whole := !bytes.HasPrefix(tag, []byte("P"))
	begins := !w.midLine
	w.midLine = !whole
	out := w.streams[string(stream)]
	if out == nil || !w.options.Since.IsZero() && at.Before(w.options.Since) {
		return nil
	}
	if w.options.Timestamps && begins {
		if err := w.write(out, append(append([]byte(nil), stamp...), ' ')); err != nil {
			return err
		}
	}
	if whole {
		text = append(text[:len(text):len(text)], '\n')
	}
	return w.write(out, text)
}

func (w *writer) write(out io.Writer, text []byte) error {
	if w.left >= 0 && int64(len(text)) >= w.left {
		if _, err := out.Write(text[:w.left]); err != nil {
			return err
		}
		return errLimit
	}
	n, err := out.Write(text)
	if w.left >= 0 {
		w.left -= int64(n)
	}
	return err
}
