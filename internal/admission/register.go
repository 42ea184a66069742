// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// timeoutSeconds is how long the API server waits for an answer.
const timeoutSeconds = 10

// register tells the API server of the webhooks, if it does not know of them as they are now.
func (s *Server) register(ctx context.Context, authority []byte) error {
	var mutating []admissionregistrationv1.MutatingWebhook
	var validating []admissionregistrationv1.ValidatingWebhook
	for _, h := range s.hooks {
		if h.Mutates {
			mutating = append(mutating, admissionregistrationv1.MutatingWebhook{
				Name: h.Name, ClientConfig: s.reach(h, authority), Rules: rules(h), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](timeoutSeconds), AdmissionReviewVersions: []string{"v1"},
				MatchPolicy: ptr.To(admissionregistrationv1.Equivalent), ReinvocationPolicy: ptr.To(admissionregistrationv1.NeverReinvocationPolicy),
				NamespaceSelector: s.namespaces(), ObjectSelector: &metav1.LabelSelector{}, MatchConditions: matchConditions(h.Condition),
			})
			continue
		}
		validating = append(validating, admissionregistrationv1.ValidatingWebhook{
			Name: h.Name, ClientConfig: s.reach(h, authority), Rules: rules(h), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](timeoutSeconds), AdmissionReviewVersions: []string{"v1"},
			MatchPolicy:       ptr.To(admissionregistrationv1.Equivalent),
			NamespaceSelector: s.namespaces(), ObjectSelector: &metav1.LabelSelector{}, MatchConditions: matchConditions(h.Condition),
		})
	}
	if err := s.registerMutating(ctx, mutating); err != nil {
		return fmt.Errorf("registering mutating webhooks: %w", err)
	}
	if err := s.registerValidating(ctx, validating); err != nil {
		return fmt.Errorf("registering validating webhooks: %w", err)
	}
	return nil
}

func (s *Server) registerMutating(ctx context.Context, hooks []admissionregistrationv1.MutatingWebhook) error {
	wanted := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Name}, Webhooks: hooks}
	return ensure(ctx, s.client.AdmissionregistrationV1().MutatingWebhookConfigurations(), wanted,
		func(o *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
			return &o.Webhooks
		})
}

func (s *Server) registerValidating(ctx context.Context, hooks []admissionregistrationv1.ValidatingWebhook) error {
	wanted := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Name}, Webhooks: hooks}
	return ensure(ctx, s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), wanted,
		func(o *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
			return &o.Webhooks
		})
}

// registrations reads and writes one kind of registration.
type registrations[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, o T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error)
}

// ensure makes wanted, or gives the object of its name the content of wanted if it has another. content points to it.
func ensure[T metav1.Object, C any](ctx context.Context, kind registrations[T], wanted T, content func(o T) *C) error {
	have, err := kind.Get(ctx, wanted.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = kind.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !equality.Semantic.DeepEqual(content(have), content(wanted)):
		*content(have) = *content(wanted)
		_, err = kind.Update(ctx, have, metav1.UpdateOptions{})
	}
	return err
}

// namespaces selects those about whose objects the API server is to ask. It labels each namespace with its name.
func (s *Server) namespaces() *metav1.LabelSelector {
	if len(s.cfg.Namespaces) == 0 {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: s.cfg.Namespaces},
	}}
}

// reach says how the API server reaches a webhook.
func (s *Server) reach(h Webhook, authority []byte) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: authority}
	if namespace, name, ok := strings.Cut(s.cfg.Service, "/"); ok {
		c.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name, Path: &h.Path, Port: ptr.To[int32](443)}
		return c
	}
	u := url.URL{Scheme: "https", Host: s.address().String(), Path: h.Path}
	c.URL = ptr.To(u.String())
	return c
}

func rules(h Webhook) []admissionregistrationv1.RuleWithOperations {
	operations := make([]admissionregistrationv1.OperationType, len(h.Operations))
	for i, o := range h.Operations {
		operations[i] = admissionregistrationv1.OperationType(o)
	}
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{h.Group}, APIVersions: []string{h.Version}, Resources: []string{h.Resource},
			Scope: ptr.To(admissionregistrationv1.AllScopes),
		},
	}}
}
