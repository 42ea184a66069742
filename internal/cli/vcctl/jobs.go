// SPDX-License-Identifier: Apache-2.0

package vcctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/drover-dev/drover/internal/vcjob"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/bus"
)

var errNoName = errors.New("job name cannot be left blank")

// runOptions say which Job to make.
type runOptions struct {
	Name, Namespace, Image, Scheduler, Requests, Limits, File, Command string
	Min, Replicas                                                      int32
}

func newRun(env *Env, use string, n naming) *cobra.Command {
	o := &runOptions{}
	l := newLeaf(env, use, "run job by parameters from the command line", "run job", func(l *leaf, c *Cluster) error {
		j, err := o.job()
		if err != nil {
			return err
		}
		if _, err := c.vc.Jobs(j.Namespace).Create(l.Context(), j, metav1.CreateOptions{}); err != nil {
			return err
		}
		return l.printf("run job %s successfully\n", j.Name)
	})
	f := l.Flags()
	f.StringVarP(&o.Image, "image", "i", "busybox", "the container image of job")
	f.StringVarP(&o.Namespace, "namespace", n.namespace, defaultNamespace, "the namespace of job")
	f.StringVarP(&o.Name, "name", n.name, "", "the name of job")
	f.Int32VarP(&o.Min, "min", "m", 1, "the minimal available tasks of job")
	f.Int32VarP(&o.Replicas, "replicas", "r", 1, "the total tasks of job")
	f.StringVarP(&o.Requests, "requests", "R", "cpu=1000m,memory=100Mi", "the resource request of the task")
	f.StringVarP(&o.Limits, "limits", "L", "cpu=1000m,memory=100Mi", "the resource limit of the task")
	f.StringVarP(&o.Scheduler, "scheduler", "S", "volcano", "the scheduler for this job")
	if n == vcctlFlags {
		f.StringVarP(&o.File, "filename", "f", "", "the yaml file of job")
	} else {
		f.StringVarP(&o.Command, "command", "c", "", "the command of job, for sh")
	}
	return l.Command
}

// newVsub is run under other letters, with a command, and with defaults from the environment.
func newVsub(env *Env) *cobra.Command {
	cmd := newRun(env, "vsub", single)
	for flag, variable := range map[string]string{
		"scheduler": "VOLCANO_SCHEDULER_NAME", "image": "VOLCANO_DEFAULT_IMAGE", "namespace": "VOLCANO_DEFAULT_JOB_NAMESPACE",
	} {
		if value := env.Getenv(variable); value != "" {
			f := cmd.Flags().Lookup(flag)
			f.DefValue = value
			_ = f.Value.Set(value) // it is a text
		}
	}
	return cmd
}

// job returns the Job that the options ask for.
func (o *runOptions) job() (*batch.Job, error) {
	if o.File != "" {
		return jobFromFile(o.File, o.Namespace)
	}
	if o.Name == "" {
		return nil, errNoName
	}
	requests, err := resources(o.Requests)
	if err != nil {
		return nil, fmt.Errorf("reading --requests: %w", err)
	}
	limits, err := resources(o.Limits)
	if err != nil {
		return nil, fmt.Errorf("reading --limits: %w", err)
	}
	c := corev1.Container{
		Name: o.Name, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
	}
	if o.Command != "" {
		c.Command = []string{"sh", "-c", o.Command}
	}
	return &batch.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Spec: batch.JobSpec{
			MinAvailable: o.Min, SchedulerName: o.Scheduler,
			Tasks: []batch.TaskSpec{{
				Replicas: o.Replicas,
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: map[string]string{"job.volcano.sh": o.Name}},
					Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{c}},
				},
			}},
		},
	}, nil
}

func jobFromFile(file, namespace string) (*batch.Job, error) {
	var j batch.Job
	if err := readFile(file, &j); err != nil {
		return nil, err
	}
	j.APIVersion, j.Kind = batch.GroupVersion.String(), "Job"
	if j.Namespace == "" {
		j.Namespace = namespace
	}
	return &j, nil
}

// readFile reads the first document of a YAML file.
func readFile(file string, into any) error {
	if ext := filepath.Ext(file); ext != ".yaml" && ext != ".yml" {
		return fmt.Errorf("the file %q: only files that end with .yaml or .yml are read", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)+1).Decode(into); err != nil {
		return fmt.Errorf("reading %q: %w", file, err)
	}
	return nil
}

// resources reads a list such as "cpu=1000m,memory=100Mi".
func resources(text string) (corev1.ResourceList, error) {
	if text == "" {
		return nil, nil
	}
	list := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		name, amount, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not resource=amount", part)
		}
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return nil, fmt.Errorf("the amount %q: %w", amount, err)
		}
		list[corev1.ResourceName(strings.TrimSpace(name))] = q
	}
	return list, nil
}

// listOptions say which Jobs to list.
type listOptions struct {
	Namespace, Queue, Scheduler, Selector string
	AllNamespaces                         bool
}

func newJobList(env *Env) *cobra.Command {
	o := &listOptions{}
	l := newLeaf(env, "list", "list job information", "list jobs", func(l *leaf, c *Cluster) error { return listJobs(l, c, o) })
	l.Flags().StringVarP(&o.Queue, "queue", "q", "", "list job with specified queue name")
	l.Flags().StringVarP(&o.Namespace, "namespace", "n", defaultNamespace, "the namespace of job")
	addListFlags(l, o)
	return l.Command
}

func addListFlags(l *leaf, o *listOptions) {
	l.Flags().StringVarP(&o.Scheduler, "scheduler", "S", "", "list job with specified scheduler name")
	l.Flags().BoolVar(&o.AllNamespaces, "all-namespaces", false, "list jobs in all namespaces")
	l.Flags().StringVar(&o.Selector, "selector", "", "fuzzy matching jobName")
}

func listJobs(l *leaf, c *Cluster, o *listOptions) error {
	namespace := o.Namespace
	if o.AllNamespaces {
		namespace = metav1.NamespaceAll
	}
	list, err := c.vc.Jobs(namespace).List(l.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	return l.printf("%s", jobTable(list.Items, o))
}

// newVjobs lists Jobs, or views the one that is named.
func newVjobs(env *Env) *cobra.Command {
	o, name := &listOptions{}, ""
	l := newLeaf(env, "vjobs", "view job information", "view jobs", func(l *leaf, c *Cluster) error {
		if name != "" {
			return viewJob(l, c, o.Namespace, name)
		}
		return listJobs(l, c, o)
	})
	l.Flags().StringVarP(&name, "name", "n", "", "the name of job")
	l.Flags().StringVarP(&o.Namespace, "namespace", "N", defaultNamespace, "the namespace of job")
	addListFlags(l, o)
	return l.Command
}

// column is a column of a table: its title and how wide it is.
type column struct {
	title string
	width int
}

var jobColumns = []column{
	{"Creation", 15},
	{"Phase", 12},
	{"JobType", 12},
	{"Replicas", 12},
	{"Min", 6},
	{"Pending", 10},
	{"Running", 10},
	{"Succeeded", 12},
	{"Failed", 10},
	{"Unknown", 12},
	{"RetryCount", 10},
}

const nothing = "No resources found\n"

// jobTable returns the list of those Jobs that the options mean.
func jobTable(jobs []batch.Job, o *listOptions) string {
	var names, namespaces []string
	var rows [][]string
	for i := range jobs {
		j := &jobs[i]
		if o.Queue != "" && j.Spec.Queue != o.Queue || o.Scheduler != "" && j.Spec.SchedulerName != o.Scheduler || !strings.Contains(j.Name, o.Selector) {
			continue
		}
		replicas := int32(0)
		for _, t := range j.Spec.Tasks {
			replicas += t.Replicas
		}
		s := &j.Status
		names, namespaces = append(names, j.Name), append(namespaces, j.Namespace)
		rows = append(rows, texts(
			j.CreationTimestamp.Format("2006-01-02"), s.State.Phase, cmp.Or(j.Labels[batch.JobTypeKey], "Batch"), replicas, j.Spec.MinAvailable,
			s.Pending, s.Running, s.Succeeded, s.Failed, s.Unknown, s.RetryCount,
		))
	}
	return table(o.AllNamespaces, namespaces, names, jobColumns, rows)
}

func texts(values ...any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}

// table returns lines with a name each, and their namespace if that is wanted, before the other columns. The first columns are as wide as
// the longest of their cells and three more.
func table(withNamespace bool, namespaces, names []string, columns []column, rows [][]string) string {
	if len(rows) == 0 {
		return nothing
	}
	var b strings.Builder
	name, namespace := widest("Name", names), widest("Namespace", namespaces)
	line := func(first, second string, cells func(i int) string) {
		if withNamespace {
			fmt.Fprintf(&b, "%-*s", namespace, first)
		}
		fmt.Fprintf(&b, "%-*s", name, second)
		for i, c := range columns {
			fmt.Fprintf(&b, "%-*s", c.width, cells(i))
		}
		b.WriteString("\n")
	}
	line("Namespace", "Name", func(i int) string { return columns[i].title })
	for r, row := range rows {
		line(namespaces[r], names[r], func(i int) string { return row[i] })
	}
	return b.String()
}

func widest(title string, cells []string) int {
	n := len(title)
	for _, c := range cells {
		n = max(n, len(c))
	}
	return n + 3
}

// named are the flags that name one object.
type named struct{ Name, Namespace string }

func (o *named) add(l *leaf, n naming) {
	l.Flags().StringVarP(&o.Namespace, "namespace", n.namespace, defaultNamespace, "the namespace of job")
	l.Flags().StringVarP(&o.Name, "name", n.name, "", "the name of job")
}

// newCommander asks for an action on a Job, by a Command.
func newCommander(env *Env, use, verb string, n naming) *cobra.Command {
	action := map[string]batch.Action{"suspend": batch.AbortJobAction, "resume": batch.ResumeJobAction}[verb]
	short := map[string]string{"suspend": "abort a job", "resume": "resume a job"}[verb]
	o := &named{}
	l := newLeaf(env, use, short, verb+" job", func(l *leaf, c *Cluster) error {
		if o.Name == "" {
			return errNoName
		}
		j, err := c.vc.Jobs(o.Namespace).Get(l.Context(), o.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return issue(l.Context(), c, o.Namespace, vcjob.ControllerRef(j), string(action))
	})
	o.add(l, n)
	return l.Command
}

// issue issues a Command in a namespace for the object that ref means.
func issue(ctx context.Context, c *Cluster, namespace string, ref metav1.OwnerReference, action string) error {
	cmd := &bus.Command{
		TypeMeta: metav1.TypeMeta{APIVersion: bus.GroupVersion.String(), Kind: "Command"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: ref.Name + "-" + strings.ToLower(action) + "-", OwnerReferences: []metav1.OwnerReference{ref},
		},
		Action: action, TargetObject: &ref,
	}
	_, err := c.vc.Commands(namespace).Create(ctx, cmd, metav1.CreateOptions{})
	return err
}

func newJobDelete(env *Env) *cobra.Command {
	return newDelete(env, "delete", "delete a job", "delete", vcctlFlags)
}

func newVcancel(env *Env) *cobra.Command {
	return newDelete(env, "vcancel", "cancel a job", "cancel", single)
}

func newDelete(env *Env, use, short, verb string, n naming) *cobra.Command {
	o := &named{}
	l := newLeaf(env, use, short, verb+" job", func(l *leaf, c *Cluster) error {
		if o.Name == "" {
			return errNoName
		}
		if err := c.vc.Jobs(o.Namespace).Delete(l.Context(), o.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return l.printf("%s job %s successfully\n", verb, o.Name)
	})
	o.add(l, n)
	return l.Command
}
