// SPDX-License-Identifier: Apache-2.0

// Package target decides which cluster a command talks to: the standalone plane of a data directory by default, any
// cluster when --kubeconfig or --context say so. It never falls back from one to the other, and does not look at
// $KUBECONFIG or ~/.kube/config unless one of these two flags is given. Start reading at Target.Resolve.
package target

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// DataDirEnv names the environment variable that holds the data directory when --data-dir is not given.
const DataDirEnv = "DROVER_DATA_DIR"

// KubeconfigName is the name of the administrator's kubeconfig in a plane's data directory. The plane writes it once
// it is ready.
const KubeconfigName = "kubeconfig"

// Target is the user's choice of a cluster and a namespace, bound to flags.
type Target struct {
	DataDir    string // of the standalone plane; "" for the default
	Kubeconfig string // of another cluster; "" for none
	Context    string // in the kubeconfig; "" for its current one
	Namespace  string // "" for the one of the context, else "default"
}

// AddFlags binds the choice to its flags.
func (t *Target) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.DataDir, "data-dir", t.DataDir,
		"data directory of the standalone plane (default $"+DataDirEnv+", else /var/lib/drover for root, else $XDG_STATE_HOME/drover or ~/.local/state/drover)")
	flags.StringVar(&t.Kubeconfig, "kubeconfig", t.Kubeconfig, "talk to the cluster of this kubeconfig instead of the standalone plane")
	flags.StringVar(&t.Context, "context", t.Context, "talk to the cluster of this context, found by kubectl's rules, instead of the standalone plane")
	flags.StringVarP(&t.Namespace, "namespace", "n", t.Namespace, "namespace (default: the context's, else \"default\")")
}

// IsPlane reports whether the choice is the standalone plane.
func (t *Target) IsPlane() bool { return t.Kubeconfig == "" && t.Context == "" }

// ErrTwoTargets says that the flags name both the standalone plane and another cluster.
var ErrTwoTargets = errors.New("--data-dir means the standalone plane, --kubeconfig and --context another cluster: give one or the other")

// Cluster is a resolved Target: everything needed to talk to it. Nothing has been sent to it yet.
type Cluster struct {
	Config    *rest.Config
	Loader    clientcmd.ClientConfig // what Config was made from
	Namespace string
	Explicit  bool   // the namespace was given on the command line
	DataDir   string // of the standalone plane; "" when the cluster is another one
	Source    string // the kubeconfig in words, for messages
}

// Resolve finds and reads the kubeconfig of the choice. It contacts nobody. When no plane has left a kubeconfig in the
// data directory, the error is a *NoPlaneError; when the flags contradict each other, it is ErrTwoTargets.
func (t *Target) Resolve() (*Cluster, error) {
	if t.DataDir != "" && !t.IsPlane() {
		return nil, ErrTwoTargets
	}
	var cluster Cluster
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	switch {
	case t.IsPlane():
		dir, err := t.PlaneDir()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, KubeconfigName)
		if err := readable(path); err != nil {
			return nil, &NoPlaneError{DataDir: dir, Err: err}
		}
		rules.ExplicitPath = path
		cluster.DataDir, cluster.Source = dir, path
	case t.Kubeconfig != "":
		rules.ExplicitPath = t.Kubeconfig
		cluster.Source = t.Kubeconfig
	default:
		cluster.Source = fmt.Sprintf("context %q", t.Context)
	}

	raw, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if _, known := raw.Contexts[t.Context]; t.Context != "" && !known {
		return nil, fmt.Errorf("there is no context %q in %s, only %q", t.Context,
			strings.Join(rules.GetLoadingPrecedence(), ", "), slices.Sorted(maps.Keys(raw.Contexts)))
	}
	overrides := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: t.Namespace}}
	cluster.Loader = clientcmd.NewNonInteractiveClientConfig(*raw, t.Context, overrides, rules)
	cluster.Config, err = cluster.Loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig %s: %w", cluster.Source, err)
	}
	cluster.Namespace, cluster.Explicit, err = cluster.Loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig %s: %w", cluster.Source, err)
	}
	// A command sends a handful of requests; API Priority and Fairness protects the server, so nothing is held back here.
	cluster.Config.QPS = -1
	// Compressing costs the plane more than loopback gains from it.
	cluster.Config.DisableCompression = cluster.Config.DisableCompression || cluster.DataDir != ""
	return &cluster, nil
}

// PlaneDir returns the data directory of the standalone plane: the flag's, else the environment's, else the default.
func (t *Target) PlaneDir() (string, error) {
	if t.DataDir != "" {
		return filepath.Abs(t.DataDir)
	}
	if dir := os.Getenv(DataDirEnv); dir != "" {
		return filepath.Abs(dir)
	}
	return DefaultDataDir(os.Geteuid(), os.Getenv)
}

// Named reports whether the user has named the data directory of the plane, by flag or environment.
func (t *Target) Named() bool { return t.DataDir != "" || os.Getenv(DataDirEnv) != "" }

// DefaultDataDir returns the data directory of a user without one of their own choosing: /var/lib/drover for root,
// $XDG_STATE_HOME/drover or ~/.local/state/drover for anybody else. A relative XDG_STATE_HOME is ignored, as its
// specification asks. It fails for a user without a home directory.
func DefaultDataDir(uid int, getenv func(string) string) (string, error) {
	if uid == 0 {
		return "/var/lib/drover", nil
	}
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "drover"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "drover"), nil
	}
	return "", fmt.Errorf("finding the data directory: neither --data-dir, $%s, $XDG_STATE_HOME nor $HOME is set", DataDirEnv)
}

// NoPlaneError says that a data directory holds no usable kubeconfig, so no plane is running there, or not ours.
type NoPlaneError struct {
	DataDir string
	Err     error // why the kubeconfig could not be read
}

// Error says which data directory was looked at and what was found.
func (e *NoPlaneError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrNotExist):
		return fmt.Sprintf("no plane is running with data directory %s", e.DataDir)
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("the plane with data directory %s belongs to another user", e.DataDir)
	default:
		return fmt.Sprintf("reading the kubeconfig of the plane with data directory %s: %v", e.DataDir, e.Err)
	}
}

// Unwrap returns why the kubeconfig could not be read.
func (e *NoPlaneError) Unwrap() error { return e.Err }

// readable returns why the file cannot be read, or nil. A missing kubeconfig must be noticed here: client-go takes it
// for an empty one.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}
