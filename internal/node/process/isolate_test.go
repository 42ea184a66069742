// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/memory"
)

// isolated returns a Runtime with full isolation, or skips the test.
func isolated(t *testing.T) *world {
	t.Helper()
	needsFull(t)
	return newWorld(t, Config{Isolation: Full})
}

func TestNamespaces(t *testing.T) {
	w := isolated(t)
	for _, kind := range []string{"mnt", "pid", "uts", "ipc"} {
		host, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.output(kind, "readlink /proc/self/ns/"+kind); strings.TrimSpace(got) == host {
			t.Errorf("the %s namespace is the host's", kind)
		}
	}
	for kind, edit := range map[string]func(*Spec){
		"pid": func(s *Spec) { s.HostPID = true },
		"ipc": func(s *Spec) { s.HostIPC = true },
	} {
		host, _ := os.Readlink("/proc/self/ns/" + kind)
		if got := w.output("host-"+kind, "readlink /proc/self/ns/"+kind, edit); strings.TrimSpace(got) != host {
			t.Errorf("the %s namespace is %q, not the host's %q", kind, got, host)
		}
	}
	if got := w.output("name", "uname -n; cat /proc/sys/kernel/domainname", func(s *Spec) { s.Hostname, s.Domainname = "web-0", "example.org" }); got != "web-0\nexample.org\n" {
		t.Errorf("names %q", got)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if host == "web-0" {
		t.Error("the host's name has changed")
	}
}

func TestProcShowsTheContainerOnly(t *testing.T) {
	w := isolated(t)
	if got := w.output("a", "ls /proc | grep -c '^[0-9]*$'; cat /proc/1/comm; echo $$"); got != "4\ndrover-init\n2\n" {
		t.Errorf("processes: %q, want init, sh, ls and grep", got)
	}
	if got := w.output("host", "test -d /proc/"+fmt.Sprint(os.Getpid())+" && echo seen", func(s *Spec) { s.HostPID = true }); got != "seen\n" {
		t.Errorf("with the host's PID namespace: %q", got)
	}
}

func TestHostPIDLeavesNothing(t *testing.T) {
	w := isolated(t)
	st := w.run(w.shell("a", fmt.Sprintf("f=%s/never; (setsid sh -c \"sleep 1000; echo $f\" &); exit 3", w.dir), func(s *Spec) { s.HostPID = true }))
	if st.Exit == nil || st.Exit.Code != 3 {
		t.Errorf("status %+v", st)
	}
	if left := processesOf(w.dir + "/never"); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

func TestDev(t *testing.T) {
	w := isolated(t)
	got := w.output("a", `
		echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1 && head -c 4 /dev/urandom | wc -c && head -c 4 /dev/random | wc -c
		(echo x > /dev/full) 2>/dev/null || echo full
		ls /dev | tr '\n' ' '
		echo shm > /dev/shm/x && cat /dev/shm/x
		echo fd | cat /dev/stdin > /dev/stdout
		test -c /dev/pts/ptmx && test -c /dev/ptmx && echo ptmx`)
	want := " 00 00 00\n4\n4\nfull\nfd full null ptmx pts random shm stderr stdin stdout tty urandom zero shm\nfd\nptmx\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if fileExists("/dev/shm/x") {
		t.Error("/dev/shm is the host's")
	}
}

func TestChangesStayInTheContainer(t *testing.T) {
	w := isolated(t)
	host := filepath.Join(w.dir, "file")
	if err := os.WriteFile(host, []byte("host\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("cat %[1]s; echo changed > %[1]s; cat %[1]s; rm %[1]s; mkdir /tmp/drover-test-new; ls %[2]s", host, w.dir)
	for _, id := range []string{"a", "b"} {
		if got := w.output(id, script); !strings.HasPrefix(got, "host\nchanged\n") || strings.Contains(got, "file") {
			t.Errorf("container %s: %q", id, got)
		}
	}
	if got := readFile(t, host); got != "host\n" {
		t.Errorf("the host's file holds %q", got)
	}
	if fileExists("/tmp/drover-test-new") {
		t.Error("a directory appeared on the host")
	}
}

func TestKernelFilesAreReadOnly(t *testing.T) {
	w := isolated(t)
	got := w.output("a", "for f in /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/domainname /sys/x; do (echo x > $f) 2>/dev/null && echo $f; done; true")
	if got != "" {
		t.Errorf("a container can write to %q", got)
	}
}

func TestOwnDirectoriesAreHidden(t *testing.T) {
	needsFull(t)
	dir := tempDir(t)
	scratch, secret := filepath.Join(dir, "scratch"), filepath.Join(dir, "secret")
	for _, d := range []string{scratch, secret} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(secret, "key")
	writeFile(t, key, "key")
	w := newWorld(t, Config{Isolation: Full, ScratchDir: scratch, Hide: []string{secret, filepath.Join(dir, "missing")}})
	script := fmt.Sprintf("ls -A %s %s/* %s; (echo x > %s/x) 2>/dev/null && echo written; true", w.cfg.Dir, scratch, secret, w.cfg.Dir)
	got := w.output("a", script)
	for _, bad := range []string{"record", "lock", "upper", "key", "written"} {
		if strings.Contains(got, bad) {
			t.Errorf("a container sees or does %q:\n%s", bad, got)
		}
	}
	// A mount of something hidden is visible at its place.
	if got := w.output("b", "cat /data/key", func(s *Spec) { s.Mounts = []Mount{{Source: secret, Target: "/data", ReadOnly: true}} }); got != "key" {
		t.Errorf("the mounted file holds %q", got)
	}
	if err := w.Remove(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(scratch + "/*/a*")
	if err != nil || len(left) > 0 {
		t.Errorf("scratch files are left: %q, %v", left, err)
	}
}

func TestMounts(t *testing.T) {
	w := isolated(t)
	dir := filepath.Join(w.dir, "volume")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "file"), "file\n")
	mounts := func(list ...Mount) func(*Spec) { return func(s *Spec) { s.Mounts = list } }

	t.Run("a directory is shared with the host", func(t *testing.T) {
		w.output("rw", "cat /data/file && echo new > /data/new", mounts(Mount{Source: dir, Target: "/data"}))
		if got := readFile(t, filepath.Join(dir, "new")); got != "new\n" {
			t.Errorf("the host sees %q", got)
		}
	})
	t.Run("a read-only one refuses writes", func(t *testing.T) {
		got := w.output("ro", "cat /a/b/c/file; (echo x > /a/b/c/x) 2>/dev/null || echo refused; mount -o remount,rw /a/b/c 2>/dev/null || echo kept",
			mounts(Mount{Source: dir, Target: "/a/b/c", ReadOnly: true}))
		if got != "file\nrefused\nkept\n" {
			t.Errorf("output %q", got)
		}
	})
	t.Run("a file can be mounted where none is and over one", func(t *testing.T) {
		got := w.output("file", "cat /etc/drover/test/x /etc/passwd", mounts(
			Mount{Source: filepath.Join(dir, "file"), Target: "/etc/drover/test/x"},
			Mount{Source: filepath.Join(dir, "file"), Target: "/etc/passwd", ReadOnly: true}))
		if got != "file\nfile\n" {
			t.Errorf("output %q", got)
		}
	})
	t.Run("a mount in a mount works in any order", func(t *testing.T) {
		got := w.output("nested", "cat /data/file /data/sub/file", mounts(
			Mount{Source: dir, Target: "/data/sub"}, Mount{Source: dir, Target: "/data"}))
		if got != "file\nfile\n" {
			t.Errorf("output %q", got)
		}
	})
	t.Run("links in the target's path are the container's", func(t *testing.T) {
		// /var/run is a link to /run.
		if got := w.output("link", "cat /run/drover-test/file", mounts(Mount{Source: dir, Target: "/var/run/drover-test"})); got != "file\n" {
			t.Errorf("output %q", got)
		}
		if fileExists("/run/drover-test") {
			t.Error("the place was made on the host")
		}
	})
	t.Run("a missing source is named", func(t *testing.T) {
		_, err := w.Start(context.Background(), w.shell("missing", "true", mounts(Mount{Source: "/no/such", Target: "/data"})))
		if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "mounting /no/such at /data") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a file over a directory is named", func(t *testing.T) {
		_, err := w.Start(context.Background(), w.shell("kind", "true", mounts(Mount{Source: filepath.Join(dir, "file"), Target: "/etc"})))
		if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "mounting "+filepath.Join(dir, "file")+" at /etc") {
			t.Errorf("error %v", err)
		}
	})
}

func TestReadOnlyMountsAreSoWithAllThatIsMountedInThem(t *testing.T) {
	needsRoot(t)
	w := isolated(t)
	dir := filepath.Join(w.dir, "volume")
	if err := os.MkdirAll(dir+"/sub", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir+"/sub", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir+"/sub", unix.MNT_DETACH)
	writeFile(t, dir+"/sub/file", "file\n")
	got := w.output("a", "cat /data/sub/file; (echo x > /data/sub/x) 2>/dev/null || echo refused", func(s *Spec) {
		s.Mounts = []Mount{{Source: dir, Target: "/data", ReadOnly: true}}
	})
	if got != "file\nrefused\n" {
		t.Errorf("output %q", got)
	}
	// What is mounted later is seen, too, with its changes private.
	if got := w.output("b", "cat "+dir+"/sub/file; echo x > "+dir+"/sub/x && echo private"); got != "file\nprivate\n" {
		t.Errorf("output %q", got)
	}
	if fileExists(dir + "/sub/x") {
		t.Error("a change in another file system got to the host")
	}
}

// TestMountsThatComeAndGo has others mount and unmount while containers are started.
func TestMountsThatComeAndGo(t *testing.T) {
	needsRoot(t)
	w := isolated(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				dir := fmt.Sprintf("%s/mount%d-%d", w.dir, i, n)
				options := [2]uintptr{0, unix.MS_RDONLY}[n%2]
				if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", options, "")); err != nil {
					t.Error(err)
				}
				<-time.After(time.Duration(n%7) * time.Millisecond)
				// Whoever looks at it right now keeps it busy for a moment.
				for errors.Is(unix.Unmount(dir, 0), unix.EBUSY) {
					<-time.After(time.Millisecond)
				}
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 50 {
		w.output(fmt.Sprintf("c%d", i), "true", func(s *Spec) { s.ReadOnlyRoot = i%2 == 0 })
	}
	cancel()
	wg.Wait()
}

// TestMountWhileAContainerIsMade: "mounting an overlay of /tmp: invalid argument", because something was mounted there between the look
// at the table of mounts and the making of a container in a user namespace.
func TestMountWhileAContainerIsMade(t *testing.T) {
	needsRoot(t) // in order to mount
	w := isolated(t)
	w.userNamespace = true
	w.output("first", "true")

	sp, err := w.client()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(sp.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(sp.pid, unix.SIGCONT) }()
	started := make(chan error, 1)
	go func() {
		_, err := w.Start(context.Background(), w.shell("second", "true"))
		started <- err
	}()
	eventually(t, "a request for a container", func() bool {
		sp.mu.Lock()
		defer sp.mu.Unlock()
		return len(sp.pending) > 0
	}, func() string { return "none was sent" })
	dir := filepath.Join(w.dir, "mount")
	if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Kill(sp.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Error(err)
	}
}

func TestReadOnlyRoot(t *testing.T) {
	w := isolated(t)
	got := w.output("a", "for f in /x /etc/x /tmp/x /usr/x; do (echo x > $f) 2>/dev/null && echo $f; done; echo x > /data/x; echo x > /new/x; echo x > /dev/shm/x; ls /new", func(s *Spec) {
		s.ReadOnlyRoot = true
		s.Dir = "/not/there"
		s.Mounts = []Mount{{Source: w.dir, Target: "/data"}, {Source: w.dir, Target: "/new"}}
	})
	if !strings.Contains(got, "x\n") || strings.Contains(got, "/") {
		t.Errorf("output %q", got)
	}
}

// ownRoot gives a container the root directory root. Its shell is linked against the C library; so the libraries are mounted.
func ownRoot(s *Spec, root string) {
	s.Root = root
	for _, dir := range []string{"/usr", "/lib64", "/lib", "/bin"} {
		if fileExists(dir) {
			s.Mounts = append(s.Mounts, Mount{Source: dir, Target: dir, ReadOnly: true})
		}
	}
}

func TestRootDirectory(t *testing.T) {
	w := isolated(t)
	root := filepath.Join(w.dir, "root")
	for _, dir := range []string{"bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := w.shell("a", "cat /etc/name; echo changed > /etc/name; ls / | tr '\n' ' '; test -e /proc/self/stat && test -d /sys/kernel && test -c /dev/null && echo ok", func(s *Spec) {
		ownRoot(s, root)
	})
	writeFile(t, filepath.Join(root, "etc/name"), "other root\n")
	st := w.run(s)
	out, errOut := w.streams("a")
	if st.Exit.Code != 0 || !strings.HasPrefix(out, "other root\n") || strings.Contains(out, "tmp") || !strings.HasSuffix(out, "ok\n") {
		t.Errorf("exit %+v, output %q, %q", st.Exit, out, errOut)
	}
	if got := readFile(t, filepath.Join(root, "etc/name")); got != "other root\n" {
		t.Errorf("the root's file holds %q", got)
	}
}

func TestUsersAndGroups(t *testing.T) {
	needsRoot(t)
	eachIsolation(t, func(w *world) {
		t := w.t
		as := func(uid, gid *int64, groups ...int64) func(*Spec) {
			return func(s *Spec) { s.UID, s.GID, s.Groups = uid, gid, groups }
		}
		const ids = "id -u; id -g; id -G; grep CapEff /proc/self/status"
		if got := w.output("user", ids, as(ptr(int64(1234)), ptr(int64(2345)), 3456)); got != "1234\n2345\n2345 3456\nCapEff:\t0000000000000000\n" {
			t.Errorf("as a user: %q", got)
		}
		if got := w.output("uid", "id -u; id -g; id -G", as(ptr(int64(1234)), nil)); got != "1234\n0\n0\n" {
			t.Errorf("with a user only: %q", got)
		}
		if got := w.output("out", "echo out > /dev/stdout; echo err > /dev/stderr", as(ptr(int64(1234)), ptr(int64(1234)))); got != "out\n" {
			t.Errorf("opening the standard streams again: %q", got)
		}
	})
}

func TestCapabilities(t *testing.T) {
	cases := map[string]struct {
		add, drop []string
		want      uint64
	}{
		"the default":                          {nil, nil, 0xa80425fb},
		"one less":                             {nil, []string{"chown"}, 0xa80425fa},
		"one more":                             {[]string{"SYS_TIME"}, nil, 0xa80425fb | 1<<25},
		"none":                                 {nil, []string{"ALL"}, 0},
		"a single one":                         {[]string{"KILL"}, []string{"all"}, 1 << 5},
		"all":                                  {[]string{"ALL"}, nil, allCapabilities},
		"all but one":                          {[]string{"ALL"}, []string{"SYS_ADMIN"}, allCapabilities &^ (1 << 21)},
		"one that is added and dropped is not": {[]string{"KILL"}, []string{"KILL"}, 0xa80425fb &^ (1 << 5)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := Spec{AddCapabilities: tc.add, DropCapabilities: tc.drop}
			if got := s.capabilities(); got != tc.want {
				t.Errorf("capabilities %#x, want %#x", got, tc.want)
			}
		})
	}
}

func TestCapabilitiesOfProcesses(t *testing.T) {
	needsRoot(t)
	eachIsolation(t, func(w *world) {
		t := w.t
		const show = "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status"
		if got := w.output("default", show); got != "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t0\n" {
			t.Errorf("default: %q", got)
		}
		got := w.output("few", show, func(s *Spec) {
			s.DropCapabilities, s.AddCapabilities, s.NoNewPrivs = []string{"ALL"}, []string{"NET_BIND_SERVICE"}, true
		})
		if got != "CapEff:\t0000000000000400\nCapBnd:\t0000000000000400\nNoNewPrivs:\t1\n" {
			t.Errorf("few: %q", got)
		}
	})
}

func TestOrdinaryUserInAContainer(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("is about ordinary users; TestAsOrdinaryUser runs it")
	}
	w := isolated(t)
	if !w.Features().UserNamespace {
		t.Error("isolated without a user namespace")
	}
	host := fmt.Sprintf("%d\n%d\n", os.Getuid(), os.Getgid())
	if got := w.output("self", "id -u; id -g"); got != host {
		t.Errorf("ids %q, want %q", got, host)
	}
	if got := w.output("root", "id -u; touch /data/file", func(s *Spec) {
		s.UID, s.GID = ptr(int64(0)), ptr(int64(0))
		s.Mounts = []Mount{{Source: w.dir, Target: "/data"}}
	}); got != "0\n" {
		t.Errorf("as root: %q", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(w.dir, "file"), &st); err != nil || int(st.Uid) != os.Getuid() {
		t.Errorf("the file belongs to user %d, %v", st.Uid, err)
	}
	_, err := w.Start(context.Background(), w.shell("groups", "true", func(s *Spec) { s.Groups = []int64{1, 2} }))
	if !errors.Is(err, ErrUnsupported) {
		t.Errorf("with groups: %v, want ErrUnsupported", err)
	}
}

func TestParseMounts(t *testing.T) {
	const table = `21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
22 21 0:5 / /proc rw - proc proc rw
23 21 0:6 / /data rw - tmpfs tmpfs rw
24 23 0:7 / /data/in\040side rw - tmpfs tmpfs ro,size=4k
25 21 0:8 / /data rw,nosuid - xfs /dev/vdb rw
26 21 0:9 / /home/o\134x ro,nosuid master:3 - ext4 /dev/vdc rw
27 21 0:9 / /hidden/x ro,nosuid - ext4 /dev/vdc rw
bad line
`
	var got []string
	mounts := visibleMounts(parseMounts(table), []string{"/hidden"})
	for _, m := range mounts {
		got = append(got, fmt.Sprintf("%s %s %s %v", m.id, m.point, m.fsType, m.readOnly()))
	}
	want := []string{"25 /data xfs false", `26 /home/o\x ext4 true`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func TestLayersForAUserNamespace(t *testing.T) {
	dir := tempDir(t)
	for _, d := range []string{"plain", "mounted", "deep/a", "deep/b/mounted", "deep/ro"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, dir+"/file", "")
	if err := os.Symlink("plain", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	f := fileSystems{
		all: []hostMount{
			{id: "1", point: "/", options: "rw"},
			{id: "2", point: dir + "/mounted", options: "rw"},
			{id: "3", point: dir + "/deep/b/mounted", options: "rw"},
			{id: "4", point: dir + "/deep/ro", options: "ro"},
		},
		overlayable: func(id, path string) bool { return id != "3" },
	}
	got := f.entries(dir)
	for i := range got {
		got[i].path = strings.TrimPrefix(got[i].path, dir)
	}
	want := []layer{
		{path: "/deep", kind: bareDir, mode: 0o755},
		{path: "/deep/a"},
		{path: "/deep/b", kind: bareDir, mode: 0o755},
		{path: "/deep/b/mounted", kind: bound},
		{path: "/deep/ro", kind: bound},
		{path: "/file", kind: bound},
		{path: "/link", kind: bareLink, link: "plain"},
		{path: "/mounted"},
		{path: "/plain"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(layer{})); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
}

func TestLargeDirectoriesInAUserNamespace(t *testing.T) {
	dir := tempDir(t)
	for i := range maxEntries + 1 {
		for _, parent := range []string{"plain", "tmp"} {
			if err := os.MkdirAll(fmt.Sprintf("%s/%s/%d", dir, parent, i), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(dir+"/tmp", 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	f := fileSystems{
		all:         []hostMount{{id: "1", point: "/"}, {id: "2", point: dir + "/plain/0"}, {id: "3", point: dir + "/tmp/0"}},
		overlayable: func(id, path string) bool { return true },
	}
	count := func(uid int) map[layerKind]int {
		f.uid = uid
		kinds := map[layerKind]int{}
		for _, l := range f.entries(dir) {
			kinds[l.kind]++
		}
		return kinds
	}
	// The first one is read-only; of the second one there is what belongs to the user, or else what is mounted.
	if diff := cmp.Diff(map[layerKind]int{bound: 1, bareDir: 1, overlaid: maxEntries}, count(os.Getuid())); diff != "" {
		t.Errorf("kinds of layers for the owner (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[layerKind]int{bound: 1, bareDir: 1, overlaid: 1}, count(os.Getuid()+1)); diff != "" {
		t.Errorf("kinds of layers for another user (-want +got):\n%s", diff)
	}
}

func TestCandidates(t *testing.T) {
	cases := map[string]struct {
		name string
		env  []string
		want []string
	}{
		"a path stays as it is":       {"./x", nil, []string{"./x"}},
		"PATH is searched in order":   {"x", []string{"PATH=/b:/a"}, []string{"/b/x", "/a/x"}},
		"the last PATH counts":        {"x", []string{"PATH=/b", "PATH=/a"}, []string{"/a/x"}},
		"empty entries mean nothing":  {"x", []string{"PATH=:/a:"}, []string{"/a/x"}},
		"an empty PATH finds nothing": {"x", []string{"PATH="}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := candidates(tc.name, tc.env); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := candidates("x", nil); len(got) != 6 {
		t.Errorf("without PATH: %q", got)
	}
}

// A mount below /var/run was missing where that is a link to ../run, as on many machines, and directories appeared on the host.
func TestALinkThatGoesUpToTheRootStaysInTheContainer(t *testing.T) {
	w := isolated(t)
	root, volume := filepath.Join(w.dir, "root"), filepath.Join(w.dir, "volume")
	for _, dir := range []string{root + "/run", root + "/var", volume} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../run", root+"/var/run"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, volume+"/file", "file\n")
	got := w.output("a", "cat /var/run/drover-test-link/file /run/drover-test-link/file", func(s *Spec) {
		s.Mounts = []Mount{{Source: volume, Target: "/var/run/drover-test-link"}}
		ownRoot(s, root)
	})
	if got != "file\nfile\n" {
		t.Errorf("it reads %q", got)
	}
	if fileExists("/run/drover-test-link") {
		t.Error("a directory appeared on the host")
	}
}

func TestPlacesForMounts(t *testing.T) {
	needsRoot(t)
	needsFull(t)
	inMemory := filepath.Join(tempDir(t), "memory")
	if _, err := memory.Mount(inMemory); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := memory.Unmount(inMemory); err != nil {
			t.Error(err)
		}
	})
	places := []string{"/run/drover-test/a/b", "/var/run/drover-test/a/b"}
	w := newWorld(t, Config{Isolation: Full, MemoryDir: inMemory, Places: places, Hide: []string{inMemory}})
	if w.places == "" {
		t.Fatal("they are made in each container")
	}
	volume := filepath.Join(w.dir, "volume")
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(volume, "file"), "file\n")
	if err := os.Chmod(filepath.Join(volume, "file"), 0o644); err != nil {
		t.Fatal(err)
	}
	mounted := func(target string) func(*Spec) {
		return func(s *Spec) { s.Mounts = []Mount{{Source: volume, Target: target, ReadOnly: true}} }
	}
	upper := func(id string) []os.DirEntry {
		entries, err := os.ReadDir(filepath.Join(w.scratch, id, upperDir))
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}

	for i, place := range places {
		id := fmt.Sprintf("host%d", i)
		script := "cat " + place + "/file; stat -c %d / /run /etc /etc/passwd | sort -u | wc -l; stat -c '%u %g %a' /run"
		info, err := os.Stat("/run")
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		want := fmt.Sprintf("file\n1\n%d %d %o\n", st.Uid, st.Gid, st.Mode&0o7777)
		if got := w.output(id, script, mounted(place)); got != want {
			t.Errorf("a mount at %s: %q, want %q", place, got, want)
		}
		if made := upper(id); len(made) > 0 {
			t.Errorf("a mount at %s has made %v in the container", place, made)
		}
	}
	user := func(s *Spec) { mounted(places[0])(s); s.UID, s.GID = ptr(int64(65534)), ptr(int64(65534)) }
	if got := w.output("user", "cat "+places[0]+"/file", user); got != "file\n" {
		t.Errorf("an ordinary user reads %q", got)
	}
	if got := w.output("other", "ls -d /run/drover-test /other; cat /other/file; true", mounted("/other")); got != "/other\nfile\n" {
		t.Errorf("a container without a mount there: %q", got)
	}

	roots := map[string]func(root string) error{
		"a root with neither": func(string) error { return nil },
		"a root with a link": func(root string) error {
			return errors.Join(os.MkdirAll(root+"/run", 0o750), os.MkdirAll(root+"/var", 0o755), os.Symlink("../run", root+"/var/run"))
		},
		"a root with a link somewhere else": func(root string) error {
			return errors.Join(os.MkdirAll(root+"/else", 0o755), os.MkdirAll(root+"/var", 0o755), os.Symlink("/else", root+"/var/run"))
		},
		"a root with directories":                 func(root string) error { return os.MkdirAll(root+"/var/run", 0o755) },
		"a root with something in the same place": func(root string) error { return os.MkdirAll(root+"/var/run/drover-test/a/b/c", 0o755) },
	}
	for name, build := range roots {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(tempDir(t), "root")
			if err := errors.Join(os.Mkdir(root, 0o755), build(root)); err != nil {
				t.Fatal(err)
			}
			id := strings.ReplaceAll(name, " ", "-")
			got := w.output(id, "cat /var/run/drover-test/a/b/file", func(s *Spec) { mounted(places[1])(s); ownRoot(s, root) })
			if got != "file\n" {
				t.Errorf("it reads %q", got)
			}
			if err := w.Remove(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPlacesThatCannotBeALayer(t *testing.T) {
	needsRoot(t)
	needsFull(t)
	dir := tempDir(t) // in what it would be a layer of
	w := newWorld(t, Config{Isolation: Full, MemoryDir: filepath.Join(dir, "memory"), Places: []string{"/run/drover-test"}})
	volume := filepath.Join(w.dir, "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(volume, "file"), "file\n")
	got := w.output("a", "cat /run/drover-test/file", func(s *Spec) { s.Mounts = []Mount{{Source: volume, Target: "/run/drover-test"}} })
	if got != "file\n" {
		t.Errorf("it reads %q", got)
	}
}
