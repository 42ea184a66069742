// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

import (
	"syscall"
	"unsafe"
)

// This file runs in the fork that answers requests: read the package comment before changing anything.

// answer forks once for each request, until the other side of the socket is gone. It never returns.
//
//go:norace
//go:nocheckptr
func answer() {
	pid, _ := sys(syscall.SYS_GETPID, 0, 0, 0)
	state.reply = Reply{Kind: ReplyHello, PID: int32(pid)}
	send(SocketFD, -1)
	for {
		n, errno := receive()
		if errno == uintptr(syscall.EINTR) {
			continue
		}
		if n == 0 || errno != 0 {
			exit(0)
		}
		if state.nReceived == 0 {
			state.reply = Reply{ID: state.request.ID, Kind: ReplyPong}
			send(SocketFD, -1)
			continue
		}
		pid, errno := fork(uintptr(state.request.CloneFlags) | clonePIDFD)
		for i := range int(state.nReceived) {
			closeFD(uintptr(state.received[i&(maxFDs-1)]))
		}
		state.reply = Reply{ID: state.request.ID, Kind: ReplyForked, PID: int32(pid), Errno: int32(errno)}
		if errno != 0 {
			send(SocketFD, -1)
			continue
		}
		send(SocketFD, int(state.pidfd))
		closeFD(uintptr(state.pidfd))
	}
}

// receive waits for a request and stores it in state.
//
//go:norace
//go:nocheckptr
func receive() (n, errno uintptr) {
	state.nReceived = 0
	prepareMessage(uintptr(unsafe.Pointer(&state.request)), unsafe.Sizeof(state.request), unsafe.Sizeof(state.control))
	n, errno = sys(syscall.SYS_RECVMSG, SocketFD, uintptr(unsafe.Pointer(&state.message)), syscall.MSG_CMSG_CLOEXEC)
	if errno != 0 || state.message.controlSize < unsafe.Sizeof(controlHeader{}) {
		return n, errno
	}
	h := (*controlHeader)(unsafe.Pointer(&state.control))
	state.nReceived = int32(h.size-unsafe.Sizeof(*h)) / 4
	for i := range int(state.nReceived) {
		state.received[i&(maxFDs-1)] = *(*int32)(unsafe.Add(unsafe.Pointer(h), unsafe.Sizeof(*h)+uintptr(4*i)))
	}
	return n, 0
}

// fork makes a child with a copy of this process's memory, which runs child. All of them use the same stack, each its own copy: none
// goes back to what its parent has there.
//
//go:norace
//go:nocheckptr
func fork(flags uintptr) (pid, errno uintptr) {
	return clone(flags|uintptr(syscall.SIGCHLD), &state.pidfd,
		topOf(unsafe.Pointer(&state.forkStack), unsafe.Sizeof(state.forkStack)), uintptr(unsafe.Pointer(&state.goroutine)))
}
