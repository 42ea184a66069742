// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
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

// someUser is whom an image whose containers must not run as root would bring.
const someUser = 65534

// scheduled is a manifest of CronJobs that another project publishes, on a plane; see published for what is changed in it.
type scheduled struct {
	t      *testing.T
	ctx    context.Context
	plane  *plane.Plane
	client kubernetes.Interface
	ns     string
	crons  []*batchv1.CronJob
}

func readCronJobs(t *testing.T, p *plane.Plane, file string) *scheduled {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "manifests", "cronjob", file))
	if err != nil {
		t.Fatal(err)
	}
	s := &scheduled{t: t, ctx: t.Context(), plane: p, client: p.Client(), ns: "cron-" + strings.TrimSuffix(file, ".yaml")}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		c := &batchv1.CronJob{}
		if err := decoder.Decode(c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if c.Kind == "" {
			continue
		}
		c.Namespace = s.ns
		s.crons = append(s.crons, c)
	}
	_, err = s.client.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}, metav1.CreateOptions{})
	s.must(err)
	return s
}

func (s *scheduled) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// pod returns the template of the pods of the CronJob at i.
func (s *scheduled) pod(i int) *corev1.PodSpec {
	return &s.crons[i].Spec.JobTemplate.Spec.Template.Spec
}

// runs has the only container of the CronJob at i run another command.
func (s *scheduled) runs(i int, command ...string) {
	c := &s.pod(i).Containers[0]
	c.Command, c.Args = command, nil
}

// apply creates the CronJobs and the service accounts that their pods name.
func (s *scheduled) apply() {
	s.t.Helper()
	for i, c := range s.crons {
		if name := s.pod(i).ServiceAccountName; name != "" {
			_, err := s.client.CoreV1().ServiceAccounts(s.ns).Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			s.must(err)
		}
		var err error
		s.crons[i], err = s.client.BatchV1().CronJobs(s.ns).Create(s.ctx, c, metav1.CreateOptions{})
		s.must(err)
	}
}

func (s *scheduled) config(name string, data map[string]string) {
	s.t.Helper()
	_, err := s.client.CoreV1().ConfigMaps(s.ns).Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	s.must(err)
}

// runNow makes a Job as kubectl create job --from does.
func (s *scheduled) runNow(i int, name string) {
	s.t.Helper()
	if out, err := plane.Command(s.t, "--kubeconfig", s.plane.Kubeconfig, "-n", s.ns, "kubectl", "create", "job", name, "--from=cronjob/"+s.crons[i].Name).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

func (s *scheduled) jobs() map[string]batchv1.Job {
	s.t.Helper()
	list, err := s.client.BatchV1().Jobs(s.ns).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	jobs := map[string]batchv1.Job{}
	for _, j := range list.Items {
		jobs[j.Name] = j
	}
	return jobs
}

// await asks until ok likes what it finds.
func (s *scheduled) await(what string, ok func() bool) {
	s.t.Helper()
	if wait.PollUntilContextTimeout(s.ctx, pollEvery, outcomeLimit, true, func(context.Context) (bool, error) { return ok(), nil }) != nil {
		var got []string
		for name, j := range s.jobs() {
			got = append(got, name+" "+status(&j))
		}
		slices.Sort(got)
		s.t.Fatalf("waited in vain for %s; the Jobs are %q", what, got)
	}
}

func (s *scheduled) edit(i int, change func(*batchv1.CronJob)) {
	s.t.Helper()
	for {
		c := s.cron(i)
		change(c)
		if _, err := s.client.BatchV1().CronJobs(s.ns).Update(s.ctx, c, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			s.must(err)
			return
		}
	}
}

func (s *scheduled) cron(i int) *batchv1.CronJob {
	s.t.Helper()
	c, err := s.client.BatchV1().CronJobs(s.ns).Get(s.ctx, s.crons[i].Name, metav1.GetOptions{})
	s.must(err)
	return c
}

// ofMinute returns the name of the Job of the CronJob at i that was due in the minute of at.
func (s *scheduled) ofMinute(i int, at time.Time) string {
	return fmt.Sprintf("%s-%d", s.crons[i].Name, at.Unix()/60)
}

// events returns the reasons of the events of the CronJob at i, in the order in which they were told.
func (s *scheduled) events(i int) []string {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.ns).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + s.crons[i].Name})
	s.must(err)
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	var reasons []string
	for _, e := range list.Items {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

func succeeded(j batchv1.Job) bool { return strings.Contains(status(&j), "Complete/") }
func failed(j batchv1.Job) bool    { return strings.Contains(status(&j), "Failed/") }

func (s *scheduled) awaitEnd(name, want string) {
	s.t.Helper()
	s.await("the end of "+name, func() bool { j := s.jobs()[name]; return succeeded(j) || failed(j) })
	if j := s.jobs()[name]; status(&j) != want {
		s.t.Errorf("%s ended as %s, want %s", name, status(&j), want)
	}
}

func (s *scheduled) log(job string) string {
	s.t.Helper()
	pods, err := s.client.CoreV1().Pods(s.ns).List(s.ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	s.must(err)
	if len(pods.Items) == 0 {
		s.t.Fatalf("%s has no pod", job)
	}
	text, err := s.client.CoreV1().Pods(s.ns).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(s.ctx)
	s.must(err)
	return strings.TrimSpace(string(text))
}

// TestPublishedCronJobsDoWhatTheyDoInKubernetes runs manifests that other projects publish. What must come of each was seen with
// Kubernetes v1.37.2. Schedules of days are edited to minutes, and runs of minutes are shortened, so that the test ends today.
func TestPublishedCronJobsDoWhatTheyDoInKubernetes(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	const completed = "SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached succeeded=1"
	const everyMinute = "* * * * *"
	cases := map[string]func(s *scheduled){
		"forbid.yaml": func(s *scheduled) {
			s.runs(0, "sleep", "70")
			s.pod(0).Containers[0].LivenessProbe = nil
			s.pod(0).SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(someUser))}
			s.crons[0].Spec.Schedule = everyMinute
			s.config("descheduler-policy-configmap", map[string]string{"policy.yaml": ""})
			s.apply()
			var first batchv1.Job
			s.await("the first run", func() bool {
				for _, j := range s.jobs() {
					first = j
				}
				return first.Name != ""
			})
			s.awaitEnd(first.Name, completed)
			due := first.CreationTimestamp.Truncate(time.Minute).Add(time.Minute)
			missed := s.ofMinute(0, due)
			s.await("the run that was due meanwhile", func() bool { return s.jobs()[missed].Name != "" })
			jobs := s.jobs()
			if start, end := jobs[missed].CreationTimestamp, jobs[first.Name].Status.CompletionTime; start.Before(end) {
				s.t.Errorf("%s was started at %v, while the run before it went on until %v", missed, start, end)
			}
			s.await("word of the run that could not start in time", func() bool { return slices.Contains(s.events(0), "JobAlreadyActive") })
		},
		"replace-history-ttl.yaml": func(s *scheduled) {
			s.runs(0, "sleep", "1000")
			s.crons[0].Spec.Schedule = everyMinute
			s.config("osd-rebalance-infra-nodes", map[string]string{"entrypoint": ""})
			s.apply()
			var first batchv1.Job
			s.await("the first run", func() bool {
				for _, j := range s.jobs() {
					first = j
				}
				return first.Name != ""
			})
			s.await("the run that takes its place", func() bool {
				if n := len(s.cron(0).Status.Active); n > 1 {
					s.t.Fatalf("there are %d active runs", n)
				}
				jobs := s.jobs()
				return len(jobs) == 1 && jobs[first.Name].Name == ""
			})
			s.await("word of what was done", func() bool {
				told := s.events(0)
				return slices.Contains(told, "SuccessfulDelete") && slices.Contains(told, "SuccessfulCreate")
			})
		},
		"replace-no-success-history-helm.yaml": func(s *scheduled) {
			s.apply()
			out, err := plane.Command(s.t, "--kubeconfig", s.plane.Kubeconfig, "-n", s.ns, "next", "linkerd-heartbeat", "-c", "6", "--from", "2026-11-30T00:00:00Z").CombinedOutput()
			if err != nil {
				s.t.Fatalf("%v: %s", err, out)
			}
			for _, day := range []string{"2027-04-02", "2027-04-03", "2027-04-09", "2027-04-16", "2027-04-23", "2027-04-30"} {
				if !strings.Contains(string(out), day) {
					s.t.Errorf("drover next does not tell of %s:\n%s", day, out)
				}
			}
			s.edit(0, func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Spec.BackoffLimit = new(int32(0))
				spec := &c.Spec.JobTemplate.Spec.Template.Spec
				spec.Containers[0].Command, spec.Containers[0].Args = []string{"false"}, nil
			})
			s.runNow(0, "bad-1")
			s.await("the failure", func() bool { return failed(s.jobs()["bad-1"]) })
			s.edit(0, func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Command = []string{"test", "-s", "/var/run/secrets/kubernetes.io/serviceaccount/token"}
			})
			s.runNow(0, "good")
			s.await("the success, kept for no time", func() bool { return s.cron(0).Status.LastSuccessfulTime != nil && s.jobs()["good"].Name == "" })
			if !failed(s.jobs()["bad-1"]) {
				s.t.Error("the failed run is gone too")
			}
			s.edit(0, func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Command = []string{"false"}
			})
			s.runNow(0, "bad-2")
			s.await("the second failure to replace the first", func() bool {
				jobs := s.jobs()
				return failed(jobs["bad-2"]) && jobs["bad-1"].Name == ""
			})
		},
		"step-ranges-pair.yaml": func(s *scheduled) {
			s.runs(0, "true")
			s.runs(1, "true")
			begin := time.Now()
			s.apply()
			owner := func(at time.Time) string {
				switch m := at.Minute(); {
				case m >= 50:
					return s.ofMinute(0, at)
				case m >= 1:
					return s.ofMinute(1, at)
				}
				return ""
			}
			seen := map[string]bool{}
			s.await("two runs", func() bool {
				for name := range s.jobs() {
					seen[name] = true
				}
				return len(seen) >= 2
			})
			var due []string
			for at := begin.Truncate(time.Minute).Add(time.Minute); !at.After(time.Now()); at = at.Add(time.Minute) {
				if name := owner(at); name != "" {
					due = append(due, name)
				}
			}
			var got []string
			for name := range seen {
				got = append(got, name)
				if !slices.Contains(due, name) {
					s.t.Errorf("%s was not due; due were %q", name, due)
				}
			}
			// The last minute may have begun after the Jobs were looked at.
			if len(got) < len(due)-1 {
				s.t.Errorf("there are runs %q, due were %q", got, due)
			}
			for i := range 4 {
				s.runNow(0, fmt.Sprintf("by-hand-%d", i))
				s.await("the run by hand", func() bool {
					j := s.jobs()[fmt.Sprintf("by-hand-%d", i)]
					return j.Name == "" || succeeded(j) // the oldest goes, whichever that is
				})
			}
			s.await("three runs to be kept", func() bool {
				kept := 0
				for name, j := range s.jobs() {
					if succeeded(j) && (strings.HasPrefix(name, "by-hand") || strings.HasPrefix(name, "scale-up")) {
						kept++
					}
				}
				return kept == 3
			})
		},
		"time-zone.yaml": func(s *scheduled) {
			s.runs(0, "sh", "-c", "echo NUM=$NUM")
			tokyo, err := time.LoadLocation("Asia/Tokyo")
			s.must(err)
			due := time.Now().Add(75 * time.Second).Truncate(time.Minute) // at least 15 s ahead
			s.crons[0].Spec.Schedule = due.In(tokyo).Format("4 15") + " * * *"
			s.apply()
			name := s.ofMinute(0, due)
			s.awaitEnd(name, completed)
			if got := s.log(name); got != "NUM=" {
				s.t.Errorf("it printed %q", got)
			}
		},
		"suspended-deadlines.yaml": func(s *scheduled) {
			s.runs(0, "true")
			s.pod(0).SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(someUser))}
			s.crons[0].Spec.Schedule = everyMinute
			s.apply()
			second := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
			s.await("two minutes to pass", func() bool { return time.Now().After(second) })
			if jobs, told := s.jobs(), s.events(0); len(jobs)+len(told) > 0 {
				s.t.Errorf("while suspended there are the Jobs %v and the events %q", jobs, told)
			}
			before := time.Now()
			s.edit(0, func(c *batchv1.CronJob) { c.Spec.Suspend = new(false) })
			s.await("a run", func() bool { return len(s.jobs()) > 0 })
			for name := range s.jobs() {
				if name != s.ofMinute(0, before) && name != s.ofMinute(0, time.Now()) {
					s.t.Errorf("the run is %s, want that of the minute %s", name, s.ofMinute(0, before))
				}
				s.awaitEnd(name, completed)
			}
		},
		"backup-and-cleanup.yaml": func(s *scheduled) {
			s.runs(0, "sh", "-c", "echo dump $COMPRESSION > $BACKUP_DIR/$(date +%s).sql")
			s.runs(1, "sh", "-c", "find /backups -type f -mtime +$RETENTION_DAYS -delete")
			s.apply()
			s.runNow(0, "backup")
			s.runNow(1, "cleanup")
			s.await("both to wait for what is not there yet", func() bool {
				jobs := s.jobs()
				a, b := jobs["backup"], jobs["cleanup"]
				return status(&a) == "active=1" && status(&b) == "active=1"
			})
			s.config("dbbackup-config", map[string]string{"COMPRESSION": "9", "RETENTION_DAYS": "30", "MIN_BACKUPS": "5"})
			_, err := s.client.CoreV1().Secrets(s.ns).Create(s.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "dbbackup-secrets"}, StringData: map[string]string{"PASSWORD": "x"}}, metav1.CreateOptions{})
			s.must(err)
			_, err = s.client.CoreV1().PersistentVolumeClaims(s.ns).Create(s.ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "dbbackup-storage"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
				},
			}, metav1.CreateOptions{})
			s.must(err)
			s.awaitEnd("backup", completed)
			s.awaitEnd("cleanup", completed)
			s.await("the time of the last success", func() bool {
				return s.cron(0).Status.LastSuccessfulTime != nil && s.cron(1).Status.LastSuccessfulTime != nil
			})
		},
		"active-deadline.yaml": func(s *scheduled) {
			s.runs(0, "sh", "-c", "printf %s $CLEANUP_KEEP > /workspace/post-body.json; cat /workspace/post-body.json")
			s.apply()
			s.runNow(0, "well")
			s.awaitEnd("well", completed)
			if got := s.log("well"); got != "200" {
				s.t.Errorf("it printed %q, want 200", got)
			}
			s.edit(0, func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Spec.ActiveDeadlineSeconds = new(int64(5))
				c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Command = []string{"sleep", "1000"}
			})
			s.runNow(0, "hangs")
			s.awaitEnd("hangs", "FailureTarget/DeadlineExceeded Failed/DeadlineExceeded failed=1")
		},
		"rejected-step-zero.yaml": func(s *scheduled) {
			_, err := s.client.BatchV1().CronJobs(s.ns).Create(s.ctx, s.crons[0], metav1.CreateOptions{})
			if want := `spec.schedule: Invalid value: "*/0 0 * * 0": step of range should be a positive number: */0`; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
				s.t.Errorf("error %v, want one that says %s", err, want)
			}
		},
	}
	files, err := os.ReadDir(filepath.Join("testdata", "manifests", "cronjob"))
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
				play(readCronJobs(t, p, file.Name()))
			})
		}
	})
}
