// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/drover-dev/drover/"

// layers are the packages of the project, those that may be imported by more first. A package may import what stands in its
// own group's lines above; packages of one line do not import each other unless one is below the other.
var layers = [][]string{
	{"internal/indexset", "internal/backoff", "internal/podstate", "internal/schedule", "internal/atomicfile", "internal/eventqueue", "internal/volcano", "internal/gang", "deploy"},
	{"internal/job", "internal/cronjob", "internal/vcjob", "internal/queue", "internal/jobflow", "internal/config"},
	{"internal/simulate"},
	{"internal/controller", "internal/admission", "internal/node", "internal/web"},
	{"internal/app", "internal/standalone"},
	{"internal/cli"},
	{"internal/controlplane"},
	{"cmd"},
}

// pure packages are data in, plan out.
var pure = []string{"internal/indexset", "internal/backoff", "internal/podstate", "internal/schedule", "internal/job", "internal/cronjob", "internal/vcjob", "internal/gang", "internal/queue", "internal/jobflow"}

// leaves are the packages of k8s.io/kubernetes that compile in seconds; all others belong to the control plane.
var leaves = []string{
	"k8s.io/kubernetes/pkg/fieldpath", "k8s.io/kubernetes/pkg/probe", "k8s.io/kubernetes/third_party/forked/golang/expansion",
	"k8s.io/kubernetes/pkg/kubelet/util/env",
}

// file is one Go file of the project.
type file struct {
	path    string // from the root of the project
	pkg     string // its folder
	test    bool
	fset    *token.FileSet // that of all files
	syntax  *ast.File
	imports []string
}

func TestPackagesImportOnlyWhatStandsBelowThem(t *testing.T) {
	for _, f := range files(t) {
		own := layerOf(f.pkg)
		if own < 0 || f.test {
			continue
		}
		for _, imported := range f.imports {
			other, ours := strings.CutPrefix(imported, module)
			if !ours || place(other) == place(f.pkg) {
				continue // a package and those below it are one house
			}
			switch layer := layerOf(other); {
			case layer < 0:
				t.Errorf("%s imports %s, which has no place in internal/arch: give it one", f.path, other)
			case layer > own:
				t.Errorf("%s imports %s: a package may import only what stands to its left in\n  small ideas <- kinds <- controller, admission, node, web <- app <- cli <- cmd", f.path, other)
			case layer == own && own > 0 && f.pkg != "cmd":
				t.Errorf("%s imports %s: packages of one layer do not import each other; move what both need below them", f.path, other)
			}
		}
	}
}

func layerOf(pkg string) int {
	for n, layer := range layers {
		for _, p := range layer {
			if pkg == p || isBelow(pkg, p) {
				return n
			}
		}
	}
	return -1
}

// place returns the package of layers that pkg is or lies below.
func place(pkg string) string {
	for _, layer := range layers {
		for _, p := range layer {
			if pkg == p || isBelow(pkg, p) {
				return p
			}
		}
	}
	return ""
}

// isBelow reports whether a is a folder inside b.
func isBelow(a, b string) bool { return strings.HasPrefix(a, b+"/") }

func TestPurePackagesKnowNoWorld(t *testing.T) {
	allowed := []string{
		"bytes", "cmp", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "iter", "maps", "math",
		"math/bits", "net/url", "reflect", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
	}
	var fset *token.FileSet // all files have the same
	sources := map[string][]*ast.File{}
	for _, f := range files(t) {
		if f.test || !slices.ContainsFunc(pure, func(p string) bool { return f.pkg == p || isBelow(f.pkg, p) }) {
			continue
		}
		for _, imported := range f.imports {
			ok := slices.Contains(allowed, imported) || strings.HasPrefix(imported, module) ||
				strings.HasPrefix(imported, "k8s.io/api/") || strings.HasPrefix(imported, "k8s.io/apimachinery/") || imported == "k8s.io/utils/ptr" || imported == "k8s.io/utils/dump" ||
				imported == "k8s.io/component-helpers/resource" // sums of requests, as the scheduler makes them
			if !ok {
				t.Errorf("%s imports %s: pure packages use data packages, API types and k8s.io/apimachinery only", f.path, imported)
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick", "AfterFunc", "Local"}, s.Sel.Name) {
					t.Errorf("%s uses time.%s: pure code gets its instants as values", f.path, s.Sel.Name)
				}
			}
			return true
		})
		sources[f.pkg] = append(sources[f.pkg], f.syntax)
		fset = f.fset
	}
	for pkg, syntax := range sources {
		for _, name := range changed(fset, syntax) {
			t.Errorf("%s changes its package variable %s: pure code has no state of its own", pkg, name)
		}
	}
}

// changed returns, sorted, the package variables that a package assigns to outside their declarations.
func changed(fset *token.FileSet, pkg []*ast.File) []string {
	// What is imported is not looked up: only the package's own names matter, and what cannot be known without is left out.
	conf := types.Config{Error: func(error) {}}
	uses := map[*ast.Ident]types.Object{}
	p, _ := conf.Check("", fset, pkg, &types.Info{Uses: uses})
	var names []string
	note := func(target ast.Expr) {
		if id, ok := target.(*ast.Ident); ok {
			if v, ok := uses[id].(*types.Var); ok && v.Parent() == p.Scope() {
				names = append(names, v.Name())
			}
		}
	}
	for _, f := range pkg {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					note(l)
				}
			case *ast.IncDecStmt:
				note(n.X)
			case *ast.RangeStmt:
				note(n.Key)
				note(n.Value)
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestChangedFindsPackageVariables(t *testing.T) {
	fset := token.NewFileSet()
	var pkg []*ast.File
	for _, text := range []string{
		"package p; import \"nowhere.org/q\"; var a, b, c, d, e = 1, 2, q.Three(), q.Four(), 5",
		"package p; func f(b int) { a = 2; b = 3; c++; d := 1; d = 2; for e = range 3 { e := e; e++ } }",
	} {
		f, err := parser.ParseFile(fset, "", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		pkg = append(pkg, f)
	}
	if got, want := changed(fset, pkg), []string{"a", "c", "e"}; !slices.Equal(got, want) {
		t.Errorf("changed are %q, want %q", got, want)
	}
}

// TestTestsSleepOnlyWhereItCostsNothing lets tests sleep where time is not the machine's, and between two looks at a condition.
func TestTestsSleepOnlyWhereItCostsNothing(t *testing.T) {
	seen := 0
	for _, f := range files(t) {
		if !f.test || slices.Contains(f.imports, "testing/synctest") {
			continue
		}
		polling := map[ast.Node]bool{}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if loop, ok := n.(*ast.ForStmt); ok && loop.Cond != nil {
				if wait, ok := loop.Post.(*ast.ExprStmt); ok {
					polling[wait.X] = true
				}
			}
			if call, ok := n.(*ast.CallExpr); ok && isSleep(call.Fun) {
				seen++
				if !polling[call] {
					t.Errorf("%s sleeps: wait for a condition, or use testing/synctest", f.fset.Position(call.Pos()))
				}
			}
			return true
		})
	}
	if seen == 0 {
		t.Error("no test polls: nothing was checked")
	}
}

func isSleep(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "time" && s.Sel.Name == "Sleep"
}

func TestOnlyTheControlPlaneImportsTheHeavyPackages(t *testing.T) {
	for _, f := range files(t) {
		if f.pkg == "internal/controlplane" || isBelow(f.pkg, "internal/controlplane") || isBelow(f.pkg, "test") {
			continue
		}
		for _, imported := range f.imports {
			heavy := strings.HasPrefix(imported, "k8s.io/kubernetes/") || strings.HasPrefix(imported, "go.etcd.io/etcd/server")
			leaf := slices.ContainsFunc(leaves, func(l string) bool { return imported == l || isBelow(imported, l) })
			if heavy && !leaf {
				t.Errorf("%s imports %s: it takes minutes to compile and belongs to internal/controlplane", f.path, imported)
			}
		}
	}
}

// TestUpstreamsOwnControllersAreNotLinked guards the promise that our controllers are the only ones for Jobs and CronJobs.
func TestUpstreamsOwnControllersAreNotLinked(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./cmd/drover", "./cmd/drover-controller")
	list.Dir = root(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing what the commands link: %v", err)
	}
	commands := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(commands) != 2 {
		t.Fatalf("%d commands are listed, want 2", len(commands))
	}
	for _, line := range commands {
		command, linked, _ := strings.Cut(strings.TrimPrefix(line, module), " ")
		for _, pkg := range strings.Fields(linked) {
			switch pkg {
			case "k8s.io/kubernetes/pkg/controller/job", "k8s.io/kubernetes/pkg/controller/cronjob", "k8s.io/kubernetes/pkg/controller/ttlafterfinished":
				t.Errorf("%s links %s", command, pkg)
			}
			if strings.HasPrefix(pkg, "volcano.sh/") {
				t.Errorf("%s links %s", command, pkg)
			}
			if command == "cmd/drover-controller" && (strings.HasPrefix(pkg, "k8s.io/kubernetes/") || strings.HasPrefix(pkg, "go.etcd.io/")) {
				t.Errorf("%s links %s: it is meant to be small", command, pkg)
			}
		}
	}
}

func TestEveryFileNamesItsLicence(t *testing.T) {
	for _, f := range files(t) {
		in, err := os.Open(filepath.Join(root(t), f.path))
		if err != nil {
			t.Fatal(err)
		}
		s := bufio.NewScanner(in)
		found := false
		for n := 0; n < 3 && s.Scan(); n++ {
			found = found || strings.HasPrefix(s.Text(), "// SPDX-License-Identifier: Apache-2.0")
		}
		in.Close()
		if !found {
			t.Errorf("%s does not begin with an SPDX line", f.path)
		}
	}
}

// top is the root of the project, from here.
const top = "../.."

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// files returns every Go file of the project.
func files(t *testing.T) []file {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files found: nothing was checked")
	}
	return all
}

// parsed reads the files once, for all tests.
var parsed = sync.OnceValues(func() (all []file, err error) {
	base, err := filepath.Abs(top)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	err = filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != base && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata" || name == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(base, path)
		if err != nil {
			return err
		}
		f := file{path: filepath.ToSlash(rel), pkg: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(path, "_test.go"), fset: fset, syntax: syntax}
		for _, s := range syntax.Imports {
			p, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, p)
		}
		all = append(all, f)
		return nil
	})
	return all, err
})
