// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import "strings"

// capabilityNames are the kernel's capabilities in the order of their numbers (linux/capability.h).
var capabilityNames = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
	"NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
	"SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
	"AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
	"PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

// defaultCapabilities are what a container has unless its Spec says otherwise: the set that container runtimes agree on.
var defaultCapabilities = capabilitySet("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP",
	"SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE")

const allCapabilities = uint64(1)<<len(capabilityNames) - 1

func isAll(name string) bool { return strings.EqualFold(name, "ALL") }

// capabilityNumber returns the number of a capability, in any case of letters.
func capabilityNumber(name string) (int, bool) {
	for i, n := range capabilityNames {
		if strings.EqualFold(n, name) {
			return i, true
		}
	}
	return 0, false
}

// capabilitySet returns a bit for each of names. Unknown ones are left out, "ALL" stands for every one.
func capabilitySet(names ...string) (set uint64) {
	for _, name := range names {
		if isAll(name) {
			set = allCapabilities
		}
		if i, ok := capabilityNumber(name); ok {
			set |= 1 << i
		}
	}
	return set
}

// capabilities returns what s may have: the default, without what it drops, and with what it adds. Dropping ALL and adding one
// leaves this one, and adding ALL and dropping one takes this one away, as in Kubernetes.
func (s *Spec) capabilities() uint64 {
	base, add, drop := defaultCapabilities, capabilitySet(s.AddCapabilities...), capabilitySet(s.DropCapabilities...)
	if drop == allCapabilities {
		return add
	}
	if add == allCapabilities {
		return add &^ drop
	}
	return (base | add) &^ drop
}
