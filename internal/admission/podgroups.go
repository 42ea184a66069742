// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// PodGroups returns the webhook for PodGroups of Volcano.
//
// Differs: those that a controller makes are not asked about. The queue of a Job was looked at when the Job was made, and one that has
// been closed since is waited for.
func PodGroups(queues Queues) []Webhook {
	return []Webhook{{
		Name: "validatepodgroup.volcano.sh", Path: "/podgroups/validate",
		Group: scheduling.GroupVersion.Group, Version: scheduling.GroupVersion.Version, Resource: "podgroups",
		Operations: []admissionv1.Operation{admissionv1.Create},
		Condition:  "!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(r, has(r.controller) && r.controller)",
		Answer: func(_ context.Context, r *admissionv1.AdmissionRequest) (Answer, error) {
			var g scheduling.PodGroup
			if err := json.Unmarshal(r.Object.Raw, &g); err != nil {
				return Answer{}, fmt.Errorf("reading the PodGroup of the request: %w", err)
			}
			name := g.Spec.Queue
			if name == "" {
				name = batch.DefaultQueue
			}
			switch q, _ := queues(name); {
			case q == nil:
				return Answer{Problems: []string{fmt.Sprintf("unable to find queue: queues.scheduling.volcano.sh %q not found", name)}}, nil
			case q.Status.State != scheduling.QueueOpen && q.Status.State != "":
				return Answer{Problems: []string{fmt.Sprintf("can only submit PodGroup to queue with state `Open`, queue `%s` status is `%s`", name, q.Status.State)}}, nil
			}
			return Answer{}, nil
		},
	}}
}

// Policies returns the rules for PodGroups and plain pods that the API server needs nobody for, so that the many that they are not
// about cost nothing. schedulerName is that of the pods that are meant; "": volcano.
func Policies(schedulerName string) []Policy {
	if schedulerName == "" {
		schedulerName = batch.DefaultSchedulerName
	}
	return []Policy{
		{
			Name: "podgroup-queue", Group: scheduling.GroupVersion.Group, Version: scheduling.GroupVersion.Version, Resource: "podgroups",
			Conditions: []string{"has(object.spec) && (!has(object.spec.queue) || object.spec.queue == '" + batch.DefaultQueue + "')"},
			// A PodGroup that a Job has made for a queue without limits is admitted already: in another queue it is not.
			Patch: fmt.Sprintf("has(namespaceObject.metadata.annotations) && %[1]q in namespaceObject.metadata.annotations ? "+
				"[JSONPatch{op: 'add', path: '/spec/queue', value: namespaceObject.metadata.annotations[%[1]q]}] + "+
				"(has(object.status) && has(object.metadata.ownerReferences) && "+
				"object.metadata.ownerReferences.exists(r, r.kind == 'Job' && r.apiVersion == %[2]q) ? [JSONPatch{op: 'remove', path: '/status'}] : []) : []",
				scheduling.QueueNameKey, batch.GroupVersion.String()),
		},
		{
			Name: "pod-disruption", Version: "v1", Resource: "pods",
			Conditions: []string{
				fmt.Sprintf("object.spec.schedulerName == %q", schedulerName),
				fmt.Sprintf("has(object.metadata.annotations) && (%q in object.metadata.annotations || %q in object.metadata.annotations)", batch.MinAvailableKey, batch.MaxUnavailableKey),
			},
			Rules: []admissionregistrationv1.Validation{
				{
					Expression: fmt.Sprintf("!(%q in object.metadata.annotations && %q in object.metadata.annotations)", batch.MinAvailableKey, batch.MaxUnavailableKey),
					Message:    fmt.Sprintf("annotations %s and %s exclude each other", batch.MinAvailableKey, batch.MaxUnavailableKey),
				},
				disruptionRule(batch.MinAvailableKey), disruptionRule(batch.MaxUnavailableKey),
			},
		},
	}
}

// disruptionRule says what an annotation about disruptions may be.
func disruptionRule(key string) admissionregistrationv1.Validation {
	return admissionregistrationv1.Validation{
		Expression: fmt.Sprintf("!(%[1]q in object.metadata.annotations) || object.metadata.annotations[%[1]q].matches('^([1-9][0-9]{0,8}|[1-9][0-9]?%%)$')", key),
		Message:    fmt.Sprintf("annotation %s must be a positive integer, or a percentage between 1%% and 99%%", key),
	}
}
