// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"flag"
	"os"
	"strconv"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// setupLogging leads klog, through which every Kubernetes component logs, into log. It is for the whole process and must
// run before the first component starts.
func setupLogging(c *Config) error {
	// Components that apply a logging configuration of their own must not fail because this one is there already.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// klog keeps its verbosity behind a flag; there is no other way to set it.
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	if err := fs.Set("v", strconv.Itoa(c.Verbosity)); err != nil {
		return err
	}
	klog.SetSlogLogger(c.Log.With("component", "kubernetes"))
	klog.OsExit = func(code int) {
		c.Exiting()
		os.Exit(code)
	}
	return nil
}
