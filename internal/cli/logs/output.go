// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"sync"

	"github.com/drover-dev/drover/internal/cli/command"
)

// longestLine is how many bytes of a line are kept together. A longer one is broken, lest a pod that never ends its line
// fills the memory.
const longestLine = 1 << 20

// errOutput says that standard output does not take more, so that there is nobody left to work for.
var errOutput = errors.New("writing to standard output")

// output writes lines of several logs, never one into another. It is safe for concurrent use.
type output struct {
	prefix bool
	colour bool
	first  func() // called before a line is written; may be nil

	mu sync.Mutex
	w  *bufio.Writer
}

func newOutput(f *command.Factory, prefix bool) *output {
	return &output{prefix: prefix, colour: f.Colour(f.Streams.Out), w: bufio.NewWriterSize(f.Streams.Out, 64<<10)}
}

// colours are those that can be read on a dark and on a light ground.
var colours = []int{36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91}

// head returns what each line of the source begins with.
func (out *output) head(s source) string {
	if !out.prefix {
		return ""
	}
	label := s.label()
	if !out.colour {
		return "[" + label + "] "
	}
	hash, err := strconv.Atoi(label) // neighbouring indexes get different colours
	if err != nil {
		h := fnv.New32a()
		_, _ = io.WriteString(h, label)
		hash = int(h.Sum32() >> 1)
	}
	return fmt.Sprintf("\x1b[%dm[%s]\x1b[0m ", colours[hash%len(colours)], label)
}

// line writes one line, with its line end if it has one. Lines that wait for more are passed on when nothing follows at
// once.
func (out *output) line(head string, line []byte, moreFollows bool) error {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.first != nil {
		out.first()
	}
	_, err := out.w.WriteString(head)
	if err == nil {
		_, err = out.w.Write(line)
	}
	// A last line without an end gets one where the next line may be of another log.
	if err == nil && out.prefix && (len(line) == 0 || line[len(line)-1] != '\n') {
		err = out.w.WriteByte('\n')
	}
	if err == nil && !moreFollows {
		err = out.w.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// copy writes a log to its end. An error that satisfies errors.Is(err, errOutput) is one of writing, any other of reading.
func (out *output) copy(s source, log io.Reader) error {
	head := out.head(s)
	return lines(log, func(line []byte, more bool) error { return out.line(head, line, more) })
}

// lines calls each with every line of log, including its line end, and whether more has been read already. A line that
// is too long comes in pieces, of which all but the last lack the end.
func lines(log io.Reader, each func(line []byte, more bool) error) error {
	r := bufio.NewReaderSize(log, 32<<10)
	var long []byte
	for {
		piece, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) && len(long)+len(piece) < longestLine {
			long = append(long, piece...)
			continue
		}
		if len(long) > 0 {
			piece = append(long, piece...)
			long = long[:0]
		}
		if len(piece) > 0 {
			if err := each(piece, r.Buffered() > 0); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
