// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/workload"
)

const (
	progressEvery = 2 * time.Second  // how often news is told, and how long a quick command stays silent
	reassureEvery = 30 * time.Second // how often is told that there is no news
	podsLookedAt  = 20               // in search of one that cannot start
	namedTargets  = 4                // how many targets a progress line names
)

// Progress tells the person at the terminal how work goes that takes longer than two seconds. It is safe for
// concurrent use.
type Progress struct {
	f    *command.Factory
	lost func(error) // for feeds

	mu      sync.Mutex
	waiting []target // in the order of the command line
}

type target struct {
	ref     workload.Ref
	summary workload.Summary
	object  runtime.Object // nil until it has been seen
}

// NewProgress returns the progress of waiting for refs.
func NewProgress(f *command.Factory, refs []workload.Ref) *Progress {
	p := &Progress{f: f, lost: LostPrinter(f)}
	for _, ref := range refs {
		p.waiting = append(p.waiting, target{ref: ref})
	}
	return p
}

// Observe notes the present state of a target.
func (p *Progress) Observe(ref workload.Ref, s workload.Summary, o runtime.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.waiting {
		if p.waiting[i].ref == ref {
			p.waiting[i].summary, p.waiting[i].object = s, o
		}
	}
}

// Done notes that nobody waits for a target any more.
func (p *Progress) Done(ref workload.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.waiting {
		if p.waiting[i].ref == ref {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return
		}
	}
}

// Start begins telling, until ctx ends or the returned function is called, which waits for the last line. With a nil
// client it does not look at pods.
func (p *Progress) Start(ctx context.Context, client kubernetes.Interface, namespace string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.tell(ctx, client, namespace) })
	return func() {
		cancel()
		wg.Wait()
	}
}

func (p *Progress) tell(ctx context.Context, client kubernetes.Interface, namespace string) {
	began := p.f.Clock.Now()
	ticker := p.f.Clock.NewTicker(progressEvery)
	defer ticker.Stop()
	last, toldAt := "", began
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C():
			text := p.Remaining()
			if text == "" || text == last && now.Sub(toldAt) < reassureEvery {
				continue
			}
			p.f.Printf("waiting for %s%s, %s so far\n", text, p.trouble(ctx, client, namespace), now.Sub(began).Round(time.Second))
			last, toldAt = text, now
		}
	}
}

// Remaining returns what is still waited for, with its state: "job.batch/pi (Running, 3/5 done)". It is "" if nothing is.
func (p *Progress) Remaining() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, t := range p.waiting[:min(namedTargets, len(p.waiting))] {
		if t.object == nil {
			names = append(names, t.ref.String())
			continue
		}
		names = append(names, fmt.Sprintf("%s (%s, %s done)", t.ref, t.summary.Status, t.summary.Done))
	}
	text := strings.Join(names, ", ")
	if more := len(p.waiting) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// trouble returns why a pod of the first target cannot start, as an addition to a line; "" if there is nothing to tell.
func (p *Progress) trouble(ctx context.Context, client kubernetes.Interface, namespace string) string {
	p.mu.Lock()
	var first target
	if len(p.waiting) > 0 {
		first = p.waiting[0]
	}
	p.mu.Unlock()
	if client == nil || first.object == nil || first.ref.Kind.PodSelector == nil || first.summary.Active == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, progressEvery/2)
	defer cancel()
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: first.ref.Kind.PodSelector(first.object),
		FieldSelector: "status.phase=Pending",
		Limit:         podsLookedAt,
	})
	if err != nil {
		return "" // progress is a courtesy; waiting itself will report what is wrong
	}
	for i := range pods.Items {
		if why := workload.PodTrouble(&pods.Items[i]); why != "" {
			return fmt.Sprintf(" (pod %s: %s)", pods.Items[i].Name, why)
		}
	}
	return ""
}
