// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/testkit/plane"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
)

var volcanoKillsFlag = flag.Int("volcano-kills", 50, "how often the crash test of Volcano's Jobs kills the whole process")

// volcanoStory is a set of Jobs whose end does not depend on chance. Each pod notes its own beginning: index, version of its Job, UID.
const volcanoStory = `
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: whole-N}, spec: {
  maxRetry: 3, policies: [{event: PodFailed, action: RestartJob}],
  tasks: [{name: t, replicas: 2, template: POD(case $I in 1) sleep 1; exit 1;; *) sleep 1000;; esac)}]}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: task-N}, spec: {
  maxRetry: 5, policies: [{event: PodFailed, action: RestartTask}],
  tasks: [{name: t, replicas: 2, template: POD(sleep 1; test $I = 1 || test -e /marks/once-task-N || { touch /marks/once-task-N; exit 1; })}]}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: pod-N}, spec: {
  maxRetry: 5, policies: [{event: PodFailed, action: RestartPod}], plugins: {svc: []},
  tasks: [{name: t, replicas: 2, template: POD(sleep 1; test $I = 1 || test -e /marks/once-pod-N || { touch /marks/once-pod-N; exit 1; })}]}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: abort-N}, spec: {
  policies: [{event: PodFailed, action: AbortJob}],
  tasks: [{name: t, replicas: 2, template: POD(case $I in 1) sleep 1; exit 1;; *) sleep 1000;; esac)}]}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: late-N}, spec: {
  policies: [{event: PodFailed, action: TerminateJob, timeout: 3s}],
  tasks: [{name: t, replicas: 2, template: POD(case $I in 1) exit 1;; *) sleep 1000;; esac)}]}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: resumed-N}, spec: {
  tasks: [{name: t, replicas: 1, template: POD(sleep 1.5)}]}}
`

// volcanoPod stands for POD(...) in a story.
const volcanoPod = `{spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, volumes: [{name: m, hostPath: {path: MARKS, type: Directory}}],
  containers: [{name: c, image: busybox, volumeMounts: [{name: m, mountPath: /marks}], command: [sh, -c, "echo $I $V $U >> /marks/JOB; SCRIPT"], env: [
    {name: I, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['volcano.sh/task-index']"}}},
    {name: V, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['volcano.sh/job-version']"}}},
    {name: U, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]}]}}`

// volcanoEnds is how each Job ends.
var volcanoEnds = map[string]string{
	"whole": "Failed retries=3 failed=1", "task": "Completed retries=1 succeeded=2", "pod": "Completed retries=1 succeeded=2",
	"abort": "Aborted failed=1", "late": "Terminated failed=1", "resumed": "Completed retries=1 succeeded=1",
}

// TestVolcanoJobsEndTheSameWhenEverythingIsKilledAtAnyMoment kills the whole of drover again and again, while Jobs restart as a whole,
// by task and by pod, are aborted, terminated after a delay, and suspended and resumed by Commands. Each must end as it does without.
func TestVolcanoJobsEndTheSameWhenEverythingIsKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	s := &volcanoCrash{t: t, story: volcanoStory, ends: volcanoEnds, marks: t.TempDir(), resumed: map[string]bool{}}
	options := plane.Options{Dir: filepath.Join(t.TempDir(), "plane"), Durable: true}
	s.on(plane.Start(t, options))
	for kills := 0; kills < *volcanoKillsFlag; kills++ {
		if kills >= 5*s.sets { // so that there are always some under way
			s.submit()
		}
		pass(t, time.Duration(rng.IntN(1000))*time.Millisecond)
		s.resume()
		pass(t, time.Duration(rng.IntN(300))*time.Millisecond)
		s.p.Kill()
		if kills+1 < *volcanoKillsFlag && rng.IntN(2) == 0 {
			kills++
			p := plane.Launch(t, options) // killed while it starts
			pass(t, time.Duration(rng.IntN(2000))*time.Millisecond)
			p.Kill()
		}
		s.on(plane.Start(t, options))
	}
	s.awaitEnd()
	s.checkEnd()
	if err := s.p.Stop(); err != nil {
		t.Errorf("stopping: %v\n%s", err, s.p.Output())
	}
	checkNothingIsLeft(t, options.Dir)
}

// volcanoCrash is one such history.
type volcanoCrash struct {
	t       *testing.T
	p       *plane.Plane
	vc      *client.Client
	story   string            // of each set of Jobs
	ends    map[string]string // how each Job of a set ends
	marks   string
	sets    int
	resumed map[string]bool
}

func (s *volcanoCrash) on(p *plane.Plane) {
	s.t.Helper()
	vc, err := client.New(p.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.p, s.vc = p, vc
}

// submit adds one more set of Jobs. One of them is suspended at once.
func (s *volcanoCrash) submit() {
	s.t.Helper()
	for _, text := range strings.Split(strings.ReplaceAll(s.story, "-N", fmt.Sprintf("-%d", s.sets)), "---\n") {
		before, rest, _ := strings.Cut(text, "POD(")
		end := strings.LastIndex(rest, ")}]}}")
		j := &batch.Job{}
		pod := strings.NewReplacer("MARKS", s.marks, "SCRIPT", rest[:end]).Replace(volcanoPod)
		text = before + pod + rest[end+1:]
		name := strings.Fields(strings.SplitAfter(text, "metadata: {name: ")[1])[0]
		name = strings.TrimSuffix(name, "},")
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "JOB", name)), j); err != nil {
			s.t.Fatal(err)
		}
		s.insist(func() error {
			made, err := s.vc.Jobs("default").Create(s.t.Context(), j, metav1.CreateOptions{})
			if err == nil {
				j = made
			}
			return err
		})
		if strings.HasPrefix(name, "resumed-") {
			s.command(j, batch.AbortJobAction)
		}
	}
	s.sets++
}

func (s *volcanoCrash) command(j *batch.Job, action batch.Action) {
	s.t.Helper()
	target := *metav1.NewControllerRef(j, batch.GroupVersion.WithKind("Job"))
	s.insist(func() error {
		_, err := s.vc.Commands(j.Namespace).Create(s.t.Context(), &bus.Command{
			TypeMeta:   metav1.TypeMeta{APIVersion: bus.GroupVersion.String(), Kind: "Command"},
			ObjectMeta: metav1.ObjectMeta{GenerateName: strings.ToLower(j.Name + "-" + string(action) + "-"), OwnerReferences: []metav1.OwnerReference{target}},
			Action:     string(action), TargetObject: &target,
		}, metav1.CreateOptions{})
		return err
	})
}

// resume has the Jobs go on that were suspended, each once.
func (s *volcanoCrash) resume() {
	s.t.Helper()
	for _, j := range s.jobs() {
		if strings.HasPrefix(j.Name, "resumed-") && j.Status.State.Phase == batch.Aborted && !s.resumed[j.Name] {
			s.resumed[j.Name] = true
			s.command(&j, batch.ResumeJobAction)
		}
	}
}

func (s *volcanoCrash) jobs() []batch.Job {
	s.t.Helper()
	var list *batch.JobList
	s.insist(func() (err error) {
		list, err = s.vc.Jobs("default").List(s.t.Context(), metav1.ListOptions{})
		return err
	})
	return list.Items
}

// insist asks until it is answered: a plane that has just begun serves Volcano's kinds and their webhooks a moment later.
func (s *volcanoCrash) insist(ask func() error) {
	s.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = ask()
		return last == nil, nil
	})
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", err, last, s.p.Output())
	}
}

// awaitEnd waits until every Job has come to where it stays.
func (s *volcanoCrash) awaitEnd() {
	s.t.Helper()
	var jobs []batch.Job
	err := wait.PollUntilContextTimeout(s.t.Context(), 200*time.Millisecond, 90*time.Second, true, func(context.Context) (bool, error) {
		s.resume()
		jobs = s.jobs()
		return len(jobs) == s.sets*len(s.ends) && !slices.ContainsFunc(jobs, goesOn), nil
	})
	if err == nil {
		return
	}
	for _, j := range jobs {
		if goesOn(j) {
			s.t.Errorf("Job %s is %s (%s: %s)", j.Name, volcanoLine(&j), j.Status.State.Reason, j.Status.State.Message)
			s.tellPods(j.Name)
		}
	}
	s.t.Fatalf("the Jobs do not end\n%s", s.p.Output())
}

// goesOn reports whether a Job of the story has not ended yet.
func goesOn(j batch.Job) bool {
	switch j.Status.State.Phase {
	case batch.Completed, batch.Failed, batch.Terminated:
		return j.Status.Terminating > 0 // of a Job that has failed, some pods end later
	case batch.Aborted:
		return strings.HasPrefix(j.Name, "resumed-")
	default:
		return true
	}
}

// tellPods tells how the pods of a Job are doing.
func (s *volcanoCrash) tellPods(job string) {
	s.t.Helper()
	pods, err := s.p.Client().CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{LabelSelector: batch.JobNameKey + "=" + job})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range pods.Items {
		s.t.Logf("pod %s, made %v, deleted %v, on %q, %v: %+v", p.Name, p.CreationTimestamp, p.DeletionTimestamp, p.Spec.NodeName, p.Annotations, p.Status)
	}
}

func (s *volcanoCrash) checkEnd() {
	s.t.Helper()
	for _, j := range s.jobs() {
		kind, _, _ := strings.Cut(j.Name, "-")
		if got := volcanoLine(&j); got != s.ends[kind] {
			s.t.Errorf("Job %s has ended as %s, want %s\n%s", j.Name, got, s.ends[kind], j.Status.State.Message)
		}
		s.checkRuns(j.Name, kind)
	}
	pods, err := s.p.Client().CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	ended := map[string]int{}
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			s.t.Errorf("pod %s is still %s", p.Name, p.Status.Phase)
		}
		ended[p.Labels[batch.JobNameKey]]++
	}
	for _, j := range s.jobs() {
		if n := int(j.Status.Succeeded + j.Status.Failed); n != ended[j.Name] {
			s.t.Errorf("Job %s counts %d pods and there are %d", j.Name, n, ended[j.Name])
		}
	}
	// What went with the Jobs is gone, and so are the Commands.
	await(s.t, s.p, "the end of what belongs to the Jobs", func(kube kubernetes.Interface) (bool, error) {
		ctx, all := s.t.Context(), metav1.ListOptions{}
		groups, err := s.vc.PodGroups("default").List(ctx, all)
		if err != nil {
			return false, err
		}
		commands, err := s.vc.Commands("default").List(ctx, all)
		if err != nil {
			return false, err
		}
		for n := range s.sets {
			if _, err := kube.CoreV1().Services("default").Get(ctx, fmt.Sprintf("pod-%d", n), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return len(groups.Items) == 0 && len(commands.Items) == 0, nil
	})
	s.t.Logf("%d Jobs have ended as they must", s.sets*len(s.ends))
}

// volcanoLine is how a Job is doing, in one line.
func volcanoLine(j *batch.Job) string {
	st := &j.Status
	line := string(st.State.Phase)
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"retries", st.RetryCount},
		{"pending", st.Pending},
		{"running", st.Running},
		{"succeeded", st.Succeeded},
		{"failed", st.Failed},
		{"terminating", st.Terminating},
		{"unknown", st.Unknown},
	} {
		if n.value != 0 {
			line += fmt.Sprintf(" %s=%d", n.name, n.value)
		}
	}
	return line
}

// checkRuns compares what the pods of a Job have noted with what may have run.
func (s *volcanoCrash) checkRuns(job, kind string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.marks, job))
	if err != nil {
		s.t.Fatal(err)
	}
	var runs []string // "index/version"
	began := map[string]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			s.t.Fatalf("Job %s: a pod has noted %q", job, line)
		}
		runs = append(runs, f[0]+"/"+f[1])
		if began[f[2]]++; began[f[2]] > 1 {
			s.t.Errorf("Job %s: pod %s was started %d times", job, f[2], began[f[2]])
		}
	}
	slices.Sort(runs)
	of := func(prefix string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(runs), func(r string) bool { return !strings.HasPrefix(r, prefix) }), " ")
	}
	got, want := "", ""
	switch kind {
	case "whole": // the other pod of a round may not come to run
		got, want = of("1/"), "1/0 1/1 1/2"
	case "task":
		got, want = of("0/"), "0/0 0/0"
	case "pod": // the healthy one is left alone
		got, want = of(""), "0/0 0/0 1/0"
	case "abort", "late":
		got, want = of("1/"), "1/0"
	case "gang":
		got, want = of(""), "0/0 1/0 2/0"
	case "resumed": // its pod may have ended before the first Command was obeyed, or not have begun
		if got = of(""); got == "0/0" || got == "0/0 0/2" {
			got = "0/2"
		}
		want = "0/2"
	}
	if got != want {
		s.t.Errorf("Job %s: pods have run as %s (index/version), want %s", job, got, want)
	}
}
