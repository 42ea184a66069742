// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

func TestSIGTERMStopsAPlaneInTimeAndLeavesNothing(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	pid := p.PID()
	started := time.Now()
	if err := p.Stop(); err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if children := childrenOf(t, pid); len(children) > 0 {
		t.Errorf("processes %v are left", children)
	}
	if _, err := os.Stat(p.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the ephemeral directory is still there (%v)", err)
	}
	if mounts := mountsBelow(t, p.Dir); len(mounts) > 0 {
		t.Errorf("mounts %v are left", mounts)
	}
}

// A plane can be asked to stop at any moment of its start.
func TestSIGTERMWhileStarting(t *testing.T) {
	for _, after := range []string{"data directory", "etcd answers", "kube-apiserver answers"} {
		t.Run("after "+after, func(t *testing.T) {
			p := plane.Launch(t, plane.Options{})
			for deadline := time.Now().Add(time.Minute); !strings.Contains(p.Output(), after); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("it has not got there:\n%s", p.Output())
				}
			}
			if err := p.Stop(); err != nil {
				t.Errorf("%v\n%s", err, p.Output())
			}
			if _, err := os.Stat(p.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the ephemeral directory is still there (%v)", err)
			}
		})
	}
}

// childrenOf returns the processes whose session leader or parent is pid.
func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // state, parent, group, session, ...
		want := []byte(strconv.Itoa(pid))
		if bytes.Equal(fields[1], want) || bytes.Equal(fields[3], want) {
			found = append(found, path)
		}
	}
	return found
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}

// TestSIGTERMInARush: with hundreds of Jobs under way and a client that watches them, a stop took up to twelve seconds on a busy machine,
// and left the controllers behind.
func TestSIGTERMInARush(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	client := p.Client()
	jobs := client.BatchV1().Jobs(newNamespace(t, client, "rush"))
	watch, err := jobs.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for i := range 8 {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = jobs.Create(ctx, trueJob(fmt.Sprintf("a-%d-%d", i, n)), metav1.CreateOptions{}) // refused once the plane stops
			}
		})
	}
	for done := 0; done < 20; {
		event, open := <-watch.ResultChan()
		if !open {
			t.Fatalf("the watch ended after %d Jobs:\n%s", done, p.Output())
		}
		if j, ok := event.Object.(*batchv1.Job); ok && j.Status.Succeeded > 0 {
			done++
		}
	}
	if err := p.Stop(); err != nil { // it says so when a part has not stopped in time
		t.Errorf("%v\n%s", err, p.Output())
	}
}

func trueJob(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"true"}}},
		}}},
	}
}
