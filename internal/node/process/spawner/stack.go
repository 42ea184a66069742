// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

// enter runs child on another stack, whose upper end is given, and as another goroutine. It does not return.
//
//go:noescape
func enter(stack, goroutine uintptr)

// vfork makes a child that shares this process's memory and runs command on a stack of its own, whose upper end is given.
// It returns once the child has executed a program or ended.
//
//go:noescape
func vfork(flags, stack uintptr) (pid, errno uintptr)
