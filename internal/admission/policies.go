// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Policy is a rule for new objects that the API server carries out by itself. Its expressions are CEL.
type Policy struct {
	// Name is that of the policy, behind that of the webhook configurations.
	Name string
	// Group, Version and Resource say for which objects.
	Group, Version, Resource string
	// Conditions say, all of them together, which of the objects are meant.
	Conditions []string
	// Rules must hold for these. None: the policy changes them instead.
	Rules []admissionregistrationv1.Validation
	// Patch is the list of changes to each of them.
	Patch string
}

// registerPolicies makes the API server's policies what they should be. Where it does not know such policies there are none.
func (s *Server) registerPolicies(ctx context.Context) error {
	for _, p := range s.cfg.Policies {
		register := s.registerRules
		if len(p.Rules) == 0 {
			register = s.registerPatch
		}
		err := register(ctx, p, s.cfg.Name+"-"+p.Name)
		if apierrors.IsNotFound(err) {
			s.log.Debug("The API server has no such policies", "policy", p.Name, "err", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("registering the policy %q: %w", p.Name, err)
		}
	}
	return nil
}

func (s *Server) registerRules(ctx context.Context, p Policy, name string) error {
	policies, bindings := s.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), s.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: s.matches(p), MatchConditions: p.conditions(), Validations: p.Rules, FailurePolicy: ptr.To(admissionregistrationv1.Fail),
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := ensure(ctx, policies, policy, func(o *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicySpec {
		return &o.Spec
	}); err != nil {
		return err
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
	return ensure(ctx, bindings, binding, func(o *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
		return &o.Spec
	})
}

func (s *Server) registerPatch(ctx context.Context, p Policy, name string) error {
	policies, bindings := s.client.AdmissionregistrationV1().MutatingAdmissionPolicies(), s.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	spec := admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: s.matches(p), MatchConditions: p.conditions(), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: p.Patch},
		}},
	}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := ensure(ctx, policies, policy, func(o *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicySpec {
		return &o.Spec
	}); err != nil {
		return err
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}
	return ensure(ctx, bindings, binding, func(o *admissionregistrationv1.MutatingAdmissionPolicyBinding) *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec {
		return &o.Spec
	})
}

// matches says for which requests p is, with all that the API server would fill in.
func (s *Server) matches(p Policy) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: s.namespaces(), ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{p.Group}, APIVersions: []string{p.Version}, Resources: []string{p.Resource}, Scope: ptr.To(admissionregistrationv1.AllScopes),
			},
		}}},
	}
}

func (p Policy) conditions() []admissionregistrationv1.MatchCondition {
	return matchConditions(p.Conditions...)
}

// matchConditions names conditions.
func matchConditions(expressions ...string) []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	for i, expression := range expressions {
		if expression != "" {
			all = append(all, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("condition-%d", i), Expression: expression})
		}
	}
	return all
}
