// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxIDLength    = 200
	maxMounts      = 500
	maxLogFiles    = 100
	defaultLogKeep = 5
	maxID          = math.MaxUint32 - 1 // of users and groups; the one above means "no change" to the kernel
)

// validate reports everything that makes no sense in s, as errors that are ErrInvalid.
func (s *Spec) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, invalidf(format, args...)) }

	if !validID(s.ID) {
		bad("id %q: 1 to %d letters, digits, dots, dashes and underscores are allowed, beginning with a letter or digit", s.ID, maxIDLength)
	}
	if len(s.Args) == 0 || s.Args[0] == "" {
		bad("no command")
	}
	for _, list := range [][]string{s.Args, s.Env, {s.Dir, s.Hostname, s.Domainname, s.Root, s.LogPath}} {
		for _, text := range list {
			if strings.ContainsRune(text, 0) {
				bad("text with a zero byte: %q", text)
			}
		}
	}
	for _, e := range s.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			bad("environment entry %q: not of the form NAME=value", name)
		}
	}
	for name, path := range map[string]string{"working directory": s.Dir, "root": s.Root, "log": s.LogPath} {
		if path != "" && !filepath.IsAbs(path) {
			bad("%s %q: not an absolute path", name, path)
		}
	}
	if len(s.Hostname) > 64 || len(s.Domainname) > 64 {
		bad("host or domain name longer than 64 bytes")
	}
	for _, id := range slices.Concat(s.Groups, pointed(s.UID), pointed(s.GID)) {
		if id < 0 || id > maxID {
			bad("user or group %d: not in 0..%d", id, int64(maxID))
		}
	}
	for _, name := range slices.Concat(s.AddCapabilities, s.DropCapabilities) {
		if _, ok := capabilityNumber(name); !ok && !isAll(name) {
			bad("unknown capability %q", name)
		}
	}
	if len(s.Mounts) > maxMounts {
		bad("%d mounts: more than %d", len(s.Mounts), maxMounts)
	}
	for _, m := range s.Mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) || filepath.Clean(m.Target) == "/" ||
			strings.ContainsRune(m.Source+m.Target, 0) {
			bad("mount of %q at %q: absolute paths are needed, and the target cannot be /", m.Source, m.Target)
		}
	}
	if s.OOMScoreAdj < -1000 || s.OOMScoreAdj > 1000 {
		bad("score for the out-of-memory killer %d: not in -1000..1000", s.OOMScoreAdj)
	}
	if l := s.Limits; l.CPUMillis < 0 || l.CPUShares < 0 || l.MemoryBytes < 0 || l.PIDs < 0 || s.LogMaxBytes < 0 {
		bad("negative limit")
	}
	if s.LogMaxFiles < 0 || s.LogMaxFiles > maxLogFiles {
		bad("number of log files %d: not in 0..%d", s.LogMaxFiles, maxLogFiles)
	}
	return errors.Join(errs...)
}

func pointed(p *int64) []int64 {
	if p == nil {
		return nil
	}
	return []int64{*p}
}

func validID(id string) bool {
	if id == "" || len(id) > maxIDLength || id[0] == '.' || id[0] == '-' || id[0] == '_' {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// supports tells what of s cannot be had in the isolation that containers get here, as errors that are ErrUnsupported.
func (r *Runtime) supports(s *Spec) error {
	var errs []error
	no := func(format string, args ...any) { errs = append(errs, unsupportedf(format, args...)) }
	switch {
	case r.isolation == None:
		why := r.features.Isolated.Reason
		for _, m := range s.Mounts {
			if filepath.Clean(m.Source) != filepath.Clean(m.Target) || m.ReadOnly {
				no("mount of %q at %q: containers are not isolated here (%s)", m.Source, m.Target, why)
			}
		}
		if s.Root != "" {
			no("root directory %q: containers are not isolated here (%s)", s.Root, why)
		}
		if s.ReadOnlyRoot {
			no("read-only root: containers are not isolated here (%s)", why)
		}
		if !r.privileged {
			r.supportsIDs(s, no)
		}
	case r.userNamespace:
		for _, g := range s.Groups {
			if s.GID == nil || g != *s.GID {
				no("supplementary group %d: an ordinary user can have one group only in a container", g)
			}
		}
	}
	return errors.Join(errs...)
}

// supportsIDs is about a process that can become nobody else.
func (r *Runtime) supportsIDs(s *Spec, no func(string, ...any)) {
	if s.UID != nil && *s.UID != int64(r.uid) {
		no("user %d: this process runs as user %d", *s.UID, r.uid)
	}
	if s.GID != nil && *s.GID != int64(r.gid) {
		no("group %d: this process runs with group %d", *s.GID, r.gid)
	}
	for _, g := range s.Groups {
		if g != int64(r.gid) && !slices.Contains(r.groups, int(g)) {
			no("supplementary group %d: this process is not in it", g)
		}
	}
	if len(s.AddCapabilities) > 0 {
		no("capabilities %s: this process does not have them", strings.Join(s.AddCapabilities, ", "))
	}
}
