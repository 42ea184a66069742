// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/node/kubeletapi"
	"github.com/drover-dev/drover/internal/node/memory"
	"github.com/drover-dev/drover/internal/node/process"
)

// realNode is a node with real processes, on an API server in memory.
type realNode struct {
	t      *testing.T
	client *fake.Clientset
	node   *Node
	rt     *process.Runtime
	dir    string
	memory string // in memory, for the small files of pods; "": they lie on disk
	stop   func()

	isolation process.Isolation
}

func newRealNode(t *testing.T, isolation process.Isolation) *realNode {
	t.Helper()
	r := &realNode{t: t, client: fake.NewClientset(), dir: t.TempDir(), memory: filepath.Join(t.TempDir(), "memory"), isolation: isolation}
	if _, err := memory.Mount(r.memory); err != nil {
		t.Logf("files of pods lie on disk: %v", err)
		r.memory = ""
	}
	numberVersions(r.client)
	r.client.PrependReactor("create", "serviceaccounts", func(a ktesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "the-token", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
		}}, nil
	})
	r.start()
	t.Cleanup(func() {
		r.stop()
		// What ran is taken away, so that nothing is left of the test.
		rt := r.newRuntime()
		for _, status := range rt.List() {
			if err := rt.Remove(context.Background(), status.Spec.ID); err != nil {
				t.Error(err)
			}
		}
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
		uids, err := r.node.volumes.Pods()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range uids {
			if err := r.node.volumes.Cleanup(uid); err != nil {
				t.Error(err)
			}
		}
		if r.memory != "" {
			if err := memory.Unmount(r.memory); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// files is where the node keeps the small files of pods; "" leaves it to the node.
func (r *realNode) files() string {
	if r.memory == "" {
		return ""
	}
	return filepath.Join(r.memory, "pods")
}

// hidden are the directories that containers are not to see.
func (r *realNode) hidden() []string {
	if r.memory == "" {
		return []string{r.dir}
	}
	return []string{r.dir, r.memory}
}

func (r *realNode) newRuntime() *process.Runtime {
	r.t.Helper()
	rt, err := process.New(process.Config{Dir: filepath.Join(r.dir, "runtime"), MemoryDir: r.memory, Places: Places(), Hide: r.hidden(), Isolation: r.isolation, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	return rt
}

func (r *realNode) start() {
	r.t.Helper()
	r.rt = r.newRuntime()
	n, err := New(Config{Name: "n", Dir: filepath.Join(r.dir, "node"), FilesDir: r.files(), APIClients: []string{"x"}, Heartbeat: time.Hour, APIServer: "127.0.0.1:6443"}, r.client, r.rt, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	r.node = n
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
		if err := r.rt.Close(); err != nil {
			r.t.Error(err)
		}
	}
	select {
	case <-n.Ready():
	case <-time.After(30 * time.Second):
		r.t.Fatal("the node is not ready after 30s")
	}
}

func (r *realNode) create(objects ...runtime.Object) {
	r.t.Helper()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Pod:
			_, err = r.client.CoreV1().Pods("ns").Create(context.Background(), o, metav1.CreateOptions{})
		case *corev1.ConfigMap:
			_, err = r.client.CoreV1().ConfigMaps("ns").Create(context.Background(), o, metav1.CreateOptions{})
		case *corev1.Secret:
			_, err = r.client.CoreV1().Secrets("ns").Create(context.Background(), o, metav1.CreateOptions{})
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// await waits until a pod is as wanted and returns it.
func (r *realNode) await(name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	r.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		pod, err := r.client.CoreV1().Pods("ns").Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && ok(pod) {
			return pod
		}
		select {
		case <-deadline:
			r.t.Fatalf("after 60s pod %s is not %s: %v, %+v", name, what, err, pod)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (r *realNode) awaitPhase(name string, phase corev1.PodPhase) *corev1.Pod {
	r.t.Helper()
	return r.await(name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

func (r *realNode) log(name, container string) string {
	r.t.Helper()
	pod, ok := r.node.Pod("ns", name)
	if !ok {
		r.t.Fatalf("pod %s is gone", name)
	}
	var out bytes.Buffer
	if err := r.node.Log(context.Background(), pod, container, &corev1.PodLogOptions{}, &out, &out); err != nil {
		r.t.Fatal(err)
	}
	return out.String()
}

func script(pod *corev1.Pod, text string) *corev1.Pod {
	pod.Spec.Containers[0].Command = []string{"sh", "-c", text}
	return pod
}

// isolated reports whether containers have a view of their own of the file system here. Where they have not, what needs that fails, and
// the cases about it say so.
func (r *realNode) isolated() bool { return r.rt.Features().Isolation == process.Full }

func TestAProcessReadsItsEnvironment(t *testing.T) {
	r := newRealNode(t, process.Auto)
	r.create(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"FROM_CM": "1", "key": "of-cm"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sec"}, Data: map[string][]byte{"FROM_SECRET": []byte("2"), "key": []byte("of-secret")}},
	)
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod := script(newPod("p", never, "c: x"), `env | grep -v -e ^SHLVL= -e ^PWD= -e ^_= | sort; echo "args $0 $1"; pwd`)
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.ServiceAccountName = "robot"
	c := &pod.Spec.Containers[0]
	c.Args = []string{"$(PLAIN)", "$$(PLAIN)"}
	c.WorkingDir = "/tmp"
	c.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
	c.EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("cm")}},
		{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("sec")}},
	}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	c.Env = []corev1.EnvVar{
		{Name: "PLAIN", Value: "plain"},
		{Name: "REFERS", Value: "$(PLAIN)-$(FROM_CM)-$(KUBERNETES_SERVICE_PORT)"},
		{Name: "KEY_CM", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("cm"), Key: "key"}}},
		{Name: "KEY_SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("sec"), Key: "key"}}},
		{Name: "NAME", ValueFrom: field("metadata.name")},
		{Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
		{Name: "NODE", ValueFrom: field("spec.nodeName")},
		{Name: "ACCOUNT", ValueFrom: field("spec.serviceAccountName")},
		{Name: "IP", ValueFrom: field("status.podIP")},
		{Name: "LIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
		{Name: "HOME", Value: "/nowhere"},
	}
	r.create(pod)
	r.awaitPhase("p", corev1.PodSucceeded)
	want := `ACCOUNT=robot
FROM_CM=1
HOME=/nowhere
HOSTNAME=p
IP=127.0.0.1
KEY_CM=of-cm
KEY_SECRET=of-secret
KUBERNETES_SERVICE_HOST=127.0.0.1
KUBERNETES_SERVICE_PORT=6443
KUBERNETES_SERVICE_PORT_HTTPS=6443
LABEL=web
LIMIT=64
NAME=p
NODE=n
PATH=` + defaultPath + `
PLAIN=plain
REFERS=plain-1-6443
S_FROM_SECRET=2
S_key=of-secret
key=of-cm
args plain $(PLAIN)
/tmp
`
	check(t, "output", want, r.log("p", "c"))
}

func TestAProcessReadsItsVolumes(t *testing.T) {
	r := newRealNode(t, process.Auto)
	if !r.isolated() {
		checkRefusal(r)
		return
	}
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "file"), []byte("of the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.create(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"run.sh": "#!/bin/sh\necho ran\n", "plain": "text\n"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sec"}, Data: map[string][]byte{"pass": []byte("s3cret\n")}},
	)
	executable, private := int32(0o755), int32(0o400)
	local := corev1.LocalObjectReference{Name: "cm"}
	pod := script(newPod("p", never, "c: x"), `
		/cm/run.sh; stat -L -c %a /cm/run.sh
		cat /sec/pass; stat -L -c %a /sec/pass
		cat /downward/labels; echo
		cat /projected/token; echo; cat /projected/ns; echo; cat /projected/plain
		cat /host/file; echo changed > /host/file
		echo kept > /scratch/a; cat /memory/from-init; stat -f -c %T /memory
		cat /sub/inner; ls /whole; cat /one-file
		for d in /cm /sec /projected /readonly; do touch $d/x 2>/dev/null && echo "wrote to $d"; done
		cat /etc/hosts | tail -n 1; cat /etc/hostname; hostname
		echo last words > /dev/termination-log
	`)
	pod.Labels = map[string]string{"l": "v"}
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "init", Image: "busybox", Command: []string{"sh", "-c", "echo from init > /m/from-init; mkdir -p /s/deep; echo inner > /s/deep/inner"},
		VolumeMounts: []corev1.VolumeMount{{Name: "memory", MountPath: "/m"}, {Name: "scratch", MountPath: "/s"}},
	}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "cm", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local, DefaultMode: &executable}}},
		{Name: "sec", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "sec", DefaultMode: &private}}},
		{Name: "downward", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}},
		{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local, Items: []corev1.KeyToPath{{Key: "plain", Path: "plain"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "ns", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "cm", MountPath: "/cm"},
		{Name: "cm", MountPath: "/one-file", SubPath: "plain"},
		{Name: "sec", MountPath: "/sec"},
		{Name: "downward", MountPath: "/downward"},
		{Name: "projected", MountPath: "/projected"},
		{Name: "host", MountPath: "/host"},
		{Name: "host", MountPath: "/readonly", ReadOnly: true},
		{Name: "scratch", MountPath: "/scratch"},
		{Name: "scratch", MountPath: "/sub", SubPath: "deep"},
		{Name: "scratch", MountPath: "/whole"},
		{Name: "memory", MountPath: "/memory"},
	}
	r.create(pod)
	ended := r.awaitPhase("p", corev1.PodSucceeded)
	medium := "tmpfs"
	if os.Geteuid() != 0 {
		medium = "ext2/ext3" // only root can mount a tmpfs on the host
	}
	want := `ran
755
s3cret
400
l="v"
the-token
ns
text
of the host
from init
` + medium + `
inner
a
deep
text
127.0.0.1	p
p
p
`
	got := r.log("p", "c")
	if os.Geteuid() != 0 {
		got = strings.Replace(got, got[strings.Index(got, "from init\n")+10:strings.Index(got, "\ninner")], medium, 1)
	}
	check(t, "output", want, got)
	check(t, "termination message", "last words\n", ended.Status.ContainerStatuses[0].State.Terminated.Message)
	if b, err := os.ReadFile(filepath.Join(host, "file")); err != nil || string(b) != "changed\n" {
		t.Errorf("file of the host: %q, %v", b, err)
	}
	r.awaitNoFiles("uid-p")
}

// awaitNoFiles waits until nothing is left of a finished pod but its log.
func (r *realNode) awaitNoFiles(uid string) {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			r.t.Fatal(err)
		}
		_, errPods := os.Stat(filepath.Join(r.dir, "node", "pods", uid))
		_, errFiles := os.Stat(filepath.Join(r.files(), uid)) // without memory they lie with the former
		left := len(r.rt.List())
		if os.IsNotExist(errPods) && os.IsNotExist(errFiles) && left == 0 && !bytes.Contains(mounts, []byte(r.dir)) {
			return
		}
		select {
		case <-deadline:
			r.t.Fatalf("10s after its end: directories %v and %v, %d containers, mounts:\n%s", errPods, errFiles, left, mounts)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestAMachineThatCannotIsolate(t *testing.T) {
	checkRefusal(newRealNode(t, process.None))
}

// checkRefusal shows what a machine without isolation does with a volume: the pod waits, and its status says why.
func checkRefusal(r *realNode) {
	r.t.Helper()
	pod := newPod("p", never, "c: true")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	account := newPod("account", never, "c: true")
	account.Spec.Volumes = pod.Spec.Volumes
	account.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: accountPath}}
	r.create(pod, account)
	r.awaitPhase("account", corev1.PodSucceeded)
	r.await("p", "refused", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "not possible here")
	})
}

func TestRealContainersEndWithTheirTrueCodes(t *testing.T) {
	r := newRealNode(t, process.Auto)
	cases := map[string]struct{ script, want string }{
		"zero":    {"exit 0", "Completed 0"},
		"seven":   {"exit 7", "Error 7"},
		"killed":  {"sh -c 'kill -9 $PPID'; sleep 9", "Error 137"},
		"missing": {"exec frobnicate", "Error 127"},
	}
	for name, tc := range cases {
		r.create(script(newPod(name, never, "c: x"), tc.script))
	}
	r.create(newPod("nocommand", never, "c: frobnicate"))
	cases["nocommand"] = struct{ script, want string }{"", "StartError 128"}
	for name, tc := range cases {
		pod := r.await(name, "over", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		})
		check(t, name, tc.want, state(pod, "c"))
		if t.Failed() {
			t.Logf("%s: %+v\nlog: %s", name, pod.Status.ContainerStatuses[0].State.Terminated, r.log(name, "c"))
		}
	}
}

func TestARealContainerIsAskedToEndAndThenKilled(t *testing.T) {
	r := newRealNode(t, process.Auto)
	listens := script(newPod("listens", always, "c: x"), `trap 'echo heard; exit 3' TERM; echo up; while :; do sleep 0.05; done`)
	deaf := script(newPod("deaf", always, "c: x"), `trap '' TERM; echo up; while :; do sleep 0.05; done`)
	r.create(listens, deaf)
	for _, name := range []string{"listens", "deaf"} {
		r.awaitPhase(name, corev1.PodRunning)
		r.awaitLog(name, "up\n")
		pod, err := r.client.CoreV1().Pods("ns").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		grace := int64(1)
		now := metav1.NewTime(time.Now().Add(time.Second))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
		if _, err := r.client.CoreV1().Pods("ns").Update(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"listens": "Error 3", "deaf": "Error 137"} {
		deadline := time.After(30 * time.Second)
		for {
			if last := lastWritten(r.client, name); last != nil && state(last, "c") == want {
				break
			}
			select {
			case <-deadline:
				t.Fatalf("after 30s %s is %+v", name, lastWritten(r.client, name))
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func (r *realNode) awaitLog(name, want string) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for r.log(name, "c") != want {
		select {
		case <-deadline:
			r.t.Fatalf("after 30s the log of %s is %q", name, r.log(name, "c"))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func lastWritten(client *fake.Clientset, name string) *corev1.Pod {
	var last *corev1.Pod
	for _, a := range client.Actions() {
		if u, ok := a.(ktesting.UpdateAction); ok && a.GetSubresource() == "status" {
			if pod, ok := u.GetObject().(*corev1.Pod); ok && pod.Name == name {
				last = pod
			}
		}
	}
	return last
}

func TestRealContainersGoOnWhileTheNodeIsAway(t *testing.T) {
	r := newRealNode(t, process.Auto)
	gate := filepath.Join(t.TempDir(), "gate")
	ends := script(newPod("ends", never, "c: x"), fmt.Sprintf(`echo up; while [ ! -e %s ]; do sleep 0.05; done; exit 5`, gate))
	stays := script(newPod("stays", never, "c: x"), `echo up; exec sleep 1000`)
	if r.isolated() {
		// The gate is outside of what the container sees of the host.
		for _, pod := range []*corev1.Pod{ends} {
			pod.Spec.Volumes = []corev1.Volume{{Name: "gate", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Dir(gate)}}}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "gate", MountPath: filepath.Dir(gate)}}
		}
	}
	r.create(ends, stays)
	r.awaitPhase("ends", corev1.PodRunning)
	r.awaitPhase("stays", corev1.PodRunning)
	r.awaitLog("stays", "up\n")
	before := pidOf(r, "uid-stays.c.0")
	r.stop()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	ended := r.awaitPhase("ends", corev1.PodFailed)
	check(t, "the one that ended", "Error 5", state(ended, "c"))
	if after := pidOf(r, "uid-stays.c.0"); after != before || after == 0 {
		t.Errorf("the one that stays had process %d and has %d", before, after)
	}
	check(t, "restarts of the one that ended", int32(0), ended.Status.ContainerStatuses[0].RestartCount)
}

func pidOf(r *realNode, id string) int {
	status, _ := r.rt.Status(id)
	return status.PID
}

func TestExecAndAttachInARealContainer(t *testing.T) {
	r := newRealNode(t, process.Auto)
	pod := script(newPod("p", never, "c: x"), `echo up; while read line; do echo "got $line"; done; echo end`)
	pod.Spec.Containers[0].Stdin, pod.Spec.Containers[0].StdinOnce = true, true
	r.create(pod)
	r.awaitPhase("p", corev1.PodRunning)
	r.awaitLog("p", "up\n")
	running, _ := r.node.Pod("ns", "p")

	var out, errOut bytes.Buffer
	err := r.node.Exec(context.Background(), running, "c", []string{"sh", "-c", "cat; echo oops >&2; exit 9"}, kubeletapi.Streams{
		Stdin: strings.NewReader("typed\n"), Stdout: &out, Stderr: &errOut,
	})
	if err == nil || err.Error() != "command terminated with exit code 9" || out.String() != "typed\n" || errOut.String() != "oops\n" {
		t.Errorf("exec: %v, stdout %q, stderr %q", err, out.String(), errOut.String())
	}
	if err := r.node.Exec(context.Background(), running, "none", []string{"true"}, kubeletapi.Streams{}); err == nil || err.Error() != `container not found ("none")` {
		t.Errorf("exec in a container that does not exist: %v", err)
	}
	// The input of a container with stdinOnce ends with the first one who attaches.
	out.Reset()
	if err := r.node.Attach(context.Background(), running, "c", kubeletapi.Streams{Stdin: strings.NewReader("one\ntwo\n"), Stdout: &out, Stderr: &out}); err != nil {
		t.Fatal(err)
	}
	check(t, "attached", "got one\ngot two\nend\n", out.String())
	r.awaitPhase("p", corev1.PodSucceeded)
}

func TestAShellThatKnowsWhatBusyboxKnows(t *testing.T) {
	r := newRealNode(t, process.Auto)
	if _, err := os.Stat("/bin/bash"); err != nil || !r.isolated() {
		img, _, err := image.Defaults().Lookup("busybox")
		if err != nil {
			t.Fatal(err)
		}
		check(t, "what would stand in", "/bin/bash", img.Shell)
		return
	}
	r.create(script(newPod("p", never, "c: x"), `[[ -n "$RANDOM" ]] && echo yes`))
	r.awaitPhase("p", corev1.PodSucceeded)
	check(t, "output", "yes\n", r.log("p", "c"))
}

func TestSecretsStayInMemory(t *testing.T) {
	r := newRealNode(t, process.Auto)
	if r.memory == "" || !r.isolated() {
		t.Skip("only root can mount a tmpfs on the host")
	}
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sec"}, Data: map[string][]byte{"pass": []byte("s3cret-text")}})
	pod := script(newPod("p", never, "c: x"), `cat /sec/pass > /dev/null; stat -f -c %T /sec /etc/hosts; exec sleep 1000`)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "sec", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "sec"}}},
		{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "sec", MountPath: "/sec"}, {Name: "token", MountPath: accountPath}}
	r.create(pod)
	r.awaitPhase("p", corev1.PodRunning)
	r.awaitLog("p", "tmpfs\ntmpfs\n")
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("s3cret-text")) || bytes.Contains(text, []byte("the-token")) {
			t.Errorf("%s holds a secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
