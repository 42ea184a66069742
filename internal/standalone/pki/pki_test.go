// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server = Addresses{Names: []string{"build-7"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}}
	node   = Addresses{Names: []string{"build-7"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
)

const day = 24 * time.Hour

func TestEnsureMakesEverythingForItsOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if changes := ensure(t, dir, server, start); changes != nil {
		t.Errorf("changes %q, want none to speak of the first time", changes)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, want -rw-------", entry.Name(), info.Mode())
		}
		names = append(names, entry.Name())
	}
	want := []string{
		"admin.crt", "admin.key", "apiserver-kubelet.crt", "apiserver-kubelet.key", "apiserver.crt", "apiserver.key",
		"ca.crt", "ca.key", "node.crt", "node.key", "service-account.key",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: mode %v, error %v, want drwx------", info.Mode(), err)
	}
}

func TestServerCertificateIsTrustedUnderEveryAddress(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, server, start)
	for _, name := range []string{"localhost", "127.0.0.1", "10.96.0.1", "build-7", "kubernetes.default.svc"} {
		verify(t, dir, Server, x509.VerifyOptions{DNSName: name, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	}
}

func TestClientCertificatesCarryUserAndGroups(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, server, start)
	usage := x509.VerifyOptions{CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	type user struct {
		Name   string
		Groups []string
	}
	got := map[Pair]user{}
	for _, pair := range []Pair{Admin, KubeletClient} {
		cert := verify(t, dir, pair, usage)
		got[pair] = user{cert.Subject.CommonName, cert.Subject.Organization}
	}
	want := map[Pair]user{
		Admin:         {"drover-admin", []string{"system:masters"}},
		KubeletClient: {"kube-apiserver-kubelet-client", nil}, // no rights at the API server
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

func TestEnsureChangesOnlyWhatItMust(t *testing.T) {
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	garble := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), []byte("-----BEGIN"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func(*testing.T, string) {}
	moved := Addresses{Names: server.Names, IPs: append([]net.IP{net.IPv4(192, 168, 1, 7)}, server.IPs...)}
	fewer := Addresses{IPs: server.IPs[:1]}
	all := []string{"admin.crt", "apiserver-kubelet.crt", "apiserver.crt", "ca.crt", "node.crt"}

	cases := map[string]struct {
		before  func(*testing.T, string)
		server  Addresses
		later   time.Duration
		rewrote []string // certificates and bare keys, sorted
		said    []string // a part of each line
	}{
		"nothing the next day":            {before: nothing, server: server, later: day},
		"nothing when 31 days are left":   {before: nothing, server: server, later: 334 * day},
		"nothing when an address is gone": {before: nothing, server: fewer, later: day},
		"every certificate when 30 days are left": {
			before: nothing, server: server, later: 335 * day,
			rewrote: []string{"admin.crt", "apiserver-kubelet.crt", "apiserver.crt", "node.crt"},
			said:    []string{`"apiserver": it expires on 2027-03-01`, `"apiserver-kubelet"`, `"node"`, `"admin"`},
		},
		"everything but the token key when the authority expires": {
			before: nothing, server: server, later: 3621 * day, rewrote: all,
			said: []string{"authority expires on 2036-02-27: made a new one"},
		},
		"the server's when the machine has a new address": {
			before: nothing, server: moved, later: day, rewrote: []string{"apiserver.crt"},
			said: []string{`"apiserver": the machine's addresses have changed`},
		},
		"one that is missing, without a word": {
			before: remove("admin.crt"), server: server, later: day, rewrote: []string{"admin.crt"},
		},
		"one whose key is missing": {
			before: remove("admin.key"), server: server, later: day, rewrote: []string{"admin.crt"},
			said: []string{`"admin": the key of `},
		},
		"one that is cut off": {
			before: garble("node.crt"), server: server, later: day, rewrote: []string{"node.crt"},
			said: []string{"node.crt holds no certificate"},
		},
		"one whose key belongs to another": {
			before: func(t *testing.T, dir string) {
				t.Helper()
				key, err := os.ReadFile(Node.KeyPath(dir))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(Admin.KeyPath(dir), key, 0o600); err != nil {
					t.Fatal(err)
				}
			}, server: server, later: day, rewrote: []string{"admin.crt"},
			said: []string{"belongs to another certificate"},
		},
		"everything but the token key when the authority's key is lost": {
			before: remove("ca.key"), server: server, later: day, rewrote: all,
			said: []string{"made a new certificate authority, because the key of "},
		},
		"the token key when it is damaged": {
			before: garble("service-account.key"), server: server, later: day, rewrote: []string{"service-account.key"},
			said: []string{"pods that hold a token must be started again"},
		},
		"what a crash left half done: keys written, certificates not": {
			before: func(t *testing.T, dir string) {
				t.Helper()
				remove("admin.crt")(t, dir)
				if err := os.WriteFile(filepath.Join(dir, "admin.crt.new"), []byte("half"), 0o600); err != nil {
					t.Fatal(err)
				}
			}, server: server, later: day, rewrote: []string{"admin.crt"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ensure(t, dir, server, start)
			before := contents(t, dir)
			tc.before(t, dir)
			said := ensure(t, dir, tc.server, start.Add(tc.later))

			var rewrote []string
			for _, file := range []string{
				"admin.crt", "apiserver-kubelet.crt", "apiserver.crt", "ca.crt", "node.crt", "service-account.key",
			} {
				if contents(t, dir)[file] != before[file] {
					rewrote = append(rewrote, file)
				}
			}
			if diff := cmp.Diff(tc.rewrote, rewrote); diff != "" {
				t.Errorf("rewritten files (-want +got):\n%s", diff)
			}
			if len(said) != len(tc.said) {
				t.Fatalf("said %q, want %d lines with %q", said, len(tc.said), tc.said)
			}
			for i := range said {
				if !strings.Contains(said[i], tc.said[i]) {
					t.Errorf("line %d is %q, want one with %q", i, said[i], tc.said[i])
				}
			}
			verify(t, dir, Server, x509.VerifyOptions{DNSName: "127.0.0.1", CurrentTime: start.Add(tc.later)})
			verify(t, dir, Admin, x509.VerifyOptions{CurrentTime: start.Add(tc.later), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			if again := ensure(t, dir, tc.server, start.Add(tc.later)); again != nil {
				t.Errorf("a second Ensure changed things: %q", again)
			}
		})
	}
}

func TestEnsureDoesNotReplaceWhatItMayNotRead(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, server, start)
	// A directory in the place of a file cannot be read, also not by root.
	if err := os.Remove(CAPath(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(CAPath(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(dir, server, node, start); err == nil {
		t.Error("no error although the authority could not be read")
	}
}

func ensure(t *testing.T, dir string, at Addresses, now time.Time) []string {
	t.Helper()
	changes, err := Ensure(dir, at, node, now)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// verify checks the pair as a peer would, and returns its certificate.
func verify(t *testing.T, dir string, pair Pair, options x509.VerifyOptions) *x509.Certificate {
	t.Helper()
	ca, err := os.ReadFile(CAPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	options.Roots = x509.NewCertPool()
	if !options.Roots.AppendCertsFromPEM(ca) {
		t.Fatal("the authority is no certificate")
	}
	loaded, err := tls.LoadX509KeyPair(pair.CertPath(dir), pair.KeyPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loaded.Leaf.Verify(options); err != nil {
		t.Errorf("verifying %q for %q: %v", pair, options.DNSName, err)
	}
	return loaded.Leaf
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[entry.Name()] = string(data)
	}
	return got
}
