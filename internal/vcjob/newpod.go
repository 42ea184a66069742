// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// Builder makes the pods of one Job.
type Builder struct {
	job     *batch.Job
	plugins []plugin.Named
	forward bool
}

// NewBuilder returns what makes the pods of j. forward says that j's queue has other clusters.
func NewBuilder(j *batch.Job, forward bool) (*Builder, error) {
	j = withDefaults(j)
	plugins, err := plugin.Of(j)
	if err != nil {
		return nil, err
	}
	return &Builder{job: j, plugins: plugins, forward: forward}, nil
}

// Pod returns the pod that is to be made.
func (b *Builder) Pod(c Creation) (*corev1.Pod, error) {
	task := &b.job.Spec.Tasks[c.Task]
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.job.Namespace, Name: c.Name,
			Labels: maps.Clone(task.Template.Labels), Annotations: maps.Clone(task.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{ControllerRef(b.job)},
		},
		Spec: *task.Template.Spec.DeepCopy(),
	}
	setEmpty(&p.Spec.SchedulerName, b.job.Spec.SchedulerName)
	setEmpty(&p.Spec.PriorityClassName, b.job.Spec.PriorityClassName)
	if c.Native != "" {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &c.Native}
	}
	b.mountClaims(p)
	b.describe(p, task, c)
	for _, each := range b.plugins {
		if err := each.Edit(plugin.Pod{Pod: p, Task: c.Task, Index: c.Index}); err != nil {
			return nil, fmt.Errorf("letting plugin %s change pod %q: %w", each.Name, c.Name, err)
		}
	}
	return p, nil
}

// describe sets the labels and annotations by which a pod is known.
func (b *Builder) describe(p *corev1.Pod, task *batch.TaskSpec, c Creation) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	both := map[string]string{
		batch.IndexKey: strconv.Itoa(c.Index), batch.TaskKey: task.Name, batch.JobNameKey: b.job.Name, batch.QueueKey: b.job.Spec.Queue,
	}
	if b.forward || b.job.Annotations[batch.ForwardKey] == "true" {
		both[batch.ForwardKey] = "true"
	}
	maps.Copy(p.Labels, both)
	maps.Copy(p.Annotations, both)
	p.Labels[batch.NamespaceKey] = b.job.Namespace
	maps.Copy(p.Annotations, map[string]string{
		batch.GroupNameKey: GroupName(b.job), batch.VersionKey: itoa(b.job.Status.Version),
		batch.RetryKey: itoa(b.job.Status.RetryCount), batch.TemplateKey: b.job.Name + "-" + task.Name,
	})
	if task.TopologyPolicy != "" {
		p.Annotations[batch.TopologyKey] = string(task.TopologyPolicy)
	}
	if part := partitionOf(task, c.Index); part != "" {
		p.Labels[batch.PartitionKey] = part
	}
	for _, key := range [...]string{batch.PreemptableKey, batch.CooldownKey} {
		take(p.Labels, b.job.Labels, key)
		take(p.Annotations, b.job.Annotations, key)
	}
	take(p.Annotations, b.job.Annotations, batch.RevocableZoneKey)
	if !take(p.Annotations, b.job.Annotations, batch.MinAvailableKey) {
		take(p.Annotations, b.job.Annotations, batch.MaxUnavailableKey)
	}
	if !c.EvictedAt.IsZero() {
		p.Annotations[EvictedKey] = c.EvictedAt.UTC().Format(time.RFC3339)
	}
}

// take copies one entry, if there is one.
func take(to, from map[string]string, key string) bool {
	value, there := from[key]
	if there {
		to[key] = value
	}
	return there
}

// mountClaims gives every main container the claims of the Job, each once.
func (b *Builder) mountClaims(p *corev1.Pod) {
	var mounted []string
	for i := range b.job.Spec.Volumes {
		v := &b.job.Spec.Volumes[i]
		claim := v.VolumeClaimName
		if claim == "" {
			claim = claimName(b.job, i)
		}
		if slices.Contains(mounted, claim) {
			continue
		}
		mounted = append(mounted, claim)
		name := volumeName(b.job, claim)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		for k := range p.Spec.Containers {
			c := &p.Spec.Containers[k]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: v.MountPath})
		}
	}
}

// Claim is a claim that a Job's pods mount.
type Claim struct {
	Name string
	// Make is the claim to be made; nil: it must be there already.
	Make *corev1.PersistentVolumeClaim
	// Unnamed is the position of the volume whose spec does not name the claim yet; -1: it does.
	Unnamed int
}

// Claims returns the claims of j in the order of its volumes.
func Claims(j *batch.Job) []Claim {
	var claims []Claim
	for i := range j.Spec.Volumes {
		v := &j.Spec.Volumes[i]
		c := Claim{Name: v.VolumeClaimName, Unnamed: -1}
		if c.Name == "" {
			c.Name, c.Unnamed = claimName(j, i), i
		}
		if v.VolumeClaim != nil && c.Name == claimName(j, i) {
			c.Make = &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: c.Name, OwnerReferences: []metav1.OwnerReference{ControllerRef(j)}},
				Spec:       *v.VolumeClaim.DeepCopy(),
			}
		}
		claims = append(claims, c)
	}
	return claims
}

// Objects returns what the plugins of j want beside its pods, with j as their owner, in the order in which they are to be made.
func Objects(j *batch.Job) ([]plugin.Object, error) {
	j = withDefaults(j)
	plugins, err := plugin.Of(j)
	if err != nil {
		return nil, err
	}
	var all []plugin.Object
	for _, p := range plugins {
		for _, o := range p.Objects() {
			if m, ok := o.Object.(metav1.Object); ok {
				m.SetOwnerReferences([]metav1.OwnerReference{ControllerRef(j)})
			}
			all = append(all, o)
		}
	}
	return all, nil
}
