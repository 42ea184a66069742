// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/config"
)

// rightsPeriod is how often the API server is asked whether we have got rights in a namespace where we had none.
const rightsPeriod = 10 * time.Second

// eachOnce returns namespaces in order, and none twice.
func eachOnce(namespaces []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(namespaces)))
}

// RunControllers runs the controllers that cfg asks for until ctx ends or one of them fails. made is told of them before they run.
//
// Of the namespaces that cfg selects it works in those where it has rights: one that is only to be made, with roles that are made after
// it, keeps no other waiting. When more are to be had, new controllers take the place of the old, and made is told again.
func RunControllers(ctx context.Context, cfg config.Controllers, rc *rest.Config, log *slog.Logger, made func(c *Controllers)) error {
	run := func(ctx context.Context, namespaces []string) error {
		cfg.Namespaces = namespaces
		c, err := NewControllers(cfg, rc, log)
		if err != nil {
			return err
		}
		made(c)
		return c.Run(ctx)
	}
	if len(cfg.Namespaces) == 0 {
		return run(ctx, nil)
	}
	kube, err := kubernetes.NewForConfig(controllerConfig(cfg, rc))
	if err != nil {
		return fmt.Errorf("connecting to look at namespaces: %w", err)
	}
	s := &selection{rights: namespaceRights{kube}, clock: clock.RealClock{}, log: log, namespaces: eachOnce(cfg.Namespaces)}
	return s.run(ctx, run)
}

// rights tells of namespaces.
type rights interface {
	// MayWork reports whether this process may work in a namespace.
	MayWork(ctx context.Context, namespace string) (bool, error)
	// IsMissing reports whether the API server says that there is no such namespace. Where it may not be asked, nobody knows.
	IsMissing(ctx context.Context, namespace string) bool
}

type namespaceRights struct{ kube kubernetes.Interface }

// MayWork asks for the right that every controller needs.
func (r namespaceRights) MayWork(ctx context.Context, namespace string) (bool, error) {
	review, err := r.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return true, nil // where nobody may ask for his rights, the caches will tell
	}
	if err != nil {
		return false, fmt.Errorf("asking for the rights in namespace %q: %w", namespace, err)
	}
	return review.Status.Allowed, nil
}

func (r namespaceRights) IsMissing(ctx context.Context, namespace string) bool {
	_, err := r.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// selection is the namespaces that are selected.
type selection struct {
	rights     rights
	clock      clock.WithTicker
	log        *slog.Logger
	namespaces []string
}

// run has work done in the namespaces where it can be, and begun anew when there are more.
func (s *selection) run(ctx context.Context, work func(ctx context.Context, namespaces []string) error) error {
	open, shut := s.look(ctx, s.namespaces)
	for _, namespace := range shut {
		s.log.Warn("There are no rights in a selected namespace, or it does not exist yet; work begins there when there are", "namespace", namespace)
	}
	for _, namespace := range open {
		if s.rights.IsMissing(ctx, namespace) {
			s.log.Info("A selected namespace does not exist yet", "namespace", namespace)
		}
	}
	for {
		if len(open) == 0 {
			open, shut = s.awaitMore(ctx, open, shut)
		}
		select {
		case <-ctx.Done():
			return nil
		default:
		}
		s.log.Info("Working in namespaces", "namespaces", strings.Join(open, ","))
		more, left, err := s.workUntilMore(ctx, open, shut, work)
		if err != nil || len(more) == len(open) {
			return err
		}
		open, shut = more, left
	}
}

// workUntilMore has work done in the namespaces open until it ends, or until there are rights in some of the namespaces shut. It returns
// all where there are rights then, and the others.
func (s *selection) workUntilMore(ctx context.Context, open, shut []string, work func(ctx context.Context, namespaces []string) error) (more, left []string, err error) {
	ctx, stop := context.WithCancel(ctx)
	more, left = open, shut
	var watching sync.WaitGroup
	if len(shut) > 0 {
		watching.Go(func() {
			more, left = s.awaitMore(ctx, open, shut)
			stop() // what is not done is taken up by those that follow
		})
	}
	err = work(ctx, open)
	stop()
	watching.Wait()
	return more, left, err
}

// awaitMore waits until there are rights in some of the namespaces shut, and returns all where there are some, and the others.
func (s *selection) awaitMore(ctx context.Context, open, shut []string) (more, left []string) {
	ticker := s.clock.NewTicker(rightsPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return open, shut
		case <-ticker.C():
		}
		if opened, left := s.look(ctx, shut); len(opened) > 0 {
			return eachOnce(slices.Concat(open, opened)), left
		}
	}
}

// look returns in which of these namespaces there are rights, and in which there are none. Where that cannot be found out it says that
// there are none: it is asked again.
func (s *selection) look(ctx context.Context, namespaces []string) (open, shut []string) {
	for _, namespace := range namespaces {
		may, err := s.rights.MayWork(ctx, namespace)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("Rights in a selected namespace are not known, to be asked again", "namespace", namespace, "err", err)
		}
		if may {
			open = append(open, namespace)
		} else {
			shut = append(shut, namespace)
		}
	}
	return open, shut
}
