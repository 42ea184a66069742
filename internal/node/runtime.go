// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"syscall"

	"github.com/drover-dev/drover/internal/node/process"
)

// Runtime runs containers; *process.Runtime is one. It must be safe for concurrent use.
type Runtime interface {
	// Start runs a container. Before the command runs, the container can be found again by a later Runtime. A
	// *process.StartError means that the command has had no effect.
	Start(ctx context.Context, spec process.Spec) (process.Status, error)
	// Status returns what is known of a container, and false when there is none with this ID.
	Status(id string) (process.Status, bool)
	// Done returns a channel that is closed once the container does not run any more; it is closed already for one that is
	// unknown.
	Done(id string) <-chan struct{}
	// Signal sends a signal to the container's main process; SIGKILL ends all of them.
	Signal(id string, sig syscall.Signal) error
	// Exec runs a command in a running container and returns its exit code.
	Exec(ctx context.Context, id string, e process.Exec) (int, error)
	// Remove takes away everything that is left of a container that does not run. Its log stays.
	Remove(ctx context.Context, id string) error
	// List returns all containers.
	List() []process.Status
	// Features tells what this machine lets the runtime do.
	Features() process.Features
}
