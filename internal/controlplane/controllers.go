// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/scheduling/podgroupprotection"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
)

const (
	// resync is how often informers hand out everything again. kube-controller-manager takes 12 to 24 hours.
	resync = 12 * time.Hour
	// discoveryPeriod is how often garbage collector and quota look for new kinds without being told of any.
	discoveryPeriod = 30 * time.Second
	// kindSettle is how long after the last change of a custom resource definition they look. Definitions come several at
	// a time, and take a moment to be served.
	kindSettle      = time.Second
	quotaResync     = 5 * time.Minute
	namespaceResync = 5 * time.Minute

	// Workers, for one machine. kube-controller-manager has 20, 10 and 5 of them.
	gcWorkers        = 8
	namespaceWorkers = 4
	quotaWorkers     = 2
)

// controllers are the loops of kube-controller-manager that everything in the API relies on, each under the identity and
// with the role that it has there. Jobs, CronJobs and their clean-up are not among them.
type controllers struct {
	clientConfig func(serviceAccount string) *rest.Config
	informer     *rest.Config // reads everything, as kube-controller-manager's informers do
	ca           []byte
	pods         int // finished pods to keep

	typed    informers.SharedInformerFactory
	metadata metadatainformer.SharedInformerFactory
	started  chan struct{} // closed when the informers run
	kinds    *signal       // custom resource definitions have changed
	loops    []func(context.Context)
}

// runControllers runs them until ctx ends and every one has stopped.
func runControllers(ctx context.Context, c *controllers) error {
	if err := c.build(ctx); err != nil {
		return err
	}
	// The informers outlive the loops that read from them.
	informerCtx, stopInformers := context.WithCancel(context.WithoutCancel(ctx))
	defer c.typed.Shutdown()
	defer c.metadata.Shutdown()
	defer stopInformers()
	c.typed.Start(informerCtx.Done())
	c.metadata.Start(informerCtx.Done())
	close(c.started)

	var loops sync.WaitGroup
	for _, run := range c.loops {
		loops.Go(func() { run(ctx) })
	}
	loops.Wait()
	return nil
}

func (c *controllers) build(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.informer)
	if err != nil {
		return fmt.Errorf("making the client of the shared informers: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(c.informer)
	if err != nil {
		return fmt.Errorf("making the metadata client: %w", err)
	}
	c.typed = informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(dropManagedFields))
	c.metadata = metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, resync,
		metadatainformer.WithTransform(dropManagedFields))
	c.started = make(chan struct{})
	if err := c.watchKinds(); err != nil {
		return err
	}

	for _, add := range []struct {
		name  string
		build func(context.Context, kubernetes.Interface, *rest.Config) error
	}{
		{"service-account-controller", c.addServiceAccounts},
		{"root-ca-cert-publisher", c.addRootCA},
		{"namespace-controller", c.addNamespaces},
		{"generic-garbage-collector", c.addGarbageCollector},
		{"pod-garbage-collector", c.addPodGC},
		{"resourcequota-controller", c.addQuota},
		{"clusterrole-aggregation-controller", c.addClusterRoles},
		{"pvc-protection-controller", c.addClaimProtection},
		{"pv-protection-controller", c.addVolumeProtection},
		{"podgroup-protection-controller", c.addPodGroupProtection},
	} {
		config := c.clientConfig(add.name)
		own, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("making the client of %s: %w", add.name, err)
		}
		if err := add.build(ctx, own, config); err != nil {
			return fmt.Errorf("building %s: %w", add.name, err)
		}
	}
	return nil
}

// watchKinds makes c.kinds follow the custom resource definitions.
func (c *controllers) watchKinds() error {
	c.kinds = newSignal()
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err := c.metadata.ForResource(definitions).Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial { // those that are there at the start are found by the first look
				c.kinds.raise()
			}
		},
		UpdateFunc: func(_, _ any) { c.kinds.raise() },
		DeleteFunc: func(any) { c.kinds.raise() },
	})
	if err != nil {
		return fmt.Errorf("watching custom resource definitions: %w", err)
	}
	return nil
}

// forEachChange runs look, which looks for new kinds at once and then now and then, until ctx ends, and starts it again
// when there may be new ones. Otherwise an object of a new kind could be deleted, and what belongs to it stay for half a
// minute.
func (c *controllers) forEachChange(ctx context.Context, look func(context.Context)) {
	for ctx.Err() == nil {
		changed := c.kinds.raised()
		lookCtx, stop := context.WithCancel(ctx)
		var looking sync.WaitGroup
		looking.Go(func() { look(lookCtx) })
		select {
		case <-ctx.Done():
		case <-changed:
		}
		for settled := false; !settled; {
			select {
			case <-ctx.Done():
				settled = true
			case <-c.kinds.raised():
			case <-time.After(kindSettle):
				settled = true
			}
		}
		stop()
		looking.Wait()
	}
}

// signal tells any number of goroutines that something has happened.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// raised returns a channel that is closed at the next raise.
func (s *signal) raised() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}

// dropManagedFields saves the memory of what no controller reads.
func dropManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

func (c *controllers) addLoop(run func(context.Context)) { c.loops = append(c.loops, run) }

func (c *controllers) addServiceAccounts(ctx context.Context, client kubernetes.Interface, _ *rest.Config) error {
	controller, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx),
		c.typed.Core().V1().ServiceAccounts(), c.typed.Core().V1().Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

func (c *controllers) addRootCA(_ context.Context, client kubernetes.Interface, _ *rest.Config) error {
	controller, err := rootcacertpublisher.NewPublisher(c.typed.Core().V1().ConfigMaps(), c.typed.Core().V1().Namespaces(),
		client, c.ca)
	if err != nil {
		return err
	}
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

func (c *controllers) addNamespaces(ctx context.Context, client kubernetes.Interface, config *rest.Config) error {
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	controller := namespace.NewNamespaceController(ctx, client, metadataClient,
		client.Discovery().ServerPreferredNamespacedResources, c.typed.Core().V1().Namespaces(), namespaceResync,
		corev1.FinalizerKubernetes)
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) })
	return nil
}

func (c *controllers) addGarbageCollector(ctx context.Context, client kubernetes.Interface, config *rest.Config) error {
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	// Two discovery clients: the collector resets the mapper's cache when the other one sees new kinds.
	mapperDiscovery, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(mapperDiscovery))
	ignored := maps.Clone(garbagecollector.DefaultIgnoredResources())
	controller, err := garbagecollector.NewGarbageCollector(ctx, client, metadataClient, mapper, ignored,
		c.metadataFirst(), c.started)
	if err != nil {
		return err
	}
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, gcWorkers, discoveryPeriod) })
	c.addLoop(func(ctx context.Context) {
		c.forEachChange(ctx, func(ctx context.Context) { controller.Sync(ctx, client.Discovery(), discoveryPeriod) })
	})
	return nil
}

func (c *controllers) addPodGC(ctx context.Context, client kubernetes.Interface, _ *rest.Config) error {
	controller := podgc.NewPodGC(ctx, client, c.typed.Core().V1().Pods(), c.typed.Core().V1().Nodes(), c.pods)
	c.addLoop(controller.Run)
	return nil
}

func (c *controllers) addQuota(ctx context.Context, client kubernetes.Interface, _ *rest.Config) error {
	list := generic.ListerFuncForResourceFunc(c.typed.ForResource)
	configuration, err := quotainstall.NewQuotaConfigurationForControllers(list, c.typed)
	if err != nil {
		return err
	}
	discover := client.Discovery().ServerPreferredNamespacedResources
	controller, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     c.typed.Core().V1().ResourceQuotas(),
		ResyncPeriod:              func() time.Duration { return quotaResync },
		InformerFactory:           c.metadataFirst(),
		ReplenishmentResyncPeriod: func() time.Duration { return resync },
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      configuration.IgnoredResources,
		InformersStarted:          c.started,
		Registry:                  generic.NewRegistry(configuration.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return err
	}
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, quotaWorkers) })
	c.addLoop(func(ctx context.Context) {
		c.forEachChange(ctx, func(ctx context.Context) { controller.Sync(ctx, discover, discoveryPeriod) })
	})
	return nil
}

func (c *controllers) addClusterRoles(_ context.Context, client kubernetes.Interface, _ *rest.Config) error {
	controller := clusterroleaggregation.NewClusterRoleAggregation(c.typed.Rbac().V1().ClusterRoles(), client.RbacV1())
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

func (c *controllers) addClaimProtection(ctx context.Context, client kubernetes.Interface, _ *rest.Config) error {
	controller, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx),
		c.typed.Core().V1().PersistentVolumeClaims(), c.typed.Core().V1().Pods(), client)
	if err != nil {
		return err
	}
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

func (c *controllers) addVolumeProtection(ctx context.Context, client kubernetes.Interface, _ *rest.Config) error {
	controller, err := pvprotection.NewPVProtectionController(klog.FromContext(ctx), c.typed.Core().V1().PersistentVolumes(),
		client)
	if err != nil {
		return err
	}
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

func (c *controllers) addPodGroupProtection(ctx context.Context, client kubernetes.Interface, _ *rest.Config) error {
	if !gateEnabled("GenericWorkload") {
		return nil
	}
	controller, err := podgroupprotection.NewPodGroupProtectionController(klog.FromContext(ctx),
		c.typed.Scheduling().V1beta1().PodGroups(), c.typed.Core().V1().Pods(), client)
	if err != nil {
		return err
	}
	c.addLoop(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

// metadataFirst returns the informers for garbage collector and quota, which ask for every kind there is. They get whole
// objects only of kinds that another controller here, or the evaluators of quota, hold as whole objects already; of all
// others, Jobs and Secrets among them, names and owners are enough.
func (c *controllers) metadataFirst() informerfactory.InformerFactory {
	whole := []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("configmaps"),
		corev1.SchemeGroupVersion.WithResource("namespaces"),
		corev1.SchemeGroupVersion.WithResource("nodes"),
		corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
		corev1.SchemeGroupVersion.WithResource("persistentvolumes"),
		corev1.SchemeGroupVersion.WithResource("pods"),
		corev1.SchemeGroupVersion.WithResource("resourcequotas"),
		corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
		corev1.SchemeGroupVersion.WithResource("services"),
		rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
		schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups"),
	}
	return &metadataFirst{controllers: c, whole: whole}
}

type metadataFirst struct {
	*controllers
	whole []schema.GroupVersionResource
}

func (f *metadataFirst) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	if slices.Contains(f.whole, resource) {
		return f.typed.ForResource(resource)
	}
	return f.metadata.ForResource(resource), nil
}

func (f *metadataFirst) Start(stop <-chan struct{}) {
	f.typed.Start(stop)
	f.metadata.Start(stop)
}
