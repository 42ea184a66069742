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

	sysCloseRange = 436
)

// sys makes a system call. Like all that follows it may be used after the fork.
//
//go:norace
//go:nocheckptr
func sys(nr, a, b, c uintptr) (r uintptr, errno uintptr) {
	r, _, e := syscall.RawSyscall6(nr, a, b, c, 0, 0, 0)
	return r, uintptr(e)
}

// sys5 makes a system call with more arguments, whose result does not matter.
//
//go:norace
//go:nocheckptr
func sys5(nr, a, b, c, d uintptr) {
	_, _, _ = syscall.RawSyscall6(nr, a, b, c, d, 0, 0)
}

//go:norace
//go:nocheckptr
func closeFD(fd uintptr) {
	if fd != none {
		sys(syscall.SYS_CLOSE, fd, 0, 0)
	}
}

// exit ends the process. Nobody looks at the code.
//
//go:norace
//go:nocheckptr
func exit(code uintptr) {
	for {
		sys(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

//go:norace
//go:nocheckptr
func kill(pid uintptr, sig uintptr) {
	sys(syscall.SYS_KILL, pid, sig, 0)
}

// topOf returns the upper end of a stack.
//
//go:norace
//go:nocheckptr
func topOf(stack unsafe.Pointer, size uintptr) uintptr { return (uintptr(stack) + size) &^ 15 }

// now returns what the clock shows, in seconds and nanoseconds.
//
//go:norace
//go:nocheckptr
func now(clock uintptr) (sec, nsec int64) {
	var t [2]int64
	sys(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0)
	return t[0], t[1]
}

//go:norace
//go:nocheckptr
func setHandler(sig, h uintptr) {
	state.handler.handler = h
	sys5(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&state.handler)), 0, sysSignalMaskSize)
}

// prepareMessage sets up state.message for size bytes at base, with controlSize bytes of control data.
//
//go:norace
//go:nocheckptr
func prepareMessage(base, size, controlSize uintptr) {
	state.iov = ioVec{base, size}
	state.message = messageHeader{iov: uintptr(unsafe.Pointer(&state.iov)), nIOV: 1}
	if controlSize > 0 {
		state.message.control = uintptr(unsafe.Pointer(&state.control))
		state.message.controlSize = controlSize
	}
}

// send sends state.reply, and a descriptor along with it unless fd is negative.
//
//go:norace
//go:nocheckptr
func send(socket uintptr, fd int) {
	size := uintptr(0)
	if fd >= 0 {
		h := (*controlHeader)(unsafe.Pointer(&state.control))
		*h = controlHeader{size: unsafe.Sizeof(*h) + 4, level: syscall.SOL_SOCKET, kind: syscall.SCM_RIGHTS}
		*(*int32)(unsafe.Add(unsafe.Pointer(h), unsafe.Sizeof(*h))) = int32(fd)
		size = unsafe.Sizeof(*h) + 8
	}
	prepareMessage(uintptr(unsafe.Pointer(&state.reply)), unsafe.Sizeof(state.reply), size)
	for {
		_, errno := sys(syscall.SYS_SENDMSG, socket, uintptr(unsafe.Pointer(&state.message)), syscall.MSG_NOSIGNAL)
		if errno != uintptr(syscall.EINTR) {
			return
		}
	}
}

//go:norace
//go:nocheckptr
func addString(s string) {
	for i := range len(s) {
		state.line[state.nLine] = s[i]
		state.nLine++
	}
}

//go:norace
//go:nocheckptr
func addByte(b byte) {
	state.line[state.nLine] = b
	state.nLine++
}

// addInt adds v, at least with the given number of digits. v is not negative.
//
//go:norace
//go:nocheckptr
func addInt(v int64, digits int) {
	n := 1
	for x := v / 10; x > 0; x /= 10 {
		n++
	}
	if n < digits {
		n = digits
	}
	for i := n - 1; i >= 0; i-- {
		state.line[state.nLine+i] = byte('0' + v%10)
		v /= 10
	}
	state.nLine += n
}

// addDate adds the date and time of day in UTC, "2006-01-02T15:04:05", sec seconds after 1970.
//
//go:norace
//go:nocheckptr
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
