// SPDX-License-Identifier: Apache-2.0

// Package integration tests the built binary as a child process.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

func TestEverythingInTheDataDirectoryIsPrivate(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	err := filepath.WalkDir(p.Dir, func(path string, entry fs.DirEntry, err error) error {
		if path == filepath.Join(p.Dir, "node", "memory", "places") {
			return filepath.SkipDir // empty directories, which users of containers must get at as part of their root
		}
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the plane runs, and replaces files by new ones
		}
		if err != nil {
			return err
		}
		// A socket can be reached only through its directory, whatever its own mode is.
		if mode := info.Mode(); mode&fs.ModeSocket == 0 && mode.Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, mode)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPlaneListensOnLoopbackAlone(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	addresses := listening(t, p.PID())
	if len(addresses) == 0 {
		t.Error("it listens nowhere: the test does not see what it should")
	}
	for _, address := range addresses {
		if !address.IP.IsLoopback() {
			t.Errorf("it listens on %s", address.String())
		}
	}
}

// listening returns the TCP addresses that a process listens on.
func listening(t *testing.T, pid int) []net.TCPAddr {
	t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && strings.HasPrefix(link, "socket:[") {
			own[strings.Trim(link, "socket:[]")] = true
		}
	}
	var found []net.TCPAddr
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			// sl, local address, remote address, state (0A: listening), ..., inode
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == "0A" && own[fields[9]] {
				found = append(found, parseHex(t, fields[1]))
			}
		}
	}
	return found
}

// parseHex reads an address in the kernel's form: four bytes at a time with the last one first, and the port.
func parseHex(t *testing.T, text string) net.TCPAddr {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	var ip net.IP
	for word := 0; word < len(host); word += 8 {
		for at := 6; at >= 0; at -= 2 {
			b, err := strconv.ParseUint(host[word+at:word+at+2], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			ip = append(ip, byte(b))
		}
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	return net.TCPAddr{IP: ip, Port: int(number)}
}

func TestRightsAreThoseOfRBAC(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	client := p.Client()

	t.Run("a service account may not list secrets", func(t *testing.T) {
		token, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", tokenRequest(), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(p.Config)
		config.BearerToken = token.Status.Token
		account, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := account.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing secrets: %v, want that it is forbidden", err)
		}
		reviews := account.AuthorizationV1().SelfSubjectRulesReviews()
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}
		if _, err := reviews.Create(t.Context(), review, metav1.CreateOptions{}); err != nil {
			t.Errorf("asking for its own rights: %v", err)
		}
	})
	t.Run("somebody without a name may not even see what there is", func(t *testing.T) {
		nobody, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(p.Config))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nobody.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing namespaces: %v, want that it is forbidden", err)
		}
	})
	t.Run("the role edit has rights: its rules are aggregated", func(t *testing.T) {
		poll(t, func(ctx context.Context) error {
			role, err := client.RbacV1().ClusterRoles().Get(ctx, "edit", metav1.GetOptions{})
			if err == nil && len(role.Rules) == 0 {
				err = errors.New("it has no rules")
			}
			return err
		})
	})
}

func TestQuotaIsEnforcedAndCounted(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	client := p.Client()
	namespace := newNamespace(t, client, "quota")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "one-pod"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: one},
	}}
	if _, err := client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(want int64) {
		t.Helper()
		poll(t, func(ctx context.Context) error {
			quota, err := client.CoreV1().ResourceQuotas(namespace).Get(ctx, "one-pod", metav1.GetOptions{})
			if err != nil {
				return err
			}
			used, counted := quota.Status.Used[corev1.ResourcePods]
			if !counted || used.Value() != want {
				return fmt.Errorf("used %v (counted: %v), want %d", used.String(), counted, want)
			}
			return nil
		})
	}
	used(0)
	poll(t, func(ctx context.Context) error { return createPod(ctx, client, namespace, "first") }) // waits for its service account
	if err := createPod(t.Context(), client, namespace, "second"); !apierrors.IsForbidden(err) {
		t.Errorf("a second pod: %v, want that it is forbidden", err)
	}
	zero := int64(0)
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	used(0)
}

// What Kubernetes' own controllers do for everybody, and Jobs rely on.
func TestTheControllersOfTheAPIRun(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	client := p.Client()
	namespace := newNamespace(t, client, "garbage")

	t.Run("a namespace gets a service account and the authority's certificate", func(t *testing.T) {
		poll(t, func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
		poll(t, func(ctx context.Context) error {
			configMap, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && configMap.Data["ca.crt"] != string(p.Config.CAData) {
				err = errors.New("it holds another certificate")
			}
			return err
		})
	})
	t.Run("what belongs to something goes with it", func(t *testing.T) {
		api := client.CoreV1().ConfigMaps(namespace)
		owner, err := api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID},
		}}}
		if _, err := api.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		background := metav1.DeletePropagationBackground
		if err := api.Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Fatal(err)
		}
		poll(t, func(ctx context.Context) error { return gone(api.Get(ctx, "owned", metav1.GetOptions{})) })
	})
	t.Run("a claim that nothing uses can be deleted", func(t *testing.T) {
		api := client.CoreV1().PersistentVolumeClaims(namespace)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: one}},
		}}
		if _, err := api.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := api.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		poll(t, func(ctx context.Context) error { return gone(api.Get(ctx, "c", metav1.GetOptions{})) })
	})
	t.Run("a namespace goes with everything in it", func(t *testing.T) {
		api := client.CoreV1().Namespaces()
		if err := api.Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		poll(t, func(ctx context.Context) error { return gone(api.Get(ctx, namespace, metav1.GetOptions{})) })
	})
}

func TestKillMinusNineKeepsTheData(t *testing.T) {
	o := plane.Options{Dir: filepath.Join(t.TempDir(), "plane"), Durable: true}
	p := plane.Start(t, o)
	server := p.Config.Host
	for round := range 3 {
		name := fmt.Sprintf("round-%d", round)
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := p.Client().CoreV1().ConfigMaps("default").Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		killed := p.PID()
		p.Kill()
		p = plane.Start(t, o)
		if want := fmt.Sprintf("process %d, has not ended well", killed); !strings.Contains(p.Output(), want) {
			t.Errorf("it does not say %q:\n%s", want, p.Output())
		}
		if p.Config.Host != server {
			t.Errorf("the API server is on %s after %s: the kubeconfig is no longer good", p.Config.Host, server)
		}
		for earlier := range round + 1 {
			if _, err := p.Client().CoreV1().ConfigMaps("default").Get(t.Context(), fmt.Sprintf("round-%d", earlier), metav1.GetOptions{}); err != nil {
				t.Errorf("after kill %d: %v", round, err)
			}
		}
	}
}

func TestWhatPodsAreShownIsInMemoryWhileTheyRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	o := plane.Options{Dir: filepath.Join(t.TempDir(), "plane"), Durable: true}
	want := func(when string, mounted bool) {
		t.Helper()
		if mounts := mountsBelow(t, o.Dir); len(mounts) > 0 != mounted || len(mounts) > 1 {
			t.Errorf("%s: mounted are %v", when, mounts)
		}
	}
	p := plane.Start(t, o)
	want("while a plane runs", true)
	pods := func() typedcorev1.PodInterface { return p.Client().CoreV1().Pods("default") }
	poll(t, func(ctx context.Context) error { // until there is an account for it
		_, err := pods().Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "busybox", Command: []string{"sleep", "1000"}}},
		}}, metav1.CreateOptions{})
		return err
	})
	running := func(ctx context.Context) error {
		pod, err := pods().Get(ctx, "p", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("the pod is %s", pod.Status.Phase)
		}
		return err
	}
	poll(t, running)
	files := func() []string {
		found, err := filepath.Glob(filepath.Join(o.Dir, "node", "memory", "pods", "*", "hostname"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := files()
	p.Kill()
	want("after kill -9", true)
	if diff := cmp.Diff(before, files()); diff != "" || len(before) != 1 {
		t.Errorf("files of the pod after kill -9 (-before +after):\n%s", diff)
	}
	p = plane.Start(t, o)
	poll(t, running)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	want("after a stop, with a pod that goes on running", true)
	p = plane.Start(t, o)
	want("in the next run", true)
	if err := pods().Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	poll(t, func(context.Context) error {
		if left := files(); len(left) > 0 {
			return fmt.Errorf("files %v are there", left)
		}
		return nil
	})
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	want("after the last stop", false)
}

// The moments at which a start writes things for the first time.
func TestKillMinusNineWhileStarting(t *testing.T) {
	o := plane.Options{Dir: filepath.Join(t.TempDir(), "plane"), Durable: true}
	for delay := 100 * time.Millisecond; delay < 2*time.Second; delay += 317 * time.Millisecond {
		p := plane.Launch(t, o)
		_ = p.Wait(delay) // it goes on: that is the point
		p.Kill()
	}
	p := plane.Start(t, o)
	if _, err := p.Client().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestASecondPlaneInADirectory(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	text := fails(t, plane.Command(t, "--data-dir", p.Dir, "up", "--ephemeral"))
	if want := fmt.Sprintf("process %d has a plane running in %s", p.PID(), p.Dir); !strings.Contains(text, want) {
		t.Errorf("it says %q, want %q", text, want)
	}
	if _, err := p.Client().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the first one is disturbed: %v", err)
	}
}

func TestAPortThatSomebodyHas(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	dir := filepath.Join(t.TempDir(), "plane")
	text := fails(t, plane.Command(t, "--data-dir", dir, "up", "--port", port))
	if want := "port " + port + " is taken by another process"; !strings.Contains(text, want) {
		t.Errorf("it says %q, want %q", text, want)
	}
}

func TestDataOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "drover.json")
	const content = `{"version": 99}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fails(t, plane.Command(t, "--data-dir", dir, "up"))
	if want := "it has data of version 99"; !strings.Contains(text, want) {
		t.Errorf("it says %q, want %q", text, want)
	}
	entries, err := os.ReadDir(dir)
	if data, _ := os.ReadFile(path); err != nil || len(entries) != 1 || string(data) != content {
		t.Errorf("the directory has been touched: %v, %q, %v", entries, data, err)
	}
}

func TestDisksThatCannotBeWrittenTo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	mount := func(t *testing.T, args ...string) string {
		t.Helper()
		dir := t.TempDir()
		if out, err := exec.Command("mount", append(args, dir)...).CombinedOutput(); err != nil {
			t.Skipf("mounting does not work here: %s", out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
				t.Errorf("unmounting %s: %s", dir, out)
			}
		})
		return dir
	}
	t.Run("read-only", func(t *testing.T) {
		dir := mount(t, "-t", "tmpfs", "-o", "ro", "none")
		text := fails(t, plane.Command(t, "--data-dir", filepath.Join(dir, "plane"), "up"))
		if want := "its file system is read-only"; !strings.Contains(text, want) {
			t.Errorf("it says %q, want %q", text, want)
		}
	})
	t.Run("full", func(t *testing.T) {
		dir := mount(t, "-t", "tmpfs", "-o", "size=64k", "none")
		if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 60<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		text := fails(t, plane.Command(t, "--data-dir", filepath.Join(dir, "plane"), "up"))
		if want := "its disk is full"; !strings.Contains(text, want) {
			t.Errorf("it says %q, want %q", text, want)
		}
	})
	t.Run("too small for a start", func(t *testing.T) {
		dir := mount(t, "-t", "tmpfs", "-o", "size=100m", "none")
		text := fails(t, plane.Command(t, "--data-dir", filepath.Join(dir, "plane"), "up"))
		if want := "a plane needs 128 MiB to start"; !strings.Contains(text, want) {
			t.Errorf("it says %q, want %q", text, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "plane")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory is left (%v)", err)
		}
	})
	t.Run("full later", func(t *testing.T) {
		dir := mount(t, "-t", "tmpfs", "-o", "size=160m", "none")
		p := plane.Start(t, plane.Options{Dir: filepath.Join(dir, "plane"), Durable: true})
		fill, err := os.Create(filepath.Join(dir, "fill"))
		if err != nil {
			t.Fatal(err)
		}
		for block := make([]byte, 1<<20); err == nil; {
			_, err = fill.Write(block)
		}
		if err := fill.Close(); err != nil {
			t.Fatal(err)
		}
		// The store has its log allocated in advance, so it takes a while to notice.
		data := map[string]string{"text": strings.Repeat("x", 512<<10)}
		for i := 0; ; i++ {
			configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}, Data: data}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := p.Client().CoreV1().ConfigMaps("default").Create(ctx, configMap, metav1.CreateOptions{})
			cancel()
			if err != nil {
				break
			}
		}
		err = p.Wait(30 * time.Second)
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
			t.Errorf("it has ended with %v, want exit code 1", err)
		}
		if !strings.Contains(p.Output(), "its disk is full") || strings.Count(p.Output(), "no space left") != 1 {
			t.Errorf("it does not say, once, that the disk is full:\n%s", p.Output())
		}
		// Room helps, and nothing that was stored is lost.
		if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
			t.Fatal(err)
		}
		again := plane.Start(t, plane.Options{Dir: p.Dir, Durable: true})
		if _, err := again.Client().CoreV1().ConfigMaps("default").Get(t.Context(), "c-0", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestDetachStatusDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plane")
	down := func() string {
		out, err := plane.Command(t, "--data-dir", dir, "down").CombinedOutput()
		if err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
		return string(out)
	}
	t.Cleanup(func() { down() })

	wantStatus(t, dir, 3, func(s status) bool { return !s.Running })

	started := time.Now()
	out, err := plane.Command(t, "--data-dir", dir, "up", "--detach").CombinedOutput()
	if err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	for _, want := range []string{"Ready after", "kubectl get nodes", "down stops it"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("up says nothing of %q:\n%s", want, out)
		}
	}
	s := wantStatus(t, dir, 0, func(s status) bool { return s.Running && s.Answers && s.Phase == "Ready" })
	if s.Since.Before(started.Add(-time.Second)) || s.Since.After(time.Now()) || s.DataBytes == 0 {
		t.Errorf("status %+v, want one since %s", s, started)
	}
	if group, err := syscall.Getpgid(s.PID); err != nil || group != s.PID {
		t.Errorf("process %d is in group %d (%v): Ctrl-C in a shell would end it", s.PID, group, err)
	}

	if text := down(); !strings.Contains(text, "Stopped the plane") {
		t.Errorf("down says %q", text)
	}
	// It may be left as a zombie, where nobody looks after orphans.
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID)); err == nil && !bytes.Contains(stat, []byte(") Z ")) {
		t.Errorf("process %d is still there: %s", s.PID, stat)
	}
	wantStatus(t, dir, 3, func(s status) bool { return !s.Running && s.Phase == "Stopped" })
	if text := down(); !strings.Contains(text, "No plane is running") {
		t.Errorf("a second down says %q", text)
	}
}

func TestDetachReportsWhyTheStartFailed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plane")
	text := fails(t, plane.Command(t, "--data-dir", dir, "up", "--detach", "--feature-gates", "NoSuchGate=true"))
	if want := "unrecognized feature gate: NoSuchGate"; !strings.Contains(text, want) {
		t.Errorf("it says %q, want %q", text, want)
	}
	if strings.Count(text, "Error:") != 1 {
		t.Errorf("it says more than once that it has failed:\n%s", text)
	}
}

func TestASocketPathThatIsTooLong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30), "plane")
	p := plane.Start(t, plane.Options{Dir: dir})
	if _, err := p.Client().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestFeatureGatesSwitchWhatTheyNeed(t *testing.T) {
	p := plane.Start(t, plane.Options{Args: []string{"--feature-gates", "WorkloadWithJob=true"}})
	resources, err := p.Client().Discovery().ServerResourcesForGroupVersion("scheduling.k8s.io/v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, resource := range resources.APIResources {
		have[resource.Name] = true
	}
	if !have["podgroups"] || !have["workloads"] {
		t.Errorf("scheduling.k8s.io/v1beta1 has %v, want podgroups and workloads", have)
	}
}

// status is the part of "drover status -o json" that the tests look at.
type status struct {
	Running   bool      `json:"running"`
	Phase     string    `json:"phase"`
	PID       int       `json:"pid"`
	Since     time.Time `json:"since"`
	Answers   bool      `json:"answers"`
	DataBytes int64     `json:"dataBytes"`
}

func wantStatus(t *testing.T, dir string, code int, good func(status) bool) status {
	t.Helper()
	out, err := plane.Command(t, "--data-dir", dir, "status", "-o", "json").Output()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	var s status
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if got != code || !good(s) {
		t.Errorf("exit code %d with %s, want %d", got, out, code)
	}
	return s
}

// fails runs a command that must end with exit code 1 soon, and returns what it says.
func fails(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("%s ended with %v, want exit code 1\n%s", cmd.Args, err, &out)
	}
	return out.String()
}

func newNamespace(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}
	made, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Name
}

func createPod(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName:   "nobody", // nobody runs it
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
	_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// gone returns nil if the object that was asked for is not there.
func gone[T any](_ T, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it is still there")
	}
	return err
}

// poll waits until what works.
func poll(t *testing.T, what func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		last = what(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Errorf("after half a minute: %v", last)
	}
}
