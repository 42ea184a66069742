// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Queues tells of queues: the one of that name, or nil, and how many others have it as their parent.
type Queues func(name string) (q *scheduling.Queue, children int)

// VCJobs returns the webhooks for Jobs of Volcano. schedulerName is for Jobs that name none.
func VCJobs(queues Queues, client kubernetes.Interface, schedulerName string) []Webhook {
	templates := &templateChecker{client: client, known: map[[sha256.Size]byte][]string{}}
	jobs := func(h Webhook) Webhook {
		h.Group, h.Version, h.Resource = batch.GroupVersion.Group, batch.GroupVersion.Version, "jobs"
		return h
	}
	return []Webhook{
		jobs(Webhook{
			Name: "mutatejob.volcano.sh", Path: "/jobs/mutate", Mutates: true, Operations: []admissionv1.Operation{admissionv1.Create},
			Answer: func(_ context.Context, r *admissionv1.AdmissionRequest) (Answer, error) {
				j, err := jobOf(r.Object.Raw, r)
				if err != nil {
					return Answer{}, err
				}
				defaulted := j.DeepCopy()
				vcjob.Default(defaulted, schedulerName)
				return Answer{Patch: difference(&j.Spec, &defaulted.Spec)}, nil
			},
		}),
		jobs(Webhook{
			Name: "validatejob.volcano.sh", Path: "/jobs/validate", Operations: []admissionv1.Operation{admissionv1.Create, admissionv1.Update},
			Answer: func(ctx context.Context, r *admissionv1.AdmissionRequest) (Answer, error) {
				j, err := jobOf(r.Object.Raw, r)
				if err != nil {
					return Answer{}, err
				}
				if r.Operation == admissionv1.Update {
					old, err := jobOf(r.OldObject.Raw, r)
					if err != nil || j.DeletionTimestamp != nil {
						return Answer{}, err
					}
					return Answer{Problems: vcjob.ValidateUpdate(j, old)}, nil
				}
				around := vcjob.Surroundings{Templates: templates.check(ctx, j)}
				around.Queue, around.Children = queues(j.Spec.Queue)
				return Answer{Problems: vcjob.Validate(j, around)}, nil
			},
		}),
	}
}

func jobOf(raw []byte, r *admissionv1.AdmissionRequest) (*batch.Job, error) {
	var j batch.Job
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, fmt.Errorf("reading the Job of the request: %w", err)
	}
	if j.Namespace == "" {
		j.Namespace = r.Namespace
	}
	if j.Name == "" && j.GenerateName != "" { // the API server completes it after this
		j.Name = j.GenerateName + "xxxxx"
	}
	return &j, nil
}

// difference returns what makes after of before. It touches nothing that Default does not, so that fields which this version does
// not know stay.
func difference(before, after *batch.JobSpec) []Operation {
	var patch []Operation
	add := func(changed bool, path string, value any) {
		if changed {
			patch = append(patch, Operation{Op: "add", Path: "/spec/" + path, Value: value})
		}
	}
	add(before.Queue != after.Queue, "queue", after.Queue)
	add(before.SchedulerName != after.SchedulerName, "schedulerName", after.SchedulerName)
	add(before.MaxRetry != after.MaxRetry, "maxRetry", after.MaxRetry)
	add(before.MinAvailable != after.MinAvailable, "minAvailable", after.MinAvailable)
	for i := range after.Tasks {
		a, b, path := &before.Tasks[i], &after.Tasks[i], "tasks/"+strconv.Itoa(i)+"/"
		add(a.Name != b.Name, path+"name", b.Name)
		add(a.MinAvailable == nil && b.MinAvailable != nil, path+"minAvailable", b.MinAvailable)
		add(a.MaxRetry != b.MaxRetry, path+"maxRetry", b.MaxRetry)
		add(a.Template.Spec.DNSPolicy != b.Template.Spec.DNSPolicy, path+"template/spec/dnsPolicy", b.Template.Spec.DNSPolicy)
	}
	if len(before.Plugins) != len(after.Plugins) {
		add(true, "plugins", after.Plugins)
	}
	return patch
}

// templateChecker asks the API server what is wrong with pod templates, by having it check PodTemplates that are never stored: so
// the rules are those of its very version. It remembers what it has asked.
type templateChecker struct {
	client kubernetes.Interface

	mu    sync.Mutex
	known map[[sha256.Size]byte][]string
}

// maxTemplates bounds how many answers are remembered; beyond it, remembering starts afresh.
const maxTemplates = 1 << 10

// check returns the problems of each task's template. What cannot be asked is not refused: the controller will tell.
func (c *templateChecker) check(ctx context.Context, j *batch.Job) [][]string {
	all := make([][]string, len(j.Spec.Tasks))
	for i := range j.Spec.Tasks {
		all[i] = c.one(ctx, j.Namespace, vcjob.TemplateOf(j, i))
	}
	return all
}

func (c *templateChecker) one(ctx context.Context, namespace string, template corev1.PodTemplateSpec) []string {
	text, err := json.Marshal(template)
	if err != nil {
		return []string{err.Error()}
	}
	id := sha256.Sum256(text)
	c.mu.Lock()
	problems, known := c.known[id]
	c.mu.Unlock()
	if known {
		return problems
	}
	_, err = c.client.CoreV1().PodTemplates(namespace).Create(ctx, &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "check-"}, Template: template,
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	invalid, _ := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
	case apierrors.IsInvalid(err) && invalid != nil && invalid.ErrStatus.Details != nil:
		for _, cause := range invalid.ErrStatus.Details.Causes {
			problems = append(problems, strings.TrimPrefix(cause.Field, "template.")+": "+cause.Message)
		}
	case apierrors.IsBadRequest(err):
		problems = []string{err.Error()}
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxTemplates {
		clear(c.known)
	}
	c.known[id] = problems
	return problems
}
