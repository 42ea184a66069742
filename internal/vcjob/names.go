// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// PodName returns the name of a pod of a task.
func PodName(job, task string, index int) string { return job + "-" + task + "-" + strconv.Itoa(index) }

// GroupName returns the name of the PodGroup of j.
func GroupName(j *batch.Job) string { return scheduling.JobGroupName(j.Name, j.UID) }

// ControllerRef returns the owner reference of everything that is made for j.
func ControllerRef(j *batch.Job) metav1.OwnerReference {
	return *metav1.NewControllerRef(j, batch.GroupVersion.WithKind("Job"))
}

// IsOwner reports whether an owner reference means a Job of Volcano.
func IsOwner(ref *metav1.OwnerReference) bool {
	return ref != nil && ref.Kind == "Job" && ref.APIVersion == batch.GroupVersion.String()
}

// claimName returns the name of the claim that is made for a volume of j: the same each time, so that it is made once.
//
// Differs: the last twelve characters are random in Volcano, which makes another claim when storing the name did not work.
func claimName(j *batch.Job, volume int) string {
	return j.Name + "-pvc-" + twelve(string(j.UID)+"/pvc/"+strconv.Itoa(volume))
}

// volumeName returns the name by which pods of j know a claim.
func volumeName(j *batch.Job, claim string) string {
	return j.Name + "-" + twelve(string(j.UID)+"/volume/"+claim)
}

// twelve returns twelve characters of [0-9a-z] that follow from text.
func twelve(text string) string {
	h := fnv.New128a()
	h.Write([]byte(text))
	sum := h.Sum(nil)
	digits := strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])^binary.BigEndian.Uint64(sum[8:]), 36)
	for len(digits) < 12 {
		digits = "0" + digits
	}
	return digits[len(digits)-12:]
}

func itoa[N ~int | ~int32](n N) string { return strconv.Itoa(int(n)) }

func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
