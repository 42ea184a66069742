// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

// vfork makes a child that shares this process's memory and runs command on a stack of its own, whose upper end is given.
// It returns once the child has executed a program or ended.
//
//go:noescape
func vfork(flags, stack uintptr) (pid, errno uintptr)
