// SPDX-License-Identifier: Apache-2.0

package vcjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/vcjob/plugin"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

// turn is one decision in the making.
type turn struct {
	o      Observed
	job    *batch.Job // with defaults
	spec   *batch.JobSpec
	stored *batch.JobStatus
	status *batch.JobStatus // the next one
	tasks  []taskView
	plan   Plan
}

// taskView is a task and its pods.
type taskView struct {
	spec *batch.TaskSpec
	at   []*podView // by index; nil: there is none
	all  []*podView // with those beyond replicas
}

// podView is a pod, read once.
type podView struct {
	pod     *corev1.Pod
	task    int
	index   int
	version int32
	going   bool // it has a deletion timestamp
	marked  bool // we are about to delete it
}

func (p *podView) finished() bool { return podstate.IsFinished(p.pod) }
func (p *podView) key() PodKey    { return PodKey{Name: p.pod.Name, UID: p.pod.UID} }

func newTurn(o Observed) *turn {
	t := &turn{o: o, job: withDefaults(o.Job), stored: &o.Job.Status}
	t.spec = &t.job.Spec
	t.status = t.stored.DeepCopy()
	t.readPods()
	return t
}

// readPods sorts the pods by task and index. Pods whose labels say neither are left out.
func (t *turn) readPods() {
	t.tasks = make([]taskView, len(t.spec.Tasks))
	position := make(map[string]int, len(t.tasks))
	room := int32(MaxPods) // also where admission was not asked
	for i := range t.tasks {
		task := &t.spec.Tasks[i]
		n := min(max(task.Replicas, 0), room)
		room -= n
		t.tasks[i] = taskView{spec: task, at: make([]*podView, n)}
		position[task.Name] = i
	}
	views := make([]podView, len(t.o.Pods))
	for n, p := range t.o.Pods {
		task, ok := position[p.Labels[batch.TaskKey]]
		index, err := strconv.Atoi(p.Labels[batch.IndexKey])
		if !ok || err != nil || index < 0 {
			t.because("pod %s belongs to no task", p.Name)
			continue
		}
		version, _ := strconv.ParseInt(p.Annotations[batch.VersionKey], 10, 32) // what is no number is old
		_, marked := p.Annotations[batch.OutOfSyncKey]
		v := &views[n]
		*v = podView{pod: p, task: task, index: index, version: int32(version), going: p.DeletionTimestamp != nil, marked: marked}
		tv := &t.tasks[task]
		tv.all = append(tv.all, v)
		if index < len(tv.at) {
			tv.at[index] = v
		}
	}
	for i := range t.tasks {
		slices.SortFunc(t.tasks[i].all, func(a, b *podView) int { return a.index - b.index })
	}
}

// eachPod calls f for every pod in the order of tasks and indexes.
func (t *turn) eachPod(f func(p *podView)) {
	for i := range t.tasks {
		for _, p := range t.tasks[i].all {
			f(p)
		}
	}
}

func (t *turn) because(format string, args ...any) {
	t.plan.Because = append(t.plan.Because, fmt.Sprintf(format, args...))
}

func (t *turn) event(eventType, reason, format string, args ...any) {
	t.plan.Events = append(t.plan.Events, Event{Type: eventType, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// wake asks for another look after d at the latest.
func (t *turn) wake(d time.Duration) {
	if d = max(d, time.Millisecond); t.plan.After == 0 || d < t.plan.After {
		t.plan.After = d
	}
}

func (t *turn) phase() batch.JobPhase { return t.status.State.Phase }

func (t *turn) maxRetry() int32 { return t.spec.MaxRetry }

// goesOn reports whether a phase is one in which pods are made.
func goesOn(phase batch.JobPhase) bool {
	return phase == batch.Pending || phase == batch.Running || phase == batch.Restarting
}

// IsFinal reports whether a phase is never left.
func IsFinal(phase batch.JobPhase) bool {
	return phase == batch.Completed || phase == batch.Terminated || phase == batch.Failed
}

// to makes phase the next one and says why. The status is stored before anything follows from it.
func (t *turn) to(phase batch.JobPhase, reason, format string, args ...any) {
	s := t.status
	if s.State.Phase != phase {
		t.enter(phase, t.o.Now)
	}
	s.State.Reason, s.State.Message = reason, fmt.Sprintf(format, args...)
	s.RunningDuration = nil
	if phase != batch.Pending && phase != batch.Running {
		s.RunningDuration = &metav1.Duration{Duration: max(0, t.o.Now.Truncate(time.Second).Sub(t.job.CreationTimestamp.Time))}
	}
	t.recount()
	t.plan.Now = true
	t.because("%s: %s", phase, s.State.Message)
}

// enter notes that the Job has come to phase at that time.
func (t *turn) enter(phase batch.JobPhase, at time.Time) {
	s, since := t.status, metav1.NewTime(at.Truncate(time.Second))
	s.State.Phase, s.State.LastTransitionTime = phase, since
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c batch.JobCondition) bool { return c.Status == phase })
	s.Conditions = append(s.Conditions, batch.JobCondition{Status: phase, LastTransitionTime: &since})
}

// cameFrom returns the phase before the present one; "": there was none.
func (t *turn) cameFrom() batch.JobPhase {
	if n := len(t.status.Conditions); n >= 2 {
		return t.status.Conditions[n-2].Status
	}
	return ""
}

// isVictim reports whether p is to go, by the next status.
func (t *turn) isVictim(p *podView) bool {
	switch {
	case p.marked:
		return true
	case t.phase() == batch.Restarting:
		return p.version < t.status.Version && (!p.finished() || !t.retainsEnded())
	case goesOn(t.phase()), t.phase() == "":
		return p.index >= len(t.tasks[p.task].at) // surplus
	}
	return !p.finished()
}

// retainsEnded reports whether pods that have ended stay when all pods go for a restart: after a resume, when they are reused, and
// with the last retry, when they are kept for people to look at.
func (t *turn) retainsEnded() bool {
	from := t.cameFrom()
	return from == batch.Aborted || from == batch.Aborting || t.status.RetryCount >= t.maxRetry()
}

// recount sets the numbers of pods. A pod that is to go counts as terminating from the moment of that decision, so that a phase
// which ends pods is never seen without them.
func (t *turn) recount() {
	s := t.status
	s.Pending, s.Running, s.Succeeded, s.Failed, s.Terminating, s.Unknown = 0, 0, 0, 0, 0, 0
	s.TaskStatusCount = nil
	t.eachPod(func(p *podView) {
		if p.going || t.isVictim(p) {
			s.Terminating++
			return
		}
		phase := p.pod.Status.Phase
		switch phase {
		case corev1.PodRunning:
			s.Running++
		case corev1.PodSucceeded:
			s.Succeeded++
		case corev1.PodFailed:
			s.Failed++
		case corev1.PodPending, "":
			phase = corev1.PodPending
			s.Pending++
		default:
			s.Unknown++
		}
		name := t.tasks[p.task].spec.Name
		count := s.TaskStatusCount[name]
		if count.Phase == nil {
			count.Phase = map[corev1.PodPhase]int32{}
			if s.TaskStatusCount == nil {
				s.TaskStatusCount = map[string]batch.TaskState{}
			}
			s.TaskStatusCount[name] = count
		}
		count.Phase[phase]++
	})
	if goesOn(t.phase()) {
		s.MinAvailable = t.spec.MinAvailable
	}
}

// succeeded returns how many pods of a task have succeeded.
func (t *turn) succeeded(task string) int32 {
	return t.status.TaskStatusCount[task].Phase[corev1.PodSucceeded]
}

// waitingReasons are the reasons of a phase that say what is waited for. They go when it is there.
var waitingReasons = []string{
	"PodGroupPending", "QueueNotFound", "QueueClosed", "Unschedulable", "DependsOn", "NameTaken", "QuotaExceeded", ReasonFailedCreate, ReasonPluginError, ReasonPVCError, ReasonPodGroupError,
}

// waits says what a phase waits for.
func (t *turn) waits(reason, format string, args ...any) {
	t.status.State.Reason, t.status.State.Message = reason, fmt.Sprintf(format, args...)
	t.because("waits: %s", t.status.State.Message)
}

// clearWait takes back what an earlier decision has said to be waited for.
func (t *turn) clearWait() {
	if slices.Contains(waitingReasons, t.status.State.Reason) {
		t.status.State.Reason, t.status.State.Message = "", ""
	}
}

// finish turns what was decided into a plan.
func (t *turn) finish() Plan {
	if t.plan.Now || !equality.Semantic.DeepEqual(t.stored, t.status) {
		t.plan.Status = t.status
	}
	slices.SortStableFunc(t.plan.Delayed, func(a, b Delayed) int { return a.Due.Compare(b.Due) })
	return t.plan
}

// resources returns the entries that status.controlledResources is to have while the Job goes on.
func (t *turn) resources(plugins []plugin.Named) map[string]string {
	entries := map[string]string{}
	for _, p := range plugins {
		if p.Tracked {
			entries["plugin-"+p.Name] = p.Name
		}
	}
	for i := range t.spec.Volumes {
		claim := t.spec.Volumes[i].VolumeClaimName
		if claim == "" {
			claim = claimName(t.job, i)
		}
		entries["volume-pvc-"+claim] = claim
	}
	return entries
}

// track notes what goes with the Job before it is made, so that it is found again.
func (t *turn) track(plugins []plugin.Named) {
	for key, value := range t.resources(plugins) {
		if t.status.ControlledResources[key] != value {
			if t.status.ControlledResources == nil {
				t.status.ControlledResources = map[string]string{}
			}
			t.status.ControlledResources[key] = value
			t.plan.Now = true
		}
	}
}

// hasObjects reports whether the status says that objects of plugins are there.
func (t *turn) hasObjects() bool {
	for key := range t.status.ControlledResources {
		if strings.HasPrefix(key, "plugin-") {
			return true
		}
	}
	return false
}

// dropObjects has the objects of the plugins deleted. It reports whether they are gone.
func (t *turn) dropObjects() (gone bool) {
	if !t.hasObjects() {
		return true
	}
	if !t.o.Dropped && t.wantsObjects() {
		t.plan.DropObjects = true
		return false
	}
	for key := range t.status.ControlledResources {
		if strings.HasPrefix(key, "plugin-") {
			delete(t.status.ControlledResources, key)
		}
	}
	return true
}

// wantsObjects reports whether any plugin has objects at all.
func (t *turn) wantsObjects() bool {
	plugins, err := plugin.Of(t.job)
	return err == nil && slices.ContainsFunc(plugins, func(p plugin.Named) bool { return len(p.Objects()) > 0 })
}

// Finished returns when j has ended, as far as its time to live is concerned, and whether it has.
//
// Differs: an Aborted Job has ended as well, until it is resumed; in Volcano it stays for ever.
func Finished(j *batch.Job) (at time.Time, ended bool) {
	s := &j.Status.State
	return s.LastTransitionTime.Time, (IsFinal(s.Phase) || s.Phase == batch.Aborted) && !s.LastTransitionTime.IsZero()
}

// Expiry returns when j is to be deleted, and whether it ever is.
func Expiry(j *batch.Job) (at time.Time, limited bool) {
	ended, ok := Finished(j)
	if !ok || j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	return ended.Add(time.Duration(ptr.Deref(j.Spec.TTLSecondsAfterFinished, 0)) * time.Second), true
}
