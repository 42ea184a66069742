// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// inNamespaces returns what follows a kind in some namespaces, none meaning all: an informer for each, which together tell and are
// read as one. one returns the informer of one namespace; "" means all.
//
// Each namespace is listed and watched for itself, so that rights in these namespaces are all that is needed, and so that what a cache
// knows of one namespace does not depend on the news of another.
func inNamespaces(namespaces []string, one func(namespace string) cache.SharedIndexInformer) cache.SharedIndexInformer {
	switch len(namespaces) {
	case 0:
		return one(metav1.NamespaceAll)
	case 1:
		return one(namespaces[0])
	}
	j := &joinedInformer{indexer: &joinedIndexer{parts: make(map[string]cache.Indexer, len(namespaces))}}
	for _, namespace := range namespaces {
		part := one(namespace)
		j.parts = append(j.parts, part)
		j.indexer.parts[namespace] = part.GetIndexer()
		j.indexer.order = append(j.indexer.order, part.GetIndexer())
	}
	return j
}

// joinedInformer is one informer for each of several namespaces. Its handlers may be called for several namespaces at once, for one
// namespace in the order in which things happened there.
type joinedInformer struct {
	cache.SharedIndexInformer // nil: what controllers do not need is not there
	parts                     []cache.SharedIndexInformer
	indexer                   *joinedIndexer
}

// AddEventHandler has handler told what happens in any of the namespaces.
func (j *joinedInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	all := &joinedRegistration{}
	for _, part := range j.parts {
		one, err := part.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		all.parts = append(all.parts, one)
	}
	return all, nil
}

// AddIndexers adds indexes.
func (j *joinedInformer) AddIndexers(indexers cache.Indexers) error {
	return j.each(func(part cache.SharedIndexInformer) error { return part.AddIndexers(indexers) })
}

// SetTransform has what comes in changed before it is kept. f is called for several namespaces at once.
func (j *joinedInformer) SetTransform(f cache.TransformFunc) error {
	return j.each(func(part cache.SharedIndexInformer) error { return part.SetTransform(f) })
}

func (j *joinedInformer) each(f func(part cache.SharedIndexInformer) error) error {
	errs := make([]error, len(j.parts))
	for i, part := range j.parts {
		errs[i] = f(part)
	}
	return errors.Join(errs...)
}

// GetStore returns what is known of all the namespaces.
func (j *joinedInformer) GetStore() cache.Store { return j.indexer }

// GetIndexer returns what is known of all the namespaces.
func (j *joinedInformer) GetIndexer() cache.Indexer { return j.indexer }

// HasSynced reports whether every namespace is known.
func (j *joinedInformer) HasSynced() bool {
	return !slices.ContainsFunc(j.parts, func(part cache.SharedIndexInformer) bool { return !part.HasSynced() })
}

// RunWithContext follows all the namespaces until ctx ends.
func (j *joinedInformer) RunWithContext(ctx context.Context) {
	var running sync.WaitGroup
	for _, part := range j.parts {
		running.Go(func() { part.RunWithContext(ctx) })
	}
	running.Wait()
}

// joinedRegistration is that of a handler with a joinedInformer.
type joinedRegistration struct {
	cache.ResourceEventHandlerRegistration // nil
	parts                                  []cache.ResourceEventHandlerRegistration
}

// HasSynced reports whether the handler was told of everything that was there.
func (r *joinedRegistration) HasSynced() bool {
	return !slices.ContainsFunc(r.parts, func(part cache.ResourceEventHandlerRegistration) bool { return !part.HasSynced() })
}

// joinedIndexer reads the caches of several namespaces as one. Only their informers write.
type joinedIndexer struct {
	cache.Indexer // nil: nobody else writes
	parts         map[string]cache.Indexer
	order         []cache.Indexer
}

// GetByKey returns the object with the key "namespace/name".
func (j *joinedIndexer) GetByKey(key string) (item any, exists bool, err error) {
	namespace, _, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, false, err
	}
	part := j.parts[namespace]
	if part == nil {
		return nil, false, nil
	}
	return part.GetByKey(key)
}

// Get returns the object that is stored in the place of obj.
func (j *joinedIndexer) Get(obj any) (item any, exists bool, err error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, err
	}
	return j.GetByKey(key)
}

// List returns everything.
func (j *joinedIndexer) List() []any {
	return gather(j.order, func(part cache.Indexer) []any { return part.List() })
}

// ListKeys returns the keys of everything.
func (j *joinedIndexer) ListKeys() []string {
	return gather(j.order, func(part cache.Indexer) []string { return part.ListKeys() })
}

// ByIndex returns what an index has under a value.
func (j *joinedIndexer) ByIndex(name, value string) ([]any, error) {
	return gatherOrFail(j.order, func(part cache.Indexer) ([]any, error) { return part.ByIndex(name, value) })
}

// Index returns what an index has under the values of obj.
func (j *joinedIndexer) Index(name string, obj any) ([]any, error) {
	return gatherOrFail(j.order, func(part cache.Indexer) ([]any, error) { return part.Index(name, obj) })
}

// IndexKeys returns the keys of what an index has under a value.
func (j *joinedIndexer) IndexKeys(name, value string) ([]string, error) {
	return gatherOrFail(j.order, func(part cache.Indexer) ([]string, error) { return part.IndexKeys(name, value) })
}

// ListIndexFuncValues returns the values of an index.
func (j *joinedIndexer) ListIndexFuncValues(name string) []string {
	all := sets.New(gather(j.order, func(part cache.Indexer) []string { return part.ListIndexFuncValues(name) })...)
	return sets.List(all)
}

// GetIndexers returns the indexes, which all namespaces have.
func (j *joinedIndexer) GetIndexers() cache.Indexers { return j.order[0].GetIndexers() }

func gather[T any](parts []cache.Indexer, of func(part cache.Indexer) []T) []T {
	var all []T
	for _, part := range parts {
		all = append(all, of(part)...)
	}
	return all
}

func gatherOrFail[T any](parts []cache.Indexer, of func(part cache.Indexer) ([]T, error)) ([]T, error) {
	var all []T
	for _, part := range parts {
		some, err := of(part)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// seenVersion returns the version up to which c knows what has happened in a namespace. Other namespaces may be known less far.
func seenVersion(c cache.Indexer, namespace string) string {
	if j, ok := c.(*joinedIndexer); ok {
		if part := j.parts[namespace]; part != nil {
			return part.LastStoreSyncResourceVersion()
		}
		return ""
	}
	return c.LastStoreSyncResourceVersion()
}
