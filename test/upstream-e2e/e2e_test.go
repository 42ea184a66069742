// SPDX-License-Identifier: Apache-2.0

// Package upstreame2e builds Kubernetes' own end-to-end specs, as they are in the module k8s.io/kubernetes, into one test
// binary. It is a module of its own, because the specs need much that Drover does not. hack/upstream-e2e.sh runs it.
package upstreame2e

import (
	"flag"
	"os"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/apps" // the specs of Job and CronJob among them
	_ "k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestUpstream(t *testing.T) { e2e.RunE2ETests(t) }
