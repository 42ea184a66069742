// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
)

// volcanoScheduler is the name that pods of Volcano's Jobs give their scheduler.
const volcanoScheduler = "volcano"

// runScheduler runs kube-scheduler with its default profile until ctx ends. It closes synced once every pod and node that
// existed at the start is known to it.
//
// kube-scheduler's own command is not used: it serves metrics and health on a port of its own, elects a leader, reads its
// client from a file, and handles signals.
func runScheduler(ctx context.Context, config *rest.Config, synced chan<- struct{}) error {
	defaults, err := latest.Default()
	if err != nil {
		return fmt.Errorf("reading the default configuration of kube-scheduler: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "scheduler"))
	if err != nil {
		return fmt.Errorf("making the client of kube-scheduler: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the dynamic client of kube-scheduler: %w", err)
	}
	// The informers end before Run returns, after everything that reads from them.
	informerCtx, stopInformers := context.WithCancel(context.WithoutCancel(ctx))
	factory := scheduler.NewInformerFactory(client, 0, nil)
	dynamicFactory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicClient, 0, corev1.NamespaceAll, nil)
	defer factory.Shutdown()
	defer dynamicFactory.Shutdown()
	defer stopInformers()

	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()

	// Jobs of Volcano name its scheduler. Their pods are scheduled like all others here.
	volcano := *defaults.Profiles[0].DeepCopy()
	volcano.SchedulerName = volcanoScheduler
	profiles := append(slices.Clone(defaults.Profiles), volcano)

	sched, err := scheduler.New(ctx, client, factory, dynamicFactory,
		func(name string) events.EventRecorderLogger { return broadcaster.NewRecorder(scheme.Scheme, name) },
		scheduler.WithComponentConfigVersion(defaults.APIVersion),
		scheduler.WithKubeConfig(config),
		scheduler.WithProfiles(profiles...),
		scheduler.WithPercentageOfNodesToScore(defaults.PercentageOfNodesToScore),
		scheduler.WithPodInitialBackoffSeconds(defaults.PodInitialBackoffSeconds),
		scheduler.WithPodMaxBackoffSeconds(defaults.PodMaxBackoffSeconds),
		scheduler.WithParallelism(defaults.Parallelism),
	)
	if err != nil {
		return fmt.Errorf("building kube-scheduler: %w", err)
	}
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting the events of kube-scheduler: %w", err)
	}
	factory.Start(informerCtx.Done())
	dynamicFactory.Start(informerCtx.Done())
	factory.WaitForCacheSync(ctx.Done())
	dynamicFactory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return fmt.Errorf("waiting for the caches of kube-scheduler: %w", err)
	}
	close(synced)
	sched.Run(ctx)
	return nil
}
