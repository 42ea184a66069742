// SPDX-License-Identifier: Apache-2.0

package vcctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/internal/volcano/flow"
)

// flowKind is one of the kinds JobFlow and JobTemplate.
type flowKind struct {
	use, kind string
	columns   []column
	cells     func(o runtime.Object, now time.Time) []string
	one       func() metav1.Object
	get       func(ctx context.Context, c *Cluster, namespace, name string) (runtime.Object, error)
	list      func(ctx context.Context, c *Cluster, namespace string) ([]runtime.Object, error)
	create    func(ctx context.Context, c *Cluster, o metav1.Object) error
	remove    func(ctx context.Context, c *Cluster, namespace, name string) error
}

var jobFlows = flowKind{
	use: "jobflow", kind: "JobFlow", columns: []column{{"Namespace", 15}, {"Phase", 12}, {"Age", 10}},
	cells: func(o runtime.Object, now time.Time) []string {
		f := o.(*flow.JobFlow)
		return texts(f.Namespace, f.Status.State.Phase, duration.HumanDuration(now.Sub(f.CreationTimestamp.Time)))
	},
	one: func() metav1.Object { return &flow.JobFlow{} },
	get: func(ctx context.Context, c *Cluster, namespace, name string) (runtime.Object, error) {
		return c.vc.JobFlows(namespace).Get(ctx, name, metav1.GetOptions{})
	},
	list: func(ctx context.Context, c *Cluster, namespace string) ([]runtime.Object, error) {
		list, err := c.vc.JobFlows(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		all := make([]runtime.Object, len(list.Items))
		for i := range list.Items {
			all[i] = &list.Items[i]
		}
		return all, nil
	},
	create: func(ctx context.Context, c *Cluster, o metav1.Object) error {
		f := o.(*flow.JobFlow)
		f.APIVersion, f.Kind = flow.GroupVersion.String(), "JobFlow"
		_, err := c.vc.JobFlows(f.Namespace).Create(ctx, f, metav1.CreateOptions{})
		return err
	},
	remove: func(ctx context.Context, c *Cluster, namespace, name string) error {
		return c.vc.JobFlows(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	},
}

var jobTemplates = flowKind{
	use: "jobtemplate", kind: "JobTemplate", columns: []column{{"Namespace", 15}},
	cells: func(o runtime.Object, _ time.Time) []string { return []string{o.(*flow.JobTemplate).Namespace} },
	one:   func() metav1.Object { return &flow.JobTemplate{} },
	get: func(ctx context.Context, c *Cluster, namespace, name string) (runtime.Object, error) {
		return c.vc.JobTemplates(namespace).Get(ctx, name, metav1.GetOptions{})
	},
	list: func(ctx context.Context, c *Cluster, namespace string) ([]runtime.Object, error) {
		list, err := c.vc.JobTemplates(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		all := make([]runtime.Object, len(list.Items))
		for i := range list.Items {
			all[i] = &list.Items[i]
		}
		return all, nil
	},
	create: func(ctx context.Context, c *Cluster, o metav1.Object) error {
		t := o.(*flow.JobTemplate)
		t.APIVersion, t.Kind = flow.GroupVersion.String(), "JobTemplate"
		_, err := c.vc.JobTemplates(t.Namespace).Create(ctx, t, metav1.CreateOptions{})
		return err
	},
	remove: func(ctx context.Context, c *Cluster, namespace, name string) error {
		return c.vc.JobTemplates(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	},
}

// newFlowGroup returns the commands for a kind.
func newFlowGroup(env *Env, k flowKind) *cobra.Command {
	root := group(k.use, "vcctl command line operation "+k.use)
	root.AddCommand(k.newCreate(env), k.newList(env), k.newGet(env), k.newDelete(env), k.newDescribe(env))
	return root
}

func (k flowKind) newCreate(env *Env) *cobra.Command {
	file := ""
	l := newLeaf(env, "create", "create a "+k.use, "create "+k.use, func(l *leaf, c *Cluster) error {
		if file == "" {
			return errors.New("the file must be given: --file")
		}
		objects, err := k.read(file)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := k.create(l.Context(), c, o); err != nil {
				return err
			}
			if err := l.printf("Created %s: %s/%s\n", k.kind, o.GetNamespace(), o.GetName()); err != nil {
				return err
			}
		}
		return nil
	})
	l.Flags().StringVarP(&file, "file", "f", "", "the path to the YAML file containing the "+k.use)
	return l.Command
}

// read reads the objects of a file, those without a namespace for "default".
func (k flowKind) read(file string) ([]metav1.Object, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	var objects []metav1.Object
	documents := utilyaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		o := k.one()
		err := documents.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", file, err)
		}
		if o.GetName() == "" && o.GetGenerateName() == "" {
			continue // between two lines of dashes
		}
		if o.GetNamespace() == "" {
			o.SetNamespace(defaultNamespace)
		}
		objects = append(objects, o)
	}
}

func (k flowKind) newList(env *Env) *cobra.Command {
	namespace, all := "", false
	l := newLeaf(env, "list", "list "+k.use+" information", "list "+k.use+"s", func(l *leaf, c *Cluster) error {
		if all {
			namespace = metav1.NamespaceAll
		}
		objects, err := k.list(l.Context(), c, namespace)
		if err != nil {
			return err
		}
		return l.printf("%s", k.table(objects, l.env.Now()))
	})
	l.Flags().StringVarP(&namespace, "namespace", "n", defaultNamespace, "the namespace of "+k.use)
	l.Flags().BoolVar(&all, "all-namespaces", false, "list "+k.use+"s in all namespaces")
	return l.Command
}

func (k flowKind) table(objects []runtime.Object, now time.Time) string {
	var names []string
	var rows [][]string
	for _, o := range objects {
		names = append(names, o.(metav1.Object).GetName())
		rows = append(rows, k.cells(o, now))
	}
	return table(false, make([]string, len(rows)), names, k.columns, rows)
}

// addNamed adds the flags that name one object of the kind.
func (k flowKind) addNamed(l *leaf, o *named) {
	l.Flags().StringVarP(&o.Namespace, "namespace", "n", defaultNamespace, "the namespace of "+k.use)
	l.Flags().StringVarP(&o.Name, "name", "N", "", "the name of "+k.use)
}

func (k flowKind) noName() error { return fmt.Errorf("%s name cannot be left blank", k.use) }

func (k flowKind) newGet(env *Env) *cobra.Command {
	o := &named{}
	l := newLeaf(env, "get", "get a "+k.use, "get "+k.use, func(l *leaf, c *Cluster) error {
		if o.Name == "" {
			return k.noName()
		}
		object, err := k.get(l.Context(), c, o.Namespace, o.Name)
		if err != nil {
			return err
		}
		return l.printf("%s", k.table([]runtime.Object{object}, l.env.Now()))
	})
	k.addNamed(l, o)
	return l.Command
}

func (k flowKind) newDelete(env *Env) *cobra.Command {
	o, file := &named{}, ""
	l := newLeaf(env, "delete", "delete a "+k.use, "delete "+k.use, func(l *leaf, c *Cluster) error {
		objects := []named{*o}
		switch {
		case file != "":
			read, err := k.read(file)
			if err != nil {
				return err
			}
			objects = nil
			for _, r := range read {
				objects = append(objects, named{Name: r.GetName(), Namespace: r.GetNamespace()})
			}
		case o.Name == "":
			return k.noName()
		}
		for _, n := range objects {
			if err := k.remove(l.Context(), c, n.Namespace, n.Name); err != nil {
				return err
			}
			if err := l.printf("Deleted %s: %s/%s\n", k.kind, n.Namespace, n.Name); err != nil {
				return err
			}
		}
		return nil
	})
	k.addNamed(l, o)
	l.Flags().StringVarP(&file, "file", "f", "", "the path to the YAML file containing the "+k.use)
	return l.Command
}

func (k flowKind) newDescribe(env *Env) *cobra.Command {
	o, format := &named{}, "yaml"
	l := newLeaf(env, "describe", "describe a "+k.use, "describe "+k.use, func(l *leaf, c *Cluster) error {
		var objects []runtime.Object
		if o.Name == "" {
			all, err := k.list(l.Context(), c, o.Namespace)
			if err != nil {
				return err
			}
			objects = all
		} else {
			object, err := k.get(l.Context(), c, o.Namespace, o.Name)
			if err != nil {
				return err
			}
			objects = []runtime.Object{object}
		}
		for _, object := range objects {
			text, err := k.describe(object, format)
			if err != nil {
				return err
			}
			if err := l.printf("%s", text); err != nil {
				return err
			}
		}
		return nil
	})
	k.addNamed(l, o)
	l.Flags().StringVarP(&format, "format", "o", format, "the format of the output: yaml or json")
	return l.Command
}

func (k flowKind) describe(o runtime.Object, format string) (string, error) {
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(flow.GroupVersion.WithKind(k.kind))
	o.(metav1.Object).SetManagedFields(nil)
	switch format {
	case "yaml":
		text, err := yaml.Marshal(o)
		return string(text) + "---------------------------------\n", err
	case "json":
		text, err := json.MarshalIndent(o, "", "  ")
		return string(text) + "\n", err
	}
	return "", fmt.Errorf("the format %q is not known: use yaml or json", format)
}
