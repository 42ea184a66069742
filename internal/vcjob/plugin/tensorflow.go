// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// tensorFlow tells every container of a distributed TensorFlow program who takes part in it, and which part is its own.
type tensorFlow struct {
	job                          *batch.Job
	ps, worker, chief, evaluator string // names of tasks
	port                         int
}

func newTensorFlow(args []string, j *batch.Job) Plugin {
	t := &tensorFlow{job: j, ps: "ps", worker: "worker", chief: "chief", evaluator: "evaluator", port: 2222}
	flags(args, map[string]any{"ps": &t.ps, "worker": &t.worker, "chief": &t.chief, "evaluator": &t.evaluator, "port": &t.port})
	return t
}

// tfConfig is what TensorFlow reads from TF_CONFIG.
type tfConfig struct {
	Cluster struct {
		PS        []string `json:"ps,omitempty"`
		Worker    []string `json:"worker,omitempty"`
		Chief     []string `json:"chief,omitempty"`
		Evaluator []string `json:"evaluator,omitempty"`
	} `json:"cluster"`
	Task struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	} `json:"task"`
}

// Edit implements Plugin.
func (t *tensorFlow) Edit(p Pod) error {
	tasks := t.job.Spec.Tasks
	if len(tasks) == 1 && tasks[0].Replicas == 1 {
		return nil // nothing is distributed
	}
	var config tfConfig
	config.Task.Type, config.Task.Index = tasks[p.Task].Name, p.Index
	for i := range tasks {
		role, others := t.role(&config, tasks[i].Name)
		if others == nil {
			continue
		}
		for index := range int(tasks[i].Replicas) {
			*others = append(*others, hostOf(t.job, &tasks[i], index)+":"+strconv.Itoa(t.port))
		}
		if i == p.Task {
			config.Task.Type = role
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("writing TF_CONFIG: %w", err)
	}
	for i := range p.Spec.Containers {
		addEnv(&p.Spec.Containers[i], corev1.EnvVar{Name: "TF_CONFIG", Value: string(text)})
	}
	return nil
}

// role returns what the task of that name does in the program, and the list of those that do; nil: it has no part.
func (t *tensorFlow) role(c *tfConfig, task string) (string, *[]string) {
	switch task {
	case t.ps:
		return "ps", &c.Cluster.PS
	case t.worker:
		return "worker", &c.Cluster.Worker
	case t.chief:
		return "chief", &c.Cluster.Chief
	case t.evaluator:
		return "evaluator", &c.Cluster.Evaluator
	}
	return "", nil
}

// Objects implements Plugin.
func (t *tensorFlow) Objects() []Object { return nil }
