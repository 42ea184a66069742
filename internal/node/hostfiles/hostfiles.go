// SPDX-License-Identifier: Apache-2.0

// Package hostfiles writes what a pod's processes find in /etc/hosts, /etc/hostname and /etc/resolv.conf, and says what the pod is
// called. It is pure: it returns texts. Start reading at Name.
package hostfiles

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	maxHostname = 63
	header      = "# Kubernetes-managed hosts file.\n"
	hostHeader  = "# Kubernetes-managed hosts file (host network).\n"
	// Limits of the resolver, which kubelet keeps to as well.
	maxNameservers = 3
	maxSearches    = 32
)

// Name returns the hostname of a pod and the domain it belongs to, "" for none.
func Name(pod *corev1.Pod, clusterDomain string) (host, domain string) {
	if o := pod.Spec.HostnameOverride; o != nil {
		return cut(*o), ""
	}
	host = pod.Name
	if pod.Spec.Hostname != "" {
		host = pod.Spec.Hostname
	}
	host = cut(host)
	if pod.Spec.Subdomain != "" {
		domain = pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + clusterDomain
	}
	return host, domain
}

// KernelName returns what the kernel is told: the hostname, or the whole name when the pod asks for that and it fits.
func KernelName(pod *corev1.Pod, host, domain string) string {
	if pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN || domain == "" {
		return host
	}
	if fqdn := host + "." + domain; len(fqdn) <= maxHostname+1 {
		return fqdn
	}
	return host
}

// CheckFQDN reports a pod whose whole name does not fit where it must.
func CheckFQDN(pod *corev1.Pod, host, domain string) error {
	if pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN || domain == "" {
		return nil
	}
	if fqdn := host + "." + domain; len(fqdn) > maxHostname+1 {
		return fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxHostname+1, len(fqdn))
	}
	return nil
}

func cut(host string) string {
	if len(host) <= maxHostname {
		return host
	}
	return strings.TrimRight(host[:maxHostname], "-.")
}

// Hosts returns /etc/hosts of a pod that has its own name. In a pod on the host's network, whose containers share the host's name,
// it is the host's file with the pod's aliases; host is that file then. neighbours are lines of Neighbours.
func Hosts(pod *corev1.Pod, ips []string, name, domain string, host []byte, neighbours []string) []byte {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString(hostHeader)
		b.Write(host)
		if len(host) > 0 && host[len(host)-1] != '\n' {
			b.WriteByte('\n')
		}
		// Differs: every container has its own UTS namespace here, so its name has to resolve as well.
		for _, ip := range ips {
			fmt.Fprintf(&b, "%s\t%s\n", ip, name)
		}
	} else {
		b.WriteString(header)
		b.WriteString("127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		for _, ip := range ips {
			if domain != "" {
				fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, name, domain, name)
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, name)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	if len(neighbours) > 0 {
		b.WriteString("\n# The pods of this subdomain.\n")
		for _, line := range neighbours {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// Neighbours returns the lines by which the pods of one domain find each other, as a cluster's DNS would have them: one for each
// host, and one for the domain itself. domain is that of Name.
func Neighbours(ips []string, domain string, hosts []string) []string {
	var lines []string
	suffixes := endings(domain)
	add := func(prefix string) {
		names := make([]string, len(suffixes))
		for i, suffix := range suffixes {
			names[i] = prefix + suffix
		}
		for _, ip := range ips {
			lines = append(lines, ip+"\t"+strings.Join(names, "\t"))
		}
	}
	add("")
	for _, host := range hosts {
		add(host + ".")
	}
	return lines
}

// endings returns the forms in which a domain may be asked for: in a cluster, the search list of a pod completes the short ones.
func endings(domain string) []string {
	parts := strings.SplitN(domain, ".", 4) // <subdomain>.<namespace>.svc.<cluster>
	all := []string{domain}
	for n := len(parts) - 1; n > 0; n-- {
		all = append(all, strings.Join(parts[:n], "."))
	}
	return all
}

// Patch is what has to be written into a hosts file that processes may be reading: single bytes, and text at its end. Every
// state between is a whole file.
type Patch struct {
	Bytes  map[int64]byte // by offset
	Append []byte
}

// UpdateNeighbours returns what makes lines the ones that a hosts file has below those of Neighbours at domain. What is not wanted any
// more becomes a comment, and a line again when it is.
func UpdateNeighbours(text []byte, domain string, lines []string) Patch {
	p := Patch{Bytes: map[int64]byte{}}
	missing := map[string]bool{}
	for _, line := range lines {
		missing[line] = true
	}
	byRest := make(map[string]byte, len(lines)) // what follows the first byte, which a comment lacks
	for _, line := range lines {
		byRest[line[1:]] = line[0]
	}
	offset := int64(0)
	for line := range strings.Lines(string(text)) {
		bare := strings.TrimSuffix(line, "\n")
		switch {
		case missing[bare]:
			delete(missing, bare)
		case !isNeighbour(bare, domain):
		case bare[0] != '#':
			p.Bytes[offset] = '#'
		case byRest[bare[1:]] != 0 && missing[string(byRest[bare[1:]])+bare[1:]]:
			p.Bytes[offset] = byRest[bare[1:]]
			delete(missing, string(byRest[bare[1:]])+bare[1:])
		}
		offset += int64(len(line))
	}
	for _, line := range lines {
		if missing[line] {
			p.Append = append(append(p.Append, line...), '\n')
			delete(missing, line)
		}
	}
	if len(p.Append) > 0 && len(text) > 0 && text[len(text)-1] != '\n' {
		p.Append = append([]byte{'\n'}, p.Append...)
	}
	return p
}

// isNeighbour reports whether a line is one of Neighbours, or was.
func isNeighbour(line, domain string) bool {
	words := strings.Split(line, "\t")
	forms := endings(domain)
	if len(words) != len(forms)+1 || line == "" {
		return false
	}
	for i, form := range forms {
		if words[i+1] != form && !strings.HasSuffix(words[i+1], "."+form) {
			return false
		}
	}
	return true
}

// Resolv returns /etc/resolv.conf for a pod that wants another than the host's, which is in host. ok is false for a pod that
// has nothing to say about it: there is no cluster DNS here, so every policy but None means the host's resolver.
func Resolv(pod *corev1.Pod, host []byte) (text []byte, ok bool) {
	config := pod.Spec.DNSConfig
	if pod.Spec.DNSPolicy != corev1.DNSNone && config == nil {
		return nil, false
	}
	var r resolver
	if pod.Spec.DNSPolicy != corev1.DNSNone {
		r = parse(host)
	}
	if config != nil {
		r.merge(config)
	}
	return r.text(), true
}

type resolver struct {
	nameservers, searches, options []string
}

func parse(text []byte) resolver {
	var r resolver
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			r.nameservers = append(r.nameservers, words[1])
		case "search":
			r.searches = words[1:]
		case "options":
			r.options = append(r.options, words[1:]...)
		}
	}
	return r
}

func (r *resolver) merge(config *corev1.PodDNSConfig) {
	r.nameservers = unique(append(r.nameservers, config.Nameservers...))
	r.searches = unique(append(r.searches, config.Searches...))
	for _, o := range config.Options {
		r.options = slices.DeleteFunc(r.options, func(have string) bool {
			name, _, _ := strings.Cut(have, ":")
			return name == o.Name
		})
		option := o.Name
		if o.Value != nil && *o.Value != "" {
			option += ":" + *o.Value
		}
		r.options = append(r.options, option)
	}
}

func (r resolver) text() []byte {
	var b bytes.Buffer
	if list := r.searches[:min(len(r.searches), maxSearches)]; len(list) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(list, " "))
	}
	for _, n := range r.nameservers[:min(len(r.nameservers), maxNameservers)] {
		fmt.Fprintf(&b, "nameserver %s\n", n)
	}
	if len(r.options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(r.options, " "))
	}
	return b.Bytes()
}

func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}
