// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/node/logs"
)

// Limits of termination messages, those of kubelet.
const (
	maxMessageBytes    = 4096
	maxMessageLogBytes = 2048
	maxMessageLogLines = 80
)

// terminationMessage returns what a container has left as its last words: the end of its message file, or of its log if it failed,
// says nothing in the file and asks for that.
func (n *Node) terminationMessage(pod *corev1.Pod, c *corev1.Container, id identity, exitCode int32) string {
	path := logs.Path(logs.PodDir(n.logDir, pod), c.Name, id.attempt)
	message, err := tailOf(logs.MessagePath(path), maxMessageBytes)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Sprintf("Error on reading termination log: %v", err)
	}
	if message != "" || exitCode == 0 || c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return message
	}
	lines := int64(maxMessageLogLines)
	last := lastBytes{limit: maxMessageLogBytes}
	if err := logs.Read(context.Background(), path, logs.Options{Tail: &lines}, &last, &last); err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return string(bytes.ToValidUTF8(last.buf, nil))
}

func tailOf(path string, limit int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	b := make([]byte, min(size, limit))
	if _, err := f.ReadAt(b, size-int64(len(b))); err != nil && err != io.EOF {
		return "", err
	}
	return string(bytes.ToValidUTF8(b, nil)), nil
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	limit int
	buf   []byte
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p...)
	if extra := len(l.buf) - l.limit; extra > 0 {
		l.buf = append(l.buf[:0], l.buf[extra:]...)
	}
	return len(p), nil
}
