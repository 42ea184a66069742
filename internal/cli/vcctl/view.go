// SPDX-License-Identifier: Apache-2.0

package vcctl

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

func newJobView(env *Env) *cobra.Command {
	o := &named{}
	l := newLeaf(env, "view", "show job information", "view job", func(l *leaf, c *Cluster) error { return viewJob(l, c, o.Namespace, o.Name) })
	o.add(l, vcctlFlags)
	return l.Command
}

func viewJob(l *leaf, c *Cluster, namespace, name string) error {
	if name == "" {
		return errNoName
	}
	j, err := c.vc.Jobs(namespace).Get(l.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	events, err := c.kube.CoreV1().Events(namespace).List(l.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(j.UID)})
	if err != nil {
		return fmt.Errorf("listing its events: %w", err)
	}
	return l.printf("%s", jobView(j, events.Items, l.env.Now()))
}

// page is a text of indented lines, a name and a value each.
type page struct{ strings.Builder }

func (p *page) line(depth int, name string, value any) {
	text := fmt.Sprint(value)
	lead := strings.Repeat("  ", depth) + name + ":"
	if text == "" {
		fmt.Fprintf(p, "%s\n", lead)
		return
	}
	fmt.Fprintf(p, "%-14s %s\n", lead, text)
}

func (p *page) pairs(depth int, name string, m map[string]string) {
	if len(m) == 0 {
		p.line(depth, name, "<none>")
		return
	}
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			name = strings.Repeat(" ", len(name))
			fmt.Fprintf(p, "%-14s %s=%s\n", strings.Repeat("  ", depth)+name, key, m[key])
			continue
		}
		p.line(depth, name, key+"="+m[key])
	}
}

// jobView describes a Job.
func jobView(j *batch.Job, events []corev1.Event, now time.Time) string {
	var p page
	p.line(0, "Name", j.Name)
	p.line(0, "Namespace", j.Namespace)
	p.pairs(0, "Labels", j.Labels)
	p.pairs(0, "Annotations", j.Annotations)
	p.line(0, "API Version", batch.GroupVersion)
	p.line(0, "Kind", "Job")
	p.line(0, "Metadata", "")
	p.line(1, "Creation Timestamp", j.CreationTimestamp.UTC().Format(time.RFC3339))
	p.line(1, "UID", j.UID)
	p.line(0, "Spec", "")
	p.line(1, "Min Available", j.Spec.MinAvailable)
	p.line(1, "Queue", j.Spec.Queue)
	p.line(1, "Scheduler Name", j.Spec.SchedulerName)
	p.line(1, "Max Retry", j.Spec.MaxRetry)
	if len(j.Spec.Plugins) > 0 {
		p.line(1, "Plugins", "")
		for _, name := range slices.Sorted(maps.Keys(j.Spec.Plugins)) {
			p.line(2, name, strings.Join(j.Spec.Plugins[name], " "))
		}
	}
	p.line(1, "Tasks", "")
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		p.line(2, "Name", t.Name)
		p.line(2, "Replicas", t.Replicas)
		for k := range t.Template.Spec.Containers {
			c := &t.Template.Spec.Containers[k]
			p.line(2, "Container", c.Name)
			p.line(3, "Image", c.Image)
			if len(c.Command) > 0 {
				p.line(3, "Command", strings.Join(c.Command, " "))
			}
			for _, amounts := range []struct {
				name string
				list corev1.ResourceList
			}{{"Requests", c.Resources.Requests}, {"Limits", c.Resources.Limits}} {
				for _, name := range slices.Sorted(maps.Keys(amounts.list)) {
					q := amounts.list[name]
					p.line(3, amounts.name+" "+string(name), q.String())
				}
			}
		}
	}
	s := &j.Status
	p.line(0, "Status", "")
	p.line(1, "State", "")
	p.line(2, "Phase", s.State.Phase)
	if s.State.Reason != "" {
		p.line(2, "Reason", s.State.Reason)
	}
	if s.State.Message != "" {
		p.line(2, "Message", s.State.Message)
	}
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"Pending", s.Pending},
		{"Running", s.Running},
		{"Succeeded", s.Succeeded},
		{"Failed", s.Failed},
		{"Terminating", s.Terminating},
		{"Unknown", s.Unknown},
		{"Retry Count", s.RetryCount},
		{"Version", s.Version},
	} {
		if n.value != 0 {
			p.line(1, n.name, n.value)
		}
	}
	if len(s.ControlledResources) > 0 {
		p.pairs(1, "Controlled Resources", s.ControlledResources)
	}
	if len(s.Conditions) > 0 {
		p.line(1, "Conditions", "")
		for _, c := range s.Conditions {
			at := ""
			if c.LastTransitionTime != nil {
				at = c.LastTransitionTime.UTC().Format(time.RFC3339)
			}
			p.line(2, string(c.Status), at)
		}
	}
	p.events(events, now)
	return p.String()
}

func (p *page) events(events []corev1.Event, now time.Time) {
	if len(events) == 0 {
		p.line(0, "Events", "<none>")
		return
	}
	p.line(0, "Events", "")
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return cmp.Compare(lastSeen(&a).Unix(), lastSeen(&b).Unix()) })
	fmt.Fprintf(p, "%-15s%-25s%-15s%s\n", "Type", "Reason", "Age", "Message")
	for i := range events {
		e := &events[i]
		fmt.Fprintf(p, "%-15s%-25s%-15s%s\n", e.Type, e.Reason, duration.HumanDuration(now.Sub(lastSeen(e))), e.Message)
	}
}

func lastSeen(e *corev1.Event) time.Time {
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
