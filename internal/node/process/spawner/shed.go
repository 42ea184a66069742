// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

import (
	"syscall"
	"unsafe"
)

const (
	madvDontFork = 10
	archGetFS    = 0x1003
)

// shed keeps forks from inheriting memory that they do not need: everything but the program itself, whose variables are all
// that they use, what the thread pointer points to, and the arguments, which are what a process list shows. To copy an
// address space, to fault it in again and to take it down is half of what a fork costs.
//
// It is no loss if this does not work.
func shed() {
	text := readAll("/proc/self/maps\x00")
	program := mappingOf(text, uintptr(unsafe.Pointer(&state)))
	start := mappingOf(text, codeAddress())
	thread := threadPointer()
	for len(text) > 0 {
		var m mapping
		m, text = nextMapping(text)
		switch {
		case m.low >= start.low && m.high <= program.high, m.low <= thread && thread < m.high, m.name == "[stack]":
		default:
			sys(syscall.SYS_MADVISE, m.low, m.high-m.low, madvDontFork)
		}
	}
}

// codeAddress is the address of some instruction of this program.
func codeAddress() uintptr {
	f := serve
	return **(**uintptr)(unsafe.Pointer(&f))
}

// threadPointer is where the architecture keeps what belongs to a thread, or 0 if forks do not look at it.
func threadPointer() (at uintptr) {
	if sysArchPrctl != 0 {
		sys(sysArchPrctl, archGetFS, uintptr(unsafe.Pointer(&at)), 0)
	}
	return at
}

// readAll returns what is in the file at path, which ends in a zero byte, as far as it can be read.
func readAll(path string) string {
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(unsafe.StringData(path))),
		syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return ""
	}
	defer closeFD(fd)
	buffer, n := make([]byte, 1<<16), 0
	for n < len(buffer) {
		r, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&buffer[n])), uintptr(len(buffer)-n))
		if errno != 0 || r == 0 {
			break
		}
		n += int(r)
	}
	return string(buffer[:n])
}

// mapping is a line of /proc/self/maps.
type mapping struct {
	low, high uintptr
	name      string
}

// mappingOf returns the one that address is in.
func mappingOf(text string, address uintptr) (found mapping) {
	for len(text) > 0 {
		var m mapping
		m, text = nextMapping(text)
		if m.low <= address && address < m.high {
			found = m
		}
	}
	return found
}

// nextMapping reads a line, "00400000-01f06000 r-xp 00000000 fe:00 9978578    /path", and returns the rest.
func nextMapping(text string) (m mapping, rest string) {
	line := text
	for i := range len(text) {
		if text[i] == '\n' {
			line, rest = text[:i], text[i+1:]
			break
		}
	}
	m.low, line = hex(line)
	if len(line) > 0 {
		m.high, line = hex(line[1:])
	}
	for i := range len(line) {
		if line[i] == '[' || line[i] == '/' {
			m.name = line[i:]
			break
		}
	}
	return m, rest
}

func hex(s string) (n uintptr, rest string) {
	for len(s) > 0 {
		switch c := s[0]; {
		case c >= '0' && c <= '9':
			n = n<<4 | uintptr(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uintptr(c-'a'+10)
		default:
			return n, s
		}
		s = s[1:]
	}
	return n, s
}
