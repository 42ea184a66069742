// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/drover-dev/drover/deploy"
)

// bootstrapHook is the name of our hook in kube-apiserver; /readyz waits for it.
const bootstrapHook = "drover/bootstrap"

// replacedHooks are hooks of kube-apiserver that bootstrap does instead. Both begin by sleeping for a second, and then
// read and write one object after the other, so that every start takes a second longer, and the first one two.
var replacedHooks = []string{"rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes"}

// bootstrapWriters is how many objects are written at once. The store makes concurrent writes durable together.
const bootstrapWriters = 16

// Users and groups of this project's parts, for Plane.ClientConfig.
const (
	NodeUserPrefix  = "system:node:" // followed by the name of the node
	NodesGroup      = "system:nodes"
	ControllersUser = "drover:controllers"
	ProvisionerUser = "drover:provisioner"
)

// ownRoles are those that Kubernetes has no counterpart of.
var ownRoles = []rbacv1.ClusterRole{{
	// What the persistent volume binder and a storage driver may do elsewhere.
	ObjectMeta: metav1.ObjectMeta{Name: "drover:provisioner"},
	Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes/status", "persistentvolumeclaims/status"}, Verbs: []string{"update", "patch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: []string{"get", "list", "watch", "create"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
	},
}}

// ownBindings give our parts their roles.
var ownBindings = []rbacv1.ClusterRoleBinding{
	{
		// Kubernetes leaves this role unbound, because its Node authorizer is finer. That one is not on here, so a node may
		// see what belongs to other nodes; there is one.
		ObjectMeta: metav1.ObjectMeta{Name: "drover:nodes"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: NodesGroup}},
	},
	{
		ObjectMeta: metav1.ObjectMeta{Name: "drover:provisioner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drover:provisioner"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ProvisionerUser}},
	},
}

// controllerPolicy returns the roles that our controllers have in clusters, and bindings that give them to those of the plane: what is
// not in the manifests of package deploy does not work here either.
func controllerPolicy() ([]rbacv1.ClusterRole, []rbacv1.ClusterRoleBinding, error) {
	roles, err := deploy.ClusterRoles()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the roles of the controllers: %w", err)
	}
	bindings := make([]rbacv1.ClusterRoleBinding, 0, len(roles))
	for _, role := range roles {
		bindings = append(bindings, rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "drover:" + role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ControllersUser}},
		})
	}
	return roles, bindings, nil
}

// bootstrap writes the roles and bindings without which nobody may do anything, the priority classes of the system, and
// our own bindings. What is there already is completed, never reduced; an object with the annotation
// rbac.authorization.kubernetes.io/autoupdate: "false" is left alone.
func bootstrap(ctx context.Context, client kubernetes.Interface) error {
	have, err := readPolicy(ctx, client)
	if err != nil {
		return err
	}
	controllerRoles, controllerBindings, err := controllerPolicy()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(bootstrapWriters)

	roles := have.roleClient(reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()})
	for _, role := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles(), ownRoles, controllerRoles) {
		group.Go(func() error { return ensureRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: &role}, roles) })
	}
	bindings := have.bindingClient(reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()})
	for _, binding := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings(), ownBindings, controllerBindings) {
		group.Go(func() error {
			return ensureBinding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding}, bindings)
		})
	}
	namespaced := have.roleClient(reconciliation.RoleModifier{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()})
	for _, list := range bootstrappolicy.NamespaceRoles() {
		for _, role := range list {
			group.Go(func() error { return ensureRole(reconciliation.RoleRuleOwner{Role: &role}, namespaced) })
		}
	}
	namespacedBindings := have.bindingClient(reconciliation.RoleBindingClientAdapter{
		Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces(),
	})
	for _, list := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range list {
			group.Go(func() error {
				return ensureBinding(reconciliation.RoleBindingAdapter{RoleBinding: &binding}, namespacedBindings)
			})
		}
	}
	for _, class := range schedulingv1.SystemPriorityClasses() {
		group.Go(func() error {
			_, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
			return unlessExists("priority class", class.Name, err)
		})
	}
	return group.Wait()
}

func unlessExists(kind, name string, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("creating %s %q: %w", kind, name, err)
}

func ensureRole(role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) error {
	options := reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}
	if _, err := options.Run(); err != nil {
		return fmt.Errorf("writing role %q: %w", role.GetName(), err)
	}
	return nil
}

func ensureBinding(binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) error {
	options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: client, Confirm: true}
	if _, err := options.Run(); err != nil {
		return fmt.Errorf("writing role binding %q: %w", binding.GetName(), err)
	}
	return nil
}

// policy is what is in the store, read once, so that a start which has nothing to write asks four times and not two
// hundred. Nobody else may write policy yet: the hook runs before anybody has a role.
type policy struct {
	roles    map[types.NamespacedName]reconciliation.RuleOwner
	bindings map[types.NamespacedName]reconciliation.RoleBinding
}

func readPolicy(ctx context.Context, client kubernetes.Interface) (*policy, error) {
	p := &policy{
		roles:    map[types.NamespacedName]reconciliation.RuleOwner{},
		bindings: map[types.NamespacedName]reconciliation.RoleBinding{},
	}
	clusterRoles, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing cluster roles: %w", err)
	}
	for i := range clusterRoles.Items {
		role := &clusterRoles.Items[i]
		p.roles[types.NamespacedName{Name: role.Name}] = reconciliation.ClusterRoleRuleOwner{ClusterRole: role}
	}
	clusterBindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing cluster role bindings: %w", err)
	}
	for i := range clusterBindings.Items {
		binding := &clusterBindings.Items[i]
		p.bindings[types.NamespacedName{Name: binding.Name}] = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding}
	}
	roles, err := client.RbacV1().Roles(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing roles: %w", err)
	}
	for i := range roles.Items {
		role := &roles.Items[i]
		p.roles[types.NamespacedName{Namespace: role.Namespace, Name: role.Name}] = reconciliation.RoleRuleOwner{Role: role}
	}
	bindings, err := client.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing role bindings: %w", err)
	}
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		p.bindings[types.NamespacedName{Namespace: binding.Namespace, Name: binding.Name}] = reconciliation.RoleBindingAdapter{RoleBinding: binding}
	}
	return p, nil
}

func (p *policy) roleClient(live reconciliation.RuleOwnerModifier) reconciliation.RuleOwnerModifier {
	return roleClient{RuleOwnerModifier: live, have: p}
}

func (p *policy) bindingClient(live reconciliation.RoleBindingModifier) reconciliation.RoleBindingModifier {
	return bindingClient{RoleBindingModifier: live, have: p}
}

// roleClient answers Get from what was read.
type roleClient struct {
	reconciliation.RuleOwnerModifier
	have *policy
}

func (c roleClient) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	if role, ok := c.have.roles[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		return role, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}, name)
}

// bindingClient answers Get from what was read.
type bindingClient struct {
	reconciliation.RoleBindingModifier
	have *policy
}

func (c bindingClient) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	if binding, ok := c.have.bindings[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		return binding, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"}, name)
}
