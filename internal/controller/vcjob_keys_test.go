// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/simulate"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

func TestNewSSHKeysBelongTogether(t *testing.T) {
	keys, err := newSSHKeys()
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(keys.Private)
	if block == nil || block.Type != "RSA PRIVATE KEY" || len(rest) > 0 {
		t.Fatalf("the private key is no PEM: %v", block)
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil || key.N.BitLen() != 2048 {
		t.Fatalf("the private key: %v", err)
	}
	text, ended := strings.CutSuffix(string(keys.Public), "\n")
	algorithm, blob, _ := strings.Cut(text, " ")
	wire, err := base64.StdEncoding.DecodeString(blob)
	if err != nil || !ended || algorithm != "ssh-rsa" {
		t.Fatalf("the line is %q: %v", keys.Public, err)
	}
	var fields [][]byte
	for len(wire) > 4 {
		n := int(big.NewInt(0).SetBytes(wire[:4]).Int64())
		fields, wire = append(fields, wire[4:4+n]), wire[4+n:]
	}
	want := [][]byte{[]byte("ssh-rsa"), big.NewInt(int64(key.E)).Bytes(), append([]byte{0}, key.N.Bytes()...)}
	if len(wire) > 0 || len(fields) != 3 || !bytes.Equal(bytes.Join(fields, nil), bytes.Join(want, nil)) {
		t.Errorf("fields of the public key: %x, want %x", fields, want)
	}
}

// sshSecret returns the data of the stored Secret.
func (w *vcWorld) sshSecret() map[string]string {
	w.t.Helper()
	secret := simulate.Find(w.cluster, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-ssh"}})
	if secret == nil {
		return nil
	}
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data
}

func TestAJobKeepsItsKeysWhileItGoesOn(t *testing.T) {
	w := newVCWorld(t, VCJobConfig{})
	w.submit(vcJob(vcTask("t", 2), vcPolicy("PodFailed", "RestartTask"), vcPolicy("PodEvicted", "RestartJob"), func(j *batch.Job) {
		j.Spec.MaxRetry, j.Spec.Plugins = 9, map[string][]string{"ssh": {}}
	}))
	goOn := func() {
		for range 3 {
			w.settle()
			w.kubelet()
			w.admit()
			w.settle()
			w.startAll()
		}
		w.settle()
		if w.phase() != batch.Running {
			t.Fatalf("the Job is %s", w.phase())
		}
	}
	const first = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nHost j-t-0\n  HostName j-t-0.j\n  Port 22\nHost j-t-1\n  HostName j-t-1.j\n  Port 22\n"
	want := map[string]string{"id_rsa": "private 1", "id_rsa.pub": "public 1", "authorized_keys": "public 1", "config": first}
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, w.sshSecret()); diff != "" {
			t.Errorf("Secret %s (-want +got):\n%s", when, diff)
		}
	}
	goOn()
	check("of the running Job")
	w.cluster.Finish(w.mustPod("t", 0), 1)
	goOn()
	check("after a restart of the task")
	w.cluster.EvictPod(w.mustPod("t", 1), 0)
	goOn()
	check("after a restart of the Job")
	w.start()
	goOn()
	check("after a restart of the controller")
	resize := func(n int32) {
		w.edit(func(j *batch.Job) {
			j.Spec.MinAvailable, j.Spec.Tasks[0].Replicas, j.Spec.Tasks[0].MinAvailable = n, n, ptr.To(n)
		})
	}
	resize(3)
	goOn()
	larger := maps.Clone(want)
	want["config"] = first + "Host j-t-2\n  HostName j-t-2.j\n  Port 22\n"
	check("of the larger Job")
	resize(2)
	goOn()
	want = larger
	check("of the smaller Job")
	w.command("stop", "AbortJob")
	for range 3 {
		w.settle()
		w.kubelet()
	}
	if got := w.sshSecret(); got != nil || w.phase() != batch.Aborted {
		t.Errorf("the %s Job still has its Secret: %v", w.phase(), got)
	}
	w.command("go", "ResumeJob")
	goOn()
	want["id_rsa"], want["id_rsa.pub"], want["authorized_keys"] = "private 2", "public 2", "public 2"
	check("after the resumption")
	w.checkInvariants()
}
