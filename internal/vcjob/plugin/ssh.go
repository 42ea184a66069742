// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Keys of the data of ssh's Secret, which are the names of the files in pods.
const (
	privateKey     = "id_rsa"
	publicKey      = "id_rsa.pub"
	authorizedKeys = "authorized_keys"
	sshConfig      = "config"
)

// sshFiles are all of them.
var sshFiles = [...]string{privateKey, publicKey, authorizedKeys, sshConfig}

const (
	rootSSHPath = "/root/.ssh"
	sshPort     = 22
)

// Keys is a pair of keys in the forms that ssh reads.
type Keys struct {
	Private []byte // PEM, of type "RSA PRIVATE KEY" for those that are made
	Public  []byte // a line of authorized_keys
}

// KeysOf returns the keys that a Secret of the plugin ssh holds. ok is false where one is missing.
func KeysOf(s *corev1.Secret) (k Keys, ok bool) {
	k = Keys{Private: s.Data[privateKey], Public: s.Data[publicKey]}
	return k, len(k.Private) > 0 && len(k.Public) > 0
}

// Into puts the keys into a Secret of the plugin ssh.
func (k Keys) Into(s *corev1.Secret) {
	s.Data[privateKey], s.Data[publicKey], s.Data[authorizedKeys] = k.Private, k.Public, k.Public
}

// ssh lets the pods of a Job log in to each other: all have the same pair of keys, and know each other's names.
type ssh struct {
	job    *batch.Job
	secret string
	path   string // of the files in containers
	given  Keys   // both empty: they are made
	port   int
}

func newSSH(args []string, j *batch.Job) Plugin {
	s := &ssh{job: j, secret: j.Name + "-ssh", path: rootSSHPath, port: sshPort}
	var private, public string
	flags(args, map[string]any{
		"ssh-key-file-path": &s.path, "ssh-private-key": &private, "ssh-public-key": &public, "ssh-port": &s.port,
	})
	if !isPort(s.port) {
		s.port = sshPort
	}
	if private != "" && public != "" { // one is of no use without the other
		s.given = Keys{Private: []byte(private), Public: []byte(public)}
	}
	return s
}

// Edit implements Plugin.
//
// Differs: Volcano mounts the directory of the files. When the Secret changes, as it does here when the Job is scaled, a node
// removes the old directory and with it the files in containers that run. Files that are mounted one by one stay as they were, and
// their directory is none that others may write to, which sshd would refuse.
func (s *ssh) Edit(p Pod) error {
	if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == s.secret }) {
		source := &corev1.SecretVolumeSource{SecretName: s.secret, DefaultMode: new(int32(0o600))}
		if s.path != rootSSHPath {
			source.DefaultMode = new(int32(0o644)) // the user of the container is another
		}
		for _, name := range sshFiles {
			source.Items = append(source.Items, corev1.KeyToPath{Key: name, Path: ".ssh/" + name})
		}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: s.secret, VolumeSource: corev1.VolumeSource{Secret: source}})
	}
	eachContainer(p.Pod, func(c *corev1.Container) {
		for _, name := range sshFiles {
			target := strings.TrimSuffix(s.path, "/") + "/" + name
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == target }) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: s.secret, MountPath: target, SubPath: ".ssh/" + name})
			}
		}
	})
	return nil
}

// Objects implements Plugin.
//
// Differs: Volcano writes the list of hosts once, so that it lacks those that come when the Job is scaled; and it makes new keys
// with every restart, even of one pod, so that pods which stay cannot reach those that are new.
func (s *ssh) Objects() []Object {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.job.Namespace, Name: s.secret},
		Data:       map[string][]byte{sshConfig: []byte(s.config())},
	}
	if len(s.given.Private) > 0 {
		s.given.Into(secret)
	}
	return []Object{{Plugin: "ssh", Object: secret, NeedsKeys: len(s.given.Private) == 0}}
}

// config returns what ssh has to know of the hosts of the Job.
func (s *ssh) config() string {
	var b strings.Builder
	b.WriteString("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
	for i := range s.job.Spec.Tasks {
		for _, host := range hosts(s.job, &s.job.Spec.Tasks[i]) {
			name, _, _ := strings.Cut(host, ".")
			fmt.Fprintf(&b, "Host %s\n  HostName %s\n  Port %d\n", name, host, s.port)
		}
	}
	return b.String()
}
