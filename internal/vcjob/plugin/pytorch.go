// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// pyTorch tells every process of a distributed PyTorch program where its master is and which number it has.
type pyTorch struct {
	job            *batch.Job
	master, worker string // names of tasks
	port           int
	wait           bool // workers wait until the master can be reached
	waitSeconds    int
	waitImage      string
}

func newPyTorch(args []string, j *batch.Job) Plugin {
	t := &pyTorch{job: j, master: "master", worker: "worker", port: 23456, waitSeconds: 300, waitImage: "busybox:1.36.1"}
	flags(args, map[string]any{
		"master": &t.master, "worker": &t.worker, "port": &t.port,
		"wait-master-enabled": &t.wait, "wait-master-timeout": &t.waitSeconds, "wait-master-image": &t.waitImage,
	})
	return t
}

func (t *pyTorch) problems() []string { return portProblem("port", t.port) }

// waitForMaster is the name of the init container of workers.
const waitForMaster = "wait-for-master"

// waitScript tries a port every two seconds. Its arguments are a host, a port and how many seconds it may take. It does with what
// busybox has, and with what machines have that lack nc.
const waitScript = "try() {\n" +
	"  if command -v nc >/dev/null; then nc -z -w 2 \"$1\" \"$2\"\n" +
	"  elif command -v bash >/dev/null; then timeout 2 bash -c ': >\"/dev/tcp/$0/$1\"' \"$1\" \"$2\"\n" +
	"  else python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)' \"$1\" \"$2\"\n" +
	"  fi 2>/dev/null\n" +
	"}\n" +
	"end=`date +%s`; end=`expr $end + $3`\n" +
	"until try \"$1\" \"$2\"; do\n" +
	"  if [ `date +%s` -ge $end ]; then echo \"the master $1:$2 has not answered within $3 seconds\" >&2; exit 1; fi\n" +
	"  echo \"waiting for the master $1:$2\"\n" +
	"  sleep 2\n" +
	"done\n"

// Edit implements Plugin.
func (t *pyTorch) Edit(p Pod) error {
	master, worker := taskOf(t.job, t.master), taskOf(t.job, t.worker)
	if master == nil {
		return nil
	}
	size := master.Replicas
	if worker != nil {
		size += worker.Replicas
	}
	host, port := hostOf(t.job, master, 0), strconv.Itoa(t.port)
	vars := []corev1.EnvVar{{Name: "MASTER_ADDR", Value: host}, {Name: "MASTER_PORT", Value: port}, {Name: "WORLD_SIZE", Value: strconv.Itoa(int(size))}}
	isWorker := false
	switch t.job.Spec.Tasks[p.Task].Name {
	case t.worker:
		isWorker = true
		vars = append(vars, corev1.EnvVar{Name: "RANK", Value: strconv.Itoa(p.Index + 1)})
	case t.master:
		vars = append(vars, corev1.EnvVar{Name: "RANK", Value: "0"})
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		for _, v := range vars {
			addEnv(c, v)
		}
		addPort(c, "pytorchjob-port", t.port)
	}
	if t.wait && isWorker && !slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == waitForMaster }) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: waitForMaster, Image: t.waitImage,
			Command: []string{"sh", "-c", waitScript, waitForMaster, host, port, strconv.Itoa(t.waitSeconds)},
		})
	}
	return nil
}

// Objects implements Plugin.
func (t *pyTorch) Objects() []Object { return nil }
