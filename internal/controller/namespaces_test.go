// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

func podIn(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"name": name}}}
}

// followed is what a handler was told.
type followed struct {
	mu   sync.Mutex
	told []string
}

func (f *followed) note(what string, p *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, what+" "+keyOf(p))
}

func (f *followed) sorted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(f.told))
}

// keysOf returns the keys of pods, in order.
func keysOf(pods []any) []string {
	keys := make([]string, len(pods))
	for i, o := range pods {
		keys[i] = keyOf(o.(*corev1.Pod))
	}
	slices.Sort(keys)
	return keys
}

func TestCachesKnowTheNamespacesThatAreSelectedAndNoOther(t *testing.T) {
	cases := map[string]struct {
		namespaces []string
		want       []string
	}{
		"all":  {nil, []string{"a/x", "a/y", "b/x", "c/x"}},
		"one":  {[]string{"a"}, []string{"a/x", "a/y"}},
		"two":  {[]string{"a", "b"}, []string{"a/x", "a/y", "b/x"}},
		"none": {[]string{"d", "e"}, []string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset([]runtime.Object{podIn("a", "x"), podIn("a", "y"), podIn("b", "x"), podIn("c", "x")}...)
			kinds := NewKubeCaches(client, 0, tc.namespaces)
			pods, told := kinds.pods(), &followed{}
			must(t, pods.AddIndexers(cache.Indexers{"name": func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Name}, nil }}))
			must(t, pods.SetTransform(func(o any) (any, error) {
				if p, ok := o.(*corev1.Pod); ok {
					p.Labels = nil
				}
				return o, nil
			}))
			registration, err := pods.AddEventHandler(handlerOf(
				func(p *corev1.Pod) { told.note("added", p) }, func(_, p *corev1.Pod) { told.note("updated", p) }, func(p *corev1.Pod) { told.note("deleted", p) }))
			must(t, err)
			if len(tc.namespaces) > 0 && pods.HasSynced() {
				t.Error("nothing runs, and everything is known")
			}
			ctx, cancel := context.WithCancel(t.Context())
			kinds.Start(ctx.Done())
			defer kinds.Shutdown()
			defer cancel()
			if !cache.WaitForCacheSync(t.Context().Done(), registration.HasSynced, pods.HasSynced) {
				t.Fatal("the caches are never filled")
			}

			indexer := kinds.pods().GetIndexer() // asked for again, they are the same
			if diff := cmp.Diff(tc.want, keysOf(indexer.List())); diff != "" {
				t.Errorf("known pods (-want +got):\n%s", diff)
			}
			keys := indexer.ListKeys()
			slices.Sort(keys)
			if diff := cmp.Diff(append([]string{}, tc.want...), append([]string{}, keys...)); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
			byName, err := indexer.ByIndex("name", "x")
			must(t, err)
			if diff := cmp.Diff(slices.DeleteFunc(slices.Clone(tc.want), func(key string) bool { return key == "a/y" }), keysOf(byName)); diff != "" {
				t.Errorf("pods of the name x (-want +got):\n%s", diff)
			}
			for _, key := range []string{"a/x", "a/y", "b/x", "c/x", "c/y"} {
				o, exists, err := indexer.GetByKey(key)
				must(t, err)
				if exists != slices.Contains(tc.want, key) {
					t.Errorf("%s is known: %v", key, exists)
				}
				if exists && o.(*corev1.Pod).Labels != nil {
					t.Errorf("%s was not changed on its way", key)
				}
			}
			for i, key := range tc.want {
				tc.want[i] = "added " + key
			}
			if diff := cmp.Diff(tc.want, append([]string{}, told.sorted()...)); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			for _, action := range client.Actions() {
				if len(tc.namespaces) > 0 && !slices.Contains(tc.namespaces, action.GetNamespace()) {
					t.Errorf("%s of %s in namespace %q", action.GetVerb(), action.GetResource().Resource, action.GetNamespace())
				}
			}
		})
	}
}

func TestWhatIsKnownOfANamespaceDoesNotDependOnOthers(t *testing.T) {
	parts := map[string]cache.Indexer{}
	joined := inNamespaces([]string{"busy", "quiet"}, func(namespace string) cache.SharedIndexInformer {
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{})
		parts[namespace] = informer.GetIndexer()
		return informer
	}).GetIndexer()
	for namespace, version := range map[string]string{"busy": "90", "quiet": "7"} {
		p := podIn(namespace, "x")
		p.ResourceVersion = version
		must(t, parts[namespace].Add(p))
	}
	for namespace, want := range map[string]string{"busy": "90", "quiet": "7", "neither": ""} {
		if got := seenVersion(joined, namespace); got != want {
			t.Errorf("%s is known up to version %q, want %q", namespace, got, want)
		}
	}
	if got := seenVersion(parts["busy"], "anywhere"); got != "90" {
		t.Errorf("one cache is known up to version %q", got)
	}
}
