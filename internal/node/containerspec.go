// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/node/env"
	"github.com/drover-dev/drover/internal/node/hostfiles"
	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/node/logs"
	"github.com/drover-dev/drover/internal/node/process"
	"github.com/drover-dev/drover/internal/node/volume"
)

// defaultPath is what an image without a PATH of its own has.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// accountPath is where the API server's admission mounts the token of a pod's service account.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// Places returns the directories at which the containers of most pods have something mounted, for process.Config. On most machines
// /var/run is a link to /run.
func Places() []string { return []string{accountPath, strings.TrimPrefix(accountPath, "/var")} }

// containerSpec says what the runtime has to start for one attempt of a container. An error is trouble with the container's
// configuration, in kubelet's words.
func (n *Node) containerSpec(ctx context.Context, pod *corev1.Pod, c *corev1.Container, img image.Image, volumes *volume.Set, id identity) (process.Spec, error) {
	spec := process.Spec{
		ID:          containerID(pod.UID, c.Name, id.attempt),
		Labels:      id.labels(),
		Dir:         c.WorkingDir,
		Root:        img.Root,
		HostPID:     pod.Spec.HostPID,
		HostIPC:     pod.Spec.HostIPC,
		Limits:      limitsOf(c),
		LogPath:     logs.Path(logs.PodDir(n.logDir, pod), c.Name, id.attempt),
		LogMaxBytes: n.cfg.LogMaxBytes,
		LogMaxFiles: n.cfg.LogMaxFiles,
		Stdin:       c.Stdin,
		TTY:         c.TTY,
	}
	if spec.Dir == "" {
		spec.Dir = img.WorkingDir
	}
	if err := n.setUser(&spec, pod, c, img); err != nil {
		return spec, err
	}
	host, domain := hostfiles.Name(pod, n.cfg.ClusterDomain)
	spec.Hostname = hostfiles.KernelName(pod, host, domain)

	vars, err := env.Build(ctx, env.Input{
		Container:  c,
		Values:     n.values(pod),
		Base:       baseEnv(img, host),
		Service:    n.serviceEnv,
		VolumeFile: volumes.File,
	}, n.objects)
	if err != nil {
		return spec, err
	}
	vars.Default("HOME", n.accounts.home(&spec))
	if c.TTY {
		vars.Default("TERM", "xterm")
	}
	spec.Env = vars.List()
	spec.Args = img.Command(vars.Expand(c.Command), vars.Expand(c.Args))

	mounts, err := volumes.Mounts(c, vars.ExpandStrict)
	if err != nil {
		return spec, err
	}
	if n.features.Isolation != process.Full {
		// The API server gives every pod this one. Nobody who writes a pod asks for it, so it is no reason to refuse the pod.
		mounts = slices.DeleteFunc(mounts, func(m volume.Mount) bool { return m.Target == accountPath })
	}
	own, err := n.ownMounts(pod, c, img, mounts, id)
	if err != nil {
		return spec, err
	}
	mounts = append(mounts, own...)
	volume.SortMounts(mounts)
	for _, m := range mounts {
		spec.Mounts = append(spec.Mounts, process.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return spec, nil
}

// baseEnv is what a container runtime sets before the pod has its say.
func baseEnv(img image.Image, host string) []string {
	base := append([]string{"PATH=" + defaultPath}, img.Env...)
	return append(base, "HOSTNAME="+host)
}

// serviceEnv are the variables by which a client in a pod finds the API server.
//
// Differs: kubelet sets variables for every Service. Nothing routes Services on this node, so they would lead nowhere.
func serviceEnv(apiServer string) map[string]string {
	host, port, err := net.SplitHostPort(apiServer)
	if err != nil {
		return nil
	}
	return map[string]string{
		"KUBERNETES_SERVICE_HOST":       host,
		"KUBERNETES_SERVICE_PORT":       port,
		"KUBERNETES_SERVICE_PORT_HTTPS": port,
	}
}

// ownMounts are the files that the node itself puts into a container: who the pod is, where its last words go, and its shell. A path that
// a volume covers is left to the volume.
//
// Where containers have no view of their own of the file system there are none: the pod did not ask for them.
func (n *Node) ownMounts(pod *corev1.Pod, c *corev1.Container, img image.Image, have []volume.Mount, id identity) ([]volume.Mount, error) {
	if n.features.Isolation != process.Full {
		return nil, nil
	}
	dir := n.volumes.PodDir(pod.UID)
	var mounts []volume.Mount
	add := func(source, target string, readOnly bool) {
		taken := slices.ContainsFunc(have, func(m volume.Mount) bool { return m.Target == target })
		if !taken {
			mounts = append(mounts, volume.Mount{Source: source, Target: target, ReadOnly: readOnly})
		}
	}
	add(filepath.Join(dir, hostsFile), "/etc/hosts", false)
	add(filepath.Join(dir, hostnameFile), "/etc/hostname", false)
	if resolv := filepath.Join(dir, resolvFile); wantsResolv(pod) {
		add(resolv, "/etc/resolv.conf", false)
	}
	if img.Shell != "" && img.Root == "" {
		if target := n.accounts.shell(img.Shell); target != "" {
			add(img.Shell, target, true)
		}
	}
	if c.TerminationMessagePath != "" {
		path := logs.MessagePath(logs.Path(logs.PodDir(n.logDir, pod), c.Name, id.attempt))
		if err := touch(path, 0o666); err != nil {
			return nil, fmt.Errorf("making the file for the termination message: %w", err)
		}
		target := c.TerminationMessagePath
		if !filepath.IsAbs(target) {
			target = "/" + target
		}
		add(path, filepath.Clean(target), false)
	}
	return mounts, nil
}

func wantsResolv(pod *corev1.Pod) bool {
	return pod.Spec.DNSPolicy == corev1.DNSNone || pod.Spec.DNSConfig != nil
}

// touch makes an empty file that a container with any user may write to, and the directory above it.
func touch(path string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// setUser sets who the container's processes are and what they may do.
func (n *Node) setUser(spec *process.Spec, pod *corev1.Pod, c *corev1.Container, img image.Image) error {
	spec.UID, spec.GID = img.UID, img.GID
	nonRoot := false
	if sc := pod.Spec.SecurityContext; sc != nil {
		override(&spec.UID, sc.RunAsUser)
		override(&spec.GID, sc.RunAsGroup)
		spec.Groups = append(spec.Groups, sc.SupplementalGroups...)
		if sc.FSGroup != nil {
			spec.Groups = append(spec.Groups, *sc.FSGroup)
		}
		nonRoot = isTrue(sc.RunAsNonRoot)
	}
	if sc := c.SecurityContext; sc != nil {
		override(&spec.UID, sc.RunAsUser)
		override(&spec.GID, sc.RunAsGroup)
		if sc.RunAsNonRoot != nil {
			nonRoot = *sc.RunAsNonRoot
		}
		spec.ReadOnlyRoot = isTrue(sc.ReadOnlyRootFilesystem)
		spec.NoNewPrivs = sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation
		if sc.Capabilities != nil {
			for _, name := range sc.Capabilities.Drop {
				spec.DropCapabilities = append(spec.DropCapabilities, string(name))
			}
			for _, name := range sc.Capabilities.Add {
				spec.AddCapabilities = append(spec.AddCapabilities, string(name))
			}
		}
		if isTrue(sc.Privileged) {
			spec.DropCapabilities, spec.AddCapabilities = nil, []string{"ALL"}
		}
	}
	if spec.UID != nil && spec.GID == nil {
		spec.GID = n.accounts.primaryGroup(*spec.UID, spec.Root)
	}
	if nonRoot {
		switch {
		case spec.UID != nil && *spec.UID == 0:
			return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", podLabel(pod), c.Name)
		case spec.UID == nil && os.Geteuid() == 0:
			return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", podLabel(pod), c.Name)
		}
	}
	return nil
}

// podLabel names a pod as kubelet does in such texts.
func podLabel(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

func override(field **int64, value *int64) {
	if value != nil {
		*field = value
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// limitsOf turns requests and limits into what the kernel can enforce.
func limitsOf(c *corev1.Container) process.Limits {
	var l process.Limits
	if cpu := c.Resources.Requests.Cpu(); !cpu.IsZero() {
		l.CPUShares = min(max(2, cpu.MilliValue()*1024/1000), 262144)
	}
	if cpu := c.Resources.Limits.Cpu(); !cpu.IsZero() {
		// Below 10 the kernel's period has no room for a slice.
		l.CPUMillis = max(10, cpu.MilliValue())
	}
	l.MemoryBytes = c.Resources.Limits.Memory().Value()
	return l
}

// userOf says in a container's status who its processes are.
func userOf(spec process.Spec) *corev1.ContainerUser {
	u := &corev1.LinuxContainerUser{UID: int64(os.Geteuid()), GID: int64(os.Getegid()), SupplementalGroups: spec.Groups}
	if spec.UID != nil {
		u.UID = *spec.UID
	}
	if spec.GID != nil {
		u.GID = *spec.GID
	}
	if len(u.SupplementalGroups) == 0 {
		u.SupplementalGroups = []int64{u.GID}
	}
	return &corev1.ContainerUser{Linux: u}
}

// graceOf returns how long the containers of a pod have to end by themselves when nothing else is said.
func graceOf(pod *corev1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 30 * time.Second
}
