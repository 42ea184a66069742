// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// env tells every container the index of its pod.
type env struct{}

func newEnv([]string, *batch.Job) Plugin { return env{} }

// Edit implements Plugin.
func (env) Edit(p Pod) error {
	eachContainer(p.Pod, func(c *corev1.Container) {
		for _, name := range [...]string{"VK_TASK_INDEX", "VC_TASK_INDEX"} {
			addEnv(c, corev1.EnvVar{Name: name, Value: strconv.Itoa(p.Index)})
		}
	})
	return nil
}

// Objects implements Plugin.
func (env) Objects() []Object { return nil }
