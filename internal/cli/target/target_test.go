// SPDX-License-Identifier: Apache-2.0

package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefaultDataDir(t *testing.T) {
	cases := map[string]struct {
		uid  int
		env  map[string]string
		want string
	}{
		"root has one for the whole machine":    {0, map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/x"}, "/var/lib/drover"},
		"a user has one in the state directory": {1000, map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/state"}, "/state/drover"},
		"which is in the home directory":        {1000, map[string]string{"HOME": "/home/u"}, "/home/u/.local/state/drover"},
		"a relative state directory is ignored": {1000, map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "state"}, "/home/u/.local/state/drover"},
		"without a home there is none":          {1000, nil, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := DefaultDataDir(tc.uid, func(key string) string { return tc.env[key] })
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("data directory %q, error %v; want %q", got, err, tc.want)
			}
		})
	}
}

// writeKubeconfig writes a kubeconfig with one context, which is the current one, and returns its path.
func writeKubeconfig(t *testing.T, dir, context, server, namespace string) string {
	t.Helper()
	path := filepath.Join(dir, KubeconfigName)
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: %s, context: {cluster: c, user: u, namespace: "%s"}}]
current-context: %[2]s
`, server, context, namespace)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("writing a kubeconfig: %v", err)
	}
	return path
}

func TestResolve(t *testing.T) {
	plane, envPlane, other, home := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	writeKubeconfig(t, plane, "plane", "https://plane:1", "")
	writeKubeconfig(t, envPlane, "plane", "https://env-plane:1", "")
	kubeconfig := writeKubeconfig(t, other, "other", "https://other:1", "team")
	ambient := writeKubeconfig(t, home, "ambient", "https://ambient:1", "")
	t.Setenv("KUBECONFIG", ambient)
	t.Setenv("HOME", home)
	t.Setenv("KUBERNETES_SERVICE_HOST", "in-cluster")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	t.Setenv(DataDirEnv, envPlane)

	cases := map[string]struct {
		target    Target
		host      string
		namespace string
		err       string
	}{
		"the standalone plane is the default, not $KUBECONFIG": {
			Target{}, "https://env-plane:1", "default", "",
		},
		"--data-dir outweighs the environment": {
			Target{DataDir: plane}, "https://plane:1", "default", "",
		},
		"--namespace outweighs the context's": {
			Target{Kubeconfig: kubeconfig, Namespace: "mine"}, "https://other:1", "mine", "",
		},
		"--kubeconfig is another cluster, with its namespace": {
			Target{Kubeconfig: kubeconfig}, "https://other:1", "team", "",
		},
		"--context is looked up by kubectl's rules": {
			Target{Context: "ambient"}, "https://ambient:1", "default", "",
		},
		"--context belongs to --kubeconfig if that is given": {
			Target{Kubeconfig: kubeconfig, Context: "ambient"}, "", "", `there is no context "ambient" in ` + kubeconfig + `, only ["other"]`,
		},
		"no plane is never another cluster": {
			Target{DataDir: filepath.Join(plane, "none")}, "", "", "no plane is running with data directory " + plane + "/none",
		},
		"no kubeconfig is never another cluster": {
			Target{Kubeconfig: filepath.Join(plane, "none")}, "", "", "no such file or directory",
		},
		"an empty kubeconfig is not the cluster around us": {
			Target{Kubeconfig: os.DevNull}, "", "", "no configuration has been provided",
		},
		"a plane and another cluster at once": {
			Target{DataDir: plane, Context: "ambient"}, "", "", ErrTwoTargets.Error(),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, err := tc.target.Resolve()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("resolving: %v", err)
			}
			if cluster.Config.Host != tc.host || cluster.Namespace != tc.namespace {
				t.Errorf("%s, namespace %s; want %s, namespace %s", cluster.Config.Host, cluster.Namespace, tc.host, tc.namespace)
			}
		})
	}
}

func TestNoPlaneErrorSaysWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
	}{
		"nothing there":   {fs.ErrNotExist, "no plane is running with data directory /d"},
		"not for us":      {fs.ErrPermission, "the plane with data directory /d belongs to another user"},
		"cannot be read":  {errors.New("input/output error"), "reading the kubeconfig of the plane with data directory /d: input/output error"},
		"a wrapped cause": {fmt.Errorf("open: %w", fs.ErrNotExist), "no plane is running with data directory /d"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := (&NoPlaneError{DataDir: "/d", Err: tc.err}).Error(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
