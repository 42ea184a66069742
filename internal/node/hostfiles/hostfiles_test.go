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
		edit       func(*corev1.PodSpec)
		domain     string
		neighbours []string
		want       string
	}{
		"plain":         {nil, "", nil, own + "127.0.0.1\tp\n"},
		"with a domain": {nil, "sub.ns.svc.x", nil, own + "127.0.0.1\tp.sub.ns.svc.x\tp\n"},
		"with others of its subdomain": {
			nil, "sub.ns.svc.x",
			[]string{"127.0.0.1\tq.sub", "127.0.0.1\tr.sub"},
			own + "127.0.0.1\tp.sub.ns.svc.x\tp\n\n# The pods of this subdomain.\n127.0.0.1\tq.sub\n127.0.0.1\tr.sub\n",
		},
		"with aliases": {
			func(s *corev1.PodSpec) { s.HostAliases = aliases }, "", nil,
			own + "127.0.0.1\tp\n\n# Entries added by HostAliases.\n10.0.0.1\tdb\tdb.local\n",
		},
		"on the host's network": {
			func(s *corev1.PodSpec) { s.HostNetwork, s.HostAliases = true, aliases }, "", nil,
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 host\n127.0.0.1\tp\n\n# Entries added by HostAliases.\n10.0.0.1\tdb\tdb.local\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Hosts(pod(tc.edit), []string{"127.0.0.1"}, "p", tc.domain, []byte("127.0.0.1 host"), tc.neighbours)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNeighboursHaveTheNamesThatAClustersDNSGivesThem(t *testing.T) {
	want := []string{
		"10.0.0.1\tjob.ns.svc.cluster.local\tjob.ns.svc\tjob.ns\tjob",
		"fd00::1\tjob.ns.svc.cluster.local\tjob.ns.svc\tjob.ns\tjob",
		"10.0.0.1\ta-0.job.ns.svc.cluster.local\ta-0.job.ns.svc\ta-0.job.ns\ta-0.job",
		"fd00::1\ta-0.job.ns.svc.cluster.local\ta-0.job.ns.svc\ta-0.job.ns\ta-0.job",
	}
	if diff := cmp.Diff(want, Neighbours([]string{"10.0.0.1", "fd00::1"}, "job.ns.svc.cluster.local", []string{"a-0"})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// patched returns what a file is after a patch.
func patched(text string, p Patch) string {
	b := []byte(text)
	for at, c := range p.Bytes {
		b[at] = c
	}
	return string(append(b, p.Append...))
}

func TestUpdateNeighboursChangesSingleBytesAndTheEndOnly(t *testing.T) {
	const domain = "j.ns.svc.x"
	lines := func(hosts ...string) []string { return Neighbours([]string{"1.2.3.4"}, domain, hosts) }
	line := func(host string) string { return lines(host)[1] + "\n" }
	head := "127.0.0.1\tlocalhost\n1.2.3.4\ta.j.ns.svc.x\ta\n\n# The pods of this subdomain.\n" + lines()[0] + "\n"
	cases := map[string]struct {
		text string
		want []string
		then string
	}{
		"nothing is new":                     {head + line("a"), lines("a"), head + line("a")},
		"one comes":                          {head + line("a"), lines("a", "b"), head + line("a") + line("b")},
		"one goes":                           {head + line("a") + line("b"), lines("b"), head + "#" + line("a")[1:] + line("b")},
		"one comes back":                     {head + "#" + line("a")[1:] + line("b"), lines("a", "b"), head + line("a") + line("b")},
		"one goes while another comes":       {head + line("a"), lines("c"), head + "#" + line("a")[1:] + line("c")},
		"the container has added a line":     {head + line("a") + "9.9.9.9 own", lines("a", "b"), head + line("a") + "9.9.9.9 own\n" + line("b")},
		"a line of another subdomain stays":  {head + "1.2.3.4\ta.k.ns.svc.x\ta.k.ns.svc\ta.k.ns\ta.k\n", lines(), head + "1.2.3.4\ta.k.ns.svc.x\ta.k.ns.svc\ta.k.ns\ta.k\n"},
		"the file is of a node without them": {"127.0.0.1\tlocalhost\n", lines("a"), "127.0.0.1\tlocalhost\n" + lines()[0] + "\n" + line("a")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := patched(tc.text, UpdateNeighbours([]byte(tc.text), domain, tc.want))
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("file (-want +got):\n%s", diff)
			}
			if again := UpdateNeighbours([]byte(got), domain, tc.want); len(again.Bytes)+len(again.Append) > 0 {
				t.Errorf("it is not settled: %v", again)
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
