// SPDX-License-Identifier: Apache-2.0

// Package pick finds the objects that a command line names: by "TYPE/NAME" or "NAME" arguments, by label selector, or
// all of a namespace. When a name leads nowhere it says which one may have been meant. Start reading at Pick.
package pick

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/suggest"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// Pick is the choice of objects.
type Pick struct {
	Refs     []workload.Ref   // named one by one
	Kinds    []*workload.Kind // of which Selector or All choose
	Selector string
	All      bool
}

// AddFlags binds the choice by label and of all objects to flags.
func (p *Pick) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.Selector, "selector", "l", "", "choose the objects that this label selector matches")
	cmd.Flags().BoolVar(&p.All, "all", false, "choose all objects in the namespace")
}

// Parse reads the arguments, after the flags. Its errors are usage errors.
func (p *Pick) Parse(args []string) error {
	var err error
	switch {
	case p.Selector != "" && p.All:
		return command.Usagef("--selector and --all exclude each other")
	case p.Selector != "" || p.All:
		return p.parseKinds(args)
	case len(args) == 0:
		return command.Usagef("which one? Give NAME or TYPE/NAME, --selector or --all")
	}
	if p.Refs, err = workload.ParseRefs(args); err != nil {
		return &command.Error{Err: err, Code: command.ExitUsage}
	}
	return nil
}

func (p *Pick) parseKinds(args []string) error {
	if _, err := labels.Parse(p.Selector); err != nil {
		return command.Usagef("--selector %q: %w", p.Selector, err)
	}
	kinds, err := Kinds(args)
	p.Kinds = kinds
	return err
}

// Kinds reads the names of kinds, separated by commas or as several arguments; none means all kinds. An unknown one is
// a usage error.
func Kinds(args []string) ([]*workload.Kind, error) {
	if len(args) == 0 {
		return workload.Kinds(), nil
	}
	var kinds []*workload.Kind
	for _, arg := range args {
		for name := range strings.SplitSeq(arg, ",") {
			kind := workload.Lookup(name)
			if kind == nil {
				return nil, &command.Error{
					Err:   fmt.Errorf("unknown type %q: known are %s", name, strings.Join(workload.Names(), ", ")),
					Meant: suggest.Near(name, workload.Names()),
					Code:  command.ExitUsage,
				}
			}
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

// Resolve returns the objects chosen, in the order of the command line or of lists. Those named one by one are not
// looked up.
func (p *Pick) Resolve(ctx context.Context, f *command.Factory) ([]workload.Ref, error) {
	if len(p.Refs) > 0 {
		return p.Refs, nil
	}
	client, err := f.Kubernetes()
	if err != nil {
		return nil, err
	}
	namespace, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	var refs []workload.Ref
	for _, kind := range p.Kinds {
		list, err := kind.Open(client, namespace).List(ctx, metav1.ListOptions{LabelSelector: p.Selector})
		if err != nil {
			return nil, fmt.Errorf("listing %s in namespace %q: %w", kind.Plural, namespace, err)
		}
		names, err := names(list)
		if err != nil {
			return nil, fmt.Errorf("listing %s in namespace %q: %w", kind.Plural, namespace, err)
		}
		for _, name := range names {
			refs = append(refs, workload.Ref{Kind: kind, Name: name})
		}
	}
	return refs, nil
}

// Explain is Wrap for an error of asking for ref itself: if ref is not there, the exit code is ExitDeleted, and the error
// tells which names are near, for which it asks the server once more.
func Explain(ctx context.Context, f *command.Factory, ref workload.Ref, doing string, err error) error {
	problem := Wrap(f, ref, doing, err)
	if apierrors.IsNotFound(err) {
		problem.Err = NotFoundError{}
		problem.Code = command.ExitDeleted
		problem.Meant, problem.Try = near(ctx, f, ref)
	}
	return problem
}

// Wrap returns err as an error about what was being done to ref.
func Wrap(f *command.Factory, ref workload.Ref, doing string, err error) *command.Error {
	problem := &command.Error{Err: err}
	if known, ok := errors.AsType[*command.Error](err); ok {
		*problem = *known // keeps what it says to try
	}
	problem.Doing = fmt.Sprintf("%s %s", doing, ref)
	if namespace, err := f.Namespace(); err == nil {
		problem.Doing += fmt.Sprintf(" in namespace %q", namespace)
	}
	return problem
}

// NotFoundError says that an object is not there, in fewer words than the server.
type NotFoundError struct{}

// Error returns "not found".
func (NotFoundError) Error() string { return "not found" }

// near returns the names that may have been meant and what to try when ref is not there. It stays silent about further
// errors: the first one matters.
func near(ctx context.Context, f *command.Factory, ref workload.Ref) (meant, try []string) {
	client, err := f.Kubernetes()
	if err != nil {
		return nil, nil
	}
	namespace, err := f.Namespace()
	if err != nil {
		return nil, nil
	}
	list, err := ref.Kind.Open(client, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil
	}
	known, err := names(list)
	if err != nil {
		return nil, nil
	}
	if meant = suggest.Near(ref.Name, known); len(meant) > 0 {
		return meant, nil
	}
	if len(known) == 0 {
		return nil, []string{fmt.Sprintf("drover ls -A   as there are no %s in this namespace", ref.Kind.Plural)}
	}
	return nil, []string{fmt.Sprintf("drover ls %s", ref.Kind.Plural)}
}

// names returns the names of a list's items, in the order of lists.
func names(list runtime.Object) ([]string, error) {
	var objects []metav1.Object
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		objects = append(objects, object)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(objects, workload.Older)
	out := make([]string, len(objects))
	for i, o := range objects {
		out[i] = o.GetName()
	}
	return out, nil
}

// Complete returns a completion function for names and "TYPE/NAME" arguments.
func Complete(f *command.Factory) cobra.CompletionFunc {
	return CompleteKind(f, workload.Kinds()[0].Name)
}

// CompleteKind is Complete where a bare name means an object of that kind.
func CompleteKind(f *command.Factory, bare string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		typ, _, isTyped := strings.Cut(typed, "/")
		kind, prefix := workload.Lookup(bare), ""
		if isTyped {
			if kind, prefix = workload.Lookup(typ), typ+"/"; kind == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		}
		refs, err := (&Pick{Kinds: []*workload.Kind{kind}}).Resolve(cmd.Context(), f)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		taken := map[string]bool{}
		for _, arg := range args {
			taken[arg] = true
		}
		var out []cobra.Completion
		for _, ref := range refs {
			if name := prefix + ref.Name; strings.HasPrefix(name, typed) && !taken[name] {
				out = append(out, name)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
