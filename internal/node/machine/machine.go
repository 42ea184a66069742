// SPDX-License-Identifier: Apache-2.0

// Package machine measures the machine that a node is: what it is, what it has and how much of it is left. Start reading at Measure.
package machine

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Facts are what does not change while the machine is up.
type Facts struct {
	CPUs        int
	MemoryBytes int64
	DiskBytes   int64 // of the file system that was asked about
	PIDs        int64 // the most processes and threads there can be; 0 when unknown

	BootID     string
	MachineID  string
	SystemUUID string
	Kernel     string
	OSImage    string
}

// Usage is how much is left.
type Usage struct {
	MemoryAvailableBytes int64
	DiskAvailableBytes   int64
	DiskBytes            int64
	InodesFree           uint64
	Inodes               uint64 // 0 when the file system does not count them
	PIDs                 int64  // that exist now
}

// Measure returns the facts, with the disk that dir lies on.
func Measure(dir string) (Facts, error) {
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Facts{}, fmt.Errorf("measuring memory: %w", err)
	}
	total, err := meminfo(memory, "MemTotal")
	if err != nil {
		return Facts{}, err
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return Facts{}, fmt.Errorf("measuring the disk of %s: %w", dir, err)
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return Facts{}, fmt.Errorf("reading the version of the kernel: %w", err)
	}
	return Facts{
		CPUs:        runtime.NumCPU(),
		MemoryBytes: total,
		DiskBytes:   int64(disk.Blocks) * disk.Bsize,
		PIDs:        number("/proc/sys/kernel/pid_max"),
		BootID:      text("/proc/sys/kernel/random/boot_id"),
		MachineID:   text("/etc/machine-id"),
		SystemUUID:  text("/sys/class/dmi/id/product_uuid"),
		Kernel:      unix.ByteSliceToString(kernel.Release[:]),
		OSImage:     osImage(text("/etc/os-release")),
	}, nil
}

// Usage returns what is left now.
func (Facts) Usage(dir string) (Usage, error) {
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Usage{}, fmt.Errorf("measuring memory: %w", err)
	}
	available, err := meminfo(memory, "MemAvailable")
	if err != nil {
		return Usage{}, err
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return Usage{}, fmt.Errorf("measuring the disk of %s: %w", dir, err)
	}
	return Usage{
		MemoryAvailableBytes: available,
		DiskAvailableBytes:   int64(disk.Bavail) * disk.Bsize,
		DiskBytes:            int64(disk.Blocks) * disk.Bsize,
		InodesFree:           disk.Ffree,
		Inodes:               disk.Files,
		PIDs:                 processes(text("/proc/loadavg")),
	}, nil
}

// MemoryPressure reports whether too little memory is left, by kubelet's defaults.
func (u Usage) MemoryPressure() bool { return u.MemoryAvailableBytes < 100<<20 }

// DiskPressure reports whether too little of the disk is left, by kubelet's defaults.
func (u Usage) DiskPressure() bool {
	return u.DiskAvailableBytes < u.DiskBytes/10 || u.Inodes > 0 && u.InodesFree < u.Inodes/20
}

// PIDPressure is MemoryPressure for processes, of which there can be limit; 0: unknown.
func (u Usage) PIDPressure(limit int64) bool { return limit > 0 && limit-u.PIDs < limit/10 }

// meminfo returns a value of /proc/meminfo in bytes.
func meminfo(data []byte, key string) (int64, error) {
	for line := range bytes.Lines(data) {
		words := strings.Fields(string(line))
		if len(words) >= 2 && words[0] == key+":" {
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading %s: %w", key, err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("the kernel does not tell %s", key)
}

// processes returns how many processes and threads exist, from "0.00 0.01 0.05 2/371 12345".
func processes(loadavg string) int64 {
	words := strings.Fields(loadavg)
	if len(words) < 4 {
		return 0
	}
	_, total, _ := strings.Cut(words[3], "/")
	n, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func osImage(release string) string {
	for line := range strings.Lines(release) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	return "Linux"
}

// text returns a file without surrounding space; "" when it cannot be read.
func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func number(path string) int64 {
	n, err := strconv.ParseInt(text(path), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
