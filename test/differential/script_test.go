// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"
)

// A history is a txtar archive: a sentence that is true of both sides, then the script, a command a line, then the manifests
// that it creates. "#" begins a comment. Each history has a namespace of its own. The commands:
//
//	create FILE                    create the object in FILE. A pod template may leave out what the history is not about:
//	                               its pods are then bound to a machine without a kubelet, and do not restart.
//	use NAME                       the Job that what follows is about; at first, the one called job
//	await KEY=VALUE...             wait until all of it is true of the Job at once:
//	                               active, ready, terminating, succeeded, failed, uncounted: numbers in its status
//	                               completedIndexes, failedIndexes: index lists; "none" for an empty one
//	                               pods: its pods that exist; live: those of them that neither end nor have ended
//	                               start=set, start=unset: its start time
//	                               Suspended=True and the like: conditions
//	                               event=REASON: an event of that reason is there
//	                               gone=true, deleting=true: the Job itself
//	compare NAME                   wait until both sides are at rest, and compare them
//	set KEY=VALUE...               change fields of the Job's spec
//	patch JSON                     merge into the Job; "patch status JSON" into its status
//	refused PATTERN COMMAND...     the API server refuses the command with an error that matches PATTERN
//	delete-job PROPAGATION         background, foreground or orphan
//	delete KIND NAME               delete another object of the namespace
//	controller stop, controller start
//	                               kill the controllers, start them again; only in testdata/restart, once in each history
//
//	due DURATION                   the CronJob, which is called cron, was last due that long ago (-90m); it is overdue then if its
//	                               schedule says so
//	cron-set KEY=VALUE..., cron-patch JSON, delete-cron PROPAGATION
//	                               as for Jobs
//	touch                          change an annotation of the CronJob, so that the controllers look at it
//
// await knows of the CronJob: jobs: those that it controls; started: how many its status lists; lastSchedule, lastSuccess: set or
// unset; cron-gone=true. What depends on the time is written relative to the minute in which the history began: $minute(-5m),
// $hour(-2h), $time(-90m), and $stamp(-5m), which is how the names of a CronJob's Jobs end.
//
// In testdata/groups the gate WorkloadWithJob is on, and Workloads and PodGroups are compared too.
//
// What the kubelet and others do to the pods of the Job. WHICH is a number of pods, all, index=N, or pod=NAME of one that
// the script has created; a word of pending, running, terminating, failed, succeeded narrows it down:
//
//	start WHICH                    the containers run, the pod is ready; unready WHICH takes that back
//	succeed WHICH                  every container has ended with code 0
//	fail WHICH [exit=N] [container=NAME] [condition=TYPE] [ago=DURATION]
//	                               a container has ended with code N, else 1; that long ago, so that back-off is short
//	restarts WHICH count=N         the containers were restarted in place that often
//	delete-pod WHICH, evict WHICH  ask for the end of pods through the API, as kubectl and drains do
//	end WHICH [exit=N]             the kubelet has ended terminating pods, with code N, else 143: they go
//	drop WHICH                     delete pods that have ended
//	patch-pod WHICH JSON           merge into pods
type history struct {
	name     string // the file's, without its suffix
	about    string
	folder   string // below testdata: "", restart or groups
	commands []command
	files    map[string][]byte
}

// The folders of histories.
const (
	plain   = ""
	restart = "restart" // the controllers are killed and started again
	groups  = "groups"  // the gate WorkloadWithJob is on
	crons   = "crons"   // about CronJobs
)

type command struct {
	line  int
	verb  string
	words []string
	rest  string // what follows the verb, as it stands
}

func (c command) String() string { return strings.TrimSpace(c.verb + " " + c.rest) }

// readHistories reads testdata/*.txtar, and those in the folders below.
func readHistories() ([]history, error) {
	var all []history
	for _, folder := range []string{plain, restart, groups, crons} {
		paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			h, err := readHistory(path, folder)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", path, err)
			}
			all = append(all, h)
		}
	}
	return all, nil
}

func readHistory(path, folder string) (history, error) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		return history{}, err
	}
	h := history{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), folder: folder, files: map[string][]byte{}}
	for _, f := range archive.Files {
		h.files[f.Name] = f.Data
	}
	for n, line := range strings.Split(string(archive.Comment), "\n") {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "#"); ok && len(h.commands) == 0 {
			h.about = strings.TrimSpace(h.about + " " + strings.TrimSpace(text))
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		h.commands = append(h.commands, command{line: n + 1, verb: verb, rest: strings.TrimSpace(rest), words: strings.Fields(rest)})
	}
	if h.about == "" {
		return h, errors.New("it does not say what it is about")
	}
	if last := h.commands[len(h.commands)-1]; last.verb != "compare" {
		return h, errors.New("its last command is not compare: what it ends with is not looked at")
	}
	var controller []string
	for _, c := range h.commands {
		if c.verb == "controller" {
			controller = append(controller, c.rest)
		}
	}
	if want := map[string][]string{restart: {"stop", "start"}}[folder]; !slices.Equal(controller, want) {
		return h, fmt.Errorf("it does %q with the controllers; in this folder that must be %q", controller, want)
	}
	return h, nil
}

// actor runs the commands of one history on one side.
type actor struct {
	*side
	history    *history
	namespace  string
	base       time.Time            // the minute in which the history began
	job        string               // the Job that commands are about
	names      map[types.UID]string // of what the script has created
	groupNames map[string]string    // of Workloads and PodGroups
	acted      time.Time
}

func newActor(s *side, h *history, base time.Time) *actor {
	return &actor{side: s, history: h, namespace: h.name, base: base, job: "job", names: map[types.UID]string{}, groupNames: map[string]string{}}
}

// verbs are the commands that act on one side alone. All are repeatable by the reader of a failure with kubectl.
var verbs = map[string]func(a *actor, ctx context.Context, c command) error{
	"create": (*actor).create, "use": (*actor).use, "await": (*actor).await, "set": (*actor).set, "patch": (*actor).patch,
	"due": (*actor).due, "cron-set": (*actor).cronSet, "cron-patch": (*actor).cronPatch, "delete-cron": (*actor).deleteCron, "touch": (*actor).touch,
	"delete-job": (*actor).deleteJob, "delete": (*actor).delete,
	"start": (*actor).start, "unready": (*actor).unready, "succeed": (*actor).succeed, "fail": (*actor).fail, "restarts": (*actor).restarts,
	"delete-pod": (*actor).deletePod, "evict": (*actor).evict, "end": (*actor).end, "drop": (*actor).drop, "patch-pod": (*actor).patchPod,
}

func (a *actor) do(ctx context.Context, c command) error {
	c.rest = a.inTime(c.rest)
	c.words = strings.Fields(c.rest)
	if c.verb == "refused" {
		return a.refused(ctx, c)
	}
	verb, ok := verbs[c.verb]
	if !ok {
		return fmt.Errorf("%q is no command; script_test.go lists them", c.verb)
	}
	err := verb(a, ctx, c)
	a.acted = time.Now()
	return err
}

func (a *actor) refused(ctx context.Context, c command) error {
	if len(c.words) < 2 {
		return errors.New("usage: refused PATTERN COMMAND...")
	}
	pattern, err := regexp.Compile(c.words[0])
	if err != nil {
		return err
	}
	inner := strings.TrimSpace(strings.TrimPrefix(c.rest, c.words[0]))
	verb, rest, _ := strings.Cut(inner, " ")
	err = a.do(ctx, command{line: c.line, verb: verb, rest: rest, words: strings.Fields(rest)})
	switch {
	case err == nil:
		return fmt.Errorf("%q was not refused", inner)
	case !pattern.MatchString(err.Error()):
		return fmt.Errorf("%q was refused, but not with %q: %w", inner, pattern, err)
	}
	return nil
}

// kinds are those that a history can create.
var kinds = map[string]schema.GroupVersionResource{
	"Job":           {Group: "batch", Version: "v1", Resource: "jobs"},
	"CronJob":       {Group: "batch", Version: "v1", Resource: "cronjobs"},
	"Pod":           {Version: "v1", Resource: "pods"},
	"ResourceQuota": {Version: "v1", Resource: "resourcequotas"},
	"PriorityClass": {Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}, // not in the namespace
	"Workload":      {Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "workloads"},
}

func (a *actor) create(ctx context.Context, c command) error {
	data, ok := a.history.files[c.rest]
	if !ok {
		return fmt.Errorf("the history has no file %q", c.rest)
	}
	// Owners of pods can be known by UID only.
	for uid, name := range a.names {
		data = bytes.ReplaceAll(data, []byte("$uid("+name+")"), []byte(uid))
	}
	data = []byte(a.inTime(string(data)))
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(data, &object.Object); err != nil {
		return fmt.Errorf("reading %s: %w", c.rest, err)
	}
	namespace := a.namespace
	if object.GetKind() == "PriorityClass" {
		namespace = metav1.NamespaceNone
	}
	object.SetNamespace(namespace)
	if object.GetKind() == "Job" {
		if err := completeTemplate(object.Object, "spec", "template", "spec"); err != nil {
			return err
		}
	}
	if object.GetKind() == "CronJob" {
		if err := completeTemplate(object.Object, "spec", "jobTemplate", "spec", "template", "spec"); err != nil {
			return err
		}
	}
	if object.GetKind() == "Pod" {
		if err := completeTemplate(object.Object, "spec"); err != nil {
			return err
		}
	}
	gvr, ok := kinds[object.GetKind()]
	if !ok {
		return fmt.Errorf("%s holds a %s, which no history needs yet", c.rest, object.GetKind())
	}
	stored, err := a.any.Resource(gvr).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return err
	}
	a.names[stored.GetUID()] = strings.ToLower(stored.GetKind()) + "/" + stored.GetName()
	if object.GetKind() == "ResourceQuota" {
		return a.awaitQuota(ctx, object.GetName())
	}
	return nil
}

// awaitQuota waits until a quota is in force.
func (a *actor) awaitQuota(ctx context.Context, name string) error {
	return wait.PollUntilContextTimeout(ctx, pollEvery, awaitLimit, true, func(ctx context.Context) (bool, error) {
		quota, err := a.client.CoreV1().ResourceQuotas(a.namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) > 0, err
	})
}

// completeTemplate fills in what every pod needs.
func completeTemplate(object map[string]any, path ...string) error {
	spec, _, err := unstructured.NestedMap(object, path...)
	if err != nil {
		return err
	}
	if spec == nil {
		spec = map[string]any{}
	}
	for key, value := range map[string]any{
		"restartPolicy": "Never", "nodeName": machine,
		"containers": []any{map[string]any{"name": "main", "image": "work"}},
	} {
		if _, ok := spec[key]; !ok {
			spec[key] = value
		}
	}
	if spec["nodeName"] == "" {
		spec["schedulerName"] = "nobody"
	}
	return unstructured.SetNestedMap(object, spec, path...)
}

func (a *actor) use(_ context.Context, c command) error {
	a.job = c.rest
	return nil
}

// set changes fields of the Job's spec: set parallelism=3 suspend=false.
func (a *actor) set(ctx context.Context, c command) error {
	body, err := specPatch(c)
	if err != nil {
		return err
	}
	_, err = a.client.BatchV1().Jobs(a.namespace).Patch(ctx, a.job, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// specPatch returns the merge patch that the words of a command ask for.
func specPatch(c command) ([]byte, error) {
	spec := map[string]any{}
	for _, word := range c.words {
		key, text, ok := strings.Cut(word, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", word)
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return nil, err
		}
		spec[key] = value
	}
	return json.Marshal(map[string]any{"spec": spec})
}

func (a *actor) patch(ctx context.Context, c command) error {
	text, isStatus := strings.CutPrefix(c.rest, "status ")
	var sub []string
	if isStatus {
		sub = []string{"status"}
	}
	_, err := a.client.BatchV1().Jobs(a.namespace).Patch(ctx, a.job, types.MergePatchType, []byte(text), metav1.PatchOptions{}, sub...)
	return err
}

func (a *actor) deleteJob(ctx context.Context, c command) error {
	options, err := deletion(c.rest)
	if err != nil {
		return err
	}
	return a.client.BatchV1().Jobs(a.namespace).Delete(ctx, a.job, options)
}

func deletion(how string) (metav1.DeleteOptions, error) {
	propagation, ok := map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
	}[how]
	if !ok {
		return metav1.DeleteOptions{}, fmt.Errorf("%q is no way to delete something", how)
	}
	return metav1.DeleteOptions{PropagationPolicy: &propagation}, nil
}

func (a *actor) delete(ctx context.Context, c command) error {
	if len(c.words) != 2 {
		return errors.New("usage: delete KIND NAME")
	}
	gvr, ok := kinds[c.words[0]]
	if !ok {
		return fmt.Errorf("%q is no kind that a history knows", c.words[0])
	}
	return a.any.Resource(gvr).Namespace(a.namespace).Delete(ctx, c.words[1], metav1.DeleteOptions{})
}

// pollEvery is how often a history looks for what the caches do not tell.
const pollEvery = 50 * time.Millisecond

// awaitLimit is how long a history waits for what must come: the longest back-off that a history needs, and a busy machine.
const awaitLimit = 45 * time.Second

func (a *actor) await(ctx context.Context, c command) error {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	for {
		changed := a.record.next(a.namespace)
		have, err := a.facts()
		if err != nil {
			return err
		}
		missing := slices.ContainsFunc(c.words, func(word string) bool {
			key, want, _ := strings.Cut(word, "=")
			if key == "event" {
				return !strings.Contains(have["events"], "["+want+"]")
			}
			got, ok := have[key]
			return !ok && want != "none" || ok && got != want
		})
		if !missing {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited for %s in vain; there is %s", c.rest, describe(have))
		}
	}
}

// facts returns what await can ask for, as it stands in the caches.
func (a *actor) facts() (map[string]string, error) {
	have := map[string]string{}
	var existing, live int
	pods, err := a.record.pods.ByIndex("namespace", a.namespace)
	if err != nil {
		return nil, err
	}
	for _, o := range pods {
		if p := o.(*corev1.Pod); a.isOf(p) {
			existing++
			if isActive(p) {
				live++
			}
		}
	}
	have["pods"], have["live"] = strconv.Itoa(existing), strconv.Itoa(live)
	events, err := a.record.events.ByIndex("namespace", a.namespace)
	if err != nil {
		return nil, err
	}
	for _, o := range events {
		if e := o.(*corev1.Event); e.InvolvedObject.Name == a.job || e.InvolvedObject.Name == cron {
			have["events"] += "[" + e.Reason + "]"
		}
	}
	if err := a.cronFacts(have); err != nil {
		return nil, err
	}
	j, ok := a.cachedJob()
	have["gone"] = strconv.FormatBool(!ok)
	if !ok {
		return have, nil
	}
	s := &j.Status
	have["deleting"] = strconv.FormatBool(j.DeletionTimestamp != nil)
	have["active"], have["succeeded"], have["failed"] = strconv.Itoa(int(s.Active)), strconv.Itoa(int(s.Succeeded)), strconv.Itoa(int(s.Failed))
	if s.Ready != nil {
		have["ready"] = strconv.Itoa(int(*s.Ready))
	}
	if s.Terminating != nil {
		have["terminating"] = strconv.Itoa(int(*s.Terminating))
	}
	uncounted := 0
	if u := s.UncountedTerminatedPods; u != nil {
		uncounted = len(u.Succeeded) + len(u.Failed)
	}
	have["uncounted"] = strconv.Itoa(uncounted)
	if s.CompletedIndexes != "" {
		have["completedIndexes"] = s.CompletedIndexes
	}
	if s.FailedIndexes != nil && *s.FailedIndexes != "" {
		have["failedIndexes"] = *s.FailedIndexes
	}
	have["start"] = map[bool]string{true: "set", false: "unset"}[s.StartTime != nil]
	for _, condition := range s.Conditions {
		have[string(condition.Type)] = string(condition.Status)
	}
	return have, nil
}

func describe(have map[string]string) string {
	var lines []string
	for key, value := range have {
		lines = append(lines, key+"="+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// isNotFound is what a script gets when it names what is not there.
func isNotFound(err error) bool { return apierrors.IsNotFound(err) }
