// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"reflect"
	goruntime "runtime"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/utils/clock"
)

// localStore is the storage of an API server in the etcd of the same process. It calls etcd's functions, where the one of
// k8s.io/apiserver speaks gRPC over a connection for each resource: that takes a tenth of a write's time, and seventy connections.
// Everything else about it is as there: what is stored where, the cache of watches, the metrics of requests to etcd.
type localStore struct {
	opened     chan struct{} // closed once what follows is set
	server     *etcdserver.EtcdServer
	err        error
	compacting time.Duration // how much of the past is kept

	mu        sync.Mutex
	compactor interface {
		etcd3.Compactor
		Stop()
	}
}

func newLocalStore(compacting time.Duration) *localStore {
	return &localStore{opened: make(chan struct{}), compacting: compacting}
}

// open hands over an etcd that is ready, or the error that it will never be. Until then, everybody waits.
func (l *localStore) open(server *etcdserver.EtcdServer, err error) {
	l.server, l.err = server, err
	close(l.opened)
}

// close ends what belongs to no resource. Nobody uses the storage any more.
func (l *localStore) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compactor != nil {
		l.compactor.Stop()
	}
}

// serve has all resources of an API server stored here. Ranges of addresses, which are written at the start and with each Service,
// and questions after etcd's health keep their connections.
func (l *localStore) serve(config *app.Config) {
	for _, getter := range []*generic.RESTOptionsGetter{
		&config.KubeAPIs.ControlPlane.Generic.RESTOptionsGetter,
		&config.ApiExtensions.GenericConfig.RESTOptionsGetter,
		&config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter,
		&config.Aggregator.GenericConfig.RESTOptionsGetter,
	} {
		*getter = localOptions{*getter, l}
	}
}

// localOptions are the options of resources, with their storage in a localStore.
type localOptions struct {
	generic.RESTOptionsGetter
	store *localStore
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o localOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	opts, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return opts, err
	}
	if reflect.ValueOf(opts.Decorator).Pointer() == reflect.ValueOf(generic.UndecoratedStorage).Pointer() {
		opts.Decorator = o.store.uncached
	} else {
		opts.Decorator = o.store.cached
	}
	return opts, nil
}

// uncached is what generic.UndecoratedStorage is for an etcd elsewhere.
func (l *localStore) uncached(config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	return l.raw(config, prefix, newFunc, newListFunc)
}

// cached is what registry.StorageWithCacher is for an etcd elsewhere.
func (l *localStore) cached(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attrsFunc storage.AttrFunc, indexerFuncs storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, destroy, err := l.raw(config, prefix, newFunc, newListFunc)
	if err != nil {
		return nil, nil, err
	}
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: raw, Versioner: storage.APIObjectVersioner{}, GroupResource: config.GroupResource, EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix: prefix, KeyFunc: keyFunc, NewFunc: newFunc, NewListFunc: newListFunc, GetAttrsFunc: attrsFunc, IndexerFuncs: indexerFuncs,
		Indexers: indexers, Codec: config.Codec,
	})
	if err != nil {
		destroy()
		return nil, nil, fmt.Errorf("making the cache of %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(c, raw)
	return delegator, sync.OnceFunc(func() { // subresources share it, and each ends it
		delegator.Stop()
		c.Stop()
		destroy()
	}), nil
}

// raw returns the storage of one resource. It waits until the store is open.
func (l *localStore) raw(config *storagebackend.ConfigForResource, prefix string, newFunc, newListFunc func() runtime.Object) (storage.Interface, factory.DestroyFunc, error) {
	<-l.opened
	if l.err != nil {
		return nil, nil, l.err
	}
	client := l.client()
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	versioner := storage.APIObjectVersioner{}
	decoder := etcd3.NewDefaultDecoder(config.Codec, versioner)
	mend := utilfeature.DefaultFeatureGate.Enabled(genericfeatures.AllowUnsafeMalformedObjectDeletion)
	if mend {
		transformer = etcd3.WithCorruptObjErrorHandlingTransformer(transformer)
		decoder = etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	s, err := etcd3.New(client, l.compactorOnce(), config.Codec, newFunc, newListFunc, config.Prefix, prefix, config.GroupResource, transformer,
		config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("making the storage of %s: %w", config.GroupResource, err)
	}
	destroy := sync.OnceFunc(func() {
		s.Close()
		_ = client.Close()
	})
	if mend {
		return etcd3.NewStoreWithUnsafeCorruptObjectDeletion(s, config.GroupResource), destroy, nil
	}
	return s, destroy, nil
}

// client returns a new client of the store. Each resource has its own, so that a slow watch of one holds up no other.
func (l *localStore) client() *kubernetes.Client {
	c := &kubernetes.Client{Client: v3client.New(l.server)}
	c.KV = clientv3.NewKVFromKVClient(fairKV{adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(l.server))}, c.Client)
	c.KV = etcd3.NewETCDLatencyTracker(c.KV)
	c.Kubernetes = c
	return c
}

// compactorOnce returns what has etcd forget the past, one for all resources.
func (l *localStore) compactorOnce() etcd3.Compactor {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compactor == nil {
		c := l.client()
		// A client without an address is not asked what its etcd can do.
		feature.DefaultFeatureSupportChecker.CheckClient(context.Background(), addressed{c}, storage.RequestWatchProgress)
		l.compactor = etcd3.NewCompactor(c.Client, l.compacting, clock.RealClock{}, func() { _ = c.Close() })
	}
	return l.compactor
}

// addressed is a client of the etcd in this process that has an address.
type addressed struct{ *kubernetes.Client }

// Endpoints returns the address.
func (addressed) Endpoints() []string { return []string{"local"} }

// fairKV lets others have a turn on the processor after each answer of etcd, as the connection did.
type fairKV struct{ etcdserverpb.KVClient }

// Range implements etcdserverpb.KVClient.
func (f fairKV) Range(ctx context.Context, in *etcdserverpb.RangeRequest, opts ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	defer goruntime.Gosched()
	return f.KVClient.Range(ctx, in, opts...)
}

// Txn implements etcdserverpb.KVClient.
func (f fairKV) Txn(ctx context.Context, in *etcdserverpb.TxnRequest, opts ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	defer goruntime.Gosched()
	return f.KVClient.Txn(ctx, in, opts...)
}
