// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drover-dev/drover/internal/job"
	nodelogs "github.com/drover-dev/drover/internal/node/logs"
	"github.com/drover-dev/drover/internal/node/retain"
	"github.com/drover-dev/drover/internal/standalone"
)

// retained returns the failed pods of object that are gone, and whose logs the standalone node has kept because the object asks for it.
// What cannot be asked for is told, and is no reason not to show the rest.
func (o *Options) retained(namespace string, object runtime.Object) ([]*corev1.Pod, *retain.Store) {
	m, err := meta.Accessor(object)
	if err != nil || m.GetAnnotations()[job.RetainFailedLogsAnnotation] != "true" {
		return nil, nil
	}
	selector, err := labels.Parse(o.Ref.Kind.PodSelector(object))
	if err != nil {
		return nil, nil
	}
	cluster, err := o.Factory.Cluster()
	if err != nil || cluster.DataDir == "" {
		return nil, nil
	}
	store := retain.In(standalone.Dir(cluster.DataDir).Node())
	kept, err := store.Pods(namespace)
	if err != nil {
		o.Factory.Printf("Logs of pods that are gone cannot be shown: %v\n", err)
		return nil, nil
	}
	var pods []*corev1.Pod
	for _, p := range kept {
		if ref := metav1.GetControllerOf(p); ref != nil && ref.UID == m.GetUID() && selector.Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods, store
}

// openRetained opens the log of a pod that is gone.
func (o *Options) openRetained(ctx context.Context, store *retain.Store, s source) io.ReadCloser {
	options := nodelogs.Options{Timestamps: o.Timestamps}
	if o.Tail >= 0 {
		options.Tail = &o.Tail
	}
	if o.Since > 0 {
		options.Since = time.Now().Add(-o.Since)
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(store.Log(ctx, s.pod, s.container, s.previous, options, write)) }()
	return read
}

// tellEnd says how a container of a pod that is gone has ended, since nobody else can be asked.
func (o *Options) tellEnd(s source) {
	status := containerStatus(s.pod, s.container)
	if status == nil {
		return
	}
	end := status.State.Terminated
	if s.previous || end == nil {
		end = status.LastTerminationState.Terminated
	}
	if end != nil {
		o.Factory.Printf("Pod %s is gone; its container %s ended with %s\n", s.pod.Name, s.container, exitText(end))
	}
}

func exitText(t *corev1.ContainerStateTerminated) string {
	if t.Signal != 0 {
		return fmt.Sprintf("exit code %d (%s, signal %d)", t.ExitCode, t.Reason, t.Signal)
	}
	return fmt.Sprintf("exit code %d (%s)", t.ExitCode, t.Reason)
}
