// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/volcano"
)

// This file reaches Volcano's kinds over the connection of a client for Kubernetes' own.

// plainly completes a request whose body is JSON already: this connection encodes nothing but Kubernetes' own kinds.
func plainly(r *rest.Request, version schema.GroupVersion, resource, namespace string) *rest.Request {
	return r.AbsPath("/apis/"+version.String()).Namespace(namespace).Resource(resource).SetHeader("Content-Type", runtime.ContentTypeJSON)
}

// CreateVolcano creates an object of one of Volcano's kinds, which must carry its API version and kind, and stores the answer in it.
func CreateVolcano(ctx context.Context, client kubernetes.Interface, version schema.GroupVersion, resource, namespace string, o runtime.Object) error {
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("writing the object: %w", err)
	}
	answer, err := plainly(client.Discovery().RESTClient().Post(), version, resource, namespace).Param("fieldManager", fieldManager).Body(body).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, o); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}

// fieldManager is command.FieldManager, which cannot be imported here.
const fieldManager = "drover"

// openVolcano returns the client of one of Volcano's kinds. Where the cluster does not have the kind, there are none.
func openVolcano[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object](client kubernetes.Interface, version schema.GroupVersion, resource, namespace string, one func() T, list func() L) Client {
	k := kindAt{
		version: version, resource: resource, namespace: namespace,
		one: func() runtime.Object { return one() }, list: func() runtime.Object { return list() },
	}
	if isNil(client.Discovery().RESTClient()) {
		return none{k} // a fake
	}
	return absent{kindAt: k, connection: client.Discovery().RESTClient(), Client: Adapt(vcClient(client, version, resource, namespace, one, list))}
}

// kindAt is a kind in a namespace.
type kindAt struct {
	version             schema.GroupVersion
	resource, namespace string
	one, list           func() runtime.Object
}

func isNil(c rest.Interface) bool {
	v := reflect.ValueOf(c)
	return c == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// registerVolcano makes client-go's own codecs know Volcano's kinds.
var registerVolcano = sync.OnceFunc(func() { utilruntime.Must(volcano.AddToScheme(scheme.Scheme)) })

// vcClient returns a client of one of Volcano's kinds on the connection of client.
func vcClient[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object](client kubernetes.Interface, version schema.GroupVersion, resource, namespace string, one func() T, list func() L) *gentype.ClientWithList[T, L] {
	registerVolcano()
	group := atGroup{client.Discovery().RESTClient(), "/apis/" + version.String()}
	return gentype.NewClientWithList(resource, rest.Interface(group), parameters{version}, namespace, one, list)
}

// atGroup is a connection whose requests go to one API group.
type atGroup struct {
	rest.Interface
	path string
}

func (g atGroup) Verb(verb string) *rest.Request { return g.Interface.Verb(verb).AbsPath(g.path) }
func (g atGroup) Post() *rest.Request            { return g.Interface.Post().AbsPath(g.path) }
func (g atGroup) Put() *rest.Request             { return g.Interface.Put().AbsPath(g.path) }
func (g atGroup) Patch(pt types.PatchType) *rest.Request {
	return g.Interface.Patch(pt).AbsPath(g.path)
}
func (g atGroup) Get() *rest.Request              { return g.Interface.Get().AbsPath(g.path) }
func (g atGroup) Delete() *rest.Request           { return g.Interface.Delete().AbsPath(g.path) }
func (g atGroup) APIVersion() schema.GroupVersion { return schema.GroupVersion{} }

// parameters encodes options for one API version, whatever the connection says.
type parameters struct{ version schema.GroupVersion }

func (p parameters) EncodeParameters(o runtime.Object, _ schema.GroupVersion) (url.Values, error) {
	return scheme.ParameterCodec.EncodeParameters(o, p.version)
}

func (p parameters) DecodeParameters(values url.Values, from schema.GroupVersion, into runtime.Object) error {
	return scheme.ParameterCodec.DecodeParameters(values, from, into)
}

// absent is a client of a kind that the cluster need not have.
type absent struct {
	Client
	kindAt
	connection rest.Interface
}

// Delete implements Client.
func (a absent) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	opts.APIVersion, opts.Kind = "v1", "DeleteOptions"
	body, err := json.Marshal(opts)
	if err != nil {
		return fmt.Errorf("writing the options: %w", err)
	}
	return plainly(a.connection.Delete(), a.version, a.resource, a.namespace).Name(name).Body(body).Do(ctx).Error()
}

func (a absent) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := a.Client.List(ctx, opts)
	if apierrors.IsNotFound(err) {
		return a.list(), nil
	}
	return list, err
}

// Watch implements Client.
func (a absent) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	r := a.connection.Get().AbsPath("/apis/" + a.version.String())
	if a.namespace != "" {
		r = r.Namespace(a.namespace)
	}
	values, err := parameters{a.version}.EncodeParameters(&opts, a.version)
	if err != nil {
		return nil, fmt.Errorf("writing the options: %w", err)
	}
	for key, list := range values {
		for _, value := range list {
			r = r.Param(key, value)
		}
	}
	stream, err := r.Resource(a.resource).Stream(ctx)
	if apierrors.IsNotFound(err) {
		return watch.NewFake(), nil // silent until somebody gives up
	}
	if err != nil {
		return nil, err
	}
	events := &kindEvents{a.one, stream, json.NewDecoder(stream)}
	return watch.NewStreamWatcher(events, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "WatchDecoding")), nil
}

// kindEvents reads the messages of a watch for one kind.
type kindEvents struct {
	one    func() runtime.Object
	stream io.ReadCloser
	json   *json.Decoder
}

// Decode implements watch.Decoder.
func (e *kindEvents) Decode() (watch.EventType, runtime.Object, error) {
	var message metav1.WatchEvent
	if err := e.json.Decode(&message); err != nil {
		return "", nil, err
	}
	o := e.one()
	if message.Type == string(watch.Error) {
		o = &metav1.Status{}
	}
	if err := json.Unmarshal(message.Object.Raw, o); err != nil {
		return "", nil, fmt.Errorf("reading a message of the watch: %w", err)
	}
	return watch.EventType(message.Type), o, nil
}

// Close implements watch.Decoder.
func (e *kindEvents) Close() { _ = e.stream.Close() } // the watch is over anyway

// none is a client where there is nothing of the kind.
type none struct{ kindAt }

func (n none) notFound(name string) error {
	return apierrors.NewNotFound(n.version.WithResource(n.resource).GroupResource(), name)
}

func (n none) Get(_ context.Context, name string, _ metav1.GetOptions) (runtime.Object, error) {
	return nil, n.notFound(name)
}

func (n none) List(context.Context, metav1.ListOptions) (runtime.Object, error) { return n.list(), nil }

func (none) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (n none) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions) (runtime.Object, error) {
	return nil, n.notFound(name)
}

func (n none) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	return n.notFound(name)
}
