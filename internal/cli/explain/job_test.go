// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/drover-dev/drover/internal/cli/explain"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }

func newJob(edit func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "u", CreationTimestamp: at(time.Minute)},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(6)),
			CompletionMode: new(batchv1.NonIndexedCompletion),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "u"}},
			Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.ControllerUidLabel: "u"}}},
		},
		Status: batchv1.JobStatus{StartTime: new(at(time.Minute)), Ready: new(int32(0))},
	}
	edit(j)
	return j
}

func newPod(j *batchv1.Job, name string, phase corev1.PodPhase, edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: name, UID: types.UID(name), CreationTimestamp: at(30 * time.Second), Labels: j.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))},
			Finalizers:      []string{batchv1.JobTrackingFinalizer},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	edit(p)
	return p
}

func ended(code int32, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Finalizers = nil
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: at(ago)},
		}}}
	}
}

func TestExplainSaysWhyAJobIsWhereItIs(t *testing.T) {
	retrying := newJob(func(j *batchv1.Job) { j.Status.Failed, j.Spec.ActiveDeadlineSeconds = 2, new(int64(600)) })
	waiting := newJob(func(j *batchv1.Job) { j.Status.Active = 1 })
	refused := newJob(func(*batchv1.Job) {})
	cases := map[string]struct {
		view explain.JobView
		want string
	}{
		"the next pod is in back-off": {
			explain.JobView{Job: retrying, Pods: []*corev1.Pod{
				newPod(retrying, "j-a", corev1.PodFailed, ended(1, 40*time.Second)), newPod(retrying, "j-b", corev1.PodFailed, ended(3, 5*time.Second)),
			}},
			`j is Retrying, begun at 2026-03-01T11:59:00Z (60s ago)
  done      0/1
  pods      0 active (0 ready), 0 succeeded, 2 failed
  failures  2; the Job fails with more than 6
  deadline  2026-03-01T12:09:00Z (in 9m)
  failed    pod j-b: container main ended with 3
  now       failures in a row: 2; the next pod starts in 15s
`,
		},
		"a pod finds no place": {
			explain.JobView{Job: waiting, Pods: []*corev1.Pod{newPod(waiting, "j-a", corev1.PodPending, func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient cpu."}}
			})}},
			`j is Running, begun at 2026-03-01T11:59:00Z (60s ago)
  done      0/1
  pods      1 active (0 ready), 0 succeeded, 0 failed
  failures  0; the Job fails with more than 6
  waiting   pod j-a: 0/1 nodes are available: 1 Insufficient cpu.
  now       pods that are active, of those wanted: 1 of 1
`,
		},
		"no pod can be made": {
			explain.JobView{Job: refused, Told: &corev1.Event{
				Reason: "FailedCreate", Message: "Error creating: exceeded quota: q", LastTimestamp: at(8 * time.Second),
			}},
			`j is Running, begun at 2026-03-01T11:59:00Z (60s ago)
  done      0/1
  pods      0 active (0 ready), 0 succeeded, 0 failed
  failures  0; the Job fails with more than 6
  warning   FailedCreate, 8s ago: Error creating: exceeded quota: q
  now       pods wanted beyond those that are active: 1
`,
		},
		"an index has failed": {
			explain.JobView{Job: newJob(func(j *batchv1.Job) {
				j.Spec.CompletionMode, j.Spec.Completions = new(batchv1.IndexedCompletion), new(int32(3))
				j.Spec.BackoffLimitPerIndex, j.Spec.MaxFailedIndexes = new(int32(1)), new(int32(2))
				j.Status.Failed, j.Status.FailedIndexes, j.Status.Succeeded, j.Status.CompletedIndexes = 2, new("1"), 2, "0,2"
				j.Status.Conditions = []batchv1.JobCondition{{
					Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "FailedIndexes", Message: "Job has failed indexes", LastTransitionTime: at(10 * time.Second),
				}}
			})},
			`j is Failed: FailedIndexes, since it ended at 2026-03-01T11:59:50Z (10s ago)
  because   Job has failed indexes
  done      2/3
  pods      0 active (0 ready), 2 succeeded, 2 failed
  failures  2; an index fails with more than 1, the Job with more than 2 failed indexes; failed indexes: 1
`,
		},
		"an init container cannot be made": {
			explain.JobView{Job: waiting, Pods: []*corev1.Pod{newPod(waiting, "j-a", corev1.PodPending, func(p *corev1.Pod) {
				p.Spec.NodeName = "n"
				stuck := func(reason, message string) []corev1.ContainerStatus {
					return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
				}
				p.Status.InitContainerStatuses, p.Status.ContainerStatuses = stuck("ErrImagePull", "no such image"), stuck("PodInitializing", "")
			})}},
			`j is Running, begun at 2026-03-01T11:59:00Z (60s ago)
  done      0/1
  pods      1 active (0 ready), 0 succeeded, 0 failed
  failures  0; the Job fails with more than 6
  waiting   pod j-a: ErrImagePull: no such image
  now       pods that are active, of those wanted: 1 of 1
`,
		},
		"it is marked for Drover": {
			explain.JobView{Job: newJob(func(j *batchv1.Job) { j.Spec.ManagedBy = new("drover.dev/job-controller") })},
			`j is Running, begun at 2026-03-01T11:59:00Z (60s ago)
  done      0/1
  pods      0 active (0 ready), 0 succeeded, 0 failed
  failures  0; the Job fails with more than 6
  now       pods wanted beyond those that are active: 1
`,
		},
		"somebody else manages it": {
			explain.JobView{Job: newJob(func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/queue") })},
			`j is Running, begun at 2026-03-01T11:59:00Z (60s ago)
  done      0/1
  pods      0 active (0 ready), 0 succeeded, 0 failed
  failures  0; the Job fails with more than 6
  now       it is managed by example.com/queue, which alone can say
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.view.Now = noon
			if diff := cmp.Diff(tc.want, explain.JobText(tc.view)); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExplainReadsWhatBelongsToTheJob(t *testing.T) {
	j := newJob(func(*batchv1.Job) {})
	own, foreign := newPod(j, "j-a", corev1.PodRunning, func(*corev1.Pod) {}), newPod(j, "x", corev1.PodRunning, func(p *corev1.Pod) { p.OwnerReferences = nil })
	told := func(name, eventType string, ago time.Duration) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Type: eventType, InvolvedObject: corev1.ObjectReference{UID: j.UID}, LastTimestamp: at(ago)}
	}
	client := fake.NewClientset(j, own, foreign, told("old", corev1.EventTypeWarning, 9*time.Second), told("new", corev1.EventTypeWarning, 3*time.Second), told("newest", corev1.EventTypeNormal, time.Second))
	v, err := explain.ObserveJob(t.Context(), client, "ns", "j", noon)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Pods) != 1 || v.Pods[0].Name != "j-a" || v.Told == nil || v.Told.Name != "new" {
		t.Errorf("pods %d, told %v", len(v.Pods), v.Told)
	}
	if _, err := explain.ObserveJob(t.Context(), client, "ns", "other", noon); err == nil {
		t.Error("a Job that is not there is explained")
	}
}
