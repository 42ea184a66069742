// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/feed"
	"github.com/drover-dev/drover/internal/cli/pick"
	"github.com/drover-dev/drover/internal/cli/wait"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// mostFollowed is how many logs are read at the same time. More must wait until one of these has ended.
const mostFollowed = 200

// Follow shows the logs of object's pods as they come, and returns how the work ended once everything is shown. object
// is its state as the server has just returned it. With o.Failed, a log is shown once it is that of a failure.
func Follow(ctx context.Context, o *Options, object runtime.Object) (wait.Verdict, error) {
	client, err := o.Factory.Kubernetes()
	if err != nil {
		return wait.Verdict{}, err
	}
	namespace, err := o.Factory.Namespace()
	if err != nil {
		return wait.Verdict{}, err
	}
	f := &follower{
		Options:   o,
		client:    client,
		namespace: namespace,
		selector:  o.Ref.Kind.PodSelector(object),
		open:      o.opener(client),
		out:       newOutput(o.Factory, o.Prefix != nil && *o.Prefix || o.Prefix == nil && o.Ref.Kind.ManyPods(object)),
		progress:  wait.NewProgress(o.Factory, []workload.Ref{o.Ref}),
		lost:      wait.LostPrinter(o.Factory),
		slots:     make(chan struct{}, mostFollowed),
		seen:      map[types.UID]*followed{},
	}
	v, err := f.run(ctx, object)
	if err != nil {
		return v, pick.Wrap(o.Factory, o.Ref, "following the logs of", err)
	}
	return v, nil
}

// follower is one run of Follow.
type follower struct {
	*Options
	client    kubernetes.Interface
	namespace string
	selector  string
	open      Opener
	out       *output
	progress  *wait.Progress // told until there is a first line
	lost      func(error)    // told when the server is away
	slots     chan struct{}  // one for each log being read

	tails sync.WaitGroup // one for each container followed

	mu     sync.Mutex
	seen   map[types.UID]*followed
	closed bool  // nothing more is begun
	failed error // the first log that could not be read
}

func (f *follower) run(ctx context.Context, object runtime.Object) (wait.Verdict, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	quiet := f.progress.Start(ctx, f.client, f.namespace)
	defer quiet()
	f.out.first = sync.OnceFunc(func() { f.progress.Done(f.Ref) })

	watching.Go(func() {
		if err := f.watchPods(ctx, cancel); err != nil {
			cancel(fmt.Errorf("watching its pods: %w", err))
		}
	})
	end, err := f.awaitEnd(ctx, object)
	if err == nil {
		err = f.catchUp(ctx, cancel)
	}
	if err != nil {
		cancel(err) // the first cause stands
	}
	f.close()
	f.tails.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return end, cause
	}
	return end, f.failed
}

func (f *follower) watchPods(ctx context.Context, cancel context.CancelCauseFunc) error {
	pods := feed.Feed{
		Source: workload.Adapt(f.client.CoreV1().Pods(f.namespace)),
		Clock:  f.Factory.Clock,
		Labels: f.selector,
		Lost:   f.lost,
	}
	return pods.Run(ctx, func(e feed.Event) bool {
		if pod, ok := e.Object.(*corev1.Pod); ok {
			f.observe(ctx, cancel, pod, e.Type == feed.Gone)
		}
		return false
	})
}

// awaitEnd waits until the work has ended or is gone. Unlike the wait command it sits out a suspension.
func (f *follower) awaitEnd(ctx context.Context, object runtime.Object) (wait.Verdict, error) {
	v := wait.Verdict{Ref: f.Ref}
	suspended := false
	work := feed.Feed{
		Source: f.Ref.Kind.Open(f.client, f.namespace),
		Clock:  f.Factory.Clock,
		Name:   f.Ref.Name,
		Known:  object,
		Lost:   f.lost,
	}
	err := work.Run(ctx, func(e feed.Event) bool {
		if e.Type == feed.Gone {
			v.Deleted = true
			return true
		}
		if e.Type == feed.Present {
			v.Object, v.Summary = e.Object, f.Ref.Kind.Summarize(e.Object)
			f.progress.Observe(f.Ref, v.Summary, e.Object)
			if v.Summary.Outcome == workload.Stopped && !suspended {
				f.Factory.Printf("%s is suspended. Try: drover resume %s\n", f.Ref, f.Ref.Name)
			}
			suspended = v.Summary.Outcome == workload.Stopped
		}
		return v.Summary.Outcome == workload.Succeeded || v.Summary.Outcome == workload.Failed
	})
	return v, err
}

// catchUp looks at the pods once more after the end: what the watch tells of them may be behind.
func (f *follower) catchUp(ctx context.Context, cancel context.CancelCauseFunc) error {
	list, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: f.selector})
	if err != nil {
		return fmt.Errorf("listing its pods: %w", err)
	}
	for i := range list.Items {
		f.observe(ctx, cancel, &list.Items[i], false)
	}
	return nil
}

// close makes sure that nothing more is begun: no pod and, in the pods already seen, no container that has not started
// by now.
func (f *follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, p := range f.seen {
		p.set(nil, true)
	}
}

// observe notes a pod's state, and begins to follow its containers when the pod is first seen.
func (f *follower) observe(ctx context.Context, cancel context.CancelCauseFunc, pod *corev1.Pod, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.seen[pod.UID]; p != nil {
		p.set(pod, gone)
		return
	}
	if f.closed || gone || !f.wants(pod) {
		return
	}
	p := &followed{pod: pod, changed: make(chan struct{})}
	f.seen[pod.UID] = p
	names := f.containers(pod)
	for _, name := range names {
		t := &tail{follower: f, live: p, source: source{pod: pod, container: name, alone: len(names) == 1}}
		f.tails.Go(func() {
			if err := t.run(ctx); err != nil {
				f.trouble(cancel, t.source, err)
			}
		})
	}
}

// trouble notes that a log could not be read, which the command reports at its end, or not be written, which ends it.
func (f *follower) trouble(cancel context.CancelCauseFunc, s source, err error) {
	if errors.Is(err, errOutput) {
		cancel(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = fmt.Errorf("container %q of pod %q: %w", s.container, s.pod.Name, err)
	}
}

// followed is a pod in its latest state. It is safe for concurrent use.
type followed struct {
	mu      sync.Mutex
	pod     *corev1.Pod
	final   bool          // no container will start any more
	changed chan struct{} // closed and replaced at every change
}

// set notes a change; a nil pod means that its state is the same.
func (p *followed) set(pod *corev1.Pod, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod != nil {
		p.pod = pod
	}
	p.final = p.final || final
	close(p.changed)
	p.changed = make(chan struct{})
}

// container returns how far a container is, and a channel that is closed when that may have changed.
func (p *followed) container(name string) (position, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return positionOf(p.pod, name, p.final), p.changed
}
