// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

import (
	"syscall"
	"unsafe"
)

// This file runs in the fork: read the package comment before changing anything.

const (
	// maxLogLine is the most that one record holds; a longer line is written in pieces. Container runtimes use the same.
	maxLogLine = 16 << 10
	// holdMillis is how long the beginning of a line is held back for its end.
	holdMillis = 100
	bufferSize = 64 << 10
	prefixSize = len("2006-01-02T15:04:05.000000000Z stdout F ")
	maxPieces  = 512
)

// stream is one of the command's outputs.
type stream struct {
	fd     int32 // negative: closed
	held   int   // bytes in buffer that have been read and not written
	since  int64 // when the first of them came, in milliseconds of the monotonic clock
	full   [prefixSize]byte
	part   [prefixSize]byte
	buffer [bufferSize]byte
}

type ioVec struct {
	base uintptr
	size uintptr
}

var (
	streams [2]stream

	pieces  [maxPieces]ioVec
	nPieces int
	nBytes  int64

	logSize int64
	logLost int64 // bytes that could not be written
	torn    bool  // the last write ended inside a record
	newline = [1]byte{'\n'}
)

//go:nosplit
//go:norace
func openStreams() {
	streams[0].fd, streams[1].fd = -1, -1
	if header().Flags&FlagExec != 0 {
		return
	}
	if header().Flags&FlagTTY != 0 {
		streams[0].fd = int32(regs[RegMaster])
	} else {
		streams[0].fd = int32(regs[RegOut])
		streams[1].fd = int32(regs[RegErr])
	}
	if regs[RegLogSize] != none {
		logSize = int64(regs[RegLogSize])
	}
}

// holdFor returns how long to wait for the end of a line, in milliseconds; negative: nothing is held.
//
//go:nosplit
//go:norace
func holdFor() int64 {
	if streams[0].held+streams[1].held == 0 {
		return -1
	}
	return holdMillis
}

//go:nosplit
//go:norace
func millis() int64 {
	sec, nsec := now(monotonic)
	return sec*1000 + nsec/1e6
}

// flushHeld writes beginnings of lines that have waited long enough for their end. A program may be asking a question.
//
//go:nosplit
//go:norace
func flushHeld() {
	if streams[0].held+streams[1].held == 0 {
		return
	}
	t := millis()
	for i := range streams {
		if s := &streams[i]; s.held > 0 && t-s.since >= holdMillis {
			write(i, s.held, true)
		}
	}
}

// pump reads once from stream i and writes what are whole lines to the log. It returns false when there was nothing to read.
//
//go:nosplit
//go:norace
func pump(i int) bool {
	s := &streams[i&1]
	if s.fd < 0 {
		return false
	}
	n, errno := sys(syscall.SYS_READ, uintptr(s.fd), uintptr(unsafe.Pointer(&s.buffer))+uintptr(s.held), uintptr(bufferSize-s.held))
	switch {
	case errno == uintptr(syscall.EINTR):
		return true
	case errno == uintptr(syscall.EAGAIN):
		return false
	case errno != 0 || n == 0:
		write(i, s.held, true)
		s.fd = -1
		return false
	}
	if s.held == 0 {
		s.since = millis()
	}
	// What a terminal shows is for someone who watches.
	write(i, s.held+int(n), header().Flags&FlagTTY != 0)
	return true
}

// drain reads what is left in both streams and writes everything.
//
//go:nosplit
//go:norace
func drain() {
	for i := range streams {
		for pump(i) {
		}
		write(i, streams[i].held, true)
	}
}

// stamp makes the prefixes of stream i for records of this moment.
//
//go:nosplit
//go:norace
func stamp(i int) {
	sec, nsec := now(realtime)
	nLine = 0
	addDate(sec)
	addByte('.')
	addInt(nsec, 9)
	if i == 0 {
		addString("Z stdout F ")
	} else {
		addString("Z stderr F ")
	}
	s := &streams[i&1]
	copy(s.full[:], line[:nLine])
	copy(s.part[:], line[:nLine])
	s.part[prefixSize-2] = 'P'
}

// write writes the first n bytes of stream i's buffer, which is all it holds, as records. The beginning of a line at their end
// is held back unless all is true; then it is written as a piece, which says exactly that no line end has come.
//
//go:nosplit
//go:norace
func write(i, n int, all bool) {
	if n == 0 {
		return
	}
	s := &streams[i&1]
	stamp(i)
	from := 0
	for from < n {
		end := lineEnd(s, from, n)
		ended := end < n && s.buffer[end&(bufferSize-1)] == '\n'
		if !ended && !all && end-from < maxLogLine {
			break
		}
		if nPieces > maxPieces-5 {
			rotateIfDue()
			commit()
		}
		addRecord(s, from, end, ended)
		from = end
		if ended {
			from++
		}
	}
	rotateIfDue()
	commit()
	s.held = n - from
	if from > 0 && s.held > 0 {
		copy(s.buffer[:], s.buffer[from&(bufferSize-1):n&(2*bufferSize-1)])
		s.since = millis()
	}
}

// lineEnd returns where the line that begins at from ends: at a line end, at the longest that a record may be, or at n.
//
//go:nosplit
//go:norace
func lineEnd(s *stream, from, n int) int {
	if n > from+maxLogLine {
		n = from + maxLogLine
	}
	for from < n && s.buffer[from&(bufferSize-1)] != '\n' {
		from++
	}
	return from
}

//go:nosplit
//go:norace
func addRecord(s *stream, from, end int, ended bool) {
	if torn {
		// What the last write left behind is not to run into this record.
		torn = false
		add(uintptr(unsafe.Pointer(&newline)), 1)
	}
	text := uintptr(unsafe.Pointer(&s.buffer)) + uintptr(from)
	if ended {
		add(uintptr(unsafe.Pointer(&s.full)), uintptr(prefixSize))
		add(text, uintptr(end-from)+1)
		return
	}
	add(uintptr(unsafe.Pointer(&s.part)), uintptr(prefixSize))
	add(text, uintptr(end-from))
	add(uintptr(unsafe.Pointer(&newline)), 1)
}

//go:nosplit
//go:norace
func add(base, size uintptr) {
	pieces[nPieces&(maxPieces-1)] = ioVec{base, size}
	nPieces++
	nBytes += int64(size)
}

// commit writes the pieces to the log file. What cannot be written is dropped and counted: the command must not hang because
// a disk is full.
//
//go:nosplit
//go:norace
func commit() {
	first := 0
	for regs[RegLog] != none && nBytes > 0 {
		n, errno := sys(syscall.SYS_WRITEV, regs[RegLog], uintptr(unsafe.Pointer(&pieces[first&(maxPieces-1)])), uintptr(nPieces-first))
		if errno == uintptr(syscall.EINTR) {
			continue
		}
		if errno != 0 || n == 0 {
			logLost += nBytes
			break
		}
		nBytes -= int64(n)
		logSize += int64(n)
		torn = nBytes > 0
		for torn && n > 0 {
			p := &pieces[first&(maxPieces-1)]
			if n < p.size {
				p.base += n
				p.size -= n
				break
			}
			n -= p.size
			first++
		}
	}
	nPieces, nBytes = 0, 0
}

// rotateIfDue renames the log file and its predecessors and begins a new one, if what is to be written would make it too large.
// If that does not work the old one goes on.
//
//go:nosplit
//go:norace
func rotateIfDue() {
	limit := header().LogMaxBytes
	if limit <= 0 || logSize == 0 || logSize+nBytes <= limit {
		return
	}
	names := header().LogNames
	dir := regs[RegLogDir]
	if names.Count < 2 {
		syscall.RawSyscall6(syscall.SYS_UNLINKAT, dir, logName(0), 0, 0, 0, 0)
	}
	for i := int(names.Count) - 2; i >= 0; i-- {
		syscall.RawSyscall6(syscall.SYS_RENAMEAT, dir, logName(i), dir, logName(i+1), 0, 0)
	}
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, dir, logName(0), LogFlags, LogMode, 0, 0)
	if errno != 0 {
		return
	}
	closeFD(regs[RegLog])
	regs[RegLog] = fd
	logSize = 0
}

// How log files are opened.
const (
	LogFlags = syscall.O_WRONLY | syscall.O_CREAT | syscall.O_APPEND | syscall.O_CLOEXEC
	LogMode  = 0o640
)

//go:nosplit
//go:norace
func logName(i int) uintptr { return uintptr(*word(header().LogNames.First + 8*uint64(i))) }

var (
	input      [1024]byte
	inputFrom  int
	inputTo    int
	endOfInput bool // send the terminal's end-of-file character once everything before it has gone
)

const endOfFile = 4 // ^D

// pollTerminalInput says what to wait for so that what is written to RegStdin gets to the terminal.
//
//go:nosplit
//go:norace
func pollTerminalInput() {
	polls[pollStdin] = pollFD{fd: -1}
	polls[pollMaster] = pollFD{fd: -1}
	if header().Flags&FlagTTY == 0 || regs[RegStdin] == none {
		return
	}
	if endOfInput && inputFrom == inputTo {
		readInput()
		if inputFrom == inputTo {
			endOfInput = false
			input[0], inputFrom, inputTo = endOfFile, 0, 1
		}
	}
	if inputFrom == inputTo {
		polls[pollStdin] = pollFD{fd: int32(regs[RegStdin]), events: pollIn}
	} else {
		polls[pollMaster] = pollFD{fd: int32(regs[RegMaster]), events: pollOut}
	}
}

//go:nosplit
//go:norace
func readInput() {
	n, errno := sys(syscall.SYS_READ, regs[RegStdin], uintptr(unsafe.Pointer(&input)), uintptr(len(input)))
	inputFrom, inputTo = 0, 0
	if errno == 0 {
		inputTo = int(n)
	}
}

//go:nosplit
//go:norace
func pumpInput() {
	if inputFrom == inputTo {
		readInput()
	}
	if inputFrom == inputTo {
		return
	}
	n, errno := sys(syscall.SYS_WRITE, regs[RegMaster], uintptr(unsafe.Pointer(&input[inputFrom&1023])), uintptr(inputTo-inputFrom))
	if errno == 0 {
		inputFrom += int(n)
	}
}
