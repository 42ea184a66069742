// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
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

const (
	upperDir  = "upper"
	workDir   = "work"
	placesDir = "places"
)

// layer is one part of what an isolated container sees of the host's files.
type layer struct {
	path string
	kind layerKind
	link string // where a link leads
	mode uint32 // of a bare directory
}

type layerKind int

const (
	overlaid   layerKind = iota // the host's, changes are private
	bound                       // the host's, read-only, with all below it
	bareRoot                    // an empty file system in memory
	bareDir                     // a directory in the former
	bareLink                    // a symbolic link in the former
	maxEntries = 64             // of a directory that is put together entry by entry
)

// makeRoot adds the making of everything in the container's root that is not a Spec's, and returns the places of the mounts in it
// that can be written to, by their names in the container.
func (r *Runtime) makeRoot(p *plan, c *container) (writable []string) {
	s := &c.rec.Spec
	p.makeScratch(c)
	layers, reading := r.hostLayers(c.rec.UserNamespace)
	c.layersOf = reading
	if s.Root != "" {
		p.overlay(c, s.Root, r.placesFor(c, "/"), r.rootPoint, "")
		for _, dir := range []string{"/proc", "/sys", "/dev"} {
			p.setup.Do("making "+dir, unix.SYS_MKDIRAT, cwd, p.str(r.rootPoint+dir), num(0o755)).Ignore(uintptr(unix.EEXIST))
		}
		return []string{"/"}
	}
	// What has been unmounted and removed since is left out, except for the root itself.
	for i, l := range layers {
		target := filepath.Join(r.rootPoint, l.path)
		switch l.kind {
		case overlaid:
			suffix := ""
			if i > 0 {
				suffix = strconv.Itoa(i)
			}
			if target != r.rootPoint && c.rec.UserNamespace {
				p.setup.Do("making "+l.path, unix.SYS_MKDIRAT, cwd, p.str(target), num(0o755)).Ignore(uintptr(unix.EEXIST))
			}
			p.overlay(c, l.path, r.placesFor(c, l.path), target, suffix)
			writable = append(writable, l.path)
		case bound:
			p.bind(l, target, c.rec.UserNamespace)
		case bareRoot:
			p.mount("the root", "tmpfs", target, 0, "mode=755")
			writable = append(writable, l.path)
		case bareDir:
			p.setup.Do("making "+l.path, unix.SYS_MKDIRAT, cwd, p.str(target), spawner.N(l.mode))
		case bareLink:
			p.setup.Do("making "+l.path, unix.SYS_SYMLINKAT, p.str(l.link), cwd, p.str(target))
		}
	}
	return writable
}

// makePlaces makes the layer that has Config.Places. Every user of a container can get at them.
func (r *Runtime) makePlaces() error {
	if r.cfg.MemoryDir == "" || len(r.cfg.Places) == 0 {
		return nil
	}
	layer := filepath.Join(r.cfg.MemoryDir, placesDir)
	for _, place := range r.cfg.Places {
		dir := layer
		for part := range strings.SplitSeq(place, "/") { // first an empty one: the layer itself
			dir = filepath.Join(dir, part)
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
				return fmt.Errorf("making places for mounts: %w", err)
			}
		}
	}
	r.places = layer
	return nil
}

// placesFor returns the layer with what c has mounted below path, if that is among Config.Places; otherwise "". As the lowest layer it
// adds what is missing there, and covers nothing: no owner of a directory, and no symbolic link.
func (r *Runtime) placesFor(c *container, path string) string {
	if r.places == "" || c.rec.UserNamespace {
		return ""
	}
	for _, m := range c.rec.Spec.Mounts {
		if slices.Contains(r.cfg.Places, filepath.Clean(m.Target)) && slices.ContainsFunc(r.cfg.Places, func(place string) bool { return isBelow(place, path) }) {
			return filepath.Join(r.places, path)
		}
	}
	return ""
}

func (p *plan) makeScratch(c *container) {
	p.setup.Do("making the scratch directory", unix.SYS_MKDIRAT, cwd, p.str(c.scratch), num(0o700)).Ignore(uintptr(unix.EEXIST))
}

// bind adds the mounting of the host's l at target. In a bare root, a place is made for it.
func (p *plan) bind(l layer, target string, makePlace bool) {
	if makePlace {
		step := "making " + l.path
		if isDir, err := stat(l.path); err == nil && !isDir {
			p.setup.Do(step, unix.SYS_MKNODAT, cwd, p.str(target), num(unix.S_IFREG|0o644), zero).Ignore(uintptr(unix.EEXIST))
		} else {
			p.setup.Do(step, unix.SYS_MKDIRAT, cwd, p.str(target), num(0o755)).Ignore(uintptr(unix.EEXIST))
		}
	}
	flags := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	if makePlace {
		flags |= unix.AT_RECURSIVE
	}
	reg := p.register()
	p.setup.Do("taking "+l.path+" from the host", unix.SYS_OPEN_TREE, cwd, p.str(l.path), num(flags)).Save(reg).
		Ignore(uintptr(unix.ENOENT)).Ignore(uintptr(unix.ENOTDIR)).Skip(3)
	p.readOnly(l.path, reg)
	p.moveIfThere("mounting "+l.path, reg, target)
}

// overlay adds an overlay of lower, with fresh directories in the container's scratch directory above it, and what is in places
// below it unless that is "".
func (p *plan) overlay(c *container, lower, places, target, suffix string) {
	step := fmt.Sprintf("mounting an overlay of %s", lower)
	upper, work := filepath.Join(c.scratch, upperDir+suffix), filepath.Join(c.scratch, workDir+suffix)
	var st unix.Stat_t
	if unix.Stat(lower, &st) != nil {
		st.Mode = 0o755
	}
	// The directory above is the one whose owner and permissions are seen.
	p.setup.Do(step, unix.SYS_MKDIRAT, cwd, p.str(upper), spawner.N(st.Mode&0o7777))
	if !c.rec.UserNamespace && (st.Uid != 0 || st.Gid != 0) {
		p.setup.Do(step, unix.SYS_FCHOWNAT, cwd, p.str(upper), spawner.N(st.Uid), spawner.N(st.Gid), zero)
	}
	p.setup.Do(step, unix.SYS_MKDIRAT, cwd, p.str(work), num(0o700))
	op := p.setup.Do(step, unix.SYS_MOUNT, p.str("overlay"), p.str(target), p.str("overlay"), zero,
		p.str(overlayOptions(lower, places, upper, work, c.rec.UserNamespace)))
	if suffix != "" {
		op.Ignore(uintptr(unix.ENOENT)).Ignore(uintptr(unix.ENOTDIR))
	}
}

// overlayOptions returns mount options. "volatile" spares the container every fsync and the host a sync of the whole file
// system when the overlay goes: what is above does not outlive the container.
func overlayOptions(lower, places, upper, work string, user bool) string {
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`)
	escapeUpper := strings.NewReplacer(`\`, `\\`, `,`, `\,`)
	options := "lowerdir=" + escape.Replace(lower)
	if places != "" {
		// With layers of two file systems, files and directories would seem to be on different devices otherwise.
		options = "xino=auto," + options + ":" + escape.Replace(places)
	}
	options += ",upperdir=" + escapeUpper.Replace(upper) +
		",workdir=" + escapeUpper.Replace(work) + ",volatile"
	if user {
		options += ",userxattr"
	}
	return options
}

// hostLayers returns what a container sees of the host. It is looked up again when the kernel says that something was mounted
// or unmounted; reading tells which look it is.
func (r *Runtime) hostLayers(user bool) (layers []layer, reading int) {
	r.mountsMu.Lock()
	defer r.mountsMu.Unlock()
	if r.mountTable < 0 {
		// Not with os.Open, which would have the file watched by the runtime's poller, and the kernel tells a change only once.
		fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, r.mountsRead
		}
		r.mountTable = fd
	} else if !mountsChanged(r.mountTable) && r.layersUser == user {
		return r.layersKnown, r.mountsRead
	}
	r.mountsRead++
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return r.layersKnown, r.mountsRead
	}
	f := fileSystems{all: mounts, visible: visibleMounts(mounts, r.hidden), uid: r.uid, overlayable: func(id, path string) bool {
		return r.overlayableLocked(id, path, user)
	}}
	r.layersUser = user
	if user {
		r.layersKnown = append([]layer{{path: "/", kind: bareRoot}}, f.entries("/")...)
	} else {
		r.layersKnown = f.mounted()
	}
	return r.layersKnown, r.mountsRead
}

// mountsChanged tells whether the table of mounts, opened as fd, is another one since the last call.
func mountsChanged(fd int) bool {
	polls := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	n, err := unix.Poll(polls, 0)
	return err != nil || n > 0
}

// fileSystems is what layers are made of.
type fileSystems struct {
	all, visible []hostMount
	uid          int // this user
	overlayable  func(mountID, path string) bool
}

// mounted returns the layers for a user who may overlay the root as a whole: one for each file system.
func (f *fileSystems) mounted() []layer {
	layers := []layer{{path: "/"}}
	for _, m := range f.visible {
		l := layer{path: m.point, kind: bound}
		if !m.readOnly() && f.overlayable(m.id, m.point) {
			l.kind = overlaid
		}
		layers = append(layers, l)
	}
	return layers
}

// entries returns the layers for what is in dir. In a user namespace the kernel does not allow to uncover what is below a mount,
// so that a directory with mounts in it cannot be overlaid; it is put together from what is in it. It returns nil if that is too
// much. Of a large directory for temporary files, only what belongs to this user is taken: that it can be written to matters
// more than what others have left there.
func (f *fileSystems) entries(dir string) (layers []layer) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	if len(list) > maxEntries {
		if info, err := os.Stat(dir); err != nil || info.Mode()&os.ModeSticky == 0 {
			return nil
		}
		list = slices.DeleteFunc(list, func(e os.DirEntry) bool {
			return !f.mountsIn(filepath.Join(dir, e.Name())) && !f.owns(e)
		})
		list = list[:min(len(list), maxEntries)]
	}
	layers = []layer{}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if slices.Contains([]string{"/proc", "/sys", "/dev"}, path) {
			layers = append(layers, layer{path: path, kind: bareDir, mode: 0o755})
			continue
		}
		layers = append(layers, f.entry(path)...)
	}
	return layers
}

// mountsIn tells whether something is mounted at path or below it.
func (f *fileSystems) mountsIn(path string) bool {
	return slices.ContainsFunc(f.all, func(m hostMount) bool { return isBelow(m.point, path) })
}

func (f *fileSystems) owns(e os.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == f.uid
}

func (f *fileSystems) entry(path string) []layer {
	info, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	if info.Mode()&os.ModeSymlink != 0 {
		link, err := os.Readlink(path)
		if err != nil {
			return nil
		}
		return []layer{{path: path, kind: bareLink, link: link}}
	}
	if !info.IsDir() {
		return []layer{{path: path, kind: bound}}
	}
	inside := func(m hostMount) bool { return m.point != path && isBelow(m.point, path) }
	if !slices.ContainsFunc(f.all, inside) {
		m := f.mountOf(path)
		if !m.readOnly() && f.overlayable(m.id, path) {
			return []layer{{path: path}}
		}
		return []layer{{path: path, kind: bound}}
	}
	if below := f.entries(path); below != nil {
		mode := uint32(info.Mode().Perm())
		if info.Mode()&os.ModeSticky != 0 {
			mode |= unix.S_ISVTX
		}
		return append([]layer{{path: path, kind: bareDir, mode: mode}}, below...)
	}
	return []layer{{path: path, kind: bound}}
}

// mountOf returns the mount that path is on.
func (f *fileSystems) mountOf(path string) (mount hostMount) {
	for _, m := range f.all {
		if isBelow(path, m.point) && len(m.point) >= len(mount.point) {
			mount = m
		}
	}
	return mount
}

// overlayableLocked tells whether an overlay can be made of path, by trying. mountsMu is held.
func (r *Runtime) overlayableLocked(mountID, path string, user bool) bool {
	key := mountID + path
	if ok, known := r.overlayable[key]; known {
		return ok
	}
	if r.assumeOverlay {
		r.overlayable[key] = true
		return true
	}
	c := r.newContainer(record{Spec: Spec{ID: probeID + "-overlay"}, Isolation: Full, UserNamespace: user})
	p := newPlan()
	p.flags = unix.CLONE_NEWNS
	if user {
		p.flags |= unix.CLONE_NEWUSER
		r.mapIDs(p, &c.rec.Spec)
	}
	p.setup.Do("keeping mounts private", unix.SYS_MOUNT, zero, p.str("/"), zero, num(unix.MS_REC|unix.MS_PRIVATE), zero)
	p.makeScratch(c)
	p.overlay(c, path, "", r.rootPoint, "")
	err := r.probe(p)
	r.overlayable[key] = errors.Join(err, c.removeFiles()) == nil
	return r.overlayable[key]
}
