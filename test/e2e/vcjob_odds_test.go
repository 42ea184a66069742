// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/config"
	"github.com/drover-dev/drover/internal/testkit/plane"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// TestVolcanoJobsInRareSituations shares one plane between what needs more of the API server than a script can have. It does not run beside
// other tests: ten thousand pods keep a small machine busy.
func TestVolcanoJobsInRareSituations(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	vc, err := client.New(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	kube := p.Client()
	awaitAdmission(t, vc)
	in := func(t *testing.T, namespace string) *vcPlay { t.Helper(); return newVCPlay(t, kube, vc, namespace) }
	t.Run("beside each other", func(t *testing.T) {
		t.Run("admission", func(t *testing.T) {
			t.Parallel()
			in(t, "admission")
			tryAdmission(t, kube, vc)
		})
		t.Run("a deletion that does not work at first loses no restart and counts none twice", func(t *testing.T) {
			t.Parallel()
			refuseDeletions(p, in(t, "deletion"))
		})
		t.Run("a name that is used a hundred times brings no ghosts", func(t *testing.T) {
			t.Parallel()
			useAgain(p, in(t, "again"))
		})
		t.Run("phases that end pods are seen while they do", func(t *testing.T) {
			t.Parallel()
			watchPhases(in(t, "phases"))
		})
		t.Run("many Jobs, PodGroups and Queues come and go", func(t *testing.T) {
			t.Parallel()
			comeAndGo(in(t, "many"))
		})
	})
	t.Run("a node that takes no more pods", func(t *testing.T) { taintNode(p, in(t, "taint")) })
	t.Run("ten thousand pods cost little more than their creation", func(t *testing.T) { makeThousands(p, in(t, "thousands")) })
	t.Run("drover-controller behind a Service", func(t *testing.T) { serveBehindService(t, p) }) // takes the webhooks over: nothing can follow
}

// aJob returns the text of a Job with that spec; T stands for a template, C for what is in its container.
func aJob(name, spec string) []byte {
	const container = `name: c, image: busybox, command: [sleep, "1000"]`
	spec = strings.ReplaceAll(spec, "template: T", "template: {spec: {containers: [{C}]}}")
	spec = strings.ReplaceAll(spec, "{C", "{"+container)
	return fmt.Appendf(nil, "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: %s}, spec: {%s}}", name, spec)
}

// tryAdmission sends Jobs that are refused, each with the words that Volcano's users look for, and Jobs that are completed. Nothing
// of them is stored.
func tryAdmission(t *testing.T, kube kubernetes.Interface, vc *client.Client) {
	t.Helper()
	ctx := t.Context()
	for _, q := range []*scheduling.Queue{
		{ObjectMeta: metav1.ObjectMeta{Name: "top"}, Spec: scheduling.QueueSpec{Weight: 1}},
		{ObjectMeta: metav1.ObjectMeta{Name: "leaf"}, Spec: scheduling.QueueSpec{Weight: 1, Parent: "top"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "shut"}, Spec: scheduling.QueueSpec{Weight: 1}},
	} {
		q.APIVersion, q.Kind = scheduling.GroupVersion.String(), "Queue"
		if _, err := vc.Queues().Create(ctx, q, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := vc.Commands("default").Create(ctx, &bus.Command{
		TypeMeta: metav1.TypeMeta{APIVersion: bus.GroupVersion.String(), Kind: "Command"}, ObjectMeta: metav1.ObjectMeta{GenerateName: "shut-"},
		Action: "CloseQueue", TargetObject: &metav1.OwnerReference{APIVersion: scheduling.GroupVersion.String(), Kind: "Queue", Name: "shut"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	send := func(spec string) (*batch.Job, error) {
		j := &batch.Job{}
		text, err := kube.Discovery().RESTClient().Post().AbsPath("/apis/batch.volcano.sh/v1alpha1/namespaces/admission/jobs").Param("dryRun", metav1.DryRunAll).
			Param("fieldValidation", "Strict").SetHeader("Content-Type", "application/yaml").SetHeader("Accept", "application/json").Body(aJob("j", spec)).Do(ctx).Raw()
		if err == nil {
			return j, yaml.Unmarshal(text, j)
		}
		var why metav1.Status // which this client does not know how to read
		if json.Unmarshal(text, &why) == nil && why.Message != "" {
			err = errors.New(why.Message)
		}
		return nil, err
	}
	const one = "tasks: [{name: a, replicas: 1, template: T}]"
	refused := map[string]struct {
		spec  string
		words []string
	}{
		"no tasks":                      {"tasks: []", []string{"spec.tasks"}},
		"negative maxRetry":             {"maxRetry: -1, " + one, []string{"spec.maxRetry", "should be greater than or equal to 0"}},
		"negative minAvailable":         {"minAvailable: -1, " + one, []string{"spec.minAvailable", "should be greater than or equal to 0"}},
		"negative time to live":         {"ttlSecondsAfterFinished: -1, " + one, []string{"spec.ttlSecondsAfterFinished", "should be greater than or equal to 0"}},
		"minSuccess of none":            {"minSuccess: 0, " + one, []string{"spec.minSuccess", "should be greater than or equal to 1"}},
		"negative replicas":             {"tasks: [{name: a, replicas: -1, template: T}]", []string{"spec.tasks[0].replicas", "should be greater than or equal to 0"}},
		"negative minimum of a task":    {"tasks: [{name: a, replicas: 1, minAvailable: -1, template: T}]", []string{"spec.tasks[0].minAvailable", "should be greater than or equal to 0"}},
		"a minimum beyond replicas":     {"minAvailable: 1, tasks: [{name: a, replicas: 1, minAvailable: 2, template: T}]", []string{"'minAvailable' is greater than 'replicas' in task"}},
		"more pods than can be":         {"tasks: [{name: a, replicas: 2147483647, template: T}]", []string{"spec.tasks: 2147483647 pods are more than the 1000000"}},
		"a policy about nothing":        {"policies: [{action: AbortJob}], " + one, []string{"either event and exitCode should be specified"}},
		"a policy without an action":    {"policies: [{event: PodFailed}], " + one, []string{"invalid policy action"}},
		"an unknown event":              {"policies: [{event: PodExploded, action: AbortJob}], " + one, []string{"spec.policies[0].event", "Unsupported value"}},
		"an internal event":             {"policies: [{event: OutOfSync, action: AbortJob}], " + one, []string{"invalid policy event"}},
		"an exit code twice":            {"policies: [{exitCode: 3, action: AbortJob}, {exitCode: 3, action: RestartJob}], " + one, []string{"duplicate exitCode 3"}},
		"an event twice, of a task":     {"tasks: [{name: a, replicas: 1, policies: [{event: PodFailed, action: AbortJob}, {events: [PodEvicted, PodFailed], action: RestartJob}], template: T}]", []string{"duplicate event PodFailed"}},
		"a timeout that is a number":    {"policies: [{event: PodFailed, action: AbortJob, timeout: 5}], " + one, []string{"timeout"}},
		"an empty mountPath":            {"volumes: [{mountPath: '', volumeClaimName: x}], " + one, []string{"spec.volumes[0].mountPath", "should be at least 1 chars long"}},
		"a mountPath twice":             {"volumes: [{mountPath: /a, volumeClaimName: one}, {mountPath: /a, volumeClaimName: two}], " + one, []string{"duplicated mountPath: /a"}},
		"a queue with children":         {"queue: top, " + one, []string{"can only submit job to leaf queue, queue `top` has 1 child queues"}},
		"a closed queue":                {"queue: shut, " + one, []string{"can only submit job to queue with state `Open`, queue `shut` status is `Closed`"}},
		"negative CPU":                  {`tasks: [{name: a, replicas: 1, template: {spec: {containers: [{C, resources: {requests: {cpu: "-1"}}}]}}}]`, []string{"must be greater than or equal to 0"}},
		"memory that is no quantity":    {`tasks: [{name: a, replicas: 1, template: {spec: {containers: [{C, resources: {limits: {memory: "1q"}}}]}}}]`, []string{"quantities must match the regular expression"}},
		"partitions that do not add up": {"tasks: [{name: a, replicas: 3, partitionPolicy: {totalPartitions: 2, partitionSize: 2}, template: T}]", []string{"'Replicas' are not equal to TotalPartitions*PartitionSize"}},
		"a task that needs itself":      {"tasks: [{name: a, replicas: 1, dependsOn: {name: [a]}, template: T}]", []string{"directed acyclic graph(DAG)"}},
		"a task that needs nobody":      {"tasks: [{name: a, replicas: 1, dependsOn: {name: [b]}, template: T}]", []string{"directed acyclic graph(DAG)"}},
		"mpi without its master":        {"plugins: {mpi: []}, " + one, []string{"The specified mpi master task was not found"}},
		"an unknown field":              {"sopec: {}, " + one, []string{"sopec"}},
	}
	for name, tc := range refused {
		t.Run("is refused: "+name, func(t *testing.T) {
			var last error
			err := wait.PollUntilContextTimeout(ctx, pollEvery, 10*time.Second, true, func(context.Context) (bool, error) {
				_, last = send(tc.spec)
				return last != nil && !slices.ContainsFunc(tc.words, func(w string) bool { return !strings.Contains(last.Error(), w) }), nil
			})
			if err != nil {
				t.Errorf("answer %v, want one with %q", last, tc.words)
			}
		})
	}
	completed := map[string]struct {
		spec string
		ok   func(s *batch.JobSpec) bool
	}{
		"tensorflow needs svc": {"plugins: {tensorflow: [--ps=p]}, " + one, func(s *batch.JobSpec) bool {
			return len(s.Plugins) == 2 && s.Plugins["svc"] != nil && s.Plugins["tensorflow"][0] == "--ps=p"
		}},
		"mpi needs ssh and svc": {"plugins: {mpi: [--master=a]}, " + one, func(s *batch.JobSpec) bool {
			return len(s.Plugins) == 3 && s.Plugins["svc"] != nil && s.Plugins["ssh"] != nil
		}},
		"pytorch needs svc": {"plugins: {pytorch: []}, " + one, func(s *batch.JobSpec) bool { return len(s.Plugins) == 2 && s.Plugins["svc"] != nil }},
		"env needs nothing": {"plugins: {env: []}, " + one, func(s *batch.JobSpec) bool { return len(s.Plugins) == 1 }},
		"what is given stays": {"queue: leaf, schedulerName: mine, maxRetry: 7, minAvailable: 1, tasks: [{name: a, replicas: 2, minAvailable: 0, maxRetry: 9, template: T}]", func(s *batch.JobSpec) bool {
			return s.Queue == "leaf" && s.SchedulerName == "mine" && s.MaxRetry == 7 && s.MinAvailable == 1 && *s.Tasks[0].MinAvailable == 0 && s.Tasks[0].MaxRetry == 9
		}},
		"minima of partitions": {"tasks: [{name: a, replicas: 6, partitionPolicy: {totalPartitions: 3, partitionSize: 2, minPartitions: 2}, template: T}]", func(s *batch.JobSpec) bool { return *s.Tasks[0].MinAvailable == 4 && s.MinAvailable == 4 }},
		"a network of the host": {"tasks: [{name: a, replicas: 1, template: {spec: {hostNetwork: true, containers: [{C}]}}}]", func(s *batch.JobSpec) bool {
			return s.Tasks[0].Template.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet
		}},
		"a privileged container": {"tasks: [{name: a, replicas: 1, template: {spec: {containers: [{C, securityContext: {privileged: true}}]}}}]", func(s *batch.JobSpec) bool { return *s.Tasks[0].Template.Spec.Containers[0].SecurityContext.Privileged }},
		"labels of templates stay": {"tasks: [{name: a, replicas: 1, template: {metadata: {name: x, labels: {l: v}, annotations: {a: v}}, spec: {containers: [{C}]}}}]", func(s *batch.JobSpec) bool {
			m := s.Tasks[0].Template.ObjectMeta
			return m.Name == "x" && m.Labels["l"] == "v" && m.Annotations["a"] == "v"
		}},
		"an event twice in one list": {"policies: [{events: [PodEvicted, PodFailed, PodEvicted], action: TerminateJob}], " + one, func(s *batch.JobSpec) bool { return len(s.Policies[0].Events) == 3 }},
		"an exit code beside *":      {`policies: [{event: "*", action: RestartJob}, {exitCode: 3, action: AbortJob}], ` + one, func(s *batch.JobSpec) bool { return len(s.Policies) == 2 }},
	}
	for name, tc := range completed {
		t.Run("is completed: "+name, func(t *testing.T) {
			j, err := send(tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			if !tc.ok(&j.Spec) {
				t.Errorf("it is completed to %+v", j.Spec)
			}
		})
	}
}

// refuseDeletions has the API server answer every deletion of a pod with an error while a Job restarts, and then no longer.
func refuseDeletions(pl *plane.Plane, p *vcPlay) {
	p.t.Helper()
	t, ctx, kube, marks := p.t, p.ctx, p.kube, p.t.TempDir()
	script := `test $VC_TASK_INDEX = 0 || test -e /marks/failed || { until test -e /marks/go; do sleep 0.1; done; touch /marks/failed; exit 1; }; sleep 1000`
	p.create(aJob("j", fmt.Sprintf(`maxRetry: 5, plugins: {env: []}, policies: [{event: PodFailed, action: RestartJob}], tasks: [{name: t, replicas: 3, template: {spec: {
  restartPolicy: Never, terminationGracePeriodSeconds: 1, volumes: [{name: m, hostPath: {path: %s, type: Directory}}],
  containers: [{name: c, image: busybox, command: [sh, -c, %q], volumeMounts: [{name: m, mountPath: /marks}]}]}}}]`, marks, script)))
	p.becomes("Running running=3")
	hooks := kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "broken.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "deletion"}},
			SideEffects:       ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	p.must(err)
	try := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	await(t, pl, "deletions to be refused", func(kube kubernetes.Interface) (bool, error) {
		return kube.CoreV1().Pods("deletion").Delete(ctx, "j-t-0", try) != nil, nil
	})
	p.must(os.WriteFile(filepath.Join(marks, "go"), nil, 0o600))
	p.awaitEvent("FailedDelete", "Error deleting pods")
	j := p.await("restarting", func(j *batch.Job) bool { return j.Status.State.Phase == batch.Restarting })
	if j.Status.RetryCount != 1 || j.Status.Version != 1 || len(p.pods()) != 3 {
		t.Errorf("while pods cannot be deleted it is %s, version %d, with %d pods", volcanoLine(j), j.Status.Version, len(p.pods()))
	}
	p.must(hooks.Delete(ctx, "broken", metav1.DeleteOptions{}))
	j = p.becomes("Running retries=1 running=3")
	if j.Status.Version != 1 {
		t.Errorf("version %d", j.Status.Version)
	}
	for _, pod := range p.pods() {
		if pod.Annotations[batch.VersionKey] != "1" {
			t.Errorf("pod %s is of version %s", pod.Name, pod.Annotations[batch.VersionKey])
		}
	}
	p.remove("j")
}

// useAgain makes and deletes Jobs of one name in quick succession, whose pods would take any event for a reason to restart.
func useAgain(pl *plane.Plane, p *vcPlay) {
	p.t.Helper()
	t, rng := p.t, rand.New(rand.NewPCG(12, 12))
	text := aJob("j", `policies: [{event: "*", action: RestartJob}], tasks: [{name: t, replicas: 2, template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{C}]}}}]`)
	for range 100 {
		p.create(text)
		pass(t, time.Duration(rng.IntN(60))*time.Millisecond)
		p.must(p.vc.Jobs(p.ns).Delete(p.ctx, "j", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	}
	p.create(text)
	j := p.becomes("Running running=2")
	if j.UID != p.job.UID || j.Status.Version != 0 {
		t.Errorf("the Job is %s, want %s, version %d", j.UID, p.job.UID, j.Status.Version)
	}
	await(t, pl, "the end of all ghosts", func(kubernetes.Interface) (bool, error) {
		groups, err := p.vc.PodGroups(p.ns).List(p.ctx, metav1.ListOptions{})
		return err == nil && len(groups.Items) == 1 && len(p.pods()) == 2, err
	})
	for _, pod := range p.pods() {
		if !metav1.IsControlledBy(&pod, p.job) {
			t.Errorf("pod %s belongs to %v", pod.Name, pod.OwnerReferences)
		}
	}
	if line := volcanoLine(p.await("there", func(*batch.Job) bool { return true })); line != "Running running=2" {
		t.Errorf("in the end it is %s", line)
	}
	p.remove("j")
}

// watchPhases follows every version of Jobs that Commands end or restart: as long as pods are being ended the phase says so, and the
// phase in which all is over says that none is left.
func watchPhases(p *vcPlay) {
	p.t.Helper()
	for action, phases := range map[batch.Action][]batch.JobPhase{
		batch.AbortJobAction:     {batch.Aborting, batch.Aborted},
		batch.TerminateJobAction: {batch.Terminating, batch.Terminated},
		batch.CompleteJobAction:  {batch.Completing, batch.Completed},
		batch.RestartJobAction:   {batch.Restarting, batch.Running},
	} {
		p.create(aJob(strings.ToLower(string(action)), `tasks: [{name: t, replicas: 2, template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1,
  containers: [{name: c, image: busybox, command: [sh, -c, "trap '' TERM; while :; do sleep 0.1; done"]}]}}}]`))
		from := p.becomes("Running running=2")
		changes, err := p.vc.Jobs(p.ns).Watch(p.ctx, metav1.ListOptions{ResourceVersion: from.ResourceVersion, FieldSelector: "metadata.name=" + from.Name})
		p.must(err)
		p.command(action)
		limit := time.After(outcomeLimit)
		ending, left := false, int32(0)
		if action == batch.RestartJobAction {
			left = 2
		}
		for over := false; !over; {
			select {
			case e := <-changes.ResultChan():
				j, ok := e.Object.(*batch.Job)
				if !ok {
					p.t.Fatalf("the watch tells of %T", e.Object)
				}
				s := j.Status
				ending = ending || s.State.Phase == phases[0] && s.Terminating > 0
				over = s.State.Phase == phases[1] && s.Pending+s.Terminating == 0 && s.Running == left && s.RetryCount == left/2
				if s.State.Phase != batch.Running && s.State.Phase != batch.Pending && !slices.Contains(phases, s.State.Phase) {
					p.t.Errorf("%s leads to %s", action, volcanoLine(j))
				}
			case <-limit:
				p.t.Fatalf("%s does not lead to %s", action, phases[1])
			}
		}
		changes.Stop()
		if !ending {
			p.t.Errorf("%s was not seen with pods that are being ended", phases[0])
		}
		p.remove(from.Name)
	}
}

// comeAndGo makes many Jobs, PodGroups and Queues at the same time, and deletes them.
func comeAndGo(p *vcPlay) {
	p.t.Helper()
	const many = 50
	each := func(what string, do func(i int) error) {
		p.t.Helper()
		errs := make([]error, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() { errs[i] = do(i) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			p.t.Fatalf("%s: %v", what, err)
		}
	}
	name := func(i int) string { return fmt.Sprintf("many-%d", i) }
	each("making Queues", func(i int) error {
		_, err := p.vc.Queues().Create(p.ctx, &scheduling.Queue{
			TypeMeta: metav1.TypeMeta{APIVersion: scheduling.GroupVersion.String(), Kind: "Queue"}, ObjectMeta: metav1.ObjectMeta{Name: name(i)}, Spec: scheduling.QueueSpec{Weight: 1},
		}, metav1.CreateOptions{})
		return err
	})
	each("making PodGroups", func(i int) error {
		g := &scheduling.PodGroup{
			TypeMeta: metav1.TypeMeta{APIVersion: scheduling.GroupVersion.String(), Kind: "PodGroup"}, ObjectMeta: metav1.ObjectMeta{Name: name(i)}, Spec: scheduling.PodGroupSpec{MinMember: 1},
		}
		// The API server looks every five seconds what kinds its policies must know, and asks clients to come back until then.
		return wait.PollUntilContextTimeout(p.ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := p.vc.PodGroups(p.ns).Create(ctx, g, metav1.CreateOptions{})
			if apierrors.IsServiceUnavailable(err) {
				return false, nil
			}
			return err == nil, err
		})
	})
	each("making Jobs", func(i int) error {
		j := &batch.Job{}
		if err := yaml.Unmarshal(aJob(name(i), `tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}]`), j); err != nil {
			return err
		}
		_, err := p.vc.Jobs(p.ns).Create(p.ctx, j, metav1.CreateOptions{})
		return err
	})
	p.until("all Jobs have ended, and all PodGroups and Queues have their state", func() bool {
		jobs, err := p.vc.Jobs(p.ns).List(p.ctx, metav1.ListOptions{})
		p.must(err)
		groups, err := p.vc.PodGroups(p.ns).List(p.ctx, metav1.ListOptions{})
		p.must(err)
		queues, err := p.vc.Queues().List(p.ctx, metav1.ListOptions{})
		p.must(err)
		open := 0
		for i := range queues.Items {
			if strings.HasPrefix(queues.Items[i].Name, "many-") && queues.Items[i].Status.State == scheduling.QueueOpen {
				open++
			}
		}
		return len(jobs.Items) == many && open == many && len(groups.Items) == many && // those of the Jobs are gone
			!slices.ContainsFunc(jobs.Items, func(j batch.Job) bool { return volcanoLine(&j) != "Completed succeeded=1" }) &&
			!slices.ContainsFunc(groups.Items, func(g scheduling.PodGroup) bool { return g.Status.Phase != scheduling.GroupInqueue })
	})
	each("deleting", func(i int) error {
		return errors.Join(p.vc.Jobs(p.ns).Delete(p.ctx, name(i), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}),
			p.vc.PodGroups(p.ns).Delete(p.ctx, name(i), metav1.DeleteOptions{}), p.vc.Queues().Delete(p.ctx, name(i), metav1.DeleteOptions{}))
	})
	p.until("all is gone", func() bool {
		jobs, err := p.vc.Jobs(p.ns).List(p.ctx, metav1.ListOptions{})
		p.must(err)
		groups, err := p.vc.PodGroups(p.ns).List(p.ctx, metav1.ListOptions{})
		p.must(err)
		queues, err := p.vc.Queues().List(p.ctx, metav1.ListOptions{})
		p.must(err)
		return len(jobs.Items)+len(groups.Items)+len(p.pods()) == 0 &&
			!slices.ContainsFunc(queues.Items, func(q scheduling.Queue) bool { return strings.HasPrefix(q.Name, "many-") })
	})
}

// taintNode has the node take no pods while Jobs have lost one, or have none yet, and then take them again.
func taintNode(pl *plane.Plane, p *vcPlay) {
	p.t.Helper()
	t := p.t
	nodes, err := p.kube.CoreV1().Nodes().List(p.ctx, metav1.ListOptions{})
	p.must(err)
	taint := func(taints string) {
		t.Helper()
		_, err := p.kube.CoreV1().Nodes().Patch(p.ctx, nodes.Items[0].Name, types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
		p.must(err)
	}
	jobs := map[string]*vcPlay{} // by name
	for name, policy := range map[string]string{"p9": "{event: Unknown, action: RestartJob}", "p10": "{event: Unknown, action: AbortJob}"} {
		j := *p
		j.create(aJob(name, `policies: [`+policy+`], tasks: [{name: t, replicas: 2, template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{C}]}}}]`))
		jobs[name] = &j
	}
	for _, j := range jobs {
		j.becomes("Running running=2")
	}
	taint(`[{"key":"example.com/full","effect":"NoSchedule"}]`)
	for name := range jobs {
		p.must(p.kube.CoreV1().Pods(p.ns).Delete(p.ctx, name+"-t-0", metav1.DeleteOptions{}))
	}
	aborted := jobs["p10"].becomes("Aborted")
	if aborted.Status.State.Reason != "Unknown" {
		t.Errorf("it is aborted because of %s: %s", aborted.Status.State.Reason, aborted.Status.State.Message)
	}
	if n := len(aborted.Status.Conditions); n < 2 || aborted.Status.Conditions[n-2].Status != batch.Aborting { // perhaps after one more Pending
		t.Errorf("it has gone through %+v", aborted.Status.Conditions)
	}
	jobs["p9"].becomes("Pending retries=1 pending=2")

	// One that comes now waits, and can be deleted by Volcano's tool (C4).
	c4 := *p
	c4.create(aJob("c4", `tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, containers: [{C}]}}}]`))
	c4.becomes("Pending pending=1")
	c4.until("the PodGroup says why", func() bool { return len(c4.group().Status.Conditions) > 0 })
	vcctl := filepath.Join(t.TempDir(), "vcctl")
	p.must(os.Symlink(plane.Binary(t), vcctl))
	if out, err := exec.Command(vcctl, "job", "delete", "--kubeconfig", pl.Kubeconfig, "--namespace", p.ns, "--name", "c4").CombinedOutput(); err != nil || string(out) != "delete job c4 successfully\n" {
		t.Errorf("vcctl says %q (%v)", out, err)
	}
	c4.awaitGone("the Job", func() error {
		_, err := p.vc.Jobs(p.ns).Get(p.ctx, "c4", metav1.GetOptions{})
		return err
	})
	c4.awaitGone("its PodGroup", func() error {
		_, err := p.vc.PodGroups(p.ns).Get(p.ctx, scheduling.JobGroupName("c4", c4.job.UID), metav1.GetOptions{})
		return err
	})
	c4.awaitGone("its pod", func() error {
		_, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "c4-t-0", metav1.GetOptions{})
		return err
	})

	taint("null")
	running := jobs["p9"].becomes("Running retries=1 running=2")
	jobs["p9"].went(running, batch.Restarting, batch.Pending, batch.Running)
	for name := range jobs {
		p.must(p.vc.Jobs(p.ns).Delete(p.ctx, name, metav1.DeleteOptions{}))
	}
	p.until("the pods are gone", func() bool { return len(p.pods()) == 0 })
}

// makeThousands makes a Job of ten thousand pods, which no scheduler looks at, and counts what the API server is asked for until all
// of them are there.
func makeThousands(pl *plane.Plane, p *vcPlay) {
	p.t.Helper()
	const pods = 10_000
	line := regexp.MustCompile(`(?m)^apiserver_request_total\{code="(\d+)",.*,group="(.*?)",resource="(.*?)",.*,subresource="(.*?)",verb="(.*?)",.*\} (\S+)$`)
	writes := func(group, resource, subresource string) map[string]int { // by verb and code
		text, err := p.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(p.ctx)
		p.must(err)
		n := map[string]int{}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			if m[2] == group && m[3] == resource && m[4] == subresource && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, m[5]) {
				value, err := strconv.ParseFloat(m[6], 64)
				p.must(err)
				n[m[5]+" "+m[1]] += int(value)
			}
		}
		return n
	}
	since := func(before, after map[string]int) (sum int) {
		for key := range after {
			if after[key] -= before[key]; after[key] == 0 {
				delete(after, key)
			}
			sum += after[key]
		}
		return sum
	}
	podsBefore, jobsBefore, began := writes("", "pods", ""), writes(batch.GroupVersion.Group, "jobs", "status"), time.Now()
	p.create(aJob("j", fmt.Sprintf(`schedulerName: nobody, minAvailable: 1, plugins: {env: []}, tasks: [{name: t, replicas: %d, template: {spec: {restartPolicy: Never, containers: [{C}]}}}]`, pods)))
	p.becomes(fmt.Sprintf("Pending pending=%d", pods))
	took := time.Since(began)
	podsAfter, jobsAfter := writes("", "pods", ""), writes(batch.GroupVersion.Group, "jobs", "status")
	podWrites, jobWrites := since(podsBefore, podsAfter), since(jobsBefore, jobsAfter)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pl.PID()))
	p.must(err)
	memory := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
	if memory == nil {
		p.t.Fatal("the kernel does not tell how much memory the plane has used")
	}
	most, err := strconv.Atoi(string(memory[1]))
	p.must(err)
	p.t.Logf("%d pods took %s, writes of pods %v, of the status %v; the whole plane has used up to %d MiB", pods, took.Round(time.Millisecond), podsAfter, jobsAfter, most>>10)
	if podWrites < pods || podWrites > pods+pods/20 { // those that wait for an answer when a look begins are made once more, and are there
		p.t.Errorf("the pods took %d writes, want hardly more than %d", podWrites, pods)
	}
	if jobWrites > pods/50 {
		p.t.Errorf("the status took %d writes, want fewer than %d", jobWrites, pods/50)
	}
	if most > 3<<20 {
		p.t.Errorf("the plane has used up to %d MiB", most>>10)
	}
}

// serveBehindService runs two of drover-controller as in a cluster, where the API server reaches them by a Service. Another holds the
// lease: webhooks are served by those that stand by as well. It takes the webhooks of the plane over, and so comes last.
func serveBehindService(t *testing.T, p *plane.Plane) {
	t.Helper()
	ctx, kube := t.Context(), p.Client()
	_, err := kube.CoordinationV1().Leases("kube-system").Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "held"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hooks := kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	served := func() string { // starts one and returns its address
		out := &lockedOutput{}
		cmd := exec.Command(filepath.Join(filepath.Dir(plane.Binary(t)), "drover-controller"), "--kubeconfig", p.Kubeconfig, "--leader-elect-namespace=kube-system", "--leader-elect-name=held",
			"--webhook-bind-address=127.0.0.1:0", "--webhook-service=drover-system/hooks", "--webhook-secret=default/hooks-tls")
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("drover-controller: %v\n%s", err, out.String())
			}
		})
		address := ""
		await(t, p, "the webhooks of drover-controller", func(kubernetes.Interface) (bool, error) {
			if m := regexp.MustCompile(`Webhooks are served.* address=(\S+)`).FindStringSubmatch(out.String()); m != nil {
				address = m[1]
			}
			return address != "", nil
		})
		return address
	}
	first := served()
	known, err := hooks.Get(ctx, config.WebhooksName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reach := known.Webhooks[0].ClientConfig
	if s := reach.Service; reach.URL != nil || s == nil || s.Namespace+"/"+s.Name+*s.Path != "drover-system/hooks/jobs/validate" || *s.Port != 443 {
		t.Fatalf("the API server is to ask %+v", reach)
	}
	second := served()
	after, err := hooks.Get(ctx, config.WebhooksName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != known.ResourceVersion {
		t.Error("the second one has registered otherwise than the first")
	}
	changing, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, config.WebhooksName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(changing.Webhooks[0].ClientConfig.CABundle, reach.CABundle) {
		t.Error("the webhooks have different authorities")
	}
	for _, address := range []string{first, second} {
		if refusal := askWebhook(t, address, reach.CABundle); !strings.Contains(refusal, "job 'minAvailable' should not be greater than total replicas in tasks") {
			t.Errorf("%s answers %q", address, refusal)
		}
	}
}

// askWebhook asks a process as an API server would that has resolved the Service to its address, and returns why a bad Job is refused.
func askWebhook(t *testing.T, address string, authorities []byte) string {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		t.Fatal("the registration has no authority")
	}
	httpClient := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	var object any
	if err := yaml.Unmarshal(aJob("j", "queue: default, minAvailable: 2, tasks: [{name: a, replicas: 1, template: T}]"), &object); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	review, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "u", Operation: admissionv1.Create, Namespace: "default", Object: runtime.RawExtension{Raw: raw},
	}})
	if err != nil {
		t.Fatal(err)
	}
	response, err := httpClient.Post("https://hooks.drover-system.svc/jobs/validate", "application/json", bytes.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer admissionv1.AdmissionReview
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || answer.Response == nil || answer.Response.UID != "u" || answer.Response.Allowed {
		t.Fatalf("answer %s: %v", text, err)
	}
	return answer.Response.Result.Message
}
