// SPDX-License-Identifier: Apache-2.0

// Package process runs containers as processes of the host and finds them again after a restart.
//
// It knows no Kubernetes types, no API server and no policy: it starts what a Spec says, tells how that ended, and takes
// everything away that it made (mounts, cgroups, files). Package node decides what to start and when.
//
// Start reading at Runtime.
package process

import "time"

// Spec says what one container is and what it may see. It is stored beside the container, so that a Runtime which starts
// later on the same directory finds it again.
type Spec struct {
	// ID names the container: unique for ever, and safe as one path element.
	ID string `json:"id"`
	// Labels come back with Status; the runtime does not look at them.
	Labels map[string]string `json:"labels,omitempty"`

	Args []string `json:"args"`          // Args[0] is looked up in PATH of Env, inside the container's own root
	Env  []string `json:"env,omitempty"` // "NAME=value"; nothing else is inherited from this process
	Dir  string   `json:"dir,omitempty"` // working directory inside the container; "": /

	Hostname   string `json:"hostname,omitempty"`
	Domainname string `json:"domainname,omitempty"`

	UID    *int64  `json:"uid,omitempty"` // nil: the user that runs this process
	GID    *int64  `json:"gid,omitempty"`
	Groups []int64 `json:"groups,omitempty"`
	// NoNewPrivs keeps set-user-id programs from raising privileges (allowPrivilegeEscalation: false).
	NoNewPrivs bool `json:"noNewPrivs,omitempty"`
	// DropCapabilities and AddCapabilities name capabilities without the CAP_ prefix; "ALL" is understood.
	DropCapabilities []string `json:"dropCapabilities,omitempty"`
	AddCapabilities  []string `json:"addCapabilities,omitempty"`

	// Root is a directory that serves as the container's root; "" means the host's own file system.
	Root string `json:"root,omitempty"`
	// ReadOnlyRoot refuses writes outside Mounts.
	ReadOnlyRoot bool    `json:"readOnlyRoot,omitempty"`
	Mounts       []Mount `json:"mounts,omitempty"`
	// OOMScoreAdj is added to the kernel's inclination to kill this container when the machine is out of memory, -1000..1000.
	OOMScoreAdj int `json:"oomScoreAdj,omitempty"`
	// HostPID and HostIPC keep the host's namespaces.
	HostPID bool `json:"hostPID,omitempty"`
	HostIPC bool `json:"hostIPC,omitempty"`

	Limits Limits `json:"limits"`

	// LogPath is the file that takes standard output and error, one line a record in the format of the container runtime
	// interface ("<RFC3339Nano> stdout F <text>"); "": the output is discarded. A line that is longer than 16 KiB, or whose
	// end is long in coming, is written in pieces that are marked P instead of F. It is rotated at LogMaxBytes (0: never);
	// the older files are called LogPath.1, LogPath.2 and so on. At most LogMaxFiles (0: 5) are kept, the current one
	// included.
	LogPath     string `json:"logPath"`
	LogMaxBytes int64  `json:"logMaxBytes,omitempty"`
	LogMaxFiles int    `json:"logMaxFiles,omitempty"`

	Stdin bool `json:"stdin,omitempty"` // keep a pipe open on standard input; otherwise it is /dev/null
	TTY   bool `json:"tty,omitempty"`   // all three streams are one terminal
}

// Mount makes Source, a file or directory of the host, visible at Target.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"` // absolute, inside the container; made if missing
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Limits are upper bounds that the kernel enforces where the machine allows it; 0 means none.
type Limits struct {
	CPUMillis   int64 `json:"cpuMillis,omitempty"`   // thousandths of a core
	CPUShares   int64 `json:"cpuShares,omitempty"`   // relative weight, 2..262144
	MemoryBytes int64 `json:"memoryBytes,omitempty"` // the kernel kills what goes beyond
	PIDs        int64 `json:"pids,omitempty"`        // processes and threads
}

// State is where a container stands.
type State string

const (
	// Running means that the command runs, or that what is left to do after its end is being done.
	Running State = "Running"
	// Exited means that the command has ended, and that how it did is known.
	Exited State = "Exited"
	// Lost means that the container is gone and nobody knows how it ended: it is neither a success nor given an exit code.
	Lost State = "Lost"
)

// Status is what is known of a container.
type Status struct {
	Spec      Spec
	State     State
	PID       int // of the container's init, on the host; 0 unless Running
	StartedAt time.Time
	Exit      *Exit  // nil unless Exited
	Reason    string // why, when Lost
}

// Exit tells how a container ended.
type Exit struct {
	Code       int       `json:"code"`                // 0..255; 128 + Signal when a signal ended it
	Signal     int       `json:"signal,omitempty"`    // 0: it ended by itself
	OOMKilled  bool      `json:"oomKilled,omitempty"` // the kernel killed one of its processes for want of memory
	FinishedAt time.Time `json:"finishedAt"`
	LogLost    int64     `json:"logLost,omitempty"` // bytes of log that could not be written, because of a full disk for example
}
