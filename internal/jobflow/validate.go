// SPDX-License-Identifier: Apache-2.0

package jobflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// Validate returns everything that is wrong with a JobFlow, new or changed; nil: nothing. The texts contain what clients of Volcano
// look for. A name that is given twice is no problem, and neither is a flow without entries.
//
// Source: Volcano's webhook for JobFlows, for what it checks: that targets exist and that there is no cycle.
// Differs: the rest, which is about names that no Job can have, and about probes and patches.
func Validate(f *flow.JobFlow) []string {
	problems := structure(&f.Spec)
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i := range f.Spec.Flows {
		entry := &f.Spec.Flows[i]
		path := fmt.Sprintf("spec.flows[%d]", i)
		if bad := validation.IsQualifiedName(JobName(f.Name, entry.Name)); len(bad) > 0 {
			add("%s.name: no job can be named %s: %s", path, JobName(f.Name, entry.Name), strings.Join(bad, ", "))
		}
		if on := entry.DependsOn; on != nil && on.Probe != nil {
			validateProbe(on.Probe, path+".dependsOn.probe", add)
		}
		if entry.Patch != nil {
			if err := patchProblem(entry.Patch); err != nil {
				add("%s.patch.jobSpec: %v", path, err)
			}
		}
	}
	return problems
}

// phases are the phases of pods that a probe may ask for.
var phases = []string{string(corev1.PodPending), string(corev1.PodRunning), string(corev1.PodSucceeded), string(corev1.PodFailed), string(corev1.PodUnknown)}

const maxPort = 65535

func validateProbe(p *flow.Probe, path string, add func(string, ...any)) {
	for i, h := range p.HTTPGetList {
		if h.Port < 0 || h.Port > maxPort {
			add("%s.httpGetList[%d].port: %d is no port: use 1 to %d", path, i, h.Port, maxPort)
		}
		if strings.ContainsAny(h.Path, " \t\r\n") {
			add("%s.httpGetList[%d].path: %q has blanks", path, i, h.Path)
		}
		if name := h.HTTPHeader.Name; name != "" && len(validation.IsHTTPHeaderName(name)) > 0 {
			add("%s.httpGetList[%d].httpHeader.name: %q is no name of a header", path, i, name)
		}
	}
	for i, s := range p.TCPSocketList {
		if s.Port < 1 || s.Port > maxPort {
			add("%s.tcpSocketList[%d].port: %d is no port: use 1 to %d", path, i, s.Port, maxPort)
		}
	}
	for i, s := range p.TaskStatusList {
		if !slices.Contains(phases, s.Phase) {
			add("%s.taskStatusList[%d].phase: %q is not known: use %s", path, i, s.Phase, strings.Join(phases, ", "))
		}
	}
}

// patchProblem says why a patch can be applied to no template: things in lists have no name by which to find them.
func patchProblem(p *flow.Patch) error {
	for i := range p.JobSpec.Tasks {
		if p.JobSpec.Tasks[i].Name == "" {
			return fmt.Errorf("tasks[%d].name: which task of the template is meant? One without a name is called default and its position", i)
		}
	}
	diff, err := withoutNulls(p.JobSpec)
	if err != nil {
		return err
	}
	if _, err := strategicpatch.StrategicMergePatch(diff, diff, batch.JobSpec{}); err != nil {
		return err
	}
	return json.Unmarshal(diff, &batch.JobSpec{})
}

// structure returns why a flow cannot be run whatever its templates are: targets that do not exist, or a cycle.
func structure(spec *flow.JobFlowSpec) []string {
	after := map[string][]string{}
	var order []string
	for i := range spec.Flows {
		entry := &spec.Flows[i]
		if _, twice := after[entry.Name]; twice {
			continue
		}
		order = append(order, entry.Name)
		after[entry.Name] = nil
		if entry.DependsOn != nil {
			after[entry.Name] = entry.DependsOn.Targets
		}
	}
	var problems []string
	for i := range spec.Flows {
		on := spec.Flows[i].DependsOn
		if on == nil {
			continue
		}
		for k, target := range on.Targets {
			if _, there := after[target]; !there {
				problems = append(problems, fmt.Sprintf("spec.flows[%d].dependsOn.targets[%d]: vertex is not defined: the flow has no entry %q", i, k, target))
			}
		}
	}
	if cycle := cycleIn(order, after); cycle != nil {
		problems = append(problems, "jobflow Flow is not DAG: "+strings.Join(cycle, " depends on "))
	}
	return problems
}

// cycleIn returns a cycle, its first entry repeated at its end, or nil.
func cycleIn(order []string, after map[string][]string) []string {
	done := map[string]bool{} // no cycle can be reached from there
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		if done[name] {
			return nil
		}
		path = append(path, name)
		for _, next := range after[name] {
			if cycle := visit(next); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		done[name] = true
		return nil
	}
	for _, name := range order {
		if cycle := visit(name); cycle != nil {
			return cycle
		}
	}
	return nil
}
