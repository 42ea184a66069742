// SPDX-License-Identifier: Apache-2.0

// Command drover-controller runs Drover's controllers against any Kubernetes API server.
package main

import (
	"os"
	_ "time/tzdata" // schedules name zones, and an image need not have them

	"github.com/drover-dev/drover/internal/cli/controllercmd"
)

func main() { os.Exit(controllercmd.Main(os.Args[1:], os.Stdout, os.Stderr)) }
