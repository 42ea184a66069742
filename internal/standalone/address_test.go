// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"net"
	"strings"
	"testing"
)

func TestListen(t *testing.T) {
	loopback := net.IPv4(127, 0, 0, 1)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	takenPort := taken.Addr().(*net.TCPAddr).Port
	freePort := free(t)

	cases := map[string]struct {
		ip         net.IP
		port, last int
		want       int // 0: any
		moved      bool
		err        string
	}{
		"a free one the first time":                   {},
		"the last one again":                          {last: freePort, want: freePort},
		"another one if somebody has the last":        {last: takenPort, moved: true},
		"the one that was asked for":                  {port: freePort, want: freePort},
		"the one that was asked for, not the last":    {port: freePort, last: 1, want: freePort, moved: true},
		"none if somebody has what was asked for":     {port: takenPort, last: freePort, err: "is taken by another process"},
		"none on an address that the machine has not": {ip: net.IPv4(192, 0, 2, 1), err: "this machine has no address 192.0.2.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ip := tc.ip
			if ip == nil {
				ip = loopback
			}
			listener, moved, err := listen(t.Context(), ip, tc.port, tc.last)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			addr := listener.Addr().(*net.TCPAddr)
			if tc.want != 0 && addr.Port != tc.want || moved != tc.moved || !addr.IP.Equal(ip) {
				t.Errorf("listens on %v, moved %v, want port %d, moved %v", addr, moved, tc.want, tc.moved)
			}
		})
	}
}

func free(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

func TestCertificatesAreForLoopbackUnlessMoreIsAsked(t *testing.T) {
	cases := map[string]struct {
		bind net.IP
		want string // server; the node's lacks the last
	}{
		"loopback":          {net.IPv4(127, 0, 0, 1), "127.0.0.1 ::1 10.96.0.1"},
		"a certain address": {net.IPv4(192, 0, 2, 1), "127.0.0.1 ::1 192.0.2.1 10.96.0.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, node, err := certAddresses(tc.bind, "Build-7", "build-7")
			if err != nil {
				t.Fatal(err)
			}
			if got := join(server.IPs); got != tc.want {
				t.Errorf("server: %s, want %s", got, tc.want)
			}
			if got := join(node.IPs) + " 10.96.0.1"; got != tc.want {
				t.Errorf("node: %s, want %s without the last", got, tc.want)
			}
			if got := strings.Join(node.Names, " "); got != "Build-7 build-7" {
				t.Errorf("names %q, want host name and node name", got)
			}
		})
	}
}

func join(ips []net.IP) string {
	var texts []string
	for _, ip := range ips {
		texts = append(texts, ip.String())
	}
	return strings.Join(texts, " ")
}

func TestReach(t *testing.T) {
	for bind, want := range map[string]string{"127.0.0.1": "127.0.0.1", "192.0.2.1": "192.0.2.1", "0.0.0.0": "127.0.0.1", "::": "::1"} {
		if got := reach(net.ParseIP(bind)).String(); got != want {
			t.Errorf("%s is reached under %s, want %s", bind, got, want)
		}
	}
}

func TestNodeNameFor(t *testing.T) {
	for host, want := range map[string]string{
		"build-7": "build-7", "Build-7.Example.org": "build-7.example.org", "my_machine": "my-machine", "-x-": "x", "": "node", "日本": "node",
	} {
		if got := nodeNameFor(host); got != want {
			t.Errorf("%q becomes %q, want %q", host, got, want)
		}
	}
}
