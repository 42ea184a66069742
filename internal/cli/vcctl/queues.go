// SPDX-License-Identifier: Apache-2.0

package vcctl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

var errNoQueue = errors.New("queue name must be specified")

func newQueueCreate(env *Env) *cobra.Command {
	q := &scheduling.Queue{TypeMeta: metav1.TypeMeta{APIVersion: scheduling.GroupVersion.String(), Kind: "Queue"}}
	l := newLeaf(env, "create", "create queue", "create queue", func(l *leaf, c *Cluster) error {
		_, err := c.vc.Queues().Create(l.Context(), q, metav1.CreateOptions{})
		return err
	})
	l.Flags().StringVarP(&q.Name, "name", "n", "test", "the name of queue")
	l.Flags().Int32VarP(&q.Spec.Weight, "weight", "w", 1, "the weight of the queue")
	l.Flags().StringVarP((*string)(&q.Status.State), "state", "S", "Open", "the state of queue")
	return l.Command
}

func newQueueDelete(env *Env) *cobra.Command {
	name := ""
	l := newLeaf(env, "delete", "delete queue", "delete queue", func(l *leaf, c *Cluster) error {
		if name == "" {
			return errNoQueue
		}
		return c.vc.Queues().Delete(l.Context(), name, metav1.DeleteOptions{})
	})
	l.Flags().StringVarP(&name, "name", "n", "", "the name of queue")
	return l.Command
}

func newQueueOperate(env *Env) *cobra.Command {
	var name, action string
	var weight int32
	l := newLeaf(env, "operate", "operate queue", "operate queue", func(l *leaf, c *Cluster) error {
		if name == "" {
			return errNoQueue
		}
		switch action {
		case "open", "close":
			q, err := c.vc.Queues().Get(l.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			ref := *metav1.NewControllerRef(q, scheduling.GroupVersion.WithKind("Queue"))
			do := map[string]batch.Action{"open": batch.OpenQueueAction, "close": batch.CloseQueueAction}[action]
			return issue(l.Context(), c, defaultNamespace, ref, string(do))
		case "update":
			if weight <= 0 {
				return errors.New("when update queue, weight must be specified, the value must be greater than 0")
			}
			patch := fmt.Appendf(nil, `{"spec":{"weight":%d}}`, weight)
			_, err := c.vc.Queues().Patch(l.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		case "":
			return errors.New("action can not be null")
		}
		return fmt.Errorf("action %s invalid, valid actions are open, close and update", action)
	})
	l.Flags().StringVarP(&name, "name", "n", "", "the name of queue")
	l.Flags().Int32VarP(&weight, "weight", "w", 0, "the weight of the queue")
	l.Flags().StringVarP(&action, "action", "a", "", "operate action to queue, valid actions are open, close, update")
	return l.Command
}

func newQueueList(env *Env, use string) *cobra.Command {
	return newLeaf(env, use, "lists all the queue", "list queues", listQueues).Command
}

func newQueueGet(env *Env) *cobra.Command {
	name := ""
	l := newLeaf(env, "get", "get a queue", "get queue", func(l *leaf, c *Cluster) error {
		if name == "" {
			return errNoQueue
		}
		return showQueue(l, c, name)
	})
	l.Flags().StringVarP(&name, "name", "n", "", "the name of queue")
	return l.Command
}

// newVqueues lists queues, or shows the one that is named.
func newVqueues(env *Env) *cobra.Command {
	name := ""
	l := newLeaf(env, "vqueues", "view queue information", "view queues", func(l *leaf, c *Cluster) error {
		if name != "" {
			return showQueue(l, c, name)
		}
		return listQueues(l, c)
	})
	l.Flags().StringVarP(&name, "name", "n", "", "the name of queue")
	return l.Command
}

func listQueues(l *leaf, c *Cluster) error {
	queues, err := c.vc.Queues().List(l.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	return printQueues(l, c, queues.Items)
}

func showQueue(l *leaf, c *Cluster, name string) error {
	q, err := c.vc.Queues().Get(l.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return printQueues(l, c, []scheduling.Queue{*q})
}

// printQueues counts the groups itself: the numbers in the status are those of who maintains it.
func printQueues(l *leaf, c *Cluster, queues []scheduling.Queue) error {
	groups, err := c.vc.PodGroups("").List(l.Context(), metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("counting its pod groups: %w", err)
	}
	return l.printf("%s", queueTable(queues, groups.Items))
}

var queueColumns = []column{
	{"Weight", 8}, {"State", 8}, {"Parent", 8}, {"Inqueue", 8}, {"Pending", 8}, {"Running", 8}, {"Unknown", 8}, {"Completed", 10},
}

// queueTable returns the list of queues with the numbers of their PodGroups by phase.
func queueTable(queues []scheduling.Queue, groups []scheduling.PodGroup) string {
	count := map[string]map[scheduling.PodGroupPhase]int{}
	for i := range groups {
		g := &groups[i]
		if count[g.Spec.Queue] == nil {
			count[g.Spec.Queue] = map[scheduling.PodGroupPhase]int{}
		}
		phase := g.Status.Phase
		if phase == "" {
			phase = scheduling.GroupPending
		}
		count[g.Spec.Queue][phase]++
	}
	var names []string
	var rows [][]string
	for i := range queues {
		q := &queues[i]
		n := count[q.Name]
		names = append(names, q.Name)
		rows = append(rows, texts(
			q.Spec.Weight, q.Status.State, q.Spec.Parent, n[scheduling.GroupInqueue], n[scheduling.GroupPending], n[scheduling.GroupRunning],
			n[scheduling.GroupUnknown], n[scheduling.GroupCompleted],
		))
	}
	return table(false, make([]string, len(rows)), names, queueColumns, rows)
}
