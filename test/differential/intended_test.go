// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// difference is one that is meant to be.
type difference struct {
	history string
	at      string // checkpoint
	// upstream and drover are the lines that only the one or the other side has; * stands for any text. One that begins
	// with ? is there by chance.
	upstream, drover []string
	why              string
	// documented is the row of docs/differences.md that tells users, by its first column; "" where all is by chance.
	documented string
}

// intended are all differences that are meant to be. One that is not seen any more fails the test as well.
var intended = []difference{
	{
		history: "suspended-after-enough-successes", at: "cut",
		drover: []string{
			"job job: status.conditions[2].*", "job job: status.completionTime: *", "job job: status.startTime: *",
			"job job: completed when Complete became true: true", `event of job-controller on Job job: Normal Completed "Job completed" ×1`,
		},
		why:        "upstream announces the end, and the API server refuses the end itself while there is no start time",
		documented: "suspended Job with enough successes",
	},
	{
		history: "suspended-beyond-its-limit", at: "lowered",
		drover: []string{
			"job job: status.conditions[2].*", "job job: status.startTime: *",
			`event of job-controller on Job job: Warning BackoffLimitExceeded "Job has reached the specified backoff limit" ×1`,
		},
		why:        "as with enough successes: upstream's end is refused while there is no start time",
		documented: "suspended Job with enough successes",
	},
	{
		history: "per-index-others-start-first", at: "waiting",
		drover: []string{
			"pod job-1-#: *", "ever: pod job-1-#, *", "job job: status.active: 1",
			`event of job-controller on Job job: Normal SuccessfulCreate "Created pod: job-1-#" ×1`,
		},
		why:        "upstream keeps the only place free for index 0, which must wait, although index 1 need not",
		documented: "per-index back-off",
	},
	{
		history: "ended-pod-loses-its-owner", at: "taken back",
		upstream:   []string{"job job: status.succeeded: 2"},
		drover:     []string{"job job: status.succeeded: 1"},
		why:        "upstream gives the pod the finalizer again, and counts it again",
		documented: "adoption",
	},
	{
		history: "cut-and-narrowed", at: "cut and narrowed",
		upstream:   []string{"job job: status.completedIndexes: 1,2"},
		drover:     []string{"job job: status.completedIndexes: 1"},
		why:        "the API server refuses upstream's status, because the counter would go down",
		documented: "Indexed Job cut below its successes while completions and parallelism differ",
	},
	{
		history: "relabelled-while-deleting", at: "deleting",
		upstream:   []string{"job job: *", "pod job-#: *"},
		why:        "upstream leaves the finalizer on the pod, which it does not take for the Job's any more",
		documented: "pods of a Job that is being deleted, whose labels no longer match",
	},
	{
		history: "index-ends-both-ways", at: "both ways",
		upstream: []string{
			"job job: status.active: 1", "job job: status.ready: 1",
			"pod extra: metadata.finalizers[0]: batch.kubernetes.io/job-tracking", "pod job-0-#: metadata.finalizers[0]: batch.kubernetes.io/job-tracking",
		},
		drover: []string{
			"job job: status.conditions*", "job job: status.completionTime: *", "job job: completed when Complete became true: true",
			"job job: status.completedIndexes: 0", "job job: status.succeeded: 1", "job job: status.failed: 1", "job job: status.ready: 0",
			`event of job-controller on Job job: Normal Completed "Job completed" ×1`,
		},
		why:        "the API server refuses a status that lists an index as completed and as failed",
		documented: "index with a success and a final failure",
	},
	{
		history: "cron-name-is-taken", at: "nothing started",
		drover:     []string{`event of cronjob-controller on CronJob cron: Warning FailedCreate "Error creating job: jobs.batch \"cron-*\" already exists" ×1`},
		why:        "upstream says nothing",
		documented: "`AlreadyExists`, somebody else's Job",
	},
	{
		history: "cron-started-and-forgotten", at: "taken in",
		upstream:   []string{`event of cronjob-controller on CronJob cron: Warning UnexpectedJob "Saw a job that the controller did not create or forgot: cron-*" ×1`},
		why:        "upstream does not know its own Job before it has tried to create it again",
		documented: "a Job that the status does not list, of a start that was not stored",
	},
	{
		history: "cron-no-history", at: "nothing is left",
		upstream:   []string{`?event of cronjob-controller on CronJob cron: Normal MissingJob "Active job went missing: cron-*" ×1`},
		why:        "when upstream's status is refused because of a conflict, it misses the Job that it has deleted itself",
		documented: "clean-up of old Jobs",
	},
	{
		history: "cron-deleted-in-foreground", at: "deleting",
		upstream: []string{"?job cron-*: status.failed: 1"},
		drover:   []string{"?job cron-*: status.failed: 1"},
		why:      "a pod counts as failed if it is seen to be deleted before its Job is, and which comes first is chance",
	},
	{
		history: "deleted-in-foreground", at: "deleting",
		upstream: []string{"?job job: status.failed: *"},
		drover:   []string{"?job job: status.failed: *"},
		why:      "a pod counts as failed if it is seen to be deleted before its Job is, and which comes first is chance",
	},
	{
		history: "waits-while-deleting", at: "deleting",
		upstream: []string{"?job job: status.failed: *", "?job job: status.succeeded: 1"},
		drover:   []string{"?job job: status.failed: *", "?job job: status.succeeded: 1"},
		why:      "a pod counts as failed if it is seen to be deleted before its Job is, and which comes first is chance",
	},
}

func TestEveryIntendedDifferenceIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range intended {
		if d.why == "" {
			t.Errorf("the difference of %s at %q has no reason", d.history, d.at)
		}
		byChance := !slices.ContainsFunc(append(slices.Clone(d.upstream), d.drover...), func(line string) bool { return line[0] != '?' })
		if !byChance && !strings.Contains(string(text), "\n| "+d.documented+" |") {
			t.Errorf("docs/differences.md has no row %q, for %s at %q", d.documented, d.history, d.at)
		}
	}
}
