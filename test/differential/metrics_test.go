// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// comparedMetrics are those that say what has become of Jobs and pods. All others say how long it took, and how often was
// looked.
var comparedMetrics = []string{
	"job_controller_jobs_finished_total", "job_controller_job_pods_finished_total", "job_controller_job_finished_indexes_total",
	"job_controller_pod_failures_handled_by_failure_policy_total", "job_controller_jobs_by_external_controller_total", created, tracked,
}

const (
	created = "job_controller_job_pods_creation_total"
	tracked = "job_controller_terminated_pods_tracking_finalizer_total"
)

// compareMetrics compares what both controllers have measured since they started.
func compareMetrics(t *testing.T, upstream, drover *side) {
	t.Helper()
	theirs, ours := upstream.metrics(t), drover.metrics(t)
	for _, one := range []map[string]int{theirs, ours} {
		// How many pods end before they lose the finalizer is chance, that all lose it is not.
		add, gone := tracked+`{event="add"}`, tracked+`{event="delete"}`
		if one[add] != one[gone] || one[add] == 0 {
			t.Errorf("%d pods have ended with the tracking finalizer, and %d have lost it", one[add], one[gone])
		}
		delete(one, add)
		delete(one, gone)
	}
	// Creations that are refused are tried again, at other times on each side. Upstream counts each as succeeded as well.
	const failed, succeeded = created + `{reason="new",status="failed"}`, created + `{reason="new",status="succeeded"}`
	if theirs[failed] == 0 || ours[failed] == 0 {
		t.Error("no creation was refused: the comparison does not see what it should")
	}
	if theirs[succeeded] == ours[succeeded] {
		t.Errorf("upstream does not count refused creations as succeeded any more: take that out, here and in docs/differences.md")
	}
	theirs[succeeded] -= theirs[failed]
	delete(theirs, failed)
	delete(ours, failed)
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("the sides differ (-upstream +drover):\n%s", diff)
	}
}

// metrics returns the values of comparedMetrics, by name and labels.
func (s *side) metrics(t *testing.T) map[string]int {
	t.Helper()
	values, err := s.readMetrics()
	if err != nil {
		t.Fatalf("reading the metrics of %s: %v", s.role, err)
	}
	return values
}

func (s *side) readMetrics() (values map[string]int, err error) {
	s.mu.Lock()
	address := s.controller.metrics
	s.mu.Unlock()
	response, err := http.Get(fmt.Sprintf("http://%s/metrics", address))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	values = map[string]int{}
	for line := range strings.Lines(string(body)) {
		if name, _, _ := strings.Cut(line, "{"); !slices.Contains(comparedMetrics, name) {
			continue
		}
		name, text, _ := strings.Cut(strings.TrimSpace(line), "} ")
		value, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		values[name+"}"] = value
	}
	return values, nil
}
