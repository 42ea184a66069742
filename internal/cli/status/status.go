// SPDX-License-Identifier: Apache-2.0

// Package status is the command that tells how the standalone plane of a data directory fares. It changes nothing.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/standalone"
)

// ExitCode is the status with which the command ends. Scripts rely on the values.
type ExitCode int

// The exit codes.
const (
	ExitRunning    ExitCode = 0
	ExitFailed     ExitCode = 1 // it could not be found out
	ExitNotRunning ExitCode = 3 // as service managers have it
	ExitNoAnswer   ExitCode = 69
)

// Error ends the command with a code and without a further word.
type Error struct{ Code ExitCode }

// Error implements error for logs and tests; people never see it.
func (e *Error) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// ExitCode returns what to exit with.
func (e *Error) ExitCode() int { return int(e.Code) }

// Silent reports that everything there is to say has been printed.
func (e *Error) Silent() bool { return true }

// Options are what the command line asks for.
type Options struct {
	Streams genericiooptions.IOStreams
	Clock   clock.PassiveClock
	Dir     standalone.Dir
	Output  string // "" or "json"
	Timeout time.Duration
	// Client returns a client for the cluster of a kubeconfig file.
	Client func(kubeconfig string) (kubernetes.Interface, error)
}

// NewCommand returns the command. dataDir returns the data directory of the plane.
func NewCommand(streams genericiooptions.IOStreams, dataDir func() (string, error), run func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Streams: streams, Clock: clock.RealClock{}, Client: client}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell how the plane on this machine fares",
		Long: `Tell how the plane on this machine fares: whether it runs and since when, where it answers, how large its data is, and
what is going on in it.

Exit codes:
    0  it is running and answers
    1  that could not be found out
    3  it is not running
   69  it is running but does not answer, or is still starting`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Output != "" && o.Output != "json" {
				return &standalone.Error{
					Doing: "reading --output", Err: fmt.Errorf("there is no format %q", o.Output), Try: []string{"-o json"},
				}
			}
			dir, err := dataDir()
			if err != nil {
				return err
			}
			o.Dir = standalone.Dir(dir)
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "json, or nothing for text")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Second, "how long to wait for an answer of the API server")
	return cmd
}

func client(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// Report is what the command prints; its JSON form is an interface for scripts.
type Report struct {
	Running   bool             `json:"running"`
	Phase     standalone.Phase `json:"phase,omitempty"` // of the last run, as far as it has noted it
	PID       int              `json:"pid,omitempty"`
	Since     *time.Time       `json:"since,omitempty"`
	Version   string           `json:"version,omitempty"`
	Server    string           `json:"server,omitempty"`
	Answers   bool             `json:"answers"`
	Problem   string           `json:"problem,omitempty"` // why it does not answer
	DataDir   string           `json:"dataDir"`
	DataBytes int64            `json:"dataBytes"`
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string  `json:"kubeconfig,omitempty"`
	Cluster    Cluster `json:"cluster,omitzero"`
	Survivors  int     `json:"survivors,omitempty"` // pods that went on running when the plane stopped
}

// Cluster is what the API server says of what is going on.
type Cluster struct {
	Nodes []Node         `json:"nodes"`
	Pods  map[string]int `json:"pods"` // by phase
	Jobs  map[string]int `json:"jobs"` // by Active, Suspended, Complete, Failed
}

// Node is what the API server says of a node.
type Node struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
	Pods   string `json:"pods"`
}

// Run prints the report. The error is an *Error for every code but ExitRunning.
func Run(ctx context.Context, o *Options) error {
	r, err := report(ctx, o)
	if err != nil {
		return fmt.Errorf("looking at the plane in %s: %w", o.Dir, err)
	}
	if o.Output == "json" {
		encoder := json.NewEncoder(o.Streams.Out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	} else {
		err = r.print(o.Streams.Out, o.Clock.Now())
	}
	switch {
	case err != nil:
		return fmt.Errorf("printing the status: %w", err)
	case !r.Running:
		return &Error{Code: ExitNotRunning}
	case !r.Answers:
		return &Error{Code: ExitNoAnswer}
	}
	return nil
}

func report(ctx context.Context, o *Options) (*Report, error) {
	found, err := standalone.Inspect(o.Dir)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Running: found.Running, Phase: found.State.Phase, Version: found.State.Version, DataDir: string(o.Dir),
		Survivors: found.State.Survivors,
	}
	if !found.Exists {
		return r, nil
	}
	if r.DataBytes, err = size(string(o.Dir)); err != nil {
		return nil, err
	}
	if !found.Running {
		return r, nil
	}
	started := found.State.Started
	r.PID, r.Since, r.Server = found.PID, &started, found.State.Server
	r.Kubeconfig = o.Dir.Kubeconfig()
	if r.Phase != standalone.Ready {
		r.Problem = "it is " + strings.ToLower(string(r.Phase))
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	client, err := o.Client(r.Kubeconfig)
	if err == nil {
		r.Cluster, err = ask(ctx, client)
	}
	if r.Answers = err == nil; err != nil {
		r.Problem = err.Error()
	}
	return r, nil
}

// size returns how many bytes the files below dir hold. Files come and go meanwhile.
func size(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil
		case err != nil:
			return err
		case !entry.Type().IsRegular():
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// ask asks the API server what is going on. It answers from its cache: a count may be a moment old.
func ask(ctx context.Context, client kubernetes.Interface) (Cluster, error) {
	cached := metav1.ListOptions{ResourceVersion: "0"}
	c := Cluster{Nodes: []Node{}, Pods: map[string]int{}, Jobs: map[string]int{}}
	nodes, err := client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return Cluster{}, err
	}
	for i := range nodes.Items {
		c.Nodes = append(c.Nodes, describeNode(&nodes.Items[i]))
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, cached)
	if err != nil {
		return Cluster{}, err
	}
	for i := range pods.Items {
		c.Pods[string(pods.Items[i].Status.Phase)]++
	}
	jobs, err := client.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, cached)
	if err != nil {
		return Cluster{}, err
	}
	for i := range jobs.Items {
		c.Jobs[jobState(&jobs.Items[i])]++
	}
	return c, nil
}

func describeNode(node *corev1.Node) Node {
	n := Node{
		Name: node.Name, CPU: node.Status.Capacity.Cpu().String(), Pods: node.Status.Capacity.Pods().String(),
		Memory: inUnits(node.Status.Capacity.Memory().Value()),
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	return n
}

// jobState returns the one word for where a Job stands.
func jobState(job *batchv1.Job) string {
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended:
			return string(condition.Type)
		default: // the others only tell what is to come
		}
	}
	return "Active"
}

func (r *Report) print(w io.Writer, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(table, name+"\t"+format+"\n", args...) // Flush reports it
	}
	switch {
	case !r.Running && r.Phase == "":
		row("plane", "not running; %s has not been used yet", r.DataDir)
		return table.Flush()
	case !r.Running && r.Phase == standalone.Stopped:
		row("plane", "not running")
	case !r.Running:
		row("plane", "not running; the last run has not ended well (%s)", strings.ToLower(string(r.Phase)))
	case r.PID == 0:
		row("plane", "running in a process that cannot be seen from here")
	default:
		row("plane", "running for %s, process %d", duration.HumanDuration(now.Sub(*r.Since)), r.PID)
	}
	if r.Running {
		answer := "answers"
		if !r.Answers {
			answer = "does not answer: " + r.Problem
		}
		row("API server", "%s %s", r.Server, answer)
		row("kubeconfig", "%s", r.Kubeconfig)
	}
	row("data", "%s in %s", inUnits(r.DataBytes), r.DataDir)
	if r.Version != "" {
		row("version", "%s", r.Version)
	}
	if r.Survivors > 0 && !r.Running {
		row("pods", "%d went on running when it stopped", r.Survivors)
	}
	if r.Answers {
		for _, node := range r.Cluster.Nodes {
			ready := "ready"
			if !node.Ready {
				ready = "not ready"
			}
			row("node", "%s: %s, %s CPUs, %s, room for %s pods", node.Name, ready, node.CPU, node.Memory, node.Pods)
		}
		row("pods", "%s", counts(r.Cluster.Pods, "Running", "Pending", "Succeeded", "Failed", "Unknown"))
		row("jobs", "%s", counts(r.Cluster.Jobs, "Active", "Suspended", "Complete", "Failed"))
	}
	return table.Flush()
}

// counts lists the words in order with how many there are of each.
func counts(of map[string]int, words ...string) string {
	var parts []string
	for _, word := range words {
		if n := of[word]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(word)))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// inUnits returns n bytes for people: "19.5 GiB".
func inUnits(n int64) string {
	const step = 1 << 10
	value, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < step {
			break
		}
		value, unit = value/step, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
