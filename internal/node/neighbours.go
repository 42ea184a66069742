// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/node/hostfiles"
)

// neighbours lets the pods of a subdomain find each other by name: each has the names of all in its hosts file, which follows them as
// they come and go. A pod's name is known as soon as the pod is here. It is safe for concurrent use.
//
// Differs: in a cluster the names come from DNS, where a name appears when its pod is ready. There is no DNS here.
type neighbours struct {
	ips   []string // of every pod
	path  func(types.UID) string
	clock clock.WithTicker
	log   *slog.Logger
	wake  chan struct{} // has room for one

	mu      sync.Mutex
	domains map[string]map[types.UID]*neighbour
	stale   map[string]bool // domains whose files are not up to date
}

type neighbour struct {
	uid     types.UID
	host    string
	file    sync.Mutex // held while its hosts file is written, which two may want to do
	written bool       // the file is there; guarded by the mutex of neighbours
}

func newNeighbours(ips []string, path func(types.UID) string, c clock.WithTicker, log *slog.Logger) *neighbours {
	return &neighbours{
		ips: ips, path: path, clock: c, log: log, wake: make(chan struct{}, 1),
		domains: map[string]map[types.UID]*neighbour{}, stale: map[string]bool{},
	}
}

// join makes a pod's name known. written says that an earlier run of the node has written its hosts file.
func (n *neighbours) join(id types.UID, host, domain string, written bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.domains[domain] == nil {
		n.domains[domain] = map[types.UID]*neighbour{}
	}
	n.domains[domain][id] = &neighbour{uid: id, host: host, written: written}
	n.refreshLocked(domain)
}

// leave takes a pod's name away, unless another pod has it too.
func (n *neighbours) leave(id types.UID, domain string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.domains[domain], id)
	if len(n.domains[domain]) == 0 {
		delete(n.domains, domain)
		delete(n.stale, domain)
		return
	}
	n.refreshLocked(domain)
}

func (n *neighbours) refreshLocked(domain string) {
	n.stale[domain] = true
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// linesLocked returns what the hosts files of a domain's pods are to have.
func (n *neighbours) linesLocked(domain string) []string {
	var hosts []string
	for _, m := range n.domains[domain] {
		hosts = append(hosts, m.host)
	}
	slices.Sort(hosts)
	return hostfiles.Neighbours(n.ips, domain, slices.Compact(hosts))
}

// write has the hosts file of a pod written for the first time in this run, with the lines that are right now. Those of a pod that is
// no neighbour are none.
func (n *neighbours) write(id types.UID, domain string, write func(lines []string) error) error {
	n.mu.Lock()
	m := n.domains[domain][id]
	var lines []string
	if m != nil {
		lines = n.linesLocked(domain)
	}
	n.mu.Unlock()
	if m == nil {
		return write(nil)
	}
	m.file.Lock()
	defer m.file.Unlock()
	if err := write(lines); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m.written = true
	n.refreshLocked(domain) // some may have come meanwhile
	return nil
}

// neighbourPause is how many times as long as it took to write files the next writing waits: what there is to do grows with the square
// of the number of pods, and must not take more than a small part of a processor while hundreds of them come.
const neighbourPause = 20

// run keeps the files up to date until ctx ends.
func (n *neighbours) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		began := n.clock.Now()
		n.refresh()
		pause := n.clock.NewTimer(neighbourPause * n.clock.Since(began))
		select {
		case <-ctx.Done():
		case <-pause.C():
		}
		pause.Stop()
	}
}

// refresh brings the files of all domains up to date that are not.
func (n *neighbours) refresh() {
	n.mu.Lock()
	domains := slices.Sorted(maps.Keys(n.stale))
	clear(n.stale)
	n.mu.Unlock()
	for _, domain := range domains {
		n.update(domain)
	}
}

// update brings the files of one domain up to date.
func (n *neighbours) update(domain string) {
	n.mu.Lock()
	lines := n.linesLocked(domain)
	var files []*neighbour
	for _, m := range n.domains[domain] {
		if m.written {
			files = append(files, m)
		}
	}
	n.mu.Unlock()
	for _, m := range files {
		m.file.Lock()
		err := updateHosts(n.path(m.uid), domain, lines)
		m.file.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its pod has ended
			n.log.Warn("Telling a pod of others in its subdomain did not work", "uid", m.uid, "err", err)
		}
	}
}

// updateHosts changes a hosts file in place, as containers have it mounted.
func updateHosts(path, domain string, lines []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	patch := hostfiles.UpdateNeighbours(text, domain, lines)
	if len(patch.Bytes)+len(patch.Append) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for at, b := range patch.Bytes {
		_, writeErr := f.WriteAt([]byte{b}, at)
		err = errors.Join(err, writeErr)
	}
	if len(patch.Append) > 0 {
		_, writeErr := f.WriteAt(patch.Append, int64(len(text)))
		err = errors.Join(err, writeErr)
	}
	return errors.Join(err, f.Close())
}
