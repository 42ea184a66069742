// SPDX-License-Identifier: Apache-2.0

package job

import (
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
)

// Pod names look like those that the API server makes up, "<prefix><5 characters>", but are not random: they follow from the
// Job's UID, the index, and a sequence number. A creation whose answer was lost is thus repeated under the same name, and the
// API server refuses to make the pod twice.
//
// Differs: upstream sends only a generateName, and an answer that is lost, or a crash at the wrong moment, makes a second pod.
const (
	// suffixAlphabet is the one of the API server's own suffixes: no vowels, nothing easily misread.
	suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength   = 5
	suffixes       = 27 * 27 * 27 * 27 * 27
	// suffixStep shares no factor with suffixes, so that consecutive numbers visit every suffix before one comes again.
	suffixStep = 8867611

	// maxPrefix is what the API server leaves of a prefix before it adds a suffix.
	maxPrefix = 58
)

// generateName returns the prefix of the names of a Job's pods; index is noIndex unless the Job is Indexed.
func generateName(jobName string, index int) string {
	if index != noIndex {
		tail := "-" + strconv.Itoa(index) + "-"
		return jobName[:min(len(jobName), maxPrefix-len(tail))] + tail
	}
	if prefix := jobName + "-"; len(validation.NameIsDNSSubdomain(prefix, true)) == 0 {
		return prefix
	}
	return jobName
}

// podName returns the name of the pod with that sequence number. Different numbers below 14 million give different names.
func podName(prefix string, uid types.UID, index, sequence int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // never fails
	_, _ = h.Write([]byte{'/'})
	_, _ = h.Write(strconv.AppendInt(nil, int64(index), 10))
	n := (h.Sum64() + uint64(sequence)*suffixStep) % suffixes
	name := make([]byte, 0, maxPrefix+suffixLength)
	name = append(name, prefix[:min(len(prefix), maxPrefix)]...)
	for range suffixLength {
		name = append(name, suffixAlphabet[n%uint64(len(suffixAlphabet))])
		n /= uint64(len(suffixAlphabet))
	}
	return string(name)
}
