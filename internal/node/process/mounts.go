// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// hostMount is a line of /proc/self/mountinfo.
type hostMount struct {
	id           string
	point        string
	options      string
	fsType       string
	superOptions string
}

// readMounts returns what is mounted, in the order in which it was. Of several mounts at one place the last one is seen, the
// others are left out.
func readMounts(path string) ([]hostMount, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the table of mounts: %w", err)
	}
	return parseMounts(string(b)), nil
}

func parseMounts(text string) (mounts []hostMount) {
	for line := range strings.Lines(text) {
		m, ok := parseMount(strings.TrimSuffix(line, "\n"))
		if !ok {
			continue
		}
		mounts = slices.DeleteFunc(mounts, func(o hostMount) bool {
			return o.point == m.point || m.point != "/" && strings.HasPrefix(o.point, m.point+"/")
		})
		mounts = append(mounts, m)
	}
	return mounts
}

// parseMount reads a line: "36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue".
func parseMount(line string) (m hostMount, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, rest := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 6 || len(rest) < 1 {
		return m, false
	}
	m = hostMount{id: fields[0], point: unescapeMount(fields[4]), options: fields[5], fsType: rest[0]}
	if len(rest) > 2 {
		m.superOptions = rest[2]
	}
	return m, true
}

// unescapeMount undoes the octal escapes of the mount table.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func (m *hostMount) readOnly() bool {
	return slices.Contains(strings.Split(m.options, ","), "ro") || slices.Contains(strings.Split(m.superOptions, ","), "ro")
}

// kernelFileSystems show the kernel's own state, or nothing that a container could use; containers get their own or none.
var kernelFileSystems = []string{
	"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl", "hugetlbfs",
	"mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
}

// visibleMounts returns the file systems below the root that a container should see where the host has them: real ones,
// outside of /proc, /sys and /dev, and not in one of the hidden directories.
func visibleMounts(mounts []hostMount, hidden []string) (visible []hostMount) {
	for _, m := range mounts {
		switch {
		case m.point == "/", slices.Contains(kernelFileSystems, m.fsType), isBelow(m.point, "/proc"), isBelow(m.point, "/sys"),
			isBelow(m.point, "/dev"), slices.ContainsFunc(hidden, func(h string) bool { return isBelow(m.point, h) }):
		default:
			visible = append(visible, m)
		}
	}
	return visible
}

// isBelow tells whether path is dir or in it. Both are clean.
func isBelow(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
