// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// The world of an isolated container, in the order in which it is made:
//
//	its own mount, PID, UTS and IPC namespaces, for an ordinary user in a user namespace
//	/       an overlay: the host's root, or Spec.Root, below, and an empty directory above that takes all changes
//	/...    the same for the host's other file systems, as far as they can be overlaid; see layers.go
//	pivot_root; from here on paths and symbolic links mean the container's
//	/proc   new; /sys: the host's, read-only; /dev: a small new one
//	Spec.Mounts
//	this program's own directories: hidden behind an empty one

const (
	rootDir  = "root"  // where roots are put together; empty on the host
	emptyDir = "empty" // what hides directories
)

const sizeofMountAttr = 32

var attrReadOnly = unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}

// namespaces returns the clone flags for an isolated container.
func (rec *record) namespaces() uint64 {
	flags := uint64(unix.CLONE_NEWNS | unix.CLONE_NEWUTS)
	if !rec.Spec.HostPID {
		flags |= unix.CLONE_NEWPID
	}
	if !rec.Spec.HostIPC {
		flags |= unix.CLONE_NEWIPC
	}
	if rec.UserNamespace {
		flags |= unix.CLONE_NEWUSER
	}
	return flags
}

// isolate adds the making of the container's world.
func (r *Runtime) isolate(p *plan, c *container) error {
	s := &c.rec.Spec
	p.flags |= c.rec.namespaces()
	if c.rec.UserNamespace {
		r.mapIDs(p, s)
	}
	p.setup.Do("keeping mounts private", unix.SYS_MOUNT, zero, p.str("/"), zero, num(unix.MS_REC|unix.MS_PRIVATE), zero)

	// What is the host's has to be taken hold of before the root changes.
	sys := p.clone("/sys", "/sys", true)
	p.readOnly("/sys", sys)
	var proc, shm int
	if s.HostPID {
		proc = p.clone("/proc", "/proc", true)
	}
	if s.HostIPC {
		shm = p.clone("/dev/shm", "/dev/shm", false)
	}
	nodes := p.cloneDevices(c.rec.UserNamespace)
	targets, err := p.cloneMounts(s.Mounts)
	if err != nil {
		return err
	}
	hidden := p.cloneHidden(r.hiddenFor(s), filepath.Join(r.dir, emptyDir))

	overlays := r.makeRoot(p, c)
	p.setup.Do("changing to the new root", unix.SYS_CHDIR, p.str(r.rootPoint))
	p.setup.Do("changing the root", unix.SYS_PIVOT_ROOT, p.str("."), p.str("."))

	p.mountProc(s, proc)
	// The host's root lies on top of the new one until now: a symbolic link that goes up to the root, like /var/run to ../run, would
	// lead to the host. In a user namespace a new /proc can be had only as long as another one is in sight.
	p.setup.Do("letting go of the host's root", unix.SYS_UMOUNT2, p.str("."), num(unix.MNT_DETACH))
	p.setup.Do("changing to the new root", unix.SYS_CHDIR, p.str("/"))
	p.move("/sys", sys, "/sys")
	p.mountDev(s, nodes, shm, c.rec.UserNamespace)
	if s.Dir != "" {
		p.mkdirs("making the working directory "+s.Dir, s.Dir)
	}
	if s.ReadOnlyRoot {
		for _, t := range targets {
			p.makePlace(t)
		}
		for _, point := range overlays {
			op := p.setup.Do("making "+point+" read-only", unix.SYS_MOUNT_SETATTR, cwd, p.str(point), zero, p.attr(attrReadOnly), num(sizeofMountAttr))
			if point != "/" { // may have been left out
				op.Ignore(uintptr(unix.ENOENT)).Ignore(uintptr(unix.EINVAL))
			}
		}
	}
	for _, t := range targets {
		p.makePlace(t)
		p.move(t.mount.Source+" at "+t.mount.Target, t.reg, t.mount.Target)
	}
	for _, h := range hidden {
		p.moveIfThere("hiding "+h.path, h.reg, h.path)
	}
	p.names(s)
	return nil
}

// mapIDs makes this user the one that the container wants. A user namespace of an ordinary user can hold no other.
func (r *Runtime) mapIDs(p *plan, s *Spec) {
	uid, gid := int64(r.uid), int64(r.gid)
	if s.UID != nil {
		uid = *s.UID
	}
	if s.GID != nil {
		gid = *s.GID
	}
	p.write("mapping groups", "/proc/self/setgroups", "deny")
	p.write("mapping users", "/proc/self/uid_map", fmt.Sprintf("%d %d 1", uid, r.uid))
	p.write("mapping groups", "/proc/self/gid_map", fmt.Sprintf("%d %d 1", gid, r.gid))
}

func (p *plan) write(step, path, text string) {
	reg := p.open(step, path, unix.O_WRONLY)
	p.setup.Do(step, unix.SYS_WRITE, regValue(reg), p.str(text), num(len(text)))
	p.setup.Do(step, unix.SYS_CLOSE, regValue(reg))
}

// clone adds the taking of a copy of the mount at path and returns the register that holds it.
func (p *plan) clone(what, path string, recursive bool) int {
	reg := p.register()
	flags := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	p.setup.Do("taking "+what+" from the host", unix.SYS_OPEN_TREE, cwd, p.str(path), num(flags)).Save(reg)
	return reg
}

// readOnly makes a copy and all below it read-only.
func (p *plan) readOnly(what string, reg int) {
	p.setup.Do("making "+what+" read-only", unix.SYS_MOUNT_SETATTR, regValue(reg), p.str(""),
		num(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE), p.attr(attrReadOnly), num(sizeofMountAttr))
}

func (p *plan) attr(a unix.MountAttr) spawner.Arg {
	return spawner.Ptr(p.image.Words(a.Attr_set, a.Attr_clr, a.Propagation, a.Userns_fd))
}

// move adds the mounting of a copy at target.
func (p *plan) move(what string, reg int, target string) {
	p.moveOp("mounting "+what, reg, target)
	p.setup.Do("mounting "+what, unix.SYS_CLOSE, regValue(reg))
	p.free = append(p.free, reg)
}

func (p *plan) moveIfThere(step string, reg int, target string) {
	p.moveOp(step, reg, target).Ignore(uintptr(unix.ENOENT)).Ignore(uintptr(unix.ENOTDIR))
	p.setup.Do(step, unix.SYS_CLOSE, regValue(reg))
	p.free = append(p.free, reg)
}

func (p *plan) moveOp(step string, reg int, target string) spawner.Op {
	return p.setup.Do(step, unix.SYS_MOVE_MOUNT, regValue(reg), p.str(""), cwd, p.str(target), num(unix.MOVE_MOUNT_F_EMPTY_PATH))
}

func (p *plan) mount(what, fsType, target string, flags uintptr, options string) {
	p.setup.Do("mounting "+what, unix.SYS_MOUNT, p.str(fsType), p.str(target), p.str(fsType), spawner.N(flags), p.str(options))
}

// mountProc adds /proc. What in it changes the machine is read-only, except for a container that may do everything anyway.
func (p *plan) mountProc(s *Spec, host int) {
	if s.HostPID {
		p.move("/proc", host, "/proc")
	} else {
		p.mount("/proc", "proc", "/proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	if s.capabilities()&capabilitySet("SYS_ADMIN") != 0 {
		return
	}
	for _, path := range []string{"/proc/sys", "/proc/sysrq-trigger"} {
		if !fileExists(path) {
			continue // the kernel was built without it
		}
		reg := p.clone(path, path, false)
		p.readOnly(path, reg)
		p.move(path, reg, path)
	}
}

type device struct {
	name         string
	major, minor uint32
}

var devices = []device{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// cloneDevices takes hold of the host's devices where they cannot be made.
func (p *plan) cloneDevices(userNamespace bool) (regs []int) {
	if !userNamespace {
		return nil
	}
	for _, d := range devices {
		regs = append(regs, p.clone("/dev/"+d.name, "/dev/"+d.name, false))
	}
	return regs
}

func (p *plan) mountDev(s *Spec, nodes []int, shm int, userNamespace bool) {
	const step = "filling /dev"
	p.mount("/dev", "tmpfs", "/dev", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=65536k")
	for i, d := range devices {
		path := "/dev/" + d.name
		if userNamespace {
			p.setup.Do(step, unix.SYS_MKNODAT, cwd, p.str(path), num(unix.S_IFREG|0o666), zero)
			p.move(path, nodes[i], path)
			continue
		}
		p.setup.Do(step, unix.SYS_MKNODAT, cwd, p.str(path), num(unix.S_IFCHR|0o666), spawner.N(unix.Mkdev(d.major, d.minor)))
	}
	for _, l := range devLinks {
		p.setup.Do(step, unix.SYS_SYMLINKAT, p.str(l.to), cwd, p.str("/dev/"+l.name))
	}
	p.setup.Do(step, unix.SYS_MKDIRAT, cwd, p.str("/dev/pts"), num(0o755))
	p.setup.Do(step, unix.SYS_MKDIRAT, cwd, p.str("/dev/shm"), num(0o1777))
	options := "newinstance,ptmxmode=0666,mode=0620"
	if !userNamespace {
		options += ",gid=5"
	}
	p.mount("/dev/pts", "devpts", "/dev/pts", unix.MS_NOSUID|unix.MS_NOEXEC, options)
	if s.HostIPC {
		p.move("/dev/shm", shm, "/dev/shm")
		return
	}
	p.mount("/dev/shm", "tmpfs", "/dev/shm", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,size=65536k")
}

var devLinks = []struct{ name, to string }{
	{"fd", "/proc/self/fd"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
	{"stderr", "/proc/self/fd/2"},
	{"ptmx", "pts/ptmx"},
}

// target is one of a Spec's mounts on its way from the host to its place.
type target struct {
	mount Mount
	reg   int
	isDir bool
}

// cloneMounts takes hold of the sources of mounts and returns them in the order in which they have to be mounted: what lies
// in another one comes after it.
func (p *plan) cloneMounts(mounts []Mount) (targets []target, err error) {
	for _, m := range mounts {
		m.Target = filepath.Clean(m.Target)
		isDir, err := stat(m.Source)
		if err != nil {
			return nil, fmt.Errorf("mounting %s at %s: %w", m.Source, m.Target, err)
		}
		t := target{mount: m, isDir: isDir, reg: p.clone(m.Source, m.Source, true)}
		if m.ReadOnly {
			p.readOnly(m.Source, t.reg)
		}
		targets = append(targets, t)
	}
	slices.SortStableFunc(targets, func(a, b target) int {
		return cmp.Compare(strings.Count(a.mount.Target, "/"), strings.Count(b.mount.Target, "/"))
	})
	return targets, nil
}

// makePlace adds the making of what is missing where t is to be mounted.
func (p *plan) makePlace(t target) {
	step := "making a place for the mount at " + t.mount.Target
	if t.isDir {
		p.mkdirs(step, t.mount.Target)
	} else {
		p.mkdirs(step, filepath.Dir(t.mount.Target))
		p.setup.Do(step, unix.SYS_MKNODAT, cwd, p.str(t.mount.Target), num(unix.S_IFREG|0o644), zero).Ignore(uintptr(unix.EEXIST))
	}
}

type hiding struct {
	path string
	reg  int
}

func (p *plan) cloneHidden(paths []string, empty string) (list []hiding) {
	for _, path := range paths {
		reg := p.clone("an empty directory", empty, false)
		p.readOnly("an empty directory", reg)
		list = append(list, hiding{path, reg})
	}
	return list
}

// hiddenFor returns the directories to hide, by their names in the container.
func (r *Runtime) hiddenFor(s *Spec) (paths []string) {
	for _, h := range r.hidden {
		if s.Root == "" {
			paths = append(paths, h)
			continue
		}
		if root := filepath.Clean(s.Root); isBelow(h, root) && h != root {
			paths = append(paths, "/"+strings.Trim(strings.TrimPrefix(h, root), "/"))
		}
	}
	return paths
}

func (p *plan) names(s *Spec) {
	if s.Hostname != "" {
		p.setup.Do("setting the host name", unix.SYS_SETHOSTNAME, p.str(s.Hostname), num(len(s.Hostname)))
	}
	if s.Domainname != "" {
		p.setup.Do("setting the domain name", unix.SYS_SETDOMAINNAME, p.str(s.Domainname), num(len(s.Domainname)))
	}
}
