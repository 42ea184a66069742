// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

// Annotations of PodGroups.
const (
	// WantedKey is set by those who make the pods of a PodGroup: what all of them want, where that is more than the minimum.
	WantedKey = "drover.dev/wanted"
	// GrantedKey is set when a PodGroup of a queue with a capability is admitted: what it may use. Without it there is no limit.
	GrantedKey = "drover.dev/granted"
)

// share is a Share as annotations have it.
type share struct {
	Pods      int32               `json:"pods"`
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// Text returns s as annotations have it.
func (s Share) Text() string {
	text, err := json.Marshal(share{s.Pods, s.Amounts.List()})
	if err != nil {
		return "" // quantities always have a text
	}
	return string(text)
}

// ShareOf reads what Text has written; false: it is not that.
func ShareOf(text string) (Share, bool) {
	var s share
	if text == "" || json.Unmarshal([]byte(text), &s) != nil {
		return Share{}, false
	}
	return Share{s.Pods, AmountsOf(s.Resources)}, true
}

// MayHave returns how many pods may be made for g; -1: as many as are wanted.
func MayHave(g *scheduling.PodGroup) int32 {
	if s, ok := ShareOf(g.Annotations[GrantedKey]); ok {
		return s.Pods
	}
	return -1
}

// GroupOf returns what counts of g; false: it has ended, and uses nothing.
func GroupOf(g *scheduling.PodGroup, priority int32) (Group, bool) {
	if g.Status.Phase == scheduling.GroupCompleted {
		return Group{}, false
	}
	least := Share{Pods: g.Spec.MinMember}
	if g.Spec.MinResources != nil {
		least.Amounts = AmountsOf(*g.Spec.MinResources)
	}
	c := Group{
		Key: g.Namespace + "/" + g.Name, Queue: g.Spec.Queue, Priority: priority, Created: g.CreationTimestamp.Time,
		Min: least, Full: least, Admitted: IsAdmitted(g),
	}
	if owner := metav1.GetControllerOfNoCopy(g); owner != nil {
		c.Name = g.Namespace + "/" + owner.Name
	}
	if wanted, ok := ShareOf(g.Annotations[WantedKey]); ok {
		c.Full = wanted
	}
	if c.Admitted {
		granted, ok := ShareOf(g.Annotations[GrantedKey])
		if !ok {
			granted = c.Full // nobody holds it back
		}
		c.Granted = granted
	}
	return c, true
}

// IsAdmitted reports whether pods of g may be made.
func IsAdmitted(g *scheduling.PodGroup) bool {
	return g.Status.Phase != "" && g.Status.Phase != scheduling.GroupPending
}

// IsPlaced reports whether as many pods of g were placed as must be placed at once.
func IsPlaced(g *scheduling.PodGroup) bool {
	return g.Status.Phase == scheduling.GroupRunning || g.Status.Phase == scheduling.GroupUnknown || g.Status.Phase == scheduling.GroupCompleted
}

// Members are the pods of a PodGroup. Those that are being deleted are not among them.
type Members struct {
	Waiting   int32 // have no node yet
	Placed    int32 // have one, and do not run yet
	Running   int32
	Succeeded int32
	Failed    int32
	// Loose says that no Job of Volcano has made them: it would know whether those that have failed are to be made anew.
	Loose bool
	// Together says that the scheduler places those that must be there at once or not at all. Until they have all been seen, what it
	// said of some of them is out of date, and the PodGroup is not Unknown.
	Together bool
	// Unplaceable is why the scheduler cannot place some of those that wait; "": it has not said so.
	Unplaceable string
}

// Reasons of conditions, as Volcano's users know them.
const (
	ReasonNotEnoughResources = "NotEnoughResources"
	ReasonScheduled          = "Scheduled"
)

// Status returns how g fares. waits is why it is not admitted; "": it is, or is to be. A status that says the same as the present
// one is equal to it.
//
//	Pending ─► Inqueue ─► Running ─► Completed
//	               ▲         │
//	               └─ Unknown ◄┘   some run, and others cannot be placed
//
// Source: Volcano, as specified in section 0 of its behaviour.
func Status(g *scheduling.PodGroup, waits string, m Members, now time.Time) scheduling.PodGroupStatus {
	s := *g.Status.DeepCopy()
	s.Running, s.Succeeded, s.Failed = m.Running, m.Succeeded, m.Failed
	there := m.Placed + m.Running + m.Succeeded
	active := m.Waiting + m.Placed + m.Running
	switch {
	case waits != "":
		s.Phase = scheduling.GroupPending
		setCondition(&s, scheduling.GroupUnschedulable, ReasonNotEnoughResources, waits, now)
	case there > 0 && there >= g.Spec.MinMember && active == 0, m.Loose && m.Failed > 0 && m.Succeeded+m.Failed >= g.Spec.MinMember && active == 0:
		s.Phase = scheduling.GroupCompleted
		clearUnschedulable(&s, now)
	case there > 0 && there >= g.Spec.MinMember:
		s.Phase = scheduling.GroupRunning
		if m.Unplaceable == "" || g.Spec.MinMember > 0 {
			setCondition(&s, scheduling.GroupScheduled, ReasonScheduled, fmt.Sprintf("%d pods must be placed at once, and are", g.Spec.MinMember), now)
		}
	case m.Placed+m.Running > 0 && m.Unplaceable != "" && (!m.Together || s.Phase != scheduling.GroupInqueue):
		s.Phase = scheduling.GroupUnknown
		setCondition(&s, scheduling.GroupUnschedulable, ReasonNotEnoughResources, m.Unplaceable, now)
	case m.Unplaceable != "":
		s.Phase = scheduling.GroupInqueue
		setCondition(&s, scheduling.GroupUnschedulable, ReasonNotEnoughResources, m.Unplaceable, now)
	case s.Phase == "" || s.Phase == scheduling.GroupPending:
		s.Phase = scheduling.GroupInqueue
		clearUnschedulable(&s, now)
	}
	return s
}

// setCondition makes one condition hold and no other, and puts it last.
func setCondition(s *scheduling.PodGroupStatus, kind scheduling.PodGroupConditionType, reason, message string, now time.Time) {
	next := scheduling.PodGroupCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	if n := len(s.Conditions); n > 0 && s.Conditions[n-1].Type == kind && s.Conditions[n-1].Status == corev1.ConditionTrue {
		if kind == scheduling.GroupScheduled {
			return // what it says does not change
		}
		next.LastTransitionTime = s.Conditions[n-1].LastTransitionTime
	}
	clearUnschedulable(s, now)
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c scheduling.PodGroupCondition) bool { return c.Type == kind })
	for i := range s.Conditions {
		s.Conditions[i].Status = corev1.ConditionFalse
	}
	s.Conditions = append(s.Conditions, next)
}

// clearUnschedulable says that nothing is in the way any more.
func clearUnschedulable(s *scheduling.PodGroupStatus, now time.Time) {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == scheduling.GroupUnschedulable && c.Status == corev1.ConditionTrue {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now.Truncate(time.Second))
		}
	}
}
