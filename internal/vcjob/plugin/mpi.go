// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// mpi tells the master of an MPI program where the workers are.
type mpi struct {
	job            *batch.Job
	master, worker string // names of tasks
	port           int    // of sshd
}

func newMPI(args []string, j *batch.Job) Plugin { return mpiOf(args, j) }

func mpiOf(args []string, j *batch.Job) *mpi {
	m := &mpi{job: j, master: "master", worker: "worker", port: 22}
	flags(args, map[string]any{"master": &m.master, "worker": &m.worker, "port": &m.port})
	return m
}

// MPIMaster returns the task that the arguments of the mpi plugin name as its master.
func MPIMaster(args []string) string { return mpiOf(args, nil).master }

func (m *mpi) problems() []string { return portProblem("port", m.port) }

// Edit implements Plugin.
func (m *mpi) Edit(p Pod) error {
	isMaster, workers := m.job.Spec.Tasks[p.Task].Name == m.master, taskOf(m.job, m.worker)
	if isMaster && workers == nil {
		return nil
	}
	eachContainer(p.Pod, func(c *corev1.Container) {
		if isMaster {
			addEnv(c, corev1.EnvVar{Name: "MPI_HOST", Value: strings.Join(hosts(m.job, workers), ",")})
		}
		addPort(c, "mpijob-port", m.port)
	})
	return nil
}

// Objects implements Plugin.
func (m *mpi) Objects() []Object { return nil }
