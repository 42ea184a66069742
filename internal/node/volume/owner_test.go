// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"syscall"
	"testing"
)

func ownerOf(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t)
}
