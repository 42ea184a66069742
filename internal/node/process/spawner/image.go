// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

import "unsafe"

// An Image is what one fork needs to know, laid out so that it can be used where it was read: a header, then system calls
// and whatever they point to. Pointers in it are offsets from its start.
type Image struct {
	Header Header
	data   []byte
}

// Header is the beginning of an Image.
type Header struct {
	Flags uint64

	// Setup runs in the fork, Command in the process that will be the command, After in the fork again once the command
	// runs, each in its order until a call does not work.
	Setup, Command, After Span

	Paths Vector // the files to try to execute, in order
	Args  Vector
	Env   Vector

	// LogNames are the names of the log file, the current one first and then those that it gets by rotation, relative to
	// the directory in RegLogDir.
	LogNames    Vector
	LogMaxBytes int64 // 0: never rotate

	PIDText Ref // where a step of Setup puts the name of /proc/self: the process id in the namespace of the other side
	Kill    Ref // the path of this process's list of children, or 0
}

// Flags of a Header.
const (
	FlagProbe   = 1 << iota // end with success after Setup
	FlagExec                // a further command of a container: no log, no record, its end is told through RegControl
	FlagPIDOne              // the fork is the first process of a PID namespace
	FlagTTY                 // RegMaster is a terminal's master side; it stands for all three streams
	FlagCloseIn             // no TTY, but RegStdin keeps the command's standard input open
)

// Span is a run of operations.
type Span struct{ First, Count uint64 }

// Vector is an array of pointers to zero-terminated strings, with a nil after the last one.
type Vector struct{ First, Count uint64 }

// Ref is the place of something in an Image.
type Ref uint64

// Registers keep results of system calls, nearly always descriptors, for later ones. Those below RegFirstFD have a meaning
// for the fork; one that was not set is None.
const (
	RegNone     = iota
	RegJournal  // the record of what became of the container
	RegLogDir   // the directory of the log file
	RegLog      // the log file
	RegLogSize  // its size in bytes
	RegOut      // the reading end of standard output
	RegErr      // the reading end of standard error
	RegMaster   // the terminal
	RegStdin    // both ends of the pipe that is standard input
	RegSignals  // a signalfd
	RegOOM      // where the kernel counts the processes that it killed for want of memory
	RegKill     // a cgroup v2's cgroup.kill
	RegProcs    // a cgroup v1's cgroup.procs
	RegControl  // the socket to the other side of an exec
	RegPIDLen   // the length of PIDText
	RegSlave    // the terminal's other side
	RegFirstFD  // descriptors that came with the request, from here on
	RegFree     = RegFirstFD + maxFDs
	maxRegs     = 1024
	MaxFreeRegs = maxRegs - RegFree

	none = ^uintptr(0)
)

// Arg is an argument of a system call.
type Arg struct {
	value uint64
	kind  argKind
}

type argKind uint8

const (
	argPlain argKind = iota
	argPointer
	argRegister
)

// N is a plain number.
func N[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64 | ~uintptr](v T) Arg {
	return Arg{value: uint64(v)}
}

// Reg is what register r holds.
func Reg(r int) Arg { return Arg{value: uint64(r), kind: argRegister} }

// Ptr is the address of what lies at r.
func Ptr(r Ref) Arg { return Arg{value: uint64(r), kind: argPointer} }

// loadInt32 is the number of an operation that is not a system call: it reads the 32 bits at its first argument.
const loadInt32 = 1 << 30

// operation is one system call of a Program.
type operation struct {
	Nr        uint32
	Pointers  uint8 // bit i: argument i is an offset
	Registers uint8 // bit i: argument i is a register
	Save      uint16
	Ignore    [2]uint16 // error numbers that do not matter
	Skip      uint32    // how many of the next operations to pass over after one of these errors
	Args      [6]uint64
}

// Program is a sequence of system calls. The zero value is an empty one.
type Program struct {
	steps []string
	ops   []operation
}

// Op is a handle to the operation that was added last.
type Op struct{ op *operation }

// Do adds a system call. step says what it is for, in the form "mounting /proc", for errors.
func (p *Program) Do(step string, nr uintptr, args ...Arg) Op {
	o := operation{Nr: uint32(nr)}
	for i, a := range args {
		o.Args[i] = a.value
		switch a.kind {
		case argPointer:
			o.Pointers |= 1 << i
		case argRegister:
			o.Registers |= 1 << i
		case argPlain:
		}
	}
	p.steps = append(p.steps, step)
	p.ops = append(p.ops, o)
	return Op{&p.ops[len(p.ops)-1]}
}

// Load adds the reading of a 32-bit integer at r into register reg.
func (p *Program) Load(step string, r Ref, reg int) {
	p.Do(step, loadInt32, Ptr(r)).Save(reg)
}

// Save keeps the result in register r.
func (o Op) Save(r int) Op {
	o.op.Save = uint16(r)
	return o
}

// Ignore makes the program go on after errno, one of at most two.
func (o Op) Ignore(errno uintptr) Op {
	i := 0
	if o.op.Ignore[0] != 0 {
		i = 1
	}
	o.op.Ignore[i] = uint16(errno)
	return o
}

// Skip makes the program pass over the next n operations after an error that is ignored.
func (o Op) Skip(n int) Op {
	o.op.Skip = uint32(n)
	return o
}

// Steps returns what each operation is for.
func (p *Program) Steps() []string { return p.steps }

const (
	headerSize    = unsafe.Sizeof(Header{})
	operationSize = unsafe.Sizeof(operation{})
)

// NewImage returns an empty image.
func NewImage() *Image {
	return &Image{data: make([]byte, headerSize, 4096)}
}

// Space reserves n zero bytes, aligned to 8.
func (m *Image) Space(n int) Ref {
	for len(m.data)%8 != 0 {
		m.data = append(m.data, 0)
	}
	r := Ref(len(m.data))
	m.data = append(m.data, make([]byte, n)...)
	return r
}

// Bytes stores b, aligned to 8.
func (m *Image) Bytes(b []byte) Ref {
	r := m.Space(len(b))
	copy(m.data[r:], b)
	return r
}

// String stores s and a zero byte.
func (m *Image) String(s string) Ref {
	r := Ref(len(m.data))
	m.data = append(m.data, s...)
	m.data = append(m.data, 0)
	return r
}

// Words stores numbers of 64 bits in the machine's byte order.
func (m *Image) Words(words ...uint64) Ref {
	r := m.Space(8 * len(words))
	for i, w := range words {
		*(*uint64)(unsafe.Pointer(&m.data[int(r)+8*i])) = w
	}
	return r
}

// Vector stores strings and the array that points to them.
func (m *Image) Vector(list []string) Vector {
	words := make([]uint64, len(list)+1)
	for i, s := range list {
		words[i] = uint64(m.String(s))
	}
	return Vector{First: uint64(m.Words(words...)), Count: uint64(len(list))}
}

// Program stores the operations of p.
func (m *Image) Program(p *Program) Span {
	r := m.Space(len(p.ops) * int(operationSize))
	for i := range p.ops {
		*(*operation)(unsafe.Pointer(&m.data[int(r)+i*int(operationSize)])) = p.ops[i]
	}
	return Span{First: uint64(r), Count: uint64(len(p.ops))}
}

// MaxImage is the most that Encode may return, in bytes.
const MaxImage = 4 << 20

// Encode returns the image as it is sent.
func (m *Image) Encode() []byte {
	*(*Header)(unsafe.Pointer(&m.data[0])) = m.Header
	return m.data
}
