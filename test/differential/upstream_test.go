// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"sync"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1beta1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	upstreamjob "k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"

	"github.com/drover-dev/drover/internal/config"
)

const (
	upstreamWorkers = 20
	// upstreamResync is how often kube-controller-manager's informers tell everything again, at the most.
	upstreamResync = 12 * time.Hour
)

// runUpstream runs Kubernetes' own controllers as kube-controller-manager does, until ctx ends. They are called, and nothing
// else: this test knows of them what can be seen through the API.
func runUpstream(ctx context.Context, rc *rest.Config, ready func()) error {
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("connecting upstream's controllers: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, upstreamResync)
	pods, jobs := factory.Core().V1().Pods(), factory.Batch().V1().Jobs()
	var workloads schedulinginformers.WorkloadInformer
	var podGroups schedulinginformers.PodGroupInformer
	if on := gates(); on[config.GateWorkloadWithJob] {
		on["GenericWorkload"] = true
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(on); err != nil {
			return fmt.Errorf("setting upstream's feature gates: %w", err)
		}
		workloads, podGroups = factory.Scheduling().V1beta1().Workloads(), factory.Scheduling().V1beta1().PodGroups()
	}
	jobController, err := upstreamjob.NewController(ctx, client, pods, jobs, workloads, podGroups)
	if err != nil {
		return fmt.Errorf("making upstream's Job controller: %w", err)
	}
	ttl := ttlafterfinished.New(ctx, jobs, client)
	cronJobController, err := cronjob.NewControllerV2(ctx, jobs, factory.Batch().V1().CronJobs(), client)
	if err != nil {
		return fmt.Errorf("making upstream's CronJob controller: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { jobController.Run(ctx, upstreamWorkers) })
	running.Go(func() { ttl.Run(ctx, upstreamWorkers) })
	running.Go(func() { cronJobController.Run(ctx, upstreamWorkers) })
	ready()
	running.Wait()
	return nil
}
