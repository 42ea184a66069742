// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/drover-dev/drover/internal/atomicfile"
	"github.com/drover-dev/drover/internal/standalone/zapslog"
)

const (
	// storeQuota is the size at which etcd turns read-only. It is etcd's own advice for the upper end.
	storeQuota = 8 << 30
	// walSegment is the size in which etcd allocates its log in advance. etcd's 64 MB, twice, is most of a small
	// disk and of the time of a first start on file systems that have to write the zeros.
	walSegment = 16 << 20
	// defragAbove: at a start that could free this many megabytes, etcd rewrites its file.
	defragAbove = 256
	// listenPoll is how often a start looks whether the store listens.
	listenPoll = 2 * time.Millisecond
)

// startEtcd starts the store and returns once it has joined its cluster of one. fatal gets the error with which etcd gives
// up later (a full disk, a damaged file); it must not block.
func startEtcd(c *Config, fatal func(error)) (*embed.Etcd, error) {
	if err := prepareStore(c); err != nil {
		return nil, storeError(c.EtcdDir, err)
	}
	socket, err := socketURL(c.EtcdSocket)
	if err != nil {
		return nil, err
	}
	wal.SegmentSizeBytes = walSegment

	cfg := embed.NewConfig()
	cfg.Name = "drover" // never changes: the data directory remembers it
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.Dir = storeData(c.EtcdDir)
	cfg.ListenClientUrls = []url.URL{*socket}
	cfg.AdvertiseClientUrls = []url.URL{*socket}
	cfg.ListenPeerUrls = nil // a cluster of one; AdvertisePeerUrls stays as its name
	cfg.EnableGRPCGateway = false
	// A cluster of one elects itself after one to five ticks; with etcd's own 100 ms and 1 s a start would wait for up to a
	// second. Once elected, a tick costs next to nothing.
	cfg.TickMs, cfg.ElectionMs = 50, 250
	cfg.UnsafeNoFsync = c.NoSync
	cfg.QuotaBackendBytes = storeQuota
	cfg.BootstrapDefragThresholdMegabytes = defragAbove
	// kube-apiserver compacts the store, so etcd does not.
	cfg.AutoCompactionRetention = "0"
	// SnapshotCatchUpEntries stays at its 5000 although nobody follows. What a start reads back is handed over as one batch, at most
	// a megabyte of entries. While it is being written, raft still looks at all of it when an election is due, and gives up if it was
	// cut off already; on a busy machine an election is due before that.
	cfg.MaxWalFiles = 2
	cfg.MaxSnapFiles = 2
	log := zapslog.New(c.Log.With("component", "etcd"), fatal)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, storeError(c.EtcdDir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
		if err := atomicfile.Write(storeComplete(c.EtcdDir), nil, 0o600); err != nil {
			e.Close()
			return nil, storeError(c.EtcdDir, err)
		}
		return e, nil
	case err := <-e.Err():
		e.Close()
		return nil, storeError(c.EtcdDir, err)
	}
}

// storeData is where etcd has its files.
func storeData(dir string) string { return filepath.Join(dir, "data") }

// storeComplete is a file that is there once the store has been ready for the first time.
func storeComplete(dir string) string { return filepath.Join(dir, "complete") }

// prepareStore makes the directory of the store, and empties one that was never ready. If etcd is killed after it has made
// its log and before it has written in there that it is a member of its cluster, it waits for ever to become one. Nothing
// can be lost: the API server writes only to a store that is ready.
func prepareStore(c *Config) error {
	if _, err := os.Stat(storeComplete(c.EtcdDir)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(storeData(c.EtcdDir)); err == nil {
		c.Log.Warn("Making the store anew, because its first start was cut off", "dir", c.EtcdDir)
		c.Step("the store is made anew: its first start was cut off")
		if err := os.RemoveAll(storeData(c.EtcdDir)); err != nil {
			return err
		}
	}
	return os.MkdirAll(storeData(c.EtcdDir), 0o700)
}

// waitListening waits until somebody can connect to the store, which is long before it answers. A client that comes too
// early tries again only after a second. It returns early with the error of a store that has failed, which stays in its
// channel if it is nil.
func waitListening(socket string, up chan error, fatal <-chan error) error {
	address, err := socketURL(socket)
	if err != nil {
		return err
	}
	for {
		if conn, err := net.Dial("unix", address.Path); err == nil {
			return conn.Close()
		}
		select {
		case err := <-up:
			up <- err
			return err
		case err := <-fatal:
			return err
		case <-time.After(listenPoll):
		}
	}
}

// storeError adds what the user can do to errors of the store.
func storeError(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk under %s is full: %w", dir, err)
	}
	return fmt.Errorf("starting etcd in %s: %w", dir, err)
}

// maxSocketPath is what sockaddr_un holds on Linux, without its final zero byte.
const maxSocketPath = 107

// socketURL returns the URL under which path is listened on and dialled. The kernel takes no socket path of more than 107
// bytes, so a longer one goes through a descriptor of its directory, which stays open for the rest of the process.
func socketURL(path string) (*url.URL, error) {
	if len(path) <= maxSocketPath {
		return &url.URL{Scheme: "unix", Path: path}, nil
	}
	dir, err := syscall.Open(filepath.Dir(path), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of the store's socket: %w", err)
	}
	return &url.URL{Scheme: "unix", Path: fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))}, nil
}
