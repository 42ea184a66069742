// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/job"
	"github.com/drover-dev/drover/internal/node/kubeletapi"
)

// retained returns the failed pods of object that are gone, and whose logs the standalone node has kept because the object asks for it.
// What cannot be asked for is told, and is no reason not to show the rest.
func (o *Options) retained(ctx context.Context, client kubernetes.Interface, namespace string, object runtime.Object) []*corev1.Pod {
	m, err := meta.Accessor(object)
	if err != nil || m.GetAnnotations()[job.RetainFailedLogsAnnotation] != "true" {
		return nil
	}
	selector, err := labels.Parse(o.Ref.Kind.PodSelector(object))
	if err != nil {
		return nil
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		o.Factory.Printf("Logs of pods that are gone cannot be shown: listing nodes: %v\n", err)
		return nil
	}
	var pods []*corev1.Pod
	for _, node := range nodes.Items {
		data, err := client.CoreV1().RESTClient().Get().AbsPath(retainedPath(node.Name, namespace)).DoRaw(ctx)
		var list corev1.PodList
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			o.Factory.Printf("Logs of pods that are gone cannot be shown: asking node %s: %v\n", node.Name, err)
			continue
		}
		for i := range list.Items {
			p := &list.Items[i]
			if ref := metav1.GetControllerOf(p); ref != nil && ref.UID == m.GetUID() && selector.Matches(labels.Set(p.Labels)) {
				p.Spec.NodeName = node.Name
				pods = append(pods, p)
			}
		}
	}
	return pods
}

func retainedPath(node, namespace string) string {
	return "/api/v1/nodes/" + node + "/proxy" + kubeletapi.RetainedPath + "/" + namespace
}

// openRetained opens the log of a pod that is gone.
func openRetained(ctx context.Context, client kubernetes.Interface, s source, opts *corev1.PodLogOptions) (io.ReadCloser, error) {
	r := client.CoreV1().RESTClient().Get().AbsPath(retainedPath(s.pod.Spec.NodeName, s.pod.Namespace), string(s.pod.UID), s.container).
		Param("previous", strconv.FormatBool(opts.Previous)).Param("timestamps", strconv.FormatBool(opts.Timestamps))
	if opts.TailLines != nil {
		r = r.Param("tailLines", strconv.FormatInt(*opts.TailLines, 10))
	}
	if opts.SinceSeconds != nil {
		r = r.Param("sinceSeconds", strconv.FormatInt(*opts.SinceSeconds, 10))
	}
	return r.Stream(ctx)
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
