// SPDX-License-Identifier: Apache-2.0

// Package workload tells the commands about the kinds of work they list, await and change: how a kind is called, how to
// reach it, and how to sum one object up in a line. A new kind is one more entry in Kinds and a file with its Summarize
// function, which is pure: no client, no clock. Start reading at Kind.
package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Kind is what the commands need to know about one kind of work.
type Kind struct {
	Name             string   // in the singular, lower case: "job"
	Plural           string   // "jobs"
	Aliases          []string // other names by which users may call it
	GroupVersionKind schema.GroupVersionKind
	Endless          bool // it goes on until it is deleted, so that there is no end to wait for

	// Summarize sums an object of the kind up. It panics on an object of another kind.
	Summarize func(runtime.Object) Summary
	// Columns and Cells are what a list of this kind alone shows between NAME and AGE; nil: what lists of several kinds show.
	// now is in the zone of the controllers.
	Columns []string
	Cells   func(o runtime.Object, now time.Time) []string
	// PodSelector returns the label selector of an object's pods; nil for a kind without pods of its own.
	PodSelector func(runtime.Object) string
	// ManyPods reports whether an object may have several pods at a time or one after another, retries aside.
	ManyPods func(runtime.Object) bool
	// SuspendPatch returns the merge patch that suspends or resumes an object; nil for a kind that cannot be suspended.
	SuspendPatch func(suspend bool) []byte
	// Command asks the kind's controller for an action on an object; nil for a kind that takes no such orders.
	Command func(ctx context.Context, client kubernetes.Interface, o runtime.Object, action string) error
	// Cron is for kinds that make Jobs at the times of a schedule; nil: the kind is none of them.
	Cron *Cron
	// Open returns the client of the kind in a namespace; "" means all namespaces.
	Open func(client kubernetes.Interface, namespace string) Client
}

// Qualified returns how an object is called in output: "job.batch/pi".
func (k *Kind) Qualified(name string) string {
	if k.GroupVersionKind.Group == "" {
		return k.Name + "/" + name
	}
	return k.Name + "." + k.GroupVersionKind.Group + "/" + name
}

// Shown returns how the kind is called in lists of several kinds: "Job", and "vcjob" where another kind has that name.
func (k *Kind) Shown() string {
	kind := k.GroupVersionKind.Kind
	for _, other := range Kinds() {
		if other.GroupVersionKind.Kind == kind {
			if other.Name != k.Name {
				return k.Name
			}
			break // the first has the name
		}
	}
	return kind
}

// answersTo reports whether a user may call the kind so; case does not matter.
func (k *Kind) answersTo(name string) bool {
	name = strings.ToLower(name)
	return name == k.Name || name == k.Plural || slices.Contains(k.Aliases, name) ||
		name == k.Name+"."+k.GroupVersionKind.Group || name == k.Plural+"."+k.GroupVersionKind.Group
}

// Kinds returns the kinds in the order in which they are listed. A name without a type means the first.
func Kinds() []*Kind {
	return []*Kind{jobKind(), cronJobKind(), vcJobKind(), vcCronJobKind(), jobFlowKind()}
}

// Lookup returns the kind that is called so, or nil.
func Lookup(name string) *Kind {
	for _, k := range Kinds() {
		if k.answersTo(name) {
			return k
		}
	}
	return nil
}

// Names returns the plural names of all kinds, for messages and completion.
func Names() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Plural)
	}
	return names
}

// Ref names one object within the namespace of the command.
type Ref struct {
	Kind *Kind
	Name string
}

// String returns the object's qualified name.
func (r Ref) String() string { return r.Kind.Qualified(r.Name) }

// ParseRef reads "TYPE/NAME" or "NAME". A bare name means the first kind.
func ParseRef(arg string) (Ref, error) {
	typ, name, typed := strings.Cut(arg, "/")
	if !typed {
		typ, name = Kinds()[0].Name, arg
	}
	if name == "" || strings.Contains(name, "/") {
		return Ref{}, fmt.Errorf("%q is not a name: write NAME or TYPE/NAME", arg)
	}
	kind := Lookup(typ)
	if kind == nil {
		return Ref{}, fmt.Errorf("%q has an unknown type %q: known are %s", arg, typ, strings.Join(Names(), ", "))
	}
	return Ref{Kind: kind, Name: name}, nil
}

// ParseRefs reads "TYPE/NAME" and "NAME" arguments, or kubectl's "TYPE NAME…". An object named twice counts once.
func ParseRefs(args []string) ([]Ref, error) {
	prefix := ""
	if len(args) > 1 && !strings.Contains(args[0], "/") && Lookup(args[0]) != nil {
		prefix, args = args[0]+"/", args[1:]
	}
	var refs []Ref
	for _, arg := range args {
		if !strings.Contains(arg, "/") {
			arg = prefix + arg
		}
		ref, err := ParseRef(arg)
		if err != nil {
			return nil, err
		}
		twice := slices.ContainsFunc(refs, func(r Ref) bool { return r.String() == ref.String() })
		if !twice {
			refs = append(refs, ref)
		}
	}
	return refs, nil
}

// Outcome is what has become of an object.
type Outcome int

// The outcomes.
const (
	Unfinished Outcome = iota // goes on by itself
	Succeeded
	Failed
	Stopped // suspended or cancelled: goes on only if somebody says so
)

// Summary is one object in a line.
type Summary struct {
	Status  string // one or two words, with the reason: "Failed: BackoffLimitExceeded"
	Message string // the controller's own words about a failure; "" when it has said nothing
	Outcome Outcome
	Done    string // "3/5"
	Retries int    // pods that failed and were allowed another try
	Active  int    // pods that run or wait to run
	Images  string // of the containers, separated by commas
	Started time.Time
	Ended   time.Time // zero while it goes on
}

// Duration returns for how long the object has run, up to its end, and false if it has not started.
func (s Summary) Duration(now time.Time) (time.Duration, bool) {
	if s.Started.IsZero() {
		return 0, false
	}
	end := now
	if !s.Ended.IsZero() {
		end = s.Ended
	}
	return max(0, end.Sub(s.Started)), true
}

// Client reaches the objects of one kind in one namespace, whatever the kind.
type Client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (runtime.Object, error)
	List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions) (runtime.Object, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Typed is the part of client-go's generated and generic clients that Adapt needs.
type Typed[T, L runtime.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Adapt turns a typed client into a Client.
func Adapt[T, L runtime.Object](client Typed[T, L]) Client { return adapter[T, L]{client} }

type adapter[T, L runtime.Object] struct{ typed Typed[T, L] }

func (a adapter[T, L]) Get(ctx context.Context, name string, opts metav1.GetOptions) (runtime.Object, error) {
	return a.typed.Get(ctx, name, opts)
}

func (a adapter[T, L]) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return a.typed.List(ctx, opts)
}

func (a adapter[T, L]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return a.typed.Watch(ctx, opts)
}

func (a adapter[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions) (runtime.Object, error) {
	return a.typed.Patch(ctx, name, kind, data, opts)
}

func (a adapter[T, L]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return a.typed.Delete(ctx, name, opts)
}

// Older orders objects by namespace, then creation, then name: the order of lists.
func Older(a, b metav1.Object) int {
	return cmp.Or(
		cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}
