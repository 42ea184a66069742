// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup controllers that are used where the machine offers them.
const (
	controllerCPU        = "cpu"
	controllerCPUAccount = "cpuacct" // version 1 only
	controllerMemory     = "memory"
	controllerPIDs       = "pids"

	unified      = "unified" // the one hierarchy of version 2
	cpuPeriod    = 100_000   // microseconds
	minCPUQuota  = 1_000     // microseconds, the kernel's minimum
	cgroupPoll   = time.Millisecond
	initsCgroup  = "inits" // version 2: where inits are, which are not to count as part of their containers
	systemdGroup = "name=systemd"
)

// cgroups is where this Runtime makes its containers' cgroups.
type cgroups struct {
	// parents maps a controller, or unified, to the directory below which containers get theirs. Version 2 has the same
	// directory for all its controllers.
	parents map[string]string
	version int // 0: none
	missing map[string]string
	// systemd is our cgroup in version 1's hierarchy without controllers by which systemd knows what belongs to a service.
	systemd string
}

// cgroup is one container's cgroups, as stored.
type cgroup struct {
	Version int `json:"version,omitempty"`
	// Dirs are the directories by controller; version 2 has one, named unified.
	Dirs map[string]string `json:"dirs,omitempty"`
}

// findCgroups looks for hierarchies in which this process may make cgroups, and makes the one that is called parent. It
// never fails: what cannot be had is in missing, with the reason.
func findCgroups(parent string, privileged bool) *cgroups {
	c := &cgroups{parents: map[string]string{}, missing: map[string]string{}}
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		for _, name := range []string{controllerCPU, controllerMemory, controllerPIDs} {
			c.missing[name] = err.Error()
		}
		return c
	}
	for _, name := range []string{controllerCPU, controllerCPUAccount, controllerMemory, controllerPIDs} {
		for _, m := range mounts {
			if m.fsType == "cgroup" && slices.Contains(strings.Split(m.superOptions, ","), name) {
				c.useV1(name, m.point, parent)
			}
		}
	}
	for _, m := range mounts {
		if m.fsType == "cgroup" && slices.Contains(strings.Split(m.superOptions, ","), systemdGroup) {
			if dir := filepath.Join(m.point, parent); makeCgroup(dir) == nil {
				c.systemd = dir
			}
		}
		if m.fsType == "cgroup2" && c.version == 0 {
			c.useV2(m.point, parent, privileged)
		}
	}
	for _, name := range []string{controllerCPU, controllerMemory, controllerPIDs} {
		if c.parents[name] == "" && c.missing[name] == "" {
			c.missing[name] = "no cgroup controller \"" + name + "\" is mounted"
		}
	}
	return c
}

func makeCgroup(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A cgroup file system that is mounted read-only, or owned by another user, may still hold the directory from before.
	return unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK)
}

func (c *cgroups) useV1(controller, mountPoint, parent string) {
	dir := filepath.Join(mountPoint, parent)
	if err := makeCgroup(dir); err != nil {
		c.missing[controller] = "cannot make a cgroup: " + err.Error()
		return
	}
	delete(c.missing, controller)
	c.parents[controller] = dir
	c.version = 1
}

// useV2 makes the parent at the root of the hierarchy or, for an ordinary user, below this process's own cgroup if that has
// been delegated, and turns on the controllers there.
func (c *cgroups) useV2(mountPoint, parent string, privileged bool) {
	top := mountPoint
	if !privileged && !filepath.IsAbs(parent) {
		top = filepath.Join(mountPoint, ownCgroup())
	}
	dir := filepath.Join(top, parent)
	controllers := []string{controllerCPU, controllerMemory, controllerPIDs}
	if err := makeCgroup(dir); err != nil {
		for _, name := range controllers {
			c.missing[name] = "cannot make a cgroup: " + err.Error()
		}
		return
	}
	c.version = 2
	c.parents[unified] = dir
	for _, name := range controllers {
		if err := enableController(mountPoint, dir, name); err != nil {
			c.missing[name] = err.Error()
			continue
		}
		delete(c.missing, name)
		c.parents[name] = dir
	}
}

// enableController turns a controller on in every cgroup from the top down to dir.
func enableController(top, dir, name string) error {
	rel, err := filepath.Rel(top, dir)
	if err != nil {
		return err
	}
	at := top
	for _, part := range append([]string{"."}, strings.Split(rel, "/")...) {
		at = filepath.Join(at, part)
		available, err := os.ReadFile(filepath.Join(at, "cgroup.controllers"))
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Fields(string(available)), name) {
			return fmt.Errorf("cgroup %s has no controller %q", at, name)
		}
		enabled, err := os.ReadFile(filepath.Join(at, "cgroup.subtree_control"))
		if err != nil {
			return err
		}
		if slices.Contains(strings.Fields(string(enabled)), name) {
			continue
		}
		if err := writeCgroupFile(at, "cgroup.subtree_control", "+"+name); err != nil {
			return fmt.Errorf("turning on the cgroup controller %q: %w", name, err)
		}
	}
	return nil
}

// ownCgroup returns the path of this process's cgroup in the hierarchy of version 2.
func ownCgroup() string {
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return "/"
	}
	defer discard(f)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "0::"); ok {
			return path
		}
	}
	return "/"
}

func writeCgroupFile(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// adopt moves the spawner, whose forks stay where it is, out of the cgroup of whatever started this process: a service manager
// that stops the service would end the containers with it.
func (c *cgroups) adopt(pid int) {
	value := strconv.Itoa(pid)
	if c.systemd != "" {
		_ = writeCgroupFile(c.systemd, "cgroup.procs", value)
	}
	if c.version == 2 {
		if dir := filepath.Join(c.parents[unified], initsCgroup); makeCgroup(dir) == nil {
			_ = writeCgroupFile(dir, "cgroup.procs", value)
		}
	}
}

// feature tells whether a controller can be used.
func (c *cgroups) feature(controller string) Feature {
	if c.parents[controller] != "" {
		return Feature{Available: true}
	}
	return Feature{Reason: c.missing[controller]}
}

// wanted returns the directories that a container needs for its limits and, if group is true, in order to be killed as a
// whole, or if accounting is true, for its statistics.
func (c *cgroups) wanted(id string, l Limits, group, accounting bool) cgroup {
	dirs := map[string]string{}
	use := func(controller string) {
		switch parent := c.parents[controller]; {
		case parent == "":
		case c.version == 2:
			dirs[unified] = filepath.Join(parent, id)
		default:
			dirs[controller] = filepath.Join(parent, id)
		}
	}
	if l.CPUMillis > 0 || l.CPUShares > 0 {
		use(controllerCPU)
	}
	if l.MemoryBytes > 0 || accounting {
		use(controllerMemory)
	}
	if l.PIDs > 0 || group {
		use(controllerPIDs)
	}
	if accounting {
		use(controllerCPUAccount)
	}
	if (group || accounting) && c.version == 2 {
		use(unified)
	}
	if group && len(dirs) == 0 {
		for _, controller := range []string{controllerMemory, controllerCPU, controllerCPUAccount} {
			if len(dirs) == 0 {
				use(controller)
			}
		}
	}
	if len(dirs) == 0 {
		return cgroup{}
	}
	return cgroup{Version: c.version, Dirs: dirs}
}

// sortedDirs returns the directories in a fixed order.
func (g cgroup) sortedDirs() []string {
	var dirs []string
	for _, d := range g.Dirs {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// create makes the directories and writes the limits.
func (g cgroup) create(l Limits) error {
	for _, dir := range g.sortedDirs() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making a cgroup: %w", err)
		}
	}
	for _, f := range g.limitFiles(l) {
		if err := writeCgroupFile(f.dir, f.name, f.value); err != nil && !f.optional {
			return fmt.Errorf("setting a limit: %w", err)
		}
	}
	return nil
}

type limitFile struct {
	dir, name, value string
	optional         bool
}

// limitFiles returns what has to be written where for l, without what the machine has no controller for.
func (g cgroup) limitFiles(l Limits) (files []limitFile) {
	add := func(controller, name, value string, optional bool) {
		dir := g.Dirs[controller]
		if g.Version == 2 {
			dir = g.Dirs[unified]
		}
		if dir == "" || g.Version == 2 && !fileExists(filepath.Join(dir, name)) {
			return
		}
		files = append(files, limitFile{dir, name, value, optional})
	}
	quota := max(l.CPUMillis*cpuPeriod/1000, minCPUQuota)
	shares := min(max(l.CPUShares, 2), 262144)
	v2 := g.Version == 2
	switch {
	case l.CPUMillis > 0 && v2:
		add(controllerCPU, "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod), false)
	case l.CPUMillis > 0:
		add(controllerCPU, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), true)
		add(controllerCPU, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10), false)
	}
	switch {
	case l.CPUShares > 0 && v2:
		add(controllerCPU, "cpu.weight", strconv.FormatInt(cpuWeight(shares), 10), false)
	case l.CPUShares > 0:
		add(controllerCPU, "cpu.shares", strconv.FormatInt(shares, 10), false)
	}
	switch bytes := strconv.FormatInt(l.MemoryBytes, 10); {
	case l.MemoryBytes > 0 && v2:
		add(controllerMemory, "memory.max", bytes, false)
		add(controllerMemory, "memory.swap.max", "0", true)
		add(controllerMemory, "memory.oom.group", "1", true)
	case l.MemoryBytes > 0:
		add(controllerMemory, "memory.limit_in_bytes", bytes, false)
		add(controllerMemory, "memory.memsw.limit_in_bytes", bytes, true)
	}
	if l.PIDs > 0 {
		add(controllerPIDs, "pids.max", strconv.FormatInt(l.PIDs, 10), false)
	}
	return files
}

// cpuWeight turns cgroup version 1's shares, 2..262144, into version 2's weight, 1..10000, linearly.
//
// Source: Kubernetes enhancement proposal 2254, "cgroup v2".
func cpuWeight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

func fileExists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// killFile returns version 2's file that kills a whole cgroup, or "".
func (g cgroup) killFile() string {
	if g.Version != 2 {
		return ""
	}
	if f := filepath.Join(g.Dirs[unified], "cgroup.kill"); fileExists(f) {
		return f
	}
	return ""
}

// procsFile returns the list of processes of one of the cgroups, or "".
func (g cgroup) procsFile() string {
	if dirs := g.sortedDirs(); len(dirs) > 0 {
		return filepath.Join(dirs[0], "cgroup.procs")
	}
	return ""
}

// oomFile returns the file in which the kernel counts the processes that it killed for want of memory, or "".
func (g cgroup) oomFile() string {
	switch {
	case g.Version == 2 && fileExists(filepath.Join(g.Dirs[unified], "memory.events")):
		return filepath.Join(g.Dirs[unified], "memory.events")
	case g.Version == 1 && g.Dirs[controllerMemory] != "":
		return filepath.Join(g.Dirs[controllerMemory], "memory.oom_control")
	default:
		return ""
	}
}

// kill kills every process in the cgroups.
func (g cgroup) kill() {
	if f := g.killFile(); f != "" {
		_ = writeCgroupFile(filepath.Dir(f), filepath.Base(f), "1")
		return
	}
	for _, dir := range g.sortedDirs() {
		for _, pid := range processesIn(dir) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func processesIn(dir string) (pids []int) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, text := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// remove kills what is left in the cgroups and removes them.
func (g cgroup) remove(ctx context.Context) error {
	for _, dir := range g.sortedDirs() {
		if err := removeCgroup(ctx, dir, g.kill); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes dir and the cgroups that the container may have made in it.
func removeCgroup(ctx context.Context, dir string, kill func()) error {
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("removing cgroup %s: %w", dir, err)
		}
		kill()
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				sub := filepath.Join(dir, e.Name())
				if err := removeCgroup(ctx, sub, func() { killProcesses(sub) }); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing cgroup %s: %w", dir, ctx.Err())
		case <-time.After(cgroupPoll):
		}
	}
}

func killProcesses(dir string) {
	for _, pid := range processesIn(dir) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// prune removes the cgroups of containers that are not known, left behind by a process that was killed, and returns the
// errors. known holds the directories to keep.
func (c *cgroups) prune(ctx context.Context, known map[string]bool) error {
	var errs []error
	for _, parent := range c.distinctParents() {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(parent, e.Name())
			if !e.IsDir() || e.Name() == initsCgroup || known[dir] {
				continue
			}
			errs = append(errs, removeCgroup(ctx, dir, func() { killProcesses(dir) }))
		}
	}
	return errors.Join(errs...)
}

// leaveTimeout is how long leave waits for processes that are on their way out.
const leaveTimeout = time.Second

// leave removes the parents if nothing is in them. idle says that no container runs: a process that is still there, such as the
// fork that has just told how an execution ended, is about to go then, and is waited for.
func (c *cgroups) leave(idle bool) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for _, parent := range c.distinctParents() {
		leaveCgroup(ctx, filepath.Join(parent, initsCgroup), idle)
		leaveCgroup(ctx, parent, idle)
	}
	if c.systemd != "" {
		leaveCgroup(ctx, c.systemd, idle)
	}
}

// leaveCgroup removes dir, unless it holds other cgroups. If wait is set it waits for processes in it to end, until ctx does.
func leaveCgroup(ctx context.Context, dir string, wait bool) {
	for {
		// Asked before: that they have gone meanwhile is a reason to try again.
		inhabited := len(processesIn(dir)) > 0
		if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) || !wait || !inhabited {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(cgroupPoll):
		}
	}
}

func (c *cgroups) distinctParents() []string {
	var parents []string
	for _, p := range c.parents {
		if !slices.Contains(parents, p) {
			parents = append(parents, p)
		}
	}
	slices.Sort(parents)
	return parents
}

// Stats is what a container uses.
type Stats struct {
	CPU               time.Duration // since it started
	MemoryBytes       int64         // everything that is charged to it
	WorkingSetBytes   int64         // without file cache that has not been used for long
	HasCPU, HasMemory bool          // whether the figures above are known
}

// stats reads what the cgroups have counted.
func (g cgroup) stats() (s Stats) {
	if g.Version == 2 {
		dir := g.Dirs[unified]
		usec, ok := cgroupField(dir, "cpu.stat", "usage_usec")
		s.CPU, s.HasCPU = time.Duration(usec)*time.Microsecond, ok
		s.MemoryBytes, s.HasMemory = cgroupNumber(dir, "memory.current")
		inactive, _ := cgroupField(dir, "memory.stat", "inactive_file")
		s.WorkingSetBytes = max(s.MemoryBytes-inactive, 0)
		return s
	}
	nanos, ok := cgroupNumber(g.Dirs[controllerCPUAccount], "cpuacct.usage")
	s.CPU, s.HasCPU = time.Duration(nanos), ok
	s.MemoryBytes, s.HasMemory = cgroupNumber(g.Dirs[controllerMemory], "memory.usage_in_bytes")
	inactive, _ := cgroupField(g.Dirs[controllerMemory], "memory.stat", "total_inactive_file")
	s.WorkingSetBytes = max(s.MemoryBytes-inactive, 0)
	return s
}

func cgroupNumber(dir, name string) (int64, bool) {
	if dir == "" {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

func cgroupField(dir, name, field string) (int64, bool) {
	if dir == "" {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
