// SPDX-License-Identifier: Apache-2.0

// Package e2e drives the built binary as a user does. Each script of testdata has a namespace of its own on one plane.
package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

func TestScripts(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	client := p.Client()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			name := "e2e-" + strings.ToLower(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"))
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := client.CoreV1().Namespaces().Create(context.Background(), ns, metav1.CreateOptions{}); err != nil {
				return err
			}
			env.Setenv("NS", name)
			env.Setenv("DROVER_DATA_DIR", p.Dir)
			env.Setenv("PATH", filepath.Dir(plane.Binary(t))+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Defer(func() {
				// The scripts leave things behind as users do; the namespace takes them away.
				_ = client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"drover":     drover,
			"eventually": eventually,
		},
	})
}

// drover runs the binary in the script's namespace: [!] drover ARG ...
func drover(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec("drover", append([]string{"-n", ts.Getenv("NS")}, args...)...)
	if neg && err == nil {
		ts.Fatalf("drover %s worked, and should not have", strings.Join(args, " "))
	}
	if !neg {
		ts.Check(err)
	}
}

// eventuallyLimit is generous: machines that run tests are busy.
const eventuallyLimit = time.Minute

// eventually runs the binary until its output matches: eventually REGEXP ARG ...
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: eventually REGEXP ARG ...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	binary := filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "drover")
	deadline := time.Now().Add(eventuallyLimit)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		cmd := exec.Command(binary, append([]string{"-n", ts.Getenv("NS")}, args[1:]...)...)
		cmd.Env = append(os.Environ(), "DROVER_DATA_DIR="+ts.Getenv("DROVER_DATA_DIR"))
		out, err := cmd.CombinedOutput() // that it fails now does not matter
		if want.Match(out) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("drover %s: after %v the output does not match %q (%v):\n%s", strings.Join(args[1:], " "), eventuallyLimit, args[0], err, out)
		}
		<-tick.C
	}
}
