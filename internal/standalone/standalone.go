// SPDX-License-Identifier: Apache-2.0

// Package standalone is the life of a plane on one machine: its data directory, keys and addresses, the order in which its
// parts start and stop, and what is told to the person who started it.
//
// It does not know what the parts are made of. They are handed in as functions, so that only the program's main links
// them. It must not recover anything silently: what it puts right, it says.
//
// Start reading at Run.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/node/image"
	"github.com/drover-dev/drover/internal/standalone/logfile"
	"github.com/drover-dev/drover/internal/standalone/pace"
	"github.com/drover-dev/drover/internal/standalone/pki"
)

const (
	// StopTimeout is how long a plane may take to stop. It is less than what service managers allow.
	StopTimeout = 10 * time.Second
	// planeShare is what of it is kept for the control plane, which stops last.
	planeShare = 4 * time.Second

	logBytes = 16 << 20
	logFiles = 3
)

// Config says how a plane runs.
type Config struct {
	// Dir is the data directory; "": a temporary one, if Ephemeral.
	Dir Dir
	// BindAddress is where the API server listens; nil: 127.0.0.1. The node takes it as well.
	BindAddress net.IP
	// Port of the API server. 0: that of the last run in this directory if it is free, else a free one.
	Port int
	// Ephemeral leaves out fsync, and removes the directory when the plane stops. What a killed one leaves behind, the next
	// one goes on with.
	Ephemeral    bool
	FeatureGates map[string]bool
	Controllers  []string // of ours, as config.Controllers has them
	// Images say what images stand for on this machine; they go before the table that every node has.
	Images    image.Table
	Verbosity int    // of the log file: 0 to 10, as klog's
	Version   string // of drover, for status
	HostName  string // "": the machine's
	// StopTimeout is for tests; 0: the constant of that name.
	StopTimeout time.Duration
	Clock       clock.WithTicker // nil: the real one
}

// Validate reports everything that Run would refuse, joined.
func (c *Config) Validate() error {
	var errs []error
	if c.Dir == "" && !c.Ephemeral {
		errs = append(errs, errors.New("no data directory"))
	}
	if c.Port < 0 || c.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d: must be 0 to 65535", c.Port))
	}
	if c.Verbosity < 0 || c.Verbosity > 10 {
		errs = append(errs, fmt.Errorf("verbosity %d: must be 0 to 10", c.Verbosity))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() (Config, error) {
	if c.BindAddress == nil {
		c.BindAddress = net.IPv4(127, 0, 0, 1)
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = StopTimeout
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.HostName == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("asking for the host name: %w", err)
		}
		c.HostName = name
	}
	return c, nil
}

// Part is something that runs as long as the plane does. Run returns when ctx ends, once everything that it has started
// has ended too, or earlier with the error that makes it useless. Ready is closed when it does its work.
type Part interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
}

// Survivor is a Part that can leave work running for the next run to take on.
type Survivor interface {
	// Survivors returns how many pods go on running. It is called after Run has returned.
	Survivors() int
}

// ControlPlane is the part that all others are clients of.
type ControlPlane interface {
	Part
	// ClientConfig returns how to reach it as user, a member of groups, with the rights of that user. It is called after
	// Ready.
	ClientConfig(user string, groups ...string) *rest.Config
}

// Builder makes a part. Building starts nothing.
type Builder struct {
	Name  string // for messages: "node"
	Build func(ctx context.Context, env *Env) (Part, error)
}

// Parts are what a plane is made of.
type Parts struct {
	ControlPlane func(ctx context.Context, env *Env) (ControlPlane, error)
	// Clients are built in order once the control plane is ready, run together, and stop one after the other in reverse
	// order: what makes work first, what does it last.
	Clients []Builder
}

// Env is what a part is built from.
type Env struct {
	Dir          Dir
	Log          *slog.Logger
	Verbosity    int // klog's; Log drops what is finer
	Ephemeral    bool
	FeatureGates map[string]bool
	Controllers  []string // of ours, as config.Controllers has them
	Images       image.Table
	// Listener is for the API server. Everything else that listens does so on BindIP, on a port of its own.
	Listener net.Listener
	BindIP   net.IP
	NodeName string
	Server   string // URL of the API server for processes of this machine
	// Step reports what has been reached, for the person who waits.
	Step func(text string)
	// Fatal tells that a library is about to end the process and has logged why.
	Fatal func()
	// ClientConfig is the control plane's; nil while that one is built.
	ClientConfig func(user string, groups ...string) *rest.Config
}

// Progress is told how a plane fares. It is called from one goroutine at a time.
type Progress interface {
	Opened(d Dir)     // the data directory is this plane's
	Step(text string) // something has been reached
	Warn(text string) // something needs attention, or was put right
	Ready(r Running)
	Stopping()
	Stopped(survivors int) // every part has stopped; that many pods go on running
}

// Running is what a person needs to know of a plane that is ready.
type Running struct {
	Dir        Dir
	Server     string // URL
	Kubeconfig string // path
	Log        string // path
	NodeName   string
	Ephemeral  bool
}

// Run runs a plane until ctx ends, which is no error, or until a part fails. It returns once every part has stopped or
// the time for that is over. Errors are for people; some are of type *Error or *RunningError.
func Run(ctx context.Context, config Config, parts Parts, progress Progress) (err error) {
	if err := config.Validate(); err != nil {
		return fmt.Errorf("checking the configuration: %w", err)
	}
	config, err = config.withDefaults()
	if err != nil {
		return err
	}
	r := &run{config: config, progress: &serialProgress{Progress: progress}, began: config.Clock.Now()}
	return r.run(ctx, parts)
}

// run is one run of a plane.
type run struct {
	config   Config
	progress *serialProgress
	dir      *openDir
	began    time.Time
	state    State
	env      Env
}

func (r *run) run(ctx context.Context, parts Parts) (err error) {
	nodeName := nodeNameFor(r.config.HostName)
	if r.config.Dir == "" {
		r.dir, err = openTemporary(nodeName)
	} else {
		r.dir, err = open(r.config.Dir, r.config.Ephemeral, nodeName)
	}
	if err != nil {
		return err
	}
	r.config.Dir = r.dir.Dir
	defer func() { err = errors.Join(err, r.dir.close()) }()
	r.progress.Opened(r.dir.Dir)
	for _, note := range r.dir.notes {
		r.progress.Warn(note)
	}
	log, err := logfile.Open(r.dir.Log(), logBytes, logFiles)
	if err != nil {
		return explain(r.config.Dir, err)
	}
	defer func() { _ = log.Close() }() // last of all; nothing is buffered
	if err := r.prepare(ctx, log); err != nil {
		return err
	}

	pacing, stopPacing := context.WithCancel(ctx)
	defer stopPacing()
	go pace.Run(pacing)

	err = r.supervise(ctx, parts)
	if !r.config.Ephemeral {
		r.noteState()
	}
	// A disk that fills up is behind the strangest errors.
	if free, freeErr := freeBytes(r.config.Dir); err != nil && freeErr == nil && free < lowSpace {
		return &Error{
			Doing: "running the plane in " + string(r.config.Dir), Err: fmt.Errorf("its disk is full (%d MiB are left): %w", free>>20, err),
			Try: []string{"making room, and then the same command again: what was stored is still there"},
		}
	}
	return err
}

// noteState stores the state while the plane stops. A plane that could not may not look stopped afterwards, and that is all.
func (r *run) noteState() {
	if err := r.dir.writeState(r.state); err != nil {
		r.env.Log.Error("Cannot note the state of the plane", "phase", r.state.Phase, "err", err)
	}
}

// prepare does all that can go wrong before anything runs.
func (r *run) prepare(ctx context.Context, log *logfile.Writer) error {
	last, err := readState(r.config.Dir)
	if err != nil {
		r.progress.Warn(fmt.Sprintf("what the last run has noted is lost: %v", err))
	}
	if last.Phase != "" && last.Phase != Stopped {
		r.progress.Warn(fmt.Sprintf("the last run, process %d, has not ended well (%s); going on from what it has stored", last.PID, last.Phase))
	}
	listener, moved, err := listen(ctx, r.config.BindAddress, r.config.Port, last.Port)
	if err != nil {
		return err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if moved {
		r.progress.Warn(fmt.Sprintf("the API server has a new port, %d after %d: copies of the kubeconfig must be made again", port, last.Port))
	}
	nodeName := r.dir.format.NodeName
	server := (&net.TCPAddr{IP: reach(r.config.BindAddress), Port: port}).String()
	r.env = Env{
		Dir: r.config.Dir, Verbosity: r.config.Verbosity, Ephemeral: r.config.Ephemeral, FeatureGates: r.config.FeatureGates, Controllers: r.config.Controllers,
		Images:   r.config.Images,
		Log:      slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo - slog.Level(r.config.Verbosity)})),
		Listener: listener, BindIP: r.config.BindAddress, NodeName: nodeName, Server: "https://" + server,
		Step: r.progress.Step,
		Fatal: func() {
			r.progress.Warn(fmt.Sprintf("a component has given up and ends the plane; the end of %s says why", r.dir.Log()))
		},
	}
	r.state = State{
		Phase: Starting, PID: os.Getpid(), Version: r.config.Version, Started: r.began.UTC().Truncate(time.Second),
		Server: r.env.Server, Port: port, NodeName: nodeName,
	}
	if err := r.renewKeys(); err != nil {
		return errors.Join(err, listener.Close())
	}
	// Whoever waits for the kubeconfig waits for this run.
	err = os.Remove(r.dir.Kubeconfig())
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = r.dir.writeState(r.state)
	}
	if err != nil {
		return errors.Join(explain(r.config.Dir, err), listener.Close())
	}
	r.env.Log.Info("Plane starts", "version", r.config.Version, "pid", r.state.PID, "server", r.env.Server, "node", nodeName)
	r.progress.Step(fmt.Sprintf("data directory %s", r.config.Dir))
	return nil
}

// renewKeys makes the keys and certificates complete and good for another month at least.
func (r *run) renewKeys() error {
	server, node, err := certAddresses(r.config.BindAddress, r.config.HostName, r.dir.format.NodeName)
	if err != nil {
		return err
	}
	changes, err := pki.Ensure(r.dir.PKI(), server, node, r.config.Clock.Now())
	if err != nil {
		return explain(r.config.Dir, err)
	}
	for _, change := range changes {
		r.progress.Warn(change)
		r.env.Log.Warn("Certificates changed", "what", change)
	}
	return nil
}

// announce is done when every part is ready.
func (r *run) announce() error {
	if err := writeKubeconfig(r.config.Dir, r.env.Server); err != nil {
		return explain(r.config.Dir, err)
	}
	r.state.Phase = Ready
	if err := r.dir.writeState(r.state); err != nil {
		return explain(r.config.Dir, err)
	}
	r.env.Log.Info("Plane is ready", "took", r.config.Clock.Since(r.began))
	r.progress.Ready(Running{
		Dir: r.config.Dir, Server: r.env.Server, Kubeconfig: r.dir.Kubeconfig(), Log: r.dir.Log(),
		NodeName: r.env.NodeName, Ephemeral: r.config.Ephemeral,
	})
	return nil
}
