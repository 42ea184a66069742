// SPDX-License-Identifier: Apache-2.0

package vcctl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drover-dev/drover/internal/podstate"
	"github.com/drover-dev/drover/internal/volcano/batch"
)

func newPodList(env *Env) *cobra.Command {
	var queue, job, namespace string
	var all bool
	l := newLeaf(env, "list", "list pod information created by vcjob", "list pods", func(l *leaf, c *Cluster) error {
		if all {
			namespace = metav1.NamespaceAll
		}
		wanted := labels.Set{}
		if queue != "" {
			wanted[batch.QueueKey] = queue
		}
		if job != "" {
			wanted[batch.JobNameKey] = job
		}
		selector := batch.JobNameKey
		if len(wanted) > 0 {
			selector += "," + wanted.String()
		}
		pods, err := c.kube.CoreV1().Pods(namespace).List(l.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		return l.printf("%s", podTable(pods.Items, all, l.env.Now()))
	})
	l.Flags().StringVarP(&queue, "queue", "q", "", "list pod with specified queue name")
	l.Flags().StringVarP(&job, "job", "j", "", "list pod with specified job name")
	l.Flags().StringVarP(&namespace, "namespace", "n", defaultNamespace, "the namespace of pod")
	l.Flags().BoolVar(&all, "all-namespaces", false, "list pods in all namespaces")
	return l.Command
}

var podColumns = []column{{"Ready", 8}, {"Status", 12}, {"Restart", 10}, {"Age", 10}}

func podTable(pods []corev1.Pod, withNamespace bool, now time.Time) string {
	var names, namespaces []string
	var rows [][]string
	for i := range pods {
		p := &pods[i]
		ready := 0
		for _, c := range p.Status.ContainerStatuses {
			if c.Ready {
				ready++
			}
		}
		status := string(p.Status.Phase)
		if p.DeletionTimestamp != nil {
			status = "Terminating"
		}
		names, namespaces = append(names, p.Name), append(namespaces, p.Namespace)
		rows = append(rows, texts(
			fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), status, podstate.Restarts(p), duration.HumanDuration(now.Sub(p.CreationTimestamp.Time)),
		))
	}
	return table(withNamespace, namespaces, names, podColumns, rows)
}
