// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/internal/standalone/pki"
)

// ServiceCIDR is the range of Service addresses. Nothing routes them on a standalone machine.
const ServiceCIDR = "10.96.0.0/12"

// firstServiceIP is the address in ServiceCIDR that the Service kubernetes.default gets.
var firstServiceIP = net.IPv4(10, 96, 0, 1)

// listen opens the socket of the API server. A port that was asked for is taken or refused; otherwise it is the one of the
// last run, so that copies of the kubeconfig stay good, or, if somebody else has that by now, a free one. moved: it is not
// the one of the last run.
func listen(ctx context.Context, ip net.IP, port, last int) (_ net.Listener, moved bool, err error) {
	var config net.ListenConfig
	open := func(port int) (net.Listener, error) {
		return config.Listen(ctx, "tcp", net.JoinHostPort(ip.String(), strconv.Itoa(port)))
	}
	if port != 0 {
		listener, err := open(port)
		if err != nil {
			return nil, false, portError(ip, port, err)
		}
		return listener, last != 0 && last != port, nil
	}
	if last != 0 {
		if listener, err := open(last); err == nil {
			return listener, false, nil
		}
	}
	listener, err := open(0)
	if err != nil {
		return nil, false, portError(ip, 0, err)
	}
	return listener, last != 0, nil
}

func portError(ip net.IP, port int, err error) error {
	doing := "listening on " + net.JoinHostPort(ip.String(), strconv.Itoa(port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &Error{
			Doing: doing, Err: fmt.Errorf("port %d is taken by another process", port),
			Try: []string{"--port 0, which finds a free one", fmt.Sprintf("ss -ltnp 'sport = :%d'   shows who has it", port)},
		}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return &Error{
			Doing: doing, Err: fmt.Errorf("this machine has no address %s", ip),
			Try: []string{"ip address   lists the addresses", "--bind-address 127.0.0.1"},
		}
	case errors.Is(err, os.ErrPermission):
		return &Error{Doing: doing, Err: errors.New("this user may not use ports below 1024"), Try: []string{"--port 0"}}
	}
	return &Error{Doing: doing, Err: err}
}

// reach returns the address under which this machine reaches a server that listens on ip.
func reach(ip net.IP) net.IP {
	switch {
	case !ip.IsUnspecified():
		return ip
	case ip.To4() == nil:
		return net.IPv6loopback
	default:
		return net.IPv4(127, 0, 0, 1)
	}
}

// certAddresses returns the names of the API server and of the node, for their certificates. With a server that listens
// everywhere these are all the addresses that the machine has now.
func certAddresses(ip net.IP, hostName, nodeName string) (server, node pki.Addresses, err error) {
	names := []string{hostName}
	if nodeName != hostName {
		names = append(names, nodeName)
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	switch {
	case ip.IsUnspecified():
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return server, node, fmt.Errorf("listing the addresses of this machine: %w", err)
		}
		for _, addr := range addrs {
			if network, ok := addr.(*net.IPNet); ok && !network.IP.IsLoopback() && !network.IP.IsLinkLocalUnicast() {
				ips = append(ips, network.IP)
			}
		}
	case !ip.IsLoopback():
		ips = append(ips, ip)
	}
	node = pki.Addresses{Names: names, IPs: ips}
	server = pki.Addresses{Names: names, IPs: append(ips[:len(ips):len(ips)], firstServiceIP)}
	return server, node, nil
}

// nodeNameFor returns the host name in the form that Kubernetes takes for a node: lower case, and nothing but letters,
// digits, dashes and dots.
func nodeNameFor(hostName string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		default:
			return '-'
		}
	}, strings.ToLower(hostName))
	if name = strings.Trim(name, "-."); name == "" {
		return "node"
	}
	return name
}
