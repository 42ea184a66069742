// SPDX-License-Identifier: Apache-2.0

// Package job decides what a batch/v1 Job needs next. It is pure: data in, plan out; it knows no client, clock, logger or
// metric.
//
// What is known of a Job's pods is kept in a Ledger, which follows pod events one by one, so that a decision costs what has
// changed and not how many pods there are. Around it stand three pure steps, in the order in which a sync uses them:
//
//	Claim(o)    which pods to adopt or to let go, before anything is counted
//	Decide(o)   which pods to delete or to create          → the controller acts, and tells the ledger what came of it
//	Account(o)  what the status must say now, and which pods may lose their tracking finalizer once it is stored
//
// Account is called again after the finalizers are gone; it then settles what has been counted, and ends the Job when
// everything is. Every step derives its answer anew from the Job's stored status and the ledger, so that a step which was
// interrupted, refused or lost is simply taken again.
//
// A pod is counted once because it is first named in the status (or its index is), then freed of the finalizer, then moved to
// a counter; the API server keeps it until the finalizer is gone. A status that ends the Job counts directly, because a
// finished Job is never counted again.
//
// Start reading at Decide. Source of the behaviour: Kubernetes v1.37 Job controller, as its API shows it; every deliberate
// difference is marked "Differs:" and listed in docs/differences.md.
package job
