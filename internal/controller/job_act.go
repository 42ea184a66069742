// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/job"
)

// longestRefusalWait bounds how long a creation that was refused, by a quota for instance, waits for its next try.
const longestRefusalWait = 30 * time.Second

// delete asks for pods to be deleted, all beside each other.
func (s *jobSync) delete(ctx context.Context, deletions []job.Deletion) {
	if len(deletions) == 0 {
		return
	}
	s.action = "pods_deleted"
	s.c.gate.each(len(deletions), func(i int) {
		d := deletions[i]
		if d.Untrack {
			unchanged, err := s.dropFromCount(ctx, d)
			if err != nil {
				s.fail(fmt.Errorf("taking the tracking finalizer off pod %q: %w", d.Pod.Name, err))
			}
			if !unchanged {
				return
			}
		}
		why := ""
		if d.Late {
			why = s.whyNotStarted(ctx, d.Pod)
		}
		switch err := s.c.api.DeletePod(ctx, s.job.Namespace, d.Pod); {
		case err == nil:
			if d.Late {
				s.event(corev1.EventTypeWarning, job.ReasonStartTimeout, "%s", fmt.Sprintf(job.MessageStartTimeout, d.Pod.Name, s.extras.StartTimeout, why))
			}
			s.mu.Lock()
			s.state.ledger.MarkDeleting(d.Pod.UID)
			s.mu.Unlock()
			s.event(corev1.EventTypeNormal, job.ReasonSuccessfulDelete, job.MessageSuccessfulDelete, d.Pod.Name)
		case isGone(err):
			s.mu.Lock()
			s.state.ledger.Gone(d.Pod.UID)
			s.mu.Unlock()
		default:
			s.event(corev1.EventTypeWarning, job.ReasonFailedDelete, job.MessageFailedDelete, err)
			s.fail(fmt.Errorf("deleting pod %q: %w", d.Pod.Name, err))
		}
	})
}

// whyNotStarted asks the API server, since the cache does not keep everything of a pod.
func (s *jobSync) whyNotStarted(ctx context.Context, pod job.PodKey) string {
	live, err := s.c.api.Pod(ctx, s.job.Namespace, pod.Name)
	if err != nil || live.UID != pod.UID {
		return "it has gone meanwhile"
	}
	return job.WhyNotStarted(live)
}

// dropFromCount takes the tracking finalizer off a pod that is about to be deleted and must not count as failed. It reports
// false where the pod is not any more as it was when that was decided: it may have succeeded, and is looked at afresh.
//
// Differs: upstream takes the finalizer off whatever has happened, and a success of that moment is lost.
func (s *jobSync) dropFromCount(ctx context.Context, d job.Deletion) (unchanged bool, err error) {
	err = s.c.api.Untrack(ctx, s.job.Namespace, d.Pod, d.ResourceVersion)
	if apierrors.IsConflict(err) {
		var live *corev1.Pod
		if live, err = s.c.api.Pod(ctx, s.job.Namespace, d.Pod.Name); err == nil {
			s.wake(time.Millisecond, false)
			s.mu.Lock()
			defer s.mu.Unlock()
			if live.UID == d.Pod.UID {
				s.state.ledger.Observe(live)
			} else {
				s.state.ledger.Gone(d.Pod.UID)
			}
			return false, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		s.state.ledger.Gone(d.Pod.UID)
		return false, nil
	case err != nil:
		return false, err
	}
	s.state.ledger.MarkUntracked(d.Pod.UID)
	return true, nil
}

// create makes pods, slowly at first: where one cannot be made the others are not tried.
func (s *jobSync) create(ctx context.Context, creations []job.Creation) {
	if len(creations) == 0 {
		if s.action == "reconciling" {
			s.action = "tracking"
		}
		return
	}
	s.action = "pods_created"
	var refusal error
	s.c.gate.slowly(len(creations), func(i int) bool {
		err := s.createOne(ctx, creations[i])
		if err == nil {
			jobPodsCreation.WithLabelValues(string(creations[i].Cause), "succeeded").Inc()
			return true
		}
		jobPodsCreation.WithLabelValues(string(creations[i].Cause), "failed").Inc()
		s.mu.Lock()
		defer s.mu.Unlock()
		if outcomeOf(err) == refused {
			refusal = err
		} else {
			s.state.unresolved[creations[i].Name] = creations[i]
			s.errs = append(s.errs, fmt.Errorf("creating pod %q: %w", creations[i].Name, err))
		}
		return false
	})
	s.heed(refusal)
}

var errNameTaken = errors.New("the name belongs to a pod of somebody else")

func (s *jobSync) createOne(ctx context.Context, c job.Creation) error {
	p, err := job.NewPod(s.job, c)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if s.podGroup != "" {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(s.podGroup)}
	}
	created, err := s.c.api.CreatePod(ctx, p)
	if apierrors.IsAlreadyExists(err) {
		created, err = s.existing(ctx, c.Name)
		if errors.Is(err, errNameTaken) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.state.ledger.MarkTaken(c.Name)
			s.wake(time.Millisecond, false) // another name is tried at once
			return nil
		}
	}
	if err != nil {
		if !isNamespaceEnding(err) && s.tellsSomethingNew(err, c.Name) {
			s.event(corev1.EventTypeWarning, job.ReasonFailedCreate, job.MessageFailedCreate, err)
		}
		return err
	}
	s.state.expect(created.UID)
	s.mu.Lock()
	s.state.ledger.Created(created)
	s.mu.Unlock()
	s.event(corev1.EventTypeNormal, job.ReasonSuccessfulCreate, job.MessageSuccessfulCreate, created.Name)
	return nil
}

// existing returns the pod of that name if an earlier create of ours, whose answer was lost, has made it.
func (s *jobSync) existing(ctx context.Context, name string) (*corev1.Pod, error) {
	p, err := s.c.api.Pod(ctx, s.job.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("looking at the pod that has the name already: %w", err)
	}
	if !metav1.IsControlledBy(p, s.job) {
		return nil, errNameTaken
	}
	return p, nil
}

// tellsSomethingNew reports whether an error in creating the pod of that name says more than the last event did.
func (s *jobSync) tellsSomethingNew(err error, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.ReplaceAll(err.Error(), name, "")
	if s.state.refusal == text {
		return false
	}
	s.state.refusal = text
	return true
}

// heed waits longer and longer before a refused creation is tried again. A refusal is not a failed pod: it burns no back-off
// and no worker.
func (s *jobSync) heed(refusal error) {
	if refusal == nil {
		s.state.refusals = 0
		if len(s.errs) == 0 {
			s.state.refusal = ""
		}
		return
	}
	s.state.refusals++
	wait := longestRefusalWait
	if n := s.state.refusals - 1; n < 5 {
		wait = min(wait, time.Second<<n)
	}
	s.c.log.Info("Creation refused", "job", s.key, "err", refusal, "again", wait)
	s.wake(wait, false)
}

func (s *jobSync) event(eventType, reason, format string, args ...any) {
	s.c.events.Event(s.job, eventType, reason, fmt.Sprintf(format, args...))
}
