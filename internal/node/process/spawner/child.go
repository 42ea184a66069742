// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

import (
	"syscall"
	"unsafe"
)

// This file runs in the fork: read the package comment before changing anything. The life of a fork:
//
//	child: Setup ── fails ──> ReplyFailed
//	         │
//	       vfork ──> command: Command, exec ── fails ──> (in the fork) ReplyFailed
//	         │
//	       After, ReplyReady
//	         │
//	     supervise until the command has ended ──> finish

// image is the request's image. It is not part of the spawner's memory until a fork reads into it.
var image [MaxImage / 8]uint64

// Phases of a Reply.
const (
	PhaseRead = iota
	PhaseSetup
	PhaseCommand
	PhaseExec // Step is the index in Paths
	PhaseAfter
	PhaseFork
	PhaseRecord
)

// ErrnoInterpreter is the Errno of PhaseExec when the file exists and the program that it names as its interpreter does not.
const ErrnoInterpreter = 1000

//go:norace
//go:nocheckptr
func header() *Header { return (*Header)(unsafe.Pointer(&image)) }

// at returns the address of what lies at offset r of the image.
//
//go:norace
//go:nocheckptr
func at(r uint64) uintptr { return uintptr(unsafe.Pointer(&image)) + uintptr(r) }

// word returns the 64 bits at offset r of the image. What the other side put there is not checked.
//
//go:norace
//go:nocheckptr
func word(r uint64) *uint64 { return (*uint64)(unsafe.Add(unsafe.Pointer(&image), r)) }

// child is what forks run. The first one answers requests; each of its own forks carries out one and ends the process.
//
//go:norace
//go:nocheckptr
func child() {
	if !state.answering {
		state.answering = true
		answer()
	}
	setHandler(uintptr(syscall.SIGCHLD), sigDFL)
	for i := range RegFirstFD {
		state.regs[i] = none
	}
	for i := 1; i < int(state.nReceived); i++ {
		state.regs[RegFirstFD+i-1] = uintptr(state.received[i])
	}
	if state.nReceived > 1 {
		state.regs[RegControl] = uintptr(state.received[1]) // meaningful with FlagExec only
	}
	state.reply = Reply{ID: state.request.ID}
	if !readImage() {
		fail()
	}
	h := header()
	if !run(h.Setup, PhaseSetup) {
		fail()
	}
	if h.Flags&FlagProbe != 0 {
		state.reply.Kind = ReplyReady
		send(SocketFD, -1)
		exit(0)
	}
	relocate(h.Paths)
	relocate(h.Args)
	relocate(h.Env)
	relocate(h.LogNames)
	if h.Flags&FlagExec == 0 && !recordRun() {
		fail()
	}
	// From here on the record says that the command may have run, whatever becomes of this process.
	closeFD(LockFD)

	state.failedErrno = 0
	state.forkPID, _ = sys(syscall.SYS_GETPID, 0, 0, 0)
	pid, errno := vfork(syscall.CLONE_VM|syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD),
		topOf(unsafe.Pointer(&state.commandStack), unsafe.Sizeof(state.commandStack)))
	if errno != 0 {
		state.failedPhase, state.failedStep, state.failedErrno = PhaseFork, 0, errno
	}
	if state.failedErrno != 0 {
		if h.Flags&FlagExec == 0 {
			recordFailure()
		}
		fail()
	}
	state.mainPID = pid
	if h.Flags&(FlagExec|FlagPIDOne) == 0 {
		recordMain()
	}
	if !run(h.After, PhaseAfter) {
		// Only descriptors are closed there, which always works.
		state.failedErrno = 0
	}
	state.reply.Kind = ReplyReady
	if h.Flags&FlagExec != 0 {
		send(state.regs[RegControl], int(state.regs[RegMaster]))
	} else {
		send(SocketFD, -1)
	}
	closeFD(SocketFD)
	supervise()
	finish()
}

// readImage reads the image from the first descriptor that came with the request.
//
//go:norace
//go:nocheckptr
func readImage() bool {
	state.failedPhase, state.failedStep = PhaseRead, 0
	size := uintptr(state.request.Size)
	if size > unsafe.Sizeof(image) {
		state.failedErrno = uintptr(syscall.E2BIG)
		return false
	}
	for n := uintptr(0); n < size; {
		r, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(state.received[0]), at(uint64(n)), size-n, n, 0, 0)
		if errno != 0 || r == 0 {
			state.failedErrno = uintptr(errno)
			return false
		}
		n += r
	}
	closeFD(uintptr(state.received[0]))
	return true
}

// relocate turns the offsets in v into addresses.
//
//go:norace
//go:nocheckptr
func relocate(v Vector) {
	for i := range v.Count {
		*word(v.First + 8*i) += uint64(at(0))
	}
}

// run carries out the operations of s. If one does not work it says which and why and returns false.
//
//go:norace
//go:nocheckptr
func run(s Span, phase uintptr) bool {
	for i := uint64(0); i < s.Count; i++ {
		o := (*operation)(unsafe.Pointer(word(s.First + i*uint64(operationSize))))
		errno := operate(o)
		switch {
		case errno == 0:
		case errno == uintptr(o.Ignore[0]), errno == uintptr(o.Ignore[1]):
			i += uint64(o.Skip)
		default:
			state.failedPhase, state.failedStep, state.failedErrno = phase, uintptr(i), errno
			return false
		}
	}
	return true
}

//go:norace
//go:nocheckptr
func operate(o *operation) (errno uintptr) {
	if o.Nr == loadInt32 {
		state.regs[o.Save] = uintptr(*(*int32)(unsafe.Pointer(word(o.Args[0]))))
		return 0
	}
	for i := range o.Args {
		switch {
		case o.Pointers&(1<<i) != 0:
			o.Args[i] += uint64(at(0))
		case o.Registers&(1<<i) != 0:
			o.Args[i] = uint64(state.regs[o.Args[i]])
		}
	}
	r, _, e := syscall.RawSyscall6(uintptr(o.Nr), uintptr(o.Args[0]), uintptr(o.Args[1]), uintptr(o.Args[2]),
		uintptr(o.Args[3]), uintptr(o.Args[4]), uintptr(o.Args[5]))
	if e != 0 {
		return uintptr(e)
	}
	if o.Save != RegNone {
		state.regs[o.Save] = r
	}
	return 0
}

// command becomes the command. It runs in a process that shares its memory with the fork, which waits meanwhile, and on a
// stack of its own.
//
//go:norace
//go:nocheckptr
func command() {
	h := header()
	if run(h.Command, PhaseCommand) && !abandoned(h) {
		execute(h)
	}
	exit(127)
}

// abandoned tells whether the fork was killed meanwhile, before it was arranged that the command dies with it.
//
//go:norace
//go:nocheckptr
func abandoned(h *Header) bool {
	if h.Flags&(FlagPIDOne|FlagExec) != 0 {
		return false // dies with its namespace, or has a parent that it cannot see
	}
	parent, _ := sys(syscall.SYS_GETPPID, 0, 0, 0)
	return parent != state.forkPID
}

// execute tries h.Paths in order, as execvp does: what is missing or may not be executed is passed over, and that a file was
// there without permission is remembered.
//
//go:norace
//go:nocheckptr
func execute(h *Header) {
	step, result := uint64(0), uintptr(syscall.ENOENT)
	for i := range h.Paths.Count {
		path := uintptr(*word(h.Paths.First + 8*i))
		_, errno := sys(syscall.SYS_EXECVE, path, at(h.Args.First), at(h.Env.First))
		if errno == uintptr(syscall.ENOENT) {
			if _, missing := sys(syscall.SYS_FACCESSAT, atFDCWD, path, fileExists); missing == 0 {
				errno = ErrnoInterpreter
			}
		}
		switch errno {
		case uintptr(syscall.ENOENT), uintptr(syscall.ENOTDIR):
			continue
		case uintptr(syscall.EACCES):
			step, result = i, errno
			continue
		}
		step, result = i, errno
		break
	}
	// Only now: this memory is the fork's, too, and says that the command did not run.
	state.failedPhase, state.failedStep, state.failedErrno = PhaseExec, uintptr(step), result
}

// fail tells the other side what did not work, and ends the process.
//
//go:norace
//go:nocheckptr
func fail() {
	state.reply.Kind = ReplyFailed
	state.reply.Phase = int32(state.failedPhase)
	state.reply.Step = int32(state.failedStep)
	state.reply.Errno = int32(state.failedErrno)
	if state.request.Size != 0 && header().Flags&FlagExec != 0 {
		send(state.regs[RegControl], -1)
	} else {
		send(SocketFD, -1)
	}
	exit(1)
}

// recordRun writes to the journal that the command may run from now on, and as which process. It returns false if that did
// not work: then the command must not run.
//
//go:norace
//go:nocheckptr
func recordRun() bool {
	sec, nsec := now(realtime)
	state.reply.TimeNS = sec*1e9 + nsec
	state.nLine = 0
	addString("run ")
	for i := range state.regs[RegPIDLen] {
		addByte(*(*byte)(unsafe.Pointer(word(uint64(header().PIDText) + uint64(i)))))
	}
	addByte(' ')
	addInt(state.reply.TimeNS, 1)
	addByte('\n')
	r, errno := sys(syscall.SYS_WRITE, state.regs[RegJournal], uintptr(unsafe.Pointer(&state.line)), uintptr(state.nLine))
	state.failedPhase, state.failedStep, state.failedErrno = PhaseRecord, 0, errno
	if errno == 0 && int(r) != state.nLine {
		state.failedErrno = uintptr(syscall.ENOSPC)
	}
	return state.failedErrno == 0
}

// recordMain writes to the journal which process is the command: the one thing that is left to know its descendants by if this
// process gets killed and no namespace dies with it.
//
//go:norace
//go:nocheckptr
func recordMain() {
	state.nLine = 0
	addString("main ")
	addInt(int64(state.mainPID), 1)
	addByte('\n')
	sys(syscall.SYS_WRITE, state.regs[RegJournal], uintptr(unsafe.Pointer(&state.line)), uintptr(state.nLine))
}

// recordFailure writes to the journal that the command did not run after all.
//
//go:norace
//go:nocheckptr
func recordFailure() {
	state.nLine = 0
	addString("fail ")
	addInt(int64(state.failedPhase), 1)
	addByte(' ')
	addInt(int64(state.failedStep), 1)
	addByte(' ')
	addInt(int64(state.failedErrno), 1)
	addByte('\n')
	sys(syscall.SYS_WRITE, state.regs[RegJournal], uintptr(unsafe.Pointer(&state.line)), uintptr(state.nLine))
}

// recordExit writes to the journal how the command ended.
//
//go:norace
//go:nocheckptr
func recordExit() {
	sec, nsec := now(realtime)
	code, sig := int64(state.mainStatus>>8&0xff), int64(state.mainStatus&0x7f)
	if sig != 0 {
		code = 128 + sig
	}
	oom := int64(0)
	if code != 0 {
		oom = outOfMemoryKills()
	}
	state.nLine = 0
	addString("exit ")
	addInt(code, 1)
	addByte(' ')
	addInt(sig, 1)
	addByte(' ')
	addInt(oom, 1)
	addByte(' ')
	addInt(state.logLost, 1)
	addByte(' ')
	addInt(sec*1e9+nsec, 1)
	addByte('\n')
	sys(syscall.SYS_WRITE, state.regs[RegJournal], uintptr(unsafe.Pointer(&state.line)), uintptr(state.nLine))
}

// outOfMemoryKills returns how many processes of the container the kernel has killed for want of memory.
//
//go:norace
//go:nocheckptr
func outOfMemoryKills() (kills int64) {
	const word = "oom_kill "
	if state.regs[RegOOM] == none {
		return 0
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, state.regs[RegOOM], uintptr(unsafe.Pointer(&state.scratch)),
		uintptr(len(state.scratch)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	for i := 0; i+len(word) <= int(n); i++ {
		j := 0
		for j < len(word) && state.scratch[i+j] == word[j] {
			j++
		}
		if j < len(word) {
			continue
		}
		for i += j; i < int(n) && state.scratch[i] >= '0' && state.scratch[i] <= '9'; i++ {
			kills = kills*10 + int64(state.scratch[i]-'0')
		}
		return kills
	}
	return 0
}

// Control is what a real-time signal ControlSignal, sent with a value by the other side, asks for: the operation in the upper
// 8 bits of the value and its argument in the lower 32.
const (
	ControlSignal     = 63
	ControlKill       = 1 // send the signal with this number to the command
	ControlCloseStdin = 2 // end the command's standard input
	ControlWindow     = 3 // rows << 16 | columns of the terminal
)

// takeSignals reads what has arrived, reaps, and passes on to the command what is meant for it.
//
//go:norace
//go:nocheckptr
func takeSignals() {
	n, errno := sys(syscall.SYS_READ, state.regs[RegSignals], uintptr(unsafe.Pointer(&state.signals)), unsafe.Sizeof(state.signals))
	if errno != 0 {
		return
	}
	for i := range n / unsafe.Sizeof(state.signals[0]) {
		switch s := &state.signals[i&3]; {
		case s.signo == uint32(syscall.SIGCHLD):
			reap()
		case s.signo == ControlSignal && s.code == sigQueue:
			obey(s.value)
		case state.mainPID != 0:
			kill(state.mainPID, uintptr(s.signo))
		}
	}
}

//go:norace
//go:nocheckptr
func obey(value uint64) {
	arg := uintptr(uint32(value))
	switch value >> 56 {
	case ControlKill:
		if state.mainPID != 0 {
			kill(state.mainPID, arg)
		}
	case ControlCloseStdin:
		if header().Flags&FlagTTY != 0 {
			state.endOfInput = true
			return
		}
		closeFD(state.regs[RegStdin])
		state.regs[RegStdin] = none
	case ControlWindow:
		if header().Flags&FlagTTY != 0 {
			size := [4]uint16{uint16(arg >> 16), uint16(arg)}
			sys(syscall.SYS_IOCTL, state.regs[RegMaster], tiocSWINSZ, uintptr(unsafe.Pointer(&size)))
		}
	}
}

// reap takes the status of every child that has ended.
//
//go:norace
//go:nocheckptr
func reap() (children bool) {
	for {
		var status uint32
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, waitAny, uintptr(unsafe.Pointer(&status)), waitNoHang, 0, 0, 0)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			return false
		case pid == 0:
			return true
		case pid == state.mainPID:
			state.mainStatus, state.mainDone, state.mainPID = status, true, 0
		}
	}
}

// wait waits until something happens, or for the given time in milliseconds unless it is negative.
//
//go:norace
//go:nocheckptr
func wait(count int, millis int64) (ready uintptr) {
	t := uintptr(0)
	if millis >= 0 {
		state.timeout = [2]int64{millis / 1000, millis % 1000 * 1e6}
		t = uintptr(unsafe.Pointer(&state.timeout))
	}
	ready, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&state.polls)), uintptr(count), t, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return ready
}

// Places in polls. A negative descriptor is passed over by the kernel.
const (
	pollSignals = iota
	pollStream0
	pollStream1
	pollControl
	pollStdin
	pollMaster
	nPolls
)

// supervise keeps the log, passes signals on and reaps, until the command has ended.
//
//go:norace
//go:nocheckptr
func supervise() {
	openStreams()
	exec := header().Flags&FlagExec != 0
	for !state.mainDone {
		state.polls[pollSignals] = pollFD{fd: int32(state.regs[RegSignals]), events: pollIn}
		state.polls[pollStream0] = pollFD{fd: state.streams[0].fd, events: pollIn}
		state.polls[pollStream1] = pollFD{fd: state.streams[1].fd, events: pollIn}
		state.polls[pollControl] = pollFD{fd: -1}
		if exec {
			state.polls[pollControl].fd = int32(state.regs[RegControl])
		}
		pollTerminalInput()
		if wait(len(state.polls), holdFor()) == 0 {
			flushHeld()
			continue
		}
		if state.polls[pollStream0].revents != 0 {
			pump(0)
		}
		if state.polls[pollStream1].revents != 0 {
			pump(1)
		}
		if state.polls[pollStdin].revents|state.polls[pollMaster].revents != 0 {
			pumpInput()
		}
		if state.polls[pollControl].revents&(pollHangUp|pollErr) != 0 {
			// The other side wants it ended, or is gone itself. The command leads a session and a group of its own.
			kill(state.mainPID, uintptr(syscall.SIGKILL))
			kill(-state.mainPID, uintptr(syscall.SIGKILL))
			closeFD(state.regs[RegControl])
			state.regs[RegControl] = none
			exec = false
		}
		if state.polls[pollSignals].revents != 0 {
			takeSignals()
		}
		flushHeld()
	}
}

// finish does what is left after the command's end, and ends the process.
//
//go:norace
//go:nocheckptr
func finish() {
	if header().Flags&FlagExec != 0 {
		if state.regs[RegControl] != none {
			state.reply.Kind = ReplyExited
			state.reply.Status = int32(state.mainStatus)
			send(state.regs[RegControl], -1)
		}
		exit(0)
	}
	killAll()
	drain()
	recordExit()
	exit(0)
}

// killAll ends every other process of the container and waits for those that are children.
//
//go:norace
//go:nocheckptr
func killAll() {
	if header().Flags&FlagPIDOne != 0 {
		kill(waitAny, uintptr(syscall.SIGKILL))
		for {
			_, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, waitAny, 0, 0, 0, 0, 0)
			if errno != 0 && errno != syscall.EINTR {
				return
			}
		}
	}
	// Without a PID namespace: orphans of the container become children of this process, because it is their subreaper. So
	// killing all children again and again ends with all descendants gone, unless they multiply faster than this loop
	// runs, which a limit on processes prevents.
	for {
		killCgroup()
		found := killChildren()
		if !reap() {
			return
		}
		if !found {
			// Children, and no way to find out which: not even a list of them in /proc. Do not hang on them.
			return
		}
		state.polls[0] = pollFD{fd: -1}
		wait(1, 1)
	}
}

// killCgroup kills what is in the container's cgroup, if it has one.
//
//go:norace
//go:nocheckptr
func killCgroup() {
	if state.regs[RegKill] != none {
		sys(syscall.SYS_WRITE, state.regs[RegKill], uintptr(unsafe.Pointer(&state.one)), 1)
		return
	}
	if state.regs[RegProcs] != none {
		sys(syscall.SYS_LSEEK, state.regs[RegProcs], 0, 0)
		killListed(state.regs[RegProcs])
	}
}

// killChildren kills the children of this process. It returns false if there is no list of them.
//
//go:norace
//go:nocheckptr
func killChildren() bool {
	if header().Kill == 0 {
		return false
	}
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, atFDCWD, at(uint64(header().Kill)), syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return false
	}
	killListed(fd)
	closeFD(fd)
	return true
}

// killListed kills the processes whose numbers can be read from fd.
//
//go:norace
//go:nocheckptr
func killListed(fd uintptr) {
	pid := uintptr(0)
	for {
		n, errno := sys(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&state.scratch)), uintptr(len(state.scratch)))
		if errno != 0 || n == 0 {
			break
		}
		for _, b := range state.scratch[:n] {
			if b >= '0' && b <= '9' {
				pid = pid*10 + uintptr(b-'0')
				continue
			}
			if pid > 1 {
				kill(pid, uintptr(syscall.SIGKILL))
			}
			pid = 0
		}
	}
	if pid > 1 {
		kill(pid, uintptr(syscall.SIGKILL))
	}
}
