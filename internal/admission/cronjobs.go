// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// VCCronJobs returns the webhook for CronJobs of Volcano.
func VCCronJobs() []Webhook {
	return []Webhook{{
		Name: "validatecronjob.volcano.sh", Path: "/cronjobs/validate",
		Group: batch.GroupVersion.Group, Version: batch.GroupVersion.Version, Resource: "cronjobs",
		Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update},
		Answer: func(_ context.Context, r *admissionv1.AdmissionRequest) (Answer, error) {
			var c batch.CronJob
			if err := json.Unmarshal(r.Object.Raw, &c); err != nil {
				return Answer{}, fmt.Errorf("reading the CronJob of the request: %w", err)
			}
			if c.DeletionTimestamp != nil {
				return Answer{}, nil
			}
			if c.Name == "" && c.GenerateName != "" { // the API server completes it after this
				c.Name = c.GenerateName + "xxxxx"
			}
			return Answer{Problems: cronjob.ValidateVolcano(&c, time.LoadLocation)}, nil
		},
	}}
}
