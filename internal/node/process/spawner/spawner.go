// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

// Package spawner is the small process that all containers are forked from, and the first process of each of them.
//
// A program that links package process also holds this one. When it is run with the spawner's environment variable, it
// turns into a spawner in the init function below and never reaches main. It forks once, to be rid of the Go runtime; that fork
// reads requests from a socket and forks once for each. None of these forks execs: one for a request carries out the system
// calls that it lists (namespaces, mounts), starts the command, and stays as the container's init, which writes the log,
// reaps, forwards signals and records the exit. So a container costs one fork of a process of 1 MB and one exec, that of its
// command.
//
// Two rules follow from this, and both are easy to break:
//
//   - This package imports syscall and unsafe, nothing else. Package initialisation runs in the order of import paths among
//     the packages that are ready; with so few imports this one comes before nearly all others of a large program, and the
//     spawner does not pay for them.
//   - After the fork only one thread is left, and no Go runtime that could schedule, collect or grow a stack. What runs there
//     (answer.go, child.go, log.go) runs on a stack of its own and is written in a subset of Go: memory is the variables state and
//     image, and nothing is called but raw system calls. No maps, no interfaces, no append, no copy, no string concatenation,
//     no closures, no defer, and neither the race detector nor checks of pointers. A test takes the compiled code apart to see
//     that this is so. Package syscall lives by the same rules between its fork and its exec.
//
// The other side, in ordinary Go, is package process: it builds requests with Image and Program. Start reading at serve.
package spawner

import (
	"syscall"
	"unsafe"
)

// Env is the environment variable that turns a program into a spawner. Its value is Version.
const Env = "_DROVER_SPAWNER"

// Version changes with every change of the messages below.
const Version = "2"

// Descriptors of a spawner. Name is what it and the containers' inits are called in a process list.
const (
	SocketFD = 3 // SOCK_SEQPACKET, requests in, replies out
	LockFD   = 4 // held open until the outcome of a request is on disk
	Name     = "drover-init"
)

// Request asks for one fork. Descriptors come along with it: the first one is a file that holds the Image, those after it
// are put in the registers from RegFirstFD on.
type Request struct {
	ID         uint64
	CloneFlags uint64
	Size       uint64 // of the image in bytes
}

// Kinds of Reply.
const (
	ReplyHello  = 1 + iota // the spawner, PID, is ready
	ReplyForked            // PID, and a pidfd along with it; or Errno
	ReplyFailed            // by the fork: Phase and Step did not work because of Errno
	ReplyReady             // by the fork: everything worked and the command runs (TimeNS), or, for a probe, would run
	ReplyExited            // by the fork of an exec: Status is the command's wait status
	ReplyPong              // by the spawner: an answer to a request without an image; all earlier replies have been sent
)

// Reply is what the spawner and its forks answer.
type Reply struct {
	ID     uint64
	Kind   int32
	PID    int32
	Phase  int32
	Step   int32
	Errno  int32
	Status int32
	TimeNS int64
}

const (
	maxFDs = 32

	sysSignalMaskSize = 8
	sigDFL            = 0
	sigIGN            = 1

	stackReserve = 4096
)

// init must come before the initialisation of everything that is heavy; see the package comment.
func init() {
	if v, ok := syscall.Getenv(Env); ok && v == Version {
		serve()
	}
}

// serve forks the process that answers requests, and waits for its end. It never returns.
//
// The requests are not answered here because a Go runtime has threads of its own: one that looks after the others wakes up thousands
// of times a second while requests come, which costs a tenth of what containers do.
func serve() {
	become()
	_, errno := fork(0)
	if errno != 0 {
		exit(1)
	}
	closeFD(SocketFD)
	closeFD(LockFD)
	for {
		// Syscall and not RawSyscall: the runtime would take a thread that stays in the latter for a busy one. As signals of children are
		// ignored, there is no answer before the child has ended, and then it is that there is none.
		_, _, errno := syscall.Syscall6(syscall.SYS_WAIT4, waitAny, 0, 0, 0, 0, 0)
		if errno == syscall.ECHILD {
			exit(0)
		}
	}
}

// become gives the process the properties that its forks inherit: no blocked or ignored signal gets through to them, and
// nobody has to reap them.
func become() {
	state.newline[0], state.one[0] = '\n', '1'
	shed()
	// The lower end of both stacks, and some room for what does not check.
	guard := uintptr(unsafe.Pointer(&state.forkStack)) + stackReserve
	state.goroutine.stackLow = uintptr(unsafe.Pointer(&state.forkStack))
	state.goroutine.stackHigh = uintptr(unsafe.Pointer(&state.goroutine))
	state.goroutine.stackGuard, state.goroutine.systemGuard = guard, guard
	all := ^uint64(0)
	// Also keeps the runtime from interrupting this thread, the only one that forks.
	sys5(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&all)), 0, sysSignalMaskSize)
	for sig := uintptr(1); sig <= 64; sig++ {
		setHandler(sig, sigDFL)
	}
	setHandler(uintptr(syscall.SIGCHLD), sigIGN)
	// Nothing that this process was started with, from whoever started its parent, is to be kept open by a container.
	sys(sysCloseRange, LockFD+1, uintptr(^uint32(0)), 0)
	sys(syscall.SYS_FCNTL, SocketFD, syscall.F_SETFD, syscall.FD_CLOEXEC)
	sys(syscall.SYS_FCNTL, LockFD, syscall.F_SETFD, syscall.FD_CLOEXEC)
	sys(syscall.SYS_UMASK, 0, 0, 0)
	root := [2]byte{'/', 0}
	sys(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(&root)), 0, 0)
	name := [16]byte{}
	copy(name[:], Name)
	sys(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0)
	// The kernel's out-of-memory killer had better take anything else. Works as root only, and matters only there.
	writeFile("/proc/self/oom_score_adj\x00", "-999")
}

// writeFile writes text to the file at path, which ends in a zero byte, if that works.
func writeFile(path, text string) {
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(unsafe.StringData(path))),
		syscall.O_WRONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return
	}
	sys(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.StringData(text))), uintptr(len(text)))
	closeFD(fd)
}
