// SPDX-License-Identifier: Apache-2.0

// Package objects reads the API objects that pods refer to: ConfigMaps, Secrets, claims and tokens.
//
// A ConfigMap or Secret that one pod needs once is read with one request. One that is read again and again, or that somebody
// wants to be told about, is watched, each with a watch of its own, as the role of a node allows; it is let go of when nobody has
// asked for it for a while. Start reading at Store.
package objects

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// linger is how long an object is watched after its last use.
	linger = time.Minute
	// readsBeforeWatch is how many reads within linger make a watch cheaper than reading.
	readsBeforeWatch = 3
)

// Kind is a kind of object that can be watched.
type Kind string

// Kinds, each named as its resource is.
const (
	ConfigMap Kind = "configmaps"
	Secret    Kind = "secrets"
)

// Store reads objects. It is safe for concurrent use.
type Store struct {
	client kubernetes.Interface
	clock  clock.WithTicker

	mu      sync.Mutex
	entries map[key]*entry
	running sync.WaitGroup
	ctx     context.Context // of Run; nil before
}

type key struct {
	kind            Kind
	namespace, name string
}

type entry struct {
	key      key
	lastUsed time.Time
	reads    int
	nextID   int
	changed  map[int]func()
	informer cache.SharedIndexInformer // nil while nothing is watched
	stop     context.CancelFunc
}

// New returns a store that watches nothing until Run is called.
func New(client kubernetes.Interface, c clock.WithTicker) *Store {
	return &Store{client: client, clock: c, entries: map[key]*entry{}}
}

// Run lets go of unused watches until ctx ends; then it ends them all and returns.
func (s *Store) Run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	for _, e := range s.entries {
		if len(e.changed) > 0 {
			s.watchLocked(e)
		}
	}
	s.mu.Unlock()
	ticker := s.clock.NewTicker(linger)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			for _, e := range s.entries {
				e.end()
			}
			s.mu.Unlock()
			s.running.Wait()
			return
		case <-ticker.C():
			s.sweep()
		}
	}
}

func (s *Store) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for k, e := range s.entries {
		if len(e.changed) == 0 && now.Sub(e.lastUsed) >= linger {
			e.end()
			delete(s.entries, k)
		}
	}
}

func (e *entry) end() {
	if e.stop != nil {
		e.stop()
		e.stop, e.informer = nil, nil
	}
}

// ConfigMap returns a ConfigMap that the caller must not modify. apierrors.IsNotFound tells that there is none.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if obj, known := s.watched(key{ConfigMap, namespace, name}); known {
		if obj == nil {
			return nil, notFound("configmap", name)
		}
		return obj.(*corev1.ConfigMap), nil
	}
	cm, err := s.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return cm, reword(err, "configmap", name)
}

// Secret is ConfigMap for a Secret.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if obj, known := s.watched(key{Secret, namespace, name}); known {
		if obj == nil {
			return nil, notFound("secret", name)
		}
		return obj.(*corev1.Secret), nil
	}
	secret, err := s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	return secret, reword(err, "secret", name)
}

// Claim returns a claim as it is now.
func (s *Store) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := s.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return claim, reword(err, "persistentvolumeclaim", name)
}

// Volume returns a persistent volume as it is now.
func (s *Store) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	pv, err := s.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return pv, reword(err, "persistentvolume", name)
}

// reword names a missing object in the singular, as kubelet does in events.
func reword(err error, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return notFound(kind, name)
	}
	return err
}

func notFound(kind, name string) error {
	return apierrors.NewNotFound(corev1.Resource(kind), name)
}

// Token returns a new token of a service account, bound to pod, for audience ("": the API server) and for about lifetime.
func (s *Store) Token(ctx context.Context, pod *corev1.Pod, audience string, lifetime time.Duration) (*authenticationv1.TokenRequest, error) {
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	name := pod.Spec.ServiceAccountName
	token, err := s.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetching a token of service account %q: %w", name, err)
	}
	return token, nil
}

// Watch calls changed, from a goroutine of the store, after the object has appeared, changed or gone, until stop is called. It
// may call once more than something changed.
func (s *Store) Watch(kind Kind, namespace, name string, changed func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryLocked(key{kind, namespace, name})
	id := e.nextID
	e.nextID++
	e.changed[id] = changed
	s.watchLocked(e)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(e.changed, id)
		e.lastUsed = s.clock.Now()
	}
}

// watched returns the object from a watch that has caught up; the object is nil when there is none. Without such a watch known is
// false, and one is begun when it is worth it.
func (s *Store) watched(k key) (obj any, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryLocked(k)
	if e.informer != nil && e.informer.HasSynced() {
		obj, exists, err := e.informer.GetStore().GetByKey(k.namespace + "/" + k.name)
		if err == nil && exists {
			return obj, true
		}
		return nil, err == nil
	}
	if e.reads++; e.reads >= readsBeforeWatch {
		s.watchLocked(e)
	}
	return nil, false
}

func (s *Store) entryLocked(k key) *entry {
	e := s.entries[k]
	if e == nil {
		e = &entry{key: k, changed: map[int]func(){}}
		s.entries[k] = e
	}
	now := s.clock.Now()
	if now.Sub(e.lastUsed) > linger {
		e.reads = 0
	}
	e.lastUsed = now
	return e
}

func (s *Store) watchLocked(e *entry) {
	if e.informer != nil || s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	informer := cache.NewSharedIndexInformer(s.listWatch(e.key), e.key.object(), 0, cache.Indexers{})
	tell := func() {
		s.mu.Lock()
		list := make([]func(), 0, len(e.changed))
		for _, changed := range e.changed {
			list = append(list, changed)
		}
		s.mu.Unlock()
		for _, changed := range list {
			changed()
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		UpdateFunc: func(_, _ any) { tell() },
		DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		return // only an informer that was stopped refuses a handler
	}
	ctx, stop := context.WithCancel(s.ctx)
	e.informer, e.stop = informer, stop
	s.running.Go(func() { informer.RunWithContext(ctx) })
}

func (k key) object() runtime.Object {
	if k.kind == Secret {
		return &corev1.Secret{}
	}
	return &corev1.ConfigMap{}
}

func (s *Store) listWatch(k key) cache.ListerWatcher {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, k.name).String()
	api := s.client.CoreV1()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			if k.kind == Secret {
				return api.Secrets(k.namespace).List(ctx, o)
			}
			return api.ConfigMaps(k.namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			if k.kind == Secret {
				return api.Secrets(k.namespace).Watch(ctx, o)
			}
			return api.ConfigMaps(k.namespace).Watch(ctx, o)
		},
	}, s.client)
}
