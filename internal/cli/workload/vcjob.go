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
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// VCJob is the name of the kind Job of Volcano.
const VCJob = "vcjob"

func vcJobKind() *Kind {
	return &Kind{
		Name:             VCJob,
		Plural:           "vcjobs",
		Aliases:          []string{"vj", "job.batch.volcano.sh", "jobs.batch.volcano.sh"},
		GroupVersionKind: batch.GroupVersion.WithKind("Job"),
		Summarize:        func(o runtime.Object) Summary { return SummarizeVCJob(o.(*batch.Job)) },
		Columns:          []string{"PHASE", "MIN", "TASKS", "RETRY", "QUEUE", "DURATION"},
		Cells:            func(o runtime.Object, now time.Time) []string { return vcJobCells(o.(*batch.Job), now) },
		PodSelector: func(o runtime.Object) string {
			return batch.JobNameKey + "=" + o.(*batch.Job).Name
		},
		ManyPods: func(o runtime.Object) bool {
			n := int32(0)
			for _, t := range o.(*batch.Job).Spec.Tasks {
				n += t.Replicas
			}
			return n > 1
		},
		Command: func(ctx context.Context, client kubernetes.Interface, o runtime.Object, action string) error {
			return commandVCJob(ctx, client, o.(*batch.Job), action)
		},
		Open: func(client kubernetes.Interface, namespace string) Client { return VCJobs(client, namespace) },
	}
}

// SummarizeVCJob sums a Job of Volcano up.
func SummarizeVCJob(j *batch.Job) Summary {
	s := Summary{
		Status: string(j.Status.State.Phase), Retries: int(j.Status.RetryCount), Active: int(j.Status.Pending + j.Status.Running),
		Started: j.CreationTimestamp.Time,
	}
	wanted := int32(0)
	var containers []corev1.Container
	for i := range j.Spec.Tasks {
		wanted += j.Spec.Tasks[i].Replicas
		containers = append(containers, j.Spec.Tasks[i].Template.Spec.Containers...)
	}
	s.Done, s.Images = fmt.Sprintf("%d/%d", j.Status.Succeeded, wanted), images(containers)
	at := j.Status.State.LastTransitionTime.Time
	switch j.Status.State.Phase {
	case batch.Completed:
		s.Outcome, s.Ended = Succeeded, at
	case batch.Failed, batch.Terminated:
		s.Outcome, s.Ended = Failed, at
		s.Status, s.Message = withReason(s.Status, j.Status.State.Reason), j.Status.State.Message
	case batch.Aborted:
		s.Outcome, s.Ended = Stopped, at
	case "":
		s.Status = "Pending"
	default:
		s.Message = j.Status.State.Message
	}
	if j.DeletionTimestamp != nil {
		s.Status = "Terminating"
	}
	return s
}

// vcJobCells are the columns of a list of Volcano's Jobs alone. TASKS counts pods that run or have succeeded.
func vcJobCells(j *batch.Job, now time.Time) []string {
	var tasks []string
	for _, t := range j.Spec.Tasks {
		count := j.Status.TaskStatusCount[t.Name].Phase
		tasks = append(tasks, fmt.Sprintf("%s %d/%d", t.Name, count[corev1.PodRunning]+count[corev1.PodSucceeded], t.Replicas))
	}
	s := SummarizeVCJob(j)
	ran := ""
	if d, started := s.Duration(now); started {
		ran = duration.HumanDuration(d)
	}
	phase := string(j.Status.State.Phase)
	if j.DeletionTimestamp != nil {
		phase = "Deleting"
	}
	return []string{phase, strconv.Itoa(int(j.Spec.MinAvailable)), strings.Join(tasks, " "), strconv.Itoa(s.Retries), j.Spec.Queue, ran}
}

// commandVCJob issues a Command, as Volcano's own tools do.
func commandVCJob(ctx context.Context, client kubernetes.Interface, j *batch.Job, action string) error {
	ref := vcjob.ControllerRef(j)
	c := &bus.Command{
		TypeMeta: metav1.TypeMeta{APIVersion: bus.GroupVersion.String(), Kind: "Command"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, GenerateName: j.Name + "-" + strings.ToLower(action) + "-", OwnerReferences: []metav1.OwnerReference{ref},
		},
		Action: action, TargetObject: &ref,
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("writing the Command: %w", err)
	}
	return plainly(client.Discovery().RESTClient().Post(), bus.GroupVersion, "commands", j.Namespace).Body(body).Do(ctx).Error()
}

// plainly completes a request whose body is JSON already: this connection encodes nothing but Kubernetes' own kinds.
func plainly(r *rest.Request, version schema.GroupVersion, resource, namespace string) *rest.Request {
	return r.AbsPath("/apis/"+version.String()).Namespace(namespace).Resource(resource).SetHeader("Content-Type", runtime.ContentTypeJSON)
}

// VCJobs returns the client of Volcano's Jobs. Where the cluster does not have the kind, there are none.
func VCJobs(client kubernetes.Interface, namespace string) Client {
	if isNil(client.Discovery().RESTClient()) {
		return none{} // a fake
	}
	return absent{namespace: namespace, connection: client.Discovery().RESTClient(), Client: Adapt(vcClient(client, batch.GroupVersion, "jobs", namespace, func() *batch.Job { return &batch.Job{} }, func() *batch.JobList { return &batch.JobList{} }))}
}

// PodGroups returns the client of Volcano's PodGroups, and VCCommands that of its Commands.
func PodGroups(client kubernetes.Interface, namespace string) *gentype.ClientWithList[*scheduling.PodGroup, *scheduling.PodGroupList] {
	return vcClient(client, scheduling.GroupVersion, "podgroups", namespace, func() *scheduling.PodGroup { return &scheduling.PodGroup{} }, func() *scheduling.PodGroupList { return &scheduling.PodGroupList{} })
}

// VCCommands returns the client of Volcano's Commands.
func VCCommands(client kubernetes.Interface, namespace string) *gentype.ClientWithList[*bus.Command, *bus.CommandList] {
	return vcClient(client, bus.GroupVersion, "commands", namespace, func() *bus.Command { return &bus.Command{} }, func() *bus.CommandList { return &bus.CommandList{} })
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
	connection rest.Interface
	namespace  string
}

// Delete implements Client.
func (a absent) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	opts.APIVersion, opts.Kind = "v1", "DeleteOptions"
	body, err := json.Marshal(opts)
	if err != nil {
		return fmt.Errorf("writing the options: %w", err)
	}
	return plainly(a.connection.Delete(), batch.GroupVersion, "jobs", a.namespace).Name(name).Body(body).Do(ctx).Error()
}

func (a absent) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := a.Client.List(ctx, opts)
	if apierrors.IsNotFound(err) {
		return &batch.JobList{}, nil
	}
	return list, err
}

// Watch implements Client.
func (a absent) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	r := a.connection.Get().AbsPath("/apis/" + batch.GroupVersion.String())
	if a.namespace != "" {
		r = r.Namespace(a.namespace)
	}
	values, err := parameters{batch.GroupVersion}.EncodeParameters(&opts, batch.GroupVersion)
	if err != nil {
		return nil, fmt.Errorf("writing the options: %w", err)
	}
	for key, list := range values {
		for _, value := range list {
			r = r.Param(key, value)
		}
	}
	stream, err := r.Resource("jobs").Stream(ctx)
	if apierrors.IsNotFound(err) {
		return watch.NewFake(), nil // silent until somebody gives up
	}
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(&jobEvents{stream, json.NewDecoder(stream)}, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "WatchDecoding")), nil
}

// jobEvents reads the messages of a watch for Jobs.
type jobEvents struct {
	stream io.ReadCloser
	json   *json.Decoder
}

// Decode implements watch.Decoder.
func (e *jobEvents) Decode() (watch.EventType, runtime.Object, error) {
	var message metav1.WatchEvent
	if err := e.json.Decode(&message); err != nil {
		return "", nil, err
	}
	var o runtime.Object = &batch.Job{}
	if message.Type == string(watch.Error) {
		o = &metav1.Status{}
	}
	if err := json.Unmarshal(message.Object.Raw, o); err != nil {
		return "", nil, fmt.Errorf("reading a message of the watch: %w", err)
	}
	return watch.EventType(message.Type), o, nil
}

// Close implements watch.Decoder.
func (e *jobEvents) Close() { _ = e.stream.Close() } // the watch is over anyway

// none is a client where there are no Jobs of Volcano.
type none struct{}

func noVCJob(name string) error {
	return apierrors.NewNotFound(batch.GroupVersion.WithResource("jobs").GroupResource(), name)
}

func (none) Get(_ context.Context, name string, _ metav1.GetOptions) (runtime.Object, error) {
	return nil, noVCJob(name)
}

func (none) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return &batch.JobList{}, nil
}

func (none) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (none) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions) (runtime.Object, error) {
	return nil, noVCJob(name)
}

func (none) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	return noVCJob(name)
}
