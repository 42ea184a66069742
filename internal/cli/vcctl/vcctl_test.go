// SPDX-License-Identifier: Apache-2.0

package vcctl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/flow"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

var t0 = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

func testEnv(environment map[string]string) (env *Env, out *bytes.Buffer) {
	out = &bytes.Buffer{}
	return &Env{
		Streams: command.Streams{In: strings.NewReader(""), Out: out, ErrOut: out},
		Now:     func() time.Time { return t0 },
		Getenv:  func(name string) string { return environment[name] },
		Config:  func(string, string) (*rest.Config, error) { return nil, errors.New("no cluster") },
	}, out
}

// find returns the command at a path, as "vcctl job run".
func find(t *testing.T, env *Env, path string) *cobra.Command {
	t.Helper()
	words := strings.Fields(path)
	cmd := NewCommand("/usr/local/bin/"+words[0], env)
	if cmd == nil {
		t.Fatalf("there is no tool %s", words[0])
	}
	found, rest, err := cmd.Find(words[1:])
	if err != nil || len(rest) > 0 {
		t.Fatalf("finding %q: %v, left %v", path, err, rest)
	}
	return found
}

func TestFlagsAreThoseOfVolcano(t *testing.T) {
	const common = " --kubeconfig/-k= --master/-s="
	cases := map[string]string{
		"vcctl job run": "--filename/-f= --image/-i=busybox --kubeconfig/-k= --limits/-L=cpu=1000m,memory=100Mi --master/-s= --min/-m=1 --name/-N= " +
			"--namespace/-n=default --replicas/-r=1 --requests/-R=cpu=1000m,memory=100Mi --scheduler/-S=volcano",
		"vcctl job list":             "--all-namespaces=false --kubeconfig/-k= --master/-s= --namespace/-n=default --queue/-q= --scheduler/-S= --selector=",
		"vcctl job view":             common[1:] + " --name/-N= --namespace/-n=default",
		"vcctl job suspend":          common[1:] + " --name/-N= --namespace/-n=default",
		"vcctl job resume":           common[1:] + " --name/-N= --namespace/-n=default",
		"vcctl job delete":           common[1:] + " --name/-N= --namespace/-n=default",
		"vcctl queue create":         common[1:] + " --name/-n=test --state/-S=Open --weight/-w=1",
		"vcctl queue delete":         common[1:] + " --name/-n=",
		"vcctl queue operate":        "--action/-a=" + common + " --name/-n= --weight/-w=0",
		"vcctl queue list":           common[1:],
		"vcctl queue get":            common[1:] + " --name/-n=",
		"vcctl jobflow create":       "--file/-f=" + common,
		"vcctl jobflow list":         "--all-namespaces=false" + common + " --namespace/-n=default",
		"vcctl jobflow get":          common[1:] + " --name/-N= --namespace/-n=default",
		"vcctl jobflow delete":       "--file/-f=" + common + " --name/-N= --namespace/-n=default",
		"vcctl jobtemplate get":      common[1:] + " --name/-N= --namespace/-n=default",
		"vcctl jobtemplate describe": "--format/-o=yaml" + common + " --name/-N= --namespace/-n=default",
		"vcctl pod list":             "--all-namespaces=false --job/-j=" + common + " --namespace/-n=default --queue/-q=",
		"vcctl version":              "",
		"vsub": "--command/-c= --image/-i=busybox --kubeconfig/-k= --limits/-L=cpu=1000m,memory=100Mi --master/-s= --min/-m=1 --name/-n= " +
			"--namespace/-N=default --replicas/-r=1 --requests/-R=cpu=1000m,memory=100Mi --scheduler/-S=volcano",
		"vjobs":    "--all-namespaces=false" + common + " --name/-n= --namespace/-N=default --scheduler/-S= --selector=",
		"vqueues":  common[1:] + " --name/-n=",
		"vcancel":  common[1:] + " --name/-n= --namespace/-N=default",
		"vsuspend": common[1:] + " --name/-n= --namespace/-N=default",
		"vresume":  common[1:] + " --name/-n= --namespace/-N=default",
	}
	for path, want := range cases {
		t.Run(path, func(t *testing.T) {
			env, _ := testEnv(nil)
			var got []string
			find(t, env, path).Flags().VisitAll(func(f *pflag.Flag) {
				name := "--" + f.Name
				if f.Shorthand != "" {
					name += "/-" + f.Shorthand
				}
				got = append(got, name+"="+f.DefValue)
			})
			slices.Sort(got)
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOtherProgramsAreNoTools(t *testing.T) {
	env, _ := testEnv(nil)
	for _, name := range []string{"drover", "/bin/vcctl/drover", "vc", ""} {
		if NewCommand(name, env) != nil {
			t.Errorf("%q is a tool", name)
		}
	}
}

func TestErrorsSayWhatFailed(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"no cluster":         {[]string{"vcctl", "job", "list"}, "Failed to list jobs: no cluster"},
		"an unknown flag":    {[]string{"vcctl", "job", "list", "--nope"}, "unknown flag: --nope"},
		"an unknown command": {[]string{"vcctl", "nope"}, `unknown command "nope" for "vcctl"`},
		"an argument":        {[]string{"vsuspend", "j"}, `unknown command "j" for "vsuspend"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			env, _ := testEnv(nil)
			cmd := NewCommand(tc.args[0], env)
			cmd.SetArgs(tc.args[1:])
			if err := cmd.Execute(); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

func TestRunMakesAJob(t *testing.T) {
	o := &runOptions{Name: "j", Namespace: "ns", Image: "busybox", Scheduler: "volcano", Requests: "cpu=100m,memory=1Mi", Min: 2, Replicas: 3, Command: "echo hi"}
	want := &batch.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"},
		Spec: batch.JobSpec{MinAvailable: 2, SchedulerName: "volcano", Tasks: []batch.TaskSpec{{
			Replicas: 3,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Name: "j", Labels: map[string]string{"job.volcano.sh": "j"}},
				Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
					Name: "j", Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", "echo hi"},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("1Mi"),
					}},
				}}},
			},
		}}},
	}
	got, err := o.job()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

func TestRunRefuses(t *testing.T) {
	cases := map[string]struct {
		o    runOptions
		want string
	}{
		"no name":                    {runOptions{}, "job name cannot be left blank"},
		"resources that are none":    {runOptions{Name: "j", Requests: "cpu"}, `reading --requests: "cpu" is not resource=amount`},
		"an amount that is none":     {runOptions{Name: "j", Limits: "cpu=much"}, `reading --limits: the amount "much": ` + resource.ErrFormatWrong.Error()},
		"a file that is no YAML":     {runOptions{File: "job.json"}, `the file "job.json": only files that end with .yaml or .yml are read`},
		"a file that does not exist": {runOptions{File: "nowhere.yaml"}, "open nowhere.yaml: no such file or directory"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.o.job(); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

func TestRunReadsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("kind: Job\nmetadata: {name: j}\nspec: {minAvailable: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (&runOptions{File: file, Namespace: "ns", Name: "other"}).job()
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "j" || got.Namespace != "ns" || got.Spec.MinAvailable != 2 {
		t.Errorf("job %s/%s with minAvailable %d", got.Namespace, got.Name, got.Spec.MinAvailable)
	}
}

func TestEnvironmentGivesDefaultsOfVsub(t *testing.T) {
	env, _ := testEnv(map[string]string{"VOLCANO_DEFAULT_IMAGE": "perl", "VOLCANO_DEFAULT_JOB_NAMESPACE": "team", "VOLCANO_SCHEDULER_NAME": "other"})
	for flag, want := range map[string]string{"image": "perl", "namespace": "team", "scheduler": "other"} {
		if got := find(t, env, "vsub").Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %q, want %q", flag, got, want)
		}
	}
}

func volcanoJob(namespace, name string, options ...func(*batch.Job)) batch.Job {
	j := batch.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", CreationTimestamp: metav1.NewTime(t0)},
		Spec:       batch.JobSpec{Queue: "default", SchedulerName: "volcano", MinAvailable: 2, MaxRetry: 3, Tasks: []batch.TaskSpec{{Name: "t", Replicas: 2}, {Name: "u", Replicas: 1}}},
		Status:     batch.JobStatus{State: batch.JobState{Phase: batch.Running}, Running: 2, Pending: 1, RetryCount: 1},
	}
	for _, o := range options {
		o(&j)
	}
	return j
}

func TestJobsAreListedInVolcanosColumns(t *testing.T) {
	jobs := []batch.Job{
		volcanoJob("ns", "short"),
		volcanoJob("other", "a-longer-name", func(j *batch.Job) { j.Spec.Queue, j.Labels = "prod", map[string]string{batch.JobTypeKey: "MPI"} }),
		volcanoJob("ns", "elsewhere", func(j *batch.Job) { j.Spec.SchedulerName = "kube" }),
	}
	cases := map[string]struct {
		o    listOptions
		want string
	}{
		"all": {listOptions{Scheduler: "volcano"}, `
Name            Creation       Phase       JobType     Replicas    Min   Pending   Running   Succeeded   Failed    Unknown     RetryCount
short           2026-03-02     Running     Batch       3           2     1         2         0           0         0           1         
a-longer-name   2026-03-02     Running     MPI         3           2     1         2         0           0         0           1         
`},
		"with their namespaces": {listOptions{AllNamespaces: true, Selector: "short"}, `
Namespace   Name    Creation       Phase       JobType     Replicas    Min   Pending   Running   Succeeded   Failed    Unknown     RetryCount
ns          short   2026-03-02     Running     Batch       3           2     1         2         0           0         0           1         
`},
		"of one queue": {listOptions{Queue: "prod"}, `
Name            Creation       Phase       JobType     Replicas    Min   Pending   Running   Succeeded   Failed    Unknown     RetryCount
a-longer-name   2026-03-02     Running     MPI         3           2     1         2         0           0         0           1         
`},
		"none": {listOptions{Selector: "nope"}, "\nNo resources found\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want[1:], jobTable(jobs, &tc.o)); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneJobIsShownInFull(t *testing.T) {
	j := volcanoJob("ns", "j", func(j *batch.Job) {
		j.Labels = map[string]string{"b": "2", "a": "1"}
		j.Status.State.Message = "all is well"
		j.Status.Conditions = []batch.JobCondition{{Status: batch.Running, LastTransitionTime: &metav1.Time{Time: t0}}}
		j.Spec.Tasks[0].Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "busybox", Command: []string{"sleep", "1"}}}
	})
	events := []corev1.Event{{Type: "Normal", Reason: "Created", Message: "made", LastTimestamp: metav1.NewTime(t0.Add(-time.Minute))}}
	want := `Name:          j
Namespace:     ns
Labels:        a=1
               b=2
Annotations:   <none>
API Version:   batch.volcano.sh/v1alpha1
Kind:          Job
Metadata:
  Creation Timestamp: 2026-03-02T10:00:00Z
  UID:         u
Spec:
  Min Available: 2
  Queue:       default
  Scheduler Name: volcano
  Max Retry:   3
  Tasks:
    Name:      t
    Replicas:  2
    Container: c
      Image:   busybox
      Command: sleep 1
    Name:      u
    Replicas:  1
Status:
  State:
    Phase:     Running
    Message:   all is well
  Pending:     1
  Running:     2
  Retry Count: 1
  Conditions:
    Running:   2026-03-02T10:00:00Z
Events:
Type           Reason                   Age            Message
Normal         Created                  60s            made
`
	if diff := cmp.Diff(want, jobView(&j, events, t0)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}

func TestQueuesAreListedWithTheirGroups(t *testing.T) {
	group := func(queue string, phase scheduling.PodGroupPhase) scheduling.PodGroup {
		return scheduling.PodGroup{Spec: scheduling.PodGroupSpec{Queue: queue}, Status: scheduling.PodGroupStatus{Phase: phase}}
	}
	queues := []scheduling.Queue{
		{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: scheduling.QueueSpec{Weight: 1}, Status: scheduling.QueueStatus{State: scheduling.QueueOpen}},
		{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: scheduling.QueueSpec{Weight: 2, Parent: "root"}, Status: scheduling.QueueStatus{State: scheduling.QueueClosed}},
	}
	groups := []scheduling.PodGroup{group("default", ""), group("default", scheduling.GroupRunning), group("default", scheduling.GroupRunning), group("gone", scheduling.GroupRunning)}
	want := `Name      Weight  State   Parent  Inqueue Pending Running Unknown Completed 
root      1       Open            0       0       0       0       0         
default   2       Closed  root    0       1       2       0       0         
`
	if diff := cmp.Diff(want, queueTable(queues, groups)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestPodsAreListedInVolcanosColumns(t *testing.T) {
	pods := []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j-t-0", CreationTimestamp: metav1.NewTime(t0.Add(-time.Minute))},
		Spec:       corev1.PodSpec{Containers: make([]corev1.Container, 2)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Ready: true, RestartCount: 2}}},
	}}
	want := `Namespace   Name    Ready   Status      Restart   Age       
ns          j-t-0   1/2     Running     2         60s       
`
	if diff := cmp.Diff(want, podTable(pods, true, t0)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestFlowsAreReadAndListed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flows.yaml")
	text := "metadata: {name: a}\nspec: {flows: [{name: x}]}\n---\nmetadata: {name: b, namespace: ns}\n---\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := jobFlows.read(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for _, o := range objects {
		o.SetCreationTimestamp(metav1.NewTime(t0.Add(-time.Minute)))
		o.(*flow.JobFlow).Status.State.Phase = flow.Running
		all = append(all, o.(*flow.JobFlow))
	}
	want := `Name   Namespace      Phase       Age       
a      default        Running     60s       
b      ns             Running     60s       
`
	if diff := cmp.Diff(want, jobFlows.table(all, t0)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	yaml, err := jobFlows.describe(all[0], "yaml")
	if err != nil || !strings.Contains(yaml, "kind: JobFlow\n") || !strings.Contains(yaml, "- name: x\n") {
		t.Errorf("described as (%v):\n%s", err, yaml)
	}
	if _, err := jobFlows.describe(all[0], "xml"); err == nil {
		t.Error("the format xml is known")
	}
}
