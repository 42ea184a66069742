// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/drover-dev/drover/internal/jobflow"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// JobFlows returns the webhook for JobFlows of Volcano.
func JobFlows() []Webhook {
	return []Webhook{{
		Name: "validatejobflow.volcano.sh", Path: "/jobflows/validate",
		Group: flow.GroupVersion.Group, Version: flow.GroupVersion.Version, Resource: "jobflows",
		Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update},
		Answer: func(_ context.Context, r *admissionv1.AdmissionRequest) (Answer, error) {
			var f flow.JobFlow
			if err := json.Unmarshal(r.Object.Raw, &f); err != nil {
				return Answer{}, fmt.Errorf("reading the JobFlow of the request: %w", err)
			}
			if f.DeletionTimestamp != nil {
				return Answer{}, nil
			}
			if f.Name == "" && f.GenerateName != "" { // the API server completes it after this
				f.Name = f.GenerateName + "xxxxx"
			}
			return Answer{Problems: jobflow.Validate(&f)}, nil
		},
	}}
}
