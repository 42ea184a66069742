// SPDX-License-Identifier: Apache-2.0

// Package jobflow decides what a JobFlow needs next: which of its Jobs to make, now that those before them are done, and what its
// status is. It is pure: data in, plan out; it knows no client, clock, logger or metric, and does not know how a Job is run.
//
//	""  ──▶ Pending ──▶ Running ──▶ Succeed   every Job is Completed
//	            │           │
//	            └───────────┴──────▶ Failed    a Job has Failed or was Terminated: no more Jobs are made
//
// An entry of a flow is made into a Job once all its targets have completed; where it has a probe, once all its targets answer. A Job
// that was deleted after it had completed counts as completed, one that was deleted before is made again.
//
// Start reading at Decide. Source of the behaviour: Volcano's JobFlow controller, as its API shows it, but for probe and patch, which
// are in the API and do nothing there; every deliberate difference is marked "Differs:" and listed in docs/differences.md.
package jobflow
