// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

func vcCronJobKind() *Kind {
	return &Kind{
		Name:             "cronvcjob",
		Plural:           "cronvcjobs",
		Aliases:          []string{"cronvj", "cronjob.batch.volcano.sh", "cronjobs.batch.volcano.sh"},
		GroupVersionKind: batch.GroupVersion.WithKind("CronJob"),
		Endless:          true,
		Summarize:        func(o runtime.Object) Summary { return SummarizeVCCronJob(o.(*batch.CronJob)) },
		Columns:          cronJobKind().Columns,
		Cells: func(o runtime.Object, now time.Time) []string {
			return cronJobCells(cronjob.FromVolcano(o.(*batch.CronJob)), now)
		},
		SuspendPatch: func(suspend bool) []byte {
			return fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)
		},
		Cron: &Cron{
			Jobs: VCJob, Options: cronjob.VolcanoOptions(),
			Facts: func(o runtime.Object) *cronjob.CronJob { return cronjob.FromVolcano(o.(*batch.CronJob)) },
			Child: func(o runtime.Object) cronjob.Child { return cronjob.ChildFromVolcano(o.(*batch.Job)) },
			Start: func(ctx context.Context, client kubernetes.Interface, o runtime.Object, s cronjob.Start, _ metav1.CreateOptions) error {
				j := cronjob.VolcanoJobFor(o.(*batch.CronJob), s)
				return CreateVolcano(ctx, client, batch.GroupVersion, "jobs", j.Namespace, j)
			},
		},
		Open: func(client kubernetes.Interface, namespace string) Client {
			return openVolcano(client, batch.GroupVersion, "cronjobs", namespace, func() *batch.CronJob { return &batch.CronJob{} }, func() *batch.CronJobList { return &batch.CronJobList{} })
		},
	}
}

// SummarizeVCCronJob sums a CronJob of Volcano up.
func SummarizeVCCronJob(c *batch.CronJob) Summary {
	var containers []corev1.Container
	for i := range c.Spec.JobTemplate.Spec.Tasks {
		containers = append(containers, c.Spec.JobTemplate.Spec.Tasks[i].Template.Spec.Containers...)
	}
	return summarizeCron(cronjob.FromVolcano(c), containers)
}
