// SPDX-License-Identifier: Apache-2.0

// Package vcjob decides what a Volcano Job (batch.volcano.sh) needs next: what admission fills in and refuses, which phase it is
// in, which policy fires, which pods are made and which go.
//
// Decide looks at everything that the API server holds of one Job and returns one step. The caller carries the step out and asks
// again, until there is nothing left to do. Nothing depends on having seen an event when it happened: what has happened to pods is
// read from the pods, what was decided is read from the Job's status. To that end a decision is stored before anything follows from
// it: the phase, the retry count and the version are written first, then pods go. Whoever takes over after a crash finds the
// decision and goes on.
//
//	        ┌──────────────── Restarting ◄───────────────┐
//	        ▼                  ▲      └──► Failed        │ resume
//	""─►Pending ⇄ Running ─────┤                         │
//	        │        │         ├──► Aborting ───► Aborted┘
//	        │        │         ├──► Completing ─► Completed
//	        │        │         └──► Terminating ► Terminated
//	        └────────┴──────────────────────────► Completed, Failed
//
// The package knows no client, clock or logger. Start reading at Decide, then phase_*.go.
package vcjob
