// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Volcano is a Cluster that stores Volcano's kinds as well, and what its Jobs have beside their pods. Like its Cluster it belongs to
// one goroutine.
type Volcano struct {
	*Cluster
	objects map[string]runtime.Object // by kind, namespace and name
	log     []Message
	// wanted is, for each task of each Job by UID, the most replicas that it ever had.
	wanted map[string]int32
	obeyed map[string]bool // Commands that have restarted a Job
}

// Message is one message of a watch for other kinds than pods and batch/v1 Jobs.
type Message struct {
	Version int64
	Object  runtime.Object
	Deleted bool
}

// NewVolcano returns an empty cluster at that time.
func NewVolcano(now time.Time) *Volcano {
	return &Volcano{Cluster: New(now), objects: map[string]runtime.Object{}, wanted: map[string]int32{}, obeyed: map[string]bool{}}
}

// Messages returns the messages after a version, oldest first.
func (v *Volcano) Messages(after int64) []Message {
	for i := range v.log {
		if v.log[i].Version > after {
			return v.log[i:]
		}
	}
	return nil
}

// All returns copies of all objects of the kind of example, by name.
func All[T runtime.Object](v *Volcano) []T {
	var all []T
	for _, k := range sortedKeys(v.objects) {
		if o, ok := v.objects[k].(T); ok {
			all = append(all, o.DeepCopyObject().(T))
		}
	}
	return all
}

// Find returns a copy of the stored object of the kind and name of like, or the zero value.
func Find[T runtime.Object](v *Volcano, like T) (found T) {
	if o, ok := v.objects[storeKey(like)].(T); ok {
		return o.DeepCopyObject().(T)
	}
	return found
}

func meta(o runtime.Object) metav1.Object { return o.(metav1.Object) }

func storeKey(o runtime.Object) string { return fmt.Sprintf("%T/%s", o, key(meta(o))) }

func resourceOf(o runtime.Object) schema.GroupResource {
	switch o.(type) {
	case *batch.Job:
		return schema.GroupResource{Group: batch.GroupVersion.Group, Resource: "jobs"}
	case *bus.Command:
		return schema.GroupResource{Group: bus.GroupVersion.Group, Resource: "commands"}
	case *scheduling.PodGroup:
		return schema.GroupResource{Group: scheduling.GroupVersion.Group, Resource: "podgroups"}
	case *corev1.PersistentVolumeClaim:
		return schema.GroupResource{Resource: "persistentvolumeclaims"}
	case *corev1.ConfigMap:
		return schema.GroupResource{Resource: "configmaps"}
	case *corev1.Secret:
		return schema.GroupResource{Resource: "secrets"}
	case *corev1.Service:
		return schema.GroupResource{Resource: "services"}
	case *networkingv1.NetworkPolicy:
		return schema.GroupResource{Group: networkingv1.GroupName, Resource: "networkpolicies"}
	}
	return schema.GroupResource{Resource: fmt.Sprintf("%T", o)}
}

func (v *Volcano) put(o runtime.Object) {
	v.version++
	meta(o).SetResourceVersion(strconv.FormatInt(v.version, 10))
	v.objects[storeKey(o)] = o
	v.log = append(v.log, Message{Version: v.version, Object: o.DeepCopyObject()})
}

func (v *Volcano) drop(o runtime.Object) {
	v.version++
	delete(v.objects, storeKey(o))
	last := o.DeepCopyObject()
	meta(last).SetResourceVersion(strconv.FormatInt(v.version, 10))
	v.log = append(v.log, Message{Version: v.version, Object: last, Deleted: true})
}

// Add stores a new object as a user does, and returns it. A Job is taken as it is: admission is not simulated.
func Add[T runtime.Object](v *Volcano, o T) T {
	stored := o.DeepCopyObject().(T)
	m := meta(stored)
	m.SetUID(v.nextUID("object"))
	m.SetGeneration(1)
	m.SetCreationTimestamp(metav1.NewTime(v.Now.Truncate(time.Second)))
	v.put(stored)
	if j, ok := any(stored).(*batch.Job); ok {
		v.noteWanted(j)
	}
	return stored.DeepCopyObject().(T)
}

func (v *Volcano) noteWanted(j *batch.Job) {
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		k := string(j.UID) + "/" + t.Name
		v.wanted[k] = max(v.wanted[k], t.Replicas)
	}
}

// Modify changes a stored object as a user or a scheduler does. It does nothing when the object is gone.
func Modify[T runtime.Object](v *Volcano, like T, change func(T)) {
	stored, ok := v.objects[storeKey(like)].(T)
	if !ok {
		return
	}
	next := stored.DeepCopyObject().(T)
	change(next)
	if j, isJob := any(next).(*batch.Job); isJob {
		j.Generation++
		v.noteWanted(j)
	}
	v.put(next)
}

// Remove deletes an object as a user does, in the background.
func (v *Volcano) Remove(o runtime.Object) {
	if stored, there := v.objects[storeKey(o)]; there {
		v.drop(stored)
	}
}

// CollectGarbage deletes what belongs to Jobs that are gone or being deleted, and the Jobs that wait for no pod any more.
func (v *Volcano) CollectGarbage() {
	left := map[types.UID]int{}
	for _, k := range sortedKeys(v.pods) {
		p := v.pods[k]
		if ref := metav1.GetControllerOf(p); ref != nil {
			if j := v.ownerJob(p); j == nil || j.DeletionTimestamp != nil {
				v.markPod(p, 30)
			}
			if v.pods[k] != nil {
				left[ref.UID]++
			}
		}
	}
	for _, k := range sortedKeys(v.objects) {
		o := v.objects[k]
		if ref := metav1.GetControllerOf(meta(o)); ref != nil {
			if !v.hasOwner(o) {
				v.drop(o)
			}
		} else if j, ok := o.(*batch.Job); ok && j.DeletionTimestamp != nil && left[j.UID] == 0 {
			v.drop(j)
		}
	}
}

// ownerJob returns the stored Job that controls o, or nil.
func (v *Volcano) ownerJob(o metav1.Object) *batch.Job {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return nil
	}
	like := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: ref.Name}}
	if j, ok := v.objects[storeKey(like)].(*batch.Job); ok && j.UID == ref.UID {
		return j
	}
	return nil
}

// hasOwner reports whether the object is stored that controls o: a Job, or for a PodGroup of Kubernetes that of Volcano.
func (v *Volcano) hasOwner(o runtime.Object) bool {
	native, ok := o.(*schedulingv1beta1.PodGroup)
	if !ok {
		return v.ownerJob(meta(o)) != nil
	}
	ref := metav1.GetControllerOf(native)
	like := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: native.Namespace, Name: ref.Name}}
	g, there := v.objects[storeKey(like)].(*scheduling.PodGroup)
	return there && g.UID == ref.UID
}

// The requests of a controller.

// GetObject returns the stored object of the kind and name of like.
func (v *Volcano) GetObject(like runtime.Object) (runtime.Object, error) {
	lost, err := v.request("GET " + resourceOf(like).Resource)
	if err != nil {
		return nil, err
	}
	o, there := v.objects[storeKey(like)]
	if !there {
		return nil, apierrors.NewNotFound(resourceOf(like), meta(like).GetName())
	}
	return o.DeepCopyObject(), lost()
}

// PostObject stores a new object.
func (v *Volcano) PostObject(o runtime.Object) (runtime.Object, error) {
	lost, err := v.request("POST " + resourceOf(o).Resource)
	if err != nil {
		return nil, err
	}
	if _, there := v.objects[storeKey(o)]; there {
		return nil, apierrors.NewAlreadyExists(resourceOf(o), meta(o).GetName())
	}
	if _, native := o.(*schedulingv1beta1.PodGroup); !native && v.ownerJob(meta(o)) == nil && metav1.GetControllerOf(meta(o)) != nil {
		v.violate("%T %s was created for a Job that is gone", o, meta(o).GetName())
	}
	o = o.DeepCopyObject()
	m := meta(o)
	m.SetUID(v.nextUID("object"))
	m.SetGeneration(1)
	m.SetCreationTimestamp(metav1.NewTime(v.Now.Truncate(time.Second)))
	v.put(o)
	return o.DeepCopyObject(), lost()
}

// PutObject stores o in the place of the version that it carries.
func (v *Volcano) PutObject(o runtime.Object) (runtime.Object, error) {
	lost, err := v.request("PUT " + resourceOf(o).Resource)
	if err != nil {
		return nil, err
	}
	stored, err := v.stored(o)
	if err != nil {
		return nil, err
	}
	o = o.DeepCopyObject()
	if j, ok := o.(*batch.Job); ok {
		j.Status = stored.(*batch.Job).Status
		j.Generation++
	}
	v.put(o)
	return o.DeepCopyObject(), lost()
}

func (v *Volcano) stored(o runtime.Object) (runtime.Object, error) {
	m := meta(o)
	stored, there := v.objects[storeKey(o)]
	switch {
	case !there || meta(stored).GetUID() != m.GetUID():
		return nil, apierrors.NewNotFound(resourceOf(o), m.GetName())
	case meta(stored).GetResourceVersion() != m.GetResourceVersion():
		return nil, apierrors.NewConflict(resourceOf(o), m.GetName(), fmt.Errorf("version %s is stored", meta(stored).GetResourceVersion()))
	}
	return stored, nil
}

// DeleteObject deletes the object of the kind and name of like that has that UID.
func (v *Volcano) DeleteObject(like runtime.Object, uid types.UID) error {
	lost, err := v.request("DELETE " + resourceOf(like).Resource)
	if err != nil {
		return err
	}
	o, there := v.objects[storeKey(like)]
	switch {
	case !there:
		return apierrors.NewNotFound(resourceOf(like), meta(like).GetName())
	case meta(o).GetUID() != uid:
		return apierrors.NewConflict(resourceOf(like), meta(like).GetName(), fmt.Errorf("UID is %s", meta(o).GetUID()))
	}
	if c, ok := o.(*bus.Command); ok {
		v.auditCommand(c)
	}
	if j, ok := o.(*batch.Job); ok { // in the foreground
		next := j.DeepCopy()
		next.DeletionTimestamp = ptr.To(metav1.NewTime(v.Now.Truncate(time.Second)))
		v.put(next)
	} else {
		v.drop(o)
	}
	return lost()
}

// PutJobStatus stores the status of next.
func (v *Volcano) PutJobStatus(next *batch.Job) (resourceVersion string, err error) {
	lost, err := v.request("PUT status")
	if err != nil {
		return "", err
	}
	o, err := v.stored(next)
	if err != nil {
		return "", err
	}
	stored := o.(*batch.Job)
	j := stored.DeepCopy()
	j.Status = *next.Status.DeepCopy()
	v.auditJobStatus(stored, j)
	v.put(j)
	return j.ResourceVersion, lost()
}

// MarkPod sets annotations of one pod.
func (v *Volcano) MarkPod(namespace, name string, uid types.UID, annotations map[string]string) error {
	lost, err := v.request("PATCH pod")
	if err != nil {
		return err
	}
	p, err := v.podWithUID(namespace, name, uid)
	if err != nil {
		return err
	}
	p = p.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	for k, value := range annotations {
		p.Annotations[k] = value
	}
	v.storePod(p)
	return lost()
}

// PostVCPod stores a new pod of a Job.
func (v *Volcano) PostVCPod(p *corev1.Pod) (*corev1.Pod, error) {
	if v.pods[key(p)] == nil {
		v.auditPod(p)
	}
	return v.PostPod(p)
}

// DeleteVCPod asks for a pod to be deleted.
func (v *Volcano) DeleteVCPod(namespace, name string, uid types.UID) error {
	if p := v.pods[namespace+"/"+name]; p != nil && p.UID == uid && p.Annotations[batch.OutOfSyncKey] == "" {
		v.violate("pod %s was deleted without a mark", name)
	}
	return v.DeletePod(namespace, name, uid)
}

func isFinalPhase(p batch.JobPhase) bool {
	return p == batch.Completed || p == batch.Terminated || p == batch.Failed
}

// auditCommand checks that a Command is deleted only after it was obeyed.
func (v *Volcano) auditCommand(c *bus.Command) {
	j, ok := v.objects[storeKey(&batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.TargetObject.Name}})].(*batch.Job)
	if !ok || j.UID != c.TargetObject.UID {
		return
	}
	phase, action := j.Status.State.Phase, batch.Action(c.Action)
	working := phase == "" || phase == batch.Pending || phase == batch.Running
	lost := false
	switch action {
	case batch.AbortJobAction, batch.TerminateJobAction, batch.CompleteJobAction:
		lost = working || phase == batch.Restarting
	case batch.RestartJobAction, batch.RestartTaskAction, batch.RestartPodAction:
		lost = working
	case batch.ResumeJobAction:
		lost = phase == batch.Aborting || phase == batch.Aborted
	default: // nothing to see
	}
	if lost {
		v.violate("Command %s was deleted and Job %s is %s", c.Action, j.Name, phase)
	}
}

// auditJobStatus checks what must hold of every write of a status.
func (v *Volcano) auditJobStatus(before, after *batch.Job) {
	from, to := &before.Status, &after.Status
	switch {
	case isFinalPhase(from.State.Phase) && from.State.Phase != to.State.Phase:
		v.violate("Job %s left the phase %s for %s", after.Name, from.State.Phase, to.State.Phase)
	case to.RetryCount < from.RetryCount || to.RetryCount > from.RetryCount+1:
		v.violate("retryCount of Job %s went from %d to %d", after.Name, from.RetryCount, to.RetryCount)
	case to.RetryCount > from.RetryCount && to.State.Phase != batch.Restarting:
		v.violate("retryCount of Job %s grew in the phase %s", after.Name, to.State.Phase)
	case to.Version < from.Version || to.Version > from.Version+1:
		v.violate("version of Job %s went from %d to %d", after.Name, from.Version, to.Version)
	case from.State.Phase == to.State.Phase && !from.State.LastTransitionTime.Equal(&to.State.LastTransitionTime):
		v.violate("lastTransitionTime of Job %s moved within the phase %s", after.Name, to.State.Phase)
	case to.State.Phase == batch.Aborted && to.Pending+to.Running+to.Terminating > 0 && from.State.Phase != to.State.Phase:
		v.violate("Job %s is Aborted with %d pods", after.Name, to.Pending+to.Running+to.Terminating)
	}
	if to.RetryCount > from.RetryCount && to.State.Reason == "CommandIssued" {
		command, _, _ := strings.Cut(to.State.Message, " (")
		if v.obeyed[command] {
			v.violate("Job %s was restarted twice: %s", after.Name, command)
		}
		v.obeyed[command] = true
	}
	seen := map[batch.JobPhase]bool{}
	for _, c := range to.Conditions {
		if seen[c.Status] {
			v.violate("Job %s has two conditions %s", after.Name, c.Status)
		}
		seen[c.Status] = true
	}
}

// auditPod checks that a new pod may be there.
func (v *Volcano) auditPod(p *corev1.Pod) {
	j := v.ownerJob(p)
	if j == nil {
		return // deleted a moment ago
	}
	if phase := cmp.Or(j.Status.State.Phase, batch.Pending); phase != batch.Pending && phase != batch.Running {
		v.violate("pod %s was created while Job %s is %s", p.Name, j.Name, phase)
	}
	if version := strconv.Itoa(int(j.Status.Version)); p.Annotations[batch.VersionKey] != version {
		v.violate("pod %s was created for version %s of Job %s, which is at %s", p.Name, p.Annotations[batch.VersionKey], j.Name, version)
	}
	group := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Annotations[batch.GroupNameKey]}}
	if g := Find(v, group); g == nil || g.Status.Phase == "" || g.Status.Phase == scheduling.GroupPending {
		v.violate("pod %s was created before its PodGroup was admitted", p.Name)
	}
	index, err := strconv.Atoi(p.Labels[batch.IndexKey])
	if limit := v.wanted[string(j.UID)+"/"+p.Labels[batch.TaskKey]]; err != nil || int32(index) >= limit {
		v.violate("pod %s was created for index %q of %d", p.Name, p.Labels[batch.IndexKey], limit)
	}
}
