// SPDX-License-Identifier: Apache-2.0

// Package printer writes what commands found: tables for people, JSON, YAML, names and templates for programs. The
// latter come from cli-runtime. Start reading at Flags.
package printer

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes/scheme"
)

// Wide is the output format of a table with more columns.
const Wide = "wide"

// Flags is the choice of an output format.
type Flags struct {
	flags *genericclioptions.PrintFlags
	wide  bool // whether Wide is a format
}

// NewFlags returns the choice among cli-runtime's formats, and Wide if the command prints a table.
func NewFlags(wide bool) *Flags {
	return &Flags{flags: genericclioptions.NewPrintFlags("").WithTypeSetter(scheme.Scheme), wide: wide}
}

// AddFlags binds the choice to -o and what belongs to it.
func (f *Flags) AddFlags(cmd *cobra.Command) {
	f.flags.AddFlags(cmd)
	if f.wide {
		usage := cmd.Flags().Lookup("output")
		usage.Usage = fmt.Sprintf("output format: %s (default: a table)", strings.Join(f.formats(), ", "))
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.formats(), cobra.ShellCompDirectiveNoFileComp))
}

func (f *Flags) formats() []string {
	formats := f.flags.AllowedFormats()
	if f.wide {
		formats = append(formats, Wide)
	}
	slices.Sort(formats)
	return formats
}

// Format returns what was chosen; "" for the default.
func (f *Flags) Format() string {
	if *f.flags.TemplatePrinterFlags.TemplateArgument != "" && *f.flags.OutputFormat == "" {
		return "go-template"
	}
	return *f.flags.OutputFormat
}

// Set chooses a format as -o does.
func (f *Flags) Set(format string) { *f.flags.OutputFormat = format }

// Printer returns the printer of the chosen format, nil for tables, or an error that names the known formats.
func (f *Flags) Printer() (printers.ResourcePrinter, error) {
	if format := f.Format(); format == "" || f.wide && format == Wide {
		return nil, nil
	}
	p, err := f.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("unknown output format %q: known are %s", f.Format(), strings.Join(f.formats(), ", "))
	}
	return p, err
}

// List returns a list of objects of any kinds, as "kubectl get" prints it. Each gets its kind and version set.
func List(objects []runtime.Object) (*corev1.List, error) {
	list := &corev1.List{Items: []runtime.RawExtension{}}
	for _, o := range objects {
		typed, err := Typed(o)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: typed})
	}
	return list, nil
}

// Typed returns a copy of the object with its kind and version set, which clients leave empty.
func Typed(o runtime.Object) (runtime.Object, error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		return nil, fmt.Errorf("printing: %w", err)
	}
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	return o, nil
}

// Table writes rows with aligned columns. Widths never shrink, so that rows written later stay in line.
type Table struct {
	w *tabwriter.Writer
}

// NewTable returns a table on w. No headers means no first line.
func NewTable(w io.Writer, headers []string) *Table {
	t := &Table{w: printers.GetNewTabWriter(w)}
	if len(headers) > 0 {
		t.Row(headers...)
	}
	return t
}

// Row adds a row. An empty cell becomes "-", so that every row has as many words as there are columns for a program
// that splits at blanks, as long as the cells have none.
func (t *Table) Row(cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cell = "-"
		}
		if i > 0 {
			_, _ = io.WriteString(t.w, "\t") // an error stays in the writer until Flush
		}
		_ = printers.WriteEscaped(t.w, cell)
	}
	_, _ = io.WriteString(t.w, "\n")
}

// Flush writes the rows added since the last call, and returns the first error of writing.
func (t *Table) Flush() error { return t.w.Flush() }
