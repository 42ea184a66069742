// SPDX-License-Identifier: Apache-2.0

// Package client reads and writes Volcano's kinds through client-go's generic typed clients. It decides nothing. Start reading at
// New.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/internal/volcano"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/flow"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Client reaches Volcano's kinds at one API server. It is safe for concurrent use.
type Client struct {
	batch, bus, scheduling, flow rest.Interface
	parameters                   runtime.ParameterCodec
}

// New returns a client for the API server that rc means. It sends and takes JSON whatever rc says, as such kinds have no other
// encoding.
func New(rc *rest.Config) (*Client, error) {
	scheme := volcano.NewScheme()
	httpClient, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("connecting for Volcano's kinds: %w", err)
	}
	c := &Client{parameters: runtime.NewParameterCodec(scheme)}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	for _, g := range []struct {
		version schema.GroupVersion
		client  *rest.Interface
	}{
		{batch.GroupVersion, &c.batch}, {bus.GroupVersion, &c.bus}, {scheduling.GroupVersion, &c.scheduling}, {flow.GroupVersion, &c.flow},
	} {
		each := rest.CopyConfig(rc)
		each.GroupVersion, each.APIPath, each.NegotiatedSerializer = &g.version, "/apis", codecs
		each.ContentType, each.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if *g.client, err = rest.RESTClientForConfigAndClient(each, httpClient); err != nil {
			return nil, fmt.Errorf("connecting for the group %s: %w", g.version.Group, err)
		}
	}
	return c, nil
}

// Jobs returns the client of Jobs in a namespace; "" means all namespaces, for lists and watches.
func (c *Client) Jobs(namespace string) *Kind[*batch.Job, *batch.JobList] {
	return kindOf(c.batch, c.parameters, "jobs", namespace,
		func() *batch.Job { return &batch.Job{} }, func() *batch.JobList { return &batch.JobList{} })
}

// CronJobs returns the client of CronJobs in a namespace.
func (c *Client) CronJobs(namespace string) *Kind[*batch.CronJob, *batch.CronJobList] {
	return kindOf(c.batch, c.parameters, "cronjobs", namespace,
		func() *batch.CronJob { return &batch.CronJob{} }, func() *batch.CronJobList { return &batch.CronJobList{} })
}

// Commands returns the client of Commands in a namespace.
func (c *Client) Commands(namespace string) *Kind[*bus.Command, *bus.CommandList] {
	return kindOf(c.bus, c.parameters, "commands", namespace,
		func() *bus.Command { return &bus.Command{} }, func() *bus.CommandList { return &bus.CommandList{} })
}

// PodGroups returns the client of PodGroups in a namespace.
func (c *Client) PodGroups(namespace string) *Kind[*scheduling.PodGroup, *scheduling.PodGroupList] {
	return kindOf(c.scheduling, c.parameters, "podgroups", namespace,
		func() *scheduling.PodGroup { return &scheduling.PodGroup{} }, func() *scheduling.PodGroupList { return &scheduling.PodGroupList{} })
}

// Queues returns the client of Queues.
func (c *Client) Queues() *Kind[*scheduling.Queue, *scheduling.QueueList] {
	return kindOf(c.scheduling, c.parameters, "queues", "",
		func() *scheduling.Queue { return &scheduling.Queue{} }, func() *scheduling.QueueList { return &scheduling.QueueList{} })
}

// JobFlows returns the client of JobFlows in a namespace.
func (c *Client) JobFlows(namespace string) *Kind[*flow.JobFlow, *flow.JobFlowList] {
	return kindOf(c.flow, c.parameters, "jobflows", namespace,
		func() *flow.JobFlow { return &flow.JobFlow{} }, func() *flow.JobFlowList { return &flow.JobFlowList{} })
}

// JobTemplates returns the client of JobTemplates in a namespace.
func (c *Client) JobTemplates(namespace string) *Kind[*flow.JobTemplate, *flow.JobTemplateList] {
	return kindOf(c.flow, c.parameters, "jobtemplates", namespace,
		func() *flow.JobTemplate { return &flow.JobTemplate{} }, func() *flow.JobTemplateList { return &flow.JobTemplateList{} })
}

// onlyMetadata asks for no more of a written object than its metadata.
const onlyMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// StoreJobStatus writes j.Status, provided that the stored Job has j's resource version, and returns the new version. It sends no
// spec: the API server takes the stored one.
func (c *Client) StoreJobStatus(ctx context.Context, j *batch.Job) (resourceVersion string, err error) {
	body := &batch.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion},
		Status:     j.Status,
	}
	var stored struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	raw, err := c.batch.Put().Namespace(j.Namespace).Resource("jobs").Name(j.Name).SubResource("status").
		SetHeader("Accept", onlyMetadata).Body(body).Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(raw, &stored); err != nil {
		return "", fmt.Errorf("reading the answer of the API server: %w", err)
	}
	return stored.Metadata.ResourceVersion, nil
}

// lister is what an informer needs of a typed client.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// NewInformer returns an informer of the kind of example, which tells everything again each resync.
func NewInformer[L runtime.Object](l lister[L], example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return l.List(ctx, opts) },
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return l.Watch(ctx, opts)
		},
	}, example, resync, maps.Clone(indexers)) // adding indexes changes them
}
