// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/drover-dev/drover/internal/node/process"
)

// accounts are what this machine knows of its users and its shell. What was found is not looked up again: a burst of pods asks
// for the same things over and over.
type accounts struct {
	users  sync.Map // uid → *user.User
	shells sync.Map // program → path that it takes the place of
}

func (a *accounts) user(uid int64) *user.User {
	if u, ok := a.users.Load(uid); ok {
		return u.(*user.User)
	}
	u, err := user.LookupId(strconv.FormatInt(uid, 10))
	if err != nil {
		return nil // it may be added later
	}
	a.users.Store(uid, u)
	return u
}

// primaryGroup returns the group of a user of this machine; other users, and those of another root, are in group 0.
func (a *accounts) primaryGroup(uid int64, root string) *int64 {
	gid := int64(0)
	if root == "" {
		if u := a.user(uid); u != nil {
			if n, err := strconv.ParseInt(u.Gid, 10, 64); err == nil {
				gid = n
			}
		}
	}
	return &gid
}

// home returns the home directory of the container's user.
func (a *accounts) home(spec *process.Spec) string {
	uid := int64(os.Geteuid())
	if spec.UID != nil {
		uid = *spec.UID
	}
	if spec.Root == "" {
		if u := a.user(uid); u != nil && u.HomeDir != "" {
			return u.HomeDir
		}
	}
	if uid == 0 {
		return "/root"
	}
	return "/"
}

// shell returns the path at which program takes the place of /bin/sh, which is a symbolic link on many hosts; "" when it is not there, or
// is /bin/sh already.
func (a *accounts) shell(program string) string {
	if target, ok := a.shells.Load(program); ok {
		return target.(string)
	}
	target := ""
	if p, err := os.Stat(program); err == nil && p.Mode().IsRegular() {
		if sh, err := filepath.EvalSymlinks("/bin/sh"); err == nil {
			if s, err := os.Stat(sh); err == nil && !os.SameFile(p, s) {
				target = sh
			}
		}
	}
	a.shells.Store(program, target)
	return target
}
