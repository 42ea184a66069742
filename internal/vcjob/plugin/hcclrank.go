// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strconv"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// rankKey is the annotation from which Ascend's device plugin takes the rank of a pod.
const rankKey = "hccl/rankIndex"

// hcclRank numbers the pods of a Job for Huawei's collective communication library.
type hcclRank struct {
	job            *batch.Job
	master, worker string // names of tasks
}

func newHCCLRank(args []string, j *batch.Job) Plugin {
	h := &hcclRank{job: j, master: "master", worker: "worker"}
	flags(args, map[string]any{"master": &h.master, "worker": &h.worker})
	return h
}

// Edit implements Plugin.
func (h *hcclRank) Edit(p Pod) error {
	if _, there := p.Annotations[rankKey]; there {
		return nil
	}
	rank, ok := h.rank(p)
	if !ok {
		return nil
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[rankKey] = rank
	return nil
}

// rank returns the number of a pod: that which its containers are told already, or else its place after the masters.
func (h *hcclRank) rank(p Pod) (rank string, ok bool) {
	for i := range p.Spec.Containers {
		for _, v := range p.Spec.Containers[i].Env {
			if v.Name == "RANK" && v.Value != "" {
				return v.Value, true
			}
		}
	}
	switch h.job.Spec.Tasks[p.Task].Name {
	case h.master:
		return strconv.Itoa(p.Index), true
	case h.worker:
		masters := 0
		if t := taskOf(h.job, h.master); t != nil {
			masters = int(t.Replicas)
		}
		return strconv.Itoa(masters + p.Index), true
	}
	return "", false
}

// Objects implements Plugin.
func (h *hcclRank) Objects() []Object { return nil }
