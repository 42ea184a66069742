// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// VolcanoCaches follow Volcano's kinds for all controllers of them.
type VolcanoCaches struct {
	jobs, groups, commands, queues cache.SharedIndexInformer
	namespaces                     []string // that are selected; none: all
	once                           sync.Once
}

// volcanoResync is how often caches of Volcano's kinds tell everything again. Nothing depends on it.
const volcanoResync = 12 * time.Hour

// Names of indexes over PodGroups and Commands.
const (
	groupsOfQueue = "queue" // by the name of their queue
	commandsFor   = "job"   // by "namespace/name" of the Job that they name
	commandsOn    = "queue" // by the name of the queue that they name
)

var groupIndexers = cache.Indexers{
	groupsOfQueue: func(o any) ([]string, error) { return []string{o.(*scheduling.PodGroup).Spec.Queue}, nil },
}

var commandIndexers = cache.Indexers{
	commandsFor: func(o any) ([]string, error) {
		if key := commandTarget(o.(*bus.Command)); key != "" {
			return []string{key}, nil
		}
		return nil, nil
	},
	commandsOn: func(o any) ([]string, error) {
		if name := commandQueue(o.(*bus.Command)); name != "" {
			return []string{name}, nil
		}
		return nil, nil
	},
}

// NewVolcanoCaches returns the caches of the kinds that vc reaches, of those with a namespace in these namespaces; none means all. The
// first controller that runs starts them.
func NewVolcanoCaches(vc *client.Client, namespaces []string) (*VolcanoCaches, error) {
	var slim slimmer
	follow := func(one func(namespace string) cache.SharedIndexInformer) cache.SharedIndexInformer {
		return inNamespaces(namespaces, one)
	}
	v := &VolcanoCaches{
		jobs: follow(func(namespace string) cache.SharedIndexInformer {
			return client.NewInformer(vc.Jobs(namespace), &batch.Job{}, volcanoResync, cache.Indexers{})
		}),
		groups: follow(func(namespace string) cache.SharedIndexInformer {
			return client.NewInformer(vc.PodGroups(namespace), &scheduling.PodGroup{}, volcanoResync, groupIndexers)
		}),
		commands: follow(func(namespace string) cache.SharedIndexInformer {
			return client.NewInformer(vc.Commands(namespace), &bus.Command{}, volcanoResync, commandIndexers)
		}),
		queues:     client.NewInformer(vc.Queues(), &scheduling.Queue{}, volcanoResync, cache.Indexers{}),
		namespaces: namespaces,
	}
	err := errors.Join(v.jobs.SetTransform(slim.vcjob), v.groups.SetTransform(slim.unmanaged), v.queues.SetTransform(slim.unmanaged))
	if err != nil {
		return nil, fmt.Errorf("setting up the caches of Volcano's kinds: %w", err)
	}
	return v, nil
}

// run starts the informers until ctx ends, unless another controller has. running then waits for them. All controllers of a process
// have the same ctx.
func (v *VolcanoCaches) run(ctx context.Context, running *sync.WaitGroup) {
	v.once.Do(func() {
		for _, informer := range []cache.SharedIndexInformer{v.jobs, v.groups, v.commands, v.queues} {
			running.Go(func() { informer.RunWithContext(ctx) })
		}
	})
}

// commandTarget returns "namespace/name" of the Job that c names; "": it names none.
func commandTarget(c *bus.Command) string {
	if !names(c.TargetObject, "Job", batch.GroupVersion.String()) {
		return ""
	}
	return c.Namespace + "/" + c.TargetObject.Name
}

// commandQueue returns the name of the queue that c names; "": it names none.
func commandQueue(c *bus.Command) string {
	if !names(c.TargetObject, "Queue", scheduling.GroupVersion.String()) {
		return ""
	}
	return c.TargetObject.Name
}

func names(ref *metav1.OwnerReference, kind, version string) bool {
	return ref != nil && ref.Kind == kind && ref.APIVersion == version
}
