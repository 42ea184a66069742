// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/kubectl"
)

// splitKubectl takes drover's own flags from before the word kubectl, and leaves what follows it alone: cobra would hand
// both to kubectl. Arguments without that word are returned as they are.
func splitKubectl(root *cobra.Command, args []string) ([]string, error) {
	at := commandAt(root, args)
	if at < 0 || args[at] != kubectl.Name {
		return args, nil
	}
	if err := root.ParseFlags(args[:at]); err != nil {
		return nil, root.FlagErrorFunc()(root, err)
	}
	return args[at:], nil
}

// commandAt returns the position of the command's name in args, behind flags of root; negative if there is none.
func commandAt(root *cobra.Command, args []string) int {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--":
			return -1
		case arg == "" || arg[0] != '-':
			return i
		case takesValue(root, arg):
			i++
		}
	}
	return -1
}

// completeKubectl lets kubectl complete its own command lines.
func completeKubectl(ctx context.Context, f *command.Factory, args []string) (handled bool, err error) {
	if len(args) < 3 || args[1] != kubectl.Name || args[0] != cobra.ShellCompRequestCmd && args[0] != cobra.ShellCompNoDescRequestCmd {
		return false, nil
	}
	forwarded := append([]string{args[0]}, args[2:]...)
	return true, kubectl.Run(ctx, &kubectl.Options{Factory: f, Args: forwarded})
}
