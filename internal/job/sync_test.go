// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestOneSync lays out a Job and its pods and says everything that one sync then does, in order.
func TestOneSync(t *testing.T) {
	const (
		running, pending           = corev1.PodRunning, corev1.PodPending
		wellEnded, badlyEnded      = corev1.PodSucceeded, corev1.PodFailed
		yes                        = corev1.ConditionTrue
		no                         = corev1.ConditionFalse
		failJob, failIndex, ignore = batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionIgnore
		in                         = batchv1.PodFailurePolicyOnExitCodesOpIn
	)
	cases := map[string]struct {
		scene scene
		want  []string
	}{
		"a new Job gets as many pods as may run beside each other": {
			scene{job: newJob(parallelism(2), completions(5))},
			[]string{"create a pod 2 times", "status active=2"},
		},
		"a new work-queue Job gets its parallelism": {
			scene{job: newJob(parallelism(2))},
			[]string{"create a pod 2 times", "status active=2"},
		},
		"a pod that has ended is named, freed, counted and made up for": {
			scene{job: newJob(parallelism(2), completions(5), startedAt(0)), pods: all(pods(1, "run", running), pods(1, "done", wellEnded))},
			[]string{"create a pod", "status active=2 uncounted=[done-0]/[]", "untrack done-0", "status active=2 succeeded=1"},
		},
		"when every write to a pod is refused nothing is counted for good": {
			scene{job: newJob(parallelism(2), completions(5), startedAt(0)), pods: all(pods(1, "run", running), pods(1, "done", wellEnded)), refuse: true},
			[]string{"status active=1 uncounted=[done-0]/[]", "tried to untrack done-0"},
		},
		"a pod that is going counts as failed at once": {
			scene{job: newJob(parallelism(1), startedAt(0)), now: 60, pods: all(pods(1, "run", running), pods(1, "failed", badlyEnded, ended(1, 1)), pods(1, "going", running, goingSince(2)))},
			[]string{"status active=1 terminating=1 uncounted=[]/[failed-0 going-0]", "untrack failed-0, going-0", "status active=1 terminating=1 failed=2"},
		},
		"with podReplacementPolicy Failed a pod that is going does not count yet": {
			scene{job: newJob(parallelism(1), waitForFailed, startedAt(0)), now: 60, pods: all(pods(1, "run", running), pods(1, "failed", badlyEnded, ended(1, 1)), pods(1, "going", running, goingSince(2)))},
			[]string{"status active=1 terminating=1 uncounted=[]/[failed-0]", "untrack failed-0", "status active=1 terminating=1 failed=1"},
		},
		"more terminating than wanted pods never make a negative number of creations": {
			scene{job: newJob(parallelism(1), completions(1), waitForFailed, startedAt(0)), pods: all(pods(2, "run", running), pods(4, "going", running, goingSince(2)))},
			[]string{"untrack and delete run-0", "status active=1 terminating=5"},
		},
		"a Job in back-off creates nothing": {
			scene{job: newJob(parallelism(1), completions(1), startedAt(0)), now: 3, pods: pods(1, "failed", badlyEnded, ended(1, 1))},
			[]string{"status active=0 uncounted=[]/[failed-0]", "untrack failed-0", "status active=0 failed=1", "look again after 8s"},
		},
		"a Job in back-off keeps telling of the pods that run": {
			scene{job: newJob(parallelism(2), completions(2), startedAt(0)), now: 3, pods: all(pods(1, "run", running, ready), pods(1, "failed", badlyEnded, ended(1, 1)))},
			[]string{"status active=1 ready=1 uncounted=[]/[failed-0]", "untrack failed-0", "status active=1 ready=1 failed=1", "look again after 8s"},
		},
		"the last moment of back-off still waits a second": {
			scene{job: newJob(parallelism(1), completions(1), startedAt(0)), now: 10, pods: pods(1, "failed", badlyEnded, ended(0, 1), func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = at(0)
				p.CreationTimestamp = at(0)
			})},
			[]string{"create a pod", "status active=1 uncounted=[]/[failed-0]", "untrack failed-0", "status active=1 failed=1"},
		},
		"too many pods: the least worthy goes, and does not count as failed": {
			scene{job: newJob(parallelism(2), completions(5), startedAt(0)), pods: all(pods(2, "ready", running, ready), pods(1, "unready", running))},
			[]string{"untrack and delete unready-0", "status active=2 ready=2 terminating=1"},
		},
		"too many pods whose writes are refused": {
			scene{job: newJob(parallelism(2), completions(5), startedAt(0)), pods: pods(3, "run", running, ready), refuse: true},
			[]string{"tried to delete run-0", "status active=3 ready=3"},
		},
		"a success at the moment of a failure ends the back-off": {
			scene{job: newJob(parallelism(2), completions(5), startedAt(0)), now: 1, pods: all(pods(1, "run", running), pods(1, "failed", badlyEnded, ended(1, 1)), pods(1, "done", wellEnded, ended(1, 0)))},
			[]string{"create a pod", "status active=2 uncounted=[done-0]/[failed-0]", "untrack done-0, failed-0", "status active=2 succeeded=1 failed=1"},
		},
		"the nearer the end, the fewer pods": {
			scene{job: newJob(parallelism(3), completions(4), startedAt(0), status(func(s *batchv1.JobStatus) { s.Succeeded = 2 })), pods: pods(3, "run", running)},
			[]string{"untrack and delete run-0", "status active=2 terminating=1 succeeded=2"},
		},
		"far too many pods": {
			scene{job: newJob(parallelism(2), completions(5), startedAt(0)), pods: pods(10, "run", running)},
			[]string{
				"untrack and delete run-0", "untrack and delete run-1", "untrack and delete run-2", "untrack and delete run-3",
				"untrack and delete run-4", "untrack and delete run-5", "untrack and delete run-6", "untrack and delete run-7", "status active=2 terminating=8",
			},
		},
		"creations end where the API server takes no more": {
			scene{job: newJob(parallelism(100), completions(200)), room: 10},
			[]string{"create a pod 10 times", "status active=10"},
		},
		"a Job that is being deleted only lets its pods go": {
			scene{job: newJob(parallelism(2), completions(5), deleting, startedAt(0)), pods: all(pods(2, "run", running), pods(1, "done", wellEnded))},
			[]string{"status active=2 uncounted=[done-0]/[]", "untrack done-0, run-0, run-1", "status active=2 succeeded=1"},
		},
		"while a write is in doubt a failure is counted and the Job not failed": {
			scene{job: newJob(parallelism(1), completions(1), backoffOf(0), startedAt(0)), now: 1, unsettled: true, pods: pods(1, "failed", badlyEnded, ended(1, 1))},
			[]string{"status active=0 uncounted=[]/[failed-0]", "untrack failed-0", "status active=0 failed=1"},
		},
		"the lowest indexes that want a pod get one": {
			scene{job: newJob(parallelism(8), indexed(20), startedAt(0)), pods: []*corev1.Pod{
				newPod("a0", pending, atIndex(0)), newPod("a3", pending, atIndex(3)),
				newPod("d2", wellEnded, atIndex(2)), newPod("d4", wellEnded, atIndex(4)), newPod("d5", wellEnded, atIndex(5)),
				newPod("d7", wellEnded, atIndex(7)), newPod("d8", wellEnded, atIndex(8)), newPod("d9", wellEnded, atIndex(9)),
			}},
			[]string{
				"create index 1", "create index 6", "create index 10", "create index 11", "create index 12", "create index 13",
				`status active=8 succeeded=6 completed="2,4,5,7-9"`, "untrack d2, d4, d5, d7, d8, d9",
			},
		},
		"pods without a place in the Job go, and those of them that have ended are let go uncounted": {
			scene{job: newJob(parallelism(2), indexed(5), startedAt(0)), pods: []*corev1.Pod{
				newPod("s0", wellEnded, atIndex(0)), newPod("r5", running, atIndex(5)), newPod("s6", wellEnded, atIndex(6)), newPod("p7", pending, atIndex(7)), newPod("f8", badlyEnded, atIndex(8), ended(1, 1)),
			}},
			[]string{"untrack and delete p7", "untrack and delete r5", `status active=0 terminating=2 succeeded=1 completed="0"`, "untrack f8, s6, s0"},
		},
		"of two pods of one index the better one stays": {
			scene{job: newJob(parallelism(4), indexed(10), startedAt(0)), pods: []*corev1.Pod{
				newPod("run2", running, atIndex(2)), newPod("wait2", pending, atIndex(2)), newPod("stray", running, atIndex(12)), newPod("run3", running, atIndex(3)),
			}},
			[]string{"untrack and delete stray", "untrack and delete wait2", `status active=2 terminating=2 completed=""`},
		},
		"an Indexed Job past its limit": {
			scene{job: newJob(parallelism(3), indexed(3), backoffOf(0), startedAt(0)), now: 2, pods: []*corev1.Pod{
				newPod("s0", wellEnded, atIndex(0)), newPod("f1", badlyEnded, atIndex(1), ended(1, 1)), newPod("r2", running, atIndex(2)),
			}},
			[]string{
				"delete r2", `status active=0 terminating=1 succeeded=1 uncounted=[]/[f1 r2] completed="0" FailureTarget(BackoffLimitExceeded)`,
				"untrack s0, f1, r2", `status active=0 terminating=1 succeeded=1 failed=2 completed="0" FailureTarget(BackoffLimitExceeded)`,
			},
		},
		"suspending takes the pods away, and none of them has failed": {
			scene{job: newJob(parallelism(2), completions(5), suspended, startedAt(0)), pods: pods(2, "run", running)},
			[]string{"untrack and delete run-0", "untrack and delete run-1", "status active=0 terminating=2 not-started Suspended(JobSuspended)", "event Normal Suspended: Job suspended"},
		},
		"a Job suspended from birth": {
			scene{job: newJob(parallelism(2), completions(5), suspended)},
			[]string{"status active=0 not-started Suspended(JobSuspended)", "event Normal Suspended: Job suspended"},
		},
		"while a write is in doubt nothing is suspended": {
			scene{job: newJob(parallelism(2), completions(5), suspended, startedAt(0)), unsettled: true, pods: pods(2, "run", running)},
			[]string{"status active=2"},
		},
		"a Job that is being deleted is not suspended any more": {
			scene{job: newJob(parallelism(2), completions(5), suspended, deleting, startedAt(0)), pods: pods(2, "run", running)},
			[]string{"status active=2", "untrack run-0, run-1"},
		},
		"resuming": {
			scene{job: newJob(parallelism(2), completions(5), haveCondition(batchv1.JobSuspended, yes, "JobSuspended", "Job suspended")), now: 9},
			[]string{"create a pod 2 times", "status active=2 not-Suspended(JobResumed)", "event Normal Resumed: Job resumed"},
		},
		"a Job that was never suspended is not said to be resumed": {
			scene{job: newJob(parallelism(1), completions(1), startedAt(0), status(func(s *batchv1.JobStatus) { s.Active = 1 })), pods: pods(1, "run", running)},
			[]string{"status active=1"},
		},
		"conditions that somebody has set to False by hand are ignored and kept": {
			scene{
				job:  newJob(parallelism(1), completions(1), startedAt(0), haveCondition(batchv1.JobFailureTarget, no, "Manual", ""), haveCondition(batchv1.JobSuccessCriteriaMet, no, "Manual", "")),
				pods: pods(1, "done", wellEnded, ended(1, 0)), now: 2,
			},
			[]string{
				"status active=0 succeeded=1 not-FailureTarget(Manual) not-SuccessCriteriaMet(Manual) SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)",
				"event Normal Completed: Job completed", "untrack done-0",
			},
		},
		"restarts in place below the limit": {
			scene{job: newJob(onFailure, completions(1), backoffOf(1), startedAt(0), status(func(s *batchv1.JobStatus) { s.Active = 1; s.Ready, s.Terminating = ptr.To[int32](0), ptr.To[int32](0) })), pods: pods(1, "run", running, restarted(0))},
			nil,
		},
		"restarts in place that reach the limit": {
			scene{job: newJob(onFailure, completions(1), backoffOf(1), startedAt(0)), pods: pods(1, "run", running, restarted(1))},
			[]string{
				"delete run-0", "status active=0 terminating=1 uncounted=[]/[run-0] FailureTarget(BackoffLimitExceeded)", "untrack run-0",
				"status active=0 terminating=1 failed=1 FailureTarget(BackoffLimitExceeded)",
			},
		},
		"restarts of a pod that is waiting count too": {
			scene{job: newJob(onFailure, completions(1), backoffOf(1), startedAt(0)), pods: pods(1, "wait", pending, restarted(1))},
			[]string{
				"delete wait-0", "status active=0 terminating=1 uncounted=[]/[wait-0] FailureTarget(BackoffLimitExceeded)", "untrack wait-0",
				"status active=0 terminating=1 failed=1 FailureTarget(BackoffLimitExceeded)",
			},
		},
		"a limit of zero allows no restart, and no restart is none": {
			scene{job: newJob(onFailure, completions(1), backoffOf(0), startedAt(0), status(func(s *batchv1.JobStatus) { s.Active = 1; s.Ready, s.Terminating = ptr.To[int32](0), ptr.To[int32](0) })), pods: pods(1, "run", running, restarted(0))},
			nil,
		},
		"the deadline ends the Job": {
			scene{job: newJob(parallelism(2), completions(4), deadline(20), startedAt(0)), now: 20, pods: pods(1, "run", running)},
			[]string{
				"delete run-0", "status active=0 terminating=1 uncounted=[]/[run-0] FailureTarget(DeadlineExceeded)", "untrack run-0",
				"status active=0 terminating=1 failed=1 FailureTarget(DeadlineExceeded)",
			},
		},
		"before the deadline the Job is looked at again in time": {
			scene{job: newJob(completions(1), deadline(20), startedAt(0), status(func(s *batchv1.JobStatus) { s.Active = 1 })), now: 5, pods: pods(1, "run", running)},
			[]string{"status active=1", "look again after 15s"},
		},
		"an announced failure is final once no pod is left": {
			scene{
				job:  newJob(completions(4), startedAt(0), haveCondition(batchv1.JobFailureTarget, yes, "DeadlineExceeded", "Job was active longer than specified deadline"), status(func(s *batchv1.JobStatus) { s.Failed = 1 })),
				pods: pods(1, "stopped", badlyEnded, untracked, goingSince(1)), now: 30,
			},
			[]string{"status active=0 failed=1 FailureTarget(DeadlineExceeded) Failed(DeadlineExceeded)", "event Warning DeadlineExceeded: Job was active longer than specified deadline"},
		},
		"an announced success is never turned into a failure": {
			scene{
				job:  newJob(indexed(3), parallelism(3), backoffOf(0), startedAt(0), succeedsWith(batchv1.SuccessPolicyRule{SucceededCount: ptr.To[int32](1)}), haveCondition(batchv1.JobSuccessCriteriaMet, yes, "SuccessPolicy", "Matched rules at index 0"), status(func(s *batchv1.JobStatus) { s.Succeeded, s.CompletedIndexes = 1, "0" })),
				pods: []*corev1.Pod{newPod("f1", badlyEnded, atIndex(1), ended(5, 1), goingSince(3), untracked)}, now: 30,
			},
			[]string{`status active=0 succeeded=1 completed="0" SuccessCriteriaMet(SuccessPolicy) Complete(SuccessPolicy)`, "event Normal Completed: Job completed"},
		},
		"a success policy stops the rest, which neither fails nor counts": {
			scene{
				job:  newJob(indexed(3), parallelism(3), startedAt(0), succeedsWith(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("1-2"), SucceededCount: ptr.To[int32](1)})),
				pods: []*corev1.Pod{newPod("r0", running, atIndex(0)), newPod("s1", wellEnded, atIndex(1)), newPod("r2", running, atIndex(2))}, now: 30,
			},
			[]string{
				`status active=2 succeeded=1 completed="1" SuccessCriteriaMet(SuccessPolicy)`, "untrack r0, s1, r2", "delete r0", "delete r2",
				`status active=0 terminating=2 succeeded=1 completed="1" SuccessCriteriaMet(SuccessPolicy)`,
			},
		},
		"failure comes before success when both are seen at once": {
			scene{
				job:  newJob(indexed(2), parallelism(2), perIndex(0), startedAt(0), succeedsWith(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("1")})),
				pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), ended(1, 1)), newPod("s1", wellEnded, atIndex(1))}, now: 30,
			},
			[]string{
				`status active=0 succeeded=1 failed=1 completed="1" failedIndexes="0" FailureTarget(FailedIndexes) Failed(FailedIndexes)`, "event Warning FailedIndexes: Job has failed indexes",
				"untrack f0, s1",
			},
		},
		"a single-pod Job is told complete in one write": {
			scene{job: newJob(completions(1)), pods: pods(1, "done", wellEnded, ended(1, 0)), now: 2},
			[]string{"status active=0 succeeded=1 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)", "event Normal Completed: Job completed", "untrack done-0"},
		},
		"what an earlier status has named is counted once its finalizer is gone": {
			scene{
				job: newJob(completions(3), startedAt(0), status(func(s *batchv1.JobStatus) {
					s.Succeeded = 1
					s.Active = 1
					s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: uids("done-0"), Failed: uids("left")}
				})),
				pods: all(pods(1, "done", wellEnded, untracked), pods(1, "run", running)),
			},
			[]string{"status active=1 succeeded=2 failed=1"},
		},
		"a pod once named as failed stays so, even if it ends well": {
			scene{
				job: newJob(completions(2), backoffOf(6), startedAt(0), status(func(s *batchv1.JobStatus) {
					s.Active = 1
					s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: uids("flip")}
				})),
				pods: []*corev1.Pod{newPod("flip", wellEnded, goingSince(1)), newPod("run", running)},
			},
			[]string{"status active=1 uncounted=[]/[flip]", "untrack flip", "status active=1 failed=1"},
		},
		"too many successes are told": {
			scene{job: newJob(completions(1), parallelism(1), startedAt(0)), pods: pods(2, "done", wellEnded), now: 2},
			[]string{
				"status active=0 succeeded=2 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)",
				"event Warning TooManySucceededPods: Too many succeeded pods running after completion count reached", "event Normal Completed: Job completed", "untrack done-0, done-1",
			},
		},
		"a work-queue Job makes no new pod after the first success": {
			scene{job: newJob(parallelism(3), startedAt(0)), now: 100, pods: all(pods(1, "done", wellEnded), pods(1, "run", running), pods(1, "failed", badlyEnded, ended(1, 1)))},
			[]string{"status active=1 uncounted=[done-0]/[failed-0]", "untrack done-0, failed-0", "status active=1 succeeded=1 failed=1"},
		},
		"a work-queue Job is complete when the others have ended": {
			scene{job: newJob(parallelism(3), startedAt(0)), now: 100, pods: pods(2, "done", wellEnded)},
			[]string{"status active=0 succeeded=2 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)", "event Normal Completed: Job completed", "untrack done-0, done-1"},
		},
		"parallelism zero takes the pods away": {
			scene{job: newJob(parallelism(0), completions(3), startedAt(0)), pods: pods(1, "run", running)},
			[]string{"untrack and delete run-0", "status active=0 terminating=1"},
		},
		"no completions wanted: complete at once": {
			scene{job: newJob(completions(0))},
			[]string{"status active=0 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)", "event Normal Completed: Job completed"},
		},
		"suspended and no completions wanted: complete without having started": {
			scene{job: newJob(completions(0), suspended)},
			[]string{"status active=0 not-started SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)", "event Normal Completed: Job completed"},
		},
		"suspended with enough successes: complete, and started for the record": {
			scene{job: newJob(indexed(1), suspended, haveCondition(batchv1.JobSuspended, yes, "JobSuspended", "Job suspended"), status(func(s *batchv1.JobStatus) { s.Succeeded, s.CompletedIndexes = 1, "0" })), now: 5},
			[]string{`status active=0 succeeded=1 completed="0" Suspended(JobSuspended) SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)`, "event Normal Completed: Job completed"},
		},
		"FailJob names the container, the pod, the code and the rule": {
			scene{job: newJob(parallelism(2), completions(4), failurePolicy(exitCodes(failJob, in, 42)), startedAt(0)), pods: all(pods(1, "bad", badlyEnded, ended(1, 42)), pods(1, "run", running)), now: 5},
			[]string{
				"delete run-0", "status active=0 terminating=1 uncounted=[]/[bad-0 run-0] FailureTarget(PodFailurePolicy)", "untrack bad-0, run-0",
				"status active=0 terminating=1 failed=2 FailureTarget(PodFailurePolicy)",
			},
		},
		"Ignore lets a failure go without counting it, but back-off still applies": {
			scene{job: newJob(completions(1), backoffOf(0), failurePolicy(podCondition(ignore, corev1.DisruptionTarget)), startedAt(0)), pods: pods(1, "evicted", badlyEnded, ended(1, 137), withCondition(corev1.DisruptionTarget)), now: 5},
			[]string{"status active=0", "untrack evicted-0", "look again after 6s"},
		},
		"FailIndex fails the index without a retry": {
			scene{job: newJob(parallelism(2), indexed(3), perIndex(1), failurePolicy(exitCodes(failIndex, in, 42)), startedAt(0)), pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), wentThrough(0, 0), ended(1, 42)), newPod("r1", running, atIndex(1), wentThrough(0, 0))}, now: 5},
			[]string{
				"create index 2 after 0 failures", `status active=2 uncounted=[]/[f0] completed="" failedIndexes="0"`, "untrack f0",
				`status active=2 failed=1 completed="" failedIndexes="0"`,
			},
		},
		"the failed pod of an index is kept until its replacement is there": {
			scene{job: newJob(parallelism(2), indexed(2), perIndex(1), startedAt(0)), pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), wentThrough(0, 0), ended(1, 1)), newPod("r1", running, atIndex(1), wentThrough(0, 0))}, now: 5},
			[]string{`status active=1 completed="" failedIndexes=""`, "look again after 6s"},
		},
		"once its back-off is over an index gets its replacement, which knows what has been": {
			scene{job: newJob(parallelism(2), indexed(2), perIndex(1), startedAt(0)), pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), wentThrough(0, 0), ended(1, 1)), newPod("r1", running, atIndex(1), wentThrough(0, 0))}, now: 11},
			[]string{
				"create index 0 after 1 failures", `status active=2 uncounted=[]/[f0] completed="" failedIndexes=""`, "untrack f0",
				`status active=2 failed=1 completed="" failedIndexes=""`,
			},
		},
		"an ignored failure of an index is remembered apart": {
			scene{job: newJob(indexed(1), perIndex(1), failurePolicy(exitCodes(ignore, in, 2)), startedAt(0)), pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), wentThrough(1, 0), ended(1, 2))}, now: 60},
			[]string{"create index 0 after 1 failures and 1 ignored", `status active=1 completed="" failedIndexes=""`, "untrack f0"},
		},
		"an index whose back-off is over does not wait behind another": {
			scene{job: newJob(parallelism(1), indexed(2), perIndex(6), startedAt(0)), pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), wentThrough(3, 0), ended(1, 1))}, now: 5},
			[]string{"create index 1 after 0 failures", `status active=1 completed="" failedIndexes=""`, "look again after 1m16s"},
		},
		"indexes whose pods a failing Job stops have not failed": {
			scene{job: newJob(parallelism(3), indexed(3), perIndex(0), maxFailedIndexes(0), startedAt(0)), now: 5, pods: []*corev1.Pod{
				newPod("r0", running, atIndex(0), wentThrough(0, 0)), newPod("f1", badlyEnded, atIndex(1), wentThrough(0, 0), ended(1, 1)), newPod("r2", running, atIndex(2), wentThrough(0, 0)),
			}},
			[]string{
				"delete r0", "delete r2",
				`status active=0 terminating=2 uncounted=[]/[r0 f1 r2] completed="" failedIndexes="1" FailureTarget(MaxFailedIndexesExceeded)`,
				"untrack r0, f1, r2", `status active=0 terminating=2 failed=3 completed="" failedIndexes="1" FailureTarget(MaxFailedIndexesExceeded)`,
			},
		},
		"more failed indexes than allowed": {
			scene{job: newJob(indexed(4), perIndex(0), maxFailedIndexes(0), startedAt(0)), pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), wentThrough(0, 0), ended(1, 1))}, now: 5},
			[]string{
				`status active=0 failed=1 completed="" failedIndexes="0" FailureTarget(MaxFailedIndexesExceeded) Failed(MaxFailedIndexesExceeded)`,
				"event Warning MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes", "untrack f0",
			},
		},
		"an index with a success and a last failure has succeeded": {
			scene{job: newJob(indexed(1), perIndex(0), startedAt(0)), pods: []*corev1.Pod{newPod("f0", badlyEnded, atIndex(0), wentThrough(0, 0), ended(1, 1)), newPod("s0", wellEnded, atIndex(0), wentThrough(0, 0), ended(2, 0))}, now: 5},
			[]string{
				`status active=0 succeeded=1 failed=1 completed="0" failedIndexes="" SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached)`,
				"event Normal Completed: Job completed", "untrack f0, s0",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, told := tc.scene.sync(t)
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Errorf("what was done (-want +got):\n%s", diff)
			}
		})
	}
}
