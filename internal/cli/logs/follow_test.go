// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
)

// scene is something that happens while logs are followed.
type scene func(t *testing.T, b *Bench)

func jobBecomes(job *batchv1.Job) scene {
	return func(t *testing.T, b *Bench) {
		if _, err := b.Client.BatchV1().Jobs(Namespace).Update(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Errorf("updating job %q: %v", job.Name, err)
		}
	}
}

func podBecomes(pod *corev1.Pod) scene {
	return func(t *testing.T, b *Bench) {
		pods := b.Client.CoreV1().Pods(Namespace)
		_, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = pods.Create(t.Context(), pod, metav1.CreateOptions{})
		}
		if err != nil {
			t.Errorf("writing pod %q: %v", pod.Name, err)
		}
	}
}

func podVanishes(name string) scene {
	return func(t *testing.T, b *Bench) {
		if err := b.Client.CoreV1().Pods(Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting pod %q: %v", name, err)
		}
	}
}

func jobVanishes(name string) scene {
	return func(t *testing.T, b *Bench) {
		if err := b.Client.BatchV1().Jobs(Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting job %q: %v", name, err)
		}
	}
}

func passes(d time.Duration) scene { return func(*testing.T, *Bench) { time.Sleep(d) } }

// printed returns lines as a log has them, one a second from the given second after Epoch.
func printed(from int, lines ...string) string {
	text := ""
	for i, line := range lines {
		text += Epoch.Add(time.Duration(from+i)*time.Second).Format(time.RFC3339Nano) + " " + line + "\n"
	}
	return text
}

// forEver keeps a log open until its reader gives up.
func forEver(ctx context.Context) { <-ctx.Done() }

// lasts keeps a log open for a while.
func lasts(d time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}

func TestFollow(t *testing.T) {
	single, indexed := Job("pi", Running(1, 0, 0)), Job("render", Wanting(2, 2), Indexed(), Running(2, 0, 0))
	onFailure := Job("again", Running(1, 0, 0), func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure })
	done := func(j *batchv1.Job) scene {
		return jobBecomes(Job(j.Name, Wanting(*j.Spec.Completions, 1), Complete(time.Minute)))
	}
	cases := map[string]struct {
		world  []runtime.Object
		logs   map[string][]answer
		args   []string
		scenes []scene
		out    string
		err    string
		code   command.ExitCode
		asks   []string
	}{
		"pods that appear later are followed too, interleaved by line": {
			world: []runtime.Object{indexed},
			logs: map[string][]answer{
				"render-0/main": {{text: printed(1, "a0"), till: lasts(3 * time.Second)}},
				"render-1/main": {{text: printed(2, "b0", "b1")}},
			},
			args: []string{"render"},
			scenes: []scene{
				podBecomes(Pod(indexed, "render-0", Index(0))),
				podBecomes(Pod(indexed, "render-0", Index(0), Started(0))),
				podBecomes(Pod(indexed, "render-1", Index(1), Ended(0))),
				podBecomes(Pod(indexed, "render-0", Index(0), Ended(0))),
				done(indexed),
			},
			out: "[0] a0\n[1] b0\n[1] b1\n", asks: []string{"render-0/main follow", "render-1/main follow"},
		},
		"only the index asked for": {
			world: []runtime.Object{indexed, Pod(indexed, "render-0", Index(0), Ended(0)), Pod(indexed, "render-1", Index(1), Ended(0))},
			logs:  map[string][]answer{"render-1/main": {{text: printed(1, "b0")}}},
			args:  []string{"render", "--index", "1"}, scenes: []scene{done(indexed)},
			out: "[1] b0\n", asks: []string{"render-1/main follow"},
		},
		"times are shown if asked for": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(0))},
			logs:  map[string][]answer{"pi-1/main": {{text: printed(1, "3.14")}}},
			args:  []string{"pi", "--timestamps", "--tail", "7"}, scenes: []scene{done(single)},
			out: "2000-01-01T00:00:01Z 3.14\n", asks: []string{"pi-1/main follow tail=7"},
		},
		"a restart is followed": {
			world: []runtime.Object{onFailure, Pod(onFailure, "again-1", Started(0))},
			logs: map[string][]answer{
				"again-1/main": {{text: printed(1, "first try"), till: lasts(time.Second)}, {text: printed(5, "second try")}},
			},
			args: []string{"again"},
			scenes: []scene{
				passes(2 * time.Second),
				podBecomes(Pod(onFailure, "again-1", Started(1))),
				podBecomes(Pod(onFailure, "again-1", Started(1), Ended(0))),
				done(onFailure),
			},
			out: "first try\nsecond try\n", asks: []string{"again-1/main follow", "again-1/main follow"},
		},
		"a run that was missed is shown as the one before": {
			world: []runtime.Object{onFailure, Pod(onFailure, "again-1", Started(0))},
			logs: map[string][]answer{
				"again-1/main":          {{text: printed(1, "run 0")}, {text: printed(7, "run 2")}},
				"again-1/main previous": {{text: printed(4, "run 1")}},
			},
			args: []string{"again"},
			scenes: []scene{
				podBecomes(Pod(onFailure, "again-1", Started(2))),
				podBecomes(Pod(onFailure, "again-1", Started(2), Ended(0))),
				done(onFailure),
			},
			out:  "run 0\nrun 1\nrun 2\n",
			asks: []string{"again-1/main follow", "again-1/main previous", "again-1/main follow"},
		},
		"earlier runs are shown if everything is asked for": {
			world: []runtime.Object{onFailure, Pod(onFailure, "again-1", Started(3), Ended(0))},
			logs: map[string][]answer{
				"again-1/main":          {{text: printed(9, "run 3")}},
				"again-1/main previous": {{text: printed(7, "run 2")}},
			},
			args: []string{"again", "--all"}, scenes: []scene{done(onFailure)},
			out: "run 2\nrun 3\n", asks: []string{"again-1/main previous", "again-1/main follow"},
		},
		"a log that breaks off is taken up after the last line": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0))},
			logs: map[string][]answer{"pi-1/main": {
				{text: printed(1, "a", "b") + "2000-01-01T00:00:02Z same time\n", then: errors.New("connection reset")},
				{err: errors.New("connection refused")},
				{text: printed(2, "b") + "2000-01-01T00:00:02Z same time\n2000-01-01T00:00:02Z third\n" + printed(3, "c")},
			}},
			args: []string{"pi", "--tail=9"},
			scenes: []scene{
				passes(4 * time.Second),
				podBecomes(Pod(single, "pi-1", Ended(0))), done(single),
			},
			out:  "a\nb\nsame time\nthird\nc\n",
			asks: []string{"pi-1/main follow tail=9", "pi-1/main follow since=00:00:02", "pi-1/main follow since=00:00:02", "pi-1/main follow since=00:00:03"},
		},
		"an end that comes before its time is none": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0))},
			logs: map[string][]answer{"pi-1/main": {
				{text: printed(1, "a")},
				{text: printed(1, "a", "b"), till: lasts(10 * time.Second)},
			}},
			args: []string{"pi"},
			scenes: []scene{
				passes(5 * time.Second),
				podBecomes(Pod(single, "pi-1", Ended(0))), done(single),
			},
			out: "a\nb\n", asks: []string{"pi-1/main follow", "pi-1/main follow since=00:00:01"},
		},
		"a log that is not there yet is asked for again": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0))},
			logs: map[string][]answer{"pi-1/main": {
				{err: apierrors.NewBadRequest("container is waiting to start")},
				{text: printed(1, "a")},
			}},
			args: []string{"pi"},
			scenes: []scene{
				passes(time.Second),
				podBecomes(Pod(single, "pi-1", Ended(0))), done(single),
			},
			out: "a\n", asks: []string{"pi-1/main follow", "pi-1/main follow"},
		},
		"a log that can never be had is an error in the end": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(0))},
			logs:  map[string][]answer{"pi-1/main": {{err: errors.New("disk on fire")}}},
			args:  []string{"pi"}, scenes: []scene{done(single)},
			err: "waiting for job.batch/pi (Complete, 1/1 done), 2s so far\n" +
				"Error: following the logs of job.batch/pi in namespace \"default\": container \"main\" of pod \"pi-1\": disk on fire\n", code: command.ExitFailed,
			asks: []string{"pi-1/main follow", "pi-1/main follow", "pi-1/main follow", "pi-1/main follow", "pi-1/main follow"},
		},
		"a log that one may not read is an error at once": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0))},
			logs:  map[string][]answer{"pi-1/main": {{err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, "pi-1", errors.New("no"))}}},
			args:  []string{"pi"}, scenes: []scene{done(single)},
			err: "Error: following the logs of job.batch/pi in namespace \"default\": container \"main\" of pod \"pi-1\": pods/log \"pi-1\" is forbidden: no\n" +
				"Try: drover kubectl auth can-i --list   shows what you may do in the namespace\n", code: command.ExitFailed,
			asks: []string{"pi-1/main follow"},
		},
		"a pod that is deleted takes its log with it": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0))},
			logs: map[string][]answer{"pi-1/main": {
				{text: printed(1, "a"), till: lasts(time.Second), then: errors.New("gone")},
				{err: apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "pi-1")},
			}},
			args: []string{"pi"}, scenes: []scene{podVanishes("pi-1"), passes(2 * time.Second), done(single)},
			out: "a\n", asks: []string{"pi-1/main follow", "pi-1/main follow since=00:00:01"},
		},
		"a log whose node is lost does not keep the command from ending": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0))},
			logs:  map[string][]answer{"pi-1/main": {{text: printed(1, "a"), till: forEver}}},
			args:  []string{"pi"}, scenes: []scene{done(single)},
			out: "a\n", asks: []string{"pi-1/main follow"},
		},
		"only what failed, once it has failed": {
			world: []runtime.Object{onFailure, Pod(onFailure, "again-1", Started(0))},
			logs: map[string][]answer{
				"again-1/main previous": {{text: printed(1, "oops")}},
			},
			args: []string{"again", "--failed"},
			scenes: []scene{
				podBecomes(Pod(onFailure, "again-1", Started(1))),
				podBecomes(Pod(onFailure, "again-1", Started(1), Ended(0))),
				done(onFailure),
			},
			out: "oops\n", asks: []string{"again-1/main previous"},
		},
		"a failed pod": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0)), Pod(single, "pi-2", Started(0))},
			logs:  map[string][]answer{"pi-1/main": {{text: printed(1, "oops")}}},
			args:  []string{"pi", "--failed"},
			scenes: []scene{
				podBecomes(Pod(single, "pi-1", Ended(1))), podBecomes(Pod(single, "pi-2", Ended(0))), done(single),
			},
			out: "oops\n", asks: []string{"pi-1/main follow"},
		},
		"a Job that is deleted": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(0))},
			logs: map[string][]answer{"pi-1/main": {
				{text: printed(1, "a"), till: lasts(time.Second), then: errors.New("gone")},
				{err: apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "pi-1")},
			}},
			args: []string{"pi"}, scenes: []scene{jobVanishes("pi"), podVanishes("pi-1")},
			out: "a\n", err: "job.batch/pi was deleted.\n", asks: []string{"pi-1/main follow", "pi-1/main follow since=00:00:01"},
		},
		"a suspended Job may go on": {
			world: []runtime.Object{Job("pi", Suspended())}, args: []string{"pi"},
			scenes: []scene{jobBecomes(Job("pi", Running(1, 0, 0))), jobBecomes(Job("pi", Complete(time.Minute)))},
			err:    "job.batch/pi is suspended. Try: drover resume pi\n",
		},
		"while there is nothing to show, progress is told": {
			world: []runtime.Object{single, Pod(single, "pi-1")},
			logs:  map[string][]answer{"pi-1/main": {{text: printed(1, "a")}}},
			args:  []string{"pi"},
			scenes: []scene{
				passes(3 * time.Second), podBecomes(Pod(single, "pi-1", Ended(0))), passes(time.Minute), done(single),
			},
			out: "a\n", err: "waiting for job.batch/pi (Running, 0/1 done), 2s so far\n", asks: []string{"pi-1/main follow"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bench := New(tc.world...)
				o, err := parse(bench, append(tc.args, "-f")...)
				if err != nil {
					t.Fatalf("parsing: %v", err)
				}
				n := &node{logs: tc.logs}
				o.Open = n.open
				ended := make(chan error)
				go func() { ended <- Run(t.Context(), o) }()
				for _, happen := range tc.scenes {
					synctest.Wait()
					happen(t, bench)
				}
				want := fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", tc.out, tc.err, tc.code)
				if diff := cmp.Diff(want, bench.Transcript(<-ended)); diff != "" {
					t.Errorf("transcript (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.asks, n.requests(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestFollowShowsAPodOfWhichTheWatchHasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := Job("pi", Running(1, 0, 0))
		bench := New(job)
		bench.Client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, watch.NewFake(), nil
		})
		o, err := parse(bench, "pi", "-f")
		if err != nil {
			t.Fatalf("parsing: %v", err)
		}
		o.Open = (&node{logs: map[string][]answer{"pi-1/main": {{text: printed(1, "3.14")}}}}).open
		ended := make(chan error)
		go func() { ended <- Run(t.Context(), o) }()
		synctest.Wait()
		podBecomes(Pod(job, "pi-1", Ended(0)))(t, bench)
		jobBecomes(Job("pi", Complete(time.Minute)))(t, bench)
		if err := <-ended; err != nil || bench.Out.String() != "3.14\n" {
			t.Errorf("printed %q, error %v; want 3.14 and none", bench.Out, err)
		}
	})
}

func TestFollowIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := Job("pi", Running(1, 0, 0))
		bench := New(job, Pod(job, "pi-1", Started(0)))
		o, err := parse(bench, "pi", "-f")
		if err != nil {
			t.Fatalf("parsing: %v", err)
		}
		o.Open = (&node{logs: map[string][]answer{"pi-1/main": {{text: printed(1, "3"), till: forEver}}}}).open
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- Run(ctx, o) }()
		synctest.Wait()
		interrupt()
		want := fmt.Sprintf("-- standard output --\n3\n-- standard error --\n-- exit code %d --\n", command.ExitInterrupted)
		if diff := cmp.Diff(want, bench.Transcript(<-ended)); diff != "" {
			t.Errorf("transcript (-want +got):\n%s", diff)
		}
	})
}

func TestFollowEndsWhenNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := Job("pi", Running(1, 0, 0))
		bench := New(job, Pod(job, "pi-1", Started(0)))
		bench.Streams.Out = broken{}
		o, err := parse(bench, "pi", "-f")
		if err != nil {
			t.Fatalf("parsing: %v", err)
		}
		o.Open = (&node{logs: map[string][]answer{"pi-1/main": {{text: printed(1, "3"), till: forEver}}}}).open
		if err := Run(t.Context(), o); !errors.Is(err, errOutput) {
			t.Errorf("error %v, want that of writing", err)
		}
	})
}

func TestPositionOf(t *testing.T) {
	job := Job("x")
	waiting := func(restarts int32, last *corev1.ContainerStateTerminated) PodOption {
		return func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "main", RestartCount: restarts,
				State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: last},
			}}
		}
	}
	cases := map[string]struct {
		pod   *corev1.Pod
		final bool
		want  position
	}{
		"nothing is known yet":                    {Pod(job, "x"), false, position{run: -1}},
		"nothing is known and nothing will be":    {Pod(job, "x"), true, position{run: -1, final: true}},
		"it is being made":                        {Pod(job, "x", waiting(0, nil)), false, position{run: -1}},
		"it runs":                                 {Pod(job, "x", Started(0)), false, position{run: 0}},
		"it runs again":                           {Pod(job, "x", Started(2)), false, position{run: 2}},
		"it has ended well":                       {Pod(job, "x", Ended(0)), false, position{run: 0, ended: true, final: true}},
		"it has failed":                           {Pod(job, "x", Ended(3)), false, position{run: 0, ended: true, failed: true, final: true}},
		"it waits to be started again":            {Pod(job, "x", waiting(1, &corev1.ContainerStateTerminated{ExitCode: 1})), false, position{run: 1, ended: true, failed: true}},
		"it runs by its status, but the pod went": {Pod(job, "x", Started(0)), true, position{run: 0, ended: true, final: true, lost: true}},
		"the pod failed around it": {Pod(job, "x", Started(0), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), false, position{
			run: 0, ended: true, failed: true, final: true, lost: true,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, positionOf(tc.pod, "main", tc.final), cmp.AllowUnexported(position{})); diff != "" {
				t.Errorf("position (-want +got):\n%s", diff)
			}
		})
	}
}
