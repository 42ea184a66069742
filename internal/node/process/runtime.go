// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// Isolation says how far containers are kept from the host and from each other.
type Isolation string

const (
	// Auto is Full where it can be had, otherwise None.
	Auto Isolation = ""
	// Full gives each container mount, PID, UTS and IPC namespaces over a private overlay of the host's file system.
	Full Isolation = "full"
	// None runs a command in a session of its own and nothing else. What needs more is refused, except for host names, which are
	// ignored.
	None Isolation = "none"
)

// Config says how a Runtime works.
type Config struct {
	// Dir is where the Runtime keeps what it needs to find its containers again. It is made if it is missing. Only one Runtime
	// can use it at a time.
	Dir string
	// ScratchDir is where what containers write to their root goes; it must not be on an overlay itself. "": below Dir.
	ScratchDir string
	// Hide are further directories of the host that containers are not to see, besides Dir and ScratchDir. Mounts of what
	// is in them work nevertheless.
	Hide []string
	// Places are directories at which many containers have something mounted. They are made once, in MemoryDir, and found there by
	// each container that needs one, where it would have to make them in its own root.
	Places []string
	// MemoryDir is on a tmpfs that no container sees. "": there is none, and Places do nothing.
	MemoryDir string
	// Isolation: Auto, Full (New fails where it cannot be had) or None.
	Isolation Isolation
	// CgroupParent is the cgroup in which those of the containers are made. Nobody else may use it. "": "drover-" and
	// something that is unique to Dir.
	CgroupParent string
	// Accounting gives every container cgroups for Stats, even if it has no limits. It costs 0.1 to 0.5 ms a container.
	Accounting bool
	// LockTimeout is how long New waits for an earlier Runtime on Dir that is just coming to its end; 0: 10 s.
	LockTimeout time.Duration
	// KillGrace is how long a command may take to vanish after SIGKILL before Remove kills its init as well; 0: 5 s.
	KillGrace time.Duration
	Log       *slog.Logger // nil: slog.Default
}

// Validate tells what is wrong with c.
func (c *Config) Validate() error {
	var errs []error
	for name, dir := range map[string]string{"state directory": c.Dir, "scratch directory": c.ScratchDir, "directory in memory": c.MemoryDir} {
		if dir != "" && !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("%s %q: not an absolute path", name, dir))
		}
	}
	if c.Dir == "" {
		errs = append(errs, errors.New("no state directory"))
	}
	for _, dir := range c.Hide {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			errs = append(errs, fmt.Errorf("directory to hide %q: not an absolute path below /", dir))
		}
	}
	for _, place := range c.Places {
		if !filepath.IsAbs(place) || filepath.Clean(place) != place {
			errs = append(errs, fmt.Errorf("place %q: not a clean absolute path", place))
		}
	}
	if !slices.Contains([]Isolation{Auto, Full, None}, c.Isolation) {
		errs = append(errs, fmt.Errorf("isolation %q: neither %q, %q nor empty", c.Isolation, Full, None))
	}
	return errors.Join(errs...)
}

const (
	defaultLockTimeout = 10 * time.Second
	lockPoll           = 10 * time.Millisecond
	defaultKillGrace   = 5 * time.Second
)

// Runtime runs containers. Its methods may be called from any goroutine.
//
// There are three kinds of processes: this one; its spawner, which makes containers and which is replaced when it ends; and
// one init for each container, which needs neither of the other two once its command runs.
type Runtime struct {
	cfg       Config
	log       *slog.Logger
	dir       string // Config.Dir without symbolic links
	trash     *trash
	scratch   string
	rootPoint string
	places    string // a layer with Config.Places; "": there is none
	hidden    []string
	bootID    string
	lock      *os.File
	cgroups   *cgroups

	uid, gid      int
	groups        []int
	privileged    bool // may become any user
	isolation     Isolation
	userNamespace bool
	features      Features

	watchers sync.WaitGroup

	spawnerMu sync.Mutex // held while a spawner is started
	spawner   *client

	mountsMu    sync.Mutex
	mountTable  int // descriptor of /proc/self/mountinfo, or negative
	mountsRead  int // how often the table was read
	layersKnown []layer
	layersUser  bool
	overlayable map[string]bool // by hostMount.id and path
	// assumeOverlay has everything taken for overlayable, which is nearly always right and will be noticed if not.
	assumeOverlay bool

	mu         sync.Mutex
	containers map[string]*container
	busy       sync.WaitGroup // calls that Close waits for; Add only while mu is held and closed is false
	closed     bool
}

// container is one that was started or is being started.
type container struct {
	rec     record
	dir     string
	scratch string
	done    chan struct{} // closed when state is Exited or Lost
	ended   chan struct{} // closed when the init is gone
	removal chan struct{} // holds a token while somebody removes the container

	layersOf int // the reading of the mount table that its root was planned from

	// Set before the container is in Runtime.containers as Running, then constant.
	pid   int
	pidfd *os.File

	// Guarded by Runtime.mu.
	state     State // "": being started
	startedAt time.Time
	exit      *Exit
	reason    string
	execs     map[*execution]bool
}

// New returns a Runtime on cfg.Dir. It finds the containers that an earlier one started, running or ended, and clears away
// what that one left half done. It starts no container. It fails with ErrInUse if another Runtime holds the directory.
func New(cfg Config) (_ *Runtime, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the process runtime: %w", err)
	}
	r := &Runtime{cfg: cfg, log: cfg.Log, containers: map[string]*container{}, overlayable: map[string]bool{}, mountTable: -1, uid: os.Geteuid(), gid: os.Getegid()}
	if r.log == nil {
		r.log = slog.Default()
	}
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	if err := r.prepareDirs(); err != nil {
		return nil, err
	}
	if r.bootID, err = bootID(); err != nil {
		return nil, err
	}
	if err := r.takeLock(); err != nil {
		return nil, err
	}
	r.groups, _ = os.Getgroups()
	r.privileged = canChangeUser()
	r.cgroups = findCgroups(r.cgroupParent(), r.uid == 0)
	if r.trash, err = newTrash(filepath.Join(r.dir, trashDir), r.log); err != nil {
		return nil, err
	}
	if err := r.recover(); err != nil {
		return nil, err
	}
	if err := r.detect(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Runtime) cgroupParent() string {
	if r.cfg.CgroupParent != "" {
		return r.cfg.CgroupParent
	}
	return "drover-" + r.uniqueName()
}

// uniqueName is a short name that no other directory has.
func (r *Runtime) uniqueName() string {
	sum := sha256.Sum256([]byte(r.dir))
	return hex.EncodeToString(sum[:5])
}

const (
	containersDir = "containers"
	lockFile      = "lock"
)

func (r *Runtime) prepareDirs() error {
	if err := os.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	var err error
	if r.dir, err = filepath.EvalSymlinks(r.cfg.Dir); err != nil {
		return fmt.Errorf("resolving the state directory: %w", err)
	}
	r.scratch = filepath.Join(r.dir, containersDir)
	if r.cfg.ScratchDir != "" {
		if err := os.MkdirAll(r.cfg.ScratchDir, 0o700); err != nil {
			return fmt.Errorf("making the scratch directory: %w", err)
		}
		scratch, err := filepath.EvalSymlinks(r.cfg.ScratchDir)
		if err != nil {
			return fmt.Errorf("resolving the scratch directory: %w", err)
		}
		// Others may use the same directory; what is in ours is ours to delete.
		r.scratch = filepath.Join(scratch, "drover-"+r.uniqueName())
	}
	r.rootPoint = filepath.Join(r.dir, rootDir)
	for _, dir := range []string{filepath.Join(r.dir, containersDir), r.scratch, r.rootPoint, filepath.Join(r.dir, emptyDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("preparing the state directory: %w", err)
		}
	}
	r.hidden = outermost(append([]string{r.dir, r.scratch}, resolved(r.cfg.Hide)...))
	return r.makePlaces()
}

// resolved returns the directories without symbolic links; those that do not exist are left out.
func resolved(dirs []string) (list []string) {
	for _, dir := range dirs {
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != "/" {
			list = append(list, real)
		}
	}
	return list
}

// outermost returns dirs, sorted, without those that lie in another one.
func outermost(dirs []string) (list []string) {
	slices.Sort(dirs)
	for _, dir := range dirs {
		if !slices.ContainsFunc(list, func(outer string) bool { return isBelow(dir, outer) }) {
			list = append(list, dir)
		}
	}
	return list
}

// takeLock waits until no other process can still change anything in the directory: an earlier Runtime, its spawner, and forks
// of it that have not decided yet whether to run a command. They all hold the lock.
func (r *Runtime) takeLock() error {
	f, err := os.OpenFile(filepath.Join(r.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the state directory: %w", err)
	}
	expired := time.NewTimer(cmp.Or(r.cfg.LockTimeout, defaultLockTimeout))
	defer expired.Stop()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			r.lock = f
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			discard(f)
			return fmt.Errorf("locking the state directory: %w", err)
		}
		select {
		case <-tick.C:
		case <-expired.C:
			discard(f)
			return fmt.Errorf("locking %s: %w", r.dir, ErrInUse)
		}
	}
}

// release gives back what New has taken.
func (r *Runtime) release() {
	r.spawnerMu.Lock()
	sp := r.spawner
	r.spawner = nil
	r.spawnerMu.Unlock()
	if sp != nil {
		sp.close()
	}
	idle := true
	r.mu.Lock()
	for _, c := range r.containers {
		if c.pidfd != nil {
			discard(c.pidfd)
		}
		idle = idle && c.state != Running
	}
	r.mu.Unlock()
	r.watchers.Wait()
	if r.trash != nil {
		r.trash.close()
	}
	closeFD(r.mountTable)
	if r.cgroups != nil {
		r.cgroups.leave(idle)
	}
	if r.lock != nil {
		discard(r.lock)
	}
}

// Close stops watching. Containers go on running; the next New on the same directory finds them. Executions end. Closing twice
// is harmless.
func (r *Runtime) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	for _, c := range r.containers {
		for e := range c.execs {
			e.kill()
		}
	}
	r.mu.Unlock()
	r.busy.Wait()
	r.release()
	return nil
}

// client returns the spawner, a new one if there is none or if it has ended.
func (r *Runtime) client() (*client, error) {
	r.spawnerMu.Lock()
	defer r.spawnerMu.Unlock()
	if r.spawner != nil {
		if r.spawner.alive() {
			return r.spawner, nil
		}
		r.log.Warn("The spawner process has ended; starting another one")
		r.spawner.close()
		r.spawner = nil
	}
	c, err := startClient(r.lock)
	if err != nil {
		return nil, err
	}
	r.cgroups.adopt(c.pid)
	r.spawner = c
	return c, nil
}

// begin claims a place for something that has to be over before Close returns.
func (r *Runtime) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	r.busy.Add(1)
	return nil
}

// running makes c known as running. Its init may have ended already.
func (r *Runtime) running(c *container, since time.Time) {
	r.mu.Lock()
	c.state, c.startedAt = Running, since
	r.mu.Unlock()
	if isClosed(c.ended) {
		r.conclude(c)
	}
}

// watch begins to wait for the end of c's init, which the descriptor pidfd stands for. It takes over the descriptor.
func (r *Runtime) watch(c *container, pid, pidfd int) {
	_ = unix.SetNonblock(pidfd, true)
	c.pid, c.pidfd = pid, os.NewFile(uintptr(pidfd), "pidfd")
	r.watchers.Go(func() {
		if !awaitExit(c.pidfd) {
			return // closed
		}
		close(c.ended)
		r.conclude(c)
	})
}

// awaitExit waits until the process of pidfd has ended. It returns false if pidfd was closed before.
func awaitExit(pidfd *os.File) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	exited := false
	err = conn.Read(func(fd uintptr) bool {
		polls := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polls, 0)
		exited = err == nil && n > 0
		return exited
	})
	return err == nil && exited
}

// conclude takes over from the journal how c ended. Its init is gone. It does nothing for a container that is being started.
func (r *Runtime) conclude(c *container) {
	r.mu.Lock()
	running := c.state == Running
	r.mu.Unlock()
	if !running {
		return
	}
	j, err := readJournal(c.dir)
	reason := ""
	switch {
	case err != nil:
		reason = err.Error()
	case j.exit == nil:
		reason = "its init process ended without recording an exit; it was killed"
	}
	if j.exit == nil {
		c.killLeftovers(j)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.state == Running {
		c.end(j.exit, reason)
	}
}

// end makes c an ended container. Runtime.mu is held.
func (c *container) end(exit *Exit, reason string) {
	c.state, c.exit, c.reason = Exited, exit, ""
	if exit == nil {
		c.state, c.reason = Lost, reason
	}
	for e := range c.execs {
		e.kill()
	}
	close(c.done)
}

// killLeftovers kills what may have survived the init of a container without a PID namespace.
func (c *container) killLeftovers(j journal) {
	if c.rec.pidNamespace() {
		return
	}
	c.rec.Cgroup.kill()
	if j.main > 0 {
		killSession(j.main)
	}
}

// signal sends sig to the init itself.
func (c *container) signal(sig unix.Signal) {
	_ = c.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

// control calls f with the descriptor of c's init.
func (c *container) control(f func(pidfd int) error) error {
	conn, err := c.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := conn.Control(func(fd uintptr) { result = f(int(fd)) }); err != nil {
		return ErrClosed
	}
	return result
}

// status returns what is known of c. Runtime.mu is held.
func (c *container) status() Status {
	s := Status{Spec: c.rec.Spec, State: c.state, StartedAt: c.startedAt, Exit: c.exit, Reason: c.reason}
	if c.state == Running {
		s.PID = c.pid
	}
	return s
}

// lookup returns a container that has been started.
func (r *Runtime) lookup(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil || c.state == "" {
		return nil, ErrNotFound
	}
	return c, nil
}

// Status returns what is known of a container, and whether there is one.
func (r *Runtime) Status(id string) (Status, bool) {
	c, err := r.lookup(id)
	if err != nil {
		return Status{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.status(), true
}

// List returns all containers, those that were started first at the beginning.
func (r *Runtime) List() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Status, 0, len(r.containers))
	for _, c := range r.containers {
		if c.state != "" {
			list = append(list, c.status())
		}
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.Spec.ID, b.Spec.ID))
	})
	return list
}

// closedChannel is what Done returns for a container that is not there.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done returns a channel that is closed when the container is Exited or Lost. It is closed already if there is no such
// container. It is not closed by Close.
func (r *Runtime) Done(id string) <-chan struct{} {
	c, err := r.lookup(id)
	if err != nil {
		return closedChannel
	}
	return c.done
}

// Signal sends sig to the container's command; SIGKILL ends the whole container. The errors are ErrNotFound and ErrNotRunning,
// besides those of the kernel.
func (r *Runtime) Signal(id string, sig unix.Signal) error {
	if err := r.tell(id, spawner.ControlKill, uint32(sig)); err != nil {
		return fmt.Errorf("sending signal %d to container %q: %w", int(sig), id, err)
	}
	return nil
}

// Stats returns what a container uses, as far as it has cgroups that count it; see Config.Accounting.
func (r *Runtime) Stats(id string) (Stats, error) {
	c, err := r.lookup(id)
	if err != nil {
		return Stats{}, fmt.Errorf("reading statistics of container %q: %w", id, err)
	}
	return c.rec.Cgroup.stats(), nil
}

// killSession kills the processes of the session that leader began.
func killSession(leader int) {
	tick := time.NewTicker(cgroupPoll)
	defer tick.Stop()
	for range 100 {
		pids := sessionMembers(leader)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		<-tick.C
	}
}

// sessionMembers returns the living processes in the session of leader. As long as there are any, no other process gets the
// number leader; so they are the ones meant, unless all of them have ended, a later process got the number, became the leader of
// a session, too, and ended before its members did.
func sessionMembers(leader int) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, ok := readProcStat(pid); ok && st.session == leader && st.state != "Z" && st.state != "X" {
			pids = append(pids, pid)
		}
	}
	return pids
}

type procStat struct {
	state   string
	session int
}

// readProcStat reads what /proc tells about a process. The name in parentheses may contain anything.
func readProcStat(pid int) (st procStat, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return st, false
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 4 {
		return st, false
	}
	st.state = fields[0]
	st.session, err = strconv.Atoi(fields[3])
	return st, err == nil
}
