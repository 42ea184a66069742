// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/deploy/crds"
	"github.com/drover-dev/drover/internal/admission"
	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/controller"
	"github.com/drover-dev/drover/internal/volcano"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// kindsPeriod is how often the API server is asked whether it has Volcano's kinds by now; kindsPause while we install them.
// troublePause is how long it is left alone after an answer that says nothing.
const (
	kindsPeriod  = 10 * time.Second
	kindsPause   = 20 * time.Millisecond
	troublePause = time.Second
)

// kindsCheck returns why the kinds that somebody needs cannot be listed in a namespace, or nil; "" is all of them.
type kindsCheck func(ctx context.Context, vc *client.Client, namespace string) error

// newVolcano adds the controllers of Volcano's kinds that cfg asks for. The first installs the kinds, if somebody is to.
func (c *Controllers) newVolcano(cfg config.Controllers, kube kubernetes.Interface, rc *rest.Config) error {
	vc, err := client.New(controllerConfig(cfg, rc))
	if err != nil {
		return err
	}
	caches, err := controller.NewVolcanoCaches(vc, cfg.Namespaces)
	if err != nil {
		return err
	}
	native := cfg.Gang == config.GangNative
	recorder := c.events.NewRecorder(volcano.NewScheme(), corev1.EventSource{Component: "vc-controller-manager"})
	installs := cfg.InstallKinds
	add := func(name string, kinds kindsCheck, p part, err error) error {
		if err != nil {
			return err
		}
		c.add(name, &volcanoPart{
			kube: kube, vc: vc, part: p, kinds: kinds, namespaces: cfg.Namespaces, install: installs, coming: cfg.InstallKinds, native: native, queues: installs || name == "gang",
			log: c.log.With("controller", name), ready: make(chan struct{}), served: make(chan struct{}),
		})
		installs = false // one does for all
		return nil
	}
	if cfg.Runs("vcjob") {
		jobs := controller.VCJobConfig{Workers: cfg.VCJobWorkers}
		jobs.Options.Own, jobs.Options.Native = cfg.Gang == config.GangNone || native, native
		p, err := controller.NewVCJobController(jobs, kube, vc, c.kinds, caches, recorder, clock.RealClock{}, c.log.With("controller", "vcjob"))
		if err := add("vcjob", kindsServed, p, err); err != nil {
			return err
		}
	}
	if (cfg.Gang == config.GangNone || native) && (cfg.Runs("vcjob") || cfg.Runs("podgroup")) { // who makes PodGroups, admits them
		p, err := controller.NewGangController(native, vc, c.kinds, caches, recorder, clock.RealClock{}, c.log.With("controller", "gang"))
		if err := add("gang", kindsServed, p, err); err != nil {
			return err
		}
	}
	if cfg.Runs("podgroup") {
		plain := controller.PlainPodConfig{Own: cfg.Gang == config.GangNone || native}
		p, err := controller.NewPlainPodController(plain, kube, vc, c.kinds, caches, clock.RealClock{}, c.log.With("controller", "podgroup"))
		if err := add("podgroup", kindsServed, p, err); err != nil {
			return err
		}
	}
	if cfg.Runs("queue") {
		kinds := c.kinds
		if cfg.Gang != config.GangNone && !native {
			kinds = nil // its scheduler says what queues have
		}
		p, err := controller.NewQueueController(vc, kinds, caches, recorder, clock.RealClock{}, c.log.With("controller", "queue"))
		if err := add("queue", kindsServed, p, err); err != nil {
			return err
		}
	}
	if cfg.Runs("jobflow") {
		p, err := controller.NewJobFlowController(controller.JobFlowConfig{}, vc, c.kinds, caches, recorder, clock.RealClock{}, c.log.With("controller", "jobflow"))
		if err := add("jobflow", flowsServed, p, err); err != nil {
			return err
		}
	}
	if cfg.Runs("cronvcjob") {
		crons := controller.CronJobConfig{Workers: cfg.CronJobWorkers, Local: time.Local}
		p, err := controller.NewVCCronJobController(crons, vc, caches, recorder, clock.RealClock{}, c.log.With("controller", "cronvcjob"))
		if err := add("cronvcjob", cronsServed, p, err); err != nil {
			return err
		}
	}
	return nil
}

// VolcanoServed is closed once Volcano's kinds can be worked with; nil if their controller is not among these.
func (c *Controllers) VolcanoServed() <-chan struct{} {
	if v, ok := c.parts["vcjob"].(*volcanoPart); ok {
		return v.Served()
	}
	return nil
}

// errNoNativeGangs says that gangs cannot be placed as asked for.
var errNoNativeGangs = fmt.Errorf("--gang=native needs PodGroups of %s, which this cluster does not have: switch the gate GenericWorkload on in "+
	"kube-apiserver and kube-scheduler, and that API version with --runtime-config; or use --gang=volcano with a scheduler of Volcano, or --gang=none",
	schedulingv1beta1.SchemeGroupVersion)

// nativeGangs reports whether the API server has PodGroups of its own.
func nativeGangs(kube kubernetes.Interface) (bool, error) {
	version := schedulingv1beta1.SchemeGroupVersion.String()
	kinds, err := kube.Discovery().ServerResourcesForGroupVersion(version)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the API server for the kinds of %s: %w", version, err)
	}
	return slices.ContainsFunc(kinds.APIResources, func(r metav1.APIResource) bool { return r.Name == "podgroups" }), nil
}

// saysNothing reports whether an error tells nothing about what was asked for: the API server was not reached, or had troubles of its
// own. The same may work a moment later.
func saysNothing(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// insist does something until it is done or refused: a process that ends for each trouble of the API server adds to them.
func insist(ctx context.Context, log *slog.Logger, do func() error) error {
	for {
		err := do()
		if err == nil || ctx.Err() != nil || !saysNothing(err) {
			return err
		}
		log.Warn("API server has not done it, to be tried again", "err", err, "again", troublePause)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(troublePause):
		}
	}
}

// volcanoPart runs a part that needs Volcano's kinds. It installs them first, or waits for somebody to do so.
type volcanoPart struct {
	kube       kubernetes.Interface
	vc         *client.Client
	part       part
	kinds      kindsCheck // of the kinds that it needs
	namespaces []string   // that it works in; none: all
	install    bool       // installs the kinds
	coming     bool       // somebody of this process does
	native     bool       // it needs PodGroups of Kubernetes as well
	queues     bool       // makes the queues root and default
	log        *slog.Logger
	ready      chan struct{}
	served     chan struct{}
	once       sync.Once
}

// Ready is closed once the part works, or cannot because nobody has installed the kinds: that keeps nobody else from working.
func (v *volcanoPart) Ready() <-chan struct{} { return v.ready }

// Served is closed once the kinds can be worked with. Ready may be closed long before.
func (v *volcanoPart) Served() <-chan struct{} { return v.served }

func (v *volcanoPart) setReady() { v.once.Do(func() { close(v.ready) }) }

// Run works until ctx ends.
func (v *volcanoPart) Run(ctx context.Context) error {
	if v.native {
		var there bool
		if err := insist(ctx, v.log, func() (err error) { there, err = nativeGangs(v.kube); return err }); err != nil {
			return err
		}
		if !there {
			return errNoNativeGangs
		}
	}
	if (v.install || v.coming) && v.haveKinds(ctx) != nil {
		v.setReady() // a new plane is of use before it has them; its API server lets those wait who need them
	}
	if v.install {
		if err := insist(ctx, v.log, func() error { return installKinds(ctx, v.kube, v.log) }); err != nil {
			return err
		}
	}
	if !v.awaitKinds(ctx) {
		return nil
	}
	if v.queues {
		if err := insist(ctx, v.log, func() error { return installQueues(ctx, v.vc) }); err != nil {
			return err
		}
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting.Go(func() {
		select {
		case <-v.part.Ready():
			v.setReady()
			close(v.served)
		case <-ctx.Done():
		}
	})
	return v.part.Run(ctx)
}

// haveKinds returns why the kinds cannot be listed, or nil. One namespace tells: in others there may be no rights to yet.
func (v *volcanoPart) haveKinds(ctx context.Context) error {
	if len(v.namespaces) == 0 {
		return v.kinds(ctx, v.vc, metav1.NamespaceAll)
	}
	var errs []error
	for _, namespace := range v.namespaces {
		err := v.kinds(ctx, v.vc, namespace)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// awaitKinds waits until the API server serves the kinds. It returns false when ctx has ended.
func (v *volcanoPart) awaitKinds(ctx context.Context) bool {
	told := false
	for {
		err := v.haveKinds(ctx)
		if err == nil {
			return ctx.Err() == nil
		}
		pause := kindsPause
		switch {
		case saysNothing(err):
			pause = troublePause
		case !v.install && !v.coming:
			pause = kindsPeriod
			v.setReady()
			if !told {
				told = true
				v.log.Info("Volcano's kinds are not installed, or there are no rights to read them; what works with them waits")
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// kindsServed returns why not every kind that the controller of Jobs needs can be listed, or nil.
func kindsServed(ctx context.Context, vc *client.Client, namespace string) error {
	one := metav1.ListOptions{Limit: 1, ResourceVersion: "0"}
	_, jobs := vc.Jobs(namespace).List(ctx, one)
	_, groups := vc.PodGroups(namespace).List(ctx, one)
	_, commands := vc.Commands(namespace).List(ctx, one)
	_, queues := vc.Queues().List(ctx, one)
	return errors.Join(jobs, groups, commands, queues)
}

// flowsServed does so for the controller of JobFlows.
func flowsServed(ctx context.Context, vc *client.Client, namespace string) error {
	one := metav1.ListOptions{Limit: 1, ResourceVersion: "0"}
	_, flows := vc.JobFlows(namespace).List(ctx, one)
	_, templates := vc.JobTemplates(namespace).List(ctx, one)
	_, jobs := vc.Jobs(namespace).List(ctx, one)
	return errors.Join(flows, templates, jobs)
}

// cronsServed does so for the controller of CronJobs.
func cronsServed(ctx context.Context, vc *client.Client, namespace string) error {
	one := metav1.ListOptions{Limit: 1, ResourceVersion: "0"}
	_, crons := vc.CronJobs(namespace).List(ctx, one)
	_, jobs := vc.Jobs(namespace).List(ctx, one)
	return errors.Join(crons, jobs)
}

// installKinds makes the definitions of Volcano's kinds that are not there. Those that are stay as they are.
func installKinds(ctx context.Context, kube kubernetes.Interface, log *slog.Logger) error {
	client := kube.Discovery().RESTClient()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return fmt.Errorf("finding the definitions of Volcano's kinds: %w", err)
	}
	errs := make([]error, len(files))
	var all sync.WaitGroup
	for i, file := range files {
		all.Go(func() {
			group, plural, _ := strings.Cut(strings.TrimSuffix(file, ".yaml"), "_")
			name := plural + "." + group
			err := client.Get().AbsPath(path, name).SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(ctx).Error()
			if err == nil {
				return
			}
			if !apierrors.IsNotFound(err) {
				errs[i] = fmt.Errorf("looking for the definition %s: %w", name, err)
				return
			}
			text, err := crds.Files.ReadFile(file)
			if err == nil {
				err = client.Post().AbsPath(path).SetHeader("Content-Type", "application/yaml").Body(text).Do(ctx).Error()
			}
			if err != nil && !apierrors.IsAlreadyExists(err) {
				errs[i] = fmt.Errorf("making the definition %s: %w", name, err)
				return
			}
			log.Info("Made the definition of a kind", "name", name)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// installQueues makes the queues that every Job may rely on, where no scheduler of Volcano makes them.
func installQueues(ctx context.Context, vc *client.Client) error {
	for _, q := range []*scheduling.Queue{
		{ObjectMeta: metav1.ObjectMeta{Name: batch.RootQueue}, Spec: scheduling.QueueSpec{Weight: 1, Reclaimable: ptr.To(false)}},
		{ObjectMeta: metav1.ObjectMeta{Name: batch.DefaultQueue}, Spec: scheduling.QueueSpec{Weight: 1, Reclaimable: ptr.To(true), Parent: batch.RootQueue}},
	} {
		q.APIVersion, q.Kind = scheduling.GroupVersion.String(), "Queue"
		if _, err := vc.Queues().Create(ctx, q, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making the queue %q: %w", q.Name, err)
		}
	}
	return nil
}

// Admission serves the webhooks. It runs beside the controllers in every process, whoever leads.
type Admission struct {
	volcanoPart
	server *admission.Server
	queues cache.SharedIndexInformer
}

// NewAdmission returns what serves the webhooks as cfg says. It listens already, and answers nothing yet.
func NewAdmission(cfg config.Admission, rc *rest.Config, log *slog.Logger) (*Admission, error) {
	rc = controllerConfig(config.Controllers{}, rc)
	kube, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("connecting the webhooks: %w", err)
	}
	vc, err := client.New(rc)
	if err != nil {
		return nil, err
	}
	log = log.With("part", "admission")
	a := &Admission{queues: client.NewInformer(vc.Queues(), &scheduling.Queue{}, resync, cache.Indexers{})}
	hooks := slices.Concat(admission.VCJobs(a.queueByName, kube, cfg.SchedulerName), admission.VolcanoQueues(allQueues(vc)), admission.PodGroups(a.queueByName),
		admission.JobFlows(), admission.VCCronJobs())
	a.server, err = admission.New(admission.Config{Listen: cfg.Listen, Service: cfg.Service, Secret: cfg.Secret, Name: cfg.Name, Namespaces: eachOnce(cfg.Namespaces), Policies: admission.Policies(cfg.SchedulerName)},
		hooks, kube, clock.RealClock{}, log)
	if err != nil {
		return nil, err
	}
	a.volcanoPart = volcanoPart{kube: kube, vc: vc, part: webhooks{a}, kinds: kindsServed, namespaces: cfg.Namespaces, coming: cfg.KindsComing, log: log, ready: make(chan struct{}), served: make(chan struct{})}
	return a, nil
}

// webhooks is the part of an Admission that needs the kinds.
type webhooks struct{ *Admission }

func (w webhooks) Ready() <-chan struct{} { return w.server.Ready() }

func (w webhooks) Run(ctx context.Context) error {
	var informer sync.WaitGroup
	defer informer.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer.Go(func() { w.queues.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), w.queues.HasSynced) {
		return nil
	}
	return w.server.Run(ctx)
}

// queueByName returns a queue, or nil, and how many others have it as their parent.
func (a *Admission) queueByName(name string) (q *scheduling.Queue, children int) {
	for _, o := range a.queues.GetStore().List() {
		switch other := o.(*scheduling.Queue); {
		case other.Name == name:
			q = other
		case other.Spec.Parent == name:
			children++
		}
	}
	return q, children
}

// allQueues returns how the queues are read as they are at the moment.
func allQueues(vc *client.Client) admission.AllQueues {
	return func(ctx context.Context) ([]scheduling.Queue, error) {
		list, err := vc.Queues().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
}
