// SPDX-License-Identifier: Apache-2.0

package machine

import "testing"

func TestThisMachine(t *testing.T) {
	facts, err := Measure("/")
	if err != nil {
		t.Fatal(err)
	}
	usage, err := facts.Usage("/")
	if err != nil {
		t.Fatal(err)
	}
	if facts.CPUs < 1 || facts.MemoryBytes < 64<<20 || facts.DiskBytes <= 0 || facts.Kernel == "" || facts.BootID == "" {
		t.Errorf("facts = %+v", facts)
	}
	if usage.MemoryAvailableBytes <= 0 || usage.MemoryAvailableBytes > facts.MemoryBytes || usage.PIDs < 1 {
		t.Errorf("usage = %+v of %+v", usage, facts)
	}
}

func TestPressure(t *testing.T) {
	well := Usage{MemoryAvailableBytes: 1 << 30, DiskAvailableBytes: 50, DiskBytes: 100, InodesFree: 50, Inodes: 100, PIDs: 100}
	cases := map[string]struct {
		edit func(*Usage)
		want [3]bool // memory, disk, processes
	}{
		"all well":                   {func(*Usage) {}, [3]bool{}},
		"less than 100 MiB":          {func(u *Usage) { u.MemoryAvailableBytes = 99 << 20 }, [3]bool{true, false, false}},
		"less than a tenth of space": {func(u *Usage) { u.DiskAvailableBytes = 9 }, [3]bool{false, true, false}},
		"less than a 20th of inodes": {func(u *Usage) { u.InodesFree = 4 }, [3]bool{false, true, false}},
		"inodes that nobody counts":  {func(u *Usage) { u.InodesFree, u.Inodes = 0, 0 }, [3]bool{}},
		"hardly a process left":      {func(u *Usage) { u.PIDs = 950 }, [3]bool{false, false, true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := well
			tc.edit(&u)
			if got := [3]bool{u.MemoryPressure(), u.DiskPressure(), u.PIDPressure(1000)}; got != tc.want {
				t.Errorf("pressure = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestParsing(t *testing.T) {
	if n, err := meminfo([]byte("MemFree: 1 kB\nMemTotal:       2048 kB\n"), "MemTotal"); n != 2<<20 || err != nil {
		t.Errorf("meminfo = %d, %v", n, err)
	}
	if _, err := meminfo(nil, "MemTotal"); err == nil {
		t.Error("a missing value is no error")
	}
	if n := processes("0.00 0.01 0.05 2/371 12345"); n != 371 {
		t.Errorf("processes = %d", n)
	}
	if s := osImage("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"); s != "Debian GNU/Linux 12" {
		t.Errorf("osImage = %q", s)
	}
}
