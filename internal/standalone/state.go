// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/drover-dev/drover/internal/atomicfile"
)

// Phase is where a run of a plane stands.
type Phase string

// The phases of a run, in order.
const (
	Starting Phase = "Starting"
	Ready    Phase = "Ready"
	Stopping Phase = "Stopping"
	Stopped  Phase = "Stopped" // every part has stopped; a run that was killed keeps the phase that it ended in
)

// State is what a plane has noted about its last run. Whether that run still goes on is for the lock to say.
type State struct {
	Phase    Phase     `json:"phase"`
	PID      int       `json:"pid"`
	Version  string    `json:"version"` // of drover
	Started  time.Time `json:"started"`
	Server   string    `json:"server"`   // URL of the API server
	Port     int       `json:"port"`     // of the API server; the next run takes it again
	NodeName string    `json:"nodeName"` // of the one node
	// Survivors is how many pods went on running when the plane stopped.
	Survivors int `json:"survivors,omitempty"`
}

func (o *openDir) writeState(s State) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(o.state(), append(data, '\n'), 0o600)
}

// readState returns the zero State if there is none.
func readState(d Dir) (State, error) {
	var s State
	data, err := os.ReadFile(d.state())
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", d.state(), err)
	}
	return s, nil
}

// Found is what Inspect has found in a data directory.
type Found struct {
	Exists  bool // the directory has been used by a plane
	Running bool
	PID     int // of the running plane; 0 if it cannot be told
	State   State
}

// Inspect looks at the data directory d without changing it.
func Inspect(d Dir) (Found, error) {
	var f Found
	if _, err := os.Stat(d.format()); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return f, nil
		}
		return f, explain(d, err)
	}
	f.Exists = true
	var err error
	if f.Running, f.PID, err = lockHolder(d.lock()); err != nil {
		return f, explain(d, err)
	}
	if f.State, err = readState(d); err != nil {
		return f, err
	}
	return f, nil
}
