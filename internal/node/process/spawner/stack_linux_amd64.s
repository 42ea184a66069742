// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

#define SYS_clone 56

// func clone(flags uintptr, pidfd *int32, stack, goroutine uintptr) (pid, errno uintptr)
TEXT ·clone(SB),NOSPLIT,$0-48
	MOVQ	flags+0(FP), DI
	MOVQ	pidfd+8(FP), DX
	MOVQ	stack+16(FP), SI
	MOVQ	goroutine+24(FP), R12
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	child
	CMPQ	AX, $0xfffffffffffff001
	JCC	failed
	MOVQ	AX, pid+32(FP)
	MOVQ	$0, errno+40(FP)
	RET
failed:
	NEGQ	AX
	MOVQ	$0, pid+32(FP)
	MOVQ	AX, errno+40(FP)
	RET
child:
	MOVQ	R12, R14
	MOVQ	R14, (TLS)
	CALL	·child(SB)
	INT	$3

// func vfork(flags, stack uintptr) (pid, errno uintptr)
TEXT ·vfork(SB),NOSPLIT,$0-32
	MOVQ	flags+0(FP), DI
	MOVQ	stack+8(FP), SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	child
	CMPQ	AX, $0xfffffffffffff001
	JCC	failed
	MOVQ	AX, pid+16(FP)
	MOVQ	$0, errno+24(FP)
	RET
failed:
	NEGQ	AX
	MOVQ	$0, pid+16(FP)
	MOVQ	AX, errno+24(FP)
	RET
child:
	CALL	·command(SB)
	INT	$3
