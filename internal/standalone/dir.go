// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/atomicfile"
)

// formatVersion is the version of the layout below. A directory of another version is not touched.
const formatVersion = 1

// minFree is how much room a start needs: the store allocates its log in advance.
const minFree = 128 << 20

// Dir is the path of a data directory. It is private to the user that runs the plane:
//
//	drover.json   version of this layout, and what was fixed when the directory was made
//	lock          held while a plane runs
//	state.json    the last run: process, address, whether it has ended well
//	kubeconfig    of the administrator, written when the plane is ready
//	pki/          keys and certificates
//	etcd/         the store
//	run/          sockets
//	logs/         what the components log
//	node/         the node's own
type Dir string

func (d Dir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (d Dir) Kubeconfig() string { return d.path("kubeconfig") }

// PKI returns the directory of keys and certificates.
func (d Dir) PKI() string { return d.path("pki") }

// Etcd returns the directory of the store.
func (d Dir) Etcd() string { return d.path("etcd") }

// EtcdSocket returns the path of the store's socket.
func (d Dir) EtcdSocket() string { return d.path("run", "etcd.sock") }

// Logs returns the directory of logs.
func (d Dir) Logs() string { return d.path("logs") }

// Log returns the file into which everything in the plane logs.
func (d Dir) Log() string { return d.path("logs", "drover.log") }

// UpLog returns the file into which a detached plane writes what it would tell a terminal.
func (d Dir) UpLog() string { return d.path("logs", "up.log") }

// StderrLog returns the file for what libraries print past the log.
func (d Dir) StderrLog() string { return d.path("logs", "stderr.log") }

// Node returns the directory that belongs to the node; Open makes it.
func (d Dir) Node() string { return d.path("node") }

func (d Dir) lock() string   { return d.path("lock") }
func (d Dir) format() string { return d.path("drover.json") }
func (d Dir) state() string  { return d.path("state.json") }

// parts are all the names in a data directory; nothing else is ever removed.
var parts = []string{"drover.json", "etcd", "kubeconfig", "lock", "logs", "node", "pki", "run", "state.json"}

// DefaultDir returns the data directory of a user who names none: /var/lib/drover for root, $XDG_STATE_HOME/drover or
// ~/.local/state/drover for others. A relative XDG_STATE_HOME is ignored, as its specification asks.
func DefaultDir(uid int, getenv func(string) string) (Dir, error) {
	if uid == 0 {
		return "/var/lib/drover", nil
	}
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return Dir(filepath.Join(state, "drover")), nil
	}
	if home := getenv("HOME"); home != "" {
		return Dir(filepath.Join(home, ".local", "state", "drover")), nil
	}
	return "", errors.New("finding the data directory: neither --data-dir, $XDG_STATE_HOME nor $HOME is set")
}

// format is the content of drover.json.
type format struct {
	Version int `json:"version"`
	// Ephemeral directories are removed when their plane stops.
	Ephemeral bool `json:"ephemeral"`
	// Made says that the directory itself was made for the plane, and goes with it.
	Made bool `json:"made"`
	// NodeName is the name of the node. It stays when the machine gets another host name, because pods refer to it.
	NodeName string `json:"nodeName"`
}

// openDir is a data directory that belongs to this process.
type openDir struct {
	Dir
	format format
	lock   *lock
	notes  []string // what was put right, for the person who starts the plane
}

// open takes the directory d for a plane: it makes what is missing, and refuses, without having changed anything, a
// directory that another plane uses, that has another version, that was made for the other kind of plane, that holds
// something else, or on whose disk a plane cannot run. Errors are for people; one is a *RunningError.
func open(d Dir, ephemeral bool, nodeName string) (*openDir, error) {
	found, entries, err := look(d)
	if err != nil {
		return nil, explain(d, err)
	}
	if err := check(d, entries, ephemeral); err != nil {
		return nil, err
	}
	if !found {
		if err := os.MkdirAll(string(d), 0o700); err != nil {
			return nil, explain(d, err)
		}
	}
	o, err := take(d, ephemeral, nodeName, !found)
	if err != nil && !found {
		_ = os.Remove(string(d)) // nothing if it is not empty
	}
	return o, err
}

// openTemporary makes an ephemeral directory of its own.
func openTemporary(nodeName string) (*openDir, error) {
	path, err := os.MkdirTemp("", "drover-")
	if err != nil {
		return nil, fmt.Errorf("making a temporary data directory: %w", err)
	}
	o, err := take(Dir(path), true, nodeName, true)
	if err != nil {
		_ = os.Remove(path) // the error above is the one that counts
	}
	return o, err
}

// take locks and completes the directory d, which exists.
func take(d Dir, ephemeral bool, nodeName string, made bool) (_ *openDir, err error) {
	if err := probe(d); err != nil {
		return nil, err
	}
	o := &openDir{Dir: d}
	o.lock, err = acquire(d.lock())
	if running := (*RunningError)(nil); errors.As(err, &running) {
		running.Dir = string(d)
		return nil, running
	}
	if err != nil {
		return nil, explain(d, err)
	}
	defer func() {
		if err == nil {
			return
		}
		if made {
			_ = os.Remove(d.lock()) // so that the directory can go as well
		}
		_ = o.lock.release() // the error above is the one that counts
	}()
	// Another plane may have been here since open looked.
	_, entries, err := look(d)
	if err != nil {
		return nil, explain(d, err)
	}
	if err := check(d, entries, ephemeral); err != nil {
		return nil, err
	}
	if err := o.complete(ephemeral, nodeName, made); err != nil {
		return nil, explain(d, err)
	}
	return o, nil
}

// look lists what is in d.
func look(d Dir) (found bool, entries []string, err error) {
	list, err := os.ReadDir(string(d))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	for _, entry := range list {
		entries = append(entries, entry.Name())
	}
	return true, entries, nil
}

// check reports why a plane cannot use the directory d with these entries, or nil.
func check(d Dir, entries []string, ephemeral bool) error {
	have, err := readFormat(d)
	switch {
	case errors.Is(err, os.ErrNotExist):
		// New, or a first start was cut off before it had written anything of value.
		for _, name := range entries {
			if name != "lock" && name != "drover.json.new" && name != ".probe" {
				return &Error{
					Doing: "using " + string(d), Err: fmt.Errorf("it holds %q and was not made by drover", name),
					Try: []string{"another --data-dir: an empty directory, or one that does not exist"},
				}
			}
		}
		return nil
	case err != nil:
		return err
	case have.Version != formatVersion:
		return &Error{
			Doing: "using " + string(d),
			Err:   fmt.Errorf("it has data of version %d, and this drover reads version %d; nothing was changed", have.Version, formatVersion),
			Try:   []string{"the drover that made it", "another --data-dir"},
		}
	case have.Ephemeral && !ephemeral:
		return &Error{
			Doing: "using " + string(d), Err: errors.New("it was made with --ephemeral, and is not safe against a loss of power"),
			Try: []string{"--ephemeral again, which removes it when it stops", "another --data-dir"},
		}
	case !have.Ephemeral && ephemeral:
		return &Error{
			Doing: "using " + string(d) + " with --ephemeral", Err: errors.New("it holds data that is meant to stay, and --ephemeral would remove it"),
			Try: []string{"without --ephemeral", "another --data-dir, or none: then a temporary directory is made"},
		}
	}
	return nil
}

func readFormat(d Dir) (format, error) {
	var f format
	data, err := os.ReadFile(d.format())
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("reading %s: %w", d.format(), err)
	}
	return f, nil
}

// probe makes sure that d can be written to and has room.
func probe(d Dir) error {
	path := d.path(".probe")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = file.Write(make([]byte, 4096))
		err = errors.Join(err, file.Sync(), file.Close(), os.Remove(path))
	}
	if err != nil {
		return explain(d, err)
	}
	free, err := freeBytes(d)
	if err != nil {
		return err
	}
	// A directory with a store in it has its log allocated already, and a start must work that lets somebody clean up.
	if _, err := os.Stat(d.Etcd()); errors.Is(err, os.ErrNotExist) && free < minFree {
		return full(d, free)
	}
	return nil
}

// explain turns what the system says of the data directory into something that a person can act on.
func explain(d Dir, err error) error {
	switch {
	case errors.Is(err, syscall.EROFS):
		return &Error{
			Doing: "writing to " + string(d), Err: errors.New("its file system is read-only"),
			Try: []string{"another --data-dir"},
		}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return full(d, 0)
	case errors.Is(err, os.ErrPermission):
		return &Error{
			Doing: "using " + string(d), Err: fmt.Errorf("this user may not: %w", err),
			Try: []string{"the user who owns it", "another --data-dir"},
		}
	}
	return &Error{Doing: "using " + string(d), Err: err, Try: []string{"another --data-dir"}}
}

func full(d Dir, free uint64) error {
	return &Error{
		Doing: "writing to " + string(d),
		Err:   fmt.Errorf("its disk is full: %d MiB are left, and a plane needs %d MiB to start", free>>20, minFree>>20),
		Try:   []string{"making room", "another --data-dir"},
	}
}

// freeBytes returns how much this user may still write where d is.
func freeBytes(d Dir) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(string(d), &fs); err != nil {
		return 0, fmt.Errorf("asking how full the disk of %s is: %w", d, err)
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

// complete makes what is missing, and everything private.
func (o *openDir) complete(ephemeral bool, nodeName string, made bool) error {
	f, err := readFormat(o.Dir)
	known := err == nil
	if errors.Is(err, os.ErrNotExist) {
		f = format{Version: formatVersion, Ephemeral: ephemeral, Made: made, NodeName: nodeName}
		data, jsonErr := json.MarshalIndent(f, "", "  ")
		if jsonErr != nil {
			return jsonErr
		}
		err = atomicfile.Write(o.Dir.format(), append(data, '\n'), 0o600)
	}
	if err != nil {
		return err
	}
	o.format = f
	if info, err := os.Stat(string(o.Dir)); known && err == nil && info.Mode().Perm() != 0o700 {
		o.notes = append(o.notes, fmt.Sprintf("%s was open to others (%v): it is private again", o.Dir, info.Mode().Perm()))
	}
	for _, dir := range []string{string(o.Dir), o.Etcd(), o.PKI(), o.path("run"), o.Logs(), o.Node()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// close lets go of the directory, and removes it first if it is ephemeral.
func (o *openDir) close() error {
	var err error
	if o.format.Ephemeral {
		err = o.remove()
	}
	return errors.Join(err, o.lock.release())
}

// remove removes what a plane has made, and the directory itself if a plane has made that. It refuses while something is
// mounted in there, because what is mounted belongs to somebody else.
func (o *openDir) remove() error {
	mounts, err := mountsBelow(string(o.Dir))
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("removing %s: something is still mounted on %s", o.Dir, strings.Join(mounts, ", "))
	}
	for _, name := range parts {
		// What a process of a pod has written may be unreadable or read-only for others, but this is its owner or root.
		if rmErr := os.RemoveAll(o.path(name)); rmErr != nil {
			err = errors.Join(err, fmt.Errorf("removing %s: %w", o.path(name), rmErr))
		}
	}
	if !o.format.Made {
		return err
	}
	return errors.Join(err, os.Remove(string(o.Dir)))
}

// mountsBelow returns where something is mounted below dir, as this process sees it.
func mountsBelow(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// ID, parent, device, root, mount point, ...; a space in the path is \040.
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescape.Replace(fields[4]); strings.HasPrefix(at, dir+"/") {
			found = append(found, at)
		}
	}
	slices.Sort(found)
	return found, lines.Err()
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
