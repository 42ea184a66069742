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
}

// Plugin is one plugin of one Job.
type Plugin interface {
	// Edit changes a pod that is about to be made. Doing so again changes nothing more.
	Edit(p Pod) error
	// Objects returns what the Job needs while it goes on, in a fixed order. It depends on the Job alone.
	Objects() []Object
}

// maker makes a plugin from its arguments. Arguments that it does not know are left out, as they are in Volcano.
type maker func(args []string, j *batch.Job) Plugin

// entry is one plugin that may be named.
type entry struct {
	name      string
	make      maker // nil: not in this version
	untracked bool  // leaves no entry in status.controlledResources
}

// registry holds the plugins in the order in which they edit a pod. The order is fixed, as some look at what others have set.
var registry = []entry{
	{name: "env", make: newEnv},
	{name: "svc", make: newSvc},
	{name: "ssh"},
	{name: "tensorflow"},
	{name: "mpi"},
	{name: "pytorch"},
	{name: "ray"},
	{name: "hcclrank", untracked: true},
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
		if e.make == nil {
			return nil, fmt.Errorf("plugin %q is not part of this version", e.name)
		}
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

// flags reads arguments in the form of Go's command line flags: --key=value, --key value, and --key for switches. It stops at the
// first one that is not declared or makes no sense; what comes after it keeps its default.
func flags(args []string, texts map[string]*string, switches map[string]*bool) {
	for i := 0; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "-")
		if !ok {
			return
		}
		name = strings.TrimPrefix(name, "-")
		name, value, hasValue := strings.Cut(name, "=")
		if target := switches[name]; target != nil {
			on := true
			if hasValue {
				var err error
				if on, err = strconv.ParseBool(value); err != nil {
					return
				}
			}
			*target = on
			continue
		}
		target := texts[name]
		if target == nil {
			return
		}
		if !hasValue {
			if i++; i == len(args) {
				return
			}
			value = args[i]
		}
		*target = value
	}
}

// MPIMaster returns the task that the arguments of the mpi plugin name as its master.
func MPIMaster(args []string) string {
	master, worker, port := "master", "worker", "22"
	flags(args, map[string]*string{"master": &master, "worker": &worker, "port": &port}, nil)
	return master
}

// hosts returns the names under which the pods of a task reach each other. A template that sets the hostname gives all its pods
// the same one.
func hosts(j *batch.Job, t *batch.TaskSpec) []string {
	subdomain := t.Template.Spec.Subdomain
	if subdomain == "" {
		subdomain = j.Name
	}
	if name := t.Template.Spec.Hostname; name != "" {
		return []string{name + "." + subdomain}
	}
	all := make([]string, t.Replicas)
	for i := range all {
		all[i] = j.Name + "-" + t.Name + "-" + strconv.Itoa(i) + "." + subdomain
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
