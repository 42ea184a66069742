// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

import (
	"syscall"
	"unsafe"
)

// What package syscall does not name, for the architectures of the build constraint.
const (
	atFDCWD    = ^uintptr(99) // -100
	clonePIDFD = 0x1000
	sigSetMask = 2
	sigQueue   = -1 // si_code of a signal that was sent with a value
	waitAny    = ^uintptr(0)
	waitNoHang = 1
	tiocSWINSZ = 0x5414
	pollIn     = 1
	pollOut    = 4
	pollErr    = 8
	pollHangUp = 16
	realtime   = 0
	monotonic  = 1
	fileExists = 0 // F_OK
)

// sys makes a system call. Like all that follows it may be used after the fork.
//
//go:nosplit
//go:norace
func sys(nr, a, b, c uintptr) (r uintptr, errno uintptr) {
	r, _, e := syscall.RawSyscall6(nr, a, b, c, 0, 0, 0)
	return r, uintptr(e)
}

//go:nosplit
//go:norace
func closeFD(fd uintptr) {
	if fd != none {
		sys(syscall.SYS_CLOSE, fd, 0, 0)
	}
}

// exit ends the process. Nobody looks at the code.
//
//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		sys(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

//go:nosplit
//go:norace
func kill(pid uintptr, sig uintptr) {
	sys(syscall.SYS_KILL, pid, sig, 0)
}

// now returns what the clock shows, in seconds and nanoseconds.
//
//go:nosplit
//go:norace
func now(clock uintptr) (sec, nsec int64) {
	var t [2]int64
	sys(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0)
	return t[0], t[1]
}

// handler is the kernel's sigaction, whose fields after the first differ between architectures but are all zero here.
var handler [4]uintptr

//go:nosplit
//go:norace
func setHandler(sig, h uintptr) {
	handler[0] = h
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&handler)), 0, sysSignalMaskSize, 0, 0)
}

var (
	sendIOV     syscall.Iovec
	sendMsg     syscall.Msghdr
	sendControl [24]byte // one descriptor
)

// send sends reply, and a descriptor along with it unless fd is negative.
//
//go:nosplit
//go:norace
func send(socket uintptr, fd int) {
	sendIOV.Base = (*byte)(unsafe.Pointer(&reply))
	sendIOV.Len = uint64(unsafe.Sizeof(reply))
	sendMsg.Iov = &sendIOV
	sendMsg.Iovlen = 1
	sendMsg.Control = nil
	sendMsg.Controllen = 0
	if fd >= 0 {
		h := (*syscall.Cmsghdr)(unsafe.Pointer(&sendControl))
		h.Len = uint64(unsafe.Sizeof(*h)) + 4
		h.Level = syscall.SOL_SOCKET
		h.Type = syscall.SCM_RIGHTS
		*(*int32)(unsafe.Pointer(&sendControl[16])) = int32(fd)
		sendMsg.Control = &sendControl[0]
		sendMsg.Controllen = uint64(len(sendControl))
	}
	for {
		_, errno := sys(syscall.SYS_SENDMSG, socket, uintptr(unsafe.Pointer(&sendMsg)), syscall.MSG_NOSIGNAL)
		if errno != uintptr(syscall.EINTR) {
			return
		}
	}
}

// line is where short texts are put together.
var (
	line  [256]byte
	nLine int
)

//go:nosplit
//go:norace
func addString(s string) {
	nLine += copy(line[nLine:], s)
}

//go:nosplit
//go:norace
func addByte(b byte) {
	line[nLine] = b
	nLine++
}

// addInt adds v, at least with the given number of digits. v is not negative.
//
//go:nosplit
//go:norace
func addInt(v int64, digits int) {
	n := 1
	for x := v / 10; x > 0; x /= 10 {
		n++
	}
	if n < digits {
		n = digits
	}
	for i := n - 1; i >= 0; i-- {
		line[nLine+i] = byte('0' + v%10)
		v /= 10
	}
	nLine += n
}

// addDate adds the date and time of day in UTC, "2006-01-02T15:04:05", sec seconds after 1970.
//
//go:nosplit
//go:norace
func addDate(sec int64) {
	days := sec / 86400
	clock := sec % 86400
	// Years are counted from March, so that the leap day is the last one, in cycles of 400 years.
	days += 719468
	cycle := days / 146097
	day := days % 146097
	yearOfCycle := (day - day/1460 + day/36524 - day/146096) / 365
	dayOfYear := day - (365*yearOfCycle + yearOfCycle/4 - yearOfCycle/100)
	month := (5*dayOfYear + 2) / 153
	year := yearOfCycle + cycle*400
	dayOfMonth := dayOfYear - (153*month+2)/5 + 1
	month += 3
	if month > 12 {
		month -= 12
		year++
	}
	addInt(year, 4)
	addByte('-')
	addInt(month, 2)
	addByte('-')
	addInt(dayOfMonth, 2)
	addByte('T')
	addInt(clock/3600, 2)
	addByte(':')
	addInt(clock/60%60, 2)
	addByte(':')
	addInt(clock%60, 2)
}
