// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

#define SYS_clone 56

// func enter(stack, goroutine uintptr)
TEXT ·enter(SB),NOSPLIT,$0-16
	MOVQ	stack+0(FP), AX
	MOVQ	goroutine+8(FP), R14
	MOVQ	R14, (TLS)
	MOVQ	AX, SP
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
