// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/node/process/spawner"
)

// Feature is something that a machine allows or not.
type Feature struct {
	Available bool
	Reason    string // why not
}

// Features is what this machine, and this user, allow.
type Features struct {
	// Isolation is what containers get: Full or None.
	Isolation Isolation
	// Isolated tells whether Full can be had, whatever was asked for.
	Isolated Feature
	// UserNamespace tells that isolation takes a user namespace: then a container has one user and one group only.
	UserNamespace bool
	// CgroupVersion is 1, 2 or, for none, 0.
	CgroupVersion     int
	CPU, Memory, PIDs Feature // limits
}

// Unenforced returns a sentence for each of the limits in l that this machine does not enforce.
func (f Features) Unenforced(l Limits) (sentences []string) {
	add := func(set bool, what string, feature Feature) {
		if set && !feature.Available {
			sentences = append(sentences, fmt.Sprintf("the %s is not enforced: %s", what, feature.Reason))
		}
	}
	add(l.CPUMillis > 0 || l.CPUShares > 0, "limit or share of CPU", f.CPU)
	add(l.MemoryBytes > 0, "limit of memory", f.Memory)
	add(l.PIDs > 0, "limit of processes", f.PIDs)
	return sentences
}

// Features returns what containers can have here.
func (r *Runtime) Features() Features { return r.features }

// detect finds out what is possible, by trying.
func (r *Runtime) detect() error {
	r.isolation = None
	r.features = Features{
		CgroupVersion: r.cgroups.version,
		CPU:           r.cgroups.feature(controllerCPU),
		Memory:        r.cgroups.feature(controllerMemory),
		PIDs:          r.cgroups.feature(controllerPIDs),
	}
	if r.cfg.Isolation == None {
		r.features.Isolated.Reason = "isolation is turned off"
	} else if err := r.detectIsolation(); err != nil {
		return err
	}
	r.features.Isolation, r.features.UserNamespace = r.isolation, r.userNamespace
	return nil
}

func (r *Runtime) detectIsolation() error {
	var reasons []string
	for _, user := range []bool{false, true} {
		if !user && r.uid != 0 {
			continue
		}
		err := r.tryIsolation(user)
		if err == nil {
			r.isolation, r.userNamespace = Full, user
			r.features.Isolated.Available = true
			return r.detectPlaces()
		}
		if !isRefusal(err) {
			return fmt.Errorf("finding out about isolation: %w", err)
		}
		how := "without a user namespace: "
		if user {
			how = "in a user namespace: "
		}
		reasons = append(reasons, how+err.Error())
	}
	reason := strings.Join(reasons, "; ")
	r.features.Isolated.Reason = reason
	if r.cfg.Isolation == Full {
		return unsupportedf("isolating containers: %s", reason)
	}
	r.log.Warn("Containers will not be isolated", "reason", reason)
	return nil
}

// detectPlaces gives up the layer with the places if it does not go together with those of the host. Nothing depends on it.
func (r *Runtime) detectPlaces() error {
	if r.places == "" || r.userNamespace {
		return nil
	}
	err := r.tryWorld(false, Mount{Source: filepath.Join(r.dir, emptyDir), Target: r.cfg.Places[0]})
	if err != nil && !isRefusal(err) {
		return fmt.Errorf("finding out about layers: %w", err)
	}
	if err != nil {
		r.log.Info("Containers make the places for their mounts themselves", "reason", err)
		r.places = ""
	}
	return nil
}

// isRefusal tells an answer of the kernel from a failure to ask.
func isRefusal(err error) bool {
	var start *StartError
	var errno syscall.Errno
	return errors.As(err, &start) || errors.As(err, &errno)
}

// tryIsolation makes the world of a container in which nothing runs. If that does not work with overlays of all that the host
// has mounted, each of them is tried before it is tried again.
func (r *Runtime) tryIsolation(user bool) error {
	r.assumeLayers(true)
	err := r.tryWorld(user)
	r.assumeLayers(false)
	if err == nil || !isRefusal(err) {
		return err
	}
	r.forgetLayers()
	return r.tryWorld(user)
}

func (r *Runtime) assumeLayers(assume bool) {
	r.mountsMu.Lock()
	defer r.mountsMu.Unlock()
	r.assumeOverlay = assume
}

func (r *Runtime) forgetLayers() {
	r.mountsMu.Lock()
	defer r.mountsMu.Unlock()
	clear(r.overlayable)
	closeFD(r.mountTable)
	r.mountTable = -1
}

func (r *Runtime) tryWorld(user bool, mounts ...Mount) error {
	c := r.newContainer(record{Spec: Spec{ID: probeID, Args: []string{"true"}, Mounts: mounts}, Isolation: Full, UserNamespace: user})
	p := newPlan()
	if err := r.isolate(p, c); err != nil {
		return err
	}
	err := r.probe(p)
	return errors.Join(err, c.removeFiles())
}

// probeID names scratch files of attempts. It is no valid ID of a container.
const probeID = ".probe"

// probe carries out a plan that ends before any command.
func (r *Runtime) probe(p *plan) error {
	sp, err := r.client()
	if err != nil {
		return err
	}
	p.image.Header.Flags |= spawner.FlagProbe
	f, err := sp.fork(p.flags, p.encode())
	if err != nil {
		return err
	}
	<-f.forked
	if f.err != nil {
		return f.err
	}
	pidfd := os.NewFile(uintptr(f.pidfd), "pidfd")
	defer discard(pidfd)
	_ = unix.SetNonblock(f.pidfd, true)
	if !isClosed(f.settled) {
		waitReadable(f.pidfd)
		sp.flush()
	}
	switch outcome := sp.outcome(f); outcome.Kind {
	case spawner.ReplyReady:
		return nil
	case spawner.ReplyFailed:
		return p.startError(outcome, []string{"true"}, nil)
	default:
		return errors.New("the attempt was killed")
	}
}

// waitReadable waits for the end of an attempt's process, which takes milliseconds.
func waitReadable(pidfd int) {
	for {
		polls := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(polls, -1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// canChangeUser tells whether this process may become any user and group.
func canChangeUser() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	need := uint32(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETPCAP)
	return data[0].Effective&need == need
}
