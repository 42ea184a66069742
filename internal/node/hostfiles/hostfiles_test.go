// SPDX-License-Identifier: Apache-2.0

package hostfiles

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(edit func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}
	if edit != nil {
		edit(&p.Spec)
	}
	return p
}

func TestName(t *testing.T) {
	yes, override := true, "own.name"
	cases := map[string]struct {
		edit                 func(*corev1.PodSpec)
		host, domain, kernel string
	}{
		"the name of the pod":     {nil, "p", "", "p"},
		"a hostname and a domain": {func(s *corev1.PodSpec) { s.Hostname, s.Subdomain = "h", "sub" }, "h", "sub.ns.svc.cluster.local", "h"},
		"the whole name":          {func(s *corev1.PodSpec) { s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = "h", "sub", &yes }, "h", "sub.ns.svc.cluster.local", "h.sub.ns.svc.cluster.local"},
		"an override":             {func(s *corev1.PodSpec) { s.HostnameOverride = &override }, "own.name", "", "own.name"},
		"a name that is cut is not left with a dash": {
			func(s *corev1.PodSpec) { s.Hostname = strings.Repeat("a", 62) + "-b" },
			strings.Repeat("a", 62), "", strings.Repeat("a", 62),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := pod(tc.edit)
			host, domain := Name(p, "cluster.local")
			if host != tc.host || domain != tc.domain || KernelName(p, host, domain) != tc.kernel {
				t.Errorf("Name = %q, %q, kernel %q", host, domain, KernelName(p, host, domain))
			}
		})
	}
}

func TestHosts(t *testing.T) {
	aliases := []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"db", "db.local"}}}
	own := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	cases := map[string]struct {
		edit   func(*corev1.PodSpec)
		domain string
		want   string
	}{
		"plain":         {nil, "", own + "127.0.0.1\tp\n"},
		"with a domain": {nil, "sub.ns.svc.x", own + "127.0.0.1\tp.sub.ns.svc.x\tp\n"},
		"with aliases": {
			func(s *corev1.PodSpec) { s.HostAliases = aliases }, "",
			own + "127.0.0.1\tp\n\n# Entries added by HostAliases.\n10.0.0.1\tdb\tdb.local\n",
		},
		"on the host's network": {
			func(s *corev1.PodSpec) { s.HostNetwork, s.HostAliases = true, aliases }, "",
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 host\n127.0.0.1\tp\n\n# Entries added by HostAliases.\n10.0.0.1\tdb\tdb.local\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Hosts(pod(tc.edit), []string{"127.0.0.1"}, "p", tc.domain, []byte("127.0.0.1 host"))
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolv(t *testing.T) {
	host := []byte("# x\nnameserver 9.9.9.9\nsearch home\noptions ndots:1 edns0\n")
	five := "5"
	config := &corev1.PodDNSConfig{
		Nameservers: []string{"1.1.1.1", "9.9.9.9"},
		Searches:    []string{"a.b"},
		Options:     []corev1.PodDNSConfigOption{{Name: "ndots", Value: &five}, {Name: "rotate"}},
	}
	cases := map[string]struct {
		policy corev1.DNSPolicy
		config *corev1.PodDNSConfig
		want   string
	}{
		"nothing to say":        {corev1.DNSClusterFirst, nil, ""},
		"added to the host's":   {corev1.DNSDefault, config, "search home a.b\nnameserver 9.9.9.9\nnameserver 1.1.1.1\noptions edns0 ndots:5 rotate\n"},
		"instead of the host's": {corev1.DNSNone, config, "search a.b\nnameserver 1.1.1.1\nnameserver 9.9.9.9\noptions ndots:5 rotate\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := Resolv(pod(func(s *corev1.PodSpec) { s.DNSPolicy, s.DNSConfig = tc.policy, tc.config }), host)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" || ok != (tc.want != "") {
				t.Errorf("ok %t, text (-want +got):\n%s", ok, diff)
			}
		})
	}
}

func TestCheckFQDN(t *testing.T) {
	yes := true
	p := pod(func(s *corev1.PodSpec) { s.SetHostnameAsFQDN = &yes })
	if err := CheckFQDN(p, "h", strings.Repeat("a", 70)); err == nil || !strings.Contains(err.Error(), "64 characters is the max, 72 characters requested") {
		t.Errorf("error = %v", err)
	}
	if err := CheckFQDN(p, "h", "short"); err != nil {
		t.Error(err)
	}
}
