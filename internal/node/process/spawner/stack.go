// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

// clone makes a child with a copy of this process's memory, which runs the function child on another stack, whose upper end is
// given, and as another goroutine. It returns in this process only.
//
//go:noescape
func clone(flags uintptr, pidfd *int32, stack, goroutine uintptr) (pid, errno uintptr)

// vfork makes a child that shares this process's memory and runs command on a stack of its own, whose upper end is given.
// It returns once the child has executed a program or ended.
//
//go:noescape
func vfork(flags, stack uintptr) (pid, errno uintptr)

// What the assembly calls.
var _ = [...]func(){child, command}
