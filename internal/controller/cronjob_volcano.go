// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
)

// VCCronJobController runs CronJobs of Volcano.
type VCCronJobController = cronController[*batch.CronJob, *batch.Job]

// NewVCCronJobController returns a controller that follows CronJobs of Volcano through vc and their Jobs through caches, and writes
// through vc. It starts nothing.
func NewVCCronJobController(cfg CronJobConfig, vc *client.Client, caches *VolcanoCaches, events eventSink, c clock.WithTicker, log *slog.Logger) (*VCCronJobController, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the controller of Volcano's CronJobs: %w", err)
	}
	cc := newCronController(volcanoCronKind(), cfg, vcCronClient{vc}, events, c, log)
	var slim slimmer
	crons := inNamespaces(caches.namespaces, func(namespace string) cache.SharedIndexInformer {
		return client.NewInformer(vc.CronJobs(namespace), &batch.CronJob{}, volcanoResync, cache.Indexers{})
	})
	if err := crons.SetTransform(slim.unmanaged); err != nil {
		return nil, fmt.Errorf("keeping the caches small: %w", err)
	}
	cc.run = func(ctx context.Context, running *sync.WaitGroup) {
		caches.run(ctx, running)
		running.Go(func() { crons.RunWithContext(ctx) })
	}
	return cc, cc.follow(crons, caches.jobs)
}

// volcanoCronKind is that of Volcano.
func volcanoCronKind() cronKind[*batch.CronJob, *batch.Job] {
	return cronKind[*batch.CronJob, *batch.Job]{
		apiVersion: batch.GroupVersion.String(), crons: batch.GroupVersion.WithResource("cronjobs").GroupResource(), jobs: batch.GroupVersion.WithResource("jobs").GroupResource(),
		queue: "cronvcjob", options: cronjob.VolcanoOptions(),
		facts: cronjob.FromVolcano, child: cronjob.ChildFromVolcano, jobFor: cronjob.VolcanoJobFor,
		withStatus: func(c *batch.CronJob, s cronjob.Status, annotations map[string]string) *batch.CronJob {
			next := &batch.CronJob{ObjectMeta: c.ObjectMeta, Spec: c.Spec, Status: s.ToVolcano()}
			next.Annotations = annotations
			return next
		},
		observeSkew: func(time.Duration) {}, // Volcano has no such metric
	}
}

// vcCronClient is the cronAPI of Volcano on a real API server.
type vcCronClient struct{ vc *client.Client }

func (c vcCronClient) CronJob(ctx context.Context, namespace, name string) (*batch.CronJob, error) {
	return c.vc.CronJobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

// StoreCronStatus writes the status first: it says what was started. Where a kind is defined by a CustomResourceDefinition, no
// annotations are taken with it, so that the ledger needs a request of its own. If that one does not work the version that the first
// has made is lost, and the next try meets a conflict and looks at what is stored.
func (c vcCronClient) StoreCronStatus(ctx context.Context, before, after *batch.CronJob) (string, error) {
	crons, version := c.vc.CronJobs(after.Namespace), after.ResourceVersion
	if !equality.Semantic.DeepEqual(before.Status, after.Status) {
		body := &batch.CronJob{
			TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "CronJob"},
			ObjectMeta: after.ObjectMeta, Spec: after.Spec, Status: after.Status,
		}
		stored, err := crons.UpdateStatus(ctx, body, metav1.UpdateOptions{})
		if err != nil {
			return "", err
		}
		version = stored.ResourceVersion
	}
	ledger := after.Annotations[cronjob.LedgerAnnotation]
	if before.Annotations[cronjob.LedgerAnnotation] == ledger {
		return version, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": version, "uid": after.UID, "annotations": map[string]string{cronjob.LedgerAnnotation: ledger},
	}})
	if err != nil {
		return "", fmt.Errorf("writing the ledger: %w", err)
	}
	stored, err := crons.Patch(ctx, after.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", err
	}
	return stored.ResourceVersion, nil
}

func (c vcCronClient) Job(ctx context.Context, namespace, name string) (*batch.Job, error) {
	return c.vc.Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c vcCronClient) CreateJob(ctx context.Context, j *batch.Job) (*batch.Job, error) {
	return c.vc.Jobs(j.Namespace).Create(ctx, j, metav1.CreateOptions{})
}

func (c vcCronClient) DeleteJobWithPods(ctx context.Context, namespace, name string, uid types.UID) error {
	return c.vc.Jobs(namespace).Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &uid},
	})
}
