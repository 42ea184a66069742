// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"path"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// rawFlags are flag values that mean something only together with whether they were given.
type rawFlags struct {
	env          []string
	restart      string
	completions  int32
	parallelism  int32
	backoffLimit int32
}

// parse reads the arguments, after the flags. dash is how many of them stand before "--"; negative if there is none.
func (o *Options) parse(changed func(flag string) bool, raw rawFlags, args []string, dash int) error {
	names := args
	if dash >= 0 {
		names, o.Command = args[:dash], args[dash:]
	}
	switch {
	case len(names) > 1:
		return command.Usagef("%q: write -- between the name and the command: drover run %s -- %s", names, names[0], strings.Join(names[1:], " "))
	case len(o.Command) == 0 && !changed("image"):
		return command.Usagef("run what? Write -- and the command: drover run NAME -- COMMAND")
	case len(o.Command) == 0 && len(names) == 0:
		return command.Usagef("without a command, the Job needs a NAME")
	}
	if len(names) == 1 {
		o.Name = names[0]
	}
	o.Wait = o.Wait || o.Logs || o.Remove
	if o.Timeout > 0 && !o.Wait {
		return command.Usagef("--timeout limits waiting: add --wait")
	}
	switch o.DryRun {
	case "none":
	case "client", "server":
		if o.Wait {
			return command.Usagef("a dry run has nothing to wait for: leave out --wait, --logs and --rm")
		}
	default:
		return command.Usagef("--dry-run=%s: known are none, client and server", o.DryRun)
	}
	if o.Logs && o.Output.Format() != "" {
		return command.Usagef("--logs and --output both want standard output: leave out one")
	}
	if _, err := o.Output.Printer(); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	return o.parseSpec(changed, raw)
}

func (o *Options) parseSpec(changed func(flag string) bool, raw rawFlags) error {
	for _, n := range []struct {
		flag  string
		value int32
		field **int32
	}{
		{"completions", raw.completions, &o.Completions},
		{"parallelism", raw.parallelism, &o.Parallelism},
		{"backoff-limit", raw.backoffLimit, &o.BackoffLimit},
	} {
		if n.value < 0 {
			return command.Usagef("--%s %d: it cannot be negative", n.flag, n.value)
		}
		if changed(n.flag) {
			*n.field = &n.value
		}
	}
	if o.Indexed && o.Completions == nil {
		return command.Usagef("--indexed needs --completions, the number of indexes")
	}
	switch o.Restart = corev1.RestartPolicy(raw.restart); o.Restart {
	case corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure:
	default:
		return command.Usagef("--restart %s: a Job knows Never and OnFailure", raw.restart)
	}
	for _, assignment := range raw.env {
		name, value, given := strings.Cut(assignment, "=")
		if !given {
			if value, given = os.LookupEnv(name); !given {
				return command.Usagef("--env %s: it has no value, and is not set here either", name)
			}
		}
		if name == "" {
			return command.Usagef("--env %q: it has no name", assignment)
		}
		o.Env = append(o.Env, corev1.EnvVar{Name: name, Value: value})
	}
	return nil
}

// newJob returns the Job that o asks for. What o leaves open is left to the defaults of the API.
func newJob(o *Options) *batchv1.Job {
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels},
		Spec: batchv1.JobSpec{
			Completions:  o.Completions,
			Parallelism:  o.Parallelism,
			BackoffLimit: o.BackoffLimit,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: o.Labels},
				Spec: corev1.PodSpec{
					RestartPolicy: o.Restart,
					Containers: []corev1.Container{{
						Name:    "main",
						Image:   o.Image,
						Command: o.Command,
						Env:     o.Env,
					}},
				},
			},
		},
	}
	if o.Name == "" {
		job.GenerateName = generateName(o)
	}
	if o.Indexed {
		mode := batchv1.IndexedCompletion
		job.Spec.CompletionMode = &mode
	}
	return job
}

// generateName returns the beginning of a name after the command: "make-" for /usr/bin/make. Anything but lower-case
// letters and digits becomes a dash.
func generateName(o *Options) string {
	const longest = 40 // leaves room for the random end, and for what is added to the names of pods
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(path.Base(o.Command[0])))
	name = strings.Trim(name[:min(longest, len(name))], "-")
	if name == "" {
		name = "job"
	}
	return name + "-"
}

// print writes the Job in the chosen format, or the line that says what was done with it.
func (o *Options) print(job *batchv1.Job, structured printers.ResourcePrinter, done string) error {
	out := o.Factory.Streams.Out
	if structured == nil {
		name := job.Name
		if name == "" {
			name = job.GenerateName + "*"
		}
		_, err := fmt.Fprintf(out, "%s%s\n", workload.Lookup("job").Qualified(name), done)
		return err
	}
	if job.UID != "" {
		return structured.PrintObj(job, out)
	}
	manifest, err := asManifest(job)
	if err != nil {
		return err
	}
	return structured.PrintObj(manifest, out)
}

// asManifest returns a Job that no server has seen as a person would write it: without the empty structures that the Go
// type drags along.
func asManifest(job *batchv1.Job) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		return nil, fmt.Errorf("making a manifest of the job: %w", err)
	}
	prune(fields)
	return &unstructured.Unstructured{Object: fields}, nil
}

// prune removes empty objects, however deep; newJob makes none that mean anything.
func prune(value any) (empty bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if prune(field) {
				delete(v, key)
			}
		}
		return len(v) == 0
	case []any:
		for _, item := range v {
			prune(item)
		}
	}
	return false
}
