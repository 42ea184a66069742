// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// snapshot returns all that is in the namespace of the history, a fact a line, in an order that does not depend on chance.
// What must differ between two clusters, such as UIDs, times and the ends of pod names, stands there by what it is for.
func (a *actor) snapshot(ctx context.Context) ([]string, error) {
	jobs, err := a.client.BatchV1().Jobs(a.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := a.client.CoreV1().Pods(a.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	events, err := a.client.CoreV1().Events(a.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	n := newNames(a, jobs.Items, a.record.ever(a.namespace), pods.Items)
	cronJobs, err := a.cronLines(ctx, n, jobs.Items)
	if err != nil {
		return nil, err
	}
	groups, err := a.groupLines(ctx, n)
	if err != nil {
		return nil, err
	}

	var lines []string
	for _, j := range jobs.Items {
		for _, line := range n.flatten(&j) {
			lines = append(lines, fmt.Sprintf("job %s: %s", j.Name, line))
		}
		for _, line := range times(&j) {
			lines = append(lines, fmt.Sprintf("job %s: %s", j.Name, line))
		}
	}
	lines = append(append(lines, cronJobs...), groups...)
	lines = append(lines, a.record.everJobs(a.namespace)...)
	lines = append(lines, n.podLines(pods.Items)...)
	lines = append(lines, n.everLines(a.record.ever(a.namespace))...)
	return append(lines, n.eventLines(events.Items)...), nil
}

// tolerance is how far apart two times may be that belong together. They are of whole seconds, and not always of one instant.
const tolerance = 5 * time.Second

// groupLines tells of the Workloads and PodGroups, and gives n their names.
func (a *actor) groupLines(ctx context.Context, n *names) ([]string, error) {
	if a.history.folder != groups {
		return nil, nil
	}
	workloads, err := a.client.SchedulingV1beta1().Workloads(a.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	podGroups, err := a.client.SchedulingV1beta1().PodGroups(a.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	objects := map[string]any{}
	add := func(kind string, meta *metav1.ObjectMeta, object any) {
		name := meta.Name
		if ref := metav1.GetControllerOfNoCopy(meta); ref != nil {
			name = kind + "-of-" + ref.Name
			a.groupNames[meta.Name] = name
		}
		n.uids[meta.UID] = kind + "/" + name
		objects[kind+" "+name] = object
	}
	for _, w := range workloads.Items {
		add("workload", &w.ObjectMeta, &w)
	}
	for _, g := range podGroups.Items {
		add("podgroup", &g.ObjectMeta, &g)
	}
	maps.Copy(n.pods, a.groupNames) // events also tell of those that are gone
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		for _, line := range n.flatten(objects[name]) {
			lines = append(lines, name+": "+line)
		}
	}
	return lines, nil
}

// times says how the times of a Job relate, since they cannot be compared themselves.
func times(j *batchv1.Job) []string {
	var lines []string
	for _, c := range j.Status.Conditions {
		if end := j.Status.CompletionTime; end != nil && c.Type == batchv1.JobComplete {
			lines = append(lines, fmt.Sprintf("completed when Complete became true: %t", near(*end, c.LastTransitionTime)))
		}
		if start := j.Status.StartTime; start != nil && c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionFalse {
			lines = append(lines, fmt.Sprintf("started when Suspended became false: %t", near(*start, c.LastTransitionTime)))
		}
	}
	return lines
}

func near(a, b metav1.Time) bool { return a.Sub(b.Time).Abs() <= tolerance }

// names knows what the arbitrary names and UIDs of one side stand for.
type names struct {
	uids map[types.UID]string
	pods map[string]string
}

// generated is the name of a pod that a controller has made: the Job's, its index if it has one, and an arbitrary end.
var generated = regexp.MustCompile(`^(.*-)[a-z0-9]{5}$`)

func newNames(a *actor, jobs []batchv1.Job, ever []*corev1.Pod, pods []corev1.Pod) *names {
	n := &names{uids: maps.Clone(a.names), pods: map[string]string{}}
	for _, j := range jobs {
		n.uids[j.UID] = "job/" + j.Name
	}
	for _, p := range ever {
		n.addPod(p, a.names)
	}
	for _, p := range pods {
		n.addPod(&p, a.names)
	}
	return n
}

func (n *names) addPod(p *corev1.Pod, created map[types.UID]string) {
	if created[p.UID] != "" {
		n.pods[p.Name] = p.Name
		return
	}
	n.pods[p.Name] = generated.ReplaceAllString(p.Name, "$1#")
	n.uids[p.UID] = "pod/" + n.pods[p.Name]
}

var (
	uuid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timestamp = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z`)
	token     = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	refused   = regexp.MustCompile(`(pods "[-a-z0-9.]*-)[a-z0-9]{5}(")`) // a pod that never was
	word      = regexp.MustCompile(`[a-z0-9][-a-z0-9.]*[a-z0-9]`)
)

// plain returns text without what is arbitrary in it.
func (n *names) plain(text string) string {
	text = uuid.ReplaceAllStringFunc(text, func(uid string) string {
		if name := n.uids[types.UID(uid)]; name != "" {
			return "uid(" + name + ")"
		}
		return "uid(?)"
	})
	text = timestamp.ReplaceAllString(text, "(time)")
	text = token.ReplaceAllString(text, "kube-api-access-#")
	text = refused.ReplaceAllString(text, "$1#$2")
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if name := n.pods[w]; name != "" {
			return name
		}
		return w
	})
}

// flatten returns the fields of an object, each with its path.
func (n *names) flatten(object any) []string {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err) // API objects can be marshalled
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		panic(err)
	}
	metadata := fields["metadata"].(map[string]any)
	for _, key := range []string{"managedFields", "resourceVersion", "namespace"} {
		delete(metadata, key)
	}
	var lines []string
	n.walk("", fields, &lines)
	return lines
}

func (n *names) walk(path string, value any, lines *[]string) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			n.walk(strings.TrimPrefix(path+"."+key, "."), value[key], lines)
		}
		if len(value) == 0 {
			*lines = append(*lines, path+": {}")
		}
	case []any:
		for at, item := range value {
			n.walk(fmt.Sprintf("%s[%d]", path, at), item, lines)
		}
	default:
		*lines = append(*lines, path+": "+n.plain(fmt.Sprint(value)))
	}
}

// pods tells of the pods that exist. Those of one name form are numbered in the order of what is told of them.
func (n *names) ofPods(pods []corev1.Pod) map[string][]string {
	blocks := map[string][]string{}
	for _, p := range pods {
		blocks[n.pods[p.Name]] = append(blocks[n.pods[p.Name]], strings.Join(n.flatten(&p), "\n"))
	}
	return blocks
}

func (n *names) podLines(pods []corev1.Pod) []string {
	var lines []string
	blocks := n.ofPods(pods)
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		slices.Sort(blocks[name])
		for at, block := range blocks[name] {
			label := name
			if len(blocks[name]) > 1 {
				label = fmt.Sprintf("%s(%d)", name, at+1)
			}
			for _, line := range strings.Split(block, "\n") {
				lines = append(lines, fmt.Sprintf("pod %s: %s", label, line))
			}
		}
	}
	return lines
}

// everLines tells of every pod that there ever was, so that one pod too many does not go unseen because it is gone.
func (n *names) everLines(pods []*corev1.Pod) []string {
	counts := map[string]int{}
	for _, p := range pods {
		text := fmt.Sprintf("ever: pod %s, at last %s", n.pods[p.Name], p.Status.Phase)
		if failures, ok := p.Annotations[batchv1.JobIndexFailureCountAnnotation]; ok {
			text += ", made after " + failures + " failures of its index"
		}
		counts[text]++
	}
	return counted(counts)
}

func (n *names) eventLines(events []corev1.Event) []string {
	counts := map[string]int{}
	for _, e := range events {
		text := fmt.Sprintf("event of %s on %s %s: %s %s %q", e.Source.Component, e.InvolvedObject.Kind, n.plain(e.InvolvedObject.Name), e.Type, e.Reason, n.plain(e.Message))
		switch e.Reason {
		case "FailedCreate", "UnexpectedJob", "JobAlreadyActive", "SawCompletedJob": // told again when somebody looks again, or tries again
			counts[text] = 1
			continue
		}
		counts[text] += int(max(e.Count, 1))
	}
	return counted(counts)
}

func counted(counts map[string]int) []string {
	var lines []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%s ×%d", text, counts[text]))
	}
	return lines
}
