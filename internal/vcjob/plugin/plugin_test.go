// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

func newJob(plugins map[string][]string, tasks ...batch.TaskSpec) *batch.Job {
	return &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Spec: batch.JobSpec{Plugins: plugins, Tasks: tasks}}
}

func of(t *testing.T, j *batch.Job) []Named {
	t.Helper()
	all, err := Of(j)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "j-ps-3"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, InitContainers: []corev1.Container{{Name: "i"}}},
	}
}

// edited returns the spec of a pod after all plugins of j have edited it twice.
func edited(t *testing.T, j *batch.Job) corev1.PodSpec {
	t.Helper()
	p := newPod()
	for range 2 {
		for _, each := range of(t, j) {
			if err := each.Edit(Pod{Pod: p, Index: 3}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return p.Spec
}

func TestEnvTellsEveryContainerItsIndexOnce(t *testing.T) {
	vars := []corev1.EnvVar{{Name: "VK_TASK_INDEX", Value: "3"}, {Name: "VC_TASK_INDEX", Value: "3"}}
	want := corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Env: vars}}, InitContainers: []corev1.Container{{Name: "i", Env: vars}},
	}
	if diff := cmp.Diff(want, edited(t, newJob(map[string][]string{"env": nil}, batch.TaskSpec{Name: "ps", Replicas: 4}))); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestSvcMountsTheListsOfHostsAndNamesThemInVariables(t *testing.T) {
	ref := func(key string) corev1.EnvVar {
		return corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "j-svc"}, Key: key,
		}}}
	}
	container := func(name string) []corev1.Container {
		return []corev1.Container{{
			Name: name, Env: []corev1.EnvVar{ref("VC_PS_HOSTS"), ref("VC_PS_NUM"), ref("VC_BIG_WORKER_HOSTS"), ref("VC_BIG_WORKER_NUM")},
			VolumeMounts: []corev1.VolumeMount{{Name: "j-svc", MountPath: "/etc/volcano"}},
		}}
	}
	want := corev1.PodSpec{
		Hostname: "j-ps-3", Subdomain: "j", Containers: container("c"), InitContainers: container("i"),
		Volumes: []corev1.Volume{{Name: "j-svc", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "j-svc"}},
		}}},
	}
	tasks := []batch.TaskSpec{{Name: "ps", Replicas: 4}, {Name: "big-worker", Replicas: 1}}
	if diff := cmp.Diff(want, edited(t, newJob(map[string][]string{"svc": nil}, tasks...))); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	for i := range want.Containers {
		want.Containers[i].Env, want.InitContainers[i].Env = nil, nil
	}
	if diff := cmp.Diff(want, edited(t, newJob(map[string][]string{"svc": {"--inject-hosts-env=false"}}, tasks...))); diff != "" {
		t.Errorf("spec without variables (-want +got):\n%s", diff)
	}
}

func TestSvcWantsAServiceAListOfHostsAndAPolicy(t *testing.T) {
	hostnamed := batch.TaskSpec{Name: "fixed", Replicas: 3}
	hostnamed.Template.Spec.Hostname, hostnamed.Template.Spec.Subdomain = "me", "there"
	tasks := []batch.TaskSpec{{Name: "a-b", Replicas: 2}, {Name: "none"}, hostnamed}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	labels := map[string]string{"volcano.sh/job-name": "j", "volcano.sh/job-namespace": "ns"}
	configMap := Object{Plugin: "svc", Object: &corev1.ConfigMap{ObjectMeta: meta("j-svc"), Data: map[string]string{
		"a_b.host": "j-a-b-0.j\nj-a-b-1.j", "VC_A_B_HOSTS": "j-a-b-0.j,j-a-b-1.j", "VC_A_B_NUM": "2",
		"none.host": "", "VC_NONE_HOSTS": "", "VC_NONE_NUM": "0",
		"fixed.host": "me.there", "VC_FIXED_HOSTS": "me.there", "VC_FIXED_NUM": "1",
	}}}
	service := func(notReady bool) Object {
		return Object{Plugin: "svc", Keep: true, Object: &corev1.Service{
			ObjectMeta: meta("j"), Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: labels, PublishNotReadyAddresses: notReady},
		}}
	}
	policy := Object{Plugin: "svc", Keep: true, Object: &networkingv1.NetworkPolicy{
		ObjectMeta: meta("j"),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: labels}, PolicyTypes: []networkingv1.PolicyType{"Ingress"},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: labels}}}}},
		},
	}}
	cases := map[string]struct {
		args []string
		want []Object
	}{
		"by default":                       {nil, []Object{configMap, service(false), policy}},
		"without a policy":                 {[]string{"--disable-network-policy=true"}, []Object{configMap, service(false)}},
		"with a switch and no value":       {[]string{"--disable-network-policy", "-publish-not-ready-addresses"}, []Object{configMap, service(true)}},
		"with nothing after what is wrong": {[]string{"--publish-not-ready-addresses=true", "--nope", "--disable-network-policy"}, []Object{configMap, service(true), policy}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := of(t, newJob(map[string][]string{"svc": tc.args}, tasks...))[0].Objects()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, want := range map[string]string{
		"nope": "unable to find job plugin: nope",
	} {
		if _, err := Of(newJob(map[string][]string{"env": nil, name: nil})); err == nil || err.Error() != want {
			t.Errorf("plugins of a Job with %q: error %v, want %q", name, err, want)
		}
	}
}

func TestFlagsAreReadAsGoReadsThem(t *testing.T) {
	type values struct {
		Text   string
		Number int
		Switch bool
	}
	cases := map[string]struct {
		args []string
		want values
	}{
		"nothing":                             {nil, values{"default", 7, false}},
		"one dash or two":                     {[]string{"-text=a", "--number=8"}, values{"a", 8, false}},
		"a value in the next argument":        {[]string{"--text", "a", "-number", "8"}, values{"a", 8, false}},
		"a switch takes none from it":         {[]string{"--switch", "false", "--text=a"}, values{"default", 7, true}},
		"a switch that is off":                {[]string{"--switch=true", "--switch=f"}, values{"default", 7, false}},
		"numbers in other bases":              {[]string{"--number=0x10"}, values{"default", 16, false}},
		"an empty text":                       {[]string{"--text="}, values{"", 7, false}},
		"a value with an equals sign":         {[]string{"--text=a=b"}, values{"a=b", 7, false}},
		"an unknown one ends it":              {[]string{"--text=a", "--nope", "--number=8"}, values{"a", 7, false}},
		"an unknown one with a value ends it": {[]string{"--nope=1", "--number=8"}, values{"default", 7, false}},
		"what is no number ends it":           {[]string{"--number=many", "--text=a"}, values{"default", 7, false}},
		"what is no truth ends it":            {[]string{"--switch=perhaps", "--text=a"}, values{"default", 7, false}},
		"a word without a dash ends it":       {[]string{"text", "--text=a"}, values{"default", 7, false}},
		"a value that is missing":             {[]string{"--switch", "--number"}, values{"default", 7, true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := values{"default", 7, false}
			flags(tc.args, map[string]any{"text": &got.Text, "number": &got.Number, "switch": &got.Switch})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("values of %q (-want +got):\n%s", tc.args, diff)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	j := newJob(nil, batch.TaskSpec{Name: "master", Replicas: 1})
	plain := func(p Plugin) any { // without the Job
		switch p := p.(type) {
		case *ssh:
			p.job = nil
		case *tensorFlow:
			p.job = nil
		case *mpi:
			p.job = nil
		case *pyTorch:
			p.job = nil
		case *ray:
			p.job = nil
		case *hcclRank:
			p.job = nil
		}
		return p
	}
	cases := map[string]struct {
		plugin string
		args   []string
		want   any
	}{
		"ssh by default":                 {"ssh", nil, &ssh{secret: "j-ssh", path: "/root/.ssh", port: 22}},
		"ssh with a port that is none":   {"ssh", []string{"--ssh-port=65536"}, &ssh{secret: "j-ssh", path: "/root/.ssh", port: 22}},
		"ssh with a negative port":       {"ssh", []string{"--ssh-port=-1"}, &ssh{secret: "j-ssh", path: "/root/.ssh", port: 22}},
		"ssh with one key makes its own": {"ssh", []string{"--ssh-private-key=x"}, &ssh{secret: "j-ssh", path: "/root/.ssh", port: 22}},
		"ssh with all":                   {"ssh", []string{"--ssh-key-file-path=/k", "--ssh-private-key=x", "--ssh-public-key=y", "--ssh-port=2022"}, &ssh{secret: "j-ssh", path: "/k", port: 2022, given: Keys{Private: []byte("x"), Public: []byte("y")}}},
		"tensorflow by default":          {"tensorflow", nil, &tensorFlow{ps: "ps", worker: "worker", chief: "chief", evaluator: "evaluator", port: 2222}},
		"tensorflow with all":            {"tensorflow", []string{"--ps=a", "--worker=b", "--chief=c", "--evaluator=d", "--port=1"}, &tensorFlow{ps: "a", worker: "b", chief: "c", evaluator: "d", port: 1}},
		"mpi by default":                 {"mpi", nil, &mpi{master: "master", worker: "worker", port: 22}},
		"mpi with all":                   {"mpi", []string{"--master=a", "--worker=b", "--port=1"}, &mpi{master: "a", worker: "b", port: 1}},
		"pytorch by default":             {"pytorch", nil, &pyTorch{master: "master", worker: "worker", port: 23456, waitSeconds: 300, waitImage: "busybox:1.36.1"}},
		"pytorch with all":               {"pytorch", []string{"--master=a", "--worker=b", "--port=1", "--wait-master-enabled", "--wait-master-timeout=2", "--wait-master-image=i"}, &pyTorch{master: "a", worker: "b", port: 1, wait: true, waitSeconds: 2, waitImage: "i"}},
		"ray by default":                 {"ray", nil, &ray{head: "head", headContainer: "head", worker: "worker", workerContainer: "worker", port: 6379, dashboardPort: 8265, clientsPort: 10001}},
		"ray with all":                   {"ray", []string{"--head=a", "--headContainer=b", "--worker=c", "--workerContainer=d", "--port=1", "--dashboardPort=2", "--clientPort=3"}, &ray{head: "a", headContainer: "b", worker: "c", workerContainer: "d", port: 1, dashboardPort: 2, clientsPort: 3}},
		"hcclrank by default":            {"hcclrank", nil, &hcclRank{master: "master", worker: "worker"}},
		"hcclrank with all":              {"hcclrank", []string{"--master=a", "--worker=b"}, &hcclRank{master: "a", worker: "b"}},
	}
	compare := cmp.AllowUnexported(ssh{}, tensorFlow{}, mpi{}, pyTorch{}, ray{}, hcclRank{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j.Spec.Plugins = map[string][]string{tc.plugin: tc.args}
			if diff := cmp.Diff(tc.want, plain(of(t, j)[0].Plugin), compare); diff != "" {
				t.Errorf("plugin (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMasterWithoutWorkersIsToldNothingByMPI(t *testing.T) {
	want := newPod().Spec
	j := newJob(map[string][]string{"mpi": nil}, batch.TaskSpec{Name: "master", Replicas: 4})
	if diff := cmp.Diff(want, edited(t, j)); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestPyTorchWithoutAMasterSetsNothing(t *testing.T) {
	want := newPod().Spec
	j := newJob(map[string][]string{"pytorch": nil}, batch.TaskSpec{Name: "worker", Replicas: 4})
	if diff := cmp.Diff(want, edited(t, j)); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestRayWithoutAHeadMakesNoPod(t *testing.T) {
	j := newJob(map[string][]string{"ray": nil}, batch.TaskSpec{Name: "worker", Replicas: 4})
	err := of(t, j)[0].Edit(Pod{Pod: newPod(), Index: 3})
	if err == nil || err.Error() != `there is no head task "head"` {
		t.Errorf("error %v", err)
	}
}

func TestOnlyHCCLRankLeavesNoEntryInTheStatus(t *testing.T) {
	j := newJob(map[string][]string{}, batch.TaskSpec{Name: "master", Replicas: 1})
	want := map[string]bool{"env": true, "svc": true, "ssh": true, "tensorflow": true, "mpi": true, "pytorch": true, "ray": true, "hcclrank": false}
	got := map[string]bool{}
	for name := range want {
		j.Spec.Plugins[name] = nil
	}
	for _, each := range of(t, j) {
		got[each.Name] = each.Tracked
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tracked plugins (-want +got):\n%s", diff)
	}
}

func TestMPIMaster(t *testing.T) {
	for want, args := range map[string][]string{
		"master": nil, "boss": {"--port", "23", "-master", "boss"}, "first": {"--master=first", "--what", "--master=second"},
	} {
		if got := MPIMaster(args); got != want {
			t.Errorf("master of %q is %q, want %q", args, got, want)
		}
	}
}
