// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// vcPlay is a Job of Volcano on a plane, in a namespace of its own.
type vcPlay struct {
	t    *testing.T
	ctx  context.Context
	kube kubernetes.Interface
	vc   *client.Client
	ns   string
	job  *batch.Job
}

// newVCPlay makes the namespace.
func newVCPlay(t *testing.T, kube kubernetes.Interface, vc *client.Client, namespace string) *vcPlay {
	t.Helper()
	p := &vcPlay{t: t, ctx: t.Context(), kube: kube, vc: vc, ns: namespace, job: &batch.Job{}}
	_, err := kube.CoreV1().Namespaces().Create(p.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	p.must(err)
	return p
}

// readManifest reads the first document of a file of testdata/manifests into o.
func readManifest(t *testing.T, dir, file string, o any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "manifests", dir, file))
	if err == nil {
		first, _, _ := strings.Cut(string(text), "\n---")
		err = yaml.Unmarshal([]byte(first), o)
	}
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
}

func (p *vcPlay) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// runs has a container of a task run another command, and ask for little CPU: the machine may be small.
func (p *vcPlay) runs(task string, command ...string) {
	p.t.Helper()
	i := slices.IndexFunc(p.job.Spec.Tasks, func(t batch.TaskSpec) bool { return t.Name == task })
	if i < 0 {
		p.t.Fatalf("there is no task %q", task)
	}
	c := &p.job.Spec.Tasks[i].Template.Spec.Containers[0]
	c.Command, c.Args = command, nil
	for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		if cpu, asked := list[corev1.ResourceCPU]; asked {
			list[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu.MilliValue()/100, resource.DecimalSI)
		}
	}
}

// create makes a Job from its text. It is the one that p is about from now on.
func (p *vcPlay) create(text []byte) {
	p.t.Helper()
	p.job = &batch.Job{}
	p.must(yaml.Unmarshal(text, p.job))
	p.apply()
}

// apply makes the Job. From now on it is as the API server has it.
func (p *vcPlay) apply() {
	p.t.Helper()
	var err error
	p.job, err = p.vc.Jobs(p.ns).Create(p.ctx, p.job, metav1.CreateOptions{})
	p.must(err)
}

// refused applies the Job and returns why it is refused.
func (p *vcPlay) refused() string {
	p.t.Helper()
	_, err := p.vc.Jobs(p.ns).Create(p.ctx, p.job.DeepCopy(), metav1.CreateOptions{})
	if err == nil {
		p.t.Fatal("it is accepted")
	}
	if _, err := p.vc.Jobs(p.ns).Get(p.ctx, p.job.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		p.t.Errorf("it is stored (%v)", err)
	}
	return err.Error()
}

// command sends a Command to the Job.
func (p *vcPlay) command(action batch.Action) {
	p.t.Helper()
	target := *metav1.NewControllerRef(p.job, batch.GroupVersion.WithKind("Job"))
	_, err := p.vc.Commands(p.ns).Create(p.ctx, &bus.Command{
		TypeMeta:   metav1.TypeMeta{APIVersion: bus.GroupVersion.String(), Kind: "Command"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: strings.ToLower(p.job.Name + "-" + string(action) + "-"), OwnerReferences: []metav1.OwnerReference{target}},
		Action:     string(action), TargetObject: &target,
	}, metav1.CreateOptions{})
	p.must(err)
}

// await asks for the Job until ok likes it.
func (p *vcPlay) await(what string, ok func(j *batch.Job) bool) *batch.Job {
	p.t.Helper()
	last := p.job
	err := wait.PollUntilContextTimeout(p.ctx, pollEvery, outcomeLimit, true, func(ctx context.Context) (bool, error) {
		j, err := p.vc.Jobs(p.ns).Get(ctx, p.job.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = j
		return ok(j), nil
	})
	if err != nil {
		p.t.Fatalf("the Job is not %s, but %s (%s: %s): %v", what, volcanoLine(last), last.Status.State.Reason, last.Status.State.Message, err)
	}
	return last
}

// becomes waits until volcanoLine says so of the Job.
func (p *vcPlay) becomes(line string) *batch.Job {
	p.t.Helper()
	return p.await(line, func(j *batch.Job) bool { return volcanoLine(j) == line })
}

// ends awaits the end of the Job, and checks what must hold of every Job that has ended. phases are those it has gone through.
func (p *vcPlay) ends(line string, phases ...batch.JobPhase) *batch.Job {
	p.t.Helper()
	j := p.becomes(line)
	p.went(j, phases...)
	p.await("without what belonged to it", func(j *batch.Job) bool {
		for key := range j.Status.ControlledResources {
			if strings.HasPrefix(key, "plugin-") {
				return false
			}
		}
		_, err := p.vc.PodGroups(p.ns).Get(p.ctx, scheduling.JobGroupName(j.Name, j.UID), metav1.GetOptions{})
		_, errService := p.kube.CoreV1().Services(p.ns).Get(p.ctx, j.Name, metav1.GetOptions{})
		_, errMap := p.kube.CoreV1().ConfigMaps(p.ns).Get(p.ctx, j.Name+"-svc", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(errService) && apierrors.IsNotFound(errMap)
	})
	for _, pod := range p.pods() {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			p.t.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
		}
	}
	return j
}

// went checks through which phases a Job has gone. Conditions keep each once, the latest last.
func (p *vcPlay) went(j *batch.Job, phases ...batch.JobPhase) {
	p.t.Helper()
	var got []batch.JobPhase
	for _, c := range j.Status.Conditions {
		got = append(got, c.Status)
	}
	if diff := cmp.Diff(phases, got); diff != "" {
		p.t.Errorf("phases (-want +got):\n%s", diff)
	}
}

// until waits for what is to come.
func (p *vcPlay) until(what string, ok func() bool) {
	p.t.Helper()
	if err := wait.PollUntilContextTimeout(p.ctx, pollEvery, outcomeLimit, true, func(context.Context) (bool, error) { return ok(), nil }); err != nil {
		p.t.Fatalf("waiting until %s: %v", what, err)
	}
}

func (p *vcPlay) pods() []corev1.Pod {
	p.t.Helper()
	list, err := p.kube.CoreV1().Pods(p.ns).List(p.ctx, metav1.ListOptions{})
	p.must(err)
	return list.Items
}

func (p *vcPlay) pod(name string) *corev1.Pod {
	p.t.Helper()
	pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, name, metav1.GetOptions{})
	p.must(err)
	return pod
}

func (p *vcPlay) podNames() string {
	p.t.Helper()
	var names []string
	for _, pod := range p.pods() {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// objects names what plugins have made.
func (p *vcPlay) objects() []string {
	p.t.Helper()
	var names []string
	services, err := p.kube.CoreV1().Services(p.ns).List(p.ctx, metav1.ListOptions{})
	p.must(err)
	for i := range services.Items {
		names = append(names, "Service/"+services.Items[i].Name)
	}
	maps, err := p.kube.CoreV1().ConfigMaps(p.ns).List(p.ctx, metav1.ListOptions{})
	p.must(err)
	for i := range maps.Items {
		if maps.Items[i].Name != "kube-root-ca.crt" {
			names = append(names, "ConfigMap/"+maps.Items[i].Name)
		}
	}
	secrets, err := p.kube.CoreV1().Secrets(p.ns).List(p.ctx, metav1.ListOptions{})
	p.must(err)
	for i := range secrets.Items {
		names = append(names, "Secret/"+secrets.Items[i].Name)
	}
	policies, err := p.kube.NetworkingV1().NetworkPolicies(p.ns).List(p.ctx, metav1.ListOptions{})
	p.must(err)
	for i := range policies.Items {
		names = append(names, "NetworkPolicy/"+policies.Items[i].Name)
	}
	return names
}

func (p *vcPlay) group() *scheduling.PodGroup {
	p.t.Helper()
	g, err := p.vc.PodGroups(p.ns).Get(p.ctx, scheduling.JobGroupName(p.job.Name, p.job.UID), metav1.GetOptions{})
	p.must(err)
	return g
}

func (p *vcPlay) log(pod string) string {
	p.t.Helper()
	text, err := p.kube.CoreV1().Pods(p.ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(p.ctx)
	p.must(err)
	return strings.TrimSpace(string(text))
}

// awaitLog returns what a pod has printed, once it contains a text.
func (p *vcPlay) awaitLog(pod, contains string) string {
	p.t.Helper()
	var text string
	err := wait.PollUntilContextTimeout(p.ctx, pollEvery, outcomeLimit, true, func(ctx context.Context) (bool, error) {
		raw, err := p.kube.CoreV1().Pods(p.ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		text = string(raw)
		return err == nil && strings.Contains(text, contains), nil
	})
	if err != nil {
		p.t.Fatalf("pod %s does not print %q: %v; it has printed:\n%s", pod, contains, err, text)
	}
	return text
}

// awaitEvent waits for an event on the Job whose message has a word.
func (p *vcPlay) awaitEvent(reason, word string) {
	p.t.Helper()
	err := wait.PollUntilContextTimeout(p.ctx, pollEvery, outcomeLimit, true, func(ctx context.Context) (bool, error) {
		list, err := p.kube.CoreV1().Events(p.ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.job.Name + ",reason=" + reason})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, word) }), nil
	})
	if err != nil {
		p.t.Errorf("there is no event %s about %s: %v", reason, word, err)
	}
}

// remove deletes a Job, and waits until it and its pods are gone.
func (p *vcPlay) remove(name string) {
	p.t.Helper()
	p.must(p.vc.Jobs(p.ns).Delete(p.ctx, name, metav1.DeleteOptions{}))
	p.awaitGone("the pods", func() error {
		if len(p.pods()) > 0 {
			return nil
		}
		_, err := p.vc.Jobs(p.ns).Get(p.ctx, name, metav1.GetOptions{})
		return err
	})
}

// awaitGone waits until get finds nothing.
func (p *vcPlay) awaitGone(what string, get func() error) {
	p.t.Helper()
	if err := wait.PollUntilContextTimeout(p.ctx, pollEvery, outcomeLimit, true, func(context.Context) (bool, error) { return apierrors.IsNotFound(get()), nil }); err != nil {
		p.t.Fatalf("waiting for %s to go: %v", what, err)
	}
}

// awaitAdmission waits until a plane that has only just started fills in what Jobs leave out.
func awaitAdmission(t *testing.T, vc *client.Client) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollEvery, outcomeLimit, true, func(ctx context.Context) (bool, error) {
		j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: batch.JobSpec{Tasks: []batch.TaskSpec{{Replicas: 1}}}}
		j.APIVersion, j.Kind = batch.GroupVersion.String(), "Job"
		j.Spec.Tasks[0].Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "busybox"}}
		j, last = vc.Jobs("default").Create(ctx, j, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return last == nil && j.Spec.SchedulerName != "", nil
	})
	if err != nil {
		t.Fatalf("Jobs of Volcano are not admitted: %v: %v", err, last)
	}
}
