// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

// state is all memory that a fork writes to, besides its stack and image. It is one variable so that what is small lies
// together: each page that is touched costs the fork, and the spawner after it, a copy. There are no pointers in it.
var state struct {
	// The stacks of child and of command, used from their upper ends on, and what the Go code there takes for its goroutine.
	forkStack    [4096]uint64
	commandStack [1024]uint64
	goroutine    goroutine

	answering bool // this process, or the one it was forked from, answers requests

	request   Request
	reply     Reply
	pidfd     int32 // where the kernel stores the descriptor of the last fork
	nReceived int32
	received  [maxFDs]int32 // the descriptors of the current request

	// Where an operation did not work. command sets it in memory that it shares with the fork.
	failedPhase, failedStep, failedErrno uintptr

	forkPID    uintptr // this process
	mainPID    uintptr // the command; 0 once it has ended
	mainStatus uint32
	mainDone   bool

	torn       bool // the last write to the log ended inside a record
	endOfInput bool // send the terminal's end-of-file character once everything before it has gone
	newline    [1]byte
	one        [1]byte

	logSize            int64
	logLost            int64 // bytes that could not be written
	nPieces            int
	nBytes             int64 // in pieces
	inputFrom, inputTo int
	nLine              int

	handler sigAction
	iov     ioVec
	message messageHeader
	control [192]byte
	polls   [nPolls]pollFD
	timeout [2]int64
	streams [2]stream
	line    [256]byte // where short texts are put together
	regs    [maxRegs]uintptr

	signals [4]signalInfo
	input   [1024]byte
	pieces  [maxPieces]ioVec
	scratch [4096]byte // for reading small files
	buffers [2][bufferSize]byte
}

// goroutine is the beginning of the runtime's structure of this name, which is all that the compiler's code looks at: every
// function compares its stack pointer with stackGuard before it begins. Go's linker and assembler rely on these offsets, too.
type goroutine struct {
	stackLow, stackHigh     uintptr
	stackGuard, systemGuard uintptr
	_                       [124]uintptr
}

// ioVec is the kernel's iovec.
type ioVec struct {
	base uintptr
	size uintptr
}

// messageHeader is the kernel's msghdr.
type messageHeader struct {
	name        uintptr
	nameSize    uint32
	_           uint32
	iov         uintptr
	nIOV        uintptr
	control     uintptr
	controlSize uintptr
	flags       int32
	_           int32
}

// controlHeader is the kernel's cmsghdr.
type controlHeader struct {
	size  uintptr
	level int32
	kind  int32
}

// sigAction is the kernel's, whose fields after the first differ between architectures but are all zero here.
type sigAction struct {
	handler uintptr
	_       [3]uintptr
}

// pollFD is the kernel's pollfd.
type pollFD struct {
	fd      int32
	events  int16
	revents int16
}

// signalInfo is the kernel's signalfd_siginfo.
type signalInfo struct {
	signo uint32
	_     int32
	code  int32
	_     [9]uint32
	value uint64
	_     [9]uint64
}

// stream is one of the command's outputs. What has been read and not written is in the buffer with the same index.
type stream struct {
	fd    int32 // negative: closed
	held  int   // bytes in the buffer
	since int64 // when the first of them came, in milliseconds of the monotonic clock
	full  [prefixSize]byte
	part  [prefixSize]byte
}
