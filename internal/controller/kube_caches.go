// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// KubeCaches follow the kinds of Kubernetes for all controllers: those with a namespace in the namespaces that are selected, the others
// in the whole cluster.
type KubeCaches struct {
	client     kubernetes.Interface
	resync     time.Duration
	namespaces []string // that are selected; none: all
	whole      informers.SharedInformerFactory
	each       map[string]informers.SharedInformerFactory // by namespace
}

// NewKubeCaches returns the caches of the cluster that client reaches, which tell everything again each resync. No namespaces means all.
// Only what a controller asks for before Start is followed.
func NewKubeCaches(client kubernetes.Interface, resync time.Duration, namespaces []string) *KubeCaches {
	k := &KubeCaches{
		client: client, resync: resync, namespaces: slices.Clone(namespaces),
		whole: informers.NewSharedInformerFactory(client, resync), each: map[string]informers.SharedInformerFactory{},
	}
	for _, namespace := range namespaces {
		k.each[namespace] = informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithNamespace(namespace))
	}
	return k
}

// anew returns caches of the same namespaces that share nothing with k.
func (k *KubeCaches) anew() *KubeCaches { return NewKubeCaches(k.client, k.resync, k.namespaces) }

// partial reports whether there are namespaces of which nothing is known.
func (k *KubeCaches) partial() bool { return len(k.namespaces) > 0 }

// Start follows what controllers have asked for until stop is closed. It does not wait.
func (k *KubeCaches) Start(stop <-chan struct{}) {
	k.whole.Start(stop)
	for _, factory := range k.each {
		factory.Start(stop)
	}
}

// Shutdown waits until everything that Start has started has ended, once stop is closed.
func (k *KubeCaches) Shutdown() {
	k.whole.Shutdown()
	for _, factory := range k.each {
		factory.Shutdown()
	}
}

// follow returns what follows a kind in the namespaces that are selected.
func (k *KubeCaches) follow(kind func(informers.SharedInformerFactory) cache.SharedIndexInformer) cache.SharedIndexInformer {
	return inNamespaces(k.namespaces, func(namespace string) cache.SharedIndexInformer {
		if factory := k.each[namespace]; factory != nil {
			return kind(factory)
		}
		return kind(k.whole)
	})
}

func (k *KubeCaches) pods() cache.SharedIndexInformer {
	return k.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Pods().Informer()
	})
}

func (k *KubeCaches) jobs() cache.SharedIndexInformer {
	return k.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Batch().V1().Jobs().Informer()
	})
}

func (k *KubeCaches) cronJobs() cache.SharedIndexInformer {
	return k.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Batch().V1().CronJobs().Informer()
	})
}

func (k *KubeCaches) workloads() cache.SharedIndexInformer {
	return k.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Scheduling().V1beta1().Workloads().Informer()
	})
}

func (k *KubeCaches) podGroups() cache.SharedIndexInformer {
	return k.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Scheduling().V1beta1().PodGroups().Informer()
	})
}

func (k *KubeCaches) replicaSets() cache.SharedIndexInformer {
	return k.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Apps().V1().ReplicaSets().Informer()
	})
}

func (k *KubeCaches) statefulSets() cache.SharedIndexInformer {
	return k.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Apps().V1().StatefulSets().Informer()
	})
}

func (k *KubeCaches) nodes() cache.SharedIndexInformer { return k.whole.Core().V1().Nodes().Informer() }

func (k *KubeCaches) priorityClasses() cache.SharedIndexInformer {
	return k.whole.Scheduling().V1().PriorityClasses().Informer()
}
