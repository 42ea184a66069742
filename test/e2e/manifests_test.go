// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

// published is a manifest that another project publishes, on a plane. What its images would bring is stood in for by commands of this
// machine; nothing else is changed, unless the case says so.
type published struct {
	t      *testing.T
	ctx    context.Context
	client kubernetes.Interface
	ns     string
	jobs   []*batchv1.Job
	maps   []*corev1.ConfigMap
}

const (
	pollEvery    = 50 * time.Millisecond
	outcomeLimit = 4 * time.Minute // machines that run tests are busy
)

func read(t *testing.T, client kubernetes.Interface, file string) *published {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "manifests", "job", file))
	if err != nil {
		t.Fatal(err)
	}
	p := &published{t: t, ctx: t.Context(), client: client, ns: "manifest-" + strings.TrimSuffix(file, ".yaml")}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var raw map[string]any
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			continue
		}
		text, err := json.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		switch raw["kind"] {
		case "Job":
			j := &batchv1.Job{}
			p.must(yaml.Unmarshal(text, j))
			j.Namespace = p.ns
			p.jobs = append(p.jobs, j)
		case "ConfigMap":
			m := &corev1.ConfigMap{}
			p.must(yaml.Unmarshal(text, m))
			m.Namespace = p.ns
			p.maps = append(p.maps, m)
		default:
			t.Fatalf("%s has a %v", file, raw["kind"])
		}
	}
	_, err = client.CoreV1().Namespaces().Create(p.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.ns}}, metav1.CreateOptions{})
	p.must(err)
	return p
}

func (p *published) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// runs has a container run another command.
func (p *published) runs(container string, command ...string) {
	p.t.Helper()
	found := false
	for _, j := range p.jobs {
		spec := &j.Spec.Template.Spec
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if list[i].Name == container {
					list[i].Command, list[i].Args = command, nil
					found = true
				}
			}
		}
	}
	if !found {
		p.t.Fatalf("there is no container %q", container)
	}
}

// apply creates everything, and the service accounts that the pods name.
func (p *published) apply() {
	p.t.Helper()
	for _, m := range p.maps {
		_, err := p.client.CoreV1().ConfigMaps(p.ns).Create(p.ctx, m, metav1.CreateOptions{})
		p.must(err)
	}
	for i, j := range p.jobs {
		if name := j.Spec.Template.Spec.ServiceAccountName; name != "" {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := p.client.CoreV1().ServiceAccounts(p.ns).Create(p.ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				p.t.Fatal(err)
			}
		}
		var err error
		p.jobs[i], err = p.client.BatchV1().Jobs(p.ns).Create(p.ctx, j, metav1.CreateOptions{})
		p.must(err)
	}
}

// await asks for the first Job until ok likes it, and returns it. A Job that is gone is nil.
func (p *published) await(what string, ok func(*batchv1.Job) bool) *batchv1.Job {
	p.t.Helper()
	var last *batchv1.Job
	err := wait.PollUntilContextTimeout(p.ctx, pollEvery, outcomeLimit, true, func(ctx context.Context) (bool, error) {
		j, err := p.client.BatchV1().Jobs(p.ns).Get(ctx, p.jobs[0].Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			j, err = nil, nil
		}
		last = j
		return err == nil && ok(j), err
	})
	switch {
	case err == nil:
	case last == nil:
		p.t.Fatalf("the Job is gone, and was to be %s: %v", what, err)
	default:
		p.t.Fatalf("the Job is not %s: %s: %v", what, status(last), err)
	}
	return last
}

// ends awaits the end of the first Job and compares its status with one like "Complete CompletionsReached succeeded=1".
func (p *published) ends(want string) *batchv1.Job {
	p.t.Helper()
	j := p.await("over", func(j *batchv1.Job) bool {
		return j != nil && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
		})
	})
	if got := status(j); got != want {
		p.t.Errorf("ended as\n  %s, want\n  %s", got, want)
	}
	if u := j.Status.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		p.t.Errorf("pods are left uncounted: %v", u)
	}
	p.awaitPods("without the finalizer", func(pods []corev1.Pod) bool {
		return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) })
	})
	return j
}

// status is what a Job has come to, in one line.
func status(j *batchv1.Job) string {
	var parts []string
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			parts = append(parts, string(c.Type)+"/"+c.Reason)
		}
	}
	add := func(name string, n int32) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", name, n))
		}
	}
	add("active", j.Status.Active)
	add("succeeded", j.Status.Succeeded)
	add("failed", j.Status.Failed)
	if j.Status.CompletedIndexes != "" {
		parts = append(parts, "completed="+j.Status.CompletedIndexes)
	}
	if f := j.Status.FailedIndexes; f != nil && *f != "" {
		parts = append(parts, "failedIndexes="+*f)
	}
	return strings.Join(parts, " ")
}

func (p *published) pods() []corev1.Pod {
	p.t.Helper()
	list, err := p.client.CoreV1().Pods(p.ns).List(p.ctx, metav1.ListOptions{})
	p.must(err)
	return list.Items
}

func (p *published) awaitPods(what string, ok func([]corev1.Pod) bool) {
	p.t.Helper()
	err := wait.PollUntilContextTimeout(p.ctx, pollEvery, outcomeLimit, true, func(context.Context) (bool, error) { return ok(p.pods()), nil })
	if err != nil {
		p.t.Fatalf("the %d pods are not %s: %v", len(p.pods()), what, err)
	}
}

func (p *published) edit(change func(*batchv1.Job)) error {
	p.t.Helper()
	for {
		j, err := p.client.BatchV1().Jobs(p.ns).Get(p.ctx, p.jobs[0].Name, metav1.GetOptions{})
		p.must(err)
		change(j)
		if _, err = p.client.BatchV1().Jobs(p.ns).Update(p.ctx, j, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (p *published) log(pod string) string {
	p.t.Helper()
	text, err := p.client.CoreV1().Pods(p.ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(p.ctx)
	p.must(err)
	return strings.TrimSpace(string(text))
}

// TestPublishedJobsDoWhatTheyDoInKubernetes runs manifests that other projects publish. What must come of each was seen with Kubernetes
// v1.37.2.
func TestPublishedJobsDoWhatTheyDoInKubernetes(t *testing.T) {
	client := plane.Start(t, plane.Options{}).Client()
	const completed = "SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached"
	cases := map[string]func(p *published){
		"indexed-kyaml.yaml": func(p *published) {
			p.runs("worker", "perl", "-lne", "print scalar reverse", "/input/data.txt")
			p.apply()
			p.ends(completed + " succeeded=5 completed=0-4")
			got := map[string]string{}
			for _, pod := range p.pods() {
				index := pod.Labels[batchv1.JobCompletionIndexAnnotation]
				if pod.Spec.Hostname != "indexed-job-"+index || !strings.HasPrefix(pod.Name, "indexed-job-"+index+"-") || pod.Annotations[batchv1.JobCompletionIndexAnnotation] != index {
					p.t.Errorf("pod %s has the host name %s and the index %s", pod.Name, pod.Spec.Hostname, index)
				}
				got[index] = p.log(pod.Name)
			}
			if want := "map[0:oof 1:rab 2:zab 3:xuq 4:zyx]"; fmt.Sprint(got) != want {
				p.t.Errorf("logs %v, want %s", got, want)
			}
		},
		"work-queue-kyaml.yaml": func(p *published) {
			p.runs("c", "sh", "-c", "mkdir /tmp/queue 2>/dev/null; sleep 2")
			p.apply()
			p.ends(completed + " succeeded=2")
			if n := len(p.pods()); n != 2 {
				p.t.Errorf("there are %d pods, want 2", n)
			}
		},
		"fail-index.yaml": func(p *published) {
			p.apply()
			p.ends("FailureTarget/FailedIndexes Failed/FailedIndexes succeeded=2 failed=3 completed=2,3 failedIndexes=0,1")
		},
		"pod-failure-policy.yaml": func(p *published) {
			p.apply()
			j := p.ends("FailureTarget/PodFailurePolicy Failed/PodFailurePolicy failed=3")
			for _, c := range j.Status.Conditions {
				for _, word := range []string{"main", "42", "index 0"} {
					if !strings.Contains(c.Message, word) {
						p.t.Errorf("message %q does not tell of %q", c.Message, word)
					}
				}
			}
		},
		"success-policy.yaml": func(p *published) {
			p.runs("main", "python3", "-c", "import os, sys, time\nif os.environ['JOB_COMPLETION_INDEX'] != '2':\n  time.sleep(60); sys.exit(1)")
			p.apply()
			p.ends("SuccessCriteriaMet/SuccessPolicy Complete/SuccessPolicy succeeded=1 completed=2")
		},
		"sidecar.yaml": func(p *published) {
			p.apply()
			p.ends(completed + " succeeded=1")
			pod := p.pods()[0]
			if pod.Status.Phase != corev1.PodSucceeded || pod.Status.InitContainerStatuses[0].State.Terminated == nil {
				p.t.Errorf("pod %s, sidecar %+v", pod.Status.Phase, pod.Status.InitContainerStatuses[0].State)
			}
		},
		"suspended.yaml": func(p *published) {
			p.runs("agi-training-brain", "sh", "-c", "echo Training; sleep 1")
			p.apply()
			j := p.await("suspended", func(j *batchv1.Job) bool { return status(j) == "Suspended/JobSuspended" })
			if j.Status.StartTime != nil || len(p.pods()) > 0 {
				p.t.Errorf("it has begun: %v, %d pods", j.Status.StartTime, len(p.pods()))
			}
			p.must(p.edit(func(j *batchv1.Job) { j.Spec.Suspend = new(false) }))
			j = p.ends(completed + " succeeded=3")
			if c := j.Status.Conditions[0]; c.Type != batchv1.JobSuspended || c.Status != corev1.ConditionFalse || c.Reason != "JobResumed" {
				p.t.Errorf("the first condition is %+v", c)
			}
		},
		"elastic-parallelism.yaml": func(p *published) {
			p.runs("dummy-job", "sleep", "2")
			p.apply()
			active := func(n int32) {
				p.t.Helper()
				p.await(fmt.Sprintf("at work with %d pods", n), func(j *batchv1.Job) bool { return j.Status.Active == n })
			}
			active(3)
			p.must(p.edit(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(10)) }))
			active(10)
			p.must(p.edit(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(2)) }))
			active(2)
			if err := p.edit(func(j *batchv1.Job) { j.Spec.Completions = new(int32(50)) }); err == nil || !strings.Contains(err.Error(), "field is immutable") {
				p.t.Errorf("changing the completions: %v", err)
			}
			p.must(p.edit(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(50)) }))
			p.ends(completed + " succeeded=100")
		},
		"ttl-init-two-containers.yaml": func(p *published) {
			for _, c := range []string{"generate-certs", "patch-validating", "patch-mutating"} {
				p.runs(c, "true")
			}
			p.jobs[0].Spec.TTLSecondsAfterFinished = new(int32(3))
			p.apply()
			p.ends(completed + " succeeded=1")
			p.await("gone", func(j *batchv1.Job) bool { return j == nil })
			p.awaitPods("gone", func(pods []corev1.Pod) bool { return len(pods) == 0 })
		},
		"ttl-zero-helm.yaml": func(p *published) {
			p.runs("create", "true")
			p.runs("patch", "true")
			p.apply()
			p.await("gone", func(j *batchv1.Job) bool { return j == nil })
			p.awaitPods("gone", func(pods []corev1.Pod) bool { return len(pods) == 0 })
		},
		"active-deadline.yaml": func(p *published) {
			p.runs("longhorn-uninstall", "false")
			p.apply()
			p.ends("FailureTarget/BackoffLimitExceeded Failed/BackoffLimitExceeded failed=2")
			if n := len(p.pods()); n != 2 {
				p.t.Errorf("there are %d pods, want 2", n)
			}
		},
		"configmap-secret-pvc-ttl.yaml": func(p *published) {
			p.runs("gcloud", "sh", "-c", "test -x /scripts/fetch_model.sh && test -r /kaggle/kaggle.json && echo done > /data/model")
			p.apply()
			p.await("waiting", func(j *batchv1.Job) bool { return status(j) == "active=1" && *j.Status.Ready == 0 })
			_, err := p.client.CoreV1().Secrets(p.ns).Create(p.ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "kaggle-secret"}, StringData: map[string]string{"kaggle.json": "{}"},
			}, metav1.CreateOptions{})
			p.must(err)
			_, err = p.client.CoreV1().PersistentVolumeClaims(p.ns).Create(p.ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "model-data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
				},
			}, metav1.CreateOptions{})
			p.must(err)
			p.ends(completed + " succeeded=1")
		},
		"rejected-no-restart-policy.yaml": func(p *published) {
			_, err := p.client.BatchV1().Jobs(p.ns).Create(p.ctx, p.jobs[0], metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				p.t.Fatalf("error %v, want one that refuses it", err)
			}
			for _, word := range []string{"spec.template.spec.restartPolicy", `"OnFailure", "Never"`} {
				if !strings.Contains(err.Error(), word) {
					p.t.Errorf("error %v does not name %s", err, word)
				}
			}
		},
	}
	files, err := os.ReadDir(filepath.Join("testdata", "manifests", "job"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("file", func(t *testing.T) {
		for _, file := range files {
			play := cases[file.Name()]
			if play == nil {
				t.Errorf("%s is not run", file.Name())
				continue
			}
			t.Run(strings.TrimSuffix(file.Name(), ".yaml"), func(t *testing.T) {
				t.Parallel()
				play(read(t, client, file.Name()))
			})
		}
	})
}
