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

//go:norace
//go:nocheckptr
func openStreams() {
	state.streams[0].fd, state.streams[1].fd = -1, -1
	if header().Flags&FlagExec != 0 {
		return
	}
	if header().Flags&FlagTTY != 0 {
		state.streams[0].fd = int32(state.regs[RegMaster])
	} else {
		state.streams[0].fd = int32(state.regs[RegOut])
		state.streams[1].fd = int32(state.regs[RegErr])
	}
	if state.regs[RegLogSize] != none {
		state.logSize = int64(state.regs[RegLogSize])
	}
}

// holdFor returns how long to wait for the end of a line, in milliseconds; negative: nothing is held.
//
//go:norace
//go:nocheckptr
func holdFor() int64 {
	if state.streams[0].held+state.streams[1].held == 0 {
		return -1
	}
	return holdMillis
}

//go:norace
//go:nocheckptr
func millis() int64 {
	sec, nsec := now(monotonic)
	return sec*1000 + nsec/1e6
}

// flushHeld writes beginnings of lines that have waited long enough for their end. A program may be asking a question.
//
//go:norace
//go:nocheckptr
func flushHeld() {
	if state.streams[0].held+state.streams[1].held == 0 {
		return
	}
	t := millis()
	for i := range state.streams {
		if s := &state.streams[i]; s.held > 0 && t-s.since >= holdMillis {
			write(i, s.held, true)
		}
	}
}

// pump reads once from stream i and writes what are whole lines to the log. It returns false when there was nothing to read.
//
//go:norace
//go:nocheckptr
func pump(i int) bool {
	s := &state.streams[i&1]
	if s.fd < 0 {
		return false
	}
	n, errno := sys(syscall.SYS_READ, uintptr(s.fd), uintptr(unsafe.Pointer(&state.buffers[i&1]))+uintptr(s.held), uintptr(bufferSize-s.held))
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
//go:norace
//go:nocheckptr
func drain() {
	for i := range state.streams {
		for pump(i) {
		}
		write(i, state.streams[i].held, true)
	}
}

// stamp makes the prefixes of stream i for records of this moment.
//
//go:norace
//go:nocheckptr
func stamp(i int) {
	sec, nsec := now(realtime)
	state.nLine = 0
	addDate(sec)
	addByte('.')
	addInt(nsec, 9)
	if i == 0 {
		addString("Z stdout F ")
	} else {
		addString("Z stderr F ")
	}
	s := &state.streams[i&1]
	for j := range prefixSize {
		s.full[j], s.part[j] = state.line[j], state.line[j]
	}
	s.part[prefixSize-2] = 'P'
}

// write writes the first n bytes of stream i's buffer, which is all it holds, as records. The beginning of a line at their end
// is held back unless all is true; then it is written as a piece, which says exactly that no line end has come.
//
//go:norace
//go:nocheckptr
func write(i, n int, all bool) {
	if n == 0 {
		return
	}
	s := &state.streams[i&1]
	stamp(i)
	from := 0
	for from < n {
		end := lineEnd(i, from, n)
		ended := end < n && state.buffers[i&1][end&(bufferSize-1)] == '\n'
		if !ended && !all && end-from < maxLogLine {
			break
		}
		if state.nPieces > maxPieces-5 {
			rotateIfDue()
			commit()
		}
		addRecord(i, from, end, ended)
		from = end
		if ended {
			from++
		}
	}
	rotateIfDue()
	commit()
	s.held = n - from
	if from > 0 && s.held > 0 {
		for j := range s.held {
			state.buffers[i&1][j&(bufferSize-1)] = state.buffers[i&1][(from+j)&(bufferSize-1)]
		}
		s.since = millis()
	}
}

// lineEnd returns where the line that begins at from ends: at a line end, at the longest that a record may be, or at n.
//
//go:norace
//go:nocheckptr
func lineEnd(i, from, n int) int {
	if n > from+maxLogLine {
		n = from + maxLogLine
	}
	for from < n && state.buffers[i&1][from&(bufferSize-1)] != '\n' {
		from++
	}
	return from
}

//go:norace
//go:nocheckptr
func addRecord(i, from, end int, ended bool) {
	if state.torn && state.nPieces == 0 {
		// What the last write left behind is not to run into this record.
		add(uintptr(unsafe.Pointer(&state.newline)), 1)
	}
	s := &state.streams[i&1]
	text := uintptr(unsafe.Pointer(&state.buffers[i&1])) + uintptr(from)
	if ended {
		add(uintptr(unsafe.Pointer(&s.full)), uintptr(prefixSize))
		add(text, uintptr(end-from)+1)
		return
	}
	add(uintptr(unsafe.Pointer(&s.part)), uintptr(prefixSize))
	add(text, uintptr(end-from))
	add(uintptr(unsafe.Pointer(&state.newline)), 1)
}

//go:norace
//go:nocheckptr
func add(base, size uintptr) {
	state.pieces[state.nPieces&(maxPieces-1)] = ioVec{base, size}
	state.nPieces++
	state.nBytes += int64(size)
}

// commit writes the pieces to the log file. What cannot be written is dropped and counted: the command must not hang because
// a disk is full.
//
//go:norace
//go:nocheckptr
func commit() {
	first := 0
	for state.regs[RegLog] != none && state.nBytes > 0 {
		n, errno := sys(syscall.SYS_WRITEV, state.regs[RegLog], uintptr(unsafe.Pointer(&state.pieces[first&(maxPieces-1)])), uintptr(state.nPieces-first))
		if errno == uintptr(syscall.EINTR) {
			continue
		}
		if errno != 0 || n == 0 {
			state.logLost += state.nBytes
			break
		}
		state.nBytes -= int64(n)
		state.logSize += int64(n)
		state.torn = state.nBytes > 0
		for state.torn && n > 0 {
			p := &state.pieces[first&(maxPieces-1)]
			if n < p.size {
				p.base += n
				p.size -= n
				break
			}
			n -= p.size
			first++
		}
	}
	state.nPieces, state.nBytes = 0, 0
}

// rotateIfDue renames the log file and its predecessors and begins a new one, if what is to be written would make it too large.
// If that does not work the old one goes on.
//
//go:norace
//go:nocheckptr
func rotateIfDue() {
	limit := header().LogMaxBytes
	if limit <= 0 || state.logSize == 0 || state.logSize+state.nBytes <= limit {
		return
	}
	names := header().LogNames
	dir := state.regs[RegLogDir]
	if names.Count < 2 {
		sys(syscall.SYS_UNLINKAT, dir, logName(0), 0)
	}
	for i := int(names.Count) - 2; i >= 0; i-- {
		sys5(syscall.SYS_RENAMEAT, dir, logName(i), dir, logName(i+1))
	}
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, dir, logName(0), LogFlags, LogMode, 0, 0)
	if errno != 0 {
		return
	}
	closeFD(state.regs[RegLog])
	state.regs[RegLog] = fd
	state.logSize = 0
}

// How log files are opened.
const (
	LogFlags = syscall.O_WRONLY | syscall.O_CREAT | syscall.O_APPEND | syscall.O_CLOEXEC
	LogMode  = 0o640
)

//go:norace
//go:nocheckptr
func logName(i int) uintptr { return uintptr(*word(header().LogNames.First + 8*uint64(i))) }

const endOfFile = 4 // ^D

// pollTerminalInput says what to wait for so that what is written to RegStdin gets to the terminal.
//
//go:norace
//go:nocheckptr
func pollTerminalInput() {
	state.polls[pollStdin] = pollFD{fd: -1}
	state.polls[pollMaster] = pollFD{fd: -1}
	if header().Flags&FlagTTY == 0 || state.regs[RegStdin] == none {
		return
	}
	if state.endOfInput && state.inputFrom == state.inputTo {
		readInput()
		if state.inputFrom == state.inputTo {
			state.endOfInput = false
			state.input[0], state.inputFrom, state.inputTo = endOfFile, 0, 1
		}
	}
	if state.inputFrom == state.inputTo {
		state.polls[pollStdin] = pollFD{fd: int32(state.regs[RegStdin]), events: pollIn}
	} else {
		state.polls[pollMaster] = pollFD{fd: int32(state.regs[RegMaster]), events: pollOut}
	}
}

//go:norace
//go:nocheckptr
func readInput() {
	n, errno := sys(syscall.SYS_READ, state.regs[RegStdin], uintptr(unsafe.Pointer(&state.input)), uintptr(len(state.input)))
	state.inputFrom, state.inputTo = 0, 0
	if errno == 0 {
		state.inputTo = int(n)
	}
}

//go:norace
//go:nocheckptr
func pumpInput() {
	if state.inputFrom == state.inputTo {
		readInput()
	}
	if state.inputFrom == state.inputTo {
		return
	}
	n, errno := sys(syscall.SYS_WRITE, state.regs[RegMaster], uintptr(unsafe.Pointer(&state.input[state.inputFrom&1023])), uintptr(state.inputTo-state.inputFrom))
	if errno == 0 {
		state.inputFrom += int(n)
	}
}
