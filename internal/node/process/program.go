// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// plan is what a fork will do: three sequences of system calls and what they refer to. See spawner.Header.
type plan struct {
	flags   uint64 // of clone
	image   *spawner.Image
	setup   spawner.Program
	command spawner.Program
	after   spawner.Program
	nextReg int
	free    []int // registers below nextReg that hold nothing any more
}

func newPlan() *plan {
	return &plan{image: spawner.NewImage(), nextReg: spawner.RegFree}
}

func (p *plan) encode() []byte {
	h := &p.image.Header
	h.Setup, h.Command, h.After = p.image.Program(&p.setup), p.image.Program(&p.command), p.image.Program(&p.after)
	return p.image.Encode()
}

// register returns one that is not used yet. There are enough of them for any valid Spec.
func (p *plan) register() int {
	if n := len(p.free); n > 0 {
		reg := p.free[n-1]
		p.free = p.free[:n-1]
		return reg
	}
	p.nextReg++
	return p.nextReg - 1
}

func (p *plan) str(s string) spawner.Arg { return spawner.Ptr(p.image.String(s)) }

var (
	cwd      = spawner.N(unix.AT_FDCWD)
	zero     = spawner.N(0)
	num      = spawner.N[int]
	regValue = spawner.Reg
)

// open adds the opening of a file by the host's name and returns the register that holds it.
func (p *plan) open(step, path string, flags int) int {
	reg := p.register()
	p.openAs(step, path, flags, reg)
	return reg
}

func (p *plan) openAs(step, path string, flags, reg int) {
	p.setup.Do(step, unix.SYS_OPENAT, cwd, p.str(path), num(flags|unix.O_CLOEXEC), zero).Save(reg)
}

// mkdirs adds the making of dir and of what is missing above it.
func (p *plan) mkdirs(step, dir string) {
	path := ""
	for part := range strings.SplitSeq(strings.Trim(filepath.Clean(dir), "/"), "/") {
		if part == "" {
			continue
		}
		path += "/" + part
		p.setup.Do(step, unix.SYS_MKDIRAT, cwd, p.str(path), num(0o755)).Ignore(uintptr(unix.EEXIST))
	}
}

// containerPlan returns what the fork for a container has to do.
func (r *Runtime) containerPlan(c *container) (*plan, error) {
	p := newPlan()
	s := &c.rec.Spec
	p.journal(c.dir)
	p.logFile(s)
	p.signals()
	groups := p.cgroupFiles(c.rec.Cgroup)
	if c.rec.pidNamespace() {
		p.image.Header.Flags |= spawner.FlagPIDOne
	} else {
		p.setup.Do("becoming the parent of orphans", unix.SYS_PRCTL, num(unix.PR_SET_CHILD_SUBREAPER), num(1), zero, zero, zero)
		p.image.Header.Kill = p.image.String("/proc/thread-self/children")
		if f := c.rec.Cgroup.killFile(); f != "" {
			p.openAs("opening the cgroup", f, unix.O_WRONLY, spawner.RegKill)
		} else if f := c.rec.Cgroup.procsFile(); f != "" {
			p.openAs("opening the cgroup", f, unix.O_RDONLY, spawner.RegProcs)
		}
	}
	null := p.open("opening /dev/null", "/dev/null", unix.O_RDWR)
	if s.Stdin {
		// Both ends are opened, so that the pipe has a writer for as long as it should.
		p.openAs("opening standard input", filepath.Join(c.dir, stdinFile), unix.O_RDWR|unix.O_NONBLOCK, spawner.RegStdin)
	}
	stdin := null
	if s.Stdin && !s.TTY {
		stdin = p.open("opening standard input", filepath.Join(c.dir, stdinFile), unix.O_RDONLY)
	}
	if c.rec.Isolation == Full {
		if err := r.isolate(p, c); err != nil {
			return nil, err
		}
	}
	var stdio [3]int
	if s.TTY {
		p.terminal(s)
		stdio = [3]int{spawner.RegSlave, spawner.RegSlave, spawner.RegSlave}
	} else {
		stdio = [3]int{stdin, p.pipe(s, spawner.RegOut), p.pipe(s, spawner.RegErr)}
	}
	r.commandSteps(p, &c.rec, groups, stdio, s.Dir)
	closing := append(slices.Clone(groups), null)
	if !s.TTY {
		closing = append(closing, stdio[:]...)
	}
	p.close(closing)
	p.setArguments(s.Args, s.Env)
	return p, nil
}

// journal adds the opening of the journal, and its lock.
func (p *plan) journal(dir string) {
	p.openAs("opening the journal", filepath.Join(dir, recordFile), unix.O_WRONLY|unix.O_APPEND, spawner.RegJournal)
	p.setup.Do("locking the journal", unix.SYS_FLOCK, regValue(spawner.RegJournal), num(unix.LOCK_EX|unix.LOCK_NB))
	// While the fork still sees this process's /proc: the number by which this process will know it.
	p.image.Header.PIDText = p.image.Space(16)
	p.setup.Do("reading /proc/self", unix.SYS_READLINKAT, cwd, p.str("/proc/self"), spawner.Ptr(p.image.Header.PIDText), num(16)).
		Save(spawner.RegPIDLen)
}

func (p *plan) logFile(s *Spec) {
	if s.LogPath == "" {
		return
	}
	dir, name := filepath.Split(s.LogPath)
	p.openAs("opening the log's directory", dir, unix.O_RDONLY|unix.O_DIRECTORY, spawner.RegLogDir)
	p.setup.Do("opening the log", unix.SYS_OPENAT, regValue(spawner.RegLogDir), p.str(name), num(spawner.LogFlags),
		num(spawner.LogMode)).Save(spawner.RegLog)
	p.setup.Do("finding the end of the log", unix.SYS_LSEEK, regValue(spawner.RegLog), zero, num(unix.SEEK_END)).Save(spawner.RegLogSize)
	keep := s.LogMaxFiles
	if keep == 0 {
		keep = defaultLogKeep
	}
	names := []string{name}
	for i := 1; i < keep; i++ {
		names = append(names, name+"."+strconv.Itoa(i))
	}
	p.image.Header.LogNames = p.image.Vector(names)
	p.image.Header.LogMaxBytes = s.LogMaxBytes
}

// passedOn are the signals that an init hands on to its command: all but those by which the kernel tells a process what it has
// done itself.
var passedOn = func() (mask uint64) {
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS, unix.SIGPIPE,
			unix.SIGURG, unix.SIGPROF, unix.SIGXFSZ, unix.SIGTTIN, unix.SIGTTOU, unix.SIGTSTP:
		default:
			mask |= 1 << (sig - 1)
		}
	}
	return mask
}()

func (p *plan) signals() {
	p.setup.Do("receiving signals", unix.SYS_SIGNALFD4, num(-1), spawner.Ptr(p.image.Words(passedOn)), num(8),
		num(unix.SFD_NONBLOCK|unix.SFD_CLOEXEC)).Save(spawner.RegSignals)
}

// cgroupFiles adds the opening of the container's cgroups and returns the registers of those to join.
func (p *plan) cgroupFiles(g cgroup) (join []int) {
	for _, dir := range g.sortedDirs() {
		join = append(join, p.open("opening the cgroup", filepath.Join(dir, "cgroup.procs"), unix.O_WRONLY))
	}
	if f := g.oomFile(); f != "" {
		p.openAs("opening the cgroup", f, unix.O_RDONLY, spawner.RegOOM)
	}
	return join
}

// pipe adds the making of a pipe whose reading end goes to register reader, and returns that of the writing end. The command
// may open it again through /dev/stdout, so it belongs to the command's user.
func (p *plan) pipe(s *Spec, reader int) (writer int) {
	const step = "making a pipe"
	ends := p.image.Space(8)
	writer = p.register()
	p.setup.Do(step, unix.SYS_PIPE2, spawner.Ptr(ends), num(unix.O_CLOEXEC))
	p.setup.Load(step, ends, reader)
	p.setup.Load(step, ends+4, writer)
	p.setup.Do(step, unix.SYS_FCNTL, regValue(reader), num(unix.F_SETFL), num(unix.O_NONBLOCK))
	p.own(s, writer)
	return writer
}

func (p *plan) own(s *Spec, reg int) {
	if s.UID != nil && *s.UID != 0 {
		p.setup.Do("giving standard output to the user", unix.SYS_FCHOWN, regValue(reg), num(int(*s.UID)), num(-1)).
			Ignore(uintptr(unix.EPERM)).Ignore(uintptr(unix.EINVAL))
	}
}

// terminal adds the making of a pseudo terminal.
func (p *plan) terminal(s *Spec) {
	const step = "making a terminal"
	p.setup.Do(step, unix.SYS_OPENAT, cwd, p.str("/dev/ptmx"), num(unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC), zero).
		Save(spawner.RegMaster)
	p.setup.Do(step, unix.SYS_IOCTL, regValue(spawner.RegMaster), num(unix.TIOCSPTLCK), spawner.Ptr(p.image.Words(0)))
	p.setup.Do(step, unix.SYS_IOCTL, regValue(spawner.RegMaster), num(unix.TIOCGPTPEER), num(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).
		Save(spawner.RegSlave)
	p.own(s, spawner.RegSlave)
	p.image.Header.Flags |= spawner.FlagTTY
}

// close adds the closing of registers once the command has its own descriptors.
func (p *plan) close(regs []int) {
	slices.Sort(regs)
	for _, reg := range slices.Compact(regs) {
		p.after.Do("closing a file", unix.SYS_CLOSE, regValue(reg))
	}
}

// commandSteps adds what the command's process does before it executes the command: join the cgroups, take its standard
// streams, and give up what it is not to have. groups and stdio are registers.
func (r *Runtime) commandSteps(p *plan, rec *record, groups []int, stdio [3]int, dir string) {
	s := &rec.Spec
	c := &p.command
	for _, reg := range groups {
		c.Do("joining the cgroup", unix.SYS_WRITE, regValue(reg), p.str("0"), num(1))
	}
	c.Do("beginning a session", unix.SYS_SETSID)
	if p.image.Header.Flags&spawner.FlagTTY != 0 {
		c.Do("taking the terminal", unix.SYS_IOCTL, regValue(spawner.RegSlave), num(unix.TIOCSCTTY), zero)
	}
	for fd, reg := range stdio {
		c.Do("setting up standard streams", unix.SYS_DUP3, regValue(reg), num(fd), zero)
	}
	// All of the fork's are close-on-exec anyway.
	c.Do("closing files", unix.SYS_CLOSE_RANGE, num(3), spawner.N(^uint32(0)), num(unix.CLOSE_RANGE_CLOEXEC)).
		Ignore(uintptr(unix.ENOSYS)).Ignore(uintptr(unix.EINVAL))
	c.Do("setting the file mode mask", unix.SYS_UMASK, num(0o022))
	if r.uid == 0 && !rec.UserNamespace {
		p.writeOOMScore(s.OOMScoreAdj)
	}
	if dir == "" {
		dir = "/"
	}
	c.Do(fmt.Sprintf("changing to the working directory %s", dir), unix.SYS_CHDIR, p.str(dir))
	r.giveUp(p, rec)
	if h := p.image.Header; h.Flags&spawner.FlagPIDOne == 0 {
		c.Do("tying the command to its init", unix.SYS_PRCTL, num(unix.PR_SET_PDEATHSIG), num(int(unix.SIGKILL)), zero, zero, zero)
	}
	c.Do("letting signals through", unix.SYS_RT_SIGPROCMASK, num(unix.SIG_SETMASK), spawner.Ptr(p.image.Words(0)), zero, num(8))
}

// writeOOMScore adds the setting of the command's score: the spawner's is not for it.
func (p *plan) writeOOMScore(score int) {
	const step = "setting the score for the out-of-memory killer"
	text := strconv.Itoa(score)
	reg := p.register()
	p.command.Do(step, unix.SYS_OPENAT, cwd, p.str("/proc/self/oom_score_adj"), num(unix.O_WRONLY|unix.O_CLOEXEC), zero).Save(reg)
	p.command.Do(step, unix.SYS_WRITE, regValue(reg), p.str(text), num(len(text)))
	p.command.Do(step, unix.SYS_CLOSE, regValue(reg))
}

// giveUp adds the change to the container's user and the loss of capabilities, in the only order that works.
func (r *Runtime) giveUp(p *plan, rec *record) {
	s := &rec.Spec
	c := &p.command
	if r.privileged || rec.UserNamespace {
		for i := range capabilityNames {
			if s.capabilities()&(1<<i) == 0 {
				c.Do("dropping capabilities", unix.SYS_PRCTL, num(unix.PR_CAPBSET_DROP), num(i), zero, zero, zero).
					Ignore(uintptr(unix.EINVAL))
			}
		}
	}
	if r.privileged && !rec.UserNamespace {
		if s.UID != nil || s.GID != nil || len(s.Groups) > 0 {
			groups := make([]byte, 0, 4*len(s.Groups))
			for _, g := range s.Groups {
				groups = append(groups, byte(g), byte(g>>8), byte(g>>16), byte(g>>24))
			}
			c.Do("setting supplementary groups", unix.SYS_SETGROUPS, num(len(s.Groups)), spawner.Ptr(p.image.Bytes(groups)))
		}
		if s.GID != nil {
			g := spawner.N(*s.GID)
			c.Do("changing the group", unix.SYS_SETRESGID, g, g, g)
		}
		if s.UID != nil {
			u := spawner.N(*s.UID)
			c.Do("changing the user", unix.SYS_SETRESUID, u, u, u)
		}
	}
	if s.NoNewPrivs {
		c.Do("giving up new privileges", unix.SYS_PRCTL, num(unix.PR_SET_NO_NEW_PRIVS), num(1), zero, zero, zero)
	}
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// setArguments sets what is executed.
func (p *plan) setArguments(args, env []string) {
	h := &p.image.Header
	h.Paths = p.image.Vector(candidates(args[0], env))
	h.Args = p.image.Vector(args)
	h.Env = p.image.Vector(env)
}

// candidates returns the files that name may mean, in the order in which they are tried.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	var list []string
	for dir := range strings.SplitSeq(path, ":") {
		// An empty entry would mean the working directory, which nobody wants.
		if dir != "" {
			list = append(list, filepath.Join(dir, name))
		}
	}
	return list
}

// startError explains a fork's reply that something did not work.
func (p *plan) startError(r spawner.Reply, args, env []string) *StartError {
	e := &StartError{Errno: syscall.Errno(r.Errno)}
	steps := func(list []string) string {
		if int(r.Step) < len(list) {
			return list[r.Step]
		}
		return "setting up"
	}
	switch r.Phase {
	case spawner.PhaseRead:
		e.Step = "reading the request"
	case spawner.PhaseSetup:
		e.Step = steps(p.setup.Steps())
	case spawner.PhaseCommand:
		e.Step = steps(p.command.Steps())
	case spawner.PhaseRecord:
		e.Step = "writing the journal"
	case spawner.PhaseFork:
		e.Step = "forking"
	case spawner.PhaseExec:
		return execError(r, candidates(args[0], env), args[0])
	default:
		e.Step = "setting up"
	}
	return e
}

func execError(r spawner.Reply, paths []string, name string) *StartError {
	e := &StartError{Errno: syscall.Errno(r.Errno), Step: fmt.Sprintf("executing %q", name), kind: ErrCommandNotExecutable}
	path := name
	if int(r.Step) < len(paths) {
		path = paths[r.Step]
	}
	switch {
	case r.Errno == spawner.ErrnoInterpreter:
		e.Errno, e.kind = syscall.ENOENT, ErrCommandNotFound
		e.text = fmt.Sprintf("%s is there, but the interpreter or loader that it names is not", path)
	case e.Errno == syscall.ENOENT && strings.Contains(name, "/"):
		e.kind, e.text = ErrCommandNotFound, "no such file"
	case e.Errno == syscall.ENOENT:
		e.kind, e.text = ErrCommandNotFound, "no such file in PATH"
	case e.Errno == syscall.ENOEXEC:
		e.text = fmt.Sprintf("%s is neither a program for this machine nor a script that begins with #!", path)
	case e.Errno == syscall.E2BIG:
		e.text = "arguments and environment are too large"
	default:
		e.text = fmt.Sprintf("%s: %v", path, e.Errno)
	}
	return e
}

// stat tells what is at a mount's source.
func stat(path string) (isDir bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}
