// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"hash/fnv"
	"time"
)

// Spread returns the place of an identity in a window: a whole number of seconds from 0 to below window, always the same for the
// same identity and window, and evenly spread over identities. It is 0 for windows of a second or less.
//
// The place is the 64-bit FNV-1a hash of the identity, mixed by the finalizer of SplitMix64 because short and similar names
// leave its upper bits alike, and scaled to the window by its upper bits. Half as wide a window therefore halves every place,
// and objects keep their order.
func Spread(identity string, window time.Duration) time.Duration {
	seconds := uint64(max(window/time.Second, 0))
	if seconds <= 1 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(identity)) // never fails
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return time.Duration((x>>32)*seconds>>32) * time.Second
}
