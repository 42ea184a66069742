// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/target"
)

func TestAim(t *testing.T) {
	cases := map[string]struct {
		target target.Target
		args   []string
		want   []string
		env    bool // $KUBECONFIG becomes that of the plane
		err    error
	}{
		"the plane by default": {
			target.Target{DataDir: "/d"},
			[]string{"get", "pods"},
			[]string{"get", "pods"},
			true, nil,
		},
		"a kubeconfig among the arguments is kubectl's own affair": {
			target.Target{DataDir: "/d"},
			[]string{"get", "pods", "--kubeconfig", "k"},
			[]string{"get", "pods", "--kubeconfig", "k"},
			true, nil,
		},
		"a context among the arguments is looked up by kubectl's rules": {
			target.Target{},
			[]string{"--context=c", "get", "pods"},
			[]string{"--context=c", "get", "pods"},
			false, nil,
		},
		"unless it belongs to a command that is run elsewhere": {
			target.Target{DataDir: "/d"},
			[]string{"exec", "pod", "--", "tool", "--context", "c"},
			[]string{"exec", "pod", "--", "tool", "--context", "c"},
			true, nil,
		},
		"a namespace from before the word": {
			target.Target{DataDir: "/d", Namespace: "team"},
			[]string{"get", "pods", "-o", "name"},
			[]string{"get", "pods", "--namespace=team", "-o", "name"},
			true, nil,
		},
		"another cluster from before the word": {
			target.Target{Kubeconfig: "k", Context: "c"},
			[]string{"logs", "pod"},
			[]string{"logs", "pod", "--kubeconfig=k", "--context=c"},
			false, nil,
		},
		"nothing but flags": {
			target.Target{DataDir: "/d", Namespace: "team"},
			[]string{"--help"},
			[]string{"--namespace=team", "--help"},
			true, nil,
		},
		"a contradiction": {
			target.Target{DataDir: "/d", Context: "c"},
			[]string{"get", "pods"},
			nil, false, target.ErrTwoTargets,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "mine")
			t.Setenv("KUBECACHEDIR", "")
			got, err := aim(&tc.target, tc.args)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			want := "mine"
			if tc.env {
				want = "/d/kubeconfig"
			}
			if got := os.Getenv("KUBECONFIG"); got != want {
				t.Errorf("KUBECONFIG=%s, want %s", got, want)
			}
		})
	}
}

// run runs kubectl against the plane in dir.
func run(t *testing.T, dir string, args ...string) (*Bench, error) {
	t.Helper()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBECACHEDIR", "")
	t.Setenv("HOME", t.TempDir())
	bench := New()
	bench.Target.DataDir = dir
	return bench, Run(t.Context(), &Options{Factory: bench.Factory, Args: args})
}

func TestRunWithoutAPlane(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	t.Run("what needs no cluster works", func(t *testing.T) {
		bench, err := run(t, dir, "version", "--client", "-o", "json")
		if err != nil || !strings.Contains(bench.Out.String(), `"clientVersion"`) {
			t.Errorf("printed %s, error %v", bench.Out, err)
		}
	})
	t.Run("what needs one says that no plane is running, and looks nowhere else", func(t *testing.T) {
		// Something that answers where a cluster would be looked for by default: around the pod that we are in.
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("another cluster was asked")
		}))
		defer server.Close()
		host, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
		t.Setenv("KUBERNETES_SERVICE_HOST", host)
		t.Setenv("KUBERNETES_SERVICE_PORT", port)
		bench, err := run(t, dir, "get", "pods")
		if command.CodeOf(err) != command.ExitFailed {
			t.Errorf("error %v, want exit code %d", err, command.ExitFailed)
		}
		want := "no plane is running with data directory " + dir + "; try drover up, or --kubeconfig FILE for another cluster"
		if got := bench.Err.String(); !strings.Contains(got, want) {
			t.Errorf("printed %s, want %s", got, want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the data directory has been made: %v", err)
		}
	})
}

func TestRunKeepsKubectlsExitCodesAndMessages(t *testing.T) {
	bench, err := run(t, t.TempDir(), "no-such-command")
	if command.CodeOf(err) != command.ExitFailed || !strings.Contains(bench.Err.String(), `unknown command "no-such-command" for "kubectl"`) {
		t.Errorf("exit code %d, printed %s", command.CodeOf(err), bench.Err)
	}
	if _, ok := errors.AsType[*command.Exit](err); !ok {
		t.Errorf("error %v would be printed once more", err)
	}
}
