// SPDX-License-Identifier: Apache-2.0

// Package provision gives claims their volumes on a standalone machine: directories below one of its own.
//
// It is what a storage driver and the persistent-volume controller of kube-controller-manager are elsewhere. It binds claims to
// volumes that somebody has made for them, makes volumes for claims of its storage class, and takes those away again when their
// claims are gone. It never touches a volume or a claim of another class than it was asked for, and deletes no directory that it has
// not made. Start reading at Provisioner.Run, then match.go.
package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

const (
	// ClassName is the storage class that volumes are made for. It is the default one unless there is another.
	ClassName = "drover-hostpath"
	// Name stands as the provisioner in the class and on the volumes that were made here.
	Name = "drover.dev/hostpath"

	annotationDefaultClass  = "storageclass.kubernetes.io/is-default-class"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	annotationBindCompleted = "pv.kubernetes.io/bind-completed"
	annotationBoundByUs     = "pv.kubernetes.io/bound-by-controller"

	retryBase = 200 * time.Millisecond
	retryMax  = 30 * time.Second
)

// Config says where volumes lie.
type Config struct {
	// Dir is the directory of the volumes; it must be absolute. It is made if it is missing.
	Dir string
	// Node is the name of the node that has the directory.
	Node string
	Log  *slog.Logger // nil: nothing is logged
}

// Validate reports every field that cannot work.
func (c Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("dir %q is not absolute", c.Dir))
	}
	if c.Node == "" {
		errs = append(errs, errors.New("node is missing"))
	}
	return errors.Join(errs...)
}

// Provisioner binds claims to volumes, and makes them.
type Provisioner struct {
	cfg         Config
	client      kubernetes.Interface
	log         *slog.Logger
	informers   informers.SharedInformerFactory
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	queue       workqueue.TypedRateLimitingInterface[item]
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	ready       chan struct{}
}

// item is something to look at: a claim, or, without a namespace, a volume.
type item struct{ namespace, name string }

// New returns a provisioner that does nothing yet. Its client needs rights that a node does not have: it makes volumes and storage
// classes and changes claims.
func New(cfg Config, client kubernetes.Interface) (*Provisioner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the provisioner: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of volumes: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	broadcaster := record.NewBroadcaster()
	return &Provisioner{
		cfg: cfg, client: client, log: cfg.Log,
		informers: factory,
		claims:    factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes:   factory.Core().V1().PersistentVolumes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](retryBase,
			retryMax)),
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "persistentvolume-controller"}),
		ready:       make(chan struct{}),
	}, nil
}

// Ready is closed when claims are looked after.
func (p *Provisioner) Ready() <-chan struct{} { return p.ready }

// Run looks after claims and volumes until ctx ends. It returns an error when it cannot begin; what goes wrong later is logged and
// tried again. It can be called once.
func (p *Provisioner) Run(ctx context.Context) error {
	defer p.broadcaster.Shutdown()
	p.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.client.CoreV1().Events("")})
	claims := p.informers.Core().V1().PersistentVolumeClaims().Informer()
	volumes := p.informers.Core().V1().PersistentVolumes().Informer()
	for _, informer := range []cache.SharedIndexInformer{claims, volumes} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    p.saw,
			UpdateFunc: func(_, obj any) { p.saw(obj) },
			DeleteFunc: p.lost,
		})
		if err != nil {
			return fmt.Errorf("watching claims and volumes: %w", err)
		}
	}
	p.informers.StartWithContext(ctx)
	defer p.informers.Shutdown()
	if !cache.WaitFor(ctx, "", claims.HasSyncedChecker(), volumes.HasSyncedChecker()) {
		return nil
	}
	var work sync.WaitGroup
	work.Go(func() { p.keepClass(ctx) })
	work.Go(func() {
		for p.next(ctx) {
		}
	})
	close(p.ready)
	<-ctx.Done()
	p.queue.ShutDown()
	work.Wait()
	return nil
}

// keepClass makes the storage class, as soon as the API server lets it.
func (p *Provisioner) keepClass(ctx context.Context) {
	for wait := retryBase; ; wait = min(2*wait, retryMax) {
		err := p.ensureClass(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.log.Warn("Making the storage class did not work", "err", err, "again", wait)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (p *Provisioner) ensureClass(ctx context.Context) error {
	api := p.client.StorageV1().StorageClasses()
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing storage classes: %w", err)
	}
	isDefault := "true"
	for i := range list.Items {
		if list.Items[i].Name == ClassName {
			return nil
		}
		if list.Items[i].Annotations[annotationDefaultClass] == "true" {
			isDefault = "false"
		}
	}
	reclaim, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	_, err = api.Create(ctx, &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: ClassName, Annotations: map[string]string{annotationDefaultClass: isDefault}},
		Provisioner:       Name,
		ReclaimPolicy:     &reclaim,
		VolumeBindingMode: &binding,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating storage class %q: %w", ClassName, err)
	}
	return nil
}

func (p *Provisioner) saw(obj any) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		p.queue.Add(item{o.Namespace, o.Name})
	case *corev1.PersistentVolume:
		p.queue.Add(item{name: o.Name})
		// A volume that has become free may be what a claim has been waiting for.
		if o.Spec.ClaimRef == nil || o.Spec.ClaimRef.UID == "" {
			p.lookAtPending()
		}
	}
}

func (p *Provisioner) lost(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		if o.Spec.VolumeName != "" {
			p.queue.Add(item{name: o.Spec.VolumeName})
		}
	case *corev1.PersistentVolume:
		if ref := o.Spec.ClaimRef; ref != nil {
			p.queue.Add(item{ref.Namespace, ref.Name})
		}
	}
}

func (p *Provisioner) lookAtPending() {
	claims, err := p.claims.List(everything)
	if err != nil {
		return // a lister over a cache has no errors
	}
	for _, c := range claims {
		if c.Status.Phase != corev1.ClaimBound {
			p.queue.Add(item{c.Namespace, c.Name})
		}
	}
}

func (p *Provisioner) next(ctx context.Context) bool {
	it, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(it)
	var err error
	if it.namespace == "" {
		err = p.syncVolume(ctx, it.name)
	} else {
		err = p.syncClaim(ctx, it.namespace, it.name)
	}
	if err == nil {
		p.queue.Forget(it)
		return true
	}
	if ctx.Err() == nil && !apierrors.IsConflict(err) {
		p.log.Warn("Looking after a claim or volume did not work", "namespace", it.namespace, "name", it.name, "err", err)
	}
	p.queue.AddRateLimited(it)
	return true
}

// syncClaim binds a claim to a volume, which it makes if there is none and the claim is for us.
func (p *Provisioner) syncClaim(ctx context.Context, namespace, name string) error {
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || claim.DeletionTimestamp != nil || claim.Status.Phase == corev1.ClaimBound {
		return err
	}
	volumes, err := p.volumes.List(everything)
	if err != nil {
		return err
	}
	pv := choose(claim, volumes)
	if pv == nil && claim.Spec.VolumeName == "" {
		provision, why := p.forUs(ctx, claim)
		if !provision {
			if why != "" {
				p.recorder.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", why)
			}
			return nil
		}
		if pv, err = p.makeVolume(ctx, claim); err != nil {
			p.recorder.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
			return err
		}
	}
	if pv == nil {
		return nil // it names a volume that is not there yet, or belongs to another
	}
	return p.bind(ctx, claim, pv)
}

// forUs reports whether a volume is made for a claim that has none, and if not, what to tell its author.
func (p *Provisioner) forUs(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, string) {
	class := claim.Spec.StorageClassName
	switch {
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return false, "block volumes are not supported on this machine"
	case claim.Spec.Selector != nil:
		return false, "" // it wants one of the volumes that somebody makes
	case class == nil:
		return true, ""
	case *class == "":
		return false, ""
	}
	sc, err := p.client.StorageV1().StorageClasses().Get(ctx, *class, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && *class == ClassName:
		return true, ""
	case apierrors.IsNotFound(err):
		return false, fmt.Sprintf("storageclass.storage.k8s.io %q not found; this machine has %q, which is used when a claim names none", *class, ClassName)
	case err != nil:
		return false, err.Error()
	}
	return sc.Provisioner == Name, ""
}

// makeVolume makes the directory and the volume for a claim, already promised to it. Both are named after the claim, so that a second
// try finds what the first has made.
func (p *Provisioner) makeVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	name := "pvc-" + string(claim.UID)
	dir := filepath.Join(p.cfg.Dir, name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("making the directory of volume %q: %w", name, err)
	}
	// Whoever the pod runs as may use it, and the umask must not narrow that.
	if err := os.Chmod(dir, 0o777); err != nil {
		return nil, fmt.Errorf("making the directory of volume %q: %w", name, err)
	}
	class := ClassName
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	kind, mode := corev1.HostPathDirectoryOrCreate, corev1.PersistentVolumeFilesystem
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationProvisionedBy: Name}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              class,
			VolumeMode:                    &mode,
			ClaimRef:                      referTo(claim),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{p.cfg.Node},
				}},
			}}}},
		},
	}
	api := p.client.CoreV1().PersistentVolumes()
	made, err := api.Create(ctx, pv, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = api.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("creating volume %q: %w", name, err)
	}
	return made, nil
}

func referTo(claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}
}

// bind makes claim and volume each other's. Each step looks at what is there, so that an interrupted binding is completed.
func (p *Provisioner) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	volumes := p.client.CoreV1().PersistentVolumes()
	claims := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	var err error
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		pv = pv.DeepCopy()
		if ref == nil {
			setAnnotation(&pv.ObjectMeta, annotationBoundByUs, "yes")
		}
		pv.Spec.ClaimRef = referTo(claim)
		if pv, err = volumes.Update(ctx, pv, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("binding volume to claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	if pv.Status.Phase != corev1.VolumeBound {
		pv = pv.DeepCopy()
		pv.Status.Phase = corev1.VolumeBound
		if pv, err = volumes.UpdateStatus(ctx, pv, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("marking volume bound to claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	if claim.Spec.VolumeName == "" {
		claim = claim.DeepCopy()
		claim.Spec.VolumeName = pv.Name
		setAnnotation(&claim.ObjectMeta, annotationBoundByUs, "yes")
		setAnnotation(&claim.ObjectMeta, annotationBindCompleted, "yes")
		if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("binding claim to volume %q: %w", pv.Name, err)
		}
	}
	claim = claim.DeepCopy()
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.AccessModes = pv.Spec.AccessModes
	claim.Status.Capacity = pv.Spec.Capacity
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("marking claim bound to volume %q: %w", pv.Name, err)
	}
	p.log.Info("Bound a claim", "claim", claim.Namespace+"/"+claim.Name, "volume", pv.Name)
	return nil
}

func setAnnotation(meta *metav1.ObjectMeta, key, value string) {
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[key] = value
}

// syncVolume lets a volume go whose claim is gone, and deletes it if it was made here for that claim.
func (p *Provisioner) syncVolume(ctx context.Context, name string) error {
	pv, err := p.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || pv.DeletionTimestamp != nil {
		return err
	}
	api := p.client.CoreV1().PersistentVolumes()
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		if pv.Status.Phase == corev1.VolumeAvailable {
			return nil
		}
		return p.setPhase(ctx, pv, corev1.VolumeAvailable)
	}
	claim, err := p.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("asking for claim %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	if err == nil && claim.UID == ref.UID {
		return nil
	}
	if pv.Status.Phase != corev1.VolumeReleased {
		if err := p.setPhase(ctx, pv, corev1.VolumeReleased); err != nil {
			return err
		}
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || !p.madeHere(pv) {
		return nil
	}
	if err := os.RemoveAll(pv.Spec.HostPath.Path); err != nil {
		return fmt.Errorf("removing the directory of volume %q: %w", pv.Name, err)
	}
	if err := api.Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting volume %q: %w", pv.Name, err)
	}
	p.log.Info("Deleted a volume whose claim is gone", "volume", pv.Name)
	return nil
}

func (p *Provisioner) setPhase(ctx context.Context, pv *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) error {
	pv = pv.DeepCopy()
	pv.Status.Phase = phase
	if _, err := p.client.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("marking volume %q %s: %w", pv.Name, phase, err)
	}
	return nil
}

// madeHere reports whether a volume's directory is one that this provisioner has made: the annotation alone could be anybody's.
func (p *Provisioner) madeHere(pv *corev1.PersistentVolume) bool {
	return pv.Annotations[annotationProvisionedBy] == Name && pv.Spec.HostPath != nil &&
		pv.Spec.HostPath.Path == filepath.Join(p.cfg.Dir, pv.Name) && strings.HasPrefix(pv.Name, "pvc-")
}
