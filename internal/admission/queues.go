// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/drover-dev/drover/internal/queue"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// notBuiltIn leaves out the making of the queues that every Job may rely on: a process that begins makes them before it answers.
const notBuiltIn = "request.operation != 'CREATE' || !(request.name in ['root', 'default'])"

// AllQueues returns the queues that there are. It must not be behind: a queue may be made for one that was made just before.
type AllQueues func(ctx context.Context) ([]scheduling.Queue, error)

// VolcanoQueues returns the webhooks for queues of Volcano.
func VolcanoQueues(all AllQueues) []Webhook {
	queues := func(h Webhook) Webhook {
		h.Group, h.Version, h.Resource, h.Condition = scheduling.GroupVersion.Group, scheduling.GroupVersion.Version, "queues", notBuiltIn
		return h
	}
	return []Webhook{
		queues(Webhook{
			Name: "mutatequeue.volcano.sh", Path: "/queues/mutate", Mutates: true, Operations: []admissionv1.Operation{admissionv1.Create},
			Answer: func(_ context.Context, r *admissionv1.AdmissionRequest) (Answer, error) {
				return defaultQueue(r.Object.Raw)
			},
		}),
		queues(Webhook{
			Name: "validatequeue.volcano.sh", Path: "/queues/validate",
			Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			Answer: func(ctx context.Context, r *admissionv1.AdmissionRequest) (Answer, error) {
				var next, old *scheduling.Queue
				for _, version := range []struct {
					raw  []byte
					into **scheduling.Queue
				}{{r.Object.Raw, &next}, {r.OldObject.Raw, &old}} {
					if len(version.raw) == 0 {
						continue
					}
					if err := json.Unmarshal(version.raw, version.into); err != nil {
						return Answer{}, fmt.Errorf("reading the Queue of the request: %w", err)
					}
				}
				if r.Operation == admissionv1.Update && equality.Semantic.DeepEqual(next.Spec, old.Spec) && equality.Semantic.DeepEqual(next.Annotations, old.Annotations) {
					return Answer{}, nil // as most are
				}
				others, err := all(ctx)
				if err != nil {
					return Answer{}, fmt.Errorf("reading the queues: %w", err)
				}
				if r.Operation == admissionv1.Delete {
					return Answer{Problems: queue.ValidateDelete(r.Name, others)}, nil
				}
				return Answer{Problems: queue.Validate(next, old, others)}, nil
			},
		}),
	}
}

// defaultQueue returns what makes of a queue one that leaves nothing out.
func defaultQueue(raw []byte) (Answer, error) {
	var q scheduling.Queue
	var given struct {
		Spec *json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		return Answer{}, fmt.Errorf("reading the Queue of the request: %w", err)
	}
	if err := json.Unmarshal(raw, &given); err != nil {
		return Answer{}, fmt.Errorf("reading the spec of the Queue of the request: %w", err)
	}
	next := q.DeepCopy()
	queue.Default(next)
	var patch []Operation
	add := func(changed bool, path string, value any) {
		if changed {
			patch = append(patch, Operation{Op: "add", Path: path, Value: value})
		}
	}
	add(given.Spec == nil, "/spec", map[string]any{})
	add(q.Spec.Weight != next.Spec.Weight, "/spec/weight", next.Spec.Weight)
	add(q.Spec.Reclaimable == nil, "/spec/reclaimable", next.Spec.Reclaimable)
	for _, key := range []string{scheduling.HierarchyKey, scheduling.WeightsKey} {
		add(q.Annotations[key] != next.Annotations[key], "/metadata/annotations/"+strings.ReplaceAll(key, "/", "~1"), next.Annotations[key])
	}
	return Answer{Patch: patch}, nil
}
