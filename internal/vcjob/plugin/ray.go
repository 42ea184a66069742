// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// ray makes a Job a cluster of Ray: one head, workers that join it, and a Service for those who use it.
type ray struct {
	job                              *batch.Job
	head, headContainer              string // a task, and its container
	worker, workerContainer          string
	port, dashboardPort, clientsPort int
}

func newRay(args []string, j *batch.Job) Plugin {
	r := &ray{
		job: j, head: "head", headContainer: "head", worker: "worker", workerContainer: "worker",
		port: 6379, dashboardPort: 8265, clientsPort: 10001,
	}
	flags(args, map[string]any{
		"head": &r.head, "headContainer": &r.headContainer, "worker": &r.worker, "workerContainer": &r.workerContainer,
		"port": &r.port, "dashboardPort": &r.dashboardPort, "clientPort": &r.clientsPort,
	})
	return r
}

func (r *ray) problems() []string {
	var all []string
	if taskOf(r.job, r.head) == nil {
		all = append(all, fmt.Sprintf("The specified ray head task was not found: %s", r.head))
	}
	return slices.Concat(all, portProblem("port", r.port), portProblem("dashboardPort", r.dashboardPort), portProblem("clientPort", r.clientsPort))
}

// rayPort is a port of the head.
type rayPort struct {
	name   string
	number int
}

func (r *ray) ports() []rayPort {
	return []rayPort{{"gcs", r.port}, {"dashboard", r.dashboardPort}, {"client-server", r.clientsPort}}
}

// Edit implements Plugin.
func (r *ray) Edit(p Pod) error {
	head := taskOf(r.job, r.head)
	if head == nil {
		return fmt.Errorf("there is no head task %q", r.head)
	}
	switch r.job.Spec.Tasks[p.Task].Name {
	case r.head:
		r.start(p, r.headContainer, fmt.Sprintf("ray start --head --block --dashboard-host=0.0.0.0 --port=%d --dashboard-port=%d --ray-client-server-port=%d", r.port, r.dashboardPort, r.clientsPort))
		for i := range p.Spec.Containers {
			if c := &p.Spec.Containers[i]; c.Name == r.headContainer {
				r.addPorts(c)
			}
		}
	case r.worker:
		r.start(p, r.workerContainer, fmt.Sprintf("ray start --block --address=%s:%d", hostOf(r.job, head, 0), r.port))
	}
	return nil
}

// start has a container run another command.
func (r *ray) start(p Pod, container, command string) {
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == container {
			c.Command = []string{"sh", "-c", command}
		}
	}
}

// addPorts names the ports of the head, as the Service asks for them by name.
func (r *ray) addPorts(c *corev1.Container) {
	for _, port := range r.ports() {
		if !slices.ContainsFunc(c.Ports, func(have corev1.ContainerPort) bool { return have.Name == port.name }) {
			c.Ports = append(c.Ports, corev1.ContainerPort{Name: port.name, ContainerPort: int32(port.number)})
		}
	}
}

// Objects implements Plugin.
func (r *ray) Objects() []Object {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.job.Namespace, Name: r.job.Name + "-head-svc"},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: map[string]string{batch.JobNameKey: r.job.Name, batch.NamespaceKey: r.job.Namespace, batch.TaskKey: r.head},
		},
	}
	for _, port := range r.ports() {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: port.name, Protocol: corev1.ProtocolTCP, Port: int32(port.number), TargetPort: intstr.FromString(port.name),
		})
	}
	return []Object{{Plugin: "ray", Object: service, Keep: true}}
}
