// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

#define SYS_clone 220

// func clone(flags uintptr, pidfd *int32, stack, goroutine uintptr) (pid, errno uintptr)
TEXT ·clone(SB),NOSPLIT,$0-48
	MOVD	flags+0(FP), R0
	MOVD	stack+16(FP), R1
	MOVD	pidfd+8(FP), R2
	MOVD	goroutine+24(FP), R9
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$SYS_clone, R8
	SVC
	CBZ	R0, child
	CMN	$4095, R0
	BCS	failed
	MOVD	R0, pid+32(FP)
	MOVD	ZR, errno+40(FP)
	RET
failed:
	NEG	R0, R0
	MOVD	ZR, pid+32(FP)
	MOVD	R0, errno+40(FP)
	RET
child:
	MOVD	R9, g
	CALL	·child(SB)
	BRK

// func vfork(flags, stack uintptr) (pid, errno uintptr)
TEXT ·vfork(SB),NOSPLIT,$0-32
	MOVD	flags+0(FP), R0
	MOVD	stack+8(FP), R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$SYS_clone, R8
	SVC
	CBZ	R0, child
	CMN	$4095, R0
	BCS	failed
	MOVD	R0, pid+16(FP)
	MOVD	ZR, errno+24(FP)
	RET
failed:
	NEG	R0, R0
	MOVD	ZR, pid+16(FP)
	MOVD	R0, errno+24(FP)
	RET
child:
	CALL	·command(SB)
	BRK
