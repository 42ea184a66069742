// SPDX-License-Identifier: Apache-2.0

// Package plugin holds what the plugins of Volcano Jobs add: edits to pods that are about to be made, and objects that a Job needs
// beside its pods. A plugin is a value made from its arguments and the Job; it changes nothing but the pod it is handed.
//
// Start reading at Of and Plugin; a new plugin is a file and an entry in registry.
package plugin

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Pod is a pod that is about to be made.
type Pod struct {
	*corev1.Pod
	Task  int // position of its task
	Index int // within the task
}

// Object is something that a Job needs beside its pods: a *corev1.ConfigMap, *corev1.Service, *corev1.Secret or
// *networkingv1.NetworkPolicy, without owner references.
type Object struct {
	Plugin string
	Object any
	// Keep leaves the content of an object that is there already as it is.
	Keep bool
	// NeedsKeys says that Object is a Secret which is to hold a pair of keys beside its data: the one that it holds already, see
	// KeysOf, or else a new one, see Keys.Into.
	NeedsKeys bool
}

// Plugin is one plugin of one Job.
type Plugin interface {
	// Edit changes a pod that is about to be made. Doing so again changes nothing more.
	Edit(p Pod) error
	// Objects returns what the Job needs while it goes on, in a fixed order. It depends on the Job alone.
	Objects() []Object
}

// checker is a plugin whose arguments may be such that no pod could be made.
type checker interface {
	// problems returns what is wrong, in whole sentences without a full stop.
	problems() []string
}

// maker makes a plugin from its arguments. Arguments that it does not know are left out, as they are in Volcano.
type maker func(args []string, j *batch.Job) Plugin

// entry is one plugin that may be named.
type entry struct {
	name      string
	make      maker
	untracked bool // leaves no entry in status.controlledResources
}

// registry holds the plugins in the order in which they edit a pod. The order is fixed, as some look at what others have set.
var registry = []entry{
	{name: "env", make: newEnv},
	{name: "svc", make: newSvc},
	{name: "ssh", make: newSSH},
	{name: "tensorflow", make: newTensorFlow},
	{name: "mpi", make: newMPI},
	{name: "pytorch", make: newPyTorch},
	{name: "ray", make: newRay},
	{name: "hcclrank", make: newHCCLRank, untracked: true}, // looks at what pytorch sets
}

// Known reports whether there is a plugin of that name.
func Known(name string) bool {
	for _, e := range registry {
		if e.name == name {
			return true
		}
	}
	return false
}

// Named is a plugin and how it is called.
type Named struct {
	Plugin
	Name    string
	Tracked bool // has an entry in status.controlledResources
}

// Of returns the plugins of j in the order in which they edit its pods.
func Of(j *batch.Job) ([]Named, error) {
	if len(j.Spec.Plugins) == 0 {
		return nil, nil
	}
	var all []Named
	found := 0
	for _, e := range registry {
		args, wanted := j.Spec.Plugins[e.name]
		if !wanted {
			continue
		}
		found++
		all = append(all, Named{Plugin: e.make(args, j), Name: e.name, Tracked: !e.untracked})
	}
	if found < len(j.Spec.Plugins) {
		for name := range j.Spec.Plugins {
			if !Known(name) {
				return nil, fmt.Errorf("unable to find job plugin: %s", name)
			}
		}
	}
	return all, nil
}

// Problems returns what keeps the plugins of j from making any pod, in a fixed order; nil: nothing. Names of plugins that are not
// Known are no matter of it.
//
// Differs: Volcano accepts such Jobs, and ends them after some minutes in which no pod could be made.
func Problems(j *batch.Job) []string {
	var all []string
	for _, e := range registry {
		args, wanted := j.Spec.Plugins[e.name]
		if !wanted {
			continue
		}
		if c, ok := e.make(args, j).(checker); ok {
			for _, problem := range c.problems() {
				all = append(all, "plugin "+e.name+": "+problem)
			}
		}
	}
	return all
}

// flags reads arguments in the form of Go's command line flags: --key=value, --key value, and --key for switches. Targets are
// pointers to a string, an int or a bool, by key. It stops at the first argument that is not declared or makes no sense; what
// comes after it keeps its default.
func flags(args []string, targets map[string]any) {
	for i := 0; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "-")
		if !ok {
			return
		}
		name = strings.TrimPrefix(name, "-")
		name, value, hasValue := strings.Cut(name, "=")
		target := targets[name]
		if _, isSwitch := target.(*bool); !hasValue && isSwitch {
			value, hasValue = "true", true
		}
		if !hasValue {
			if i++; i == len(args) {
				return
			}
			value = args[i]
		}
		if !set(target, value) {
			return
		}
	}
}

// set reports whether value was one for target.
func set(target any, value string) bool {
	switch target := target.(type) {
	case *string:
		*target = value
	case *int:
		n, err := strconv.ParseInt(value, 0, strconv.IntSize)
		if err != nil {
			return false
		}
		*target = int(n)
	case *bool:
		on, err := strconv.ParseBool(value)
		if err != nil {
			return false
		}
		*target = on
	default:
		return false
	}
	return true
}

// isPort reports whether a container can have that port.
func isPort(n int) bool { return n > 0 && n <= 65535 }

// portProblem returns what is wrong with an argument that names a port of containers; nil: nothing.
func portProblem(argument string, port int) []string {
	if isPort(port) {
		return nil
	}
	return []string{fmt.Sprintf("--%s: %d is not a port, which is 1 to 65535", argument, port)}
}

// taskOf returns the task of that name; nil: there is none.
func taskOf(j *batch.Job, name string) *batch.TaskSpec {
	for i := range j.Spec.Tasks {
		if j.Spec.Tasks[i].Name == name {
			return &j.Spec.Tasks[i]
		}
	}
	return nil
}

// hostOf returns the name under which others reach one pod of a task. A template that sets the hostname gives all its pods the
// same one.
func hostOf(j *batch.Job, t *batch.TaskSpec, index int) string {
	subdomain := t.Template.Spec.Subdomain
	if subdomain == "" {
		subdomain = j.Name
	}
	name := t.Template.Spec.Hostname
	if name == "" {
		name = j.Name + "-" + t.Name + "-" + strconv.Itoa(index)
	}
	return name + "." + subdomain
}

// hosts returns the names under which the pods of a task are reached, each once.
func hosts(j *batch.Job, t *batch.TaskSpec) []string {
	if t.Template.Spec.Hostname != "" {
		return []string{hostOf(j, t, 0)}
	}
	all := make([]string, t.Replicas)
	for i := range all {
		all[i] = hostOf(j, t, i)
	}
	return all
}

// eachContainer calls f for every container of a pod, init containers included.
func eachContainer(p *corev1.Pod, f func(c *corev1.Container)) {
	for i := range p.Spec.Containers {
		f(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		f(&p.Spec.InitContainers[i])
	}
}

// addEnv sets a variable in the place of one that a plugin has set before.
func addEnv(c *corev1.Container, v corev1.EnvVar) {
	for i := range c.Env {
		if c.Env[i].Name == v.Name {
			c.Env[i] = v
			return
		}
	}
	c.Env = append(c.Env, v)
}

// addPort gives a container a port, unless it has one of that number or name.
func addPort(c *corev1.Container, name string, port int) {
	for i := range c.Ports {
		if c.Ports[i].ContainerPort == int32(port) || c.Ports[i].Name == name {
			return
		}
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: int32(port)})
}
