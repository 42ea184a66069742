// SPDX-License-Identifier: Apache-2.0

// Package node is the node daemon: it runs the pods that are bound to it as processes of this machine, and behaves towards the API
// server and towards the author of a pod as a kubelet does.
//
// One informer sees the pods. Each pod that is not finished has a worker, a goroutine that looks at the facts (what the API server
// says, what the runtime says, what probes say), asks package podlife what follows, and sets that in motion; whatever takes time
// runs beside it and wakes it up when it is done. The worker ends when the pod's final status is written.
//
//	API server ── informer ──▶ Node ──▶ worker (one a pod) ── Start, Signal ──▶ runtime (package process)
//	     ▲                                  │  ▲                                      │
//	     └── status, events, delete ────────┘  └──────── Done, probes, hooks ─────────┘
//
// Nothing that must outlive this process is in memory alone: what was started lies with the runtime under names that say which
// attempt of which container of which pod it is, everything else in the API server. So a node that was killed at any instant takes
// up its pods again (recover.go), and never starts an attempt a second time.
//
// The node knows nothing about Jobs. Start reading at Node.Run, then worker.step.
package node
