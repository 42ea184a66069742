// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func (a *actor) cachedJob() (*batchv1.Job, bool) {
	o, ok, err := a.record.jobs.GetByKey(a.namespace + "/" + a.job)
	if err != nil || !ok {
		return nil, false
	}
	return o.(*batchv1.Job), true
}

// isOf reports whether a pod is one of the Job that commands are about, also where that Job is gone.
func (a *actor) isOf(p *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(p)
	return ref != nil && ref.Name == a.job || ref == nil && p.Labels[batchv1.JobNameLabel] == a.job
}

func isFinished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func isActive(p *corev1.Pod) bool { return !isFinished(p) && p.DeletionTimestamp == nil }

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// choice is which pods a command is about, and its options.
type choice struct {
	count   int // -1: all there are
	index   string
	pod     string
	states  []string
	options map[string]string
}

// states are the words that narrow a choice down.
var states = map[string]func(*corev1.Pod) bool{
	"pending":     func(p *corev1.Pod) bool { return isActive(p) && p.Status.Phase == corev1.PodPending },
	"running":     func(p *corev1.Pod) bool { return isActive(p) && p.Status.Phase == corev1.PodRunning },
	"active":      isActive,
	"terminating": func(p *corev1.Pod) bool { return !isFinished(p) && p.DeletionTimestamp != nil },
	"unfinished":  func(p *corev1.Pod) bool { return !isFinished(p) },
	"succeeded":   func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded },
	"failed":      func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed },
	"finished":    isFinished,
	"any":         func(*corev1.Pod) bool { return true },
}

func parseChoice(words []string, usually string) (choice, error) {
	c := choice{count: 1, options: map[string]string{}}
	for n, word := range words {
		key, value, isOption := strings.Cut(word, "=")
		number, err := strconv.Atoi(word)
		switch {
		case n == 0 && err == nil:
			c.count = number
		case n == 0 && word == "all":
			c.count = -1
		case isOption && key == "index":
			c.index = value
		case isOption && key == "pod":
			c.pod = value
		case isOption:
			c.options[key] = value
		case states[word] != nil:
			c.states = append(c.states, word)
		default:
			return c, fmt.Errorf("%q says neither which pods nor what of them", word)
		}
	}
	if len(c.states) == 0 {
		c.states = []string{usually}
	}
	return c, nil
}

// choose returns the pods that a command is about, as they are stored: those that run before those that do not, low indexes
// before high ones. It is an error if there are fewer than asked for.
func (a *actor) choose(ctx context.Context, c choice) ([]corev1.Pod, error) {
	list, err := a.client.CoreV1().Pods(a.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		switch {
		case c.pod != "":
			return p.Name != c.pod
		case !a.isOf(&p), c.index != "" && p.Labels[batchv1.JobCompletionIndexAnnotation] != c.index:
			return true
		}
		return slices.ContainsFunc(c.states, func(state string) bool { return !states[state](&p) })
	})
	rank := func(p *corev1.Pod) int {
		switch {
		case isReady(p):
			return 0
		case p.Status.Phase == corev1.PodRunning:
			return 1
		}
		return 2
	}
	index := func(p *corev1.Pod) int {
		n, _ := strconv.Atoi(p.Labels[batchv1.JobCompletionIndexAnnotation]) // 0 where there is none
		return n
	}
	slices.SortFunc(pods, func(p, q corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(&p), rank(&q)), cmp.Compare(index(&p), index(&q)),
			p.CreationTimestamp.Compare(q.CreationTimestamp.Time), cmp.Compare(p.Name, q.Name))
	})
	if len(pods) < max(c.count, 1) {
		return nil, fmt.Errorf("there are %d such pods", len(pods))
	}
	if c.count >= 0 {
		pods = pods[:c.count]
	}
	return pods, nil
}

// each does something to the pods that a command is about.
func (a *actor) each(ctx context.Context, c command, usually string, known []string, do func(p *corev1.Pod, options map[string]string) error) error {
	chosen, err := parseChoice(c.words, usually)
	if err != nil {
		return err
	}
	for key := range chosen.options {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s takes no %s", c.verb, key)
		}
	}
	pods, err := a.choose(ctx, chosen)
	if err != nil {
		return err
	}
	for n := range pods {
		if err := do(&pods[n], chosen.options); err != nil {
			return fmt.Errorf("pod %q: %w", pods[n].Name, err)
		}
	}
	return nil
}

func (a *actor) storeStatus(ctx context.Context, p *corev1.Pod) error {
	// A patch and not an update: a finalizer that goes meanwhile is no conflict.
	body, err := json.Marshal(map[string]any{"status": p.Status})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Pods(a.namespace).Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// setContainers makes every container of p be in the state that of returns for it.
func setContainers(p *corev1.Pod, of func(container string) corev1.ContainerState) {
	restarts := map[string]int32{}
	for _, s := range p.Status.ContainerStatuses {
		restarts[s.Name] = s.RestartCount
	}
	p.Status.ContainerStatuses = nil
	for _, container := range p.Spec.Containers {
		state := of(container.Name)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: state.Running != nil, Started: ptr.To(state.Running != nil),
			State: state, RestartCount: restarts[container.Name],
		})
	}
}

// setCondition puts a condition of that type into p, with the present as its time.
func setCondition(p *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) {
	c := corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}
	for n := range p.Status.Conditions {
		if p.Status.Conditions[n].Type == kind {
			p.Status.Conditions[n] = c
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
}

func (a *actor) start(ctx context.Context, c command) error {
	return a.each(ctx, c, "pending", nil, func(p *corev1.Pod, _ map[string]string) error {
		p.Status.Phase = corev1.PodRunning
		p.Status.StartTime = ptr.To(metav1.Now())
		setContainers(p, func(string) corev1.ContainerState {
			return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		})
		setCondition(p, corev1.PodReady, corev1.ConditionTrue, "")
		return a.storeStatus(ctx, p)
	})
}

func (a *actor) unready(ctx context.Context, c command) error {
	return a.each(ctx, c, "running", nil, func(p *corev1.Pod, _ map[string]string) error {
		setCondition(p, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
		return a.storeStatus(ctx, p)
	})
}

func (a *actor) succeed(ctx context.Context, c command) error {
	return a.each(ctx, c, "active", nil, func(p *corev1.Pod, _ map[string]string) error {
		return a.finish(ctx, p, nil)
	})
}

func (a *actor) fail(ctx context.Context, c command) error {
	return a.each(ctx, c, "active", []string{"exit", "container", "condition", "ago"}, func(p *corev1.Pod, options map[string]string) error {
		if options["exit"] == "" {
			options["exit"] = "1"
		}
		return a.finish(ctx, p, options)
	})
}

// finish stores the end of a pod, which is a success if no container has ended with another code than 0.
func (a *actor) finish(ctx context.Context, p *corev1.Pod, options map[string]string) error {
	code, failing, ago := 0, options["container"], time.Duration(0)
	var err error
	if text := options["exit"]; text != "" {
		if code, err = strconv.Atoi(text); err != nil {
			return err
		}
	}
	if text := options["ago"]; text != "" {
		if ago, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	if failing == "" {
		failing = p.Spec.Containers[0].Name
	}
	at := metav1.NewTime(time.Now().Add(-ago))
	setContainers(p, func(container string) corev1.ContainerState {
		t := &corev1.ContainerStateTerminated{StartedAt: at, FinishedAt: at, Reason: "Completed"}
		if container == failing && code != 0 {
			t.ExitCode, t.Reason = int32(code), "Error"
		}
		return corev1.ContainerState{Terminated: t}
	})
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	if kind := options["condition"]; kind != "" {
		setCondition(p, corev1.PodConditionType(kind), corev1.ConditionTrue, "Told")
	}
	setCondition(p, corev1.PodReady, corev1.ConditionFalse, "PodCompleted")
	return a.storeStatus(ctx, p)
}

func (a *actor) restarts(ctx context.Context, c command) error {
	return a.each(ctx, c, "active", []string{"count"}, func(p *corev1.Pod, options map[string]string) error {
		count, err := strconv.Atoi(options["count"])
		if err != nil {
			return err
		}
		for n := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[n].RestartCount = int32(count)
		}
		return a.storeStatus(ctx, p)
	})
}

func (a *actor) deletePod(ctx context.Context, c command) error {
	return a.each(ctx, c, "active", nil, func(p *corev1.Pod, _ map[string]string) error {
		return a.client.CoreV1().Pods(a.namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	})
}

func (a *actor) drop(ctx context.Context, c command) error {
	return a.each(ctx, c, "finished", nil, func(p *corev1.Pod, _ map[string]string) error {
		return a.client.CoreV1().Pods(a.namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	})
}

func (a *actor) evict(ctx context.Context, c command) error {
	return a.each(ctx, c, "active", nil, func(p *corev1.Pod, _ map[string]string) error {
		return a.client.PolicyV1().Evictions(a.namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}})
	})
}

// terminated is the code of a process that has ended because it was asked to.
const terminated = "143"

func (a *actor) end(ctx context.Context, c command) error {
	return a.each(ctx, c, "terminating", []string{"exit", "condition"}, func(p *corev1.Pod, options map[string]string) error {
		if options["exit"] == "" {
			options["exit"] = terminated
		}
		if err := a.finish(ctx, p, options); err != nil {
			return err
		}
		err := a.client.CoreV1().Pods(a.namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if isNotFound(err) {
			return nil
		}
		return err
	})
}

func (a *actor) patchPod(ctx context.Context, c command) error {
	which, body, ok := strings.Cut(c.rest, "{")
	if !ok {
		return errors.New("usage: patch-pod WHICH JSON")
	}
	c.words = strings.Fields(which)
	return a.each(ctx, c, "any", nil, func(p *corev1.Pod, _ map[string]string) error {
		_, err := a.client.CoreV1().Pods(a.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte("{"+body), metav1.PatchOptions{})
		return err
	})
}
