// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/cronjob"
	"github.com/drover-dev/drover/internal/testkit/plane"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

const (
	faultJobs  = 60
	faultSets  = 5 // of seven Jobs of Volcano each
	faultCrons = 12
	// outage is how long an API server is away, or cannot reach the webhooks.
	outage = 30 * time.Second
	// trialPoll is how often the API server is asked how things are.
	trialPoll = 250 * time.Millisecond
	// apart is where what is due by the clock runs, so that it may go on while the rest is counted.
	apart = "apart"
)

// TestEverythingEndsWellWhenTheAPIServerWasAway cuts drover-controller off for 30 s in the middle of its work. It is to give up, as
// another might have got its lease, and the next process is to take up everything.
func TestEverythingEndsWellWhenTheAPIServerWasAway(t *testing.T) {
	t.Parallel()
	x := newTrial(t, 10)
	c := x.start()
	x.timed(3*time.Second, outage)
	x.submit(faultJobs/2, faultSets/2)
	x.awaitUnderWay()
	x.proxy.door.setOpen(false)
	away := time.Now()
	defer time.AfterFunc(outage, func() { x.proxy.door.setOpen(true) }).Stop()
	x.submit(faultJobs-faultJobs/2, faultSets-faultSets/2) // others do reach the API server
	x.eventually("the controller to give up its lease", func() bool { return strings.Contains(c.output.String(), "lost the lease") && c.ends() == 1 })
	t.Logf("gave up %v after the API server had gone", time.Since(away).Round(time.Millisecond))
	x.eventually("another process to lead", func() bool { return strings.Count(c.output.String(), "Leading") == 2 })
	t.Logf("another leads %v after it has come back", time.Since(away.Add(outage)).Round(time.Millisecond))
	x.awaitEnd()
	x.checkEnd(1)
}

// TestEverythingEndsWellWhenWatchesAreCut cuts all watches again and again.
func TestEverythingEndsWellWhenWatchesAreCut(t *testing.T) {
	t.Parallel()
	x := newTrial(t, 11)
	x.start()
	x.timed(3*time.Second, 20*time.Second)
	x.submit(faultJobs/2, faultSets/2)
	x.awaitUnderWay()
	for i := range 5 {
		cut := x.proxy.cutWatches()
		t.Logf("cut %d watches", cut)
		if i == 0 && cut < 10 {
			t.Errorf("cut %d watches, want those of all kinds", cut)
		}
		if i == 0 {
			x.submit(faultJobs-faultJobs/2, faultSets-faultSets/2)
		}
		pass(t, time.Second+time.Duration(x.rng.IntN(3000))*time.Millisecond)
	}
	x.awaitEnd()
	x.checkEnd(0)
}

// TestEverythingEndsWellWithASlowAPIServer delays each request by 200 ms.
func TestEverythingEndsWellWithASlowAPIServer(t *testing.T) {
	t.Parallel()
	x := newTrial(t, 12)
	x.proxy.slowDown(200 * time.Millisecond)
	x.start()
	x.timed(3*time.Second, 10*time.Second)
	x.submit(faultJobs, faultSets)
	x.awaitEnd()
	x.checkEnd(0)
}

// TestEverythingEndsWellWhenRequestsMeetErrors answers a fifth of all requests with an error, from the first one on. Many of those were
// carried out.
func TestEverythingEndsWellWhenRequestsMeetErrors(t *testing.T) {
	t.Parallel()
	x := newTrial(t, 13)
	x.proxy.disturb(0.2)
	x.start("--install-crds")
	x.timed(3*time.Second, 10*time.Second)
	x.submit(faultJobs, faultSets)
	x.awaitEnd()
	x.checkEnd(0)
	for i := range faults {
		for _, lost := range []bool{false, faults[i].mayBeLate} {
			if f := (&fault{code: faults[i].code, lost: lost}); x.proxy.has(f.Error()) == 0 {
				t.Errorf("no request was answered with %v (%v)", f, x.proxy)
			}
		}
	}
}

// TestWorkGoesOnWhileWebhooksAreDown kills the replica that serves the webhooks. What is there goes on and what needs no webhook is
// taken, while what needs one is refused in clear words, and taken once there is one again.
func TestWorkGoesOnWhileWebhooksAreDown(t *testing.T) {
	t.Parallel()
	x := newTrial(t, 14)
	leader := x.start()
	x.eventually("a leader", func() bool { return strings.Contains(leader.output.String(), "Leading") })
	other := x.start() // whose webhooks take the place of those of the leader
	x.startFlow()
	x.timed(3*time.Second, 15*time.Second)
	x.submit(faultJobs/2, faultSets/2)
	x.awaitUnderWay()
	other.end()
	down := time.Now()

	_, err := x.story.vc.Jobs("default").Create(t.Context(), storyJob(t, x.marks, "refused", `{tasks: [{name: t, replicas: 1, template: POD(true)}]}`), metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "mutatejob.volcano.sh"`) {
		t.Errorf("a Job of Volcano is answered with %v", err)
	}
	x.submit(faultJobs-faultJobs/2, 0)
	x.mark("go") // the flow comes to its second Job
	x.timedVolcano(time.Second)
	x.awaitEnd()
	x.eventually("the flow to come to its second Job", func() bool { return x.phase(apart, "flow-first") == batch.Completed })
	x.eventually("the due time of Volcano's CronJob to be told of", func() bool { return x.toldOf("FailedCreate", "failed calling webhook") })
	pass(t, outage-time.Since(down))
	if n := x.volcanoStarts(); n != 0 || x.phase(apart, "flow-second") != "" {
		t.Errorf("without webhooks, there are %d Jobs of the CronJob, and that of the flow is %q", n, x.phase(apart, "flow-second"))
	}

	x.start()
	x.submit(0, faultSets-faultSets/2)
	x.eventually("the flow to end", func() bool { return x.phase(apart, "flow-second") == batch.Completed })
	x.eventually("the Job of the CronJob to end", func() bool { return x.phase(apart, cronjob.JobName("timed", x.volcanoDue)) == batch.Completed })
	x.awaitEnd()
	x.checkEnd(0)
	x.checkRan("flow-first", 1)
	x.checkRan("flow-second", 1)
	x.checkRan("timed", 1)
	if n := x.volcanoStarts(); n != 1 {
		t.Errorf("there are %d Jobs of the CronJob", n)
	}
}

// trial is a plane whose controllers reach the API server through a proxy, and the work that they are given.
type trial struct {
	t           *testing.T
	rng         *rand.Rand
	p           *plane.Plane
	kube        kubernetes.Interface
	proxy       *proxy
	kubeconfig  string
	controllers []*kept
	out         string // where the pods of Jobs and CronJobs note what they do
	marks       string // where those of Volcano's Jobs do
	story       *volcanoCrash
	jobs        int                  // that were submitted
	crons       map[string]time.Time // when each CronJob is due first
	volcanoDue  time.Time            // when that of Volcano is
}

// newTrial starts a plane without controllers, with what deploy/ has for them.
func newTrial(t *testing.T, stream uint64) *trial {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	p := plane.Start(t, plane.Options{Args: []string{"--controllers=-*"}})
	x := &trial{
		t: t, rng: rand.New(rand.NewPCG(seed, stream)), p: p, kube: p.Client(), out: t.TempDir(), marks: t.TempDir(), crons: map[string]time.Time{},
	}
	x.proxy = newProxy(t, p, rand.New(rand.NewPCG(seed, stream+100)))
	deploy := filepath.Join(filepath.Dir(filepath.Dir(plane.Binary(t))), "deploy")
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", filepath.Join(deploy, "overlays", "volcano")},
		{"apply", "--server-side", "-f", filepath.Join(deploy, "overlays", "replace", "rbac.yaml")},
		{"create", "namespace", apart},
	} {
		if out, err := plane.Command(t, append([]string{"--kubeconfig", p.Kubeconfig, "kubectl"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	x.kubeconfig = x.proxy.through(t, asServiceAccount(t, p, "drover-system", "drover-controller"))
	vc, err := client.New(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	ends := maps.Clone(volcanoEnds)
	ends["gang"] = "Completed succeeded=3"
	x.story = &volcanoCrash{t: t, p: p, vc: vc, story: faultStory, ends: ends, marks: x.marks, resumed: map[string]bool{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the proxy has seen %v", x.proxy)
			for _, c := range x.controllers {
				t.Logf("a controller:\n%s", c.tail(200))
			}
		}
	})
	return x
}

// faultStory is volcanoStory, but what happens to the Job that is suspended does not depend on how soon it is; and a gang.
var faultStory = volcanoStory[:strings.LastIndex(volcanoStory, "---\n")] + `---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: resumed-N}, spec: {
  tasks: [{name: t, replicas: 1, template: POD(test $V != 0 || sleep 1000)}]}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: gang-N}, spec: {
  minAvailable: 3, plugins: {svc: [], env: []},
  tasks: [{name: t, replicas: 3, template: POD(sleep 1)}]}}
`

// storyJob returns one Job like those of a story.
func storyJob(t *testing.T, marks, name, spec string) *batch.Job {
	t.Helper()
	j := &batch.Job{TypeMeta: metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	before, rest, _ := strings.Cut(spec, "POD(")
	script, after, _ := strings.Cut(rest, ")}]}")
	pod := strings.NewReplacer("MARKS", marks, "SCRIPT", script, "JOB", name).Replace(volcanoPod)
	if err := yaml.Unmarshal([]byte(before+pod+"}]}"+after), &j.Spec); err != nil {
		t.Fatal(err)
	}
	return j
}

// jobKinds are Jobs whose end does not depend on chance. Each pod notes its beginning and its end, and then does as the script says.
var jobKinds = []struct {
	name, script string
	change       func(*batchv1.JobSpec)
	end          string
}{
	{"plain", "exit 0", func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr.To[int32](2), ptr.To[int32](2) }, "Complete succeeded=2 failed=0"},
	{"indexed", "exit 0", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](4), ptr.To[int32](2)
	}, "Complete succeeded=4 failed=0 completed=0-3"},
	{"again", "test -e /out/once-$JOB || { touch /out/once-$JOB; exit 1; }", func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To[int32](1) }, "Complete succeeded=1 failed=1"},
	{"hopeless", "exit 1", func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To[int32](2) }, "Failed succeeded=0 failed=3"},
	{"holed", "test $JOB_COMPLETION_INDEX != 1", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](3), ptr.To[int32](3)
		s.BackoffLimit, s.BackoffLimitPerIndex = nil, ptr.To[int32](1)
	}, "Failed succeeded=2 failed=2 completed=0,2 holes=1"},
}

// jobLine is how a Job has ended, in one line.
func jobLine(j *batchv1.Job) string {
	line, st := "unfinished", &j.Status
	for _, c := range st.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			line = string(c.Type)
		}
	}
	line += fmt.Sprintf(" succeeded=%d failed=%d", st.Succeeded, st.Failed)
	if st.CompletedIndexes != "" {
		line += " completed=" + st.CompletedIndexes
	}
	if st.FailedIndexes != nil && *st.FailedIndexes != "" {
		line += " holes=" + *st.FailedIndexes
	}
	if n := st.Active + ptr.Deref(st.Terminating, 0) + int32(len(uncounted(j))); n != 0 {
		line += fmt.Sprintf(" left=%d", n)
	}
	return line
}

// start starts one more drover-controller, and waits until the API server asks its webhooks.
func (x *trial) start(more ...string) *kept {
	x.t.Helper()
	c := keep(x.t, append([]string{
		"--kubeconfig", x.kubeconfig, "--manage=all", "--controllers=*", "--gang=native", "--leader-elect-namespace=drover-system",
		"--webhook-bind-address=127.0.0.1:0", "--webhook-secret=drover-system/drover-webhook",
	}, more...)...)
	x.controllers = append(x.controllers, c)
	x.eventually("the webhooks", func() bool { return x.asksWebhooks(c) })
	return c
}

// eventually waits until something is so. What it asks for must work: it asks the API server itself.
func (x *trial) eventually(what string, ok func() bool) {
	x.t.Helper()
	if wait.PollUntilContextTimeout(x.t.Context(), trialPoll, outcomeLimit, true, func(context.Context) (bool, error) { return ok(), nil }) != nil {
		x.t.Fatalf("waited in vain for %s", what)
	}
}

// submit submits that many more Jobs, and sets of Volcano's Jobs. Those are refused until there are webhooks.
func (x *trial) submit(jobs, sets int) {
	x.t.Helper()
	for range jobs {
		kind := jobKinds[x.jobs%len(jobKinds)]
		j := countingJob(fmt.Sprintf("%s-%d", kind.name, x.jobs), x.out, kind.change)
		j.Annotations = map[string]string{"drover.dev/backoff": "base=500ms,max=1s"}
		container := &j.Spec.Template.Spec.Containers[0]
		container.Command = []string{"sh", "-c", container.Command[2] + "\n" + kind.script}
		if _, err := x.kube.BatchV1().Jobs("default").Create(x.t.Context(), j, metav1.CreateOptions{}); err != nil {
			x.t.Fatal(err)
		}
		x.jobs++
	}
	for range sets {
		x.story.submit()
	}
}

// awaitUnderWay waits until the first pods have begun.
func (x *trial) awaitUnderWay() {
	x.t.Helper()
	x.eventually("work to be under way", func() bool {
		pods, err := x.kube.CoreV1().Pods("default").List(x.t.Context(), metav1.ListOptions{FieldSelector: "status.phase!=Pending"})
		if err != nil {
			x.t.Fatal(err)
		}
		return len(pods.Items) >= 10
	})
}

// timed makes CronJobs whose first due times are spread over a span that begins after some time.
func (x *trial) timed(after, span time.Duration) {
	x.t.Helper()
	begin, crons := time.Now().Add(after).Truncate(time.Second), x.kube.BatchV1().CronJobs(apart)
	for i := range faultCrons {
		name := fmt.Sprintf("cron-%d", i)
		c := restingCronJob(name)
		c.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](100)
		job := &c.Spec.JobTemplate.Spec
		job.Suspend = nil
		job.Template.Spec.Volumes = []corev1.Volume{{Name: "out", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: x.out}}}}
		job.Template.Spec.Containers[0].Command = []string{"sh", "-c", "echo ran >> /out/$JOB"}
		job.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "out", MountPath: "/out"}}
		job.Template.Spec.Containers[0].Env = []corev1.EnvVar{{
			Name: "JOB", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobNameLabel + "']"}},
		}}
		if _, err := crons.Create(x.t.Context(), c, metav1.CreateOptions{}); err != nil {
			x.t.Fatal(err)
		}
		due := begin.Add(span * time.Duration(i) / faultCrons).Truncate(time.Second)
		if _, err := crons.Patch(x.t.Context(), name, types.MergePatchType, startedBefore(due, cronPeriod), metav1.PatchOptions{}, "status"); err != nil {
			x.t.Fatal(err)
		}
		x.crons[name] = due
	}
}

// startedBefore is a patch after which a CronJob with that period is due at that time.
func startedBefore(due time.Time, period time.Duration) []byte {
	return fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, due.Add(-period).UTC().Format(time.RFC3339))
}

// volcanoPeriod is that of the CronJob of Volcano: it is due once in a test.
const volcanoPeriod = 24 * time.Hour

// timedVolcano makes a CronJob of Volcano that is due after some time.
func (x *trial) timedVolcano(after time.Duration) {
	x.t.Helper()
	x.volcanoDue = time.Now().Add(after).Truncate(time.Second)
	crons := x.story.vc.CronJobs(apart)
	if _, err := crons.Patch(x.t.Context(), "timed", types.MergePatchType, startedBefore(x.volcanoDue, volcanoPeriod), metav1.PatchOptions{}, "status"); err != nil {
		x.t.Fatal(err)
	}
}

// startFlow makes a flow whose first Job ends once there is the mark "go", and a CronJob of Volcano that is not due yet.
func (x *trial) startFlow() {
	x.t.Helper()
	ctx, vc, t := x.t.Context(), x.story.vc, x.t
	x.story.insist(func() error {
		_, err := vc.CronJobs(apart).Create(ctx, &batch.CronJob{
			TypeMeta: metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "CronJob"}, ObjectMeta: metav1.ObjectMeta{Name: "timed"},
			Spec: batch.CronJobSpec{
				Schedule:    "@every " + volcanoPeriod.String(),
				JobTemplate: batch.JobTemplateSpec{Spec: storyJob(t, x.marks, "timed", `{tasks: [{name: t, replicas: 1, template: POD(true)}]}`).Spec},
			},
		}, metav1.CreateOptions{})
		return err
	})
	for name, script := range map[string]string{"first": "until test -e /marks/go; do sleep 0.1; done", "second": "true"} {
		x.story.insist(func() error {
			_, err := vc.JobTemplates(apart).Create(ctx, &flow.JobTemplate{
				TypeMeta: metav1.TypeMeta{APIVersion: flow.GroupVersion.String(), Kind: "JobTemplate"}, ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: storyJob(t, x.marks, "flow-"+name, `{tasks: [{name: t, replicas: 1, template: POD(`+script+`)}]}`).Spec,
			}, metav1.CreateOptions{})
			return err
		})
	}
	x.story.insist(func() error {
		_, err := vc.JobFlows(apart).Create(ctx, &flow.JobFlow{
			TypeMeta: metav1.TypeMeta{APIVersion: flow.GroupVersion.String(), Kind: "JobFlow"}, ObjectMeta: metav1.ObjectMeta{Name: "flow"},
			Spec: flow.JobFlowSpec{JobRetainPolicy: flow.Retain, Flows: []flow.Flow{{Name: "first"}, {Name: "second", DependsOn: &flow.DependsOn{Targets: []string{"first"}}}}},
		}, metav1.CreateOptions{})
		return err
	})
	x.eventually("the first Job of the flow to run", func() bool { return x.phase(apart, "flow-first") == batch.Running })
}

// mark leaves a mark for pods.
func (x *trial) mark(name string) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(x.marks, name), nil, 0o644); err != nil {
		x.t.Fatal(err)
	}
}

// phase returns the phase of a Job of Volcano; "": there is no such Job, or it has none yet.
func (x *trial) phase(namespace, name string) batch.JobPhase {
	x.t.Helper()
	j, err := x.story.vc.Jobs(namespace).Get(x.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return j.Status.State.Phase
}

// toldOf reports whether an event of that reason tells of something.
func (x *trial) toldOf(reason, text string) bool {
	x.t.Helper()
	events, err := x.kube.CoreV1().Events(apart).List(x.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		x.t.Fatal(err)
	}
	return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, text) })
}

// asksWebhooks reports whether the API server asks the webhooks of that controller.
func (x *trial) asksWebhooks(c *kept) bool {
	x.t.Helper()
	_, rest, served := strings.Cut(c.output.String(), `msg="Webhooks are served"`)
	_, rest, addressed := strings.Cut(rest, "address=")
	if !served || !addressed {
		return false
	}
	hooks, err := x.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(x.t.Context(), config.WebhooksName, metav1.GetOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	if !strings.Contains(ptr.Deref(hooks.Webhooks[0].ClientConfig.URL, ""), strings.Fields(rest)[0]) {
		return false
	}
	probe := storyJob(x.t, x.marks, "probe", `{tasks: [{name: t, replicas: 1, template: POD(true)}]}`)
	completed, err := x.story.vc.Jobs("default").Create(x.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil && completed.Spec.Queue != "" // the API server knows by now
}

// awaitEnd waits until everything that was submitted has ended, and what was due has been started and has ended.
func (x *trial) awaitEnd() {
	x.t.Helper()
	var left []string
	begun := time.Now()
	until := begun
	for _, due := range x.crons {
		if due.After(until) {
			until = due
		}
	}
	err := wait.PollUntilContextTimeout(x.t.Context(), trialPoll, outcomeLimit, true, func(ctx context.Context) (bool, error) {
		x.story.resume()
		left = nil
		for _, j := range x.story.jobs() {
			if goesOn(j) {
				left = append(left, "vcjob "+j.Name+": "+volcanoLine(&j)+": "+j.Status.State.Message)
			}
		}
		jobs, err := x.kube.BatchV1().Jobs("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range jobs.Items {
			if !isFinished(&jobs.Items[i]) {
				left = append(left, "Job "+jobs.Items[i].Name+": "+jobLine(&jobs.Items[i]))
			}
		}
		left = append(left, x.untimely(until)...)
		return len(left) == 0, nil
	})
	if err != nil {
		x.t.Fatalf("%d things do not end (%v):\n%s", len(left), err, strings.Join(left, "\n"))
	}
	x.t.Logf("%d Jobs and %d of Volcano had ended %v later", x.jobs, x.story.sets*len(x.story.ends), time.Since(begun).Round(time.Millisecond))
}

// untimely returns the due times up to then that no Job was started for, and Jobs of CronJobs that have not ended. It fails the test
// where a due time has two.
func (x *trial) untimely(until time.Time) []string {
	x.t.Helper()
	started, left := map[string]bool{}, []string{}
	for _, j := range x.timedJobs() {
		due, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if err != nil {
			x.t.Fatalf("Job %s: %v", j.Name, err)
		}
		tick := metav1.GetControllerOf(&j).Name + " " + due.UTC().Format(time.TimeOnly)
		if started[tick] {
			x.t.Fatalf("started twice: %s", tick)
		}
		started[tick] = true
		if !isFinished(&j) {
			left = append(left, "Job "+j.Name+": "+jobLine(&j))
		}
	}
	for name, due := range x.crons {
		for ; !due.After(until); due = due.Add(cronPeriod) {
			if tick := name + " " + due.UTC().Format(time.TimeOnly); !started[tick] {
				left = append(left, "not started: "+tick)
			}
		}
	}
	return left
}

// timedJobs are the Jobs of CronJobs.
func (x *trial) timedJobs() []batchv1.Job {
	x.t.Helper()
	jobs, err := x.kube.BatchV1().Jobs(apart).List(x.t.Context(), metav1.ListOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	return jobs.Items
}

// checkEnd compares what is counted with what has run. Controllers may have ended by themselves that often.
func (x *trial) checkEnd(ends int) {
	x.t.Helper()
	x.story.awaitEnd()
	x.story.checkEnd()
	for i := range x.jobs {
		kind := jobKinds[i%len(jobKinds)]
		j := awaitFinished(x.t, x.p, fmt.Sprintf("%s-%d", kind.name, i))
		if line := jobLine(j); line != kind.end {
			x.t.Errorf("Job %s has ended as %s, want %s", j.Name, line, kind.end)
		}
		checkPods(x.t, x.kube, j, x.out)
		runs := readRuns(x.t, filepath.Join(x.out, j.Name))
		if n := int(j.Status.Succeeded + j.Status.Failed); n != len(runs) {
			x.t.Errorf("Job %s counts %d pods and %d have run", j.Name, n, len(runs))
		}
		for pod, r := range runs {
			if r.begins != 1 || r.ends != 1 {
				x.t.Errorf("pod %s of Job %s has begun %d and ended %d times", pod, j.Name, r.begins, r.ends)
			}
		}
	}
	for _, j := range x.timedJobs() {
		if isFinished(&j) { // others are being started just now
			x.checkFile(filepath.Join(x.out, j.Name), "ran\n")
			if line := jobLine(&j); line != "Complete succeeded=1 failed=0" {
				x.t.Errorf("Job %s has ended as %s", j.Name, line)
			}
		}
	}
	x.checkOrphans()
	all := 0
	for _, c := range x.controllers {
		all += c.ends()
		for line := range strings.Lines(c.output.String()) {
			if strings.Contains(line, "forbidden") || strings.Contains(line, "panic") {
				x.t.Errorf("a controller says: %s", line)
			}
		}
	}
	if all != ends {
		x.t.Errorf("controllers have ended %d times by themselves, want %d", all, ends)
	}
	x.t.Logf("%d Jobs of CronJobs; the proxy has seen %v", len(x.timedJobs()), x.proxy)
}

// checkOrphans looks for pods without an owner and pods that nobody lets go.
func (x *trial) checkOrphans() {
	x.t.Helper()
	owners := map[types.UID]bool{}
	jobs, err := x.kube.BatchV1().Jobs("default").List(x.t.Context(), metav1.ListOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, j := range jobs.Items {
		owners[j.UID] = true
	}
	for _, j := range x.story.jobs() {
		owners[j.UID] = true
	}
	var held []string
	err = wait.PollUntilContextTimeout(x.t.Context(), trialPoll, time.Minute, true, func(ctx context.Context) (bool, error) {
		pods, err := x.kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		held = nil
		for _, p := range pods.Items {
			if ref := metav1.GetControllerOf(&p); ref == nil || !owners[ref.UID] {
				x.t.Errorf("pod %s belongs to nobody", p.Name)
			}
			if len(p.Finalizers) > 0 {
				held = append(held, p.Name)
			}
		}
		return len(held) == 0, nil
	})
	if err != nil {
		x.t.Errorf("pods keep their finalizers (%v): %v", err, held)
	}
}

// checkRan checks that as many pods of a Job of Volcano have begun.
func (x *trial) checkRan(job string, n int) {
	x.t.Helper()
	text, err := os.ReadFile(filepath.Join(x.marks, job))
	if err != nil || strings.Count(string(text), "\n") != n {
		x.t.Errorf("Job %s has run as %q (%v), want %d lines", job, text, err, n)
	}
}

func (x *trial) checkFile(path, want string) {
	x.t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		x.t.Errorf("%s says %q (%v), want %q", filepath.Base(path), text, err, want)
	}
}

// volcanoStarts returns how many Jobs there are of Volcano's CronJob.
func (x *trial) volcanoStarts() int {
	x.t.Helper()
	list, err := x.story.vc.Jobs(apart).List(x.t.Context(), metav1.ListOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	n := 0
	for i := range list.Items {
		if ref := metav1.GetControllerOf(&list.Items[i]); ref != nil && ref.Kind == "CronJob" {
			n++
		}
	}
	return n
}

// restartPause is how long a controller that has ended by itself waits for its next start.
const restartPause = time.Second

// kept is a drover-controller that is started again when it ends, as the kubelet does it.
type kept struct {
	output lockedOutput
	done   chan struct{}
	quit   chan struct{}
	once   sync.Once

	mu      sync.Mutex
	process *os.Process // that was started last
	ended   int         // by itself
	over    bool
}

func keep(t *testing.T, args ...string) *kept {
	t.Helper()
	k := &kept{done: make(chan struct{}), quit: make(chan struct{})}
	binary := filepath.Join(filepath.Dir(plane.Binary(t)), "drover-controller")
	go k.run(binary, args)
	t.Cleanup(k.end)
	return k
}

func (k *kept) run(binary string, args []string) {
	defer close(k.done)
	// The kernel ends the process with the thread that has started it: a test that is cut off leaves none.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		cmd := exec.Command(binary, args...)
		cmd.Stdout, cmd.Stderr = &k.output, &k.output
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := k.begin(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		k.note(err)
		select {
		case <-k.quit:
			return
		case <-time.After(restartPause):
		}
	}
}

var errOver = errors.New("it is not wanted any more")

func (k *kept) begin(cmd *exec.Cmd) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return errOver
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	k.process = cmd.Process
	return nil
}

// note notes how a process has ended.
func (k *kept) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.ended++
		fmt.Fprintf(&k.output, "-- it has ended: %v\n", err)
	}
}

// ends returns how often it has ended by itself.
func (k *kept) ends() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// end kills it for good.
func (k *kept) end() {
	k.once.Do(func() {
		k.mu.Lock()
		k.over = true
		if k.process != nil {
			_ = k.process.Kill() // unless it has ended
		}
		k.mu.Unlock()
		close(k.quit)
	})
	<-k.done
}

// tail returns the last lines that it has printed.
func (k *kept) tail(n int) string {
	lines := strings.SplitAfter(k.output.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
