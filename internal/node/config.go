// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/node/podlife"
)

// Config says what the node is called, where it keeps things and how it behaves. The zero value of a field means its default.
type Config struct {
	// Name of the node object; by default this machine's host name in lower case.
	Name string
	// Dir is where volumes and logs lie; it must be absolute. It is made with mode 0700.
	//
	//	<Dir>/pods/<uid>/                                        emptyDir volumes of pods that are not finished
	//	<Dir>/logs/<namespace>_<name>_<uid>/<container>/<n>.log  output of attempt n, kept as long as the pod object; the last words
	//	                                                         beside it are <n>.message
	Dir string
	// FilesDir is where the small files lie that pods are shown: ConfigMaps, Secrets, tokens, /etc/hosts. On a tmpfs they are
	// quick to make, and never reach a disk. Nothing in it has to outlive the last container that runs. Default: <Dir>/pods.
	FilesDir string
	// IPs are the addresses that the node and, as pods share its network, its pods report. Default: 127.0.0.1.
	IPs []string
	// Bind is the address of the node's own API, for logs and exec. Default: 127.0.0.1:0, a free port.
	Bind string
	// APIClients are the common names of client certificates that may use the node's API. Required.
	APIClients []string

	// MaxPods is how many pods may be here at once. Default: 500.
	MaxPods int
	// Labels are put on the node object beside its own. Annotations likewise.
	Labels      map[string]string
	Annotations map[string]string
	// Images go before the default table of package image.
	Images image.Table
	// APIServer is the "host:port" under which pods reach the API server. They find it in KUBERNETES_SERVICE_HOST and
	// KUBERNETES_SERVICE_PORT, as client libraries expect. Empty: they are not told.
	APIServer string
	// ClusterDomain is the domain that pods with a subdomain belong to. Default: cluster.local.
	ClusterDomain string
	// KubernetesVersion is what the node reports as its kubelet's. Default: v1.37.2.
	KubernetesVersion string

	// RoutineAfter is how long the events that only say that all goes well (Pulled, Created, Started, Killing) wait. Each is a
	// write to the API server; a pod that has succeeded by then is told about by its status alone. Events that explain trouble
	// are sent at once. Default: 1 s; negative: they are never sent.
	RoutineAfter time.Duration

	// StartConcurrency is how many pods may be prepared at once, and how many containers started. Default: twice the number of
	// CPUs, at least 4.
	StartConcurrency int
	// StatusDelay is how long a change of a pod's status waits for the next one, so that both are one write. A final status does
	// not wait; others wait ten times as long while pods queue up to be started, and a pod that has nothing to tell but that its
	// turn has not come waits fifty times as long. Default: 100 ms. Negative: none.
	StatusDelay time.Duration
	// BackOff is between restarts of a container. Default: 10 s, doubled up to 5 min.
	BackOff podlife.BackOff
	// ImageBackOff is between looks at an image that is not in the table. Default: 10 s, doubled up to 5 min.
	ImageBackOff podlife.BackOff
	// RetryBackOff is between attempts at what failed for other reasons: volumes, environments, starts. Default: 500 ms, doubled
	// up to 10 s.
	RetryBackOff podlife.BackOff
	// Heartbeat is how often the node's lease is renewed. Default: 10 s. The lease lives four times as long.
	Heartbeat time.Duration
	// Housekeeping is how often the use of disk and memory is measured. Default: 10 s.
	Housekeeping time.Duration
	// StatusReport is how often the node's status is written although nothing changed. Default: 5 min.
	StatusReport time.Duration
	// LiveVolumes is how long a pod must have been running before changes of its ConfigMaps and Secrets are watched. Default: 1 s.
	LiveVolumes time.Duration

	// LogMaxBytes is the size at which a log is rotated, LogMaxFiles how many files are kept of it. Default: 10 MiB and 5.
	LogMaxBytes int64
	LogMaxFiles int

	Log   *slog.Logger     // nil: nothing is logged
	Clock clock.WithTicker // nil: the real one
}

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("finding the name of this machine: %w", err)
		}
		c.Name = strings.ToLower(strings.TrimSpace(host))
	}
	if len(c.IPs) == 0 {
		c.IPs = []string{"127.0.0.1"}
	}
	orDefault(&c.FilesDir, filepath.Join(c.Dir, "pods"))
	orDefault(&c.Bind, "127.0.0.1:0")
	orDefault(&c.MaxPods, 500)
	orDefault(&c.ClusterDomain, "cluster.local")
	orDefault(&c.KubernetesVersion, "v1.37.2")
	orDefault(&c.StartConcurrency, max(4, 2*runtime.NumCPU()))
	orDefault(&c.RoutineAfter, time.Second)
	orDefault(&c.StatusDelay, 100*time.Millisecond)
	orDefault(&c.BackOff, podlife.BackOff{Base: 10 * time.Second, Max: 5 * time.Minute})
	orDefault(&c.ImageBackOff, podlife.BackOff{Base: 10 * time.Second, Max: 5 * time.Minute})
	orDefault(&c.RetryBackOff, podlife.BackOff{Base: 500 * time.Millisecond, Max: 10 * time.Second})
	orDefault(&c.Heartbeat, 10*time.Second)
	orDefault(&c.Housekeeping, 10*time.Second)
	orDefault(&c.StatusReport, 5*time.Minute)
	orDefault(&c.LiveVolumes, time.Second)
	orDefault(&c.LogMaxBytes, 10<<20)
	orDefault(&c.LogMaxFiles, 5)
	c.StatusDelay = max(0, c.StatusDelay)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every field that cannot work. Zero values are fine where there is a default.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name != "" {
		for _, problem := range validation.IsDNS1123Subdomain(c.Name) {
			bad("name %q: %s", c.Name, problem)
		}
	}
	if !filepath.IsAbs(c.Dir) {
		bad("dir %q is not absolute", c.Dir)
	}
	if c.FilesDir != "" && !filepath.IsAbs(c.FilesDir) {
		bad("files dir %q is not absolute", c.FilesDir)
	}
	for _, ip := range c.IPs {
		if net.ParseIP(ip) == nil {
			bad("%q is no IP address", ip)
		}
	}
	if c.Bind != "" {
		if _, _, err := net.SplitHostPort(c.Bind); err != nil {
			bad("bind: %w", err)
		}
	}
	if c.APIServer != "" {
		if _, _, err := net.SplitHostPort(c.APIServer); err != nil {
			bad("API server: %w", err)
		}
	}
	if len(c.APIClients) == 0 {
		bad("nobody may use the node's API: API clients are missing")
	}
	if c.MaxPods < 0 || c.StartConcurrency < 0 || c.LogMaxBytes < 0 || c.LogMaxFiles < 0 {
		bad("max pods, start concurrency and log limits must not be negative")
	}
	if err := c.Images.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
